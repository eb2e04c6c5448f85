//! Parser of descriptions, line by line.

use core::net::IpAddr;

use aulos_core::Span;

use super::{
    Connection, Direction, Error, ErrorKind, MAX_BYTES, MAX_LINES, MAX_LIST, MAX_MEDIA,
    MAX_PACKET_TIME, MediaClock, MediaDescription, Origin, PayloadFormat, ReferenceClock,
    SessionDescription,
};
use crate::rtp::{Encoding, RtpCodec};

impl SessionDescription {
    /// Parses a description. A line ends with LF, CR LF or the end of the text.
    ///
    /// # Errors
    /// The first invalid line, or the line of the section that lacks something.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let at = |line, fault| Error { line, kind: fault };
        if text.len() > MAX_BYTES {
            return Err(at(1, ErrorKind::TooLarge));
        }
        let mut reader = SdpParser::default();
        let mut number = 0;
        for line in text.split(|byte| *byte == b'\n') {
            number += 1;
            if number > MAX_LINES {
                return Err(at(number, ErrorKind::TooLarge));
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = str::from_utf8(line).map_err(|_| at(number, ErrorKind::NotUtf8))?;
            if !line.trim().is_empty() {
                reader.line(number, line).map_err(|fault| at(number, fault))?;
            }
        }
        reader.finish(number)
    }
}

/// State of the parser.
#[derive(Default)]
struct SdpParser {
    begun: bool,
    origin: Option<Origin>,
    name: String,
    information: String,
    duplicates: Vec<Vec<String>>,
    media: Vec<MediaSection>,
    skipped: usize,
    /// Session-level values, which apply to every media without its own.
    common: SharedAttributes,
    /// The current lines belong to an unsupported media and are ignored.
    skipping: bool,
}

/// Attributes that are allowed at session and at media level.
#[derive(Default)]
struct SharedAttributes {
    connection: Option<Connection>,
    direction: Option<Direction>,
    reference_clock: Option<ReferenceClock>,
    media_clock: Option<MediaClock>,
    filters: Vec<SourceFilter>,
}

/// Group (`None` for any) and the sources that may send to it.
type SourceFilter = (Option<IpAddr>, Vec<IpAddr>);

/// A media that is being parsed.
struct MediaSection {
    line: usize,
    port: u16,
    types: Vec<PayloadType>,
    information: String,
    common: SharedAttributes,
    packet_time: Option<Span>,
    max_packet_time: Option<Span>,
    frame_count: Option<u32>,
    rtcp: Option<(u16, Option<IpAddr>)>,
    rtcp_mux: bool,
    id: String,
    duplicates: Vec<Vec<u32>>,
}

/// A payload type and its attributes so far.
struct PayloadType {
    number: u8,
    encoding: Option<Encoding>,
    parameters: String,
}

impl SdpParser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ErrorKind> {
        let (kind, value) = line.split_once('=').ok_or(ErrorKind::InvalidLine)?;
        if !self.begun {
            self.begun = true;
            return if (kind, value.trim()) == ("v", "0") {
                Ok(())
            } else {
                Err(ErrorKind::Version)
            };
        }
        if kind.len() != 1 {
            return Err(ErrorKind::InvalidLine);
        }
        match kind {
            "m" => return self.begin_media(number, value),
            _ if self.skipping => {}
            "o" => self.origin = Some(origin(value).ok_or(ErrorKind::Origin)?),
            "s" if self.media.is_empty() => self.name = without_controls(value),
            "i" => match self.media.last_mut() {
                Some(section) => section.information = without_controls(value),
                None => self.information = without_controls(value),
            },
            "c" => self.common().connection = Some(connection(value).ok_or(ErrorKind::Connection)?),
            "a" => return self.attribute(value),
            _ => {}
        }
        Ok(())
    }

    fn begin_media(&mut self, line: usize, value: &str) -> Result<(), ErrorKind> {
        let mut words = value.split_ascii_whitespace();
        let mut word = || words.next().ok_or(ErrorKind::Media);
        let (kind, port, protocol) = (word()?, word()?, word()?);
        // `5004/2` means two ports. Redundant paths have sections of their own, so the count is
        // ignored.
        let port = port.split('/').next().unwrap_or(port);
        let port = port.parse().map_err(|_| ErrorKind::Media)?;
        self.skipping = kind != "audio" || port == 0 || !protocol.starts_with("RTP/");
        if self.skipping {
            self.skipped += 1;
            return Ok(());
        }
        if protocol.starts_with("RTP/SAVP") {
            return Err(ErrorKind::Encrypted);
        }
        let mut types = Vec::new();
        for word in words {
            let number =
                word.parse().ok().filter(|number| *number < 128).ok_or(ErrorKind::Media)?;
            if types.len() == MAX_LIST {
                return Err(ErrorKind::TooLarge);
            }
            let encoding = Encoding::from_static_type(number);
            types.push(PayloadType { number, encoding, parameters: String::new() });
        }
        if types.is_empty() {
            return Err(ErrorKind::Media);
        }
        if self.media.len() == MAX_MEDIA {
            return Err(ErrorKind::TooLarge);
        }
        self.media.push(MediaSection::new(line, port, types));
        Ok(())
    }

    fn attribute(&mut self, attribute: &str) -> Result<(), ErrorKind> {
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        let value = value.trim();
        let common = self.common();
        match name.trim_end() {
            "sendrecv" => common.direction = Some(Direction::Both),
            "sendonly" => common.direction = Some(Direction::SendOnly),
            "recvonly" => common.direction = Some(Direction::ReceiveOnly),
            "inactive" => common.direction = Some(Direction::Inactive),
            "ts-refclk" => {
                let clock = ReferenceClock::parse(&without_controls(value))
                    .ok_or(ErrorKind::ReferenceClock)?;
                common.reference_clock.get_or_insert(clock);
            }
            "mediaclk" => {
                common.media_clock = Some(MediaClock::parse(value).ok_or(ErrorKind::MediaClock)?);
            }
            "source-filter" => {
                if common.filters.len() == MAX_LIST {
                    return Err(ErrorKind::TooLarge);
                }
                common.filters.extend(filter(value)?);
            }
            "group" if self.media.is_empty() => self.duplicates.extend(group(value)?),
            name => {
                if let Some(section) = self.media.last_mut() {
                    section.attribute(name, value)?;
                }
            }
        }
        Ok(())
    }

    fn common(&mut self) -> &mut SharedAttributes {
        self.media.last_mut().map_or(&mut self.common, |section| &mut section.common)
    }

    fn finish(self, last: usize) -> Result<SessionDescription, Error> {
        if !self.begun {
            return Err(Error { line: 1, kind: ErrorKind::Version });
        }
        let origin = self.origin.ok_or(Error { line: 1, kind: ErrorKind::Origin })?;
        if self.media.is_empty() {
            return Err(Error { line: last, kind: ErrorKind::NoAudio });
        }
        let media = self.media.into_iter().map(|section| {
            let line = section.line;
            section.finish(&self.common).map_err(|fault| Error { line, kind: fault })
        });
        Ok(SessionDescription {
            origin,
            name: self.name,
            information: self.information,
            duplicates: self.duplicates,
            media: media.collect::<Result<_, _>>()?,
            skipped: self.skipped,
        })
    }
}

