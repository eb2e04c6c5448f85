//! Reading a description, line by line.

use core::net::IpAddr;

use aulos_core::Span;

use super::{
    Connection, Direction, Error, Fault, Format, MAX_BYTES, MAX_LINES, MAX_LIST, MAX_MEDIA,
    MAX_PACKET_TIME, Media, MediaClock, Origin, ReferenceClock, Session,
};
use crate::rtp::{Codec, Encoding};

impl Session {
    /// Reads a description. Lines end with LF, CR LF, or the text.
    ///
    /// # Errors
    /// The first line that is wrong, or the one that lacks something.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let at = |line, fault| Error { line, fault };
        if text.len() > MAX_BYTES {
            return Err(at(1, Fault::TooMuch));
        }
        let mut reader = Reader::default();
        let mut number = 0;
        for line in text.split(|byte| *byte == b'\n') {
            number += 1;
            if number > MAX_LINES {
                return Err(at(number, Fault::TooMuch));
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = str::from_utf8(line).map_err(|_| at(number, Fault::NotText))?;
            if !line.trim().is_empty() {
                reader.line(number, line).map_err(|fault| at(number, fault))?;
            }
        }
        reader.finish(number)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    begun: bool,
    origin: Option<Origin>,
    name: String,
    information: String,
    duplicates: Vec<Vec<String>>,
    media: Vec<Section>,
    skipped: usize,
    /// What holds for all media that do not say otherwise.
    common: Common,
    /// The lines belong to a media that is not for us.
    skipping: bool,
}

/// What the session can say as well as a media.
#[derive(Default)]
struct Common {
    connection: Option<Connection>,
    direction: Option<Direction>,
    reference_clock: Option<ReferenceClock>,
    media_clock: Option<MediaClock>,
    filters: Vec<Filter>,
}

/// A group, or any, and who may send to it.
type Filter = (Option<IpAddr>, Vec<IpAddr>);

/// A media that is being read.
struct Section {
    line: usize,
    port: u16,
    types: Vec<Type>,
    information: String,
    common: Common,
    packet_time: Option<Span>,
    max_packet_time: Option<Span>,
    frame_count: Option<u32>,
    rtcp: Option<(u16, Option<IpAddr>)>,
    rtcp_mux: bool,
    id: String,
    duplicates: Vec<Vec<u32>>,
}

/// A payload type and what is known of it.
struct Type {
    number: u8,
    encoding: Option<Encoding>,
    parameters: String,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), Fault> {
        let (kind, value) = line.split_once('=').ok_or(Fault::NotALine)?;
        if !self.begun {
            self.begun = true;
            return if (kind, value.trim()) == ("v", "0") { Ok(()) } else { Err(Fault::Version) };
        }
        if kind.len() != 1 {
            return Err(Fault::NotALine);
        }
        match kind {
            "m" => return self.begin_media(number, value),
            _ if self.skipping => {}
            "o" => self.origin = Some(origin(value).ok_or(Fault::Origin)?),
            "s" if self.media.is_empty() => self.name = shown(value),
            "i" => match self.media.last_mut() {
                Some(section) => section.information = shown(value),
                None => self.information = shown(value),
            },
            "c" => self.common().connection = Some(connection(value).ok_or(Fault::Connection)?),
            "a" => return self.attribute(value),
            _ => {}
        }
        Ok(())
    }

