//! Web listeners: what a request asks for, and what it gets.
//!
//! `/listen/NAME` is the station in the container that its codec has by nature. `NAME.flac`,
//! `NAME.wav`, `NAME.ogg` and `NAME.opus` say which container it is to be; where the station has
//! another codec, a rendition is made for it, shared by all who ask for the same and ended after the
//! last of them. `NAME.m3u` and `NAME.pls` are playlists of one line.

use std::sync::Arc;

use aulos_core::Codec;
use aulos_io::reactor::{Channel, ListenWish, response_head};
use aulos_proto::uri::{Uri, encode};

use super::{Inner, Running, renditions};
use crate::house::MediaSocket;
use crate::http::header;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// The whole of the last part of the address; a station may be called `a.b`.
    name: String,
    /// Only the head of the response.
    head: bool,
    /// `Icy-MetaData: 1`.
    titles: bool,
    /// By what name we were called.
    host: String,
}

/// How it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As the station has it.
    Own,
    In(Codec),
    M3u,
    Pls,
    /// A container that is not made here.
    Other,
}

/// Serves a listener, or says why not.
pub(super) fn accept(socket: MediaSocket, read: &[u8], inner: &mut Inner) {
    let found = Wanted::read(read).and_then(|wanted| {
        let (name, form) = find(&wanted.name, &inner.stations)?;
        Some((wanted, name, form))
    });
    let Some((wanted, station, form)) = found else {
        return socket
            .answer(plain("404 Not Found", "There is no station of this name.\n").as_bytes());
    };
    let heard = match form {
        Form::Own => renditions::listen(inner, station, None),
        Form::In(codec) => renditions::listen_as(inner, station, codec),
        Form::M3u | Form::Pls => {
            let secure = socket.is_tls();
            let name = inner.stations[station].as_ref().map(|running| running.config.name.clone());
            let list = playlist(form, &wanted, &name.unwrap_or_default(), secure);
            return socket.answer(list.as_bytes());
        }
        Form::Other => return socket.answer(plain("404 Not Found", THERE_IS).as_bytes()),
    };
    match heard {
        Ok(heard) if wanted.head => {
            socket.answer(response_head(&heard.channel, wanted.titles).as_bytes());
        }
        Ok(heard) => {
            let wish = ListenWish { titles: wanted.titles, keeps: heard.keeps, push: None };
            inner.context.stream_to(socket, heard.number, wish);
        }
        Err(error) => {
            let text = format!("This station cannot be had so: {error}. {THERE_IS}");
            socket.answer(plain("406 Not Acceptable", &text).as_bytes());
        }
    }
}

/// What can be listened to.
pub(super) struct Heard {
    /// What the reactors call it.
    pub(super) number: usize,
    pub(super) channel: Channel,
    /// What is held while somebody listens, where it is made for listeners.
    pub(super) keeps: Option<Arc<()>>,
}

impl Wanted {
    fn read(request: &[u8]) -> Option<Self> {
        let line = request.split(|byte| *byte == b'\r' || *byte == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?;
        let (method, rest) = line.split_once(' ')?;
        let target = rest.strip_prefix("/listen/")?.split([' ', '?']).next()?;
        // The reader of addresses decodes the path of anything that looks like one.
        let decoded = format!("http://station/{target}").parse::<Uri>().ok()?.path;
        let host = header(request, "host").unwrap_or_default();
        let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        Some(Self {
            name: decoded.strip_prefix('/')?.to_owned(),
            head: method == "HEAD",
            titles: header(request, "icy-metadata") == Some("1"),
            host: if plain { host.to_owned() } else { String::new() },
        })
    }
}

/// The station of this name, else of this name without its ending.
fn find(name: &str, stations: &[Option<Running>]) -> Option<(usize, Form)> {
    let named = |name: &str| {
        let is = |running: &Running| running.config.name == name;
        stations.iter().position(|running| running.as_ref().is_some_and(is))
    };
    let as_it_is = named(name).map(|station| (station, Form::Own));
    as_it_is.or_else(|| {
        let (bare, ending) = name.rsplit_once('.')?;
        Some((named(bare)?, form(ending)))
    })
}

fn form(ending: &str) -> Form {
    match ending {
        "flac" => Form::In(Codec::Flac),
        "wav" => Form::In(Codec::Pcm),
        "ogg" | "oga" | "opus" => Form::In(Codec::Opus),
        "m3u" => Form::M3u,
        "pls" => Form::Pls,
        _ => Form::Other,
    }
}

fn playlist(form: Form, wanted: &Wanted, name: &str, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    let host = if wanted.host.is_empty() { "localhost" } else { &wanted.host };
    let url = format!("{scheme}://{host}/listen/{}", encode(name));
    let (kind, body) = match form {
        Form::Pls => (
            "audio/x-scpls",
            format!(
                "[playlist]\r\nNumberOfEntries=1\r\nFile1={url}\r\nTitle1={name}\r\nLength1=-1\r\n\
                 Version=2\r\n"
            ),
        ),
        _ => ("audio/x-mpegurl", format!("#EXTM3U\r\n#EXTINF:-1,{name}\r\n{url}\r\n")),
    };
    let body = if wanted.head { "" } else { &body };
    respond("200 OK", kind, body)
}

fn plain(status: &str, text: &str) -> String {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n\
         Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n{body}"
    )
}

const THERE_IS: &str =
    "There is .flac, .wav, .ogg (Opus) and .opus of a station, and .m3u and .pls.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_found_in_a_request() {
        let wanted = |line: &str| Wanted::read(line.as_bytes());
        let name = |line: &str| wanted(line).map(|wanted| wanted.name);
        assert_eq!(name("GET /listen/a.flac HTTP/1.1\r\nHost: x").as_deref(), Some("a.flac"));
        assert_eq!(name("GET /listen/two%20words HTTP/1.1\r\n").as_deref(), Some("two words"));
        assert_eq!(name("GET /listen/default?t=1 HTTP/1.1\r\n").as_deref(), Some("default"));
        assert_eq!(name("GET /other/default HTTP/1.1\r\n"), None);
        assert_eq!(name("\u{fffd}"), None);
        let all = wanted("HEAD /listen/a HTTP/1.0\r\nHost: box:1780\r\nIcy-MetaData:1\r\n\r\n");
        let all = all.unwrap();
        assert!(all.head && all.titles);
        assert_eq!(all.host, "box:1780");
        let odd = wanted("GET /listen/a HTTP/1.1\r\nHost: a\tb<\r\n\r\n").unwrap();
        assert!(!odd.head && !odd.titles && odd.host.is_empty());
    }

    #[test]
    fn endings_say_what_it_is_to_be() {
        assert_eq!(form("ogg"), Form::In(Codec::Opus));
        assert_eq!(form("mp3"), Form::Other);
        assert!(THERE_IS.contains(".flac"));
    }
}
