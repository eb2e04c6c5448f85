//! One record stream of a sound server, without a socket and a clock.
//!
//! The server sends samples as its device delivers them; nothing is asked for. So a server that has
//! stopped looks like a source that delivers nothing, which is why the client asks for the stream's
//! latency now and then: an answer must come.

use std::io;

use aulos_core::{Frames, Instant, SampleSpec, Span};

use super::client::{
    ANSWER_TIMEOUT, AUTH, Application, CREATE, LAST, NAME, StreamError, begin_session,
    check_version,
};
use super::list::source_names;
use super::wire::{Malformed, MessageReader, MessageWriter, NONE, command, event, take_packets};
use crate::capture::device::CaptureError;

/// What to ask a server for.
#[derive(Clone, Debug)]
pub(super) struct RecordConfig {
    /// Its format must be one of the protocol.
    pub(super) spec: SampleSpec,
    /// `None` for the server's default source.
    pub(super) source: Option<String>,
    /// Frames that the server sends at once.
    pub(super) fragment: Frames,
    /// The secret that the server and its users share; zeros if there is none.
    pub(super) cookie: Vec<u8>,
}

/// The client of a sound server, with one record stream.
#[derive(Debug)]
pub(super) struct RecordClient {
    config: RecordConfig,
    state: StreamState,
    /// The beginning of a packet.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Samples that have not been read yet.
    samples: Vec<u8>,
    /// The source of the stream, as the server calls it.
    source: Option<String>,
    /// An answer must come until then.
    deadline: Option<Instant>,
    next_question: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    /// The list of sources comes first.
    Listing,
    /// The stream has been asked for.
    Creating,
    /// The stream exists.
    Recording { channel: u32, is_suspended: bool },
}

impl RecordClient {
    /// Begins a session, and asks for a stream. If a source is named, the list of sources comes
    /// first: PipeWire gives another source instead of one that does not exist.
    pub(super) fn new(config: RecordConfig, now: Instant) -> Self {
        let mut output = Vec::new();
        begin_session(SERVER, &config.cookie, &mut output);
        let mut this = Self {
            config,
            state: StreamState::Listing,
            input: Vec::new(),
            output,
            samples: Vec::new(),
            source: None,
            deadline: Some(now + ANSWER_TIMEOUT),
            next_question: now,
        };
        // `@DEFAULT_MONITOR@` and the like are in no list.
        if this.config.source.as_ref().is_none_or(|name| name.starts_with('@')) {
            this.create();
        }
        this
    }

    fn create(&mut self) {
        let RecordConfig { spec, source, fragment, .. } = &self.config;
        let fragment = u32::try_from(spec.bytes(*fragment)).unwrap_or(NONE);
        MessageWriter::new(&mut self.output, command::CREATE_RECORD_STREAM, CREATE)
            .spec(*spec)
            .u32(NONE)
            .text(source.as_deref())
            // The server's own maximum of the buffer; not corked; what is sent at once.
            .u32(NONE)
            .boolean(false)
            .u32(fragment)
            // No change of the mapping, rate, format. A source that was asked for by its name is
            // not replaced by another one, which might be a microphone.
            .booleans(&[false; 5])
            .booleans(&[source.is_some(), false])
            // Samples and not their peaks; the device's own buffer follows the fragments.
            .booleans(&[false, true])
            .properties(&[("media.name", "Station"), ("media.role", "production")])
            // Not the input of one playing program alone; nothing special.
            .u32(NONE)
            .booleans(&[false; 3])
            .end();
        self.state = StreamState::Creating;
    }

    /// Processes what the server has sent.
    pub(super) fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> Result<(), CaptureError> {
        let mut input = core::mem::take(&mut self.input);
        input.extend(bytes);
        let result =
            take_packets(&mut input, |packet| match (packet.message, packet.samples, self.state) {
                (Some(message), ..) => self.message(now, MessageReader(message)),
                (_, Some((of, samples)), StreamState::Recording { channel, .. })
                    if of == channel =>
                {
                    self.samples.extend(samples);
                    Ok(())
                }
                _ => Ok(()),
            });
        self.input = input;
        result.map_err(|error| match error {
            RecordError::Stream(error) => self.error(error),
            RecordError::NoSource(known) => CaptureError::Unknown { name: self.name(), known },
        })
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), CaptureError> {
        if self.deadline.is_some_and(|at| at <= now) {
            return Err(self.error(StreamError::NoAnswer));
        }
        if let StreamState::Recording { channel, .. } = self.state
            && self.deadline.is_none()
            && self.next_question <= now
        {
            self.next_question = now + QUESTION_INTERVAL;
            self.deadline = Some(now + ANSWER_TIMEOUT);
            MessageWriter::new(&mut self.output, command::GET_RECORD_LATENCY, QUESTION)
                .u32(channel)
                .time(0, 0)
                .end();
        }
        Ok(())
    }

