//! A real snapclient plays exactly the input: bit by bit with lossless codecs.

use std::fs::File;
use std::io::BufWriter;
use std::time::Duration;

use aulos_blackbox::capture_check::{compare, snr_db};
use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme, tonal, write_wav};

use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::{long_or_short, quiet_turn, text};

/// Silence before the programme, while the client connects, and after it, while the client drains
/// its buffer.
const LEAD_S: u64 = 3;
const TAIL_S: u64 = 2;

#[test]
fn pcm_16_is_bit_exact() {
    retry_after_stall("bits::pcm_16_is_bit_exact", || {
        bit_exact("pcm", SampleWidth::B16);
    });
}

#[test]
fn pcm_24_is_bit_exact() {
    retry_after_stall("bits::pcm_24_is_bit_exact", || {
        bit_exact("pcm", SampleWidth::B24);
    });
}

#[test]
fn flac_16_is_bit_exact() {
    retry_after_stall("bits::flac_16_is_bit_exact", || {
        bit_exact("flac", SampleWidth::B16);
    });
}

#[test]
fn flac_24_is_bit_exact() {
    retry_after_stall("bits::flac_24_is_bit_exact", || {
        bit_exact("flac", SampleWidth::B24);
    });
}

#[test]
fn opus_keeps_the_waveform_to_20_db() {
    retry_after_stall("bits::opus_keeps_the_waveform_to_20_db", || {
        let Some(program) = find_or_skip("snapclient") else { return };
        let _turn = quiet_turn();
        let sound = tonal(frames(), SampleWidth::B16);
        retry("opus", || {
            let (captured, log) = play(&program, "opus", SampleWidth::B16, &sound);
            let snr = snr_db(&sound, &captured);
            println!("opus: waveform SNR {snr:.1?} dB");
            if snr.is_some_and(|snr| snr >= 20.0) {
                return Ok(());
            }
            // A frame that the client inserts or omits shifts the whole waveform.
            Err(ClientCorrection::explain(&format!("SNR {snr:.1?} dB"), &log, &[]))
        });
    });
}

fn bit_exact(codec: &str, bits: SampleWidth) {
    let Some(program) = find_or_skip("snapclient") else { return };
    let _turn = quiet_turn();
    let sound = programme(frames(), bits, 5);
    retry(&format!("{codec} {bits:?}"), || {
        let (captured, log) = play(&program, codec, bits, &sound);
        let faults = compare(&sound, &captured);
        if faults.is_empty() {
            println!("{codec} {bits:?}: {} frames bit-exact", sound.len());
            return Ok(());
        }
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Err(ClientCorrection::explain(&list.join("; "), &log, &faults))
    });
}

/// Starts a server whose only station plays these frames once.
pub(crate) fn serve(
    scratch: &ScratchDir,
    codec: &str,
    bits: SampleWidth,
    frames: &[Frame],
) -> AulosServer {
    let file = scratch.join("in.wav");
    write_wav(BufWriter::new(File::create(&file).unwrap()), frames, bits).unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nspec = \"48000:{}:2\"\n\
         sources = [\"file://{}\"]\n",
        bits.count(),
        text(&file)
    );
    AulosServer::start(scratch, &config).unwrap()
}

/// Plays a file with `aulos serve`, and returns what snapclient played, and its log.
fn play(
    program: &std::path::Path,
    codec: &str,
    bits: SampleWidth,
    sound: &[Frame],
) -> (Vec<Frame>, String) {
    let scratch = ScratchDir::new("bits").unwrap();
    let seconds = |s: u64| vec![[0, 0]; RATE * usize::try_from(s).unwrap()];
    let whole = [&seconds(LEAD_S), sound, &seconds(TAIL_S)].concat();
    let server = serve(&scratch, codec, bits, &whole);
    let mut client = Snapclient::start(program, server.stream.port(), &scratch, "bits").unwrap();
    let length = Duration::from_secs(LEAD_S + 1) + playing();
    std::thread::sleep(length + Duration::from_millis(1_000));
    let log = client.log().unwrap();
    let captured = client.stop().unwrap();
    server.stop().unwrap();
    (bits.frames(&captured), log)
}

fn playing() -> Duration {
    long_or_short(60, 4)
}

fn frames() -> usize {
    RATE * usize::try_from(playing().as_secs()).unwrap()
}
