//! Multicast DNS and DNS-SD on the asking side: which servers of a type are there?
//!
//! Enough for a player that looks for its server: one-shot queries (RFC 6762 section 5.1), whose
//! answers come by unicast, and the records PTR, SRV, A and AAAA of the answers (RFC 1035, RFC
//! 6763). The server announces itself with a library, which costs more than the rest of a small
//! player (`docs/decisions/mdns.md`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Port of multicast DNS.
pub const MDNS_PORT: u16 = 5353;

/// Maximum size of a packet in bytes, with its IP header (RFC 6762 section 17).
pub const MAX_PACKET: usize = 9_000;

/// Maximum number of records that a search keeps; more are ignored.
pub const MAX_RECORDS: usize = 128;

/// A search for the services of one type. It has no socket and no clock: send
/// [`query`](Self::query), pass what arrives to [`handle_packet`](Self::handle_packet).
#[derive(Clone, Debug)]
pub struct MdnsSearch {
    service: DnsName,
    records: Vec<Record>,
}

/// A service that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "these are the parts of an announcement")]
pub struct ServiceInstance {
    /// Name for people.
    pub name: String,
    /// Name of the host, without a dot at its end.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Addresses of the host; never empty.
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    name: DnsName,
    data: RecordData,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordData {
    Pointer(DnsName),
    Service { port: u16, host: DnsName },
    Address(IpAddr),
}

impl MdnsSearch {
    /// A search for a type such as `_snapcast._tcp`; `None` if that is none.
    #[must_use]
    pub fn new(service: &str) -> Option<Self> {
        let service = service.trim_end_matches('.');
        let service = service.strip_suffix(".local").unwrap_or(service);
        let labels: Vec<&str> = service.split('.').collect();
        let is_label = |label: &&str| {
            label.len() <= MAX_LABEL && label.strip_prefix('_').is_some_and(|name| !name.is_empty())
        };
        let is_type = labels.len() == 2 && labels.iter().all(is_label);
        is_type.then(|| Self {
            service: DnsName::from_labels(labels.into_iter().chain(["local"])),
            records: Vec::new(),
        })
    }

    /// A packet with a question for everything that is not known yet. Answers to its sender alone
    /// are asked for.
    #[must_use]
    pub fn query(&self) -> Vec<u8> {
        let mut questions = vec![(&self.service, PTR)];
        for instance in self.instances() {
            match self.service_of(instance) {
                None => questions.push((instance, SRV)),
                Some((_, host)) if self.addresses_of(host).next().is_none() => {
                    questions.extend([(host, A), (host, AAAA)]);
                }
                Some(_) => {}
            }
        }
        questions.truncate(MAX_QUESTIONS);
        let mut packet = vec![0; 4];
        packet.extend(u16::try_from(questions.len()).unwrap_or(0).to_be_bytes());
        packet.extend([0; 6]);
        for (name, kind) in questions {
            packet.extend(&name.0);
            packet.extend(kind.to_be_bytes());
            packet.extend((UNICAST | INTERNET).to_be_bytes());
        }
        packet
    }

    /// Keeps the records of an answer that are of use. Whatever is damaged is ignored, with the
    /// rest of its packet.
    pub fn handle_packet(&mut self, packet: &[u8]) {
        let mut reader = PacketReader { packet, at: 0 };
        if packet.len() <= MAX_PACKET && reader.response().is_some() {
            let Some(count) = reader.skip_questions() else { return };
            for _ in 0..count {
                match reader.record() {
                    Some(Some((record, is_valid))) => self.keep(record, is_valid),
                    Some(None) => {}
                    None => return,
                }
            }
        }
    }

    /// The services that are known with an address, in the order in which they were found.
    pub fn found(&self) -> impl Iterator<Item = ServiceInstance> {
        self.instances().filter_map(|instance| {
            let (port, host) = self.service_of(instance)?;
            let addresses: Vec<IpAddr> = self.addresses_of(host).collect();
            (port > 0 && !addresses.is_empty()).then(|| ServiceInstance {
                name: instance.first_label(),
                host: host.text(),
                port,
                addresses,
            })
        })
    }

    /// Adds a record, or removes it: a service that ends says so by a record without validity.
    fn keep(&mut self, record: Record, is_valid: bool) {
        let known = self.records.iter().position(|one| *one == record);
        match known {
            Some(at) if !is_valid => drop(self.records.remove(at)),
            None if is_valid && self.records.len() < MAX_RECORDS => self.records.push(record),
            _ => {}
        }
    }

    fn data_of(&self, name: &DnsName) -> impl Iterator<Item = &RecordData> {
        self.records.iter().filter(move |record| record.name == *name).map(|record| &record.data)
    }

    fn instances(&self) -> impl Iterator<Item = &DnsName> {
        self.data_of(&self.service).filter_map(|data| match data {
            RecordData::Pointer(instance) => Some(instance),
            _ => None,
        })
    }

