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
    let settings = mount.mount.clone().unwrap();
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
        ("b.aac", MountCodec::Aac, true),
        ("c.ogg", MountCodec::Opus, true),
        ("d.flac", MountCodec::Flac, true),
    ] {
        let text = mount(&format!("name = \"x{name}\"\n{SOURCE}"));
        let settings = load_text(&text, &[]).unwrap().stations[1].mount.clone().unwrap();
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
        ("name = \"x.aac\"\nencoder = \"mp3\"", "encoder = \"aac\""),
        ("name = \"x\"\ncodec = \"vorbis\"\nencoder = \"opus\"", "there is no encoder for vorbis"),
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

#[test]
fn stations_and_mounts_say_what_they_are() {
    let keys = "icy = { name = \"Night\", genre = \"Jazz\", public = false, bitrate_kbps = 96 }";
    let text = station(&format!("sources = [\"demo://\"]\n{keys}"))
        + &format!("[[mount]]\nname = \"x\"\n{SOURCE}\n{keys}");
    let resolved = load_text(&text, &[]).unwrap();
    let [station, mount] = &resolved.stations[..] else { panic!("{resolved:?}") };
    assert_eq!(station.icy, mount.icy);
    assert_eq!(
        mount.icy.header_lines("x", None),
        "icy-name: Night\r\nicy-genre: Jazz\r\n\
                                                   icy-pub: 0\r\nicy-br: 96\r\n"
    );
    let long = mount_with_description(257);
    assert!(first_problem(&long, &[]).contains("at most 256 bytes"));
    assert!(load_text(&mount_with_description(256), &[]).is_ok());
}

fn mount_with_description(bytes: usize) -> String {
    mount(&format!("name = \"x\"\n{SOURCE}\nicy = {{ description = \"{}\" }}", "d".repeat(bytes)))
}

#[test]
fn an_intro_has_the_format_of_its_mount() {
    let scratch = aulos_blackbox::scratch::ScratchDir::new("intro").unwrap();
    let file = scratch.join("intro.mp3");
    // Silent frames of 128 kbit/s and 44,100 Hz in stereo.
    let frame: Vec<u8> = [0xff, 0xfb, 0x90, 0].into_iter().chain([0; 413]).collect();
    let frames = frame.repeat(400);
    std::fs::write(&file, &frames).unwrap();
    let with_intro = |name: &str, file: &std::path::Path| {
        mount(&format!("name = \"{name}\"\n{SOURCE}\nintro = \"{}\"", file.display()))
    };
    let resolved = load_text(&with_intro("x.mp3", &file), &[]).unwrap();
    let intro = resolved.stations[1].mount.clone().unwrap().intro.unwrap();
    let sent: Vec<u8> = intro.chunks().iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
    assert!(sent == frames, "{intro:?}");
    assert!(intro.chunks().len() < 20, "few large chunks: {intro:?}");
    let frames: u64 = intro.chunks().iter().map(|chunk| chunk.duration.0).sum();
    assert_eq!(frames, 400 * 1_152);
    let told = first_problem(&with_intro("x.aac", &file), &[]);
    assert!(told.contains("it sends mp3, the mount aac"), "{told}");
    let mono = with_intro("x.mp3", &file) + "spec = \"44100:16:1\"\n";
    assert!(first_problem(&mono, &[]).contains("it sends 2 channel(s), the mount 1"));
    let told = first_problem(&with_intro("x.mp3", &scratch.join("none")), &[]);
    assert!(told.contains("`intro` cannot be sent"), "{told}");
    assert!(first_problem(&with_intro("x.mp3", &scratch), &[]).contains("it is not a file"));
    std::fs::write(&file, "no sound at all").unwrap();
    first_problem(&with_intro("x.mp3", &file), &[]);
    std::fs::write(&file, vec![0; (4 << 20) + 1]).unwrap();
    assert!(first_problem(&with_intro("x.mp3", &file), &[]).contains("larger than 4 MiB"));
}
