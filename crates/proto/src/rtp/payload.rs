//! Payload types: the static ones of RFC 3551, and the dynamic ones by their names in SDP.

use core::fmt;

/// Dynamic payload types, whose meaning SDP defines.
pub const DYNAMIC_TYPES: core::ops::RangeInclusive<u8> = 96..=127;

/// Codec of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RtpCodec {
    /// G.711 µ-law.
    Pcmu,
    /// G.711 A-law.
    Pcma,
    /// G.722 at 64 kbit/s; its RTP clock is 8 kHz although its sample rate is 16 kHz (RFC 3551,
    /// 4.5.2).
    G722,
    /// 16-bit PCM, big endian, interleaved.
    L16,
    /// 24-bit packed PCM, big endian, interleaved (RFC 3190).
    L24,
    /// Opus (RFC 7587); its RTP clock is always 48 kHz, and `rtpmap` always has two channels.
    Opus,
    /// Comfort noise (RFC 3389).
    ComfortNoise,
    /// DTMF telephone-events (RFC 4733).
    TelephoneEvent,
    /// Redundant audio data (RFC 2198).
    Red,
}

impl RtpCodec {
    /// Codec by its name in `rtpmap`, ignoring case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|codec| codec.name().eq_ignore_ascii_case(name))
    }

    /// Name in `rtpmap`.
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

/// Meaning of a payload type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "rtpmap has these three and no others")]
pub struct Encoding {
    /// Codec.
    pub codec: RtpCodec,
    /// RTP clock in Hz. It is the sample rate, except for G.722.
    pub clock_rate: u32,
    /// Number of channels in `rtpmap`.
    pub channels: u8,
}

impl Encoding {
    /// Encoding of a static payload type (RFC 3551, 6); `None` for dynamic types and unsupported
    /// codecs.
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

    /// Static payload type of this encoding; `None` when it needs a dynamic one.
    #[must_use]
    pub fn static_type(self) -> Option<u8> {
        [0, 8, 9, 10, 11, 13]
            .into_iter()
            .find(|number| Self::from_static_type(*number) == Some(self))
    }

    /// Sample rate in frames per second: twice the RTP clock for G.722.
    #[must_use]
    pub const fn sample_rate(self) -> u32 {
        match self.codec {
            RtpCodec::G722 => self.clock_rate.saturating_mul(2),
            _ => self.clock_rate,
        }
    }

    /// Duration of a payload in units of the RTP clock; `None` when only a decoder can tell, or
    /// when the payload is not a whole number of frames.
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

    /// Length in bytes of a payload with a duration of `ticks`; `None` when it depends on the
    /// signal.
    #[must_use]
    pub fn payload_bytes(self, ticks: u32) -> Option<usize> {
        match self.frame_bytes() {
            0 => None,
            frame => usize::try_from(ticks).ok()?.checked_mul(frame),
        }
    }

    /// Bytes per tick of the RTP clock; 0 when that is not fixed.
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

/// In the notation of `rtpmap`: `L24/48000/2`, and `PCMU/8000` with one channel.
impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.codec, self.clock_rate)?;
        if self.channels > 1 { write!(f, "/{}", self.channels) } else { Ok(()) }
    }
}

/// Duration of an Opus packet in ticks of 48 kHz (RFC 6716, 3.1 and 3.2); `None` for an invalid
/// packet, or one longer than the allowed 120 ms.
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

/// Duration of the previous packet's audio that an Opus packet repeats in low quality, in ticks of
/// 48 kHz; `None` when it repeats nothing (in-band FEC; RFC 6716, 2.1.7 and 4.2.3).
///
/// The flag is in the first bits of the packet, which are not entropy coded. Packets with an
/// arbitrary number of frames (code 3) are not examined.
///
/// # Real-time
/// Neither allocates nor waits.
#[must_use]
pub fn opus_fec_ticks(packet: &[u8]) -> Option<u32> {
    let (toc, rest) = packet.split_first()?;
    // SILK frames per frame of the packet.
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
    // One VAD bit per SILK frame, then the LBRR flag; in stereo the same again for the side
    // channel.
    let stereo = toc & 4 != 0;
    (bit(frames) || (stereo && bit(2 * frames + 1))).then_some(ticks)
}

/// Opus parameters in `a=fmtp` (RFC 7587, 6.1): what the creator of the description prefers to
/// receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct OpusParameters {
    /// Maximum useful sample rate, 8,000 to 48,000.
    pub max_playback_rate: u32,
    /// Maximum sample rate that will be sent.
    pub sprop_max_capture_rate: u32,
    /// Maximum bit rate in bits per second; `None` leaves it to the encoder.
    pub max_average_bitrate: Option<u32>,
    /// Stereo is preferred.
    pub stereo: bool,
    /// Stereo is likely to be sent.
    pub sprop_stereo: bool,
    /// Constant bit rate is preferred.
    pub cbr: bool,
    /// In-band FEC is useful.
    pub use_inband_fec: bool,
    /// Discontinuous transmission is preferred.
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
    /// Parses the parameters. Unknown and invalid ones are ignored, as RFC 7587 requires.
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

/// Writes the parameters that differ from the defaults.
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
        // 20 ms of G.722: 160 bytes, 320 samples, 160 ticks.
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

    /// By hand, after RFC 6716, 4.2.3: a VAD bit per frame, and then the LBRR flag.
    #[test]
    fn the_fec_flag_of_an_opus_packet_is_read() {
        // SILK of 20 ms, mono and stereo.
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1100_0000, 0]), Some(960));
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1011_1111, 0]), None);
        assert_eq!(opus_fec_ticks(&[1 << 3 | 4, 0b1001_0000, 0]), Some(960));
        assert_eq!(opus_fec_ticks(&[1 << 3, 0b1001_0000, 0]), None);
        // 60 ms have three SILK frames; two frames of 10 ms in a packet, with and without a length.
        assert_eq!(opus_fec_ticks(&[3 << 3, 0b0001_0000, 0]), Some(2_880));
        assert_eq!(opus_fec_ticks(&[1, 0b0100_0000, 0]), Some(480));
        assert_eq!(opus_fec_ticks(&[2, 10, 0b0100_0000, 0]), Some(480));
        assert_eq!(opus_fec_ticks(&[2, 252, 0, 0b0100_0000, 0]), Some(480));
        // Not for CELT, lost packets, or an arbitrary number of frames.
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
