//! Boxes, and fields in them (ISO/IEC 14496-12, 4.2).

/// The header of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoxHeader {
    pub(super) kind: [u8; 4],
    /// Bytes of the header.
    pub(super) header: u64,
    /// Bytes of the whole box; `None` where it goes on to the end.
    pub(super) size: Option<u64>,
}

impl BoxHeader {
    /// `None` when bytes are missing.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let (header, size) = match u32::from_be_bytes(*size) {
            0 => (8, None),
            1 => (16, Some(u64::from_be_bytes(*rest.first_chunk()?).max(16))),
            size => (8, Some(u64::from(size).max(8))),
        };
        Some(Self { kind: *kind, header, size })
    }

    /// Whether its type is one of letters and digits.
    pub(super) fn is_plausible(&self) -> bool {
        self.kind.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b' ')
    }
}

/// The boxes in `bytes`, with their contents; what does not fit ends them.
pub(super) fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    core::iter::from_fn(move || {
        let header = BoxHeader::parse(bytes)?;
        let size = header.size.map_or(Some(bytes.len()), |size| usize::try_from(size).ok())?;
        let (whole, behind) = bytes.split_at_checked(size)?;
        bytes = behind;
        Some((header.kind, whole.get(usize::try_from(header.header).ok()?..)?))
    })
}

/// The contents of the first box of this type.
pub(super) fn find<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(bytes).find(|(found, _)| found == kind).map(|(_, content)| content)
}

/// Reads big-endian fields from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number of 32 bits, or of 64 in version 1 of a box.
    pub(super) fn sized(&mut self, version: u8) -> Option<u64> {
        if version == 1 { self.u64() } else { self.u32().map(u64::from) }
    }

    /// The version and the flags of a box.
    pub(super) fn version(&mut self) -> Option<(u8, u32)> {
        let [version, flags @ ..] = self.array::<4>()?;
        Some((version, flags.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))))
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The bytes up to a zero, which is skipped.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let text = self.take(self.0.iter().position(|byte| *byte == 0)?)?;
        self.take(1)?;
        Some(text)
    }
}
