//! The normalizer as a filter of PipeWire: what `docs/how-to/pipewire.md` says, as it stands there.

use std::path::Path;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::signal::{RATE, SampleWidth, write_wav};

use crate::pipewire::{PipeWire, judge_tone, tone_frame};
use crate::shared_turn;

const PAGE: &str = include_str!("../../../../docs/how-to/pipewire.md");

/// A stereo tone of 440 Hz is 2.3 LU louder than its RMS level: two channels are 3.0 dB more than
/// one, and the weighting of ITU-R BS.1770 takes 0.7 dB at this frequency.
const LOUDER_THAN_LEVEL: f64 = 2.3;

#[test]
fn programs_come_out_of_pipewire_at_the_target() {
    if find_or_skip("pw-cat").is_none() || find_or_skip("lv2info").is_none() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("loudness-filter").unwrap();
    let home = scratch.join("pipewire");
    install(&home.join(".lv2/aulos.lv2"));
    let film: Vec<_> = (0..60 * RATE).map(tone_frame).collect();
    let file = std::fs::File::create(home.join("film.wav")).unwrap();
    write_wav(file, &film, SampleWidth::B16).unwrap();
    let sink = "{ factory = adapter args = { factory.name = support.null-audio-sink node.name = \
        speaker media.class = Audio/Sink audio.position = [ FL FR ] } }";
    let module = block("conf").strip_prefix("context.modules = [\n").unwrap();
    let module = module.trim_end().strip_suffix(']').unwrap();
    let Some(mut pipewire) = PipeWire::start(&scratch, module, sink) else { return };
    pipewire.run_shell(command("pw-cat"), "film");
    assert_plays(&mut pipewire, -20.0);
    let change = pipewire.command(Path::new("sh")).args(["-c", command("pw-cli")]).output();
    let change = change.unwrap();
    assert!(change.status.success(), "{change:?}");
    assert_plays(&mut pipewire, -26.0);
}

/// The bundle with the library that cargo has built beside this program.
fn install(bundle: &Path) {
    std::fs::create_dir_all(bundle).unwrap();
    let built = std::env::current_exe().unwrap().with_file_name("libaulos_lv2.so");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lv2/bundle");
    for (from, name) in [
        (ours.join("manifest.ttl"), "manifest.ttl"),
        (ours.join("aulos.ttl"), "aulos.ttl"),
        (built, "aulos_lv2.so"),
    ] {
        std::fs::copy(&from, bundle.join(name))
            .unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
}

/// The only block of the page in a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// The command of the page that begins with a program.
fn command(program: &str) -> &'static str {
    PAGE.lines().find(|line| line.split(' ').next() == Some(program)).unwrap()
}

/// The gain takes its time, and a program on a busy machine may be late.
fn assert_plays(pipewire: &mut PipeWire, target: f64) {
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        let played = pipewire.record_monitor("speaker", Duration::from_secs(4));
        let judged = judge_tone("the filter", &played, target - LOUDER_THAN_LEVEL);
        match judged {
            Ok(()) => return,
            Err(wrong) => found.push(wrong),
        }
    }
    panic!("{target} LUFS: {found:#?}");
}

const ATTEMPTS: usize = 6;