    /// Bytes for the socket, which it removes.
    pub(super) const fn output_mut(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether the samples that wait are as many as are kept: what follows stays in the socket.
    pub(super) fn is_full(&self) -> bool {
        let spec = self.config.spec;
        self.samples.len() >= spec.bytes(spec.rate.frames(MAX_WAITING))
    }

    /// Takes samples that have arrived; returns the number of bytes.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.samples.len());
        into[..length].copy_from_slice(&self.samples[..length]);
        self.samples.drain(..length);
        length
    }

    /// Whether the source is suspended, so that it delivers nothing.
    pub(super) const fn is_suspended(&self) -> bool {
        matches!(self.state, StreamState::Recording { is_suspended: true, .. })
    }

    /// Ends the stream.
    pub(super) fn delete(&mut self) {
        if let StreamState::Recording { channel, .. } = self.state {
            MessageWriter::new(&mut self.output, command::DELETE_RECORD_STREAM, LAST)
                .u32(channel)
                .end();
        }
    }

    /// The source, as messages name it.
    pub(super) fn name(&self) -> String {
        let name = self.source.as_ref().or(self.config.source.as_ref());
        name.map_or_else(|| "pulse".to_owned(), |name| format!("pulse:{name}"))
    }

    fn error(&self, error: StreamError) -> CaptureError {
        let error = match error {
            StreamError::Refused(NO_ENTITY) => io::Error::other("the server has no source"),
            other => io::Error::other(other.to_string()),
        };
        CaptureError::Device { name: self.name(), error }
    }

    fn message(&mut self, now: Instant, mut values: MessageReader<'_>) -> Result<(), RecordError> {
        let mut head = || Some((values.u32()?, values.u32()?));
        let (code, tag) = head().ok_or(Malformed)?;
        match (code, self.state) {
            (event::ERROR, _) if tag != QUESTION => {
                return Err(StreamError::Refused(values.u32().ok_or(Malformed)?).into());
            }
            (event::REPLY, _) if tag == AUTH => check_version(values)?,
            // Before this reply PipeWire's list is empty.
            (event::REPLY, StreamState::Listing) if tag == NAME => {
                MessageWriter::new(&mut self.output, command::GET_SOURCE_INFO_LIST, LIST).end();
            }
            (event::REPLY, StreamState::Creating) if tag == CREATE => {
                self.created(values).ok_or(Malformed)?;
            }
            (event::REPLY, StreamState::Listing) if tag == LIST => {
                let known = source_names(values).ok_or(Malformed)?;
                if !self.config.source.as_ref().is_some_and(|name| known.contains(name)) {
                    return Err(RecordError::NoSource(known));
                }
                self.deadline = Some(now + ANSWER_TIMEOUT);
                self.create();
            }
            // After an error the stream may have ended in between; its end is said.
            (event::REPLY | event::ERROR, _) if tag == QUESTION => self.deadline = None,
            (code, StreamState::Recording { channel, .. }) => {
                self.stream_event(code, channel, values)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn stream_event(
        &mut self,
        code: u32,
        channel: u32,
        mut values: MessageReader<'_>,
    ) -> Result<(), RecordError> {
        let is_event =
            matches!(code, event::RECORD_KILLED | event::RECORD_SUSPENDED | event::RECORD_MOVED);
        if !is_event || values.u32() != Some(channel) {
            return Ok(());
        }
        if code == event::RECORD_KILLED {
            return Err(StreamError::Killed.into());
        }
        if code == event::RECORD_MOVED {
            let _index = values.u32().ok_or(Malformed)?;
            self.source = values.text().ok_or(Malformed)?;
        }
        let is_suspended = values.boolean().ok_or(Malformed)?;
        self.state = StreamState::Recording { channel, is_suspended };
        Ok(())
    }

    fn created(&mut self, mut values: MessageReader<'_>) -> Option<()> {
        let channel = values.u32()?;
        // Index of the stream; the two lengths of the buffer, sample spec, channel map, index of
        // the source.
        values.skip_values(6)?;
        self.source = values.text()?;
        let is_suspended = values.boolean()?;
        self.deadline = None;
        self.state = StreamState::Recording { channel, is_suspended };
        Some(())
    }
}

/// Why a stream is over, before it has a name.
#[derive(Debug)]
enum RecordError {
    Stream(StreamError),
    /// There is no such source, but these.
    NoSource(Vec<String>),
}

impl<T: Into<StreamError>> From<T> for RecordError {
    fn from(error: T) -> Self {
        Self::Stream(error.into())
    }
}

const SERVER: Application = ("aulos", "audio-input-microphone");

/// Tags of messages, behind those of every session.
const LIST: u32 = CREATE + 1;
const QUESTION: u32 = CREATE + 2;

/// The server's code for an unknown name.
const NO_ENTITY: u32 = 5;

/// Between questions that show that the server is alive.
const QUESTION_INTERVAL: Span = Span::from_secs(1);

/// Samples that wait to be read: more than a station leaves.
const MAX_WAITING: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::wire::Packet;
    use super::*;

    const CHANNEL: u32 = 5;

    fn config(source: Option<&str>) -> RecordConfig {
        RecordConfig {
            spec: "48000:16:2".parse().unwrap(),
            source: source.map(str::to_owned),
            fragment: Frames(960),
            cookie: vec![0; 256],
        }
    }

    fn at(millis: i64) -> Instant {
        Instant::ZERO + Span::from_millis(10_000 + millis)
    }

    fn message<'a>(out: &'a mut Vec<u8>, code: u32, tag: u32) -> MessageWriter<'a> {
        MessageWriter::new(out, code, tag)
    }

