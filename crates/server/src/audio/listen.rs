//! Web listeners: parsing of `/listen/` requests and the responses.
//!
//! `/listen/NAME` is the station in the native container of its codec. `NAME.flac`, `NAME.wav`,
//! `NAME.ogg` and `NAME.opus` select a container; if the station has another codec, a rendition is
//! made for it. All listeners of the same format share the rendition, which ends after the last
//! one. `NAME.m3u` and `NAME.pls` are playlists with one entry, MP3 where the station can have it:
//! radios, which ask for playlists, play little else. `NAME.flac.m3u` has another one.
//!
//! A mount is at `/NAME`, and in no other format.

use aulos_control::backend::{ListenerRequest, MediaSocket};
use aulos_core::{CODECS, Codec, CodecInfo, SampleSpec};
use aulos_io::reactor::{ListenerOptions, response_head};
use aulos_proto::uri::{Uri, percent_encode_url};

use super::{AudioState, RunningStation, renditions};
use crate::http::header;

/// A parsed `/listen/` request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListenRequest {
    /// The last part of the path, with its ending; a station may be called `a.b`.
    name: String,
    /// The path is that of a mount.
    is_mount: bool,
    /// A `HEAD` request.
    head_only: bool,
    /// The request has `Icy-MetaData: 1`.
    wants_titles: bool,
    /// The value of `Host`, for links in playlists.
    host: String,
}

