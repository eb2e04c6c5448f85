//! `record` of a station.

use super::*;

#[test]
fn a_recorder_has_a_name_and_defaults_and_each_key_is_read() {
    let text = r#"
[[station]]
name = "hall"
spec = "48000:24:2"
sources = ["demo://"]
record = { dir = "/srv/rec" }
[[station]]
name = "stage"
sources = [{ uri = "demo://", name = "desk" }]
record = [
    { dir = "/srv/rec", source = "desk", format = "wav", bits = 32, rotate = "1h", align = true,
      time = "local", pre_roll = "1min", start = false },
    { name = "away", dir = "/srv/rec", file = "%Y/{name}-{index}", format = "opus", kbps = 96,
      rotate = "30min", rotate_size = "500MB", keep_for = "30d", keep_files = 10,
      keep_size = "1GiB", keep_free = "2GiB", sync = "never" },
]
"#;
    let stations = load_text(text, &[]).unwrap_or_else(|error| panic!("{error}")).stations;
    let records: Vec<_> = stations.iter().map(|station| &station.records).collect();
    golden("records", &format!("{records:#?}\n"));
}

const WRONG: &str = r#"
[[station]]
name = "a"
sources = ["demo://"]
record = {}
[[station]]
name = "b"
sources = ["demo://"]
record = [
    { dir = "rec", file = "../%H", format = "aac", source = "dem", time = "mars" },
    { dir = "/r", name = "b", format = "wav", bits = 20, rotate = "7min", align = true },
    { dir = "/r", name = "b", format = "flac", bits = 32, rotate = "1ms", rotate_size = "1kB" },
    { dir = "/r", name = "c", format = "opus", bits = 16, align = true, pre_roll = "1h" },
    { dir = "/r", name = "d", format = "flca", sync = "1ms", keep_for = "soon", kbps = 1 },
    { dir = "/r", name = "", file = "%Q", rotate_size = "huge" },
    { dir = "/r", name = "e", format = "mp3", kbps = 100 },
    { dir = "/r", name = "f", format = "mp3", bits = 16 },
]
[[station]]
name = "c"
spec = "44100:16:2"
sources = ["demo://"]
record = { dir = "/r", format = "opus", dirs = 1 }
"#;

#[test]
fn what_is_wrong_with_a_recorder_is_named_with_its_place() {
    golden("records_wrong", &first_problem(WRONG, &[]));
}
