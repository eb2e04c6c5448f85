//! What a payload type means: the static ones of RFC 3551, the dynamic ones by their names in SDP.

use core::fmt;

/// Payload types that have no fixed meaning; SDP gives them one.
pub const DYNAMIC_TYPES: core::ops::RangeInclusive<u8> = 96..=127;

/// How sound is put into payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RtpCodec {
    /// G.711 µ-law.
    Pcmu,
    /// G.711 A-law.
    Pcma,
    /// G.722 at 64 kbit/s; its clock says 8 kHz although it has 16 kHz (RFC 3551, 4.5.2).
    G722,
    /// 16 bit, big endian, interleaved.
    L16,
    /// 24 bit packed, big endian, interleaved (RFC 3190).
    L24,
    /// Opus (RFC 7587); its clock is 48 kHz and it is written with two channels, whatever it has.
    Opus,
    /// Comfort noise (RFC 3389).
    ComfortNoise,
    /// DTMF (RFC 4733).
    TelephoneEvent,
    /// Packets that repeat earlier ones (RFC 2198).
    Red,
}

impl RtpCodec {
    /// The codec with that name in `rtpmap`, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|codec| codec.name().eq_ignore_ascii_case(name))
    }

    /// Its name in `rtpmap`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcmu => "PCMU",
            Self::Pcma => "PCMA",
            Self::G722 => "G722",
            Self::L16 => "L16",
            Self::L24 => "L24",
            Self::Opus => "opus",
            Self::ComfortNoise => "CN",
            Self::TelephoneEvent => "telephone-event",
            Self::Red => "red",
        }
    }
}

impl fmt::Display for RtpCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const ALL: [RtpCodec; 9] = [
    RtpCodec::Pcmu,
    RtpCodec::Pcma,
    RtpCodec::G722,
    RtpCodec::L16,
    RtpCodec::L24,
    RtpCodec::Opus,
    RtpCodec::ComfortNoise,
    RtpCodec::TelephoneEvent,
    RtpCodec::Red,
];

/// A payload type's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "rtpmap has these three and no others")]
pub struct Encoding {
    /// How the sound is put into payloads.
    pub codec: RtpCodec,
    /// Timestamps per second. That is the sample rate, but with G.722.
    pub clock_rate: u32,
    /// Channels, as `rtpmap` says them.
    pub channels: u8,
}

impl Encoding {
    /// What a static payload type means (RFC 3551, 6); none for the others, and for those that we
    /// have no codec for.
    #[must_use]
    pub const fn from_static_type(payload_type: u8) -> Option<Self> {
        let (codec, clock_rate, channels) = match payload_type {
            0 => (RtpCodec::Pcmu, 8_000, 1),
            8 => (RtpCodec::Pcma, 8_000, 1),
            9 => (RtpCodec::G722, 8_000, 1),
            10 => (RtpCodec::L16, 44_100, 2),
            11 => (RtpCodec::L16, 44_100, 1),
            13 => (RtpCodec::ComfortNoise, 8_000, 1),
            _ => return None,
        };
        Some(Self { codec, clock_rate, channels })
    }

    /// The static payload type that means this; none when it needs a dynamic one.
    #[must_use]
    pub fn static_type(self) -> Option<u8> {
        [0, 8, 9, 10, 11, 13]
            .into_iter()
            .find(|number| Self::from_static_type(*number) == Some(self))
    }

    /// Frames per second of the sound: twice the clock with G.722.
    #[must_use]
    pub const fn sample_rate(self) -> u32 {
        match self.codec {
            RtpCodec::G722 => self.clock_rate.saturating_mul(2),
            _ => self.clock_rate,
        }
    }

    /// How far the timestamp goes on with a payload; none when only a decoder can tell, or when the
    /// payload is not whole frames.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    #[must_use]
    pub fn ticks(self, payload: &[u8]) -> Option<u32> {
        let frame = self.frame_bytes();
        match self.codec {
            RtpCodec::Opus => opus_ticks(payload),
            RtpCodec::ComfortNoise | RtpCodec::TelephoneEvent | RtpCodec::Red => None,
            _ if frame == 0 || !payload.len().is_multiple_of(frame) => None,
            _ => u32::try_from(payload.len() / frame).ok(),
        }
    }

    /// Bytes of a payload that takes the timestamp on by `ticks`; none when that depends on the sound.
    #[must_use]
    pub fn payload_bytes(self, ticks: u32) -> Option<usize> {
        match self.frame_bytes() {
            0 => None,
            frame => usize::try_from(ticks).ok()?.checked_mul(frame),
        }
    }

    /// Bytes per tick of the clock; 0 where there is no such number.
    const fn frame_bytes(self) -> usize {
        let channels = self.channels as usize;
        match self.codec {
            RtpCodec::Pcmu | RtpCodec::Pcma | RtpCodec::G722 => channels,
            RtpCodec::L16 => 2 * channels,
            RtpCodec::L24 => 3 * channels,
            _ => 0,
        }
    }
}

/// As in `rtpmap`: `L24/48000/2`, and `PCMU/8000` with one channel.
impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.codec, self.clock_rate)?;
        if self.channels > 1 { write!(f, "/{}", self.channels) } else { Ok(()) }
    }
}

