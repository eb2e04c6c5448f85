//! Telephone calls as RTP: the datagrams of a few hundred calls, and their times.
//!
//! A call has talk spurts, silences with comfort noise, DTMF events, RTCP reports and a BYE; its
//! clock drifts; and some calls change their SSRC or their address in the middle. Everything is
//! generated beforehand from the call's number, so that a receiver can check the content of each
//! packet.

use std::time::Duration;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// 20 ms of PCMU, which encode the packet's number ([`number_of`]).
    Sound,
    /// Comfort noise.
    Noise,
    /// A DTMF event.
    Dtmf,
    /// An RTCP report or BYE.
    Rtcp,
    /// From a third party that is not part of the call.
    Intruder,
}

/// Change in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallChange {
    /// No change.
    None,
    /// The call continues with another SSRC.
    Renumbered,
    /// The call is silent, and then continues from another address.
    Moved,
}

/// One datagram.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Time of sending.
    pub due: Duration,
    /// Index of the source address: 0, 1 after a move, 2 for an intruder.
    pub from: usize,
    /// Kind of packet.
    pub kind: PacketKind,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A call, the datagrams in the order of sending.
#[derive(Clone, Debug)]
pub struct Call {
    /// Change in the middle of the call.
    pub change: CallChange,
    /// All datagrams.
    pub datagrams: Vec<Datagram>,
}

/// RTP payload type of DTMF telephone-events.
pub const DTMF_PAYLOAD_TYPE: u8 = 101;

/// Duration of the silence before a call continues from another address.
pub const MOVE_PAUSE: Duration = Duration::from_millis(2_600);

impl Call {
    /// Call number `number`, with about `packets` packets.
    #[must_use]
    pub fn new(number: u32, packets: u32) -> Self {
        let change = match number % 4 {
            1 => CallChange::Renumbered,
            3 => CallChange::Moved,
            _ => CallChange::None,
        };
        let mut builder = CallBuilder::new(number);
        builder.push_rtcp(false);
        for packet in 0..packets {
            if packet == packets / 2 {
                match change {
                    CallChange::None => {}
                    CallChange::Renumbered => builder.change_ssrc(),
                    CallChange::Moved => builder.change_address(),
                }
            }
            match packet {
                _ if packet == packets / 4 => builder.push_dtmf(),
                _ if packet % 50 == 40 => builder.push_silence(),
                _ if packet % 20 == 19 => builder.push_intruder(),
                _ => {}
            }
            builder.push_sound();
        }
        builder.push_rtcp(true);
        Self { change, datagrams: builder.datagrams }
    }

    /// The packets that a receiver must get.
    pub fn media(&self) -> impl Iterator<Item = &Datagram> {
        self.datagrams.iter().filter(|one| {
            matches!(one.kind, PacketKind::Sound | PacketKind::Noise | PacketKind::Dtmf)
        })
    }
}

/// Generates the datagrams of a call.
struct CallBuilder {
    datagrams: Vec<Datagram>,
    /// Microseconds.
    now: f64,
    step: f64,
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
    from: usize,
    spurt: bool,
    count: u32,
}

impl CallBuilder {
    fn new(number: u32) -> Self {
        let dice = number.wrapping_mul(0x9e37_79b1) ^ 0x5bd1_e995;
        let skew = f64::from(dice % 400) - 200.0;
        Self {
            datagrams: Vec::new(),
            // Calls start one after the other.
            now: f64::from(number % 50) * 37_000.0 + f64::from(dice % 20_000),
            step: 20_000.0 * (1.0 + skew * 1e-6),
            ssrc: dice,
            #[allow(clippy::cast_possible_truncation, reason = "any will do")]
            sequence: (dice >> 7) as u16,
            timestamp: dice.rotate_left(9),
            from: 0,
            spurt: true,
            count: 0,
        }
    }

    fn push(&mut self, kind: PacketKind, from: usize, bytes: Vec<u8>) {
        let due = Duration::from_secs_f64(self.now * 1e-6);
        self.datagrams.push(Datagram { due, from, kind, bytes });
    }

