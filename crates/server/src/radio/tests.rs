//! Web radio against local servers, most of them hostile.

mod redirects;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use aulos_control::backend::RadioState;
use aulos_core::{ChannelLayout, SampleRate};
use aulos_engine::standby::{Standby, StandbyRequest, standby_channel};
use aulos_io::feed::Feeder;
use aulos_io::{Job, JobStatus};
use aulos_proto::http::AddressClass;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::runtime::Runtime;

use super::*;
use crate::dial::own_authority;

/// Three seconds of MP3.
fn mp3() -> &'static [u8] {
    static MP3: OnceLock<Vec<u8>> = OnceLock::new();
    MP3.get_or_init(|| {
        let tone = "-nostdin -loglevel error -f lavfi -i sine=440:r=44100:d=3 -ac 2 -c:a libmp3lame \
                    -b:a 128k -write_xing 0 -f mp3 pipe:1";
        let out = Command::new("ffmpeg").args(tone.split_whitespace()).output();
        let out = out.expect("these tests need ffmpeg: install it (apt-get install ffmpeg)");
        assert!(out.status.success() && out.stdout.len() > 40_000);
        out.stdout
    })
}

/// Its sample count: 116 packets of 1,152 frames in two channels.
const SAMPLES: usize = 116 * 1_152 * 2;

/// A request: its target and its head.
struct ReceivedRequest {
    target: String,
    head: String,
}

