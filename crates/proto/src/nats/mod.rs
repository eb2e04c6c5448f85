//! What servers of a cluster send each other through NATS: chunks, stream records and times.
//!
//! A message is one record with a fixed little-endian head, and not text in NATS's own headers: the
//! records are half the size, and one look at the head tells whether a message is one of ours.
//! Every client with a right to publish can send anything, and a message can be repeated or
//! delayed, so each record has a checksum, each chunk the epoch of its stream and a number.
//!
//! | subject | message |
//! |---|---|
//! | `aulos.v1.SITE.audio.STATION.CODEC` | [`ChunkMessage`] |
//! | `aulos.v1.SITE.meta.STATION` | [`StreamRecord`], also in the bucket [`STREAMS_BUCKET`] |
//! | `aulos.v1.SITE.clock.NODE` | [`ClockRequest`], answered by a [`ClockReply`] |
//! | `aulos.v1.SITE.control.status` | [`NodeStatusRequest`], answered by the [`NodeStatus`] of each node |
//! | `aulos.v1.SITE.repair.STATION` | [`RepairRequest`], answered by [`ChunkMessage`]s |
//!
//! The bucket also holds the [`LeaseRecord`] of each stream. Another one, [`SETTINGS_BUCKET`],
//! holds the [`SettingsRecord`]s of clients and groups.

mod chunk;
mod clock;
mod crc;
mod lease;
mod node_status;
mod repair;
mod settings;
mod stream;
mod subject;

use core::fmt;

pub use chunk::{CHUNK_HEADER_LEN, ChunkHeader, ChunkMessage, MAX_CHUNK_PAYLOAD, origin_tag};
pub use clock::{ClockReply, ClockRequest};
pub use lease::{LeaseRecord, MAX_LEASE};
pub use node_status::{MAX_NODE_DOCUMENT, MAX_NODE_STATUS, NodeStatus, NodeStatusRequest};
pub use repair::RepairRequest;
pub use settings::{
    GroupSettings, MAX_SETTINGS, SETTINGS_BUCKET, SettingsKey, SettingsRecord, SharedClientSettings,
};
pub use stream::{MAX_RECORD, StreamRecord};
pub use subject::{
    MAX_SUBJECT_NAME, STREAMS_BUCKET, all_audio_subjects, audio_subject, clock_subject, lease_key,
    meta_subject, record_key, repair_subject, status_subject,
};

use crate::bytes::Reader;

/// Why a message is not a record of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordError {
    /// It ends too early.
    Truncated,
    /// It is larger than such a record can be.
    TooLarge,
    /// It does not begin with the magic number of the expected record.
    Magic,
    /// A version that this program does not know.
    Version(u8),
    /// The checksum is wrong.
    Checksum,
    /// A field has a value that it cannot have.
    Field,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message is truncated"),
            Self::TooLarge => f.write_str("the message is too large"),
            Self::Magic => f.write_str("the message has another magic number"),
            Self::Version(version) => {
                write!(f, "the message has version {version}, and this program knows {VERSION}")
            }
            Self::Checksum => f.write_str("the checksum of the message is wrong"),
            Self::Field => f.write_str("a field of the message is out of range"),
        }
    }
}

impl core::error::Error for RecordError {}

/// The version of all records. Another version is another layout; flags that are not known are
/// ignored.
const VERSION: u8 = 1;

/// Reads magic number, version, flags and the two bytes behind them, which all records have;
/// returns those two as a number.
fn read_head(reader: &mut Reader<'_>, magic: [u8; 4]) -> Result<u16, RecordError> {
    read_flagged_head(reader, magic).map(|(_, value)| value)
}

/// Reads a head as [`read_head`] does; returns the flags as well.
fn read_flagged_head(reader: &mut Reader<'_>, magic: [u8; 4]) -> Result<(u8, u16), RecordError> {
    if reader.array().ok_or(RecordError::Truncated)? != magic {
        return Err(RecordError::Magic);
    }
    let [version, flags] = reader.array().ok_or(RecordError::Truncated)?;
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    Ok((flags, reader.u16().ok_or(RecordError::Truncated)?))
}

/// Appends what [`read_head`] reads; no flag is set.
fn put_head(out: &mut Vec<u8>, magic: [u8; 4], value: u16) {
    put_flagged_head(out, magic, 0, value);
}

/// Appends what [`read_flagged_head`] reads.
fn put_flagged_head(out: &mut Vec<u8>, magic: [u8; 4], flags: u8, value: u16) {
    out.extend_from_slice(&magic);
    out.extend_from_slice(&[VERSION, flags]);
    out.extend_from_slice(&value.to_le_bytes());
}