    /// Port and host of an instance, as of its last answer.
    fn service_of(&self, instance: &DnsName) -> Option<(u16, &DnsName)> {
        let services = self.data_of(instance).filter_map(|data| match data {
            RecordData::Service { port, host } => Some((*port, host)),
            _ => None,
        });
        services.last()
    }

    fn addresses_of(&self, host: &DnsName) -> impl Iterator<Item = IpAddr> {
        self.data_of(host).filter_map(|data| match data {
            RecordData::Address(address) => Some(*address),
            _ => None,
        })
    }
}

/// A name as in a packet, without compression: labels with their lengths, and a zero.
#[derive(Clone, Debug)]
struct DnsName(Vec<u8>);

impl PartialEq for DnsName {
    /// Upper and lower case are the same. Lengths of labels are below all letters.
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for DnsName {}

impl DnsName {
    fn from_labels<'a>(labels: impl Iterator<Item = &'a str>) -> Self {
        let mut bytes = Vec::new();
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap_or(0));
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        Self(bytes)
    }

    fn labels(&self) -> impl Iterator<Item = String> {
        let mut rest = &self.0[..];
        core::iter::from_fn(move || {
            let (&length, after) = rest.split_first().filter(|(length, _)| **length > 0)?;
            let (label, after) = after.split_at_checked(length.into())?;
            rest = after;
            Some(String::from_utf8_lossy(label).into_owned())
        })
    }

    /// The name of an instance, which may contain dots.
    fn first_label(&self) -> String {
        let label = self.labels().next().unwrap_or_default();
        label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn text(&self) -> String {
        self.labels().collect::<Vec<_>>().join(".")
    }
}

/// Reads a packet; each step is `None` behind its end and for what it must not contain.
struct PacketReader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl PacketReader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.packet.get(self.at..)?.first_chunk::<N>().copied();
        self.at += N;
        bytes
    }

    fn number(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    /// Skips id and flags of a response without an error.
    fn response(&mut self) -> Option<()> {
        let [_, _, high, low] = self.bytes()?;
        (high & RESPONSE != 0 && high & OPCODE == 0 && low & ERROR == 0).then_some(())
    }

    /// Skips the questions; the number of records that follow.
    fn skip_questions(&mut self) -> Option<u32> {
        let questions = self.number()?;
        let mut records = 0;
        for _ in 0..3 {
            records += u32::from(self.number()?);
        }
        for _ in 0..questions {
            self.name()?;
            self.bytes::<4>()?;
        }
        Some(records)
    }

    /// The next record and whether it is valid; `Some(None)` for one of another type.
    fn record(&mut self) -> Option<Option<(Record, bool)>> {
        let name = self.name()?;
        let (kind, class) = (self.number()?, self.number()?);
        let time_to_live = u32::from_be_bytes(self.bytes()?);
        let end = usize::from(self.number()?) + self.at;
        if end > self.packet.len() {
            return None;
        }
        let data = match kind {
            _ if class & !UNICAST != INTERNET => None,
            PTR => Some(RecordData::Pointer(self.name()?)),
            SRV => {
                self.bytes::<4>()?;
                Some(RecordData::Service { port: self.number()?, host: self.name()? })
            }
            A => Some(RecordData::Address(Ipv4Addr::from(self.bytes::<4>()?).into())),
            AAAA => Some(RecordData::Address(Ipv6Addr::from(self.bytes::<16>()?).into())),
            _ => None,
        };
        if self.at > end {
            return None;
        }
        self.at = end;
        Some(data.map(|data| (Record { name, data }, time_to_live > 0)))
    }

    /// A name, whose end may stand elsewhere in the packet, but before it.
    fn name(&mut self) -> Option<DnsName> {
        let (mut name, mut at, mut behind) = (Vec::new(), self.at, None);
        loop {
            let length = *self.packet.get(at)?;
            match length & LABEL_KIND {
                0 => {
                    let label = self.packet.get(at..=at + usize::from(length))?;
                    name.extend_from_slice(label);
                    if name.len() > MAX_NAME {
                        return None;
                    }
                    at += label.len();
                    if length == 0 {
                        break;
                    }
                }
                LABEL_KIND => {
                    let low = *self.packet.get(at + 1)?;
                    let target = usize::from(u16::from_be_bytes([length & !LABEL_KIND, low]));
                    behind.get_or_insert(at + 2);
                    // Only backwards, so that there is an end.
                    if target >= at {
                        return None;
                    }
                    at = target;
                }
                _ => return None,
            }
        }
        self.at = behind.unwrap_or(at);
        Some(DnsName(name))
    }
}

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const SRV: u16 = 33;

const INTERNET: u16 = 1;
/// In a question: answer to the sender alone. In a record: forget what was known before.
const UNICAST: u16 = 0x8000;

const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const ERROR: u8 = 0x0f;

const LABEL_KIND: u8 = 0xc0;
const MAX_LABEL: usize = 63;
const MAX_NAME: usize = 255;

