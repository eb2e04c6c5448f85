//! Source URIs: hints, mounts and arguments of players.

use aulos_files::playlist::PlaylistLoudness;
use aulos_session::playlist::{JingleRule, PlayOrder, PlaylistConfig};

use super::*;

#[test]
fn schemes_of_other_programs_hint_at_one_that_reads_them() {
    for scheme in ["rtmp", "rtsp"] {
        let text = station(&format!("sources = [\"{scheme}://192.0.2.1:9000/live\"]"));
        let told = first_problem(&text, &[]);
        let hint = format!("process:///usr/bin/ffmpeg?params=-i {scheme}://");
        assert!(told.contains(&hint), "{told}");
    }
}

#[test]
fn librespot_gets_the_arguments_that_it_has_today() {
    let params = |query: &str| {
        let text = station(&format!("sources = [\"librespot:///librespot?{query}\"]"));
        let mut loaded = load_text(&text, &[]).unwrap();
        let warnings = loaded.warnings.concat();
        match loaded.stations.remove(0).sources.remove(0).config {
            SourceConfig::Process(player) => (player.params, player.log_stderr, warnings),
            other => panic!("{other:?}"),
        }
    };
    let (plain, log_stderr, warnings) = params("bitrate=160");
    assert!(!plain.contains("--autoplay") && !log_stderr && warnings.is_empty(), "{plain}");
    assert!(params("autoplay=true").0.contains(" --autoplay on"));
    assert!(params("autoplay=false&log_stderr=true").0.contains(" --autoplay off"));
    assert!(params("log_stderr=true").1);
    let (arguments, _, warnings) = params("username=me&password=hidden");
    assert!(arguments.contains("--username") && !arguments.contains("password"), "{arguments}");
    assert!(warnings.contains("no option for a password") && !warnings.contains("hidden"));
}

#[test]
fn a_source_may_be_without_data_for_a_time_that_can_be_set() {
    let timeout = |uri: &str| {
        let text = station(&format!("sources = [\"{uri}\"]"));
        match load_text(&text, &[]).unwrap().stations.remove(0).sources.remove(0).config {
            SourceConfig::Process(source) => source.timeout,
            SourceConfig::Tcp(source) => source.timeout,
            other => panic!("{other:?}"),
        }
        .map(|span| span.as_millis() / 1_000)
    };
    for (uri, expected) in [
        ("process:///x", Some(30)),
        ("process:///x?timeout=5", Some(5)),
        ("process:///x?timeout=2min", Some(120)),
        ("process:///x?timeout=off", None),
        ("process:///x?timeout=0", None),
        ("librespot:///librespot", None),
        ("librespot:///librespot?timeout=1h", Some(3_600)),
        ("airplay:///shairport-sync", None),
        ("tcp://0.0.0.0:4953", Some(3_600)),
        ("tcp://host:4953?mode=client&timeout=10s", Some(10)),
    ] {
        assert_eq!(timeout(uri), expected, "{uri}");
    }
    for (uri, expected) in [
        ("process:///x?timeout=100ms", "from 1s to 24h, or off"),
        ("process:///x?timeout=soon", "not a duration"),
        ("process:///x?wd_timeout=5", "write `timeout`"),
    ] {
        let told = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
        assert!(told.contains(expected), "{uri}: {told}");
    }
}

#[test]
fn a_tone_has_one_frequency_or_two_and_may_be_interrupted() {
    let tone = |uri: &str| {
        let text = station(&format!("sources = [\"{uri}\"]"));
        let mut config = load_text(&text, &[]).unwrap_or_else(|error| panic!("{uri}: {error}"));
        match config.stations.remove(0).sources.remove(0).config {
            SourceConfig::Generated(source) => source.generator,
            other => panic!("{other:?}"),
        }
    };
    let sine = |hz, dbfs| Sine { hz, level: Db::new(dbfs) };
    let steady = ToneConfig::from(sine(440.0, -20.0));
    assert_eq!(tone("tone://?hz=440"), Generator::Tone(steady));
    let two = ToneConfig { second: Some(sine(440.0, -23.0)), ..sine(350.0, -20.0).into() };
    assert_eq!(tone("tone://?hz=350,440&dbfs=-20,-23"), Generator::Tone(two));
    let cadence = Some(Cadence { on: Span::from_secs(1), off: Span::from_millis(3_500) });
    let ring = ToneConfig { second: Some(sine(480.0, -20.0)), cadence, ..steady };
    assert_eq!(tone("tone://?hz=440,480&on=1s&off=3500ms"), Generator::Tone(ring));
    for (parameters, expected) in [
        ("hz=0", "above 0 and below 24000"),
        ("hz=440,30000", "above 0 and below 24000"),
        ("hz=nan", "a number, or two separated by a comma"),
        ("hz=1,2,3", "a number, or two separated by a comma"),
        ("dbfs=3", "is 3: it must be -120 to 0 dBFS"),
        ("dbfs=-20,-23", "two levels for one frequency"),
        ("on=1s", "belong together"),
        ("on=1s&off=2d", "from 10ms to 1h"),
        ("on=0s&off=1s", "from 10ms to 1h"),
    ] {
        let told = first_problem(&station(&format!("sources = [\"tone://?{parameters}\"]")), &[]);
        assert!(told.contains(expected), "{parameters}: {told}");
    }
}

#[test]
fn a_playlist_has_an_order_and_jingles() {
    let playlist = |uri: &str| {
        let text = station(&format!("sources = [\"{uri}\"]"));
        let mut config = load_text(&text, &[]).unwrap_or_else(|error| panic!("{uri}: {error}"));
        match config.stations.remove(0).sources.remove(0).config {
            SourceConfig::Playlist(options) => options,
            other => panic!("{other:?}"),
        }
    };
    let plain = playlist("playlist:///srv/music");
    assert_eq!(*plain.path, *std::path::Path::new("/srv/music"));
    assert_eq!((plain.order, plain.crossfade), (PlaylistConfig::default(), Span::ZERO));
    let full = playlist(
        "playlist:///a.m3u?order=shuffle&no_repeat=9&crossfade=2500ms&jingles=/j&jingle_every=4\
         &jingle_at=0,30&loudness=tags&target=-23",
    );
    let jingles = JingleRule { every: Some(4), at_minutes: vec![0, 30] };
    let order = PlaylistConfig { order: PlayOrder::Shuffle, no_repeat: 9, jingles };
    assert_eq!((full.order, full.crossfade), (order, Span::from_millis(2_500)));
    assert_eq!((full.loudness, full.target.get()), (PlaylistLoudness::Tags, -23.0));
    for (uri, expected) in [
        ("playlist://music", "has no path"),
        ("playlist:///m?order=random", "loop"),
        ("playlist:///m?crossfade=11s", "it must be at most 10s"),
        ("playlist:///m?no_repeat=1001", "1000"),
        ("playlist:///m?jingles=/j", "belong together"),
        ("playlist:///m?jingle_every=2", "belong together"),
        ("playlist:///m?jingles=j&jingle_every=2", "no absolute path"),
        ("playlist:///m?jingles=/j&jingle_at=60", "minutes from 0 to 59"),
        ("playlist:///m?target=0", "-5"),
    ] {
        let told = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
        assert!(told.contains(expected), "{uri}: {told}");
    }
    let last = station("sources = [\"demo://\"]\nswitch = { last_resort = \"playlist:///m\" }");
    assert!(first_problem(&last, &[]).contains("must not be a playlist: source"));
}
