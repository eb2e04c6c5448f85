//! An established connection, in both directions.

use aulos_core::{Instant, Span};
use aulos_proto::srt::{
    ControlKind, DataPacket, KeyParity, LossRange, LossRanges, MAX_PAYLOAD, SrtControl, SrtPacket,
};

use super::agreement::{Agreement, Ends, wire_time};
use super::encryption::{Encryption, NO_KEY};
use super::output::{Outputs, SrtCloseReason, SrtOutput};
use super::receiver::{Placement, Receiver};
use super::secret::SecretNumbers;
use super::sender::Sender;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: Ends,
    started: Instant,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    encryption: Option<Encryption>,
    heard: Instant,
    sent: Instant,
    /// Whether the peer has used the connection's number, which it knows by our answer alone.
    is_confirmed: bool,
    pub(super) unreadable: u64,
    end: Option<SrtCloseReason>,
    scratch: Vec<u8>,
}

impl Connection {
    pub(super) fn new(agreement: Agreement, now: Instant) -> Self {
        let Agreement { ends, initial, clocks, latencies, encryption } = agreement;
        Self {
            ends,
            started: clocks.0,
            receiver: Receiver::new(initial.1, clocks.1, latencies.0, now),
            sender: Sender::new(initial.0, latencies.1),
            encryption,
            heard: now,
            sent: now,
            is_confirmed: false,
            unreadable: 0,
            end: None,
            scratch: Vec::new(),
        }
    }