/// A query fits one packet of an Ethernet.
const MAX_QUESTIONS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Vec<u8> {
        DnsName::from_labels(text.split('.')).0
    }

    fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len()).unwrap().to_be_bytes();
        let [kind, class] = [kind, INTERNET].map(u16::to_be_bytes);
        [name, &kind, &class, &ttl.to_be_bytes(), &length, data].concat()
    }

    fn response(records: &[Vec<u8>]) -> Vec<u8> {
        let count = u8::try_from(records.len()).unwrap();
        [vec![0, 0, 0x84, 0, 0, 0, 0, count, 0, 0, 0, 0], records.concat()].concat()
    }

    fn service(port: u16, host: &str) -> Vec<u8> {
        [&[0; 4][..], &port.to_be_bytes(), &name(host)].concat()
    }

    #[test]
    fn an_answer_with_compressed_names_is_understood() {
        let mut search = MdnsSearch::new("_snapcast._tcp").unwrap();
        assert_eq!(search.query().len(), 12 + 22 + 4);
        assert_eq!(search.query()[12..34], name("_snapcast._tcp.local"));
        // The type stands at 12, the instance at 12 + 22 + 10, `local` at 12 + 15.
        let records = [
            record(&name("_snapcast._tcp.local"), PTR, 10, b"\x05Attic\xc0\x0c"),
            record(b"\xc0\x2c", SRV, 10, b"\0\0\0\0\x06\xa8\x05attic\xc0\x1b"),
            record(b"\x05ATTIC\xc0\x1b", A, 10, &[10, 0, 0, 7]),
            record(b"\x05attic\xc0\x1b", 16, 10, b"\x00"),
            record(b"\x05attic\xc0\x1b", AAAA, 10, &[0xfd; 16]),
        ];
        search.handle_packet(&response(&records));
        let found: Vec<_> = search.found().collect();
        let addresses = vec![[10, 0, 0, 7].into(), [0xfd_u8; 16].into()];
        let (name, host) = ("Attic".to_owned(), "attic.local".to_owned());
        assert_eq!(found, [ServiceInstance { name, host, port: 1704, addresses }]);
    }

    #[test]
    fn what_is_missing_is_asked_for_and_what_ends_is_forgotten() {
        let mut search = MdnsSearch::new("_snapcast._tcp.local.").unwrap();
        let instance = name("House of_ sound._snapcast._tcp.local");
        let pointer = |ttl| record(&name("_snapcast._tcp.local"), PTR, ttl, &instance);
        search.handle_packet(&response(&[pointer(120)]));
        assert!(search.found().next().is_none());
        assert_eq!(search.query()[5], 2, "PTR and SRV");
        search.handle_packet(&response(&[record(&instance, SRV, 120, &service(7, "a.local"))]));
        assert_eq!(search.query()[5], 3, "PTR, A and AAAA");
        search.handle_packet(&response(&[record(&name("a.local"), A, 120, &[10, 0, 0, 7])]));
        assert_eq!(search.query()[5], 1);
        assert_eq!(search.found().next().unwrap().name, "House of_ sound");
        search.handle_packet(&response(&[pointer(0)]));
        assert!(search.found().next().is_none());
    }

    #[test]
    fn damaged_packets_and_queries_are_ignored() {
        let pointer = record(&name("_snapcast._tcp.local"), PTR, 120, &name("a._x._tcp.local"));
        let whole = response(&[pointer]);
        let records = |packet: &[u8]| {
            let mut search = MdnsSearch::new("_snapcast._tcp").unwrap();
            search.handle_packet(packet);
            search.records.len()
        };
        assert_eq!(records(&whole), 1);
        for length in 0..whole.len() {
            assert_eq!(records(&whole[..length]), 0, "{length} bytes");
        }
        for (at, byte) in [(2, 0), (2, 0xfc), (3, 3), (12, 0xc0), (12, 0x80)] {
            let mut packet = whole.clone();
            packet[at] = byte;
            assert_eq!(records(&packet), 0, "byte {at} is {byte}");
        }
        let looping = response(&[record(b"\xc0\x0c", PTR, 1, b"\xc0\x0c")]);
        assert_eq!(records(&looping), 0);
        let label = [&[63][..], &[b'a'; 63]].concat();
        let long = [label.repeat(4), vec![0]].concat();
        assert_eq!(records(&response(&[record(&long, A, 1, &[0; 4])])), 0, "a long name");
    }

    #[test]
    fn records_are_limited() {
        let mut search = MdnsSearch::new("_snapcast._tcp").unwrap();
        for number in 0..1_000_u16 {
            let [high, low] = number.to_be_bytes();
            let address = record(&name("a.local"), A, 1, &[10, 0, high, low]);
            search.handle_packet(&response(&[address]));
        }
        assert_eq!(search.records.len(), MAX_RECORDS);
    }

    #[test]
    fn only_types_can_be_searched_for() {
        for text in ["", "_tcp", "snapcast._tcp", "_a._b._c", "_._tcp", "_a.tcp", "_a._tcp.x"] {
            assert!(MdnsSearch::new(text).is_none(), "{text}");
        }
    }
}
