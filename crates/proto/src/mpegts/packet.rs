//! Packets of 188 bytes (ISO/IEC 13818-1, 2.4.3.2).

/// Bytes of a packet.
pub const TS_PACKET: usize = 188;

/// Whether this byte begins a packet.
pub(crate) const fn is_sync(byte: u8) -> bool {
    byte == 0x47
}

/// The header of a packet, and its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct TsPacket<'a> {
    pub(super) pid: u16,
    /// A table or a PES packet begins in it.
    pub(super) starts_unit: bool,
    pub(super) is_scrambled: bool,
    /// Counter of the packets with a payload of this PID, modulo 16.
    pub(super) continuity: u8,
    /// The counter may jump here.
    pub(super) is_discontinuous: bool,
    /// Empty when the packet has none.
    pub(super) payload: &'a [u8],
}

impl<'a> TsPacket<'a> {
    /// `None` for what is not a packet, or is one that its sender marked as damaged.
    pub(super) fn parse(bytes: &'a [u8; TS_PACKET]) -> Option<Self> {
        let [sync, high, low, control, rest @ ..] = bytes;
        let is_damaged = high & 0x80 != 0;
        if !is_sync(*sync) || is_damaged {
            return None;
        }
        let (has_adaptation, has_payload) = (control & 0x20 != 0, control & 0x10 != 0);
        let (adaptation, payload) = if has_adaptation {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))?
        } else {
            (&[][..], &rest[..])
        };
        Some(Self {
            pid: u16::from(high & 0x1f) << 8 | u16::from(*low),
            starts_unit: high & 0x40 != 0,
            is_scrambled: control & 0xc0 != 0,
            continuity: control & 0x0f,
            is_discontinuous: adaptation.first().is_some_and(|flags| flags & 0x80 != 0),
            payload: if has_payload { payload } else { &[] },
        })
    }
}

/// Follows the counter of one PID.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContinuityCounter(Option<u8>);

/// What the counter of a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    /// It follows the last one.
    Next,
    /// It repeats the last one, and so is to be ignored.
    Repeated,
    /// Packets before it are missing.
    Lost,
}

impl ContinuityCounter {
    pub(super) fn follow(&mut self, packet: &TsPacket<'_>) -> Continuity {
        // The counter does not move without a payload.
        if packet.payload.is_empty() {
            return Continuity::Repeated;
        }
        let last = self.0.replace(packet.continuity);
        match last {
            None => Continuity::Next,
            Some(_) if packet.is_discontinuous => Continuity::Lost,
            Some(last) if last == packet.continuity => Continuity::Repeated,
            Some(last) if (last + 1) & 0x0f == packet.continuity => Continuity::Next,
            Some(_) => Continuity::Lost,
        }
    }
}
