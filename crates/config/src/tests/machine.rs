//! What a configuration needs from the machine, and what two of its parts cannot share.

use std::os::unix::fs::PermissionsExt;

use aulos_blackbox::scratch::ScratchDir;

use super::*;

fn warnings(text: &str, path: &str) -> Vec<String> {
    let variables = Variables([("PATH".to_owned(), path.to_owned())].into());
    let env = Environment { variables, ..env() };
    let file = ConfigFile { name: "aulos.toml", text };
    let loaded = load_on_this_machine(Some(file), &[], &env);
    assert_eq!(load(Some(file), &[], &env).unwrap().warnings, Vec::<String>::new());
    loaded.unwrap_or_else(|error| panic!("{error}")).warnings
}

#[test]
fn missing_folders_files_and_programs_are_warnings() {
    let scratch = ScratchDir::new("machine").unwrap();
    let dir = scratch.display();
    for (name, mode) in [("player", 0o755), ("data", 0o644)] {
        std::fs::write(scratch.join(name), "").unwrap();
        std::fs::set_permissions(scratch.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let sources = |uris: &[String]| {
        let quoted: Vec<String> = uris.iter().map(|uri| format!("\"{uri}\"")).collect();
        station(&format!("sources = [{}]", quoted.join(", ")))
    };
    let good = [
        format!("pipe://{dir}/new.fifo"),
        format!("file://{dir}/data"),
        format!("process://{dir}/player"),
        "librespot:///player".to_owned(),
        "pipe:///dev/zero?mode=read".to_owned(),
    ];
    assert_eq!(warnings(&sources(&good), &dir.to_string()), Vec::<String>::new());
    for (uri, wanted) in [
        (format!("pipe://{dir}/no/new.fifo"), format!("there is no folder {dir}/no; mkdir -p")),
        (format!("pipe://{dir}/none?mode=read"), format!("no file {dir}/none; create it with")),
        (format!("pipe://{dir}/data"), format!("{dir}/data is not a FIFO")),
        (format!("file://{dir}/none.flac"), format!("there is no file {dir}/none.flac")),
        (format!("file://{dir}"), format!("{dir} is a folder; to play its files, write")),
        (
            format!("file://{dir}/list.M3U"),
            format!("{dir}/list.M3U is a playlist; to play its files,"),
        ),
        (format!("playlist://{dir}/none"), format!("there is no file {dir}/none; name a")),
        (format!("file://{dir}/dta"), format!("no file {dir}/dta; did you mean {dir}/data?")),
        (format!("process://{dir}/none"), format!("there is no program {dir}/none")),
        (format!("process://{dir}/data"), format!("{dir}/data is not executable")),
        ("librespot:///nothing".to_owned(), "no program `nothing` in PATH; install".to_owned()),
        (format!("sdp://{dir}/none.sdp"), format!("there is no file {dir}/none.sdp")),
    ] {
        let [found] = &warnings(&sources(std::slice::from_ref(&uri)), &dir.to_string())[..] else {
            panic!("{uri}")
        };
        assert!(found.starts_with("aulos.toml:3:12: warning: "), "{found}");
        assert!(found.contains(&wanted), "{found}: {wanted}");
    }
    let folders = format!(
        "[http]\ndoc_root = \"{dir}/web\"\n[streams]\nroots = [\"{dir}\", \"{dir}/bells\"]\n\
         plugin_dir = \"{dir}\"\n{}",
        station("sources = [\"demo://\"]\nplugin = { script = \"none.py\" }")
    );
    let found = warnings(&folders, "").join("\n");
    for wanted in
        ["2:12: warning: there is no folder", "; remove `doc_root`", "bells", "no program"]
    {
        assert!(found.contains(wanted), "{found}");
    }
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn a_fifo_and_a_tcp_port_have_one_source() {
    let two = |one: &str, other: &str| {
        load_text(
            &format!(
                "[[station]]\nname = \"a\"\nsources = [\"{one}\"]\n\
                 [[station]]\nname = \"b\"\nsources = [\"{other}\", \"demo://\"]"
            ),
            &[],
        )
    };
    for (one, other, wanted) in [
        ("pipe:///run/x", "pipe:///run/x?mode=read", "the FIFO /run/x is used by station `a`"),
        ("tcp://0.0.0.0:4953", "tcp://", "TCP port 4953 is used by station `a`"),
        ("tcp://127.0.0.1:7", "tcp://0.0.0.0:7", "TCP port 7 is used by station `a`"),
        ("demo://", "tcp://127.0.0.1:1705", "TCP port 1705 is used by `listen.control`"),
        (
            "icecast://127.0.0.1:8000/live",
            "tcp://0.0.0.0:8000",
            "TCP port 8000 is used by a mount of station `a`",
        ),
    ] {
        let problems = two(one, other).unwrap_err();
        let [problem] = &problems.problems[..] else { panic!("{problems}") };
        assert_eq!(problem.message, wanted);
        assert!(problems.to_string().starts_with("aulos.toml:6:12: "), "{problems}");
    }
    for (one, other) in [
        ("pipe:///dev/zero?mode=read", "pipe:///dev/zero?mode=read"),
        ("tcp://127.0.0.1:7", "tcp://127.0.0.2:7"),
        ("tcp://0.0.0.0:0", "tcp://0.0.0.0:0"),
        ("tcp://192.0.2.1:7?mode=client", "tcp://192.0.2.1:7?mode=client"),
    ] {
        assert!(two(one, other).is_ok(), "{one}, {other}");
    }
}

#[test]
fn titles_of_programs_follow_the_state_directory() {
    let text = station("sources = [\"librespot:///usr/bin/librespot\"]");
    let mut resolved = load_text(&text, &["state_dir=/var/lib/a"]).unwrap();
    let fifo = |resolved: &ResolvedConfig| match &resolved.stations[0].sources[0].config {
        SourceConfig::Process(player) => player.titles.as_ref().unwrap().fifo.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(fifo(&resolved).to_str(), Some("/var/lib/a/titles.a.librespot"));
    resolved.set_state_dir("/srv/b".into());
    assert_eq!(fifo(&resolved).to_str(), Some("/srv/b/titles.a.librespot"));
    assert_eq!(resolved.state_dir.to_str(), Some("/srv/b"));
}

#[test]
fn one_source_without_a_list_is_shown_as_a_list() {
    let text = first_problem(&station("sources = \"demo://\""), &[]);
    assert!(text.contains("3:11: `sources` is text: it must be a list"), "{text}");
    assert!(text.contains("hint: as in sources = [\"demo://\"]"), "{text}");
}

#[test]
fn a_fifo_has_permissions_and_a_group() {
    let mode = |query: &str| {
        let text = station(&format!("sources = [\"pipe:///run/x?{query}\"]"));
        load_text(&text, &[]).map(|resolved| match resolved.stations[0].sources[0].config {
            SourceConfig::Pipe(ref pipe) => pipe.mode,
            ref other => panic!("{other:?}"),
        })
    };
    let made = |permissions, group| FifoMode::Create(FifoAccess { permissions, group });
    for (query, wanted) in [
        ("", made(None, None)),
        ("mode=create", made(None, None)),
        ("mode=0666", made(Some(0o666), None)),
        ("mode=660&group=0", made(Some(0o660), Some(0))),
        ("group=root", made(Some(0o660), Some(0))),
        ("mode=read", FifoMode::Read),
    ] {
        assert_eq!(mode(query).unwrap(), wanted, "{query}");
    }
    for (query, wanted) in [
        ("mode=0066", "permissions from 0600 to 0777"),
        ("mode=4755", "permissions from 0600 to 0777"),
        ("mode=0668", "permissions from 0600 to 0777"),
        ("group=no-such-group", "no such group in /etc/group"),
        ("mode=read&group=0", "`group` requires that the server creates the FIFO"),
    ] {
        let error = mode(query).unwrap_err().to_string();
        assert!(error.contains(wanted), "{query}: {error}");
    }
}