/// What an Opus packet holds in ticks of 48 kHz (RFC 6716, 3.1 and 3.2); none when it is none, or
/// holds more than the 120 ms that a packet may.
fn opus_ticks(packet: &[u8]) -> Option<u32> {
    let toc = *packet.first()?;
    let frame = match toc >> 3 {
        config @ 0..=11 => [480, 960, 1_920, 2_880].get(usize::from(config % 4)).copied()?,
        config @ 12..=15 => 480_u32 << (config % 2),
        config => 120_u32 << (config % 4),
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    Some(frame * frames).filter(|ticks| (120..=5_760).contains(ticks))
}

/// How much of the packet before an Opus packet holds again in low quality, in ticks of 48 kHz; none
/// when it holds nothing of it (in-band error correction; RFC 6716, 2.1.7 and 4.2.3).
///
/// Seen from its first bits, which stand in the packet as they are. Of packets with any number of
/// frames in them (code 3) it is not looked for.
///
/// # Real-time
/// Neither allocates nor waits.
#[must_use]
pub fn opus_fec_ticks(packet: &[u8]) -> Option<u32> {
    let (toc, rest) = packet.split_first()?;
    // Frames of the speech layer in one of the packet's.
    let (frames, ticks) = match toc >> 3 {
        config @ 0..=11 => match config % 4 {
            0 => (1, 480),
            1 => (1, 960),
            2 => (2, 1_920),
            _ => (3, 2_880),
        },
        config @ 12..=15 => (1, 480 << (config % 2)),
        _ => return None,
    };
    let first = match toc & 3 {
        0 | 1 => rest,
        2 if *rest.first()? < 252 => rest.get(1..)?,
        2 => rest.get(2..)?,
        _ => return None,
    };
    let header = *first.first().filter(|_| first.len() > 1)?;
    let bit = |at: u32| header >> (7 - at) & 1 == 1;
    // Whether each frame has a voice in it, and then this; in stereo the same again for the side.
    let stereo = toc & 4 != 0;
    (bit(frames) || (stereo && bit(2 * frames + 1))).then_some(ticks)
}

/// What `a=fmtp` says of Opus (RFC 7587, 6.1): what its writer would like to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct OpusParameters {
    /// The highest sample rate that is of use, 8,000 to 48,000.
    pub max_playback_rate: u32,
    /// The highest sample rate that will be sent.
    pub sprop_max_capture_rate: u32,
    /// Bits per second; none is for the encoder to choose.
    pub max_average_bitrate: Option<u32>,
    /// Two channels are welcome.
    pub stereo: bool,
    /// Two channels are likely to be sent.
    pub sprop_stereo: bool,
    /// Constant bit rate is wanted.
    pub cbr: bool,
    /// Packets may carry a copy of the one before in low quality.
    pub use_inband_fec: bool,
    /// Silence may be left out.
    pub use_dtx: bool,
}

impl Default for OpusParameters {
    fn default() -> Self {
        Self {
            max_playback_rate: 48_000,
            sprop_max_capture_rate: 48_000,
            max_average_bitrate: None,
            stereo: false,
            sprop_stereo: false,
            cbr: false,
            use_inband_fec: false,
            use_dtx: false,
        }
    }
}

impl OpusParameters {
    /// Reads the parameters. What is unknown or makes no sense is passed over, as RFC 7587 wants it.
    #[must_use]
    pub fn parse(fmtp: &str) -> Self {
        let mut parameters = Self::default();
        for (name, value) in fmtp.split(';').filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim();
            let rate = || value.parse().ok().filter(|rate| (8_000..=48_000).contains(rate));
            let bitrate = || value.parse().ok().filter(|rate| (6_000..=510_000).contains(rate));
            let this = &mut parameters;
            match name.trim().to_ascii_lowercase().as_str() {
                "maxplaybackrate" => this.max_playback_rate = rate().unwrap_or(48_000),
                "sprop-maxcapturerate" => this.sprop_max_capture_rate = rate().unwrap_or(48_000),
                "maxaveragebitrate" => this.max_average_bitrate = bitrate(),
                "stereo" => this.stereo = value == "1",
                "sprop-stereo" => this.sprop_stereo = value == "1",
                "cbr" => this.cbr = value == "1",
                "useinbandfec" => this.use_inband_fec = value == "1",
                "usedtx" => this.use_dtx = value == "1",
                _ => {}
            }
        }
        parameters
    }
}

