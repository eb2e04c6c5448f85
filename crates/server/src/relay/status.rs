//! Counters and status of relays, for users and programs.

use std::net::SocketAddr;

use aulos_core::Span;
use aulos_io::udp;
use aulos_session::relay::RelayReport;
use serde_json::{Value, json};

use aulos_config::RelaySettings;

/// Counters that can be summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Packets of the streams that arrived.
    pub received: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Payload and headers of the packets that were sent, in bytes.
    pub sent_bytes: u64,
    /// Packets that never arrived.
    pub lost: u64,
    /// Packets that arrived after their turn.
    pub late: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Packets that arrived a second time.
    pub duplicates: u64,
    /// Datagrams that do not belong to the stream, by cause.
    pub foreign: ForeignCounts,
    /// Packets that were not forwarded, by cause.
    pub dropped: DroppedCounts,
    /// Lost packets that were recovered from later ones.
    pub recovered: RecoveredCounts,
    /// Packets that had already arrived over the other redundant path.
    pub copies: u64,
    /// Telephone events (DTMF) among those sent.
    pub events: u64,
    /// Comfort noise packets among those sent.
    pub noise: u64,
    /// Restarts of a sender with another SSRC.
    pub restarts: u64,
    /// Times that another sender took over from a silent one.
    pub takeovers: u64,
    /// RTCP BYE packets that were rejected as forged.
    pub forged_byes: u64,
    /// Panics of codec libraries.
    pub codec_panics: u64,
}

/// Causes of datagrams that do not belong to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForeignCounts {
    /// They are not RTP.
    not_rtp: u64,
    /// Another payload type.
    payload_type: u64,
    /// Another address, while the sender is active.
    address: u64,
    /// Another source that did not continue.
    source: u64,
    /// Sequence numbers far from the others.
    number: u64,
}

/// Sources of recovered packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveredCounts {
    /// RED.
    red: u64,
    /// In-band FEC of Opus.
    fec: u64,
}

impl RecoveredCounts {
    /// All recovered packets.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.red + self.fec
    }
}

/// Causes of packets that were not forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedCounts {
    /// Empty, truncated, damaged, or of a length that the other encoding does not have.
    undecodable: u64,
    /// Too late for an encoding that depends on the previous packet.
    too_late: u64,
    /// The reorder buffer was full.
    no_room: u64,
    /// The send buffer was full.
    unsent: u64,
}

impl RelayCounters {
    /// The counters of one stream.
    #[must_use]
    pub fn of(report: &RelayReport) -> Self {
        let tally = &report.tally;
        Self {
            received: tally.source.received,
            sent: tally.sent,
            sent_bytes: tally.sent_bytes,
            lost: tally.source.lost,
            late: tally.jitter.late,
            reordered: tally.source.reordered,
            duplicates: tally.source.duplicates,
            foreign: ForeignCounts {
                not_rtp: tally.refused,
                payload_type: tally.unknown_types,
                address: tally.other_addresses,
                source: tally.other_sources,
                number: tally.source.strays,
            },
            dropped: DroppedCounts {
                undecodable: tally.undecodable,
                too_late: tally.too_late,
                no_room: tally.no_room,
                unsent: tally.unsent,
            },
            recovered: RecoveredCounts { red: tally.recovered_red, fec: tally.recovered_fec },
            copies: tally.duplicates,
            events: tally.dtmf,
            noise: tally.comfort_noise,
            restarts: tally.restarts,
            takeovers: tally.takeovers,
            forged_byes: tally.forged_byes,
            codec_panics: tally.codec_panics,
        }
    }