/// The requested format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenFormat {
    /// The station's own codec.
    Native,
    Codec(Codec),
    /// A playlist with the address of this extension.
    Playlist(PlaylistKind, Option<&'static str>),
    /// An unknown ending.
    Unsupported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaylistKind {
    M3u,
    Pls,
}

/// Serves a listener, or answers with an error.
pub(super) fn accept(socket: MediaSocket, request: ListenerRequest, inner: &mut AudioState) {
    let ListenerRequest { head, session, allow_origin } = request;
    let found = ListenRequest::parse(&head).and_then(|wanted| {
        let (name, form) = find_station(&wanted, &inner.stations)?;
        Some((wanted, name, form))
    });
    let Some((wanted, station, form)) = found else {
        return socket.respond_and_close(
            text_response("404 Not Found", "unknown station; /api/v1/status lists all stations\n")
                .as_bytes(),
        );
    };
    let target = match form {
        ListenFormat::Native => renditions::listen(inner, station, None),
        ListenFormat::Codec(codec) => renditions::listen_target_in_codec(inner, station, codec),
        ListenFormat::Playlist(kind, extension) => {
            let Some(running) = &inner.stations[station] else { return };
            let (name, spec) = (&running.config.name, running.config.spec);
            let extension = extension.or_else(|| playlist_extension(spec));
            let list = playlist(kind, &wanted, (name, extension), socket.is_https());
            return socket.respond_and_close(list.as_bytes());
        }
        ListenFormat::Unsupported => {
            return socket.respond_and_close(
                text_response("404 Not Found", &available_formats()).as_bytes(),
            );
        }
    };
    match target {
        Ok(target) if wanted.head_only => {
            let options = ListenerOptions {
                titles: wanted.wants_titles,
                allow_origin,
                ..ListenerOptions::default()
            };
            socket.respond_and_close(response_head(&target.channel, &options).as_bytes());
        }
        Ok(target) => {
            let options = ListenerOptions {
                titles: wanted.wants_titles,
                allow_origin,
                rendition_guard: target.keep_alive,
                session: Some(session),
                push: None,
            };
            inner.context.add_web_listener(socket, target.number, options);
        }
        Err(error) => {
            let text = format!(
                "this format is not available for the station: {error}; {}",
                available_formats()
            );
            socket.respond_and_close(text_response("406 Not Acceptable", &text).as_bytes());
        }
    }
}

impl ListenRequest {
    fn parse(request: &[u8]) -> Option<Self> {
        let line = request.split(|byte| *byte == b'\r' || *byte == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?;
        let (method, rest) = line.split_once(' ')?;
        let path = rest.split([' ', '?']).next()?;
        let listen = path.strip_prefix("/listen/");
        let target = listen.or_else(|| path.strip_prefix('/'))?;
        // `Uri` percent-decodes the path of a complete URI only.
        let decoded = format!("http://station/{target}").parse::<Uri>().ok()?.path;
        let host = header(request, "host").unwrap_or_default();
        let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        Some(Self {
            name: decoded.strip_prefix('/')?.to_owned(),
            is_mount: listen.is_none(),
            head_only: method == "HEAD",
            wants_titles: header(request, "icy-metadata").as_deref() == Some("1"),
            host: if plain { host } else { String::new() },
        })
    }
}

/// Finds the station of this name, or else of this name without its ending.
fn find_station(
    wanted: &ListenRequest,
    stations: &[Option<RunningStation>],
) -> Option<(usize, ListenFormat)> {
    let named = |name: &str| {
        let is = |running: &RunningStation| {
            running.config.name == name && running.config.mount.is_some() == wanted.is_mount
        };
        stations.iter().position(|running| running.as_ref().is_some_and(is))
    };
    if wanted.is_mount {
        return Some((named(&wanted.name)?, ListenFormat::Native));
    }
    split_endings(&wanted.name, named)
}

/// The station that `named` knows, by the name as it is or without one ending or two.
fn split_endings(
    name: &str,
    named: impl Fn(&str) -> Option<usize>,
) -> Option<(usize, ListenFormat)> {
    if let Some(station) = named(name) {
        return Some((station, ListenFormat::Native));
    }
    let (bare, ending) = name.rsplit_once('.')?;
    let format = format_of_extension(ending);
    if let Some(station) = named(bare) {
        return Some((station, format));
    }
    let ListenFormat::Playlist(kind, _) = format else { return None };
    let (bare, ending) = bare.rsplit_once('.')?;
    let extension = CodecInfo::all_extensions().find(|extension| *extension == ending)?;
    Some((named(bare)?, ListenFormat::Playlist(kind, Some(extension))))
}

fn format_of_extension(ending: &str) -> ListenFormat {
    match (ending, CodecInfo::of_extension(ending)) {
        (_, Some(row)) => ListenFormat::Codec(row.codec),
        ("m3u", None) => ListenFormat::Playlist(PlaylistKind::M3u, None),
        ("pls", None) => ListenFormat::Playlist(PlaylistKind::Pls, None),
        _ => ListenFormat::Unsupported,
    }
}

/// The extension of a codec that players know, if it can encode this spec.
fn playlist_extension(spec: SampleSpec) -> Option<&'static str> {
    let row = CODECS.iter().find(|row| row.is_for_playlists && row.can_encode(spec))?;
    row.extensions.first().copied()
}

fn playlist(
    kind: PlaylistKind,
    wanted: &ListenRequest,
    (name, extension): (&str, Option<&str>),
    secure: bool,
) -> String {
    let scheme = if secure { "https" } else { "http" };
    let host = if wanted.host.is_empty() { "localhost" } else { &wanted.host };
    let (dot, extension) = extension.map_or(("", ""), |extension| (".", extension));
    let url = format!("{scheme}://{host}/listen/{}{dot}{extension}", percent_encode_url(name));
    let (kind, body) = match kind {
        PlaylistKind::Pls => (
            "audio/x-scpls",
            format!(
                "[playlist]\r\nNumberOfEntries=1\r\nFile1={url}\r\nTitle1={name}\r\nLength1=-1\r\n\
                 Version=2\r\n"
            ),
        ),
        PlaylistKind::M3u => {
            ("audio/x-mpegurl", format!("#EXTM3U\r\n#EXTINF:-1,{name}\r\n{url}\r\n"))
        }
    };
    let body = if wanted.head_only { "" } else { &body };
    response("200 OK", kind, body)
}

fn text_response(status: &str, text: &str) -> String {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n\
         Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n{body}"
    )
}

