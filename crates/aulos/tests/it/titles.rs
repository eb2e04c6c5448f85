//! Titles of programs that play: a shell script stands for librespot and shairport-sync.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{Playing, eventually, resolve, scratch};
use serde_json::{Value, json};

fn program(dir: &Path, body: &str) -> PathBuf {
    let path = dir.join("program.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{body}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn server(dir: &Path, source: &str) -> Playing {
    let text = format!(
        "state_dir = \"{}\"\n[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n[[station]]\n\
         name = \"two words\"\nsources = [\"{source}\"]\n",
        dir.join("state").display()
    );
    Playing::start(resolve(&text))
}

/// The properties of the only stream, once they are as they should be.
fn properties(server: &Playing, right: impl Fn(&Value) -> bool) -> Value {
    let mut controller = server.controller();
    let mut found = Value::Null;
    eventually(|| {
        let status = controller.call("Server.GetStatus", json!({}));
        found = status["result"]["server"]["streams"][0]["properties"].clone();
        right(&found)
    });
    found
}

#[test]
fn titles_of_librespot_are_read_from_its_log() {
    let dir = scratch();
    // More than a FIFO holds first: a program that waited for its log to be read would never play.
    // What finds no room there is lost, so the title is told again and again.
    let body = "echo \"$@\" > \"$(dirname \"$0\")/arguments\"\n\
        head -c 300000 /dev/zero | tr '\\0' 'x' >&2\nwhile sleep 0.1; do\n\
        echo '[2021-06-04T07:20:47Z INFO  librespot_playback::player] <Tunnel> (310573 ms) loaded' >&2\n\
        done\n";
    let path = program(&dir, body);
    let server = server(&dir, &format!("librespot://{}?devicename=My Room", path.display()));
    let told = properties(&server, |told| told["playbackStatus"] == "playing");
    assert_eq!(told["metadata"], json!({ "title": "Tunnel", "duration": 310.573 }));
    assert_eq!(told["canControl"], false);
    let arguments = std::fs::read_to_string(dir.join("arguments")).unwrap();
    assert!(arguments.contains("--name My Room"), "{arguments}");
}

#[test]
fn title_and_picture_of_shairport_sync_are_read_from_its_pipe() {
    let dir = scratch();
    // "Title", "Artist" and the first bytes of a PNG, between the beginning and the end of a set.
    let body = r#"
for argument in "$@"; do
  case "$argument" in --metadata-pipename=*) pipe=${argument#*=} ;; esac
done
while [ ! -p "$pipe" ]; do sleep 0.05; done
item() {
  printf '<item><type>%s</type><code>%s</code><length>1</length>\n' "$1" "$2"
  [ -z "$3" ] || printf '<data encoding="base64">\n%s</data>' "$3"
  printf '</item>\n'
}
{
  item 73736e63 70626567
  item 73736e63 6d647374 MQ==
  item 636f7265 6d696e6d VGl0bGU=
  item 636f7265 61736172 QXJ0aXN0
  item 73736e63 6d64656e MQ==
  item 73736e63 50494354 iVBORw==
} > "$pipe"
exec sleep 60
"#;
    let path = program(&dir, body);
    let server = server(&dir, &format!("airplay://{}", path.display()));
    let told = properties(&server, |told| told["metadata"]["artUrl"].is_string());
    let metadata = &told["metadata"];
    assert_eq!((&metadata["title"], &metadata["artist"]), (&json!("Title"), &json!(["Artist"])));
    assert!(metadata["artUrl"].as_str().unwrap().ends_with(".png"), "{metadata}");
    assert_eq!(told["playbackStatus"], "playing");
}

#[test]
fn a_player_that_ends_leaves_its_reason_and_no_title() {
    let dir = scratch();
    // The second time it is silent, so that nothing but the end of the first clears the title.
    let body = "cd \"$(dirname \"$0\")\"\n[ -e again ] && exec sleep 60\n\
        while [ ! -e end ]; do echo ' <Tunnel> (310573 ms) loaded' >&2; sleep 0.1; done\n\
        touch again\necho 'no such card: 7' >&2\nexit 3\n";
    let path = program(&dir, body);
    let server = server(&dir, &format!("librespot://{}", path.display()));
    properties(&server, |told| told["metadata"]["title"] == "Tunnel");
    std::fs::write(dir.join("end"), "").unwrap();
    let told = properties(&server, |told| told["playbackStatus"] == "stopped");
    assert_eq!(told["metadata"], json!({}));
    let status = server.controller().call("Aulos.GetStatus", json!({}));
    let source = &status["result"]["stations"][0]["sources"][0];
    assert_eq!(source["reason"], "the program has exited with status 3: no such card: 7");
}
