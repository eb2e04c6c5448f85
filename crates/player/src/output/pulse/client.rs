//! One playback stream of a sound server, without a socket and a clock.
//!
//! The stream has no pre-buffering: once begun, its clock never stops, so that a frame that comes
//! too late is lost and all others sound at their time. It begins with a full buffer of silence: a
//! server replaces what it has rendered in advance only by what is there then. The server asks for
//! what it has played by `Request` messages, which PipeWire sends directly after it has updated the
//! position; so the position is asked for then. It is asked for in between as well, because
//! PulseAudio is busy then and answers late.

use core::fmt;

use aulos_core::{Frames, Instant, SampleSpec, Span};

use super::wire::{
    Malformed, MessageReader, MessageWriter, NONE, VERSION, command, event, take_packets,
    write_samples,
};

/// What to ask a server for.
#[derive(Clone, Debug)]
pub(super) struct StreamConfig {
    /// Its format must be one of the protocol.
    pub(super) spec: SampleSpec,
    /// `None` for the server's default sink.
    pub(super) sink: Option<String>,
    /// From the write to the loudspeaker.
    pub(super) buffer: Span,
    /// Frames that the server asks for at once, or more.
    pub(super) period: Frames,
    /// The secret that the server and its users share; zeros if there is none.
    pub(super) cookie: Vec<u8>,
}

/// What has happened to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// The stream exists, on this sink.
    Created(String),
    /// Frames that have sounded, as known at this time or a little earlier.
    Position(i64, Instant),
    /// The stream plays on another device, or its device plays again: positions jump.
    Moved,
    /// The server had nothing to play.
    Underrun,
}

/// Why a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamError {
    Malformed,
    NoAnswer,
    OldVersion(u32),
    Refused(u32),
    Killed,
    /// The server asks for more bytes than a pause of [`MAX_BEHIND`] explains.
    TooFarBehind,
}

impl From<Malformed> for StreamError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Malformed => "the server has sent a malformed message",
            Self::NoAnswer => "the server does not answer",
            Self::OldVersion(version) => {
                return write!(
                    f,
                    "the server speaks version {version}; expected {VERSION} or newer"
                );
            }
            Self::Refused(1) => "the server denies access",
            Self::Refused(5) => "the server has no such sink",
            Self::Refused(code) => return write!(f, "the server refuses (code {code})"),
            Self::Killed => "the server has ended the stream",
            Self::TooFarBehind => "the player was stopped for seconds",
        };
        f.write_str(text)
    }
}

/// The client of a sound server, with one stream.
#[derive(Debug)]
pub(super) struct PulseClient {
    config: StreamConfig,
    /// The channel of the stream once it exists.
    channel: Option<u32>,
    /// The beginning of a packet.
    input: Vec<u8>,
    output: Vec<u8>,
    events: Vec<StreamEvent>,
    /// Bytes that the server has asked for and that were written, since the stream exists.
    requested: u64,
    written: u64,
    /// An answer must come until then: to the creation of the stream, or to a question.
    deadline: Option<Instant>,
    next_tag: u32,
    next_question: Instant,
    /// Whether the position is asked for in quick succession.
    is_hasty: bool,
    /// The server has updated the position while a question was on its way.
    is_outdated: bool,
}