fn available_formats() -> String {
    let extensions: Vec<_> = CodecInfo::all_extensions().collect();
    format!("available formats: .{}, and the playlists .m3u and .pls\n", extensions.join(", ."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_found_in_a_request() {
        let wanted = |line: &str| ListenRequest::parse(line.as_bytes());
        let name = |line: &str| wanted(line).map(|wanted| wanted.name);
        assert_eq!(name("GET /listen/a.flac HTTP/1.1\r\nHost: x").as_deref(), Some("a.flac"));
        assert_eq!(name("GET /listen/two%20words HTTP/1.1\r\n").as_deref(), Some("two words"));
        assert_eq!(name("GET /listen/default?t=1 HTTP/1.1\r\n").as_deref(), Some("default"));
        let mount = wanted("GET /live.mp3?t=1 HTTP/1.1\r\n").unwrap();
        assert!(mount.is_mount && mount.name == "live.mp3");
        assert!(!wanted("GET /listen/a HTTP/1.1\r\n").unwrap().is_mount);
        assert_eq!(name("\u{fffd}"), None);
        let all = wanted("HEAD /listen/a HTTP/1.0\r\nHost: box:1780\r\nIcy-MetaData:1\r\n\r\n");
        let all = all.unwrap();
        assert!(all.head_only && all.wants_titles);
        assert_eq!(all.host, "box:1780");
        let odd = wanted("GET /listen/a HTTP/1.1\r\nHost: a\tb<\r\n\r\n").unwrap();
        assert!(!odd.head_only && !odd.wants_titles && odd.host.is_empty());
    }

    #[test]
    fn the_extension_selects_the_container() {
        assert_eq!(format_of_extension("ogg"), ListenFormat::Codec(Codec::Opus));
        assert_eq!(format_of_extension("mp3"), ListenFormat::Codec(Codec::Mp3));
        assert_eq!(format_of_extension("aac"), ListenFormat::Codec(Codec::Aac));
        assert_eq!(format_of_extension("wma"), ListenFormat::Unsupported);
        assert!(available_formats().contains(".flac, .ogg"));
    }

    #[test]
    fn a_playlist_has_mp3_or_what_is_named_before_its_ending() {
        let stations = ["hall", "a.mp3", "b.c"];
        let named = |name: &str| stations.iter().position(|station| *station == name);
        let of = |name: &str| split_endings(name, named);
        let m3u = |extension| ListenFormat::Playlist(PlaylistKind::M3u, extension);
        assert_eq!(of("hall.m3u"), Some((0, m3u(None))));
        assert_eq!(of("hall.mp3.m3u"), Some((0, m3u(Some("mp3")))));
        let pls = ListenFormat::Playlist(PlaylistKind::Pls, Some("flac"));
        assert_eq!(of("hall.flac.pls"), Some((0, pls)));
        assert_eq!(of("a.mp3.m3u"), Some((1, m3u(None))), "a station with an ending in its name");
        assert_eq!(of("a.mp3"), Some((1, ListenFormat::Native)));
        assert_eq!(of("b.c.ogg"), Some((2, ListenFormat::Codec(Codec::Opus))));
        for unknown in ["hall.wma.m3u", "hall.m3u.mp3", "hall.mp3.flac", "x.mp3.m3u", "x"] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
        let wanted = ListenRequest::parse(b"GET /listen/x HTTP/1.1\r\nHost: a:1\r\n\r\n").unwrap();
        let list = |spec: &str| {
            let extension = playlist_extension(spec.parse().unwrap());
            playlist(PlaylistKind::M3u, &wanted, ("x y", extension), false)
        };
        assert!(list("48000:16:2").ends_with("\r\nhttp://a:1/listen/x%20y.mp3\r\n"));
        assert!(list("96000:24:2").ends_with("\r\nhttp://a:1/listen/x%20y\r\n"));
    }
}
