//! What a file says of itself, as ffprobe reads it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ffmpeg, generated, normalize, rows};
use crate::common::scratch;

/// Names in lower case and texts, of the file and its streams; and how many pictures there are.
fn probed(path: &Path) -> (BTreeMap<String, String>, usize) {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_format", "-show_streams", "-of", "json"]).arg(path);
    let output = command.output().expect("ffprobe: see scripts/test-setup");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let streams = said["streams"].as_array().unwrap();
    let sound = streams.iter().filter(|stream| stream["codec_type"] == "audio");
    let tags = sound.map(|stream| &stream["tags"]).chain([&said["format"]["tags"]]);
    let tags = tags.filter_map(Value::as_object).flatten();
    let text =
        |(name, text): (&String, &Value)| (name.to_lowercase(), text.as_str().unwrap().to_owned());
    let pictures = streams.iter().filter(|stream| stream["codec_type"] == "video").count();
    let mut tags: BTreeMap<_, _> = tags.map(text).collect();
    // Vorbis comments have a field for each of the two numbers.
    if let Some((track, total)) = tags.get("track").zip(tags.get("tracktotal")) {
        let both = format!("{track}/{total}");
        tags.insert("track".to_owned(), both);
    }
    (tags, pictures)
}

const SAID: [(&str, &str); 9] = [
    ("title", "Größe = 1; \"Maß\""),
    ("artist", "Ä. Künstler"),
    ("album", "Platte"),
    ("album_artist", "Die anderen"),
    ("date", "1999"),
    ("track", "3/9"),
    ("genre", "Polka"),
    ("composer", "B. Ach"),
    ("comment", "kein Kommentar"),
];

#[test]
fn tags_and_cover_are_kept_between_all_formats_and_gains_are_not() {
    let folder = scratch();
    let (sound, cover) = (folder.join("sound.wav"), folder.join("cover.png"));
    generated(&sound, "anoisesrc=r=48000:c=pink:a=0.2:d=2", "-ac 2");
    generated(&cover, "testsrc=size=64x64:rate=1", "-frames:v 1");
    let says: Vec<String> = SAID.iter().map(|(name, text)| format!("{name}={text}")).collect();
    let gains = ["REPLAYGAIN_TRACK_GAIN=-3.00 dB", "REPLAYGAIN_ALBUM_PEAK=0.9", "MOOD=sad"];
    let says: Vec<&str> = says.iter().map(String::as_str).chain(gains).collect();
    let says = says.iter().flat_map(|text| ["-metadata", text]);
    let says: Vec<&str> = says.collect();
    for (ending, codec, pictures) in [
        ("flac", "flac", 1),
        ("mp3", "libmp3lame", 1),
        ("m4a", "aac", 1),
        ("wav", "pcm_s16le", 0),
        ("ogg", "libvorbis", 0),
        ("opus", "libopus", 0),
    ] {
        let from = folder.join(format!("in.{ending}"));
        let inputs = ["-i", "FILE", "-i", "FILE", "-map", "0:a"];
        let more: &[&str] = match pictures {
            0 => &["-c:a", codec, "-id3v2_version", "4"],
            _ => &["-map", "1:v", "-c:a", codec, "-c:v", "copy", "-disposition:v", "attached_pic"],
        };
        let more = if ending == "wav" { &more[..2] } else { more };
        ffmpeg(&[&inputs, more, &says, &["FILE"]].concat(), &[&sound, &cover, &from]);
        let (before, _) = probed(&from);
        for to in ["out.flac", "out.wav", "out.opus"] {
            let to = folder.join(to);
            let (code, out, said) = normalize(&["--json"], &from, &to);
            assert_eq!(code, 0, "{said}");
            let (after, covers) = probed(&to);
            let what = format!("{ending} to {}: {after:?}", to.display());
            for (name, text) in SAID {
                // What ffmpeg itself could not put into the file cannot be kept.
                let Some(text) = before.get(name).filter(|before| *before == text) else {
                    continue;
                };
                assert_eq!(after.get(name), Some(text), "{name}, {what}");
            }
            assert!(before.contains_key("title") && before.contains_key("artist"), "{before:?}");
            assert_eq!(covers, pictures, "{what}");
            assert!(!after.keys().any(|name| name.contains("replaygain")), "{what}");
            let mood = ["mood", "tmoo"].iter().filter_map(|name| after.get(*name)).next();
            let had = before.get("mood").or_else(|| before.get("tmoo"));
            assert_eq!(mood, had, "{what}");
            let lost = rows(&out)[0]["tags_lost"].as_array().unwrap().len();
            assert_eq!(lost == 0, !said.contains("could not be kept"), "{said}");
        }
    }
}

#[test]
fn tags_without_an_equivalent_are_listed() {
    let folder = scratch();
    let (from, to) = (folder.join("in.mp3"), folder.join("out.flac"));
    generated(&from, "anoisesrc=r=48000:c=pink:a=0.2:d=2", "-ac 2 -metadata title=x");
    // An ID3v2.4 tag with a frame of private data and one of a title.
    let mut tag = b"ID3\x04\0\0\0\0\0\0".to_vec();
    for (id, body) in [("PRIV", &b"me\0\x01\x02\x03"[..]), ("TIT2", b"\x03Song")] {
        tag.extend(id.as_bytes());
        tag.extend([0, 0, 0, u8::try_from(body.len()).unwrap(), 0, 0]);
        tag.extend(body);
    }
    tag[9] = u8::try_from(tag.len() - 10).unwrap();
    let sound = std::fs::read(&from).unwrap();
    let old = 10 + sound[6..10].iter().fold(0, |sum, byte| sum << 7 | usize::from(*byte));
    std::fs::write(&from, [&tag, &sound[old..]].concat()).unwrap();
    let (code, out, said) = normalize(&["--json"], &from, &to);
    assert_eq!(code, 0, "{said}");
    assert_eq!(rows(&out)[0]["tags_lost"], serde_json::json!(["PRIV"]), "{out}");
    assert!(said.contains("tags that could not be kept: PRIV"), "{said}");
    assert_eq!(probed(&to).0.get("title").map(String::as_str), Some("Song"));
}
