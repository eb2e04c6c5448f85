//! `hls` of a station.

use super::*;

fn with(keys: &str) -> String {
    station(&format!("sources = [\"demo://\"]\nhls = {{ {keys} }}"))
}

#[test]
fn the_renditions_and_the_grid_of_a_station() {
    let text = with("renditions = [\"opus:96k\", \"flac\"]");
    let resolved = load_text(&text, &[]).unwrap();
    let hls = resolved.stations[0].hls.clone().unwrap();
    let names: Vec<_> = hls.renditions.iter().map(|format| format.name()).collect();
    assert_eq!(names, ["opus-96k", "flac"]);
    assert_eq!((hls.segment.0, hls.listed, hls.paired), (276_480, 104, false));
    let text = with("renditions = [\"flac\"], segment = \"3.84s\", window = \"1h\", paired = true");
    let hls = load_text(&text, &[]).unwrap().stations[0].hls.clone().unwrap();
    assert_eq!((hls.segment.0, hls.listed, hls.paired), (184_320, 937, true));
    assert!(load_text(&station("sources = [\"demo://\"]"), &[]).unwrap().stations[0].hls.is_none());
}

#[test]
fn what_players_could_not_play_is_refused() {
    for (keys, expected) in [
        ("renditions = []", "`renditions` is empty"),
        ("renditions = [\"pcm\"]", "pcm has no rendition in HLS"),
        ("renditions = [\"flac\", \"flac\"]", "duplicate rendition `flac`"),
        ("renditions = [\"flac\"], segment = \"5.77s\"", "multiple of 960 samples"),
        ("renditions = [\"aac\"], segment = \"6s\"", "multiple of 1024 samples"),
        ("renditions = [\"flac\"], segment = \"100ms\"", "`segment` must last 1000 to 20000 ms"),
        ("renditions = [\"flac\"], window = \"10s\"", "must have 3 segments at least"),
        ("renditions = [\"flac\"], window = \"5h\"", "4 h at most"),
        ("renditions = [\"flac\"], packed = true", "flac cannot be packed audio"),
        ("renditions = [\"opus:96k\"], paired = true", "requires a constant bit rate: `opus:96k`"),
    ] {
        let problems = load_text(&with(keys), &[]).unwrap_err().to_string();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
    let text = with("renditions = [\"flac\"]")
        .replace("[[station]]", "[[station]]\nspec = \"44100:16:2\"");
    let problems = load_text(&text, &[]).unwrap_err().to_string();
    assert!(problems.contains("HLS requires 48000 Hz"), "{problems}");
}

#[test]
fn a_folder_is_absolute_and_has_one_station() {
    let text = with("renditions = [\"flac\"], folder = \"/srv/hls/\"");
    let hls = load_text(&text, &[]).unwrap().stations[0].hls.clone().unwrap();
    assert_eq!(hls.folder.as_deref(), Some(std::path::Path::new("/srv/hls")));
    let problems = load_text(&text.replace("/srv", "srv"), &[]).unwrap_err().to_string();
    assert!(problems.contains("it must be an absolute path"), "{problems}");
    let other = text.replace("[[station]]", "[[station]]\nname = \"b\"").replace("hls/", "./hls");
    let problems = load_text(&format!("{text}\n{other}"), &[]).unwrap_err().to_string();
    assert!(problems.contains("two stations write HLS to `/srv/./hls`"), "{problems}");
}

#[cfg(feature = "s3")]
#[test]
fn a_storage_has_the_keys_of_uploads_and_one_station() {
    let upload = "upload = { url = \"s3://radio/hls/{station}\", region = \"eu-central-1\", \
                  access_key = \"ID\", secret_key = \"hush hush\" }";
    let text = with(&format!("renditions = [\"flac\"], {upload}"));
    let hls = load_text(&text, &[]).unwrap().stations[0].hls.clone().unwrap();
    let storage = hls.upload.clone().unwrap();
    assert_eq!(storage.url(), "s3://radio/hls/a");
    assert_eq!(storage.endpoint, "https://s3.eu-central-1.amazonaws.com");
    assert!(!format!("{hls:?}").contains("hush"), "{hls:?}");
    let other = text.replace("[[station]]\nname = \"a\"", "[[station]]\nname = \"b\"");
    assert!(load_text(&format!("{text}\n{other}"), &[]).is_ok(), "a prefix for each");
    let same = format!("{text}\n{other}").replace("{station}", "x");
    let problems = load_text(&same, &[]).unwrap_err().to_string();
    assert!(problems.contains("two stations upload HLS to `s3://radio/hls/x`"), "{problems}");
    let problems = load_text(&text.replace("region", "keep_local"), &[]).unwrap_err().to_string();
    assert!(problems.contains("unknown key `keep_local`"), "{problems}");
}