    fn begin_media(&mut self, line: usize, value: &str) -> Result<(), Fault> {
        let mut words = value.split_ascii_whitespace();
        let mut word = || words.next().ok_or(Fault::Media);
        let (kind, port, protocol) = (word()?, word()?, word()?);
        // `5004/2` is two ports; both legs of a stream have sections of their own.
        let port = port.split('/').next().unwrap_or(port);
        let port = port.parse().map_err(|_| Fault::Media)?;
        self.skipping = kind != "audio" || port == 0 || !protocol.starts_with("RTP/");
        if self.skipping {
            self.skipped += 1;
            return Ok(());
        }
        if protocol.starts_with("RTP/SAVP") {
            return Err(Fault::Encrypted);
        }
        let mut types = Vec::new();
        for word in words {
            let number = word.parse().ok().filter(|number| *number < 128).ok_or(Fault::Media)?;
            if types.len() == MAX_LIST {
                return Err(Fault::TooMuch);
            }
            let encoding = Encoding::of_static(number);
            types.push(Type { number, encoding, parameters: String::new() });
        }
        if types.is_empty() {
            return Err(Fault::Media);
        }
        if self.media.len() == MAX_MEDIA {
            return Err(Fault::TooMuch);
        }
        self.media.push(Section::new(line, port, types));
        Ok(())
    }