    fn packet(&mut self, kind: PacketKind, (payload_type, timestamp): (u8, u32), payload: &[u8]) {
        let marker = if core::mem::take(&mut self.spurt) { 0x80 } else { 0 };
        let header = header(marker | payload_type, self.sequence, timestamp, self.ssrc);
        self.push(kind, self.from, [&header[..], payload].concat());
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn wait(&mut self, packets: u32) {
        self.now += self.step * f64::from(packets);
        self.timestamp = self.timestamp.wrapping_add(160 * packets);
    }

    fn push_sound(&mut self) {
        self.count += 1;
        let mut payload = vec![0xff; 160];
        payload[1] = 0;
        for bit in 0..32 {
            payload[2 + bit] = if self.count >> bit & 1 == 1 { 0 } else { 0xff };
        }
        self.packet(PacketKind::Sound, (0, self.timestamp), &payload);
        self.wait(1);
    }

    /// Silence for 400 ms.
    fn push_silence(&mut self) {
        for _ in 0..2 {
            self.packet(PacketKind::Noise, (13, self.timestamp), &[60, 130]);
            self.wait(10);
        }
        self.spurt = true;
    }

    /// A DTMF event of a tenth of a second, with three end packets.
    fn push_dtmf(&mut self) {
        let began = self.timestamp;
        self.spurt = true;
        for part in 1..=7_u32 {
            let end = if part >= 5 { 0x80 } else { 0 };
            #[allow(clippy::cast_possible_truncation, reason = "800 at most")]
            let [high, low] = ((part.min(5) * 160) as u16).to_be_bytes();
            self.packet(PacketKind::Dtmf, (DTMF_PAYLOAD_TYPE, began), &[7, end | 10, high, low]);
            self.wait(1);
        }
        self.spurt = true;
    }

    fn change_ssrc(&mut self) {
        self.ssrc = self.ssrc.wrapping_add(77);
        self.sequence = self.sequence.wrapping_add(20_000);
        self.timestamp = self.timestamp.wrapping_add(1 << 30);
        self.spurt = true;
    }

    fn change_address(&mut self) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "130")]
        self.wait((MOVE_PAUSE.as_secs_f64() / 0.02) as u32);
        (self.from, self.spurt) = (1, true);
    }

    /// A packet with the right SSRC and sequence number, but from another address.
    fn push_intruder(&mut self) {
        let header = header(0, self.sequence.wrapping_add(3), self.timestamp, self.ssrc);
        self.push(PacketKind::Intruder, 2, [&header[..], &[0x55; 160]].concat());
    }

    /// A sender report, with a BYE if `bye` (RFC 3550, 6.4.1 and 6.6).
    fn push_rtcp(&mut self, bye: bool) {
        let ssrc = self.ssrc.to_be_bytes();
        let mut bytes = vec![0x80, 200, 0, 6];
        bytes.extend(ssrc);
        bytes.extend([0xe8, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.timestamp.to_be_bytes());
        bytes.extend(self.count.to_be_bytes());
        bytes.extend((self.count * 160).to_be_bytes());
        // SDES: a name of one byte, and the end.
        bytes.extend([0x81, 202, 0, 2]);
        bytes.extend(ssrc);
        bytes.extend([1, 1, b'a', 0]);
        if bye {
            bytes.extend([0x81, 203, 0, 1]);
            bytes.extend(ssrc);
        }
        self.push(PacketKind::Rtcp, self.from, bytes);
    }
}

/// The number in a payload of any companding law: its first two bytes are the codes for a 0 and a 1
/// bit.
#[must_use]
pub fn number_of(payload: &[u8]) -> Option<u32> {
    let [none, one, bits @ ..] = payload else { return None };
    let bits = bits.get(..32)?;
    bits.iter().rev().try_fold(0, |number, bit| match bit {
        bit if bit == one => Some(number << 1 | 1),
        bit if bit == none => Some(number << 1),
        _ => None,
    })
}

fn header(kind: u8, sequence: u16, timestamp: u32, ssrc: u32) -> [u8; 12] {
    let mut header = [0x80, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&sequence.to_be_bytes());
    header[4..8].copy_from_slice(&timestamp.to_be_bytes());
    header[8..12].copy_from_slice(&ssrc.to_be_bytes());
    header
}
