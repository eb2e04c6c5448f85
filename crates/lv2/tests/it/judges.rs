//! Programs of others: the validator of LV2, and a host that is not ours.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;

use crate::bits::{MODES, expected};
use crate::host::Library;
use crate::{bits, programme};

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bundle");

/// The bundle as it is installed, in a folder of bundles.
pub(crate) fn install(scratch: &ScratchDir) -> PathBuf {
    let bundle = scratch.join("lv2/aulos.lv2");
    std::fs::create_dir_all(&bundle).unwrap();
    for name in ["manifest.ttl", "aulos.ttl"] {
        std::fs::copy(Path::new(BUNDLE).join(name), bundle.join(name)).unwrap();
    }
    std::fs::copy(Library::path(), bundle.join("aulos_lv2.so")).unwrap();
    bundle
}

/// The command of the page, in a home of its own; optimization is not what is tested.
#[test]
fn the_command_of_the_page_installs_the_bundle_where_hosts_search() {
    let page = include_str!("../../../../docs/how-to/pipewire.md");
    let line = page.lines().find(|line| line.ends_with("make install-lv2")).unwrap();
    let scratch = ScratchDir::new("lv2-install").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    shell.env("HOME", scratch.path()).env("PROFILE", "dev").env("CARGO_NET_OFFLINE", "true");
    for (key, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let home = std::env::var_os(key).map(PathBuf::from);
        let usual = || Path::new(&std::env::var_os("HOME").unwrap()).join(folder);
        shell.env(key, home.unwrap_or_else(usual));
    }
    // The folder that cargo locks for these tests is another one.
    shell.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("target"));
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let bundle = scratch.join(".lv2/aulos.lv2");
    let mut names: Vec<_> = std::fs::read_dir(&bundle)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["aulos.ttl", "aulos_lv2.so", "manifest.ttl"]);
    let Some(program) = find_or_skip("lv2info") else { return };
    let mut info = Command::new(program);
    info.env("HOME", scratch.path()).env_remove("LV2_PATH").arg("urn:aulos:meter:mono");
    let said = info.output().unwrap();
    assert!(said.status.success(), "{said:?}");
}

fn validate(program: &Path, bundle: &Path) -> (bool, String) {
    let files = ["manifest.ttl", "aulos.ttl"].map(|name| bundle.join(name));
    let Output { status, stdout, stderr } = Command::new(program).args(files).output().unwrap();
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn the_validator_of_lv2_finds_nothing() {
    let Some(program) = find_or_skip("lv2_validate") else { return };
    let (valid, said) = validate(&program, Path::new(BUNDLE));
    assert!(valid && said.contains("Found 0 errors"), "{said}");
    // It does find what is wrong.
    let scratch = ScratchDir::new("lv2-validate").unwrap();
    let bundle = install(&scratch);
    let path = bundle.join("aulos.ttl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("lv2:symbol \"mode\"", "lv2:symbol \"3 s\"")).unwrap();
    let (valid, said) = validate(&program, &bundle);
    assert!(!valid && !said.contains("Found 0 errors"), "{said}");
}

#[test]
fn lilv_plays_the_bits_of_the_library() {
    let Some(program) = find_or_skip("lv2apply") else { return };
    let scratch = ScratchDir::new("lv2-apply").unwrap();
    install(&scratch);
    let sound = programme(4.5, 2);
    let (input, output) = (scratch.join("in.wav"), scratch.join("out.wav"));
    std::fs::write(&input, float_wave(&sound)).unwrap();
    for (value, mode) in (0_u8..).zip(MODES) {
        let mut command = Command::new(&program);
        command.env("LV2_PATH", scratch.join("lv2")).arg("-i").arg(&input).arg("-o").arg(&output);
        command.args(["-c", "mode", &value.to_string(), "urn:aulos:normalizer:stereo"]);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let out = samples_of(&std::fs::read(&output).unwrap());
        assert!(bits(&out) == bits(&expected(&sound, mode, 2)), "{mode:?}");
    }
}

/// Both programs find all plug-ins, with all ports.
#[test]
fn lilv_lists_the_plugins_with_their_ports() {
    let Some(program) = find_or_skip("lv2info") else { return };
    let scratch = ScratchDir::new("lv2-info").unwrap();
    install(&scratch);
    let mut listed = String::new();
    for plugin in &aulos_lv2::table::PLUGINS {
        let mut command = Command::new(&program);
        command.env("LV2_PATH", scratch.join("lv2")).arg(plugin.uri.to_str().unwrap());
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let ports = 2 * plugin.channels + plugin.inputs().len() + plugin.outputs().len();
        assert_eq!(said.matches("Symbol:").count(), ports, "{said}");
        let latency = plugin.outputs().iter().any(|port| port.symbol == "latency");
        assert_eq!(said.contains("Has latency:       yes"), latency, "{said}");
        writeln!(listed, "{said}").unwrap();
    }
    assert_eq!(listed.matches("hardRTCapable").count(), aulos_lv2::table::PLUGINS.len());
}

/// Stereo, 48 kHz, 32-bit float.
fn float_wave(samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let length = u32::try_from(data.len()).unwrap();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x03\0\x02\0");
    file.extend(48_000_u32.to_le_bytes());
    file.extend((48_000_u32 * 8).to_le_bytes());
    file.extend([8, 0, 32, 0]);
    file.extend(b"data");
    file.extend(length.to_le_bytes());
    file.extend(data);
    file
}

/// The chunk `data` of a file, whatever other chunks a program writes.
fn samples_of(file: &[u8]) -> Vec<f32> {
    let mut at = 12;
    loop {
        let length = u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
        let body = &file[at + 8..];
        if &file[at..at + 4] == b"data" {
            return body[..length]
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect();
        }
        at += 8 + length + length % 2;
    }
}