/// Serves at most 128 connections, sequentially or in parallel; returns the port.
fn serve(
    answer: impl Fn(&ReceivedRequest, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> u16 {
    serve_with(None, answer)
}

fn serve_with(
    tls: Option<Arc<ServerConfig>>,
    answer: impl Fn(&ReceivedRequest, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> u16 {
    serve_on("127.0.0.1", tls, answer)
}

fn serve_on(
    host: &str,
    tls: Option<Arc<ServerConfig>>,
    answer: impl Fn(&ReceivedRequest, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> u16 {
    // Encoded before the first request: on a busy machine that takes longer than a client waits.
    mp3();
    let listener = TcpListener::bind((host, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(128).flatten() {
            let (answer, tls) = (Arc::clone(&answer), tls.clone());
            std::thread::spawn(move || match tls {
                None => respond(&*answer, stream),
                Some(tls) => {
                    let connection = ServerConnection::new(tls).unwrap();
                    respond(&*answer, StreamOwned::new(connection, stream));
                }
            });
        }
    });
    port
}

fn respond(
    answer: &dyn Fn(&ReceivedRequest, &mut dyn Write) -> std::io::Result<()>,
    mut stream: impl Read + Write,
) {
    let mut head = String::new();
    let mut lines = BufReader::with_capacity(1, &mut stream);
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    // The client hangs up when it has enough.
    answer(&ReceivedRequest { target, head }, &mut stream).ok();
    stream.flush().ok();
}

/// A radio source driven by a test.
struct RadioHarness {
    runtime: Runtime,
    feed: HttpFeeder,
    source: StreamSource,
    items: Consumer<SourceItem>,
    watch: RadioStatusHandle,
    sound: usize,
    /// The last samples, and their rates and layouts.
    heard: Vec<f32>,
    shapes: Vec<(SampleRate, ChannelLayout)>,
    ends: usize,
}

impl RadioHarness {
    fn new(url: &str) -> Self {
        Self::with_client(&RadioClient::default(), url)
    }

    fn with_client(client: &RadioClient, url: &str) -> Self {
        Self::of(client.open(url.parse().unwrap(), Default::default(), None, 7))
    }

    fn in_standby(url: &str, handle: StandbyHandle) -> Self {
        let client = RadioClient::default();
        Self::of(client.open(url.parse().unwrap(), Default::default(), Some(handle), 7))
    }

    fn of(radio: RadioHandles) -> Self {
        let RadioHandles { feed, source, items, status: watch, task } = radio;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        runtime.spawn(task);
        Self {
            runtime,
            feed,
            source,
            items,
            watch,
            sound: 0,
            heard: Vec::new(),
            shapes: Vec::new(),
            ends: 0,
        }
    }

    /// Drives it until `wanted` is true; half a minute only ends a failing test.
    fn until(&mut self, wanted: impl Fn(&RadioState, usize) -> bool) -> RadioState {
        let begun = Instant::now();
        loop {
            self.feed.tick(SystemClock::now());
            assert_eq!(self.source.step(), JobStatus::Pending);
            while let Some(item) = self.items.pop() {
                match item {
                    SourceItem::Block(block) => {
                        self.sound += block.samples().len();
                        self.heard.extend_from_slice(block.samples());
                        self.shapes.push((block.rate(), block.layout()));
                        self.shapes.dedup();
                    }
                    SourceItem::End => self.ends += 1,
                    SourceItem::Lost => panic!("a body that breaks off is tried again"),
                }
            }
            let state = self.watch.state();
            if wanted(&state, self.sound) {
                return state;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{state:?}, {} samples", self.sound);
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
        }
    }

    fn reason(url: &str) -> String {
        Self::new(url).until(|state, _| state.reason.is_some()).reason.unwrap()
    }
}

fn sound(out: &mut dyn Write) -> std::io::Result<()> {
    out.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n")?;
    out.write_all(mp3())
}

#[test]
fn an_old_shoutcast_server_plays_with_titles_and_is_reconnected() {
    let port = serve(|asked, out| {
        assert!(asked.head.contains("Icy-MetaData: 1\r\n"), "{}", asked.head);
        assert!(asked.head.contains("User-Agent: aulos/"), "{}", asked.head);
        out.write_all(
            b"ICY 200 OK\r\nicy-name: Radio B\xf6rk\r\nicy-br:128\r\nicy-metaint:1000\r\n\r\n",
        )?;
        for (index, piece) in mp3().chunks(1_000).enumerate() {
            out.write_all(piece)?;
            if piece.len() == 1_000 {
                let mut text = match index {
                    2 => b"StreamTitle='Somebody - S\xf6ng';".to_vec(),
                    _ => Vec::new(),
                };
                text.resize(text.len().next_multiple_of(16), 0);
                out.write_all(&[u8::try_from(text.len() / 16).unwrap()])?;
                out.write_all(&text)?;
            }
        }
        Ok(())
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/live"));
    let state = rig.until(|state, _| state.title.is_some());
    assert_eq!(state.station_info.name.as_deref(), Some("Radio B\u{f6}rk"));
    let title = state.title.unwrap();
    assert_eq!(
        (title.artist.as_deref(), title.title.as_deref()),
        (Some("Somebody"), Some("S\u{f6}ng"))
    );
    // It hangs up after three seconds of audio, and is contacted again.
    let state = rig.until(|state, sound| state.connects >= 2 && sound > SAMPLES + 100_000);
    assert!(state.failures >= 1);
    assert_eq!((state.resyncs, state.damaged), (0, 0), "no byte of a title is in the sound");
    assert_eq!(rig.ends, 0, "a station that breaks off has not ended");
}

#[test]
fn a_file_plays_once_and_ends() {
    let port = serve(|_, out| {
        let length = mp3().len();
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
        out.write_all(mp3())
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/song.mp3"));
    let state = rig.until(|state, _| state.phase == RadioPhase::Finished);
    assert_eq!((rig.sound, rig.ends, state.connects, state.failures), (SAMPLES, 1, 1, 0));
}

#[test]
fn he_aac_arrives_at_the_full_rate_in_stereo() {
    // Version 2, whose core is mono at 24 kHz, joined between two headers of SBR.
    let stream = include_bytes!("../../../files/src/decode/tests/data/he-aac-v2.aac");
    let port = serve(|_, out| {
        out.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: audio/aacp\r\n\r\n")?;
        out.write_all(&stream[500..])
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/live"));
    let state = rig.until(|state, sound| state.info.is_some() && sound > 2 * 60_000);
    let shape = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let info = state.info.unwrap();
    assert_eq!((info.codec, (info.rate, info.layout)), ("aac", shape));
    assert_eq!((&rig.shapes[..], state.damaged), (&[shape][..], 0));
    let channel = |at| rig.heard.iter().skip(at).step_by(2).copied().collect::<Vec<f32>>();
    let (left, right) = (channel(0), channel(1));
    for channel in [&left, &right] {
        let share = share_above_12_khz(&channel[24_000..]);
        assert!(share > 1e-3, "{share:e}: the core ends at 12 kHz");
    }
    let power = |it: &mut dyn Iterator<Item = f32>| it.map(|x| x * x).sum::<f32>();
    let side = power(&mut left.iter().zip(&right).map(|(l, r)| l - r));
    let mid = power(&mut left.iter().zip(&right).map(|(l, r)| l + r));
    assert!(side > 0.1 * mid, "the channels differ: {side} of {mid}");
}

/// The share of the power of 480 ms at 48 kHz.
fn share_above_12_khz(sound: &[f32]) -> f64 {
    const SIZE: u16 = 960;
    let turn = |n: u32| f64::from(n % u32::from(SIZE)) / f64::from(SIZE) * core::f64::consts::TAU;
    let powers = |block: &[f32], bin: u16| {
        let (mut re, mut im) = (0.0, 0.0);
        for (n, sample) in (0..u32::from(SIZE)).zip(block) {
            let windowed = f64::from(*sample) * (0.5 - 0.5 * turn(n).cos());
            let (sin, cos) = turn(n * u32::from(bin)).sin_cos();
            (re, im) = (re + windowed * cos, im + windowed * sin);
        }
        re * re + im * im
    };
    let sum = |bins: core::ops::Range<u16>| -> f64 {
        let blocks = || sound.chunks_exact(usize::from(SIZE)).take(24);
        bins.map(|bin| blocks().map(|block| powers(block, bin)).sum::<f64>()).sum()
    };
    // A bin is 50 Hz wide; the window smears two.
    sum(245..480) / sum(2..480)
}

#[test]
fn the_format_is_detected_from_the_bytes_and_not_from_the_header() {
    let port = serve(|asked, out| {
        let (kind, body) = match &asked.target[..] {
            "/liar" => ("audio/aac", mp3()),
            "/list" => ("audio/x-mpegurl", mp3()),
            "/page" => ("audio/mpeg", &b"<!DOCTYPE html><html><body>Come later</body></html>"[..]),
            _ => ("audio/mpeg", &[7; 300_000][..]),
        };
        write!(out, "HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\n\r\n")?;
        out.write_all(body)
    });
    for target in ["liar", "list"] {
        let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/{target}"));
        let state = rig.until(|state, sound| state.info.is_some() && sound > 100_000);
        assert_eq!(state.info.map(|info| info.codec), Some("mp3"), "{target}");
    }
    assert_eq!(
        RadioHarness::reason(&format!("http://127.0.0.1:{port}/page")),
        "a web page, not audio; use the URL of the stream"
    );
    let reason = RadioHarness::reason(&format!("http://127.0.0.1:{port}/noise"));
    assert_eq!(reason, "not MP3, AAC, Ogg, FLAC or WAVE");
}

#[test]
fn playlist_entries_are_tried_in_order_and_playlists_are_limited() {
    let port = serve(|asked, out| {
        let list = |out: &mut dyn Write, body: &str| {
            write!(out, "HTTP/1.0 200 OK\r\nContent-Type: audio/x-mpegurl\r\n\r\n{body}")
        };
        match &asked.target[..] {
            "/a.m3u" => list(out, "#EXTM3U\n#EXTINF:-1,dead\nmissing\npage\ninner.pls\n"),
            "/inner.pls" => list(out, "[playlist]\nFile1=/live\n"),
            "/live" => sound(out),
            "/page" => {
                write!(out, "HTTP/1.0 200 OK\r\n\r\n<html>nothing to hear here, go on</html>")
            }
            "/hls.m3u8" => list(out, "#EXTM3U\n#EXT-X-TARGETDURATION:8\n1.ts\n"),
            "/deep.m3u" => list(out, "deep.m3u?1\n"),
            deep if deep.starts_with("/deep") => list(out, &format!("deep.m3u{}1\n", &deep[9..])),
            "/million.m3u" => {
                list(out, "#EXTM3U\n")?;
                // Until the client has enough.
                for line in 0..1_000_000 {
                    writeln!(out, "missing?{line}")?;
                }
                Ok(())
            }
            _ => write!(out, "HTTP/1.0 404 Not Found\r\n\r\n"),
        }
    });
    let base = format!("http://127.0.0.1:{port}");
    let mut rig = RadioHarness::new(&format!("{base}/a.m3u"));
    let state = rig.until(|_, sound| sound > 0);
    assert_eq!(state.station_info.url, Some(format!("{base}/live")));
    assert!(RadioHarness::reason(&format!("{base}/hls.m3u8")).contains("HLS"));
    assert_eq!(
        RadioHarness::reason(&format!("{base}/deep.m3u")),
        "the playlists are nested too deeply"
    );
    assert_eq!(
        RadioHarness::reason(&format!("{base}/million.m3u")),
        "the stream does not exist on the server (404)"
    );
}

#[test]
fn a_refusing_server_and_one_that_needs_a_password() {
    let port = serve(|asked, out| match &asked.target[..] {
        // printf 'dj:secret' | base64
        "/safe" if asked.head.contains("Authorization: Basic ZGo6c2VjcmV0\r\n") => sound(out),
        "/safe" => write!(out, "HTTP/1.1 401 Unauthorized\r\n\r\n"),
        "/gone" => write!(out, "HTTP/1.1 410 Gone\r\n\r\n"),
        _ => write!(out, "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    });
    assert!(
        RadioHarness::reason(&format!("http://127.0.0.1:{port}/safe")).contains("password (401)")
    );
    assert!(
        RadioHarness::reason(&format!("http://127.0.0.1:{port}/gone"))
            .contains("no longer exists on the server (410)")
    );
    assert!(
        RadioHarness::reason(&format!("http://127.0.0.1:{port}/ssh"))
            .contains("the answer is not HTTP")
    );
    let mut rig = RadioHarness::new(&format!("http://dj:secret@127.0.0.1:{port}/safe"));
    let state = rig.until(|_, sound| sound > 0);
    assert_eq!(
        state.station_info.url,
        Some(format!("http://127.0.0.1:{port}/safe")),
        "no password is shown"
    );
    // A port that was just closed.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(RadioHarness::reason(&format!("http://{closed}/")).contains("connection refused"));
}

#[test]
fn chunked_encoding_is_decoded_and_errors_are_reported() {
    let port = serve(|asked, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        if asked.target == "/nonsense" {
            // The first bytes look correct.
            out.write_all(b"40\r\n")?;
            out.write_all(&mp3()[..64])?;
            return out.write_all(b"\r\nnonsense\r\n");
        }
        for piece in mp3().chunks(777) {
            write!(out, "{:x}\r\n", piece.len())?;
            out.write_all(piece)?;
            out.write_all(b"\r\n")?;
        }
        out.write_all(b"0\r\n\r\n")
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/good"));
    let state = rig.until(|_, sound| sound >= SAMPLES);
    assert_eq!((state.resyncs, state.damaged), (0, 0));
    let reason = RadioHarness::reason(&format!("http://127.0.0.1:{port}/nonsense"));
    assert_eq!(reason, "the server sent invalid chunked encoding");
}

#[test]
fn missing_titles_lose_only_some_packets() {
    // It announces titles, and sends none: an audio byte is taken for a length.
    let port = serve(|_, out| {
        out.write_all(b"HTTP/1.0 200 OK\r\nicy-metaint: 5000\r\n\r\n")?;
        out.write_all(mp3())
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/"));
    let state = rig.until(|state, sound| state.resyncs + state.damaged > 0 && sound > SAMPLES / 2);
    assert!(state.connects >= 1);
}

#[test]
fn a_server_that_closes_at_random_is_retried() {
    let port = serve(|_, out| {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let length = usize::try_from(turn.wrapping_mul(7_919) % 20_000).unwrap();
        out.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
        out.write_all(&mp3()[..length])
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/"));
    let state = rig.until(|state, sound| state.connects >= 3 && sound > 100_000);
    assert!(state.failures >= 2);
    assert_eq!(rig.ends, 0);
}

#[test]
fn a_server_that_is_slow_with_its_head_times_out() {
    let port = serve(|asked, out| {
        let slowly: &[u8] = match &asked.target[..] {
            "/head" => b"HTTP/1.0 200 OK\r\nicy-name: ",
            _ => b"HTTP/1.0 200 OK\r\n\r\n\xff",
        };
        out.write_all(slowly)?;
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(50));
            if asked.target == "/head" {
                out.write_all(b"x")?;
            }
        }
        Ok(())
    });
    let reason = RadioHarness::reason(&format!("http://127.0.0.1:{port}/head"));
    assert_eq!(reason, "timeout: waiting for the answer");
    let reason = RadioHarness::reason(&format!("http://127.0.0.1:{port}/body"));
    assert_eq!(reason, "timeout: waiting for audio");
}

#[test]
fn tls_accepts_a_trusted_certificate_and_rejects_others() {
    let (server, client) = own_authority();
    let port = serve_with(Some(server), |_, out| {
        let length = mp3().len();
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
        out.write_all(mp3())
    });
    let client = RadioClient {
        fetcher: Arc::new(StreamFetcher::with_tls(client)),
        ..RadioClient::default()
    };
    let mut rig = RadioHarness::with_client(&client, &format!("https://localhost:{port}/song.mp3"));
    rig.until(|state, _| state.phase == RadioPhase::Finished);
    assert_eq!((rig.sound, rig.ends), (SAMPLES, 1));
    // The machine's root certificates do not include it.
    assert!(
        RadioHarness::reason(&format!("https://localhost:{port}/song.mp3")).starts_with("TLS: ")
    );
}

#[test]
fn a_cold_standby_source_is_connected_only_while_needed() {
    let (tell, asked) = std::sync::mpsc::channel();
    let port = serve(move |_, out| {
        tell.send(()).ok();
        out.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
        loop {
            out.write_all(mp3())?;
        }
    });
    let (mut control, handle) = standby_channel(Standby::Cold);
    let url = format!("http://127.0.0.1:{port}/");
    let mut rig = RadioHarness::in_standby(&url, handle);
    rig.until(|state, _| state.phase == RadioPhase::Standby);
    assert!(asked.try_recv().is_err());
    control.set_request(StandbyRequest::Play);
    rig.until(|_, sound| sound > SAMPLES);
    assert!(asked.try_recv().is_ok());
    control.set_request(StandbyRequest::Close);
    let state = rig.until(|state, _| state.phase == RadioPhase::Standby);
    assert_eq!((state.failures, state.reason), (0, None), "that is no failure");
    control.set_request(StandbyRequest::Play);
    rig.until(|state, _| state.phase == RadioPhase::Playing && state.connects == 2);
}

#[test]
fn a_warm_standby_source_stays_connected_undecoded() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let port = serve(move |_, out| {
        out.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n")?;
        loop {
            out.write_all(mp3())?;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut control, handle) = standby_channel(Standby::Warm);
    let url = format!("http://127.0.0.1:{port}/");
    let mut rig = RadioHarness::in_standby(&url, handle);
    // Megabytes, which no buffer holds.
    let state = rig.until(|_, _| sent.load(Ordering::Relaxed) > 400);
    assert_eq!(state.info.map(|info| info.codec), Some("mp3"));
    assert!(rig.sound < 10_000, "{} samples", rig.sound);
    control.set_request(StandbyRequest::Play);
    let state = rig.until(|_, sound| sound > SAMPLES);
    assert_eq!((state.connects, state.failures), (1, 0));
}

#[test]
fn a_removed_station_leaves_no_resources() {
    let port = serve(|_, out| {
        out.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
        loop {
            out.write_all(mp3())?;
        }
    });
    let (client, url) = (RadioClient::default(), format!("http://127.0.0.1:{port}/"));
    let RadioHandles { mut feed, source, items, status: watch, task } =
        client.open(url.parse().unwrap(), Default::default(), None, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap();
    let task = runtime.spawn(task);
    while watch.state().connects == 0 {
        feed.tick(SystemClock::now());
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
    }
    drop((items, source));
    assert_eq!(feed.tick(SystemClock::now()), aulos_io::feed::NextPoll::Never);
    drop(feed);
    // The task ends by itself.
    runtime.block_on(task).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server is still there");
}
