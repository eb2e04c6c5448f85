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
fn a_device_is_named_as_its_system_names_it() {
    let device = |uri: &str| {
        let text = station(&format!("sources = [\"{uri}\"]"));
        match load_text(&text, &[]).unwrap().stations.remove(0).sources.remove(0).config {
            SourceConfig::Capture { api, device, spec } => (api, device.unwrap_or_default(), spec),
            other => panic!("{other:?}"),
        }
    };
    for (uri, expected) in [
        ("pulse:", ""),
        ("pulse://", ""),
        ("pulse:mic", "mic"),
        ("pulse://dac.monitor?name=loop", "dac.monitor"),
        ("pulse:///dac.monitor", "dac.monitor"),
        ("pulse:///?device=Dac.monitor", "Dac.monitor"),
        ("alsa://hw:1,0", "hw:1,0"),
        ("alsa:plughw:CARD=PCH,DEV=0", "plughw:CARD=PCH,DEV=0"),
        ("alsa:///?device=hw:CARD=USB", "hw:CARD=USB"),
    ] {
        let (api, device, spec) = device(uri);
        let is_pulse = uri.starts_with("pulse");
        assert_eq!(api, if is_pulse { CaptureApi::Pulse } else { CaptureApi::Alsa });
        assert_eq!((device.as_str(), spec), (expected, None), "{uri}");
    }
    let (.., spec) = device("alsa://hw:1,0?sampleformat=44100:24:1");
    assert_eq!(spec, "44100:24:1".parse().ok());
    for (uri, expected) in [
        ("alsa://hw:1,0?device=hw:2,0", "names two devices"),
        ("pulse://mic%07", "a control character"),
        ("pulse://mic?rate=44100", "unknown parameter `rate`"),
    ] {
        let told = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
        assert!(told.contains(expected), "{uri}: {told}");
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

#[test]
fn a_source_may_be_without_data_for_a_time_that_can_be_set() {
    let timeout = |uri: &str| {
        let text = station(&format!("sources = [\"{uri}\"]"));
        match load_text(&text, &[]).unwrap().stations.remove(0).sources.remove(0).config {
            SourceConfig::Process { timeout, .. }
            | SourceConfig::TcpServer { timeout, .. }
            | SourceConfig::TcpClient { timeout, .. } => {
                timeout.map(|span| span.as_millis() / 1_000)
            }
            other => panic!("{other:?}"),
        }
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
fn another_snapcast_server_has_a_port_an_identity_and_a_login() {
    let load = |uri: &str, more: &str| {
        load_text(&station(&format!("sources = [{{ uri = \"{uri}\"{more} }}]")), &[])
    };
    let parsed = |uri: &str, more: &str| match load(uri, more)
        .unwrap()
        .stations
        .remove(0)
        .sources
        .remove(0)
        .config
    {
        SourceConfig::Snapcast(source) => source,
        other => panic!("{other:?}"),
    };
    let plain = parsed("snapcast://living-room.local", "");
    assert_eq!(plain.address.to_string(), "living-room.local:1704");
    assert_eq!((plain.tls, plain.id, plain.latency), (false, None, Span::ZERO));
    assert!(!plain.pass && parsed("snapcast://living-room.local?pass=true", "").pass);
    let all = "snapcast://me@[::1]:1800?tls=true&id=a&host_name=B%20C&latency=250";
    let all = parsed(all, ", password = \"open sesame\"");
    assert_eq!(all.address.to_string(), "[::1]:1800");
    assert_eq!((all.id.as_deref(), all.host_name.as_deref()), (Some("a"), Some("B C")));
    assert_eq!((all.tls, all.latency), (true, Span::from_millis(250)));
    assert_eq!((all.user.as_deref(), all.password.0.as_deref()), (Some("me"), Some("open sesame")));
    assert!(!format!("{all:?}").contains("sesame"));
    for (uri, more, problem) in [
        ("snapcast://", "", "is not HOST:PORT"),
        ("snapcast://a:0", "", "is not HOST:PORT"),
        ("snapcast://a?id=", "", "`id` is not valid"),
        ("snapcast://a?latency=60001", "", "latency"),
        ("snapcast://a?codec=flac", "", "codec"),
        ("snapcast://a?pass=maybe", "", "pass"),
        ("snapcast://me:open@a", "", "must not contain a password"),
        ("snapcast://me@a", "", "a user and a password"),
        ("snapcast://a", ", password = \"open sesame\"", "a user and a password"),
    ] {
        let told = load(uri, more).unwrap_err().to_string();
        assert!(told.contains(problem), "{uri}: {told}");
        assert!(!told.contains("sesame") && !told.contains("me:open"), "{told}");
    }
}
