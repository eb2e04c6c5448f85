//! The pictures of a client: its channels, what each shows, and what is on its way.
//!
//! A picture goes out in messages of at most 32 KiB, of which the driver sends one when the
//! connection has nothing else to send, so sound is never behind more than that. Only the first
//! dialects want it in one message, which has a limit of its own.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use serde_json::json;

use super::output::{ClientSessionOutput, SessionMessage};
use crate::sendspin::artwork::{
    ArtworkChannels, ArtworkFrame, ArtworkRequest, ArtworkUpdate, ChannelChange,
    MAX_ARTWORK_CHANNELS, MAX_WHOLE_ARTWORK,
};
use crate::sendspin::dialect::DialectInfo;
use crate::sendspin::frame::micros;

/// What a client is sent of pictures.
#[derive(Debug)]
pub(super) struct ArtworkSender {
    dialect: DialectInfo,
    /// The channels that the client wants; `None` before it has said it.
    asked: Option<ArtworkChannels>,
    /// The channels of the stream; `None` without one.
    streamed: Option<ArtworkChannels>,
    /// A stream begins, or changes, not before this time.
    may_change_at: Instant,
    channels: [ChannelState; MAX_ARTWORK_CHANNELS],
    transfer: Option<Transfer>,
    /// Requests that exceeded a limit.
    limited: u32,
}

/// A channel; in each field `None` for what is not known, and the inner `None` for no picture.
#[derive(Clone, Debug, Default)]
struct ChannelState {
    wanted: Option<Option<Arc<[u8]>>>,
    shown: Option<Option<Arc<[u8]>>>,
}

/// A picture of which a part has been sent.
#[derive(Debug)]
struct Transfer {
    channel: usize,
    picture: Arc<[u8]>,
    sent: usize,
}

impl ArtworkSender {
    /// For a client whose hello has these channels, if it has any.
    pub(super) fn new(
        dialect: DialectInfo,
        channels: Option<ArtworkChannels>,
        now: Instant,
    ) -> Self {
        let mut sender = Self {
            dialect,
            asked: None,
            streamed: None,
            may_change_at: now,
            channels: Default::default(),
            transfer: None,
            limited: 0,
        };
        if let Some(channels) = channels {
            sender.ask(now, channels);
        }
        sender
    }

    /// The client wants these channels from now on.
    pub(super) fn ask(&mut self, now: Instant, channels: ArtworkChannels) {
        let asked = ArtworkChannels { limited: 0, ..channels };
        let is_other = self.asked != Some(asked);
        let is_early = self.asked.is_some() && now < self.may_change_at;
        self.limited =
            self.limited.saturating_add(channels.limited + u32::from(is_other && is_early));
        self.asked = Some(asked);
    }

    /// The client wants another picture in a channel.
    pub(super) fn ask_for(&mut self, now: Instant, channel: usize, change: ChannelChange) {
        if let Some(mut channels) = self.asked {
            channels.change(self.dialect, channel, change);
            self.ask(now, channels);
        }
    }

    /// Begins, changes or ends the stream, if it has to be; what the client wants in the new one.
    pub(super) fn update(
        &mut self,
        now: Instant,
        may_stream: bool,
        outputs: &mut VecDeque<ClientSessionOutput>,
    ) -> Option<ArtworkRequest> {
        let Some(asked) = self.asked.filter(|_| may_stream) else {
            if self.streamed.is_some() {
                self.cancel(outputs);
                self.streamed = None;
                let end = SessionMessage::Text("stream/end", json!({ "roles": ["artwork"] }));
                outputs.push_back(ClientSessionOutput::Send(end));
            }
            return None;
        };
        if self.streamed == Some(asked) || now < self.may_change_at {
            return None;
        }
        self.may_change_at = now + CHANGE_INTERVAL;
        self.cancel(outputs);
        for (number, channel) in asked.channels.iter().enumerate() {
            let before = self.streamed.and_then(|before| before.channels.get(number).copied());
            if before == Some(*channel) {
                continue;
            }
            // A channel that ends is cleared before the stream goes on without it.
            if before.is_some_and(|before| before.is_streamed()) && !channel.is_streamed() {
                self.send_frame(number, self.empty(now), outputs);
            }
            if let Some(state) = self.channels.get_mut(number) {
                let wanted = channel.rendition().is_none().then_some(None);
                let shown = (!channel.is_streamed()).then_some(None);
                *state = ChannelState { wanted, shown };
            }
        }
        self.streamed = Some(asked);
        let start = SessionMessage::StreamStart("artwork", asked.to_json(self.dialect));
        outputs.push_back(ClientSessionOutput::Send(start));
        let renditions = asked.channels.map(|channel| channel.rendition());
        Some(ArtworkRequest { renditions, limited: self.limited })
    }

