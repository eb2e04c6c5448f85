//! A FIFO whose writers are late, come and go.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::capture_check::{level_dbfs, tone_share};
use aulos_blackbox::load::LoadTest;
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::{Process, RESYNC, Snapclient, find_or_skip, lines_with};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, programme};

use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::rpc::Rpc;
use crate::{long_or_short, long_quiet_turn, long_shared_turn, shared_turn, soak, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes per second of 48000:16:2.
const BYTES: usize = 4 * RATE;

#[test]
fn a_late_writer_does_not_shift_the_time_of_clients() {
    retry_after_stall("fifo::a_late_writer_does_not_shift_the_time_of_clients", || {
        let Some(program) = find_or_skip("snapclient") else { return };
        let _turn = long_quiet_turn();
        retry("a late writer", || client_of_a_late_writer(&program));
    });
}

/// Fails if a real client reports chunks at unexpected times.
fn client_of_a_late_writer(program: &Path) -> Result<(), ClientCorrection> {
    let scratch = ScratchDir::new("late").unwrap();
    let fifo = scratch.join("in");
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"pipe://{}\"]\n",
        text(&fifo)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let time = long_or_short(600, 20);
    let pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    let writer = std::thread::spawn(move || {
        // A minute of programme at a time: ten of them at once would be 115 MB.
        let minute = SampleWidth::B16.bytes(&programme(60 * RATE, SampleWidth::B16, 9));
        let mut writer = PacedWriter::with_stalls(pipe, BYTES, Duration::from_millis(300), 11);
        let mut left = usize::try_from(time.as_secs()).unwrap() * BYTES;
        while left > 0 {
            let n = left.min(minute.len());
            writer.write(&minute[..n]).unwrap();
            left -= n;
        }
    });
    let mut client = Snapclient::start(program, server.stream.port(), &scratch, "late").unwrap();
    // Messages while the client starts playing do not count; later ones do.
    std::thread::sleep(Duration::from_secs(3));
    let taken_up = client.log().unwrap().len();
    let load = LoadTest {
        server: server.stream,
        clients: 3,
        settle: Duration::from_secs(1),
        listen: time - Duration::from_secs(5),
    };
    let report = load.run(|_| ()).unwrap();
    let log = client.log().unwrap();
    let captured = SampleWidth::B16.frames(&client.stop().unwrap());
    writer.join().unwrap();
    server.stop().unwrap();
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{:#}", report.json());
    // A timeline without audio would pass the checks above: the programme must be there as well.
    let windows: Vec<f64> = captured[captured.len().min(3 * RATE)..]
        .chunks_exact(RATE / 10)
        .map(|window| level_dbfs(window, 32_767))
        .collect();
    let loud = windows.iter().filter(|level| **level > -50.0).count();
    println!("late writer: {loud} of {} windows of 100 ms have sound", windows.len());
    assert!(10 * loud >= 9 * windows.len(), "{loud} of {}: {windows:.0?}", windows.len());
    let log = &log[taken_up..];
    if lines_with(log, &RESYNC).is_empty() {
        return Ok(());
    }
    Err(ClientCorrection::explain("chunks at unexpected times", log, &[]))
}

#[test]
fn a_song_plays_ends_and_plays_again_with_the_demo_between() {
    retry_after_stall("fifo::a_song_plays_ends_and_plays_again_with_the_demo_between", || {
        let (Some(program), Some(ffmpeg)) = (find_or_skip("snapclient"), find_or_skip("ffmpeg"))
        else {
            return;
        };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("again").unwrap();
        // As for a new user: no configuration, and the FIFO at the server's default path.
        let server = AulosServer::start_with(&scratch, |command| {
            command.env("XDG_RUNTIME_DIR", scratch.path()).env("XDG_STATE_HOME", scratch.path());
        })
        .unwrap();
        let fifo = scratch.join("aulos.fifo");
        assert!(server.printed().unwrap().contains(text(&fifo)), "the recipe names the FIFO");
        let mut client =
            Snapclient::start(&program, server.stream.port(), &scratch, "again").unwrap();
        let (song, pause) = if soak() { (30, 20) } else { (8, 4) };
        std::thread::sleep(Duration::from_secs(pause));
        for n in 0..2 {
            // The printed command, except for the file: a tone, which differs from the demo.
            let tone = format!("sine=frequency=1000:sample_rate=48000:duration={song}");
            let mut command = Command::new(&ffmpeg);
            command.args(["-nostdin", "-v", "error", "-y", "-re", "-f", "lavfi", "-i", &tone]);
            command.args(["-f", "s16le", "-ar", "48000", "-ac", "2", text(&fifo)]);
            let err = scratch.join(format!("ffmpeg{n}.err"));
            let mut writer =
                Process::start(&mut command, &scratch.join("ffmpeg.out"), &err).unwrap();
            let status = writer.wait(Duration::from_secs(song + 10)).unwrap();
            assert!(status.success(), "{}", std::fs::read_to_string(err).unwrap());
            std::thread::sleep(Duration::from_secs(pause));
        }
        let captured = SampleWidth::B16.frames(&client.stop().unwrap());
        server.stop().unwrap();
        judge_song(&captured, song);
    });
}

/// Content of a window of 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Silence,
    Demo,
    Song,
}

fn judge_song(captured: &[[i32; 2]], song: u64) {
    let windows = captured.chunks_exact(RATE / 10).map(|window| {
        if level_dbfs(window, 32_767) < -60.0 {
            Window::Silence
        } else if tone_share(window, 1000.0, 48_000.0) > 0.9 {
            Window::Song
        } else {
            Window::Demo
        }
    });
    // Runs of equal windows, without the demo's own rests.
    let mut runs: Vec<(Window, u64)> = Vec::new();
    for window in windows.filter(|window| *window != Window::Silence) {
        match runs.last_mut() {
            Some((last, length)) if *last == window => *length += 1,
            _ => runs.push((window, 1)),
        }
    }
    // A single window is a fade, which contains both.
    runs.retain(|(_, length)| *length > 2);
    let order: Vec<Window> = runs.iter().map(|(window, _)| *window).collect();
    println!("song: {runs:?} (in tenths of a second)");
    assert_eq!(
        order.get(..5),
        Some(&[Window::Demo, Window::Song, Window::Demo, Window::Song, Window::Demo][..]),
        "{runs:?}"
    );
    for (_, length) in runs.iter().filter(|(window, _)| *window == Window::Song) {
        assert!(*length + 15 >= 10 * song, "of {song} s were heard {length} tenths: {runs:?}");
    }
}

/// As some writers do on exit.
#[test]
fn a_writer_that_deletes_the_fifo_finds_another_one() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("deleted").unwrap();
    let fifo = scratch.join("in");
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
         sources = [\"pipe://{}\", \"tone://?hz=3000\"]\n",
        text(&fifo)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let status = |rpc: &mut Rpc| rpc.call("Aulos.GetStatus", &Value::Null);
    let active = |rpc: &mut Rpc| status(rpc)["stations"][0]["active"].clone();
    let second = SampleWidth::B16.bytes(&programme(RATE, SampleWidth::B16, 9));
    for round in 0..3 {
        let mut opened = None;
        wait_for("a FIFO with a reader", PATIENCE, || {
            // Without O_NONBLOCK a FIFO that is never read would block this test.
            let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
            opened = OpenOptions::new().write(true).custom_flags(flags).open(&fifo).ok();
            opened.is_some()
        });
        let mut pipe = opened.unwrap();
        let mut at = 0;
        wait_for("the sound to be on air", PATIENCE, || {
            match pipe.write(&second[at..]) {
                Ok(taken) => at = (at + taken) % second.len(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "round {round}"),
            }
            active(&mut rpc) == "pipe"
        });
        std::fs::remove_file(&fifo).unwrap();
        drop(pipe);
        wait_for("the sound to end", PATIENCE, || active(&mut rpc) == "tone");
    }
    wait_for("the FIFO to be there", PATIENCE, || fifo.exists());
    let counters = status(&mut rpc)["counters"].clone();
    assert_eq!(counters["fifos_recreated"], 3, "{counters}");
    assert_eq!(counters["fifos_blocked"], 0, "{counters}");
    server.stop().unwrap();
}

/// The path in a call is checked on the call, opened later, and checked again on deletion.
#[test]
fn a_directory_that_becomes_a_link_leads_no_source_out_of_the_roots() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("roots").unwrap();
    let (root, outside) = (scratch.join("root"), scratch.join("outside"));
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    let config = format!(
        "[streams]\nroots = [\"{}\"]\n\n[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
         sources = [\"demo://\"]\n",
        text(&root)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let fifo = root.join("sub/in");
    let uri = format!("pipe://{}?name=added", text(&fifo));
    rpc.call("Stream.AddStream", &json!({ "streamUri": uri }));
    wait_for("the FIFO to be made", PATIENCE, || fifo.exists());
    std::fs::rename(root.join("sub"), root.join("aside")).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("sub")).unwrap();
    wait_for("the source to say why it fails", PATIENCE, || {
        let status = rpc.call("Aulos.GetStatus", &Value::Null);
        let stations = status["stations"].as_array().unwrap();
        let added = stations.iter().find(|station| station["name"] == "added").unwrap();
        added["sources"][0]["reason"].as_str().is_some_and(|reason| reason.contains("roots"))
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "nothing is made outside");
    server.stop().unwrap();
}
