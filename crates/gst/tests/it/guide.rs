//! The commands of docs/how-to/gstreamer.md, each run as it stands in a folder with a programme.

use std::path::Path;

use crate::plugin::Programs;
use crate::signals::{ffmpeg_loudness, folder, programme, wave_data, write_wave};

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let Some(programs) = Programs::find() else { return };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/gstreamer.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let blocks: Vec<_> = guide
        .split("<!-- test: by crates/gst/tests/it/guide.rs -->\n```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(blocks.len(), guide.matches("```sh").count() - 1, "all but the build");
    let folder = folder("guide");
    write_wave(&folder.join("programme.wav"), 48_000, 2, &programme(48_000, 2, 20));
    let outputs: Vec<_> = blocks.iter().map(|block| programs.shell(OURS, block, &folder)).collect();
    let [inspect, _normalize, _player, meter, fallback] = &outputs[..] else {
        panic!("{} blocks", outputs.len());
    };
    assert!(inspect.contains("true-peak"), "{inspect}");
    assert_eq!(meter.matches("global-loudness").count(), 200);
    assert!(fallback.contains("to=(string)sink_1"), "{fallback}");
    let input = wave_data(&folder.join("programme.wav"));
    assert_eq!(wave_data(&folder.join("normalized.wav")).len(), input.len());
    // 90 buffers of 1,024 frames at 44.1 kHz.
    let seconds = wave_data(&folder.join("station.wav")).len() as f64 / 44_100.0 / 2.0;
    assert!(seconds > 0.5, "{seconds} s");
    let Some((integrated, _)) = ffmpeg_loudness(&folder.join("normalized.wav")) else { return };
    assert!((integrated + 16.0).abs() < 1.0, "{integrated}");
}

/// GStreamer's own elements log errors where they only try something.
const OURS: &str = "0,aulos*:2";
