//! RTP sources.

use std::io::{self, Read as _};
use std::net::{SocketAddr, UdpSocket};

use aulos_config::SourceConfig;
use aulos_config::source::{ReceptionSettings, RtpSource, SdpSource};
use aulos_core::{Backoff, Span};
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::{LinkState, StandbyHandle};
use aulos_io::confined_open::{OUTSIDE_ROOTS, is_outside_root};
use aulos_io::udp::{Interface, InterfaceTable, SocketOptions, bind_socket};
use aulos_io::{SourcePath, SystemClock};
use aulos_proto::rtp::RtpCodec;
use aulos_proto::rtp::payload::OpusParameters;
use aulos_proto::sdp;
use aulos_session::rtp::{
    RtpInput, RtpInputConfig, RtpInputSink, RtpInputStatus, RtpPayloadFormat, RtpSession,
};

use super::handles::{RtpSourceHandle, SharedError};
use super::missing_interface;
use super::service::{OpenRtpSource, PendingRtpSource, RtpService};
use crate::audio::sources::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Opens a source with this input buffer, now or as soon as possible.
pub(in crate::audio) fn open(
    config: &SourceConfig,
    buffer: Span,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let (line, items, state) = RtpInputSink::new();
    let line = match standby {
        Some(standby) => line.with_standby(standby),
        None => line,
    };
    let problem = SharedError::default();
    inner.rtp.waiting.push(PendingRtpSource {
        config: config.clone(),
        buffer,
        intake: Some(line),
        problem: problem.clone(),
        backoff: Backoff::new(inner.seeds.next_u64()),
    });
    inner.rtp.open_sources();
    (Box::new(RingSource::new(items, Pacing::Live)), Box::new(RtpSourceHandle { state, problem }))
}

impl SourceMonitor for RtpSourceHandle {
    fn problem(&mut self) -> Option<String> {
        let arrives = || Some(self.state.read().unexpected_type?.to_string());
        self.problem.text().or_else(arrives)
    }

    fn rtp(&mut self) -> Option<RtpInputStatus> {
        Some(*self.state.read())
    }
}

impl RtpService {
    /// Opens every source whose retry time has come.
    pub(in crate::audio) fn open_sources(&mut self) {
        let now = SystemClock::now();
        let mut waiting = std::mem::take(&mut self.waiting);
        for one in &mut waiting {
            if !one.backoff.is_due(now)
                || one.intake.as_ref().is_none_or(RtpInputSink::is_abandoned)
            {
                continue;
            }
            match self.open_source(one) {
                Ok(()) => one.problem.set(None),
                Err(why) => {
                    one.problem.set(Some(why));
                    one.backoff.failed(now);
                    if let Some(line) = &mut one.intake {
                        line.report_link(LinkState::Broken);
                    }
                }
            }
        }
        waiting.retain(|one| one.intake.as_ref().is_some_and(|line| !line.is_abandoned()));
        self.waiting = waiting;
    }

    fn open_source(&mut self, waiting: &mut PendingRtpSource) -> Result<(), String> {
        let source = match &waiting.config {
            SourceConfig::Rtp(source) => source.clone(),
            SourceConfig::Sdp(SdpSource { path, reception }) => source_from_sdp(path, reception)?,
            _ => return Err("not an RTP source".to_owned()),
        };
        let fail = |error: io::Error| format!("rtp://{}: {error}", source.address);
        let table = InterfaceTable::read().map_err(fail)?;
        let (socket, interface) = open_socket(&source, &table)?;
        let context = self.context().map_err(fail)?;
        let mut config = RtpInputConfig::new(source.media);
        // Waiting for late packets uses up the input buffer, so it may take at most half of it.
        let most = waiting.buffer / 2;
        let usual = config.max_wait.min(most);
        config.max_wait = source.reception.jitter.unwrap_or(usual);
        config.max_concealed = waiting.buffer.max(Span::from_millis(100));
        config.allowed_senders.clone_from(&source.reception.senders);
        config.opus_channels = source.opus_channels;
        config.red_payload_type = source.red;
        config.delay = source.reception.delay;
        let Some(line) = waiting.intake.take() else { return Ok(()) };
        let intake = RtpInput::new(config, line, SystemClock::now()).map_err(|e| e.to_string())?;
        let session = RtpSession::Input(Box::new(intake));
        let stream = context.add(Some(socket), session).map_err(fail)?;
        let problem = waiting.problem.clone();
        let open = OpenRtpSource { stream, source, interface, is_unreachable: false, problem };
        self.receiving.push(open);
        Ok(())
    }
}

/// Opens the socket of a source; also returns the interface on which it has joined its group.
pub(super) fn open_socket(
    source: &RtpSource,
    table: &InterfaceTable,
) -> Result<(UdpSocket, Option<Interface>), String> {
    let RtpSource { address, reception, .. } = source;
    let mut options = SocketOptions { receive_buffer: SOCKET_BUFFER, ..SocketOptions::default() };
    let wanted = reception.interface.as_deref();
    let is_group = address.ip().is_multicast();
    let found = (is_group || wanted.is_some()).then(|| table.find_for(wanted, *address).ok());
    let interface = found.flatten();
    if is_group {
        options.groups.push(address.ip());
    }
    if wanted.is_some() {
        let found = interface.as_ref().ok_or_else(|| missing_interface(wanted, *address))?;
        options.multicast_interface = found.index;
    }
    let socket = bind_socket(*address, &options);
    let socket = socket.map_err(|error| format!("rtp://{address}: {error}"))?;
    Ok((socket, interface.filter(|_| is_group)))
}

