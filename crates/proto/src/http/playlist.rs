//! Playlists: M3U, PLS, XSPF.

use core::fmt;

/// Maximum size of a playlist in bytes; the rest of a longer one is ignored.
pub const MAX_PLAYLIST_BYTES: usize = 256 * 1024;

/// Maximum number of entries.
pub const MAX_PLAYLIST_ENTRIES: usize = 32;

/// Reason why a playlist cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaylistError {
    /// HLS: segments of a programme instead of streams.
    Hls,
    /// It contains no address.
    Empty,
}

impl fmt::Display for PlaylistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hls => "HLS is not supported; use the station's MP3 or AAC stream",
            Self::Empty => "the playlist contains no URL",
        })
    }
}

impl core::error::Error for PlaylistError {}

/// Whether a content type denotes a playlist.
#[must_use]
pub fn is_playlist_type(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    TYPES.contains(&&kind[..])
}

/// Parses the addresses in a playlist, in their order, at most [`MAX_PLAYLIST_ENTRIES`]. They may
/// be relative.
///
/// # Errors
/// [`PlaylistError`].
pub fn playlist_entries(bytes: &[u8]) -> Result<Vec<String>, PlaylistError> {
    playlist_files(bytes.get(..MAX_PLAYLIST_BYTES).unwrap_or(bytes), MAX_PLAYLIST_ENTRIES)
}

/// Parses the entries of a playlist of files, in their order, at most `most`: paths, which may be
/// relative, and addresses.
///
/// # Errors
/// [`PlaylistError`].
pub fn playlist_files(bytes: &[u8], most: usize) -> Result<Vec<String>, PlaylistError> {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let front = text.trim_start();
    let found: Vec<String> = if front.starts_with('<') {
        locations(front).take(most).collect()
    } else if starts_with_ignoring_case(front, "[playlist]") {
        let lines = front.lines().filter_map(|line| line.split_once('='));
        let files = lines.filter(|(key, _)| starts_with_ignoring_case(key.trim(), "file"));
        files.map(|(_, value)| value.trim().to_owned()).take(most).collect()
    } else {
        if front.lines().any(|line| line.starts_with("#EXT-X-")) {
            return Err(PlaylistError::Hls);
        }
        let lines = front.lines().map(str::trim);
        let named = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        named.map(str::to_owned).take(most).collect()
    };
    let found: Vec<_> = found.into_iter().filter(|entry| !entry.is_empty()).collect();
    if found.is_empty() { Err(PlaylistError::Empty) } else { Ok(found) }
}

/// Texts between `<location>` and `</location>`.
fn locations(text: &str) -> impl Iterator<Item = String> {
    text.split("<location>").skip(1).filter_map(|rest| {
        let (location, _) = rest.split_once("</location>")?;
        let plain = location.trim().replace("&lt;", "<").replace("&gt;", ">");
        Some(plain.replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&"))
    })
}

fn starts_with_ignoring_case(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|front| front.eq_ignore_ascii_case(with))
}

const TYPES: [&str; 9] = [
    "audio/x-mpegurl",
    "audio/mpegurl",
    "application/x-mpegurl",
    "application/mpegurl",
    "application/vnd.apple.mpegurl",
    "audio/x-scpls",
    "audio/scpls",
    "application/pls+xml",
    "application/xspf+xml",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_kinds_of_lists() {
        let m3u = b"\xef\xbb\xbf#EXTM3U\r\n#EXTINF:-1,One\r\nhttp://a/1\r\n\r\n  two.mp3\n";
        assert_eq!(playlist_entries(m3u).unwrap(), ["http://a/1", "two.mp3"]);
        let pls =
            b"[playlist]\nNumberOfEntries=2\nFile1=http://a/1?x=y\nTitle1=One\nfile2=http://b/\n";
        assert_eq!(playlist_entries(pls).unwrap(), ["http://a/1?x=y", "http://b/"]);
        let xspf =
            b"<?xml version=\"1.0\"?><playlist><trackList><track><location>http://a/?b&amp;c\
                     </location></track></trackList></playlist>";
        assert_eq!(playlist_entries(xspf).unwrap(), ["http://a/?b&c"]);
    }

    #[test]
    fn hls_nothing_and_a_million_lines() {
        let hls = b"#EXTM3U\n#EXT-X-TARGETDURATION:8\nhttp://a/1.ts\n";
        assert_eq!(playlist_entries(hls), Err(PlaylistError::Hls));
        assert_eq!(playlist_entries(b"#EXTM3U\n\n"), Err(PlaylistError::Empty));
        let many = b"http://a/live\n".repeat(1_000_000);
        assert_eq!(playlist_entries(&many).unwrap().len(), MAX_PLAYLIST_ENTRIES);
        assert!(is_playlist_type("audio/x-mpegurl; charset=utf-8"));
        assert!(!is_playlist_type("audio/mpeg"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(front in 0..3_usize, bytes: Vec<u8>) {
            let front = [&b""[..], b"[playlist]\n", b"<?xml<location>"][front];
            if let Ok(found) = playlist_entries(&[front, &bytes].concat()) {
                prop_assert!(!found.is_empty() && found.len() <= MAX_PLAYLIST_ENTRIES);
            }
        }
    }
}
