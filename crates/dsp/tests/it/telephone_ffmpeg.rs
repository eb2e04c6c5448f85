//! G.711 and G.722 compared with ffmpeg, in both directions.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the judge is another program, and test signals are numbers"
)]

use std::path::PathBuf;
use std::process::Command;

use aulos_dsp::g711::G711Law;
use aulos_dsp::g722;

/// ffmpeg's conversion of `input`. ffmpeg must be installed: without it the test proves nothing.
fn ffmpeg(name: &str, input: &[u8], from: &str, to: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, result) = (folder.join(format!("{name}.in")), folder.join(format!("{name}.out")));
    std::fs::write(&source, input).expect("a file in the target folder");
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-v", "error", "-y"])
        .args(from.split_whitespace())
        .arg("-i")
        .arg(&source)
        .args(to.split_whitespace())
        .arg(&result)
        .output()
        .expect("ffmpeg must be installed: it is the judge of this test");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "ffmpeg: {complaints}");
    let bytes = std::fs::read(&result).expect("ffmpeg wrote its output");
    for file in [source, result] {
        std::fs::remove_file(file).expect("what was written can be removed");
    }
    bytes
}

fn shorts(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks().0.iter().map(|&bytes| i16::from_le_bytes(bytes)).collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

const LAWS: [(G711Law, &str); 2] = [(G711Law::Mu, "mulaw"), (G711Law::A, "alaw")];

#[test]
fn all_256_codes_decode_as_in_ffmpeg() {
    let codes: Vec<u8> = (0..=255).collect();
    for (law, name) in LAWS {
        let from = format!("-f {name} -ar 8000");
        let theirs = shorts(&ffmpeg(&format!("decode-{name}"), &codes, &from, "-f s16le"));
        let ours: Vec<_> = codes.iter().map(|&code| law.decode(code)).collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

/// ffmpeg takes the nearest value distinguished by the upper 14 bits, this crate the
/// Recommendation's decision values; so codes differ at the edges of segments only, and by one.
#[test]
fn all_65536_samples_encode_as_in_ffmpeg() {
    let samples: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    for (law, name) in LAWS {
        let to = format!("-f {name}");
        let from = "-f s16le -ar 8000";
        let theirs = ffmpeg(&format!("encode-{name}"), &bytes(&samples), from, &to);
        assert_eq!(theirs.len(), samples.len());
        let mut others = 0;
        for (&sample, theirs) in samples.iter().zip(theirs) {
            let ours = law.encode(sample);
            if ours != theirs {
                others += 1;
                let far = |code| (i32::from(law.decode(code)) - i32::from(sample)).abs();
                let step = (i32::from(law.decode(ours)) - i32::from(law.decode(theirs))).abs();
                assert!((far(ours) - far(theirs)).abs() <= step / 3 + 8, "{name} {sample}");
            }
        }
        println!("{name}: {others} of 65536 samples have another code");
        assert!(others <= 1_400, "{name}: {others}");
    }
}

/// A substitute for speech at 16 kHz: vowels of a voice with changing pitch, and sibilants.
fn speech(seconds: usize) -> Vec<f32> {
    let (mut phase, mut noise) = (0.0_f64, 1_u32);
    (0..16_000 * seconds)
        .map(|at| {
            let time = at as f64 / 16_000.0;
            phase += (120.0 + 30.0 * (time * 3.0).sin()) / 16_000.0;
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f64::from(noise >> 8) / 8_388_608.0 - 1.0;
            let formant = 700.0 + 400.0 * (time * 5.0).sin();
            let voice: f64 = (1..25)
                .map(|n| {
                    let number = f64::from(n);
                    let far = (number * 120.0 - formant) / 300.0;
                    (0.1 + (-far * far).exp()) / number
                        * (phase * number * std::f64::consts::TAU).sin()
                })
                .sum();
            let syllable = (time * 12.0).sin().max(0.0);
            (0.3 * syllable * voice + 0.02 * (1.0 - syllable) * hiss) as f32
        })
        .collect()
}

fn snr(sent: &[f32], heard: &[f32]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (&sent, &heard) in sent.iter().zip(heard).skip(1_600) {
        signal += f64::from(sent).powi(2);
        noise += f64::from(sent - heard).powi(2);
    }
    10.0 * (signal / noise).log10()
}

#[test]
fn g722_is_the_same_on_both_sides() {
    let samples: Vec<i16> = speech(10).iter().map(|sample| (sample * 32_768.0) as i16).collect();
    let floats = |samples: &[i16]| -> Vec<f32> {
        samples.iter().map(|&sample| f32::from(sample) / 32_768.0).collect()
    };
    let sent = floats(&samples);
    let (mut ours, mut back) = (vec![0; samples.len() / 2], vec![0.0; samples.len()]);
    g722::G722Encoder::new().encode(&sent, &mut ours);
    let theirs = ffmpeg("g722-encode", &bytes(&samples), "-f s16le -ar 16000", "-f g722");

    let decoded =
        |name: &str, codes: &[u8]| floats(&shorts(&ffmpeg(name, codes, "-f g722", "-f s16le")));
    let cases = [
        ("ours by ffmpeg", decoded("g722-ours", &ours)),
        ("ffmpeg's by ffmpeg", decoded("g722-theirs", &theirs)),
        ("ours by us", {
            g722::G722Decoder::new().decode(&ours, &mut back);
            back.clone()
        }),
        ("ffmpeg's by us", {
            g722::G722Decoder::new().decode(&theirs, &mut back);
            back.clone()
        }),
    ];
    assert!(ours == theirs, "bit by bit");
    let reference = snr(&sent, &cases[1].1[22..]);
    for (name, heard) in &cases {
        let snr = snr(&sent, &heard[22..]);
        println!("{name}: {snr:.2} dB");
        assert!(snr >= reference - 0.1 && snr > 18.0, "{name}: {snr} dB, not {reference}");
    }
    assert!(cases[0].1 == cases[2].1 && cases[1].1 == cases[3].1, "sample by sample");
}
