//! Clients and groups.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aulos_core::{ChannelMap, Rng, Span};
use aulos_dsp::sound::SoundChain;
use aulos_proto::snap::wire::ClientInfo;

use crate::backend::{ConnectionHealth, Hello, SessionId};

/// Wall time, for display and for Snapcast's `lastSeen`; nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime {
    /// Seconds since 1970.
    pub sec: i64,
    /// Microseconds of that second.
    pub usec: u32,
}

impl WallTime {
    /// This time some span ago.
    pub(super) fn minus(self, ago: Span) -> Self {
        let ago = i128::from(ago.as_micros());
        let total = i128::from(self.sec) * MICROS + i128::from(self.usec) - ago;
        let sec = i64::try_from(total.div_euclid(MICROS)).unwrap_or(self.sec);
        Self { sec, usec: u32::try_from(total.rem_euclid(MICROS)).unwrap_or(0) }
    }
}

/// Microseconds in a second.
const MICROS: i128 = 1_000_000;

/// A known client, connected or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Unique: the client's ID, with `#INSTANCE` where that is not 1.
    pub id: String,
    /// The name that a user gave it; empty if none.
    pub name: String,
    /// 0 to 100.
    pub volume: u8,
    /// The client's own mute.
    pub muted: bool,
    /// Upper limit of its volume; 100 means that the server's limit applies.
    pub cap: u8,
    /// Whether volume and mute were last set at the client and not by a controller. Settings made
    /// by the client itself are no reason to remember it.
    pub volume_by_client: bool,
    /// Whether it is forgotten when it disconnects, because there was no room to remember it.
    pub transient: bool,
    /// Which channels of a station it plays.
    pub map: ChannelMap,
    /// The processing of its sound.
    pub chain: Option<Arc<SoundChain>>,
    /// The latency of its device in milliseconds.
    pub latency_ms: i32,
    /// Distinguishes several clients on one machine.
    pub instance: u32,
    /// Its host name.
    pub host_name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor.
    pub arch: String,
    /// Its MAC address.
    pub mac: String,
    /// Its last IP address.
    pub ip: String,
    /// The name of the program.
    pub software: String,
    /// The program's version.
    pub version: String,
    /// The version of the stream protocol.
    pub protocol: u32,
    /// When it last connected, sent a Time request, or disconnected.
    pub last_seen: WallTime,
    /// The session, while it is connected; the newest one of several.
    pub session: Option<SessionId>,
    /// Sessions that were there before, oldest first: of another machine with the same id, or of a
    /// connection whose end has not been noticed yet.
    pub earlier_sessions: Vec<EarlierSession>,
    /// Whether two of its sessions have been in use at the same time.
    pub is_shared: bool,
    /// The health of its connection; none in the first seconds.
    pub health: Option<ConnectionHealth>,
}

impl Client {
    /// A new client with default settings.
    pub(super) fn new(id: String, volume: u8) -> Self {
        Self { id, volume, cap: 100, instance: 1, ..Self::default() }
    }

    /// Its sessions, the newest one last.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.earlier_sessions.iter().map(|earlier| earlier.session).chain(self.session)
    }

    /// Takes over the volume and mute that the client has set itself, within its cap and that of the
    /// server. Whether it has set more.
    pub(super) fn follow(&mut self, info: ClientInfo, cap: u8) -> bool {
        let wanted = info.volume.map_or(self.volume, |percent| clamp_volume(percent.into()));
        self.volume = wanted.min(self.cap).min(cap);
        self.muted = info.muted.unwrap_or(self.muted);
        self.volume_by_client = true;
        self.volume < wanted
    }

    /// Takes over what the client reports in its Hello.
    pub(super) fn update_from_hello(&mut self, peer: IpAddr, hello: &Hello) {
        self.instance = hello.instance;
        self.host_name.clone_from(&hello.host_name);
        self.os.clone_from(&hello.os);
        self.arch.clone_from(&hello.arch);
        self.mac.clone_from(&hello.mac);
        self.ip = peer.to_canonical().to_string();
        self.software.clone_from(&hello.client_name);
        self.version.clone_from(&hello.version);
        self.protocol = hello.protocol_version;
        self.limit_reported_texts();
    }

    /// Truncates what the client reports of itself to [`MAX_REPORTED_TEXTS`] bytes in all.
    pub(super) fn limit_reported_texts(&mut self) {
        let texts = [
            &mut self.mac,
            &mut self.host_name,
            &mut self.software,
            &mut self.version,
            &mut self.arch,
            &mut self.os,
        ];
        let mut room = MAX_REPORTED_TEXTS;
        for text in texts {
            *text = clip_to_json(text, room);
            room -= text.chars().map(json_length).sum::<usize>();
        }
    }
}

