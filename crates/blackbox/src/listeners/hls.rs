//! A player of HLS, by RFC 8216, 6.3: it begins three segments before the end, and takes one after
//! the other.

use std::time::Duration;

use super::listener::Listener;
use crate::http;

/// Between two looks at a playlist: half the shortest segment that tests use.
const RELOAD: Duration = Duration::from_millis(960);

/// Segments before the end at which a player begins.
const BEHIND: usize = 3;

/// A segment of a playlist.
struct Segment<'a> {
    number: u64,
    name: &'a str,
    duration: Duration,
    is_discontinuity: bool,
}

pub(super) fn play(listener: &Listener, index: usize) {
    // Not all at once: players have joined at different times.
    std::thread::sleep(RELOAD.mul_f64(index as f64 * 0.618 % 1.0));
    let folder = listener.path.trim_end_matches("index.m3u8");
    let id = format!("?id=listener-{index}");
    let (mut next, mut has_init) = (None, false);
    while !listener.is_over() {
        let Some(text) = fetch(listener, &format!("{}{id}", listener.path)) else {
            std::thread::sleep(RELOAD);
            continue;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let segments = segments(&text);
        let begin = segments.len().saturating_sub(BEHIND);
        let mut expected =
            next.unwrap_or_else(|| segments.get(begin).map_or(0, |segment| segment.number));
        let map = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MAP:URI=\""));
        if !has_init
            && let Some(name) = map.and_then(|rest| rest.split('"').next())
            && let Some(bytes) = fetch(listener, &format!("{folder}{name}"))
        {
            listener.keep(&bytes);
            has_init = true;
        }
        let first = expected;
        for segment in segments.iter().filter(|segment| segment.number >= first) {
            if segment.number > expected {
                listener.note(|playout, _| playout.missed(segment.number - expected));
            }
            if segment.is_discontinuity {
                listener.note(|playout, _| playout.discontinuity());
            }
            let Some(bytes) = fetch(listener, &format!("{folder}{}{id}", segment.name)) else {
                break;
            };
            listener.note(|playout, now| playout.arrived(now, segment.duration));
            listener.keep(&bytes);
            expected = segment.number + 1;
            next = Some(expected);
        }
        std::thread::sleep(RELOAD);
    }
}

fn fetch(listener: &Listener, path: &str) -> Option<Vec<u8>> {
    match http::get(listener.server, path) {
        Ok((200, body)) => Some(body),
        _ => {
            listener.note(|playout, _| playout.error());
            None
        }
    }
}

fn segments(text: &str) -> Vec<Segment<'_>> {
    let (mut number, mut duration, mut is_discontinuity) = (0, Duration::ZERO, false);
    let mut segments = Vec::new();
    for line in text.lines() {
        if let Some(first) = line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:") {
            number = first.parse().unwrap_or(0);
        } else if let Some(seconds) = line.strip_prefix("#EXTINF:") {
            let seconds = seconds.split(',').next().and_then(|seconds| seconds.parse().ok());
            duration = Duration::from_secs_f64(seconds.unwrap_or(0.0));
        } else if line == "#EXT-X-DISCONTINUITY" {
            is_discontinuity = true;
        } else if !line.starts_with('#') && !line.is_empty() {
            segments.push(Segment { number, name: line, duration, is_discontinuity });
            (number, is_discontinuity) = (number + 1, false);
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_their_numbers_and_discontinuities() {
        let text = "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:7\n#EXTINF:1.920,\n7.m4s\n\
                    #EXT-X-DISCONTINUITY\n#EXTINF:2,\n8.m4s\n";
        let found = segments(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].number, found[0].name, found[0].is_discontinuity),
            (7, "7.m4s", false)
        );
        assert_eq!((found[1].number, found[1].is_discontinuity), (8, true));
        assert_eq!(found[0].duration, Duration::from_millis(1_920));
    }
}