/// Only what differs from the defaults; empty when nothing does.
impl fmt::Display for OpusParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: u32| (rate != 48_000).then_some(rate);
        let flag = |flag: bool| flag.then_some(1);
        let parameters = [
            ("maxplaybackrate", rate(self.max_playback_rate)),
            ("sprop-maxcapturerate", rate(self.sprop_max_capture_rate)),
            ("maxaveragebitrate", self.max_average_bitrate),
            ("stereo", flag(self.stereo)),
            ("sprop-stereo", flag(self.sprop_stereo)),
            ("cbr", flag(self.cbr)),
            ("useinbandfec", flag(self.use_inband_fec)),
            ("usedtx", flag(self.use_dtx)),
        ];
        let mut between = "";
        for (name, value) in parameters {
            if let Some(value) = value {
                write!(f, "{between}{name}={value}")?;
                between = ";";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_types_of_rfc_3551() {
        let shown = |number| Encoding::from_static_type(number).unwrap().to_string();
        assert_eq!([0, 8, 9].map(shown), ["PCMU/8000", "PCMA/8000", "G722/8000"]);
        assert_eq!([10, 11, 13].map(shown), ["L16/44100/2", "L16/44100", "CN/8000"]);
        for number in 0..=127 {
            let back = Encoding::from_static_type(number).map(Encoding::static_type);
            assert!(back.is_none_or(|back| back == Some(number)));
        }
        assert_eq!(Encoding::from_static_type(9).unwrap().sample_rate(), 16_000);
        assert_eq!(RtpCodec::from_name("OPUS"), Some(RtpCodec::Opus));
        assert_eq!(RtpCodec::from_name("MP4A-LATM"), None);
    }

    #[test]
    fn time_and_bytes() {
        let encoding = |codec, clock_rate, channels| Encoding { codec, clock_rate, channels };
        let l24 = encoding(RtpCodec::L24, 48_000, 2);
        assert_eq!((l24.ticks(&[0; 288]), l24.payload_bytes(48)), (Some(48), Some(288)));
        assert_eq!(l24.ticks(&[0; 287]), None);
        // 20 ms of G.722 are 160 bytes, 320 samples, and 160 ticks.
        let g722 = encoding(RtpCodec::G722, 8_000, 1);
        assert_eq!(g722.ticks(&[0; 160]), Some(160));
        assert_eq!(encoding(RtpCodec::L16, 48_000, 0).ticks(&[]), None);
        assert_eq!(encoding(RtpCodec::Opus, 48_000, 2).payload_bytes(960), None);
    }

    /// RFC 6716, table 2 and 3.2: SILK 60 ms, hybrid 20 ms, CELT 2.5 ms; one, two, and n frames.
    #[test]
    fn what_an_opus_packet_holds() {
        let ticks = |packet: &[u8]| {
            Encoding { codec: RtpCodec::Opus, clock_rate: 48_000, channels: 2 }.ticks(packet)
        };
        assert_eq!(ticks(&[3 << 3]), Some(2_880));
        assert_eq!(ticks(&[13 << 3 | 1]), Some(1_920));
        assert_eq!(ticks(&[16 << 3]), Some(120));
        assert_eq!(ticks(&[31 << 3 | 3, 6]), Some(5_760));
        assert_eq!((ticks(&[31 << 3 | 3, 7]), ticks(&[31 << 3 | 3, 0])), (None, None));
        assert_eq!((ticks(&[31 << 3 | 3]), ticks(&[])), (None, None));
    }

    /// By hand, after RFC 6716, 4.2.3: a bit for each frame's voice, and then the one that is meant.
    #[test]
    fn an_opus_packet_says_whether_it_repeats_the_one_before() {
        // SILK of 20 ms, mono and stereo.
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1100_0000, 0]), Some(960));
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1011_1111, 0]), None);
        assert_eq!(opus_fec_ticks(&[1 << 3 | 4, 0b1001_0000, 0]), Some(960));
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1001_0000, 0]), None);
        // 60 ms have three frames; two packets of 10 ms in one, with and without a length.
        assert_eq!(opus_fec_ticks(&[3 << 3, 0b0001_0000, 0]), Some(2_880));
        assert_eq!(opus_fec_ticks(&[1, 0b0100_0000, 0]), Some(480));
        assert_eq!(opus_fec_ticks(&[2, 10, 0b0100_0000, 0]), Some(480));
        assert_eq!(opus_fec_ticks(&[2, 252, 0, 0b0100_0000, 0]), Some(480));
        // CELT has none, nor has what is lost or any number of frames.
        assert_eq!(opus_fec_ticks(&[31 << 3, 0xff, 0xff]), None);
        for nothing in [&[][..], &[1 << 3], &[1 << 3, 0xff], &[1 << 3 | 3, 0xff, 0xff], &[2, 252]] {
            assert_eq!(opus_fec_ticks(nothing), None);
        }
    }

    /// The examples of RFC 7587, 7.
    #[test]
    fn opus_parameters() {
        let text = "maxplaybackrate=16000; sprop-maxcapturerate=16000;maxaveragebitrate=20000; \
                    stereo=1; useinbandfec=1; usedtx=0";
        let parameters = OpusParameters::parse(text);
        assert_eq!((parameters.max_playback_rate, parameters.stereo), (16_000, true));
        assert_eq!(parameters.max_average_bitrate, Some(20_000));
        assert!(parameters.use_inband_fec && !parameters.use_dtx);
        assert_eq!(OpusParameters::parse(&parameters.to_string()), parameters);
        assert_eq!(OpusParameters::default().to_string(), "");
        let nonsense = OpusParameters::parse("maxplaybackrate=-1;stereo=yes;;=;x");
        assert_eq!(nonsense, OpusParameters::default());
    }
}