/// A session of a client that has a newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierSession {
    /// The session.
    pub session: SessionId,
    /// The IP address of the client.
    pub ip: String,
    /// Time since its last Time request, at the last report since it has been an earlier one.
    pub since_time_request: Option<Span>,
}

/// Clients that play the same station.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// A UUID.
    pub id: String,
    /// The name that a user gave it; empty if none.
    pub name: String,
    /// The name of the station.
    pub station: String,
    /// Mutes every client.
    pub muted: bool,
}

impl Group {
    /// A group without a name.
    pub(super) fn new(id: String, station: String) -> Self {
        Self { id, station, ..Self::default() }
    }
}

/// Longest text from a client or a controller, in bytes: longer than any name, and a few megabytes
/// for 8,192 clients.
pub const MAX_TEXT: usize = 256;
/// The sum of the texts that a client reports of itself, in bytes of JSON: more than twice what
/// usual clients report. Every status has those of all clients.
pub(super) const MAX_REPORTED_TEXTS: usize = 256;
/// Longest client id in bytes: the reported id, `#`, and an instance of ten digits.
pub const MAX_ID: usize = MAX_TEXT + 11;

/// Longest IP address as text: IPv6 with an IPv4 address in it.
pub(super) const MAX_IP: usize = 45;

/// Truncates a text to [`MAX_TEXT`] bytes at a character boundary, and removes control characters.
pub(crate) fn clip(text: &str) -> String {
    clip_to(text, MAX_TEXT)
}

/// Like [`clip`], with another limit.
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

/// Like [`clip_to`], with a limit for its bytes in JSON.
fn clip_to_json(text: &str, most: usize) -> String {
    let mut room = most;
    text.chars()
        .filter(|c| !c.is_control())
        .take_while(|c| {
            let fits = json_length(*c) <= room;
            room = room.saturating_sub(json_length(*c));
            fits
        })
        .collect()
}

/// Bytes of a character in JSON, without control characters.
const fn json_length(c: char) -> usize {
    if matches!(c, '"' | '\\') { 2 } else { c.len_utf8() }
}

/// The id of a client; `None` when its Hello contains nothing usable.
pub(super) fn client_id(hello: &Hello) -> Option<String> {
    let id = &hello.id;
    let kept = !id.is_empty() && id.len() <= MAX_TEXT && !id.chars().any(char::is_control);
    kept.then(|| hello.client_id())
}

/// The volumes that the configuration allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeLimits {
    /// The volume of new clients.
    pub(super) initial: u8,
    /// The cap for clients without a cap of their own.
    pub(super) cap: u8,
}

impl Default for VolumeLimits {
    fn default() -> Self {
        Self { initial: 100, cap: 100 }
    }
}

impl VolumeLimits {
    /// A client that nobody has changed.
    pub(super) fn new_client(self, id: String) -> Client {
        Client::new(id, self.initial.min(self.cap))
    }
}

/// Generates UUIDs of version 4 (RFC 9562, 5.4) from a seed. They name groups and need not be
/// unpredictable.
#[derive(Clone, Debug)]
pub(super) struct IdGenerator(Rng);

impl IdGenerator {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// A UUID that is not in use.
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

/// A group and its clients, as far as they are readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedGroup {
    /// The group.
    pub group: Group,
    /// Its clients.
    pub clients: Vec<Client>,
}

/// Snapcast's lower bound of a client's latency; the upper bound is the station's buffer.
pub const MIN_LATENCY_MS: i32 = -10_000;

/// A volume in percent.
pub(super) fn clamp_volume(percent: i64) -> u8 {
    u8::try_from(percent.clamp(0, 100)).unwrap_or(100)
}

/// An unknown id or name in a controller's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// No such client.
    Client,
    /// No such group.
    Group,
    /// No such station.
    Station,
    /// No such preset.
    Preset,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "Client not found",
            Self::Group => "Group not found",
            Self::Station => "Stream not found",
            Self::Preset => "Preset not found",
        })
    }
}

impl std::error::Error for NotFound {}
