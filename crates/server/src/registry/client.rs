//! Clients and groups as values.

use std::net::IpAddr;

use aulos_core::{ChannelMap, Rng};

use crate::backend::{ClientHealth, Hello, SessionId};

/// Wall time, for people and for Snapcast's `lastSeen`; nothing is computed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime {
    /// Seconds since 1970.
    pub sec: i64,
    /// Microseconds of that second.
    pub usec: u32,
}

/// A known machine, connected or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Unique: the client's ID, with `#INSTANCE` where that is not 1.
    pub id: String,
    /// What a person called it; empty is not named.
    pub name: String,
    /// 0 to 100.
    pub volume: u8,
    /// The client's own mute.
    pub muted: bool,
    /// It does not get louder than this; 100 leaves that to the house.
    pub cap: u8,
    /// Volume and mute were last set at the client itself, and not by a controller. What a listener
    /// says of itself is no reason to remember it.
    pub volume_by_client: bool,
    /// It plays and is controlled like any other, and is forgotten when it leaves: there was no room
    /// to remember one more.
    pub transient: bool,
    /// What its speakers play of a station.
    pub map: ChannelMap,
    /// Milliseconds by which the device is late.
    pub latency_ms: i32,
    /// Which of several clients of one machine.
    pub instance: u32,
    /// What the machine calls itself.
    pub host_name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor.
    pub arch: String,
    /// Its hardware address.
    pub mac: String,
    /// Where it last came from.
    pub ip: String,
    /// The program.
    pub software: String,
    /// The program's version.
    pub version: String,
    /// Of the stream protocol.
    pub protocol: u32,
    /// When it was last heard of.
    pub last_seen: WallTime,
    /// The session, while it is connected.
    pub session: Option<SessionId>,
    /// How that does; none in its first seconds.
    pub health: Option<ClientHealth>,
}

impl Client {
    /// A client that has never been seen.
    pub(super) fn new(id: String, volume: u8) -> Self {
        Self { id, volume, cap: 100, instance: 1, ..Self::default() }
    }

    /// Takes over what a client says of itself.
    pub(super) fn update_from_hello(&mut self, peer: IpAddr, hello: &Hello) {
        self.instance = hello.instance;
        self.host_name = clip(&hello.host_name);
        self.os = clip(&hello.os);
        self.arch = clip(&hello.arch);
        self.mac = clip(&hello.mac);
        self.ip = peer.to_canonical().to_string();
        self.software = clip(&hello.client_name);
        self.version = clip(&hello.version);
        self.protocol = hello.protocol;
    }
}

/// Clients that play the same station.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// A UUID.
    pub id: String,
    /// What a person called it; empty is not named.
    pub name: String,
    /// The name of the station.
    pub station: String,
    /// Mutes every client.
    pub muted: bool,
}

impl Group {
    /// A group that nobody has named.
    pub(super) fn new(id: String, station: String) -> Self {
        Self { id, station, ..Self::default() }
    }
}

/// Bytes of any text that a client or a controller gives; more than any name, and 8,192 clients
/// of it are a few megabytes.
pub const MAX_TEXT: usize = 256;
/// Bytes of a client's id: what it says, `#`, and an instance of ten digits.
pub const MAX_ID: usize = MAX_TEXT + 11;

/// The first [`MAX_TEXT`] bytes of a text, to a whole character, without control characters.
pub(super) fn clip(text: &str) -> String {
    clip_to(text, MAX_TEXT)
}

/// As [`clip`], with another bound.
pub(super) fn clip_to(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > most {
            break;
        }
        out.push(c);
    }
    out
}

/// What a client is known by; `None` when it says nothing that could be kept.
pub(super) fn client_id(hello: &Hello) -> Option<String> {
    let id = if hello.id.is_empty() { &hello.mac } else { &hello.id };
    let kept = !id.is_empty() && id.len() <= MAX_TEXT && !id.chars().any(char::is_control);
    kept.then(|| match hello.instance {
        1 => id.clone(),
        instance => format!("{id}#{instance}"),
    })
}

/// Makes UUIDs of version 4 (RFC 9562, 5.4) from a seed. They name groups; nobody gains by guessing
/// one.
#[derive(Clone, Debug)]
pub(super) struct IdGenerator(Rng);

impl IdGenerator {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// An id that is not taken.
    pub(super) fn next_unused(&mut self, is_taken: impl Fn(&str) -> bool) -> String {
        loop {
            let id = self.next();
            if !is_taken(&id) {
                return id;
            }
        }
    }

    fn next(&mut self) -> String {
        let (high, low) = (self.0.next_u64(), self.0.next_u64());
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff | 0x4000);
        let (d, e) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}
