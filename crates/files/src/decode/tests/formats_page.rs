//! The page of formats in the documents: each row is a file that was made, opened and decoded.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use aulos_blackbox::golden::compare_file;
use aulos_core::{Db, Lufs};

use super::super::{FileDecodeOptions, FileDecoder};
use super::fixture::Folder;
use super::read;
use crate::scan::tag::{GainTags, TagRequest, changes};

/// How a file of the page is made.
enum Content {
    /// By FFmpeg with these arguments.
    Encoded(&'static str),
    /// FFmpeg's output, shortened to its first half.
    Half(&'static str),
    Bytes(&'static [u8]),
}
use Content::{Bytes, Encoded, Half};

struct Row(&'static str, &'static str, &'static str, Content);

const SOUND: [Row; 44] = [
    Row("WAVE", "8-bit PCM", "u8.wav", Encoded("-c:a pcm_u8")),
    Row("WAVE", "16-bit PCM", "16.wav", Encoded("-c:a pcm_s16le")),
    Row("WAVE", "24-bit PCM", "24.wav", Encoded("-c:a pcm_s24le")),
    Row("WAVE", "32-bit PCM", "32.wav", Encoded("-c:a pcm_s32le")),
    Row("WAVE", "32-bit float", "f32.wav", Encoded("-c:a pcm_f32le")),
    Row("WAVE", "64-bit float", "f64.wav", Encoded("-c:a pcm_f64le")),
    Row("WAVE", "A-law", "alaw.wav", Encoded("-c:a pcm_alaw")),
    Row("WAVE", "mu-law", "mulaw.wav", Encoded("-c:a pcm_mulaw")),
    Row("WAVE", "Microsoft ADPCM", "ms.wav", Encoded("-c:a adpcm_ms")),
    Row("WAVE", "IMA ADPCM", "ima.wav", Encoded("-c:a adpcm_ima_wav")),
    Row("WAVE", "MP3", "mp3.wav", Encoded("-c:a libmp3lame")),
    Row("WAVE, RF64", "24-bit PCM", "rf64.wav", Encoded("-c:a pcm_s24le -rf64 always")),
    Row("AIFF", "16-bit PCM", "16.aiff", Encoded("-c:a pcm_s16be")),
    Row("AIFF", "24-bit PCM", "24.aiff", Encoded("-c:a pcm_s24be")),
    Row("AIFF-C", "32-bit float", "f32.aifc", Encoded("-c:a pcm_f32be -f aiff")),
    Row("AIFF-C", "mu-law", "ulaw.aifc", Encoded("-c:a pcm_mulaw -f aiff")),
    Row("CAF", "24-bit PCM", "24.caf", Encoded("-c:a pcm_s24be")),
    Row("CAF", "ALAC", "alac.caf", Encoded("-c:a alac -sample_fmt s16p")),
    Row("FLAC", "FLAC", "a.flac", Encoded("-c:a flac")),
    Row("Ogg", "FLAC", "flac.ogg", Encoded("-c:a flac -f ogg")),
    Row("Ogg", "Vorbis", "vorbis.ogg", Encoded("-c:a libvorbis")),
    Row("Ogg", "Opus", "a.opus", Encoded("-c:a libopus")),
    Row("MPEG", "MP2", "a.mp2", Encoded("-c:a mp2")),
    Row("MPEG", "MP3", "a.mp3", Encoded("-c:a libmp3lame")),
    Row("ADTS", "AAC", "a.aac", Encoded("-c:a aac")),
    Row("MP4", "AAC", "aac.m4a", Encoded("-c:a aac")),
    Row("MP4", "AAC, 5.1", "surround.m4a", Encoded("-c:a aac -ac 6")),
    Row("MP4, fragmented", "AAC", "fragments.m4a", Encoded("-c:a aac -movflags +empty_moov")),
    Row("MP4", "ALAC", "alac.m4a", Encoded("-c:a alac -sample_fmt s16p")),
    Row("MP4", "MP3", "mp3.mp4", Encoded("-c:a libmp3lame")),
    Row("MP4", "Opus", "opus.mp4", Encoded("-c:a libopus")),
    Row("MP4", "FLAC", "flac.mp4", Encoded("-c:a flac -strict -2")),
    Row("MP4", "AC-3", "ac3.mp4", Encoded("-c:a ac3")),
    Row("QuickTime", "16-bit PCM", "pcm.mov", Encoded("-c:a pcm_s16be")),
    Row("Matroska", "16-bit PCM", "pcm.mka", Encoded("-c:a pcm_s16le")),
    Row("Matroska", "AAC", "aac.mka", Encoded("-c:a aac")),
    Row("Matroska", "AC-3", "ac3.mka", Encoded("-c:a ac3")),
    Row("Matroska", "FLAC", "flac.mka", Encoded("-c:a flac")),
    Row("Matroska", "MP3", "mp3.mka", Encoded("-c:a libmp3lame")),
    Row("Matroska, WebM", "Opus", "opus.webm", Encoded("-c:a libopus")),
    Row("Matroska, WebM", "Vorbis", "vorbis.webm", Encoded("-c:a libvorbis")),
    Row("none (`.raw`, `.pcm`, `.s16`)", "16-bit PCM, 48 kHz, stereo", "a.raw", Bytes(&[1; 40])),
    Row("WavPack", "WavPack", "a.wv", Encoded("-c:a wavpack")),
    Row("ASF", "Windows Media Audio", "a.wma", Encoded("-c:a wmav2")),
];

const OTHERS: [Row; 19] = [
    Row("AC-3", "AC-3", "a.ac3", Encoded("-c:a ac3")),
    Row("Monkey's Audio", "", "a.ape", Bytes(b"MAC \x96\x0f\0\0")),
    Row("Musepack", "", "a.mpc", Bytes(b"MPCKSH\0\0\0\0")),
    Row("True Audio", "TTA", "a.tta", Encoded("-c:a tta")),
    Row("DSF", "DSD", "a.dsf", Bytes(b"DSD \x1c\0\0\0\0\0\0\0")),
    Row("Sun audio", "16-bit PCM", "a.au", Encoded("-c:a pcm_s16be")),
    Row("Wave64", "16-bit PCM", "a.w64", Encoded("-c:a pcm_s16le")),
    Row("MPEG-TS", "AAC", "a.ts", Encoded("-c:a aac -f mpegts")),
    Row("MIDI", "", "a.mid", Bytes(b"MThd\0\0\0\x06\0\0\0\x01\0\x60")),
    Row("MP4 without its end", "AAC", "half.m4a", Half("-c:a aac")),
    Row("playlist", "M3U", "a.m3u8", Bytes(b"#EXTM3U\na.mp3\n")),
    Row("playlist", "PLS", "a.pls", Bytes(b"[playlist]\nFile1=a.mp3\n")),
    Row("playlist", "ASX", "a.asx", Bytes(b"<asx version=\"3.0\"></asx>")),
    Row("cue sheet", "", "a.cue", Bytes(b"TITLE \"A\"\nFILE \"a.wav\" WAVE\n  TRACK 01 AUDIO\n")),
    Row("gzip", "", "a.gz", Bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03")),
    Row("ZIP", "", "a.zip", Bytes(b"PK\x03\x04\x14\0\0\0\0\0")),
    Row("HTML", "", "a.mp3", Bytes(b"<!DOCTYPE html><title>404</title>")),
    Row("text", "", "a.txt", Bytes(b"It was a bright cold day in April.\n")),
    Row("empty file", "", "b.mp3", Bytes(b"")),
];

#[test]
fn the_page_of_formats_is_what_the_decoder_does() {
    let folder = Folder::new();
    let mut page = String::from(HEAD);
    page += "| container | codec | read as | tags by `scan --tag` |\n|---|---|---|---|\n";
    let mut refused = String::new();
    for row in SOUND.iter().chain(&OTHERS) {
        let Row(container, codec, name, content) = row;
        let path = match content {
            Encoded(arguments) => folder.encoded(name, 48_000, 16, &format!("-t 0.5 {arguments}")),
            Half(arguments) => {
                let path = folder.encoded(name, 48_000, 16, arguments);
                let whole = fs::read(&path).unwrap();
                folder.write(name, &whole[..whole.len() / 2])
            }
            Bytes(bytes) => folder.write(name, bytes),
        };
        match FileDecoder::open(&path, FileDecodeOptions::default()) {
            Ok(mut decoder) => {
                let (sound, end) = read(&mut decoder, usize::MAX / 64);
                assert!(end == Ok(()) && !sound.is_empty(), "{name}: {end:?}");
                let tags = if can_be_tagged(&path) { "yes" } else { "no" };
                let codec_name = decoder.info().codec;
                writeln!(page, "| {container} | {codec} | `{codec_name}` | {tags} |").unwrap();
            }
            Err(error) => writeln!(refused, "| {container} | {codec} | {error} |").unwrap(),
        }
    }
    page += "\n## What is refused\n\n| file | codec | message |\n|---|---|---|\n";
    page += &refused;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/formats.md");
    compare_file(&path, &page);
}

fn can_be_tagged(path: &Path) -> bool {
    let gains = GainTags { gain: Db::ZERO, r128: Db::ZERO, peak: None, range: None };
    let request = TagRequest { track: gains, album: None, reference: Lufs::new(-18.0) };
    changes(path, &request).is_ok()
}

const HEAD: &str = "\
# Formats of sound files

What `aulos scan`, `aulos normalize`, files as sources, announcements and the Python package read. This page is written by
a test that makes each of these files, opens and decodes it. The content of a file decides, not its name; only raw samples
are recognized by their name.

* A file is decoded to its last byte. Lengths in headers are hints: where the file contradicts one, there is a warning
  with both lengths. The padding of an encoder is removed where the file ends as its header says.
* A file whose sample rate or channels change is read to its end too, with a warning. `aulos normalize` and the Python
  package convert what follows the change to the first format.
* Tags behind the audio (ID3v1, APEv2, Lyrics3) are not taken for damage.

## What is read

";
