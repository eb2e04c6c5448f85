//! Settings of codecs as texts.

use super::super::{aac_config, flac, mp3_config, opus_config};
use super::*;

fn opus(bitrate: u32, rate_control: RateControl, complexity: u8) -> CodecConfig {
    CodecConfig::Opus(OpusConfig { bitrate, rate_control, complexity })
}

#[test]
fn a_codec_prints_as_it_is_read() {
    let texts = [
        "pcm",
        "flac",
        "flac:0",
        "flac:8",
        "opus",
        "opus:6k",
        "opus:64500",
        "opus:192k,cbr",
        "opus:96k,complexity=3",
        "opus:510k,cbr,complexity=0",
        "mp3",
        "mp3:128k",
        "mp3:192k,lame",
        "mp3:192k,builtin",
        "aac",
        "aac:64k",
        "aac:96500",
    ];
    for text in texts {
        let config: CodecConfig = text.parse().unwrap();
        assert_eq!(config.to_string(), text);
        assert!(text.starts_with(config.codec().name()));
    }
    let default = CodecConfig::from(Codec::Flac);
    assert_eq!(format!("flac:{}", FlacConfig::default()).parse(), Ok(default));
    assert_eq!("opus:192k,vbr,complexity=10".parse(), Ok(CodecConfig::from(Codec::Opus)));
}

#[test]
fn settings_are_taken_as_snapserver_writes_them() {
    let vbr = RateControl::Vbr;
    let builtin = Mp3Config { library: Mp3Library::Builtin, ..Mp3Config::default() };
    let builtin = CodecConfig::Mp3(builtin);
    for (text, config) in [
        ("opus:BITRATE:128000,COMPLEXITY:5", opus(128_000, vbr, 5)),
        ("opus:COMPLEXITY:9, BITRATE:64000", opus(64_000, vbr, 9)),
        ("opus:BITRATE:MAX", opus(510_000, vbr, 10)),
        ("opus:BITRATE:512000", opus(510_000, vbr, 10)),
        ("opus:BITRATE:AUTO", opus(192_000, vbr, 10)),
        ("opus:bitrate=96k,cbr", opus(96_000, RateControl::Cbr, 10)),
        ("opus:", CodecConfig::from(Codec::Opus)),
        ("flac:", CodecConfig::from(Codec::Flac)),
        ("aac:128000", CodecConfig::from(Codec::Aac)),
        ("mp3:192000", CodecConfig::from(Codec::Mp3)),
        ("mp3:192000, BUILTIN", builtin),
    ] {
        assert_eq!(text.parse(), Ok(config), "{text}");
    }
}

#[test]
fn a_setting_out_of_range_is_named() {
    use CodecConfigError::{NoSettings, UnknownCodec};
    for (text, error) in [
        ("", UnknownCodec),
        ("FLAC", UnknownCodec),
        ("vorbis:128k", UnknownCodec),
        ("aac:31k", aac_config::BITRATE),
        ("aac:128", aac_config::BITRATE),
        ("aac:513k", aac_config::BITRATE),
        ("aac:99999999k", aac_config::BITRATE),
        ("aac:fast", aac_config::UNKNOWN_OPTION),
        ("aac:128k,96k", aac_config::UNKNOWN_OPTION),
        ("aac:,", aac_config::UNKNOWN_OPTION),
        ("mp3:100k", mp3_config::BITRATE),
        ("mp3:128", mp3_config::BITRATE),
        ("mp3:192500", mp3_config::BITRATE),
        ("mp3:99999999k", mp3_config::BITRATE),
        ("mp3:fast", mp3_config::UNKNOWN_OPTION),
        ("mp3:128k,", mp3_config::UNKNOWN_OPTION),
        ("mp3:128k,96k", mp3_config::REPEATED),
        ("mp3:lame,builtin", mp3_config::REPEATED),
        ("pcm:16", NoSettings),
        ("flac:9", flac::LEVEL),
        ("flac:-1", flac::LEVEL),
        ("flac:5k", flac::LEVEL),
        ("opus:5999", opus_config::BITRATE),
        ("opus:128", opus_config::BITRATE),
        ("opus:511k", opus_config::BITRATE),
        ("opus:99999999999", opus_config::BITRATE),
        ("opus:5000000k", opus_config::BITRATE),
        ("opus:BITRATE:", opus_config::BITRATE),
        ("opus:complexity=11", opus_config::COMPLEXITY),
        ("opus:complexity", opus_config::COMPLEXITY),
        ("opus:128k,fast", opus_config::UNKNOWN_OPTION),
        ("opus:128k,", opus_config::UNKNOWN_OPTION),
        ("opus:cbr=1", opus_config::UNKNOWN_OPTION),
        ("opus:128k,96k", opus_config::REPEATED),
        ("opus:vbr,cbr", opus_config::REPEATED),
        ("opus:encoder=lame", opus_config::UNKNOWN_OPTION),
    ] {
        assert_eq!(text.parse::<CodecConfig>(), Err(error), "{text}");
    }
}