    /// An event of the stream.
    fn event(code: u32, add: impl FnOnce(MessageWriter<'_>) -> MessageWriter<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        add(message(&mut out, code, NONE).u32(CHANNEL)).end();
        out
    }

    /// The list of a source and a monitor.
    fn list() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = message(&mut out, event::REPLY, LIST);
        let spec = "48000:16:2".parse().unwrap();
        for name in ["mic", "dac.monitor"] {
            // The channel map is part of the spec; the other values may have any type.
            writer = writer.u32(1).text(Some(name)).text(Some("A device")).spec(spec);
            writer = writer.u32(2).full_volume(spec).booleans(&[false; 12]);
        }
        writer.end();
        out
    }

    fn created() -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, event::REPLY, AUTH).u32(35 | 0x8000_0000).end();
        let reply = message(&mut out, event::REPLY, CREATE).u32(CHANNEL).u32(9).u32(1).u32(2);
        let reply = reply.spec("48000:16:2".parse().unwrap()).u32(0).text(Some("mic"));
        reply.boolean(false).end();
        out
    }

    fn samples(channel: u32, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        super::super::wire::write_samples(&mut out, channel, bytes);
        out
    }

    /// The commands that the client has written.
    fn sent(client: &mut RecordClient) -> Vec<u32> {
        let mut list = Vec::new();
        while let Some(packet) = Packet::parse(client.output_mut()).unwrap() {
            let length = packet.length;
            let mut values = MessageReader(packet.message.unwrap());
            list.push(values.u32().unwrap());
            client.output_mut().drain(..length);
        }
        list
    }

    fn opened() -> RecordClient {
        let mut client = RecordClient::new(config(None), at(0));
        let create = command::CREATE_RECORD_STREAM;
        assert_eq!(sent(&mut client), [command::AUTH, command::SET_CLIENT_NAME, create]);
        // Byte by byte.
        for byte in created() {
            client.handle_input(at(1), &[byte]).unwrap();
        }
        assert_eq!(client.name(), "pulse:mic");
        client
    }

    fn read(client: &mut RecordClient) -> Vec<u8> {
        let mut into = vec![0; 1_000];
        let length = client.read(&mut into);
        into.truncate(length);
        into
    }

    #[test]
    fn samples_of_the_stream_are_read_in_any_pieces() {
        let mut client = opened();
        client.handle_input(at(2), &samples(CHANNEL, &[1, 2, 3, 4])).unwrap();
        client.handle_input(at(2), &samples(CHANNEL + 1, &[9; 8])).unwrap();
        client.handle_input(at(3), &samples(CHANNEL, &[5, 6, 7, 8])).unwrap();
        let mut three = [0; 3];
        assert_eq!((client.read(&mut three), three), (3, [1, 2, 3]));
        assert_eq!(read(&mut client), [4, 5, 6, 7, 8]);
        assert!(read(&mut client).is_empty());
        let second = vec![7; 192_000];
        for half in second.chunks(96_000) {
            assert!(!client.is_full());
            client.handle_input(at(4), &samples(CHANNEL, half)).unwrap();
        }
        assert!(client.is_full());
        client.delete();
        assert_eq!(sent(&mut client), [command::DELETE_RECORD_STREAM]);
    }

    #[test]
    fn a_named_source_must_be_in_the_list() {
        for (name, is_known) in [("dac.monitor", true), ("speaker", false)] {
            let mut client = RecordClient::new(config(Some(name)), at(0));
            assert_eq!(sent(&mut client), [command::AUTH, command::SET_CLIENT_NAME]);
            let mut named = Vec::new();
            message(&mut named, event::REPLY, NAME).u32(1).end();
            client.handle_input(at(1), &named).unwrap();
            assert_eq!(sent(&mut client), [command::GET_SOURCE_INFO_LIST]);
            let result = client.handle_input(at(1), &list());
            if is_known {
                result.unwrap();
                assert_eq!(sent(&mut client), [command::CREATE_RECORD_STREAM]);
            } else {
                let expected = "pulse:speaker: no such device; there are mic, dac.monitor";
                assert_eq!(result.unwrap_err().to_string(), expected);
            }
        }
        let mut client = RecordClient::new(config(Some("@DEFAULT_MONITOR@")), at(0));
        assert_eq!(sent(&mut client)[2..], [command::CREATE_RECORD_STREAM]);
    }

    #[test]
    fn a_suspended_source_is_known_until_it_resumes() {
        let mut client = opened();
        let set = |is_suspended| event(event::RECORD_SUSPENDED, |out| out.boolean(is_suspended));
        client.handle_input(at(2), &set(true)).unwrap();
        assert!(client.is_suspended());
        client.handle_input(at(3), &set(false)).unwrap();
        assert!(!client.is_suspended());
        let moved =
            event(event::RECORD_MOVED, |out| out.u32(3).text(Some("usb")).boolean(true).u32(1));
        client.handle_input(at(4), &moved).unwrap();
        assert!(client.is_suspended() && client.name() == "pulse:usb");
    }

    #[test]
    fn the_end_of_a_stream_has_a_reason() {
        let error = |client: &mut RecordClient, code: u32, tag: u32, value: u32| {
            let mut input = Vec::new();
            message(&mut input, code, tag).u32(value).end();
            client.handle_input(at(2), &input).unwrap_err().to_string()
        };
        let fresh = || RecordClient::new(config(None), at(0));
        for (code, tag, value, expected) in [
            (event::ERROR, AUTH, 1, "pulse: the server denies access"),
            (event::ERROR, CREATE, 5, "pulse: the server has no source"),
            (event::ERROR, CREATE, 6, "pulse: the server refuses (code 6)"),
            (event::REPLY, CREATE, 8, "pulse: the server has sent a malformed message"),
            (event::REPLY, AUTH, 8, "pulse: the server speaks version 8; expected 15 or newer"),
        ] {
            assert_eq!(error(&mut fresh(), code, tag, value), expected);
        }
        let killed = error(&mut opened(), event::RECORD_KILLED, NONE, CHANNEL);
        assert_eq!(killed, "pulse:mic: the server has ended the stream");
        let mut client = opened();
        client.handle_timeout(at(2)).unwrap();
        assert_eq!(sent(&mut client), [command::GET_RECORD_LATENCY]);
        let error = client.handle_timeout(at(3_100)).unwrap_err().to_string();
        assert_eq!(error, "pulse:mic: the server does not answer");
        let error = fresh().handle_timeout(at(3_000)).unwrap_err().to_string();
        assert_eq!(error, "pulse: the server does not answer");
    }

    #[test]
    fn an_answer_keeps_the_stream() {
        let mut client = opened();
        for second in 0..10 {
            client.handle_timeout(at(second * 1_000 + 2)).unwrap();
            assert_eq!(sent(&mut client).len(), 1);
            let mut input = Vec::new();
            message(&mut input, event::REPLY, QUESTION).end();
            client.handle_input(at(second * 1_000 + 3), &input).unwrap();
        }
    }

    #[test]
    fn damaged_messages_neither_panic_nor_fill_memory() {
        let mut random = aulos_core::Rng::new(3);
        let mut good = [list(), created(), samples(CHANNEL, &[1; 100])].concat();
        good.extend(event(event::RECORD_SUSPENDED, |out| out.boolean(true)));
        good.extend(event(event::RECORD_MOVED, |out| out.u32(3).text(Some("usb")).boolean(true)));
        good.extend(event(event::RECORD_KILLED, |out| out));
        for round in 0..5_000 {
            let mut input = good.clone();
            for _ in 0..=random.below(6) {
                let place = random.below(input.len());
                input[place] = u8::try_from(random.below(256)).unwrap();
            }
            input.truncate(random.below(input.len()));
            let source = (round % 2 == 0).then_some("mic");
            let mut client = RecordClient::new(config(source), at(0));
            let half = random.below(input.len().max(1));
            let first = client.handle_input(at(1), &input[..half]);
            drop(client.handle_timeout(at(2)));
            drop(first.and_then(|()| client.handle_input(at(3), &input[half..])));
            assert!(client.input.len() <= input.len() && client.samples.len() <= input.len());
            assert!(client.output.len() < 4_096);
        }
    }
}
