//! Source URIs: hints, mounts and arguments of players.

use super::*;

#[test]
fn schemes_of_other_programs_hint_at_one_that_reads_them() {
    for scheme in ["srt", "rtmp", "rtsp"] {
        let text = station(&format!("sources = [\"{scheme}://192.0.2.1:9000/live\"]"));
        let told = first_problem(&text, &[]);
        let hint = format!("process:///usr/bin/ffmpeg?params=-i {scheme}://");
        assert!(told.contains(&hint), "{told}");
    }
}

#[test]
fn a_short_password_of_a_mount_is_a_warning() {
    let mount = |password: &str| {
        let source = "uri = \"icecast://0.0.0.0:8000/live?shoutcast=true\"";
        station(&format!("sources = [{{ {source}, password = \"{password}\" }}]"))
    };
    let loaded = load_text(&mount("pass"), &[]).unwrap();
    assert!(loaded.warnings.concat().contains("a mount password of 4 bytes"), "{loaded:?}");
    let SourceConfig::Icecast(mount_of) = &loaded.stations[0].sources[0].config else { panic!() };
    assert!(mount_of.shoutcast && mount_of.password.is_some());
    assert!(load_text(&mount("long enough"), &[]).unwrap().warnings.is_empty());
    assert!(first_problem(&mount("abc"), &[]).contains("a secret of 3 bytes is too short"));
    let last = mount("long enough").replace(":8000", ":65535");
    assert!(first_problem(&last, &[]).contains("needs the next port"));
}

#[test]
fn librespot_gets_the_arguments_that_it_has_today() {
    let params = |query: &str| {
        let text = station(&format!("sources = [\"librespot:///librespot?{query}\"]"));
        let mut loaded = load_text(&text, &[]).unwrap();
        let warnings = loaded.warnings.concat();
        match loaded.stations.remove(0).sources.remove(0).config {
            SourceConfig::Process { params, log_stderr, .. } => (params, log_stderr, warnings),
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