    /// When to call [`ArtworkSender::update`] because the stream is not as the client wants it.
    pub(super) fn poll_timeout(&self, may_stream: bool) -> Option<Instant> {
        let is_due = may_stream && self.asked.is_some() && self.streamed != self.asked;
        is_due.then_some(self.may_change_at)
    }

    /// What the channels are to show. An answer to an earlier request changes nothing.
    pub(super) fn show(
        &mut self,
        update: &ArtworkUpdate,
        outputs: &mut VecDeque<ClientSessionOutput>,
    ) {
        let Some(streamed) = self.streamed else { return };
        let answers = update.renditions.iter().zip(&update.pictures).zip(streamed.channels);
        for (number, ((rendition, picture), channel)) in answers.enumerate() {
            let is_current = rendition.is_some() && *rendition == channel.rendition();
            let Some(state) = self.channels.get_mut(number).filter(|_| is_current) else {
                continue;
            };
            let has_room = |picture: &&Arc<[u8]>| {
                !picture.is_empty()
                    && (self.dialect.has_artwork_transfers || picture.len() <= MAX_WHOLE_ARTWORK)
            };
            let picture = picture.as_ref().filter(has_room).cloned();
            let is_other = self
                .transfer
                .as_ref()
                .is_some_and(|it| it.channel == number && picture.as_ref() != Some(&it.picture));
            state.wanted = Some(picture);
            if is_other {
                self.cancel(outputs);
            }
        }
    }

    /// Whether a message waits to be sent.
    pub(super) fn has_message(&self) -> bool {
        self.transfer.is_some() || self.streamed.is_some() && self.next_channel().is_some()
    }

    /// Appends the next message that is sent at `now`; false if there is none.
    pub(super) fn write(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let Some(Transfer { channel, picture, sent }) = &mut self.transfer {
            let part = picture.chunks(MAX_PART).nth(*sent / MAX_PART).unwrap_or_default();
            ArtworkFrame::Part(part).write(*channel, out);
            *sent += part.len();
            if *sent >= picture.len() || part.is_empty() {
                if let Some(state) = self.channels.get_mut(*channel) {
                    state.shown = Some(Some(Arc::clone(picture)));
                }
                self.transfer = None;
            }
            return true;
        }
        let Some(channel) = self.next_channel().filter(|_| self.streamed.is_some()) else {
            return false;
        };
        let empty = self.empty(now);
        let Some(state) = self.channels.get_mut(channel) else { return false };
        let at = micros(now);
        match state.wanted.clone().flatten() {
            Some(picture) if self.dialect.has_artwork_transfers => {
                let size = u32::try_from(picture.len()).unwrap_or(u32::MAX);
                ArtworkFrame::Begin { at, size }.write(channel, out);
                self.transfer = Some(Transfer { channel, picture, sent: 0 });
            }
            Some(picture) => {
                ArtworkFrame::Whole { at, picture: &picture }.write(channel, out);
                state.shown = Some(Some(picture));
            }
            None => {
                empty.write(channel, out);
                state.shown = Some(None);
            }
        }
        true
    }

    /// The first channel that shows something else than it should.
    fn next_channel(&self) -> Option<usize> {
        let is_behind = |state: &ChannelState| {
            state.wanted.as_ref().is_some_and(|wanted| state.shown.as_ref() != Some(wanted))
        };
        self.channels.iter().position(is_behind)
    }

    /// The message that clears a channel.
    fn empty(&self, now: Instant) -> ArtworkFrame<'static> {
        let at = micros(now);
        match self.dialect.has_artwork_transfers {
            true => ArtworkFrame::Begin { at, size: 0 },
            false => ArtworkFrame::Whole { at, picture: &[] },
        }
    }

    /// Ends what is on its way.
    fn cancel(&mut self, outputs: &mut VecDeque<ClientSessionOutput>) {
        if let Some(transfer) = self.transfer.take() {
            self.send_frame(transfer.channel, ArtworkFrame::Cancel, outputs);
        }
    }

    fn send_frame(
        &self,
        channel: usize,
        frame: ArtworkFrame<'_>,
        outputs: &mut VecDeque<ClientSessionOutput>,
    ) {
        let mut message = Vec::new();
        frame.write(channel, &mut message);
        outputs.push_back(ClientSessionOutput::Send(SessionMessage::Binary(message)));
    }
}

/// Bytes of a picture in one message: 26 ms at 10 Mbit/s.
const MAX_PART: usize = 32 * 1_024;

/// The stream changes at most so often, however often the client wants it.
const CHANGE_INTERVAL: Span = Span::from_secs(1);
