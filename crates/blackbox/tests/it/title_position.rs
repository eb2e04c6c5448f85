//! Titles lie where their sound is: for players of ICY streams, of HLS, and for followers of events.
//!
//! Automation writes audio into a FIFO and reports each title as its sound begins, which is louder or
//! quieter than the one before. Where title and sound lie is compared in the stream that a listener
//! gets, so the time that anything takes does not matter, and the title may be late only by what a
//! busy machine keeps from the request.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::http;
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::{timed_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
const BYTES_PER_SECOND: usize = 192_000;
const METAINT: usize = 4_000;

/// Titles and their places, in seconds of the stream.
type Places = Vec<(String, f64)>;

/// A second and a half of a constant level.
fn piece(level: i16) -> Vec<u8> {
    let samples = (0..BYTES_PER_SECOND * 3 / 4).map(|n| if n % 2 == 0 { level } else { -level });
    samples.flat_map(i16::to_le_bytes).collect()
}

/// Where the level of samples rises above or falls below the middle of both, in seconds.
fn steps(samples: &[u8]) -> Vec<f64> {
    let blocks = samples.chunks(BYTES_PER_SECOND / 200).map(|block| {
        let values = block.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        values.map(i16::unsigned_abs).max().unwrap_or(0)
    });
    let mut found = Vec::new();
    let mut before = None;
    for (index, peak) in blocks.enumerate().filter(|(_, peak)| *peak > 500) {
        let is_loud = peak > 5_000;
        if before.replace(is_loud).is_some_and(|before| before != is_loud) {
            found.push(index as f64 / 200.0);
        }
    }
    found
}

/// Listens until the connection is closed; gives the places of titles and of steps.
fn listen(server: SocketAddr) -> (Places, Vec<f64>) {
    let mut socket = TcpStream::connect(server).unwrap();
    write!(
        socket,
        "GET /listen/default.wav HTTP/1.1\r\nHost: localhost\r\nIcy-MetaData: 1\r\n\r\n"
    )
    .unwrap();
    let mut stream = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).unwrap();
    }
    assert!(head.contains(&format!("icy-metaint: {METAINT}\r\n")), "{head}");
    let mut body = Vec::new();
    stream.read_to_end(&mut body).ok();
    let (mut samples, mut titles) = (Vec::new(), Places::new());
    let mut rest = &body[..];
    while let Some((sound, after)) = rest.split_at_checked(METAINT) {
        samples.extend_from_slice(sound);
        let length = after.first().map_or(0, |sixteens| usize::from(*sixteens) * 16);
        let Some(text) = after.get(1..=length) else { break };
        let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
        // The head of the file has 44 bytes.
        let at = (samples.len() - 44) as f64 / BYTES_PER_SECOND as f64;
        titles.extend(text.contains(" - T").then_some((text, at)));
        rest = &after[1 + length..];
    }
    (titles, steps(samples.get(44..).unwrap_or_default()))
}

