//! Encoder of RTCP packets into a buffer of the caller.

use super::{
    BLOCK_LEN, COUNT, DlrrBlock, MAX_COUNT, MAX_TEXT, NtpTime, ReportBlock, SenderInfo, VERSION,
    packet_type,
};

/// Appends packets to a buffer. A packet that does not fit is omitted completely, and its method
/// returns false.
#[derive(Debug)]
pub struct RtcpWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> RtcpWriter<'a> {
    /// Writes to the front of `out`.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// SR, or RR without `sender`, with as many blocks as fit while `reserve` bytes remain for
    /// further packets; the other blocks are not consumed from `blocks`.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `blocks` does not.
    pub fn report(
        &mut self,
        ssrc: u32,
        sender: Option<SenderInfo>,
        reserve: usize,
        mut blocks: impl Iterator<Item = ReportBlock>,
    ) -> bool {
        let number = if sender.is_some() {
            packet_type::SENDER_REPORT
        } else {
            packet_type::RECEIVER_REPORT
        };
        self.packet(number, |this| {
            this.word(ssrc)?;
            if let Some(sender) = sender {
                this.put(&sender.ntp.to_bits().to_be_bytes())?;
                [sender.timestamp, sender.packets, sender.octets]
                    .into_iter()
                    .try_for_each(|word| this.word(word))?;
            }
            let mut count = 0;
            while count < MAX_COUNT && this.out.len() - this.len >= BLOCK_LEN + reserve {
                let Some(block) = blocks.next() else { break };
                this.block(&block)?;
                count += 1;
            }
            Some(count)
        })
    }

    /// SDES with the mandatory CNAME. A name longer than [`MAX_TEXT`] is truncated.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn cname(&mut self, ssrc: u32, name: &str) -> bool {
        self.packet(packet_type::SOURCE_DESCRIPTION, |this| {
            this.word(ssrc)?;
            this.put(&[packet_type::CNAME])?;
            let length = this.text(name)?;
            // The items end with at least one zero and are padded to a whole word.
            this.put([0; 4].get((length + 2) % 4..)?)?;
            Some(1)
        })
    }

    /// BYE for one source, with a reason unless it is empty. A reason longer than [`MAX_TEXT`] is
    /// truncated.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn bye(&mut self, ssrc: u32, reason: &str) -> bool {
        self.packet(packet_type::BYE, |this| {
            this.word(ssrc)?;
            if !reason.is_empty() {
                let length = this.text(reason)?;
                this.put([0; 4].get(..(length + 1).next_multiple_of(4) - length - 1)?)?;
            }
            Some(1)
        })
    }

    /// XR with a reference time; senders answer with a DLRR block.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn reference_time(&mut self, ssrc: u32, ntp: NtpTime) -> bool {
        self.packet(packet_type::EXTENDED, |this| {
            this.word(ssrc)?;
            this.put(&[packet_type::REFERENCE_TIME, 0, 0, 2])?;
            this.put(&ntp.to_bits().to_be_bytes())?;
            Some(0)
        })
    }

    /// XR with a DLRR block, with as many answers as fit.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `delays` does not.
    pub fn dlrr(&mut self, ssrc: u32, mut delays: impl Iterator<Item = DlrrBlock>) -> bool {
        self.packet(packet_type::EXTENDED, |this| {
            this.word(ssrc)?;
            let head = this.len;
            this.put(&[packet_type::DLRR, 0, 0, 0])?;
            let mut words = 0_u8;
            while usize::from(words) < 3 * MAX_COUNT && this.out.len() - this.len >= 12 {
                let Some(delay) = delays.next() else { break };
                [delay.ssrc, delay.last_report, delay.delay]
                    .into_iter()
                    .try_for_each(|word| this.word(word))?;
                words += 3;
            }
            *this.out.get_mut(head + 3)? = words;
            (words > 0).then_some(0)
        })
    }

    /// The packets written so far.
    #[must_use]
    pub fn finish(self) -> &'a [u8] {
        let Self { out, len } = self;
        out.get(..len).unwrap_or_default()
    }

    /// Writes a packet whose body returns its count; removes it when it does not fit.
    fn packet(&mut self, number: u8, body: impl FnOnce(&mut Self) -> Option<usize>) -> bool {
        let start = self.len;
        let written = self.put(&[VERSION << 6, number, 0, 0]).and_then(|()| body(self));
        let closed = written.and_then(|count| {
            let words = u16::try_from((self.len - start) / 4 - 1).ok()?;
            let [high, low] = words.to_be_bytes();
            let head = self.out.get_mut(start..)?.first_chunk_mut()?;
            let count = u8::try_from(count).ok()? & COUNT;
            *head = [VERSION << 6 | count, number, high, low];
            Some(())
        });
        if closed.is_none() {
            self.len = start;
        }
        closed.is_some()
    }

    fn block(&mut self, block: &ReportBlock) -> Option<()> {
        let [_, lost @ ..] = block.cumulative_lost.clamp(-0x80_0000, 0x7f_ffff).to_be_bytes();
        self.word(block.ssrc)?;
        self.put(&[block.fraction_lost])?;
        self.put(&lost)?;
        [block.highest, block.jitter, block.last_report, block.delay]
            .into_iter()
            .try_for_each(|word| self.word(word))
    }

    /// Writes a length and the text, truncated to [`MAX_TEXT`]; returns the length.
    fn text(&mut self, text: &str) -> Option<usize> {
        let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let text = text.get(..end?)?;
        self.put(&[u8::try_from(text.len()).ok()?])?;
        self.put(text.as_bytes())?;
        Some(text.len())
    }

    fn word(&mut self, word: u32) -> Option<()> {
        self.put(&word.to_be_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let place = self.out.get_mut(self.len..)?.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}
