use std::fs;
use std::path::PathBuf;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{ChannelLayout, Instant, Lufs, SampleRate, Span};
use aulos_engine::source::SourceItem;
use aulos_session::playlist::{JingleRule, PlayOrder, PlaylistConfig};

use super::list::FileList;
use super::*;
use crate::scan::tag::{self, GainTags, TagRequest};

/// A float WAVE file at 48 kHz.
fn wave(channels: u16, samples: impl IntoIterator<Item = f32>) -> Vec<u8> {
    wave_at(48_000, channels, samples)
}

fn wave_at(rate: u32, channels: u16, samples: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let data: Vec<u8> = samples.into_iter().flat_map(f32::to_le_bytes).collect();
    let len = u32::try_from(data.len()).unwrap();
    let mut bytes = Vec::new();
    bytes.extend(b"RIFF");
    bytes.extend((36 + len).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x03\0");
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate * u32::from(channels) * 4).to_le_bytes());
    bytes.extend((channels * 4).to_le_bytes());
    bytes.extend(32_u16.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(len.to_le_bytes());
    bytes.extend(data);
    bytes
}

/// Stereo frames of one value.
fn constant(value: f32, frames: usize) -> Vec<u8> {
    wave(2, vec![value; 2 * frames])
}

fn sine(amplitude: f32, seconds: usize, channels: usize) -> Vec<f32> {
    let sample = |n: usize| (n as f32 * core::f32::consts::TAU / 48.0).sin() * amplitude;
    (0..48_000 * seconds).flat_map(|n| vec![sample(n); channels]).collect()
}

fn options(path: PathBuf, order: PlayOrder) -> PlaylistOptions {
    PlaylistOptions {
        path: path.into(),
        jingles: None,
        order: PlaylistConfig { order, ..PlaylistConfig::default() },
        crossfade: Span::ZERO,
        loudness: PlaylistLoudness::Off,
        target: Lufs::new(-18.0),
    }
}

/// A playlist whose station takes everything at once.
struct Player {
    parts: PlaylistParts,
    now: Instant,
    left: Vec<f32>,
    ended: bool,
    skipped: std::sync::mpsc::Receiver<String>,
}

impl Player {
    fn new(options: PlaylistOptions) -> Self {
        let format = (SampleRate::HZ_48000, ChannelLayout::STEREO);
        let mut parts = PlaylistSource::new(options, format, 3);
        let (sender, skipped) = std::sync::mpsc::channel();
        parts.source = parts.source.with_report(move |path, reason| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            drop(sender.send(format!("{name}: {reason}")));
        });
        Self { parts, now: Instant::ZERO, left: Vec::new(), ended: false, skipped }
    }

    fn step(&mut self) {
        self.now += Span::from_millis(100);
        self.parts.source.step_at(self.now);
        while let Some(item) = self.parts.items.pop() {
            match item {
                SourceItem::Block(block) => {
                    let frames = block.samples().chunks_exact(2);
                    self.left.extend(frames.map(|frame| frame[0]));
                }
                SourceItem::End => self.ended = true,
                SourceItem::Lost => panic!("nothing is lost"),
            }
        }
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Until the end of a list that is played once.
    fn play(mut self) -> Self {
        for _ in 0..1_000 {
            self.step();
            if self.ended {
                return self;
            }
        }
        panic!("{:?}", self.status());
    }

    fn status(&self) -> PlaylistStatus {
        self.parts.handle.status()
    }

    /// The values of the output, without those that are repeated.
    fn values(&self) -> Vec<f32> {
        let mut values = self.left.clone();
        values.dedup();
        values
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.try_iter().collect()
    }
}