/// The times of the titles of events until the connection is closed, in Unix seconds.
fn follow(server: SocketAddr) -> Places {
    let mut socket = TcpStream::connect(server).unwrap();
    write!(socket, "GET /nowplaying/default/events?delay_ms=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let lines = BufReader::new(socket).lines().map_while(Result::ok);
    let data =
        lines.filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    data.map(|event| (event["title"].as_str().unwrap().to_owned(), event["at"].as_f64().unwrap()))
        .collect()
}

/// Unix seconds of a date in a playlist: `2026-11-28T15:18:49.120Z`.
fn unix_seconds(date: &str) -> f64 {
    let numbers: Vec<f64> = date
        .trim_end_matches('Z')
        .split(['-', 'T', ':'])
        .map(|number| number.parse().unwrap())
        .collect();
    let [year, month, day, hour, minute, second] = numbers[..] else { panic!("{date}") };
    // The days of a calendar whose year begins in March, from that of 1970.
    let (year, month) = if month > 2.0 { (year, month - 3.0) } else { (year - 1.0, month + 9.0) };
    let leaps = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = year * 365.0 + leaps + ((month * 153.0 + 2.0) / 5.0).floor() + day - 1.0;
    (days - 719_468.0) * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[allow(clippy::cast_possible_truncation, reason = "milliseconds of some seconds")]
fn millis(seconds: f64) -> i64 {
    (seconds * 1e3).round() as i64
}

/// For each title, how much later than its step it is, in milliseconds.
fn errors(titles: &Places, steps: &[f64]) -> Vec<i64> {
    let nearest = |at: f64| {
        let differences = steps.iter().map(|step| millis(at - step));
        differences.min_by_key(|difference| difference.abs()).unwrap()
    };
    titles.iter().map(|(_, at)| nearest(*at)).collect()
}

/// The one in the middle: a title may be late because this machine is busy.
fn median(mut errors: Vec<i64>) -> i64 {
    errors.sort_unstable();
    errors[errors.len() / 2]
}

#[test]
fn titles_are_within_200_ms_of_their_sound() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = timed_turn();
    let scratch = ScratchDir::new("title-position").unwrap();
    let fifo = scratch.join("sound.fifo");
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"pipe://{}?mode=create\"]\n\
         icy = {{ metaint = {METAINT} }}\n\
         hls = {{ renditions = [\"flac\"], segment = \"1.92s\", window = \"60s\" }}\n",
        fifo.display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let address = server.http;
    wait_for("the FIFO", PATIENCE, || fifo.exists());
    let listener = std::thread::spawn(move || listen(address));
    let follower = std::thread::spawn(move || follow(address));
    let out = OpenOptions::new().write(true).open(&fifo).unwrap();
    let mut out = PacedWriter::steady(out, BYTES_PER_SECOND);
    for (number, level) in [1_000, 10_000, 1_000, 10_000, 1_000, 10_000].into_iter().enumerate() {
        if number > 0 {
            let path = format!("/nowplaying/default?artist=A&title=T{number}");
            assert_eq!(http::get(address, &path).unwrap().0, 200);
        }
        out.write(&piece(level)).unwrap();
    }
    let playlist = || {
        let (_, text) = http::get(address, "/hls/default/flac/index.m3u8").unwrap();
        String::from_utf8(text).unwrap()
    };
    wait_for("all titles", PATIENCE, || playlist().contains("T5"));
    let list = playlist();
    let begin = list.lines().find_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:"));
    let begin = unix_seconds(begin.unwrap());
    let ranges = list.lines().filter(|line| line.starts_with("#EXT-X-DATERANGE:"));
    let dated: Places = ranges
        .map(|line| {
            let date = unix_seconds(attribute(line, "START-DATE").unwrap());
            (line.to_owned(), date - begin)
        })
        .collect();
    let url = format!("http://{address}/hls/default/flac/index.m3u8");
    let seconds = list.matches("#EXTINF").count() * 192 / 100;
    let decoded = Command::new(ffmpeg)
        .args(["-nostdin", "-v", "error", "-live_start_index", "0", "-i", &url])
        .args(["-t", &seconds.to_string(), "-f", "s16le", "-ac", "2", "-ar", "48000", "-"])
        .output()
        .unwrap();
    let hls_steps = steps(&decoded.stdout);
    server.stop().unwrap();
    let (icy, icy_steps) = listener.join().unwrap();
    let events = follower.join().unwrap();
    // Those of HLS have dates, to which events can be compared.
    let dates: Vec<f64> = hls_steps.iter().map(|step| begin + step).collect();
    let found = [errors(&icy, &icy_steps), errors(&dated, &hls_steps), errors(&events, &dates)];
    println!("ms after the sound: ICY {:?}, HLS {:?}, events {:?}", found[0], found[1], found[2]);
    for errors in found {
        assert!(errors.len() >= 4, "{errors:?}: {icy:?} {dated:?} {events:?}");
        assert!(median(errors.clone()).abs() <= 200, "{errors:?}");
    }
}
