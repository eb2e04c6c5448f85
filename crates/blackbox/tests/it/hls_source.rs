//! HLS as a source: segments of ffmpeg in every format, our own HLS, and servers that lie.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::Value;

use crate::radio::listen;
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a path is answered with.
type Files = HashMap<String, Vec<u8>>;

/// A server of files that honours ranges.
fn serve(files: Files) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let files = Arc::clone(&files);
            std::thread::spawn(move || answer(socket, &files));
        }
    });
    address
}

/// Answers one request.
fn answer(mut socket: TcpStream, files: &Files) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?;
    let range = head.split("Range: bytes=").nth(1).and_then(|it| it.split('\r').next());
    let (status, body) = match (files.get(path), range) {
        (None, _) => ("404 Not Found", &b"none"[..]),
        (Some(file), None) => ("200 OK", &file[..]),
        (Some(file), Some(range)) => {
            let (from, to) = range.split_once('-')?;
            ("206 Partial Content", file.get(from.parse().ok()?..=to.parse().ok()?)?)
        }
    };
    write!(socket, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).ok()?;
    socket.write_all(body).ok()
}

/// The files of a folder, by their paths below `/NAME/`.
fn add_folder(files: &mut Files, name: &str, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = format!("/{name}/{}", entry.file_name().to_string_lossy());
        files.insert(path, std::fs::read(entry.path()).unwrap());
    }
}

/// A WAVE file of ffmpeg as samples of 16 bits.
fn samples(ffmpeg: &Path, file: &Path) -> Vec<i16> {
    let output = Command::new(ffmpeg)
        .args(["-nostdin", "-v", "error", "-i"])
        .arg(file)
        .args(["-f", "s16le", "-ac", "2", "-ar", "48000", "-"])
        .output()
        .unwrap();
    output.stdout.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

/// Four seconds in segments of one, ended, in the formats that are met.
const FORMATS: [(&str, &str); 6] = [
    ("ts-aac", "-c:a aac -b:a 128k"),
    ("ts-mp3", "-c:a libmp3lame -b:a 128k"),
    ("ts-aes", "-c:a aac -b:a 128k -hls_enc 1 -hls_enc_key 000102030405060708090a0b0c0d0e0f"),
    ("mp4-aac", "-c:a aac -b:a 128k -hls_segment_type fmp4"),
    ("mp4-flac", "-c:a flac -strict -2 -hls_segment_type fmp4"),
    ("range-aac", "-c:a aac -b:a 128k -hls_flags single_file"),
];

#[test]
fn segments_of_every_format_are_decoded_and_flac_to_the_frame() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-source-formats").unwrap();
    let original = scratch.join("original.wav");
    let make = |arguments: String, folder: &Path| {
        let mut command = Command::new(&ffmpeg);
        command.args(["-nostdin", "-v", "error", "-y"]).args(arguments.split_whitespace());
        assert!(command.current_dir(folder).status().unwrap().success(), "{arguments}");
    };
    let noise = "-f lavfi -i anoisesrc=r=48000:a=0.2:d=4:seed=5 -ac 2";
    make(format!("{noise} {}", original.display()), scratch.path());
    let mut files = Files::new();
    for (name, codec) in FORMATS {
        let folder = scratch.join(name);
        std::fs::create_dir(&folder).unwrap();
        let hls = "-f hls -hls_time 1 -hls_list_size 0 -hls_playlist_type vod index.m3u8";
        make(format!("-i {} {codec} {hls}", original.display()), &folder);
        add_folder(&mut files, name, &folder);
    }
    // The same as one of them, without its third segment.
    let whole: Vec<_> = files
        .iter()
        .filter_map(|(path, file)| {
            Some((path.strip_prefix("/mp4-flac/")?.to_owned(), file.clone()))
        })
        .collect();
    let kept = whole.into_iter().filter(|(name, _)| name != "index2.m4s");
    files.extend(kept.map(|(name, file)| (format!("/lost/{name}"), file)));
    let list = String::from_utf8(files["/lost/index.m3u8"].clone()).unwrap();
    let server = serve(files);
    // At once, because each takes as long as its sound.
    let names: Vec<_> = FORMATS.iter().map(|(name, _)| *name).chain(["lost"]).collect();
    let children = names.iter().map(|name| {
        let url = format!("http://{server}/{name}/index.m3u8");
        let mut command = Command::new(binary());
        command.args(["record", &url, text(&scratch.join(format!("{name}.wav")))]);
        command.spawn().unwrap()
    });
    let children: Vec<_> = children.collect();
    let original = samples(&ffmpeg, &original);
    for (name, mut child) in names.into_iter().zip(children) {
        assert!(child.wait().unwrap().success(), "{name}");
        let heard = samples(&ffmpeg, &scratch.join(format!("{name}.wav")));
        if name == "lost" {
            assert_is_original_with_hole(&heard, &original, &list);
        } else if name.ends_with("flac") {
            assert!(heard == original, "{name}: {} of {}", heard.len(), original.len());
        } else {
            // The same as ffmpeg decodes, but for the delay of the codec. The key is at no path.
            let playlist = scratch.join(name.replace("ts-aes", "ts-aac")).join("index.m3u8");
            let expected = samples(&ffmpeg, &playlist);
            let extra = heard.len().abs_diff(expected.len()) / 2;
            assert!(extra < 6_000, "{name}: {} of {}", heard.len(), expected.len());
            let energy = |all: &[i16]| all.iter().map(|it| f64::from(*it).powi(2)).sum::<f64>();
            let ratio = energy(&heard) / energy(&expected);
            assert!((0.97..1.03).contains(&ratio), "{name}: {ratio}");
        }
    }
}