    /// Adds the counters of another stream.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.lost += other.lost;
        self.late += other.late;
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
        self.foreign.not_rtp += other.foreign.not_rtp;
        self.foreign.payload_type += other.foreign.payload_type;
        self.foreign.address += other.foreign.address;
        self.foreign.source += other.foreign.source;
        self.foreign.number += other.foreign.number;
        self.dropped.undecodable += other.dropped.undecodable;
        self.dropped.too_late += other.dropped.too_late;
        self.dropped.no_room += other.dropped.no_room;
        self.dropped.unsent += other.dropped.unsent;
        self.recovered.red += other.recovered.red;
        self.recovered.fec += other.recovered.fec;
        self.copies += other.copies;
        self.events += other.events;
        self.noise += other.noise;
        self.restarts += other.restarts;
        self.takeovers += other.takeovers;
        self.forged_byes += other.forged_byes;
        self.codec_panics += other.codec_panics;
    }

    fn json(&self) -> Value {
        json!({
            "received": self.received, "sent": self.sent, "sent_bytes": self.sent_bytes,
            "lost": self.lost, "late": self.late, "reordered": self.reordered,
            "duplicates": self.duplicates,
            "foreign": self.foreign.all(), "foreign_by": causes(&self.foreign.causes()),
            "dropped": self.dropped.all(), "dropped_by": causes(&self.dropped.causes()),
            "recovered": self.recovered.all(),
            "recovered_by": { "red": self.recovered.red, "fec": self.recovered.fec },
            "copies": self.copies, "events": self.events, "noise": self.noise,
            "restarts": self.restarts, "takeovers": self.takeovers,
            "forged_byes": self.forged_byes, "codec_panics": self.codec_panics,
        })
    }
}

impl ForeignCounts {
    /// The sum of all causes.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }

    /// Each cause with its name.
    pub const fn causes(&self) -> [(&'static str, u64); 5] {
        [
            ("not_rtp", self.not_rtp),
            ("payload_type", self.payload_type),
            ("address", self.address),
            ("source", self.source),
            ("number", self.number),
        ]
    }
}

impl DroppedCounts {
    /// The sum of all causes.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }

