//! `[[mount]]`.

use aulos_core::Codec;
use aulos_session::mount::MountCodec;

use super::*;

fn mount(keys: &str) -> String {
    station("sources = [\"demo://\"]") + "[[mount]]\n" + keys + "\n"
}

const SOURCE: &str = "sources = [\"http://127.0.0.1:8000/live\"]";

#[test]
fn a_mount_is_a_station_behind_the_others() {
    let text =
        mount(&format!("name = \"live.mp3\"\nstation = \"a\"\nencoder = \"mp3:96k\"\n{SOURCE}"));
    let resolved = load_text(&text, &[]).unwrap();
    let [station, mount] = &resolved.stations[..] else { panic!("{resolved:?}") };
    assert!(station.mount.is_none());
    let settings = mount.mount.unwrap();
    assert_eq!(settings.format.codec, MountCodec::Mp3);
    assert_eq!(settings.encoder.map(|encoder| encoder.codec()), Some(Codec::Mp3));
    assert_eq!(settings.burst, 65_536);
    assert_eq!(mount.spec.to_string(), "44100:16:2");
    let names: Vec<_> = mount.sources.iter().map(|source| source.config.scheme()).collect();
    assert_eq!(names, ["http", "meta"]);
    assert_eq!(mount.sources[1].config.station(), Some("a"));
}

#[test]
fn the_ending_of_the_name_is_the_codec() {
    for (name, codec, encodes) in [
        ("a", MountCodec::Mp3, true),
        ("b.aac", MountCodec::Aac, false),
        ("c.ogg", MountCodec::Opus, true),
        ("d.flac", MountCodec::Flac, true),
    ] {
        let text = mount(&format!("name = \"x{name}\"\n{SOURCE}"));
        let settings = load_text(&text, &[]).unwrap().stations[1].mount.unwrap();
        assert_eq!(settings.format.codec, codec, "{name}");
        assert_eq!(settings.encoder.is_some(), encodes, "{name}");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    for (keys, expected) in [
        ("name = \"listen\"", "`/listen` is a page of the server"),
        ("name = \"a b\"", "`a b` cannot be the path of a mount"),
        ("name = \"a\"", "`a`"),
        ("name = \"x.aac\"\nencoder = \"mp3\"", "there is no encoder for aac"),
        ("name = \"x.mp3\"\nencoder = \"opus\"", "encoder = \"mp3\""),
        ("name = \"x\"\nspec = \"96000:16:2\"\nencoder = \"mp3\"", "mp3 requires"),
        ("name = \"x\"\nstation = \"none\"", "none"),
    ] {
        let told = first_problem(&mount(&format!("{keys}\n{SOURCE}")), &[]);
        assert!(told.contains(expected), "{keys}: {told}");
    }
    let told = first_problem(&mount("name = \"x\""), &[]);
    assert!(told.contains("neither `sources` nor `station`"), "{told}");
}