impl PulseClient {
    /// Asks for a stream. The server handles the messages in order, so none waits for an answer.
    pub(super) fn new(config: StreamConfig, now: Instant) -> Self {
        let mut output = Vec::new();
        begin_session(PLAYER, &config.cookie, &mut output);
        let SampleSpec { rate, format, layout } = config.spec;
        let frame = u64::from(u16::try_from(format.bytes() * layout.channels()).unwrap_or(1));
        let bytes = |frames: Frames| u32::try_from(frames.0 * frame).unwrap_or(NONE);
        let properties = [("media.name", "Snapcast"), ("media.role", "music")];
        MessageWriter::new(&mut output, command::CREATE_PLAYBACK_STREAM, CREATE)
            .spec(config.spec)
            .u32(NONE)
            .text(config.sink.as_deref())
            // The server's own maximum of the buffer; corked; length, pre-buffering, request.
            .u32(NONE)
            .boolean(true)
            .u32(bytes(rate.frames(config.buffer)))
            .u32(0)
            .u32(bytes(config.period))
            .u32(0)
            .full_volume(config.spec)
            // No change of the mapping, rate, format; may be moved; not muted.
            .booleans(&[false; 7])
            .boolean(false)
            // The length includes the device's own buffer.
            .boolean(true)
            .properties(&properties)
            // Volume and mute are those that the server remembers; nothing special.
            .booleans(&[false; 5])
            .end();
        Self {
            config,
            channel: None,
            input: Vec::new(),
            output,
            events: Vec::new(),
            requested: 0,
            written: 0,
            deadline: Some(now + ANSWER_TIMEOUT),
            next_tag: FIRST_QUESTION,
            next_question: now,
            is_hasty: true,
            is_outdated: false,
        }
    }

    /// Processes what the server has sent.
    pub(super) fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> Result<(), StreamError> {
        let mut input = core::mem::take(&mut self.input);
        input.extend(bytes);
        take_packets(&mut input, |packet| {
            packet.message.map_or(Ok(()), |message| self.message(now, MessageReader(message)))
        })?;
        self.input = input;
        Ok(())
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), StreamError> {
        if self.deadline.is_some_and(|at| at <= now) {
            return Err(StreamError::NoAnswer);
        }
        if self.next_question <= now {
            self.next_question = now + if self.is_hasty { HASTY_INTERVAL } else { INTERVAL };
            self.ask(now);
        }
        Ok(())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Instant {
        self.deadline.unwrap_or(self.next_question)
    }

    pub(super) fn poll_event(&mut self) -> Option<StreamEvent> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    /// Bytes for the socket.
    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// The same, to remove what the socket has taken.
    pub(super) const fn output_mut(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Bytes that the server wants now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.requested.saturating_sub(self.written)).unwrap_or(0)
    }

    /// Writes samples in the format of the stream.
    pub(super) fn write(&mut self, samples: &[u8]) {
        if let Some(channel) = self.channel {
            self.written += samples.len() as u64;
            write_samples(&mut self.output, channel, samples);
        }
    }

    /// Ends the stream; the server forgets what has not sounded.
    pub(super) fn delete(&mut self) {
        if let Some(channel) = self.channel.take() {
            MessageWriter::new(&mut self.output, command::DELETE_PLAYBACK_STREAM, LAST)
                .u32(channel)
                .end();
        }
    }

    /// Asks for the position in quick succession, or else after requests and now and then.
    pub(super) const fn set_hasty(&mut self, is_hasty: bool) {
        self.is_hasty = is_hasty;
    }

    fn ask(&mut self, now: Instant) {
        let Some(channel) = self.channel.filter(|_| self.deadline.is_none()) else { return };
        self.is_outdated = false;
        self.deadline = Some(now + ANSWER_TIMEOUT);
        self.next_tag = self.next_tag.checked_add(1).unwrap_or(FIRST_QUESTION);
        // The server sends the time back; what it says is known without it.
        MessageWriter::new(&mut self.output, command::GET_PLAYBACK_LATENCY, self.next_tag)
            .u32(channel)
            .time(0, 0)
            .end();
    }