/// Reads a description (SDP). Only a regular file is read; a FIFO would block.
fn read_description(path: &SourcePath) -> Result<Vec<u8>, String> {
    let error_text = |error: io::Error| match is_outside_root(&error) {
        true => OUTSIDE_ROOTS.to_owned(),
        false => error.to_string(),
    };
    let file = path.open().map_err(error_text)?;
    if !file.metadata().map_err(error_text)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut text = Vec::new();
    file.take(sdp::MAX_BYTES as u64 + 1).read_to_end(&mut text).map_err(error_text)?;
    if text.len() > sdp::MAX_BYTES { Err(sdp::ErrorKind::TooLarge.to_string()) } else { Ok(text) }
}

/// The first playable format of a description.
fn source_from_sdp(path: &SourcePath, reception: &ReceptionSettings) -> Result<RtpSource, String> {
    let fail = |why: String| format!("{}: {why}", path.display());
    let text = read_description(path).map_err(fail)?;
    let session = sdp::SessionDescription::parse(&text).map_err(|error| fail(error.to_string()))?;
    let formats = session
        .media
        .iter()
        .flat_map(|media| media.formats.iter().map(move |format| (media, format)));
    let playable = |codec| {
        use RtpCodec::{G722, L16, L24, Opus, Pcma, Pcmu};
        matches!(codec, L16 | L24 | Pcmu | Pcma | G722 | Opus)
    };
    let found = formats.clone().find(|(_, format)| playable(format.encoding.codec));
    let (media, format) =
        found.ok_or_else(|| fail("none of its payload types can be played; PCMU, PCMA, G722, L16, L24 and opus are supported".to_owned()))?;
    // A multicast address is the destination; a unicast address is this machine.
    let address = media.connection.address;
    let address = match address.is_multicast() {
        true => address,
        false if address.is_ipv6() => std::net::Ipv6Addr::UNSPECIFIED.into(),
        false => std::net::Ipv4Addr::UNSPECIFIED.into(),
    };
    let mut reception = reception.clone();
    if reception.senders.is_empty() {
        reception.senders.clone_from(&media.sources);
    }
    let opus = OpusParameters::parse(&format.parameters);
    Ok(RtpSource {
        address: SocketAddr::new(address, media.port),
        media: RtpPayloadFormat {
            encoding: format.encoding,
            payload_type: Some(format.payload_type),
        },
        opus_channels: if opus.sprop_stereo || opus.stereo { 2 } else { 1 },
        red: red_payload_type(media, format),
        reception,
    })
}

/// The payload type of RED packets for `format` (RFC 2198, 5): its `fmtp` lists the payload types
/// in it.
fn red_payload_type(media: &sdp::MediaDescription, format: &sdp::PayloadFormat) -> Option<u8> {
    let carries = |parameters: &str| {
        let mut types = parameters.split('/').map(|number| number.trim().parse::<u8>().ok());
        parameters.is_empty() || types.any(|number| number == Some(format.payload_type))
    };
    let red = media.formats.iter().find(|red| {
        red.encoding.codec == RtpCodec::Red
            && red.encoding.clock_rate == format.encoding.clock_rate
            && carries(&red.parameters)
    });
    red.map(|red| red.payload_type)
}

/// Kernel receive buffer, for packets that arrive while the shared thread is busy.
const SOCKET_BUFFER: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn read(text: &str) -> Result<RtpSource, String> {
        let scratch = ScratchDir::new("rtp-sdp").unwrap();
        let path = scratch.join("hall.sdp");
        std::fs::write(&path, text).unwrap();
        source_from_sdp(&path.as_path().into(), &ReceptionSettings::default())
    }

    #[test]
    fn an_sdp_selects_codec_and_address() {
        let source = read(
            "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=Hall\nc=IN IP4 239.1.2.3/32\nt=0 0\n\
             m=audio 5006 RTP/AVP 98\na=rtpmap:98 L24/48000/2\na=ptime:1\n\
             a=source-filter: incl IN IP4 239.1.2.3 192.0.2.1\n",
        )
        .unwrap();
        assert_eq!(source.address, "239.1.2.3:5006".parse().unwrap());
        assert_eq!(source.media.encoding.to_string(), "L24/48000/2");
        assert_eq!(source.media.payload_type, Some(98));
        assert_eq!(source.reception.senders, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
        // A unicast destination is this machine, whatever its address in the description.
        let source = read(
            "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=-\nc=IN IP4 192.0.2.7\nt=0 0\n\
             m=audio 6000 RTP/AVP 96\na=rtpmap:96 opus/48000/2\na=fmtp:96 sprop-stereo=1\n",
        )
        .unwrap();
        assert_eq!((source.address, source.opus_channels), ("0.0.0.0:6000".parse().unwrap(), 2));
        assert_eq!(source.red, None);
        // RFC 2198 as browsers write it, and RED of another format.
        let red = |fmtp: &str| {
            let text = format!(
                "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\n\
                 m=audio 6000 RTP/AVP 63 111\na=rtpmap:63 red/48000/2\n{fmtp}\
                 a=rtpmap:111 opus/48000/2\na=fmtp:111 minptime=10;useinbandfec=1\n"
            );
            let source = read(&text).unwrap();
            assert_eq!(source.media.payload_type, Some(111));
            source.red
        };
        assert_eq!(red("a=fmtp:63 111/111\n"), Some(63));
        assert_eq!((red(""), red("a=fmtp:63 0/0\n")), (Some(63), None));
        let nonsense = read("v=0\nm=audio\n").unwrap_err();
        assert!(nonsense.contains("hall.sdp: line 2: "), "{nonsense}");
        let none =
            source_from_sdp(&"/no/such.sdp".into(), &ReceptionSettings::default()).unwrap_err();
        assert!(none.starts_with("/no/such.sdp: "), "{none}");
    }
}