    fn attribute(&mut self, attribute: &str) -> Result<(), Fault> {
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        let value = value.trim();
        let common = self.common();
        match name.trim_end() {
            "sendrecv" => common.direction = Some(Direction::Both),
            "sendonly" => common.direction = Some(Direction::SendOnly),
            "recvonly" => common.direction = Some(Direction::ReceiveOnly),
            "inactive" => common.direction = Some(Direction::Inactive),
            "ts-refclk" => {
                let clock = ReferenceClock::parse(&shown(value)).ok_or(Fault::ReferenceClock)?;
                common.reference_clock.get_or_insert(clock);
            }
            "mediaclk" => {
                common.media_clock = Some(MediaClock::parse(value).ok_or(Fault::MediaClock)?);
            }
            "source-filter" => {
                if common.filters.len() == MAX_LIST {
                    return Err(Fault::TooMuch);
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

    fn common(&mut self) -> &mut Common {
        self.media.last_mut().map_or(&mut self.common, |section| &mut section.common)
    }

    fn finish(self, last: usize) -> Result<Session, Error> {
        if !self.begun {
            return Err(Error { line: 1, fault: Fault::Version });
        }
        let origin = self.origin.ok_or(Error { line: 1, fault: Fault::Origin })?;
        if self.media.is_empty() {
            return Err(Error { line: last, fault: Fault::NoSound });
        }
        let media = self.media.into_iter().map(|section| {
            let line = section.line;
            section.finish(&self.common).map_err(|fault| Error { line, fault })
        });
        Ok(Session {
            origin,
            name: self.name,
            information: self.information,
            duplicates: self.duplicates,
            media: media.collect::<Result<_, _>>()?,
            skipped: self.skipped,
        })
    }
}

impl Section {
    fn new(line: usize, port: u16, types: Vec<Type>) -> Self {
        Self {
            line,
            port,
            types,
            information: String::new(),
            common: Common::default(),
            packet_time: None,
            max_packet_time: None,
            frame_count: None,
            rtcp: None,
            rtcp_mux: false,
            id: String::new(),
            duplicates: Vec::new(),
        }
    }

    fn attribute(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        match name {
            "rtpmap" => {
                let (number, encoding) = rtpmap(value).ok_or(Fault::Rtpmap)?;
                self.type_of(number).into_iter().for_each(|found| found.encoding = encoding);
            }
            "fmtp" => {
                let (number, parameters) = value.split_once(' ').unwrap_or((value, ""));
                if let Some(found) = number.parse().ok().and_then(|number| self.type_of(number)) {
                    found.parameters = shown(parameters);
                }
            }
            "ptime" => self.packet_time = Some(packet_time(value).ok_or(Fault::PacketTime)?),
            "maxptime" => {
                self.max_packet_time = Some(packet_time(value).ok_or(Fault::PacketTime)?);
            }
            // RAVENNA also has ranges and lists here; they say nothing about this stream.
            "framecount" => self.frame_count = value.parse().ok(),
            "rtcp" => self.rtcp = Some(rtcp(value).ok_or(Fault::Rtcp)?),
            "rtcp-mux" => self.rtcp_mux = true,
            "mid" => self.id = shown(value),
            "ssrc-group" => {
                if self.duplicates.len() == MAX_LIST {
                    return Err(Fault::TooMuch);
                }
                let mut words = value.split_ascii_whitespace();
                if words.next() == Some("DUP") {
                    let ssrcs: Result<Vec<u32>, _> = words.take(MAX_LIST).map(str::parse).collect();
                    self.duplicates.push(ssrcs.map_err(|_| Fault::SsrcGroup)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn type_of(&mut self, number: u8) -> Option<&mut Type> {
        self.types.iter_mut().find(|known| known.number == number)
    }

    fn finish(self, session: &Common) -> Result<Media, Fault> {
        let known = |found: Type| {
            let Type { number: payload_type, encoding, parameters } = found;
            Some(Format { payload_type, encoding: encoding?, parameters })
        };
        let formats: Vec<_> = self.types.into_iter().filter_map(known).collect();
        let sound = |format: &Format| {
            !matches!(format.encoding.codec, Codec::ComfortNoise | Codec::TelephoneEvent)
        };
        if !formats.iter().any(sound) {
            return Err(Fault::NoEncoding);
        }
        let own = self.common;
        let connection = own.connection.or(session.connection).ok_or(Fault::NoConnection)?;
        let meant = |to: Option<IpAddr>| to.is_none_or(|to| to == connection.address);
        let filters = own.filters.iter().chain(&session.filters);
        let sources = filters.filter(|(to, _)| meant(*to)).flat_map(|(_, sources)| sources);
        Ok(Media {
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
    Some(Origin { user: shown(user), id: id.to_owned(), version, address: shown(address) })
}

/// `IN IP4 ADDRESS/TTL/COUNT`, `IN IP6 ADDRESS/COUNT`. Of several addresses the first one is taken.
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

/// `96 L24/48000/2`; the encoding is none when we have no codec for it.
fn rtpmap(value: &str) -> Option<(u8, Option<Encoding>)> {
    let (number, encoding) = value.split_once(' ')?;
    let mut parts = encoding.trim().split('/');
    let (name, clock_rate) = (parts.next()?, parts.next()?.parse().ok().filter(|rate| *rate > 0)?);
    let channels = match parts.next() {
        Some(channels) => channels.parse().ok().filter(|channels| *channels > 0),
        None => Some(1),
    };
    let encoding = |codec| Some(Encoding { codec, clock_rate, channels: channels? });
    Some((number.parse().ok()?, Codec::from_name(name).and_then(encoding)))
}

/// Milliseconds, with a point where they are not whole: `0.125`.
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

/// `incl IN IP4 GROUP SOURCE...`, with `*` for any group. Those that leave sources out are passed over.
fn filter(value: &str) -> Result<Option<Filter>, Fault> {
    let mut words = value.split_ascii_whitespace();
    if words.next() != Some("incl") {
        return Ok(None);
    }
    let mut words = words.skip(2);
    let group = match words.next() {
        Some("*") => None,
        Some(group) => Some(group.parse().map_err(|_| Fault::SourceFilter)?),
        None => return Err(Fault::SourceFilter),
    };
    let sources: Result<Vec<_>, _> = words.take(MAX_LIST).map(str::parse).collect();
    Ok(Some((group, sources.map_err(|_| Fault::SourceFilter)?)))
}

/// `DUP NAME NAME`; other groups are passed over.
fn group(value: &str) -> Result<Option<Vec<String>>, Fault> {
    let mut words = value.split_ascii_whitespace();
    if words.next() != Some("DUP") {
        return Ok(None);
    }
    let names: Vec<_> = words.map(shown).collect();
    if names.len() > MAX_LIST { Err(Fault::TooMuch) } else { Ok(Some(names)) }
}

/// Text that a screen can show.
fn shown(text: &str) -> String {
    text.trim().chars().filter(|letter| !letter.is_control()).collect()
}