    fn message(&mut self, now: Instant, mut values: MessageReader<'_>) -> Result<(), StreamError> {
        let mut head = || Some((values.u32()?, values.u32()?));
        let (code, tag) = head().ok_or(Malformed)?;
        match code {
            event::ERROR if tag <= CREATE => {
                return Err(StreamError::Refused(values.u32().ok_or(Malformed)?));
            }
            event::REPLY if tag == AUTH => check_version(values)?,
            event::REPLY if tag == CREATE && self.channel.is_none() => self.created(values)?,
            event::REPLY if tag == self.next_tag && self.channel.is_some() => {
                self.deadline = None;
                let position = self.position(values).ok_or(Malformed)?;
                self.events.push(StreamEvent::Position(position, now));
                if self.is_outdated {
                    self.ask(now);
                }
            }
            // The stream may have ended in between; its end has been said.
            event::ERROR => self.deadline = None,
            event::REQUEST if self.is_of_stream(&mut values) => {
                self.request(values.u32().ok_or(Malformed)?)?;
                self.is_outdated = true;
                self.ask(now);
            }
            event::KILLED if self.is_of_stream(&mut values) => {
                return Err(StreamError::Killed);
            }
            event::UNDERFLOW if self.is_of_stream(&mut values) => {
                self.events.push(StreamEvent::Underrun);
            }
            event::SUSPENDED | event::MOVED if self.is_of_stream(&mut values) => {
                self.events.push(StreamEvent::Moved);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the channel that an event is about.
    fn is_of_stream(&self, values: &mut MessageReader<'_>) -> bool {
        self.channel.is_some_and(|channel| values.u32() == Some(channel))
    }

    fn created(&mut self, mut values: MessageReader<'_>) -> Result<(), StreamError> {
        let mut parse = || {
            let channel = values.u32()?;
            let _index = values.u32()?;
            let missing = values.u32()?;
            // The four lengths of the buffer, sample spec, channel map, index of the sink.
            values.skip_values(7)?;
            Some((channel, missing, values.text()?))
        };
        let (channel, missing, sink) = parse().ok_or(Malformed)?;
        self.channel = Some(channel);
        self.deadline = None;
        self.events.push(StreamEvent::Created(sink.unwrap_or_default()));
        self.request(missing)
    }

    /// Begins to play.
    pub(super) fn start(&mut self) {
        if let Some(channel) = self.channel {
            MessageWriter::new(&mut self.output, command::CORK_PLAYBACK_STREAM, LAST)
                .u32(channel)
                .boolean(false)
                .end();
        }
    }

    fn request(&mut self, bytes: u32) -> Result<(), StreamError> {
        self.requested += u64::from(bytes);
        let spec = self.config.spec;
        let limit = spec.bytes(spec.rate.frames(self.config.buffer + MAX_BEHIND));
        if self.room() > limit { Err(StreamError::TooFarBehind) } else { Ok(()) }
    }

    /// Frames that have sounded: those that the server has taken from the stream's buffer, without
    /// those that wait in the device's.
    fn position(&self, mut values: MessageReader<'_>) -> Option<i64> {
        let delay = values.micros()?;
        // The delay of a source that the sink is the monitor of, whether it plays, two times, and
        // how much was written.
        values.skip_values(5)?;
        let spec = self.config.spec;
        let read = values.s64()? / i64::try_from(spec.frame_bytes()).ok()?;
        let delay = Span::from_micros(i64::try_from(delay).ok()?);
        Some(read.saturating_sub(i64::try_from(spec.rate.frames(delay).0).ok()?))
    }
}

/// Checks the reply to the authentication.
pub(super) fn check_version(mut values: MessageReader<'_>) -> Result<(), StreamError> {
    // The upper half of the word has flags.
    let version = values.u32().ok_or(Malformed)? & 0xffff;
    if version < VERSION { Err(StreamError::OldVersion(version)) } else { Ok(()) }
}

/// How a session appears in the lists of mixers: id and icon.
pub(super) type Application = (&'static str, &'static str);

pub(super) const PLAYER: Application = ("aulos-player", "audio-speakers");

/// Writes the messages that begin every session: tags 0 and 1.
pub(super) fn begin_session((id, icon): Application, cookie: &[u8], out: &mut Vec<u8>) {
    MessageWriter::new(out, command::AUTH, AUTH).u32(VERSION).bytes(cookie).end();
    let properties =
        [("application.name", "aulos"), ("application.id", id), ("application.icon_name", icon)];
    MessageWriter::new(out, command::SET_CLIENT_NAME, NAME).properties(&properties).end();
}

/// Tags of messages.
pub(super) const AUTH: u32 = 0;
pub(super) const NAME: u32 = 1;
pub(super) const CREATE: u32 = 2;
const FIRST_QUESTION: u32 = 3;
/// Of a message whose reply is not waited for.
pub(super) const LAST: u32 = NONE - 1;

/// A server that was suspended with its machine answers by then.
pub(super) const ANSWER_TIMEOUT: Span = Span::from_secs(3);

/// Between questions for the position: not a divisor of any usual period, so that some of them come
/// directly after the server has updated it.
const HASTY_INTERVAL: Span = Span::from_micros(4_300);
const INTERVAL: Span = Span::from_millis(43);

/// A longer pause of the player is not made up for: the stream begins anew.
const MAX_BEHIND: Span = Span::from_secs(2);

#[cfg(test)]
mod tests {
    use super::super::wire::Packet;
    use super::*;

    const CHANNEL: u32 = 5;

    fn config() -> StreamConfig {
        StreamConfig {
            spec: "48000:16:2".parse().unwrap(),
            sink: None,
            buffer: Span::from_millis(200),
            period: Frames(960),
            cookie: vec![0; 256],
        }
    }

    fn at(millis: i64) -> Instant {
        Instant::ZERO + Span::from_millis(10_000 + millis)
    }

    fn message<'a>(out: &'a mut Vec<u8>, code: u32, tag: u32) -> MessageWriter<'a> {
        MessageWriter::new(out, code, tag)
    }

    /// The reply to the creation: all that a version of 15 has.
    fn created(missing: u32) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, event::REPLY, AUTH).u32(35 | 0x8000_0000).end();
        message(&mut out, event::REPLY, NAME).u32(1).end();
        let reply = message(&mut out, event::REPLY, CREATE).u32(CHANNEL).u32(9).u32(missing);
        let reply = reply.u32(1).u32(2).u32(3).u32(4).spec("48000:16:2".parse().unwrap());
        reply.u32(0).text(Some("speaker")).boolean(false).end();
        out
    }

    fn latency(tag: u32, read: u64) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, event::REPLY, tag).end();
        out.push(b'U');
        out.extend(10_000_u64.to_be_bytes());
        out.push(b'U');
        out.extend([0; 8]);
        out.push(b'1');
        for time in 0..2 {
            out.extend([b'T', 0, 0, 0, time, 0, 0, 0, 0]);
        }
        for index in [read + 1_000, read] {
            out.push(b'r');
            out.extend(index.to_be_bytes());
        }
        let size = u32::try_from(out.len() - 20).unwrap();
        out[..4].copy_from_slice(&size.to_be_bytes());
        out
    }

    /// The commands that the client has written.
    fn sent(client: &mut PulseClient) -> Vec<(u32, u32)> {
        let mut list = Vec::new();
        while let Some(packet) = Packet::parse(client.output()).unwrap() {
            let length = packet.length;
            let mut values = packet.message.map(MessageReader);
            let mut word = || values.as_mut().and_then(MessageReader::u32).unwrap_or(NONE);
            list.push((word(), word()));
            client.output_mut().drain(..length);
        }
        list
    }

    fn opened() -> PulseClient {
        let mut client = PulseClient::new(config(), at(0));
        let commands = sent(&mut client);
        let expected = [(command::AUTH, 0), (command::SET_CLIENT_NAME, 1)];
        assert_eq!(commands[..2], expected);
        assert_eq!(commands[2..], [(command::CREATE_PLAYBACK_STREAM, 2)]);
        // Byte by byte.
        for byte in created(38_400) {
            client.handle_input(at(1), &[byte]).unwrap();
        }
        assert_eq!(client.poll_event(), Some(StreamEvent::Created("speaker".to_owned())));
        assert_eq!(client.room(), 38_400);
        client
    }

    #[test]
    fn a_stream_is_written_and_its_position_asked_for() {
        let mut client = opened();
        client.write(&[0; 38_400]);
        client.start();
        client.handle_timeout(at(2)).unwrap();
        let commands = sent(&mut client);
        let question = (command::GET_PLAYBACK_LATENCY, FIRST_QUESTION + 1);
        assert_eq!(commands, [(NONE, NONE), (command::CORK_PLAYBACK_STREAM, LAST), question]);
        // A request while the answer is awaited is followed by another question.
        let mut input = Vec::new();
        message(&mut input, event::REQUEST, NONE).u32(CHANNEL).u32(3_840).end();
        message(&mut input, event::REQUEST, NONE).u32(CHANNEL + 1).u32(1).end();
        client.handle_input(at(3), &input).unwrap();
        assert!(sent(&mut client).is_empty() && client.room() == 3_840);
        client.handle_input(at(4), &latency(question.1, 4 * 960)).unwrap();
        // 960 frames were read, and 480 of them are in the device.
        assert_eq!(client.poll_event(), Some(StreamEvent::Position(480, at(4))));
        assert_eq!(sent(&mut client), [(question.0, question.1 + 1)]);
        input.clear();
        message(&mut input, event::UNDERFLOW, NONE).u32(CHANNEL).end();
        client.handle_input(at(5), &input).unwrap();
        assert_eq!(client.poll_event(), Some(StreamEvent::Underrun));
        client.delete();
        assert_eq!(sent(&mut client), [(command::DELETE_PLAYBACK_STREAM, LAST)]);
    }

    #[test]
    fn the_end_of_a_stream_has_a_reason() {
        let error = |code: u32, tag: u32, value: u32| {
            let mut input = Vec::new();
            message(&mut input, code, tag).u32(value).end();
            let mut client = PulseClient::new(config(), at(0));
            client.handle_input(at(1), &input)
        };
        assert_eq!(error(event::ERROR, CREATE, 5), Err(StreamError::Refused(5)));
        assert_eq!(error(event::REPLY, AUTH, 8), Err(StreamError::OldVersion(8)));
        assert_eq!(error(event::REPLY, CREATE, 8), Err(StreamError::Malformed));
        let mut input = Vec::new();
        message(&mut input, event::KILLED, NONE).u32(CHANNEL).end();
        assert_eq!(opened().handle_input(at(2), &input), Err(StreamError::Killed));
        input.clear();
        message(&mut input, event::REQUEST, NONE).u32(CHANNEL).u32(NONE).end();
        assert_eq!(opened().handle_input(at(2), &input), Err(StreamError::TooFarBehind));
        let mut client = opened();
        client.handle_timeout(at(2)).unwrap();
        assert_eq!(client.handle_timeout(at(3_100)), Err(StreamError::NoAnswer));
    }

    #[test]
    fn damaged_messages_neither_panic_nor_fill_memory() {
        let mut random = aulos_core::Rng::new(3);
        let mut good = created(1_000);
        good.extend(latency(FIRST_QUESTION + 1, 100_000));
        for code in
            [event::REQUEST, event::UNDERFLOW, event::SUSPENDED, event::MOVED, event::KILLED]
        {
            message(&mut good, code, NONE).u32(CHANNEL).u32(1_000).end();
        }
        for _ in 0..5_000 {
            let mut input = good.clone();
            for _ in 0..=random.below(6) {
                let place = random.below(input.len());
                input[place] = u8::try_from(random.below(256)).unwrap();
            }
            let mut client = PulseClient::new(config(), at(0));
            let half = random.below(input.len());
            let first = client.handle_input(at(1), &input[..half]);
            let _ = client.handle_timeout(at(2));
            let _ = first.and_then(|()| client.handle_input(at(3), &input[half..]));
            assert!(client.input.len() <= input.len() && client.output.len() < 4_096);
            while client.poll_event().is_some() {}
        }
    }
}