    /// Handles a packet of the peer for this connection's number.
    pub(super) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &SrtPacket<'_>,
        out: &mut Outputs,
    ) {
        (self.heard, self.is_confirmed) = (now, true);
        match packet {
            SrtPacket::Data(data) => self.handle_data(now, data, out),
            SrtPacket::Control(control) => self.handle_control(now, control, out),
        }
        self.deliver(now, out);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        self.deliver(now, out);
        if let Some(ack) = self.receiver.poll_ack(now) {
            self.control(now, ControlKind::Ack(ack), out);
        }
        if let Some(missing) = self.receiver.poll_nak(now) {
            self.report_missing(now, &missing, out);
        }
        let (ends, sender) = (self.ends, &mut self.sender);
        let mut has_sent = false;
        sender.handle_timeout(now, |packet| {
            has_sent = true;
            transmit(ends, packet, out);
        });
        self.announce_key(now, out);
        if has_sent {
            self.sent = now;
        } else if now.since(self.sent) >= KEEP_ALIVE {
            self.control(now, ControlKind::KeepAlive, out);
        }
        if now.since(self.heard) >= self.patience() {
            self.end.get_or_insert(SrtCloseReason::Silent);
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        let silence = self.heard + self.patience();
        let due = self.receiver.poll_timeout().min(self.sent + KEEP_ALIVE).min(silence);
        self.sender.poll_timeout().map_or(due, |resend| resend.min(due))
    }

    /// Sends a payload; false if it is too long.
    pub(super) fn send(
        &mut self,
        now: Instant,
        payload: &[u8],
        secrets: &mut SecretNumbers,
        out: &mut Outputs,
    ) -> bool {
        if payload.len() > MAX_PAYLOAD {
            return false;
        }
        let (timestamp, sequence) = (self.timestamp(now), self.sender.next());
        let mut payload = payload.to_vec();
        let key = match &mut self.encryption {
            Some(encryption) => encryption.encrypt(sequence, &mut payload, secrets),
            None => 0,
        };
        if let Some(packet) = self.sender.push(now, timestamp, (key, payload)) {
            transmit(self.ends, &packet, out);
        }
        self.sent = now;
        true
    }

    /// Says that this end leaves.
    pub(super) fn shut_down(&mut self, now: Instant, out: &mut Outputs) {
        self.control(now, ControlKind::Shutdown, out);
    }

    /// Why the connection is over.
    pub(super) const fn end(&self) -> Option<SrtCloseReason> {
        self.end
    }

    #[cfg(test)]
    pub(super) fn age_key(&mut self, packets: u32) {
        self.encryption.as_mut().unwrap().age(packets);
    }

    fn handle_data(&mut self, now: Instant, data: &DataPacket<'_>, out: &mut Outputs) {
        let mut payload = data.payload.to_vec();
        let is_readable = payload.len() <= MAX_PAYLOAD
            && match (&self.encryption, KeyParity::from_field(data.key)) {
                (Some(encryption), Some(key)) => {
                    encryption.decrypt(key, data.sequence, &mut payload)
                }
                (None, None) => data.key == 0,
                // Plain data in an encrypted stream is not the peer's.
                _ => false,
            };
        if !is_readable {
            self.unreadable += 1;
            return;
        }
        match self.receiver.place(data.sequence) {
            Placement::New(missing) => {
                self.receiver.keep(now, data, payload);
                if let Some(missing) = missing {
                    self.report_missing(now, &[missing], out);
                }
            }
            Placement::Old => {}
            Placement::Beyond => self.end = Some(SrtCloseReason::Discontinuity),
        }
    }

    fn handle_control(&mut self, now: Instant, control: &SrtControl<'_>, out: &mut Outputs) {
        match &control.kind {
            ControlKind::Ack(ack) => {
                self.sender.acknowledge(ack.next, ack.round_trip);
                if ack.number != 0 {
                    self.control(now, ControlKind::AckAck(ack.number), out);
                }
            }
            ControlKind::AckAck(number) => {
                self.receiver.handle_ack_ack(now, *number, control.timestamp);
            }
            ControlKind::Nak(ranges) => {
                // More ranges than a datagram holds cannot come.
                ranges.iter().for_each(|range| self.resend(now, range, out));
            }
            ControlKind::DropRequest(first, last) => self.receiver.withdraw((*first, *last)),
            ControlKind::KeyRequest(message) => {
                let answer = match &mut self.encryption {
                    Some(encryption) => encryption.renew(now, message),
                    None => NO_KEY.to_vec(),
                };
                if !answer.is_empty() {
                    self.control(now, ControlKind::KeyResponse(&answer), out);
                }
            }
            ControlKind::KeyResponse(answer) => {
                if let Some(encryption) = &mut self.encryption
                    && !encryption.confirm(answer)
                {
                    self.end = Some(SrtCloseReason::KeyRefused);
                }
            }
            ControlKind::Shutdown => {
                // The end of the stream has arrived, if not all of it is due.
                while let Some(payload) = self.receiver.next_due(Instant::from_nanos(u64::MAX)) {
                    out.push(SrtOutput::Payload(payload));
                }
                self.end = Some(SrtCloseReason::Closed);
            }
            _ => {}
        }
    }

    fn resend(&mut self, now: Instant, range: LossRange, out: &mut Outputs) {
        let ends = self.ends;
        let gone = self.sender.resend(now, range, |packet| transmit(ends, packet, out));
        self.sent = now;
        if let Some((first, last)) = gone {
            self.control(now, ControlKind::DropRequest(first, last), out);
        }
    }

    fn report_missing(&mut self, now: Instant, missing: &[LossRange], out: &mut Outputs) {
        let mut list = core::mem::take(&mut self.scratch);
        let ranges = LossRanges::write(missing.iter().copied(), MAX_RANGES, &mut list);
        self.control(now, ControlKind::Nak(ranges), out);
        self.scratch = list;
    }

    /// Announces the next key until it is confirmed.
    fn announce_key(&mut self, now: Instant, out: &mut Outputs) {
        let pause = self.sender.round_trip.longest();
        let Some(encryption) = &mut self.encryption else { return };
        let Some(message) = encryption.poll_announcement(now, pause) else { return };
        self.control(now, ControlKind::KeyRequest(&message), out);
    }

    fn deliver(&mut self, now: Instant, out: &mut Outputs) {
        while let Some(payload) = self.receiver.next_due(now) {
            out.push(SrtOutput::Payload(payload));
        }
    }

    fn control(&mut self, now: Instant, kind: ControlKind<'_>, out: &mut Outputs) {
        let (timestamp, destination) = (self.timestamp(now), self.ends.remote_id);
        let control = SrtControl { timestamp, destination, kind };
        out.transmit(self.ends.peer, &SrtPacket::Control(control));
        self.sent = now;
    }

    fn timestamp(&self, now: Instant) -> u32 {
        wire_time(now, self.started)
    }

    const fn patience(&self) -> Span {
        if self.is_confirmed { PEER_PATIENCE } else { STRANGER_PATIENCE }
    }
}

/// Sends a data packet to the peer.
fn transmit(ends: Ends, packet: &DataPacket<'_>, out: &mut Outputs) {
    let packet = DataPacket { destination: ends.remote_id, ..*packet };
    out.transmit(ends.peer, &SrtPacket::Data(packet));
}

/// A connection is over when nothing has arrived for so long.
const PEER_PATIENCE: Span = Span::from_secs(5);

/// As above, before the peer has used the connection.
const STRANGER_PATIENCE: Span = Span::from_secs(3);

const KEEP_ALIVE: Span = Span::from_secs(1);

/// Two words each: what a datagram holds.
const MAX_RANGES: usize = MAX_PAYLOAD / 8;