impl MediaSection {
    fn new(line: usize, port: u16, types: Vec<PayloadType>) -> Self {
        Self {
            line,
            port,
            types,
            information: String::new(),
            common: SharedAttributes::default(),
            packet_time: None,
            max_packet_time: None,
            frame_count: None,
            rtcp: None,
            rtcp_mux: false,
            id: String::new(),
            duplicates: Vec::new(),
        }
    }

    fn attribute(&mut self, name: &str, value: &str) -> Result<(), ErrorKind> {
        match name {
            "rtpmap" => {
                let (number, encoding) = rtpmap(value).ok_or(ErrorKind::Rtpmap)?;
                self.type_of(number).into_iter().for_each(|found| found.encoding = encoding);
            }
            "fmtp" => {
                let (number, parameters) = value.split_once(' ').unwrap_or((value, ""));
                if let Some(found) = number.parse().ok().and_then(|number| self.type_of(number)) {
                    found.parameters = without_controls(parameters);
                }
            }
            "ptime" => self.packet_time = Some(packet_time(value).ok_or(ErrorKind::PacketTime)?),
            "maxptime" => {
                self.max_packet_time = Some(packet_time(value).ok_or(ErrorKind::PacketTime)?);
            }
            // RAVENNA also uses ranges and lists here; they do not describe the current stream.
            "framecount" => self.frame_count = value.parse().ok(),
            "rtcp" => self.rtcp = Some(rtcp(value).ok_or(ErrorKind::Rtcp)?),
            "rtcp-mux" => self.rtcp_mux = true,
            "mid" => self.id = without_controls(value),
            "ssrc-group" => {
                if self.duplicates.len() == MAX_LIST {
                    return Err(ErrorKind::TooLarge);
                }
                let mut words = value.split_ascii_whitespace();
                if words.next() == Some("DUP") {
                    let ssrcs: Result<Vec<u32>, _> = words.take(MAX_LIST).map(str::parse).collect();
                    self.duplicates.push(ssrcs.map_err(|_| ErrorKind::SsrcGroup)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn type_of(&mut self, number: u8) -> Option<&mut PayloadType> {
        self.types.iter_mut().find(|known| known.number == number)
    }

    fn finish(self, session: &SharedAttributes) -> Result<MediaDescription, ErrorKind> {
        let known = |found: PayloadType| {
            let PayloadType { number: payload_type, encoding, parameters } = found;
            Some(PayloadFormat { payload_type, encoding: encoding?, parameters })
        };
        let formats: Vec<_> = self.types.into_iter().filter_map(known).collect();
        let sound = |format: &PayloadFormat| {
            !matches!(format.encoding.codec, RtpCodec::ComfortNoise | RtpCodec::TelephoneEvent)
        };
        if !formats.iter().any(sound) {
            return Err(ErrorKind::NoEncoding);
        }
        let own = self.common;
        let connection = own.connection.or(session.connection).ok_or(ErrorKind::NoConnection)?;
        let meant = |to: Option<IpAddr>| to.is_none_or(|to| to == connection.address);
        let filters = own.filters.iter().chain(&session.filters);
        let sources = filters.filter(|(to, _)| meant(*to)).flat_map(|(_, sources)| sources);
        Ok(MediaDescription {
            port: self.port,
            connection,
            formats,
            information: self.information,
            direction: own.direction.or(session.direction).unwrap_or_default(),
            packet_time: self.packet_time,
            max_packet_time: self.max_packet_time,
            frame_count: self.frame_count,
            rtcp: self.rtcp,
            rtcp_mux: self.rtcp_mux,
            sources: sources.copied().take(MAX_LIST).collect(),
            reference_clock: own.reference_clock.or_else(|| session.reference_clock.clone()),
            media_clock: own.media_clock.or(session.media_clock),
            id: self.id,
            duplicates: self.duplicates,
        })
    }
}

/// `USER ID VERSION IN IP4 ADDRESS`
fn origin(value: &str) -> Option<Origin> {
    let mut words = value.split_ascii_whitespace();
    let (user, id) = (words.next()?, words.next()?);
    let version = words.next()?.parse().ok()?;
    let (_, _, address) = (words.next()?, words.next()?, words.next()?);
    let id = id.bytes().all(|digit| digit.is_ascii_digit()).then_some(id)?;
    Some(Origin {
        user: without_controls(user),
        id: id.to_owned(),
        version,
        address: without_controls(address),
    })
}

/// `IN IP4 ADDRESS/TTL/COUNT`, `IN IP6 ADDRESS/COUNT`. Of several addresses the first one is used.
fn connection(value: &str) -> Option<Connection> {
    let mut parts = address_of(value)?.split('/');
    let address: IpAddr = parts.next()?.parse().ok()?;
    let ttl = match parts.next() {
        Some(ttl) if address.is_ipv4() => Some(ttl.parse().ok()?),
        _ => None,
    };
    Some(Connection { address, ttl })
}

/// `IN IP4 ADDRESS`
fn address_of(value: &str) -> Option<&str> {
    let mut words = value.split_ascii_whitespace();
    let known = words.next()? == "IN" && matches!(words.next()?, "IP4" | "IP6");
    words.next().filter(|_| known)
}

/// `96 L24/48000/2`; the encoding is `None` when the codec is not supported.
fn rtpmap(value: &str) -> Option<(u8, Option<Encoding>)> {
    let (number, encoding) = value.split_once(' ')?;
    let mut parts = encoding.trim().split('/');
    let (name, clock_rate) = (parts.next()?, parts.next()?.parse().ok().filter(|rate| *rate > 0)?);
    let channels = match parts.next() {
        Some(channels) => channels.parse().ok().filter(|channels| *channels > 0),
        None => Some(1),
    };
    let encoding = |codec| Some(Encoding { codec, clock_rate, channels: channels? });
    Some((number.parse().ok()?, RtpCodec::from_name(name).and_then(encoding)))
}

/// Milliseconds, with an optional fraction: `0.125`.
fn packet_time(value: &str) -> Option<Span> {
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let millis: i64 = whole.parse().ok()?;
    let nanos: i64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
    let span = Span::from_millis(millis) + Span::from_nanos(nanos);
    (Span::ZERO < span && span <= MAX_PACKET_TIME).then_some(span)
}

/// `PORT`, `PORT IN IP4 ADDRESS`
fn rtcp(value: &str) -> Option<(u16, Option<IpAddr>)> {
    let (port, address) = value.split_once(' ').unwrap_or((value, ""));
    let address = match address.trim() {
        "" => None,
        address => Some(address_of(address)?.parse().ok()?),
    };
    Some((port.parse().ok()?, address))
}

/// `incl IN IP4 GROUP SOURCE...`, with `*` for any group. Exclusion filters are ignored.
fn filter(value: &str) -> Result<Option<SourceFilter>, ErrorKind> {
    let mut words = value.split_ascii_whitespace();
    if words.next() != Some("incl") {
        return Ok(None);
    }
    let mut words = words.skip(2);
    let group = match words.next() {
        Some("*") => None,
        Some(group) => Some(group.parse().map_err(|_| ErrorKind::SourceFilter)?),
        None => return Err(ErrorKind::SourceFilter),
    };
    let sources: Result<Vec<_>, _> = words.take(MAX_LIST).map(str::parse).collect();
    Ok(Some((group, sources.map_err(|_| ErrorKind::SourceFilter)?)))
}

/// `DUP NAME NAME`; other groups are ignored.
fn group(value: &str) -> Result<Option<Vec<String>>, ErrorKind> {
    let mut words = value.split_ascii_whitespace();
    if words.next() != Some("DUP") {
        return Ok(None);
    }
    let names: Vec<_> = words.map(without_controls).collect();
    if names.len() > MAX_LIST { Err(ErrorKind::TooLarge) } else { Ok(Some(names)) }
}

/// Removes control characters and surrounding white space.
fn without_controls(text: &str) -> String {
    text.trim().chars().filter(|letter| !letter.is_control()).collect()
}