fn folder(files: &[(&str, Vec<u8>)]) -> ScratchDir {
    let folder = ScratchDir::new("playlist").unwrap();
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

#[test]
fn files_of_a_folder_follow_each_other_without_a_gap() {
    let folder = folder(&[
        ("b/2.wav", constant(0.2, 4_097)),
        ("a.wav", constant(0.1, 1)),
        ("b/1.wav", constant(0.3, 100_003)),
        ("notes.txt", b"no sound".to_vec()),
        (".hidden.wav", constant(0.9, 10)),
        ("c.wav", constant(0.4, 777)),
    ]);
    let player = Player::new(options(folder.to_path_buf(), PlayOrder::Once)).play();
    assert_eq!(player.values(), [0.1, 0.3, 0.2, 0.4]);
    assert_eq!(player.left.len(), 1 + 100_003 + 4_097 + 777);
    let status = player.status();
    assert_eq!((status.files, status.played, status.skipped), (4, 4, 0));
    assert_eq!((status.problem, status.next), (None, vec![]));
}

#[test]
fn rates_and_channels_change_without_a_lost_frame() {
    let folder = folder(&[
        ("1.wav", wave_at(44_100, 1, vec![0.25; 44_100])),
        ("2.wav", wave_at(96_000, 2, vec![0.25; 2 * 96_000])),
        ("3.wav", constant(0.25, 48_000)),
    ]);
    let player = Player::new(options(folder.to_path_buf(), PlayOrder::Once)).play();
    assert_eq!(player.left.len(), 3 * 48_000);
    // The resampler's filter sees the ends; within them the level is that of the files.
    let inner =
        |second: usize| &player.left[second * 48_000 + 1_000..(second + 1) * 48_000 - 1_000];
    for second in 0..3 {
        assert!(inner(second).iter().all(|it| (it - 0.25).abs() < 1e-3), "{second}");
    }
}

#[test]
fn files_overlap_and_are_never_louder_than_one_of_them() {
    let folder = folder(&[
        ("1.wav", constant(0.1, 96_000)),
        ("2.wav", constant(0.2, 96_000)),
        ("3.wav", constant(0.4, 4_800)),
    ]);
    let mut options = options(folder.to_path_buf(), PlayOrder::Once);
    options.crossfade = Span::from_millis(500);
    let player = Player::new(options).play();
    // Half of the short one stays.
    assert_eq!(player.left.len(), 96_000 + 96_000 - 24_000 + 4_800 - 2_400);
    assert!(player.left[..72_000].iter().all(|it| (it - 0.1).abs() < 1e-9));
    let middle = player.left[72_000 + 12_000];
    assert!((middle - 0.15).abs() < 1e-4, "{middle}");
    let step = player.left.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
    assert!(step < 1e-3, "{step}: a click");
}

#[test]
fn what_cannot_be_played_is_named_and_skipped() {
    let mut torn = constant(0.5, 48_000);
    torn.truncate(30);
    let folder = folder(&[
        ("1.wav", constant(0.1, 100)),
        ("2.wav", b"<html>not found</html>".to_vec()),
        ("3.wav", torn),
        ("4.flac", vec![]),
        ("5.wav", constant(0.2, 100)),
    ]);
    let player = Player::new(options(folder.to_path_buf(), PlayOrder::Once)).play();
    assert_eq!(player.values(), [0.1, 0.2]);
    let skipped = player.skipped();
    assert_eq!(skipped.len(), 3, "{skipped:?}");
    assert!(skipped[0].starts_with("2.wav: not "), "{skipped:?}");
    assert_eq!(skipped[2], "4.flac: the file is empty");
    let status = player.status();
    assert_eq!((status.played, status.skipped), (2, 3));
    assert!(status.last_skipped.unwrap().path.ends_with("4.flac"));
}

#[test]
fn nothing_playable_costs_little_and_is_tried_again() {
    let folder = folder(&[("1.wav", vec![]), ("2.wav", vec![])]);
    let mut player = Player::new(options(folder.to_path_buf(), PlayOrder::Loop));
    // A minute.
    player.steps(600);
    let skipped = player.skipped().len();
    assert!((10..=40).contains(&skipped), "{skipped}");
    fs::write(folder.join("2.wav"), constant(0.2, 100)).unwrap();
    player.steps(100);
    assert!(player.left.len() > 100);
}

#[test]
fn a_folder_is_watched_and_may_vanish() {
    let folder = folder(&[("b.wav", constant(0.2, 48_000)), ("d.wav", constant(0.4, 48_000))]);
    let mut player = Player::new(options(folder.to_path_buf(), PlayOrder::Loop));
    player.steps(3);
    assert_eq!(player.status().files, 2);
    fs::create_dir(folder.join("e")).unwrap();
    player.steps(60);
    fs::write(folder.join("e/e.wav"), constant(0.5, 48_000)).unwrap();
    fs::write(folder.join("a.wav"), constant(0.1, 48_000)).unwrap();
    fs::remove_file(folder.join("b.wav")).unwrap();
    player.steps(60);
    let skipped = player.skipped();
    assert_eq!(player.status().files, 3);
    // Until the next step, which looks at the folder.
    assert!(skipped.len() <= 9, "{skipped:?}");
    let before = player.left.len();
    player.steps(20);
    player.left.drain(..before);
    assert!(player.values().iter().all(|it| [0.1, 0.4, 0.5].contains(it)), "{:?}", player.values());

    let away = folder.with_extension("away");
    fs::rename(&*folder, &away).unwrap();
    player.steps(60);
    let status = player.status();
    assert_eq!(status.files, 0);
    let problem = status.problem.unwrap();
    assert!(problem.ends_with(": no such folder or playlist file"), "{problem}");
    let before = player.left.len();
    player.steps(60);
    assert_eq!(player.left.len(), before, "it is silent");
    fs::rename(&away, &*folder).unwrap();
    player.steps(60);
    assert_eq!((player.status().problem, player.status().files), (None, 3));
    assert!(player.left.len() > before);
}

#[test]
fn lists_name_files_in_any_way_and_may_lie() {
    let folder = folder(&[
        ("music/one.wav", constant(0.1, 100)),
        ("music/zwei stück.wav", constant(0.2, 100)),
        ("list/long.m3u", b"x.wav\n".repeat(200_000)),
        ("list/hls.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:8\na.ts\n".to_vec()),
        ("list/empty.pls", b"[playlist]\nNumberOfEntries=1000000\n".to_vec()),
        ("list/binary.m3u", vec![0xff; 100]),
    ]);
    let uri = folder.join("music/zwei%20st%C3%BCck.wav");
    let text = format!(
        "#EXTM3U\n#EXTINF:1,One\n../music/one.wav\nfile://{}\nall.m3u\nhttp://a/b.mp3\n\
         ../music/one.wav\n/nothing.wav\n",
        uri.display()
    );
    fs::write(folder.join("list/all.m3u"), text).unwrap();
    let list = |name: &str, order| Player::new(options(folder.join("list").join(name), order));
    let player = list("all.m3u", PlayOrder::Once).play();
    assert_eq!(player.values(), [0.1, 0.2, 0.1]);
    let skipped = player.skipped();
    assert_eq!(skipped.len(), 3, "{skipped:?}");
    assert!(skipped[0].starts_with("all.m3u: not a sound file but"), "{skipped:?}");
    for (name, problem) in [
        ("hls.m3u8", "an HLS playlist"),
        ("empty.pls", "the playlist file has no entry"),
        ("missing.m3u", "no such folder or playlist file"),
    ] {
        let mut player = list(name, PlayOrder::Loop);
        player.steps(3);
        let told = player.status().problem.unwrap();
        assert!(told.contains(problem), "{name}: {told}");
    }
    let mut long = list("long.m3u", PlayOrder::Shuffle);
    long.steps(3);
    assert_eq!(long.status().files, 200_000);
    list("binary.m3u", PlayOrder::Loop).steps(3);
}

#[test]
fn a_playlist_from_a_call_stays_below_its_roots() {
    let folder = folder(&[
        ("root/in.wav", constant(0.1, 100)),
        ("secret.wav", constant(0.9, 100)),
        ("root/all.m3u", b"in.wav\n../secret.wav\nlink.wav\n".to_vec()),
    ]);
    let root = folder.join("root");
    std::os::unix::fs::symlink("../secret.wav", root.join("link.wav")).unwrap();
    std::os::unix::fs::symlink("..", root.join("up")).unwrap();
    for path in [root.clone(), root.join("all.m3u"), root.join("up")] {
        let mut options = options(path.clone(), PlayOrder::Once);
        options.path = options.path.confined_to(core::slice::from_ref(&root));
        let mut player = Player::new(options);
        player.steps(5);
        assert!(!player.left.contains(&0.9), "{path:?}");
        assert_eq!(player.left.contains(&0.1), !path.ends_with("up"), "{path:?}");
    }
}

/// The RMS of the output in dB, of a sine its level less 3.01 dB.
fn level(samples: &[f32]) -> f64 {
    let power: f64 = samples.iter().map(|it| f64::from(*it).powi(2)).sum();
    10.0 * (power / samples.len() as f64).log10()
}

#[test]
fn files_get_one_loudness_by_tags_or_by_measure() {
    let quiet = wave(2, sine(0.02, 4, 2));
    let loud = wave(2, sine(0.5, 4, 2));
    let mono = wave(1, sine(0.1, 4, 1));
    let folder = folder(&[("1.wav", quiet), ("2.wav", loud), ("3.wav", mono)]);
    let play = |loudness| {
        let mut options = options(folder.to_path_buf(), PlayOrder::Once);
        options.loudness = loudness;
        let player = Player::new(options).play();
        assert_eq!(player.left.len(), 3 * 4 * 48_000, "{loudness:?} {:?}", player.status());
        [0, 1, 2].map(|at| level(&player.left[at * 192_000..(at + 1) * 192_000]))
    };
    // A sine of 1 kHz in both channels has the loudness of its RMS plus 3.01 LU less 0.691 plus
    // the filter's 0.69 (ITU-R BS.1770-5).
    let wanted = -18.0 - 3.01;
    for levels in [play(PlaylistLoudness::Measure), play(PlaylistLoudness::Auto)] {
        assert!(levels.iter().all(|it| (it - wanted).abs() < 0.1), "{levels:?}");
    }
    let own = [-36.99, -9.03, -23.01];
    for levels in [play(PlaylistLoudness::Off), play(PlaylistLoudness::Tags)] {
        assert!(levels.iter().zip(own).all(|(it, own)| (it - own).abs() < 0.1), "{levels:?}");
    }
    // Tags count, also where they lie: of the mono file as one channel.
    for (name, gain) in [("1.wav", 6.0), ("2.wav", -6.0), ("3.wav", 5.0)] {
        let gains = GainTags {
            gain: aulos_core::Db::new(gain),
            r128: aulos_core::Db::ZERO,
            peak: Some(0.5),
            range: None,
        };
        let request = TagRequest { track: gains, album: None, reference: Lufs::new(-18.0) };
        tag::write(&folder.join(name), &request).unwrap();
    }
    let tagged = [own[0] + 6.0 - 0.98, own[1] - 6.0, own[2] + 5.0 - 3.01];
    for levels in [play(PlaylistLoudness::Auto), play(PlaylistLoudness::Tags)] {
        // The peak of 0.5 leaves 5.02 dB to the ceiling.
        assert!(levels.iter().zip(tagged).all(|(it, own)| (it - own).abs() < 0.1), "{levels:?}");
    }
}

#[test]
fn a_file_that_is_needed_before_it_is_measured_is_not_raised() {
    // A second, and a minute whose loud part comes late.
    let late = sine(0.02, 30, 2).into_iter().chain(sine(0.5, 30, 2));
    let folder = folder(&[("1.wav", wave(2, sine(0.1, 1, 2))), ("2.wav", wave(2, late))]);
    let mut options = options(folder.to_path_buf(), PlayOrder::Once);
    options.loudness = PlaylistLoudness::Measure;
    let player = Player::new(options).play();
    // Without a gap, and not above what the file is itself.
    assert_eq!(player.left.len(), 61 * 48_000);
    let peak = player.left[48_000..].iter().fold(0.0_f32, |peak, it| peak.max(it.abs()));
    assert!(peak < 0.51, "{peak}");
}

#[test]
fn a_skip_fades_to_the_next_file() {
    let folder =
        folder(&[("1.wav", constant(0.1, 4_800_000)), ("2.wav", constant(0.2, 4_800_000))]);
    let mut player = Player::new(options(folder.to_path_buf(), PlayOrder::Loop));
    player.steps(3);
    let current = |player: &Player| player.status().current.unwrap().0.path;
    assert!(current(&player).ends_with("1.wav"));
    (0..9).for_each(|_| player.parts.handle.skip());
    player.steps(2);
    assert!(current(&player).ends_with("2.wav"));
    assert_eq!(player.left.last(), Some(&0.2));
    let step = player.left.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
    assert!(step < 1e-3, "{step}: a click");
    // The last one of a list that is played once fades to silence.
    let mut last = Player::new(options(folder.join("2.wav").with_file_name(""), PlayOrder::Once));
    last.steps(3);
    last.parts.handle.skip();
    last.steps(3);
    last.parts.handle.skip();
    last.steps(3);
    assert!(last.ended && last.left.last().is_some_and(|it| it.abs() < 1e-3));
}

#[test]
fn jingles_come_between_files_and_do_not_change_the_title() {
    let folder = folder(&[
        ("music/Ann - One.wav", constant(0.1, 60_000)),
        ("music/Two.wav", constant(0.2, 60_000)),
        ("jingles/j.wav", constant(0.3, 60_000)),
    ]);
    let mut options = options(folder.join("music"), PlayOrder::Loop);
    options.jingles = Some(folder.join("jingles").into());
    options.order.jingles = JingleRule { every: Some(2), at_minutes: vec![] };
    let mut player = Player::new(options);
    let mut seen = Vec::new();
    for _ in 0..6 {
        player.step();
        let status = player.status();
        let (title, current) = (status.title.unwrap(), status.current.unwrap().0);
        seen.push((title.artist.clone(), title.title.clone(), current.is_jingle));
    }
    seen.dedup();
    assert!(player.values().starts_with(&[0.1, 0.2, 0.3, 0.1, 0.2, 0.3]), "{:?}", player.values());
    assert!(seen.contains(&(Some("Ann".into()), Some("One".into()), false)), "{seen:?}");
    assert!(seen.iter().all(|(_, title, _)| title.as_deref() != Some("j")), "{seen:?}");
}

#[test]
fn a_hundred_thousand_names_take_little_memory() {
    let mut list = FileList::default();
    for number in 0..100_000 {
        list.push(&PathBuf::from(format!("/srv/music/artist {number}/title.flac"))).unwrap();
    }
    list.shrink();
    assert!(list.bytes() < 50 * 100_000, "{}", list.bytes());
    assert_eq!(list.get(99_999).unwrap(), PathBuf::from("/srv/music/artist 99999/title.flac"));
    assert_eq!(list.get(100_000), None);
}
