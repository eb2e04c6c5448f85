//! Encoder of descriptions.

use core::fmt;
use core::net::IpAddr;

use aulos_core::Span;

use super::{Direction, MediaDescription, SessionDescription};

/// The wire format, with lines that end with CR LF. Line breaks inside values are removed, so that
/// a name cannot add a line to the description.
impl fmt::Display for SessionDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = &self.origin;
        let kind = if origin.address.contains(':') { "IP6" } else { "IP4" };
        let (user, id) = (DisplayWord(&origin.user), DisplayWord(&origin.id));
        let address = DisplayWord(&origin.address);
        write!(f, "v=0\r\no={user} {id} {} IN {kind} {address}\r\n", origin.version)?;
        let name = if self.name.is_empty() { "-" } else { &self.name };
        write!(f, "s={}\r\n", DisplayText(name))?;
        if !self.information.is_empty() {
            write!(f, "i={}\r\n", DisplayText(&self.information))?;
        }
        f.write_str("t=0 0\r\n")?;
        for names in &self.duplicates {
            f.write_str("a=group:DUP")?;
            names.iter().try_for_each(|name| write!(f, " {}", DisplayWord(name)))?;
            f.write_str("\r\n")?;
        }
        self.media.iter().try_for_each(|media| media.fmt(f))
    }
}

/// The `m=` section.
impl fmt::Display for MediaDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m=audio {} RTP/AVP", self.port)?;
        self.formats.iter().try_for_each(|format| write!(f, " {}", format.payload_type))?;
        f.write_str("\r\n")?;
        if !self.information.is_empty() {
            write!(f, "i={}\r\n", DisplayText(&self.information))?;
        }
        let address = self.connection.address;
        write!(f, "c=IN {} {}\r\n", family(address), self.connection)?;
        for format in &self.formats {
            let number = format.payload_type;
            write!(f, "a=rtpmap:{number} {}\r\n", format.encoding)?;
            if !format.parameters.is_empty() {
                write!(f, "a=fmtp:{number} {}\r\n", DisplayText(&format.parameters))?;
            }
        }
        let times = [("ptime", self.packet_time), ("maxptime", self.max_packet_time)];
        for (name, time) in times {
            time.map_or(Ok(()), |time| write!(f, "a={name}:{}\r\n", DisplayMillis(time)))?;
        }
        self.frame_count.map_or(Ok(()), |frames| write!(f, "a=framecount:{frames}\r\n"))?;
        let direction = match self.direction {
            Direction::Both => "sendrecv",
            Direction::SendOnly => "sendonly",
            Direction::ReceiveOnly => "recvonly",
            Direction::Inactive => "inactive",
        };
        write!(f, "a={direction}\r\n")?;
        self.transport(f)?;
        let clock = &self.reference_clock;
        clock
            .as_ref()
            .map_or(Ok(()), |clock| write!(f, "a=ts-refclk:{}\r\n", DisplayText(clock)))?;
        self.media_clock.map_or(Ok(()), |clock| write!(f, "a=mediaclk:{clock}\r\n"))
    }
}

impl MediaDescription {
    /// Source filter, RTCP and redundancy attributes.
    fn transport(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.connection.address;
        if !self.sources.is_empty() {
            write!(f, "a=source-filter: incl IN {} {group}", family(group))?;
            self.sources.iter().try_for_each(|source| write!(f, " {source}"))?;
            f.write_str("\r\n")?;
        }
        match self.rtcp {
            Some((port, Some(at))) => write!(f, "a=rtcp:{port} IN {} {at}\r\n", family(at))?,
            Some((port, None)) => write!(f, "a=rtcp:{port}\r\n")?,
            None => {}
        }
        if self.rtcp_mux {
            f.write_str("a=rtcp-mux\r\n")?;
        }
        if !self.id.is_empty() {
            write!(f, "a=mid:{}\r\n", DisplayWord(&self.id))?;
        }
        for ssrcs in &self.duplicates {
            f.write_str("a=ssrc-group:DUP")?;
            ssrcs.iter().try_for_each(|ssrc| write!(f, " {ssrc}"))?;
            f.write_str("\r\n")?;
        }
        Ok(())
    }
}

const fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IP4" } else { "IP6" }
}

/// Writes a value without line breaks.
struct DisplayText<T>(T);

impl<T: fmt::Display> fmt::Display for DisplayText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = LineSanitizer { out: f, spaces: true };
        fmt::Write::write_fmt(&mut line, format_args!("{}", self.0))
    }
}

/// Writes a value without white space; `-` when it is empty.
struct DisplayWord<'a>(&'a str);

impl fmt::Display for DisplayWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = |letter: char| !letter.is_control() && !letter.is_whitespace();
        if !self.0.contains(keep) {
            return f.write_str("-");
        }
        fmt::Write::write_str(&mut LineSanitizer { out: f, spaces: false }, self.0)
    }
}

/// Writer that removes control characters, and white space unless `spaces` is set.
struct LineSanitizer<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    spaces: bool,
}

impl fmt::Write for LineSanitizer<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let keep = |letter: &char| !letter.is_control() && (self.spaces || !letter.is_whitespace());
        text.chars().filter(keep).try_for_each(|letter| self.out.write_char(letter))
    }
}

/// Milliseconds with as many decimals as needed.
struct DisplayMillis(Span);

impl fmt::Display for DisplayMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos().max(0);
        let (whole, part) = (nanos / 1_000_000, nanos % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:06}").trim_end_matches('0'))
    }
}