/// All but the third segment, whose time is silence between two short fades.
fn assert_is_original_with_hole(heard: &[i16], original: &[i16], list: &str) {
    assert_eq!(heard.len(), original.len());
    let seconds = list.lines().filter_map(|line| {
        line.strip_prefix("#EXTINF:")?.trim_end_matches(',').parse::<f64>().ok()
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "four seconds")]
    let ends: Vec<_> = seconds
        .scan(0.0, |end, seconds| {
            *end += seconds;
            Some((*end * 48_000.0).round() as usize * 2)
        })
        .collect();
    let (begin, end, fade) = (ends[1], ends[2], 256);
    // A block with a fade is dithered, because it has more than 16 bits.
    let is_same = |range: std::ops::Range<usize>| {
        let mut pairs = heard[range.clone()].iter().zip(&original[range]);
        pairs.all(|(heard, original)| heard.abs_diff(*original) <= 2)
    };
    assert!(is_same(0..begin));
    assert!(heard[begin + fade..end].iter().all(|sample| sample.unsigned_abs() <= 2));
    assert!(is_same(end + fade..original.len()));
}

/// The first source of the first station.
fn source(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["sources"][0].clone()
}

#[test]
fn our_own_hls_is_a_source_with_a_reserve_and_a_variant() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-source-origin").unwrap();
    let origin = AulosServer::start(
        &scratch,
        "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
         hls = { renditions = [\"flac\", \"aac:128k\"], segment = \"1.92s\", window = \"60s\" }\n",
    )
    .unwrap();
    let scratch = ScratchDir::new("hls-source-edge").unwrap();
    let url = format!("http://{}/hls/default/index.m3u8", origin.http);
    let edge = AulosServer::start(
        &scratch,
        &format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:16:1\"\n\
             sources = [{{ uri = \"{url}\", variant = \"200k\" }}]\n"
        ),
    )
    .unwrap();
    let mut rpc = Rpc::connect(edge.control);
    wait_for("the stream", PATIENCE, || {
        let seen = source(&mut rpc);
        seen["radio"]["phase"] == "playing" && seen["radio"]["codec"] == "aac"
    });
    let hls = source(&mut rpc)["radio"]["hls"].clone();
    assert!(hls["reserve_ms"].as_u64().unwrap() > 0, "{hls}");
    assert_eq!((&hls["target_duration_s"], &hls["lost_segments"]), (&2.into(), &0.into()), "{hls}");
    // The tone without a hole, once the input has it.
    let is_tone = |sound: &[i16]| {
        sound.chunks(2_400).all(|piece| {
            let peak = piece.iter().map(|it| it.unsigned_abs()).max().unwrap_or(0);
            (7_500..9_000).contains(&peak)
        })
    };
    wait_for("the tone", PATIENCE, || is_tone(&listen(edge.http, 3)[4_800..]));
    origin.stop().unwrap();
    edge.stop().unwrap();
}

#[test]
fn servers_that_lie_are_named_with_a_reason_and_the_station_plays_on() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-source-hostile").unwrap();
    let list = |rest: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{rest}#EXT-X-ENDLIST\n");
    let nested = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nnested.m3u8\n";
    let pages = "#EXTINF:1,\npage\n".repeat(8);
    let drm = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://a\"\n#EXTINF:1,\npage\n";
    let dolby = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"ac-3\"\na.m3u8\n";
    let cases = [
        ("nested", nested.to_owned(), "nested too deeply"),
        ("pages", list(&pages), "could not be fetched"),
        ("drm", list(drm), "DRM"),
        ("dolby", dolby.to_owned(), "no variant"),
        ("empty", list("#EXT-X-VERSION:3\n"), "empty"),
    ];
    let files = cases.iter().map(|(name, body, _)| (format!("/{name}.m3u8"), body.clone().into()));
    let mut files: Files = files.collect();
    files.insert("/page".to_owned(), b"<!doctype html><title>Sign in</title>".to_vec());
    let server = serve(files);
    let uris = cases.each_ref().map(|(name, _, _)| format!("\"http://{server}/{name}.m3u8\""));
    let config =
        format!("[[station]]\nname = \"default\"\nsources = [{}, \"tone://\"]\n", uris.join(", "));
    let station = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(station.control);
    let problems = |rpc: &mut Rpc| {
        let status = rpc.call("Aulos.GetStatus", &Value::Null);
        let sources = status["stations"][0]["sources"].as_array().unwrap().clone();
        sources.iter().map(|it| it["reason"].as_str().unwrap_or_default().to_owned()).collect()
    };
    wait_for("the reasons", PATIENCE, || {
        let found: Vec<String> = problems(&mut rpc);
        cases.iter().zip(&found).all(|((_, _, reason), found)| found.contains(reason))
    });
    station.stop().unwrap();
}
