//! The status of a node: a request to all nodes of a site, and their answers.
//!
//! The document inside an answer is JSON, which this layer does not look into: names of nodes and
//! checksums are known before anything of it is parsed, so what is wrong with it is the fault of a
//! node that has a name.

use super::crc::crc32;
use super::subject::MAX_SUBJECT_NAME;
use super::{RecordError, put_head, read_head};
use crate::bytes::{Reader, put_blob};

/// Maximum length of the document of a node, in bytes: a fourth of what a NATS server accepts by
/// default.
pub const MAX_NODE_DOCUMENT: usize = 256 << 10;

/// Maximum length of an answer in bytes.
pub const MAX_NODE_STATUS: usize = HEAD_LEN + 4 + 8 + 4 + MAX_SUBJECT_NAME + MAX_NODE_DOCUMENT;

/// A request for the status of every node of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the asking node fills in")]
pub struct NodeStatusRequest {
    /// The number of the round, which the answers repeat.
    pub round: u32,
}

impl NodeStatusRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        read_head(&mut reader, REQUEST_MAGIC)?;
        let round = reader.u32().ok_or(RecordError::Truncated)?;
        if reader.rest().is_empty() { Ok(Self { round }) } else { Err(RecordError::Field) }
    }

    /// Appends the encoded request.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_head(out, REQUEST_MAGIC, 0);
        out.extend_from_slice(&self.round.to_le_bytes());
    }
}

/// The answer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the answering node fills in")]
pub struct NodeStatus<'a> {
    /// The number of the request.
    pub round: u32,
    /// A random number of the node's process: two nodes may have the same name by mistake.
    pub process: u64,
    /// The name of the node; not empty.
    pub node: &'a str,
    /// JSON, unchecked.
    pub document: &'a [u8],
}

impl<'a> NodeStatus<'a> {
    /// Parses an answer.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_NODE_STATUS {
            return Err(RecordError::TooLarge);
        }
        let mut reader = Reader::new(bytes);
        read_head(&mut reader, STATUS_MAGIC)?;
        let checksum = reader.u32().ok_or(RecordError::Truncated)?;
        if crc32(&[reader.rest()]) != checksum {
            return Err(RecordError::Checksum);
        }
        let round = reader.u32().ok_or(RecordError::Truncated)?;
        let process = u64::from_le_bytes(reader.array().ok_or(RecordError::Truncated)?);
        let node = reader.blob().ok_or(RecordError::Truncated)?;
        let document = reader.rest();
        match core::str::from_utf8(node) {
            Ok(node)
                if (1..=MAX_SUBJECT_NAME).contains(&node.len())
                    && document.len() <= MAX_NODE_DOCUMENT =>
            {
                Ok(Self { round, process, node, document })
            }
            Ok(_) | Err(_) => Err(RecordError::Field),
        }
    }

    /// Appends the encoded answer.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_head(out, STATUS_MAGIC, 0);
        out.extend_from_slice(&[0; 4]);
        let body = out.len();
        out.extend_from_slice(&self.round.to_le_bytes());
        out.extend_from_slice(&self.process.to_le_bytes());
        put_blob(out, self.node.as_bytes());
        out.extend_from_slice(self.document);
        let checksum = crc32(&[out.get(body..).unwrap_or_default()]);
        if let Some(place) = out.get_mut(start + HEAD_LEN..body) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Magic number, version, flags and two bytes that are not used.
const HEAD_LEN: usize = 8;

const REQUEST_MAGIC: [u8; 4] = *b"AULq";
const STATUS_MAGIC: [u8; 4] = *b"AULn";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(status: &NodeStatus<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        status.write(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_cut_or_changed_is_refused() {
        let bytes = encode(&NodeStatus { round: 7, process: 8, node: "barn", document: b"{}" });
        for length in 0..bytes.len() {
            assert!(NodeStatus::parse(&bytes[..length]).is_err(), "{length}");
        }
        // The two bytes behind the flags mean nothing.
        for index in (0..bytes.len()).filter(|index| ![5, 6, 7].contains(index)) {
            let mut changed = bytes.clone();
            changed[index] ^= 4;
            assert!(NodeStatus::parse(&changed).is_err(), "{index}");
        }
        let large = vec![0; MAX_NODE_STATUS + 1];
        assert_eq!(NodeStatus::parse(&large), Err(RecordError::TooLarge));
        let nameless = encode(&NodeStatus { round: 7, process: 8, node: "", document: b"{}" });
        assert_eq!(NodeStatus::parse(&nameless), Err(RecordError::Field));
    }

    #[test]
    fn a_request_has_a_number() {
        let mut bytes = Vec::new();
        NodeStatusRequest { round: 9 }.write(&mut bytes);
        assert_eq!(NodeStatusRequest::parse(&bytes), Ok(NodeStatusRequest { round: 9 }));
        assert!(NodeStatusRequest::parse(&bytes[..bytes.len() - 1]).is_err());
        bytes.push(0);
        assert_eq!(NodeStatusRequest::parse(&bytes), Err(RecordError::Field));
    }

    proptest! {
        #[test]
        fn an_answer_is_read_as_it_was_written(
            round: u32,
            process: u64,
            node in ".{1,40}",
            document: Vec<u8>,
        ) {
            let status = NodeStatus { round, process, node: &node, document: &document };
            let bytes = encode(&status);
            prop_assert_eq!(NodeStatus::parse(&bytes), Ok(status));
        }
    }
}