    /// Each cause with its name.
    pub const fn causes(&self) -> [(&'static str, u64); 4] {
        [
            ("undecodable", self.undecodable),
            ("too_late", self.too_late),
            ("no_room", self.no_room),
            ("unsent", self.unsent),
        ]
    }
}

fn causes(causes: &[(&'static str, u64)]) -> Value {
    causes.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect()
}

/// A relay and its counters.
#[derive(Clone, Debug)]
pub struct RelayStatus {
    pub(super) number: u32,
    /// Its configuration.
    pub config: RelaySettings,
    /// Its listen address, if that is one port.
    pub address: Option<SocketAddr>,
    /// The same for its redundant path.
    pub also: Option<SocketAddr>,
    /// Active streams.
    pub streams: usize,
    /// Streams that have ended.
    pub ended: u64,
    /// Sum of all streams.
    pub counts: RelayCounters,
    /// Sum of the streams that have ended.
    pub(super) ended_counts: RelayCounters,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// The relay's name.
    pub relay: String,
    /// The figures of the stream.
    pub report: RelayReport,
}

/// The running relays and their counters.
#[derive(Clone, Debug)]
pub struct RelaySnapshot {
    /// All relays.
    pub relays: Vec<RelayStatus>,
    /// All streams.
    pub rows: Vec<StreamStatus>,
    /// The shared threads.
    pub threads: Vec<udp::UdpStats>,
}

impl RelaySnapshot {
    /// Replaces a stream's report by its final one.
    pub(super) fn replace_final(&mut self, last: &RelayReport) {
        let same = |row: &&mut StreamStatus| row.report.sent_ssrc == last.sent_ssrc;
        match self.rows.iter_mut().find(same) {
            Some(row) => row.report = *last,
            None => self.rows.push(StreamStatus { relay: String::new(), report: *last }),
        }
        let Some(total) = self.relays.iter_mut().find(|total| total.number == last.label.relay)
        else {
            return;
        };
        total.counts = total.ended_counts;
        for row in self.rows.iter().filter(|row| row.report.label.relay == total.number) {
            total.counts.add(&RelayCounters::of(&row.report));
        }
    }

    /// As JSON; with `streams`, each stream.
    pub fn json(&self, streams: bool) -> Value {
        let relays: Vec<Value> = self.relays.iter().map(relay_json).collect();
        let threads: Vec<Value> = self.threads.iter().map(thread_json).collect();
        let mut status = json!({ "relays": relays, "threads": threads });
        if streams {
            status["streams"] = self.rows.iter().map(stream_json).collect();
        }
        status
    }
}

fn relay_json(total: &RelayStatus) -> Value {
    let config = &total.config;
    let mut json = total.counts.json();
    json["name"] = config.name.clone().into();
    json["listen"] = match total.address {
        Some(address) => format!("{}://{address}", config.listen.scheme()).into(),
        None => config.listen.to_string().into(),
    };
    json["also"] = match (total.also, &config.also) {
        (Some(address), _) => format!("udp://{address}").into(),
        (None, also) => also.map(|also| also.to_string()).into(),
    };
    json["dest"] = config.dest.to_string().into();
    json["from"] = encoding_name(&config.from).into();
    json["to"] = encoding_name(&config.to).into();
    json["streams"] = total.streams.into();
    json["ended"] = total.ended.into();
    json
}

/// In the notation of the configuration.
pub fn encoding_name(media: &aulos_session::rtp::RtpPayloadFormat) -> String {
    let of = media.encoding;
    let mut text = of.codec.name().to_ascii_lowercase();
    if matches!(of.codec, aulos_proto::rtp::RtpCodec::L16 | aulos_proto::rtp::RtpCodec::L24) {
        text += &format!("/{}/{}", of.clock_rate, of.channels);
    }
    match media.payload_type {
        Some(number) => format!("{text}:{number}"),
        None => text,
    }
}

fn thread_json(stats: &udp::UdpStats) -> Value {
    json!({
        "streams": stats.streams,
        "sockets": stats.sockets,
        "packets": stats.packets,
        "joined": stats.joined,
        "sent": stats.sent,
        "sent_joined": stats.sent_joined,
        "lost_in_kernel": stats.lost_in_kernel,
        "send_errors": stats.send_errors,
        "send_drops": stats.send_drops,
        "overruns": stats.overruns,
        "wakes": stats.wakes,
        "cpu_ms": stats.cpu.as_millis(),
        "cpu_us_per_packet": stats.cpu_per_packet().map(micros),
    })
}

fn stream_json(row: &StreamStatus) -> Value {
    let report = &row.report;
    let line = &report.tally.jitter;
    let mut json = RelayCounters::of(report).json();
    json["relay"] = row.relay.clone().into();
    json["port"] = report.label.port.into();
    json["ssrc"] = report.ssrc.map(|ssrc| format!("{ssrc:08x}")).into();
    json["sent_ssrc"] = format!("{:08x}", report.sent_ssrc).into();
    json["from"] = report.from.map(|from| from.to_string()).into();
    json["to"] = report.to.to_string().into();
    json["unknown_type"] = report.tally.last_unknown_type.into();
    if report.tally.taken != [0, 0] {
        let (taken, lost) = (report.tally.taken, report.tally.lost);
        let way = |at: usize, from: Option<SocketAddr>| {
            let from = from.map(|from| from.to_string());
            json!({ "from": from, "taken": taken[at], "lost": lost[at] })
        };
        json["ways"] = json!([way(0, report.from), way(1, report.second)]);
    }
    json["jitter_ms"] = millis(line.jitter).into();
    json["drift_ppm"] = (f64::from(line.drift.as_ppb()) * 1e-3).into();
    json["held"] = line.held.into();
    json["round_trip_ms"] = report.round_trip.map(millis).into();
    json["reported"] = report.receiver_report.map_or(Value::Null, |(block, round_trip)| {
        json!({
            "fraction_lost": f64::from(block.fraction_lost) / 256.0,
            "lost": block.cumulative_lost,
            "round_trip_ms": round_trip.map(millis),
        })
    });
    json
}

fn millis(span: Span) -> f64 {
    (span.as_secs_f64() * 1e6).round() * 1e-3
}

fn micros(span: Span) -> f64 {
    (span.as_secs_f64() * 1e8).round() * 1e-2
}
