//! The page about systemd: its unit is valid, and its configuration runs in the service's sandbox
//! as far as a test may build it.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aulos_blackbox::peer::find_or_skip;
use rustix::process::Signal;

use crate::command_line::Running;
use crate::common::{eventually, scratch};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/how-to/systemd.md")).unwrap()
}

fn block(page: &str, kind: &str) -> String {
    let start = format!("```{kind}\n");
    let rest = page.split(&start).nth(1).expect(kind);
    rest.split("```").next().unwrap().to_owned()
}

#[test]
fn the_unit_and_its_drop_in_are_valid() {
    let Some(analyze) = find_or_skip("systemd-analyze") else { return };
    let folder = scratch();
    let drop_ins = folder.join("aulos.service.d");
    fs::create_dir(&drop_ins).unwrap();
    for unit in ["aulos.service", "aulos.socket"] {
        let text = fs::read_to_string(root().join("contrib").join(unit)).unwrap();
        let text = text.replace("/usr/local/bin/aulos", env!("CARGO_BIN_EXE_aulos"));
        fs::write(folder.join(unit), text).unwrap();
    }
    let page = page();
    let drop_in = block(&page, "ini");
    for (directive, of) in [
        ("SupplementaryGroups=audio", "group=audio"),
        ("ReadWritePaths=/srv/rec", "dir = \"/srv/rec\""),
        ("LoadCredential=dj:", "/run/credentials/aulos.service/dj"),
    ] {
        assert!(drop_in.contains(directive) && block(&page, "toml").contains(of), "{directive}");
    }
    fs::write(drop_ins.join("local.conf"), drop_in).unwrap();
    let verify = || {
        let output = Command::new(&analyze)
            .args(["verify", "--man=no"])
            .arg(folder.join("aulos.service"))
            .arg(folder.join("aulos.socket"))
            .env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let ours = |said: &str| said.lines().filter(|line| line.contains("aulos")).count();
    let said = verify();
    assert_eq!(ours(&said), 0, "{said}");
    // The check can fail.
    fs::write(drop_ins.join("local.conf"), "[Service]\nReadWritePath=/srv/rec\n").unwrap();
    assert!(ours(&verify()) > 0);
}

#[test]
fn the_units_of_the_player_are_valid() {
    let Some(analyze) = find_or_skip("systemd-analyze") else { return };
    let folder = scratch();
    let units = ["aulos-player.service", "aulos-player@.service", "user/aulos-player.service"];
    for (number, unit) in units.into_iter().enumerate() {
        let text = fs::read_to_string(root().join("contrib").join(unit)).unwrap();
        let text = text.replace("/usr/local/bin/aulos", env!("CARGO_BIN_EXE_aulos"));
        let said = |text: String| {
            let file = folder.join(format!("aulos-player{number}@attic.service"));
            fs::write(&file, text).unwrap();
            let output = Command::new(&analyze).args(["verify", "--man=no"]).arg(file).output();
            String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
        };
        let ours = |said: &str| said.lines().filter(|line| line.contains("aulos")).count();
        let good = said(text.clone());
        assert_eq!(ours(&good), 0, "{unit}: {good}");
        // The check can fail.
        assert!(ours(&said(text.replace("EnvironmentFile", "Environmentfile"))) > 0, "{unit}");
    }
}

#[test]
fn the_configuration_of_the_page_runs_and_its_fifo_is_for_the_group() {
    let folder = scratch();
    let place = folder.to_str().unwrap();
    fs::create_dir(folder.join("rec")).unwrap();
    fs::write(folder.join("dj"), "a long password\n").unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let group = if is_root { 29 } else { rustix::process::getegid().as_raw() };
    let text = block(&page(), "toml")
        .replace("/run/credentials/aulos.service", place)
        .replace("/run/aulos", place)
        .replace("/srv/rec", &format!("{place}/rec"))
        .replace("icecast://0.0.0.0:8000", "icecast://127.0.0.1:0")
        .replace("group=audio", &format!("group={group}"));
    let file = folder.join("aulos.toml");
    fs::write(&file, text).unwrap();
    let server = Running::start(&["--config", file.to_str().unwrap()]);
    let fifo = folder.join("kitchen.fifo");
    eventually(|| {
        fs::metadata(&fifo).is_ok_and(|found| {
            found.file_type().is_fifo()
                && found.permissions().mode() & 0o7777 == 0o660
                && found.gid() == group
        })
    });
    if is_root && let Some(setpriv) = find_or_skip("setpriv") {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let write = |groups: &str| {
            let mut command = Command::new(&setpriv);
            command.args(["--reuid=65534", "--regid=65534", groups, "sh", "-c"]);
            command.arg(format!("printf 0123 > {}", fifo.display())).stderr(Stdio::null());
            command.status().unwrap().success()
        };
        assert!(write("--groups=29"), "a member of the group writes");
        assert!(!write("--clear-groups"), "and no other user");
    }
    server.end(Signal::TERM);
}

#[test]
fn make_install_puts_everything_below_the_prefix() {
    let folder = scratch();
    let to = folder.join("root");
    let output = Command::new(root().join("scripts/install"))
        .env("AULOS_BINARY", env!("CARGO_BIN_EXE_aulos"))
        .env("DESTDIR", &to)
        .env("PREFIX", "/opt/aulos")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let installed = |path: &str| fs::read_to_string(to.join("opt/aulos").join(path)).unwrap();
    let binary = fs::metadata(to.join("opt/aulos/bin/aulos")).unwrap();
    assert_eq!(binary.permissions().mode() & 0o777, 0o755);
    assert!(installed("share/man/man1/aulos.1").contains(".TH aulos 1"));
    assert!(installed("share/man/man1/aulos-relay.1").contains(".TH aulos-relay 1"));
    for shell in ["bash-completion/completions/aulos", "zsh/site-functions/_aulos"] {
        assert!(installed(&format!("share/{shell}")).contains("announce"), "{shell}");
    }
    assert!(installed("share/fish/vendor_completions.d/aulos.fish").contains("announce"));
    let unit = installed("lib/systemd/system/aulos.service");
    assert!(unit.contains("ExecStart=/opt/aulos/bin/aulos serve"), "{unit}");
    assert!(installed("lib/systemd/system/aulos.socket").contains("ListenStream=1704"));
}
