//! The test tools with real peers on both sides: if these tests fail, the fault is in the tools or
//! in the machine, and the results of the other tests are invalid.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::capture_check::{compare, snr_db};
use aulos_blackbox::load::{LoadReport, LoadTest};
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::{Snapclient, Snapserver, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme, tonal};

use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::{long_or_short, timed_turn};

#[test]
fn the_judge_passes_pcm_16_of_real_peers() {
    retry_after_stall("peers::the_judge_passes_pcm_16_of_real_peers", || {
        passes(SampleWidth::B16, "pcm");
    });
}

#[test]
fn the_judge_passes_flac_24_of_real_peers() {
    retry_after_stall("peers::the_judge_passes_flac_24_of_real_peers", || {
        passes(SampleWidth::B24, "flac");
    });
}

#[test]
fn the_judge_finds_the_waveform_behind_libopus() {
    retry_after_stall("peers::the_judge_finds_the_waveform_behind_libopus", || {
        let Some(peers) = find() else { return };
        let _turn = timed_turn();
        let sound = tonal(frames(), SampleWidth::B16);
        let heard = retry("snapserver's opus", || {
            let heard = through_snapserver(&peers, SampleWidth::B16, "opus", &sound);
            let snr = snr_db(&sound, &heard.captured);
            println!("snapserver's opus: waveform SNR {snr:.1?} dB");
            if snr.is_some_and(|snr| snr >= 20.0) {
                return Ok(heard);
            }
            Err(ClientCorrection::explain(&format!("SNR {snr:.1?} dB"), &heard.log, &[]))
        });
        assert!(heard.report.listeners.iter().all(|h| h.codec == "opus"));
    });
}

fn passes(bits: SampleWidth, codec: &str) {
    let Some(peers) = find() else { return };
    let _turn = timed_turn();
    let sound = programme(frames(), bits, 3);
    // Snapserver shifts all timestamps whenever its writer is late, which happens on a busy
    // machine.
    let heard = retry(&format!("snapserver's {codec} {bits:?}"), || {
        let heard = through_snapserver(&peers, bits, codec, &sound);
        let faults = compare(&sound, &heard.captured);
        let gaps = heard.report.gaps();
        if faults.is_empty() && gaps == 0 {
            return Ok(heard);
        }
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let failure = format!("{gaps} gaps; {}", list.join("; "));
        Err(ClientCorrection::explain(&failure, &heard.log, &faults))
    });
    let report = &heard.report;
    assert_eq!(report.cut(), 0, "{:#}", report.json());
    assert!(report.listeners.iter().all(|h| h.chunks > 0 && h.strange == 0), "{:#}", report.json());
    // Both clocks are this machine's, so the true offset is 0.
    assert!(report.reference.is_some_and(|o| o.offset.abs() < 1_000), "{:?}", report.reference);
}

fn find() -> Option<[std::path::PathBuf; 2]> {
    Some([find_or_skip("snapserver")?, find_or_skip("snapclient")?])
}

struct Playback {
    captured: Vec<Frame>,
    log: String,
    report: LoadReport,
}

fn through_snapserver(
    [server, client]: &[impl AsRef<Path>; 2],
    bits: SampleWidth,
    codec: &str,
    sound: &[Frame],
) -> Playback {
    let scratch = ScratchDir::new("peers").unwrap();
    let fifo = scratch.fifo("in").unwrap();
    let spec = format!("48000:{}:2", bits.count());
    let server = Snapserver::start(server.as_ref(), &scratch, &fifo, codec, &spec).unwrap();
    let mut client = Snapclient::start(client.as_ref(), server.port, &scratch, "judge").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let load = LoadTest {
        server: ([127, 0, 0, 1], server.port).into(),
        clients: 20,
        settle: Duration::from_secs(1),
        listen: playing() - Duration::from_secs(2),
    };
    let silence = vec![[0, 0]; RATE];
    let bytes = bits.bytes(&[&silence, sound, &silence, &silence].concat());
    let pipe = OpenOptions::new().write(true).open(fifo).unwrap();
    let per_second = bits.bytes(&silence).len();
    let writer = std::thread::spawn(move || PacedWriter::steady(pipe, per_second).write(&bytes));
    std::thread::sleep(Duration::from_millis(300));
    let report = load.run(|_| ()).unwrap();
    writer.join().unwrap().unwrap();
    let log = client.log().unwrap();
    let captured = bits.frames(&client.stop().unwrap());
    Playback { captured, log, report }
}

fn playing() -> Duration {
    long_or_short(60, 4)
}

fn frames() -> usize {
    RATE * usize::try_from(playing().as_secs()).unwrap()
}
