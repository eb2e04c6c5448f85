//! The calls of the kernel's PCM devices.
//!
//! Structures and numbers are those of `sound/asound.h`, the kernel's interface to programs. The
//! position is asked for by `DELAY`, whose answer is one number: `STATUS` has stamps of the
//! kernel's clock as well, but in four layouts, by the width of words and of times.

#![allow(unsafe_code, reason = "system calls")]

use core::ffi::{c_long, c_ulong, c_void};
use core::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Updater, ioctl, opcode};

/// What a device can do, or is to do: sets of values, which the kernel narrows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct HwParams {
    flags: u32,
    masks: [[u32; 8]; 3],
    reserved_masks: [[u32; 8]; 5],
    intervals: [Interval; 12],
    reserved_intervals: [Interval; 9],
    /// Sets that the program has changed, and that the kernel has.
    requested: u32,
    changed: u32,
    info: u32,
    significant_bits: u32,
    rate: [u32; 2],
    fifo: c_ulong,
    reserved: [u8; 64],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Interval {
    min: u32,
    max: u32,
    flags: u32,
}

/// A set that is a mask, by its place among them.
#[derive(Clone, Copy, Debug)]
pub(super) enum MaskParameter {
    Access = 0,
    Format = 1,
}

/// A set that is an interval, by its place among them.
#[derive(Clone, Copy, Debug)]
pub(super) enum IntervalParameter {
    Channels = 2,
    Rate = 3,
    PeriodSize = 5,
    BufferSize = 9,
}

impl HwParams {
    /// All that there is.
    pub(super) const fn any() -> Self {
        let all = Interval { min: 0, max: u32::MAX, flags: 0 };
        Self {
            flags: 0,
            masks: [[u32::MAX; 8]; 3],
            reserved_masks: [[0; 8]; 5],
            intervals: [all; 12],
            reserved_intervals: [Interval { min: 0, max: 0, flags: 0 }; 9],
            requested: u32::MAX,
            changed: 0,
            info: u32::MAX,
            significant_bits: 0,
            rate: [0; 2],
            fifo: 0,
            reserved: [0; 64],
        }
    }

    pub(super) fn has(&self, which: MaskParameter, value: u8) -> bool {
        self.masks[which as usize][usize::from(value / 32)] & (1 << (value % 32)) != 0
    }

    pub(super) fn fix(&mut self, which: MaskParameter, value: u8) {
        let mask = &mut self.masks[which as usize];
        *mask = [0; 8];
        mask[usize::from(value / 32)] = 1 << (value % 32);
    }

    /// Keeps these values of a mask.
    #[cfg(test)]
    pub(super) fn keep(&mut self, which: MaskParameter, values: &[u8]) {
        let mut mask = [0; 8];
        values.iter().for_each(|value| mask[usize::from(value / 32)] |= 1 << (value % 32));
        self.masks[which as usize] = mask;
    }

    pub(super) const fn range(&self, which: IntervalParameter) -> RangeInclusive<u32> {
        let Interval { min, max, .. } = self.intervals[which as usize];
        min..=max
    }

    /// Narrows to whole numbers of a range.
    pub(super) const fn narrow(&mut self, which: IntervalParameter, range: &RangeInclusive<u32>) {
        let (min, max) = (*range.start(), *range.end());
        self.intervals[which as usize] = Interval { min, max, flags: INTEGER };
        self.requested = u32::MAX;
    }
}

/// The third of the bit fields, which the compiler of the kernel lays out.
const INTEGER: u32 = if cfg!(target_endian = "little") { 1 << 2 } else { 1 << 29 };

/// When a device begins and stops, and wakes its program.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SwParams {
    stamp_mode: i32,
    period_step: u32,
    min_sleep: u32,
    pub(super) min_room: c_ulong,
    transfer_align: c_ulong,
    /// Frames at which it begins by itself.
    pub(super) start_threshold: c_ulong,
    /// Room at which it stops: an underrun.
    pub(super) stop_threshold: c_ulong,
    silence_threshold: c_ulong,
    silence_size: c_ulong,
    boundary: c_ulong,
    protocol: u32,
    stamp_type: u32,
    reserved: [u8; 56],
}

impl SwParams {
    /// A device that begins when it is told to, and stops when its buffer is empty.
    pub(super) const fn new(period: c_ulong, buffer: c_ulong) -> Self {
        Self {
            stamp_mode: 0,
            period_step: 1,
            min_sleep: 0,
            min_room: period,
            transfer_align: 1,
            start_threshold: c_ulong::MAX >> 1,
            stop_threshold: buffer,
            silence_threshold: 0,
            silence_size: 0,
            boundary: 0,
            protocol: 0,
            stamp_type: 0,
            reserved: [0; 56],
        }
    }
}

#[repr(C)]
struct Transfer {
    result: c_long,
    samples: *const c_void,
    frames: c_ulong,
}

// A word is as wide as a pointer on everything that Linux runs on.
const WORD: usize = size_of::<c_long>();
const _: () = assert!(size_of::<HwParams>() == 600 + WORD);
const _: () = assert!(size_of::<SwParams>() == 72 + 8 * WORD);
const _: () = assert!(size_of::<Transfer>() == 3 * WORD);

const HW_REFINE: Opcode = opcode::read_write::<HwParams>(GROUP, 0x10);
const HW_PARAMS: Opcode = opcode::read_write::<HwParams>(GROUP, 0x11);
const SW_PARAMS: Opcode = opcode::read_write::<SwParams>(GROUP, 0x13);
const DELAY: Opcode = opcode::read::<c_long>(GROUP, 0x21);
const PREPARE: Opcode = opcode::none(GROUP, 0x40);
const START: Opcode = opcode::none(GROUP, 0x42);
const DROP: Opcode = opcode::none(GROUP, 0x43);
const WRITEI_FRAMES: Opcode = opcode::write::<Transfer>(GROUP, 0x50);
const GROUP: u8 = b'A';

/// The calls of a device, or of one that a test simulates.
pub(super) trait PcmCalls: core::fmt::Debug + Send {
    /// Narrows the sets to what the device can do; `EINVAL` if one of them is empty then.
    fn refine(&mut self, params: &mut HwParams) -> Result<(), Errno>;
    /// The same, and chooses from what remains: the shortest period and the longest buffer.
    fn set_hardware(&mut self, params: &mut HwParams) -> Result<(), Errno>;
    fn set_software(&mut self, params: &mut SwParams) -> Result<(), Errno>;
    fn prepare(&mut self) -> Result<(), Errno>;
    fn start(&mut self) -> Result<(), Errno>;
    fn drop(&mut self) -> Result<(), Errno>;
    /// Frames from the next one that is written to the loudspeaker.
    fn delay(&mut self) -> Result<c_long, Errno>;
    /// Writes whole frames of so many bytes; returns their number.
    fn write(&mut self, bytes: &[u8], frame_bytes: usize) -> Result<c_long, Errno>;
}

impl PcmCalls for OwnedFd {
    fn refine(&mut self, params: &mut HwParams) -> Result<(), Errno> {
        // SAFETY: here and below, the number is that of the call for this structure.
        let call = unsafe { Updater::<HW_REFINE, _>::new(params) };
        // SAFETY: as above; a descriptor of another kind refuses the call.
        unsafe { ioctl(self, call) }
    }

    fn set_hardware(&mut self, params: &mut HwParams) -> Result<(), Errno> {
        // SAFETY: as in `refine`.
        let call = unsafe { Updater::<HW_PARAMS, _>::new(params) };
        // SAFETY: as in `refine`.
        unsafe { ioctl(self, call) }
    }

    fn set_software(&mut self, params: &mut SwParams) -> Result<(), Errno> {
        // SAFETY: as in `refine`.
        let call = unsafe { Updater::<SW_PARAMS, _>::new(params) };
        // SAFETY: as in `refine`.
        unsafe { ioctl(self, call) }
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        // SAFETY: the call has no argument, here and below.
        let call = unsafe { NoArg::<PREPARE>::new() };
        // SAFETY: as above.
        unsafe { ioctl(self, call) }
    }

    fn start(&mut self) -> Result<(), Errno> {
        // SAFETY: as in `prepare`.
        let call = unsafe { NoArg::<START>::new() };
        // SAFETY: as in `prepare`.
        unsafe { ioctl(self, call) }
    }

    fn drop(&mut self) -> Result<(), Errno> {
        // SAFETY: as in `prepare`.
        let call = unsafe { NoArg::<DROP>::new() };
        // SAFETY: as in `prepare`.
        unsafe { ioctl(self, call) }
    }

    fn delay(&mut self) -> Result<c_long, Errno> {
        // SAFETY: the call gives one number.
        let call = unsafe { Getter::<DELAY, c_long>::new() };
        // SAFETY: as above.
        unsafe { ioctl(self, call) }
    }

    fn write(&mut self, bytes: &[u8], frame_bytes: usize) -> Result<c_long, Errno> {
        let frames = (bytes.len() / frame_bytes) as c_ulong;
        let mut transfer = Transfer { result: 0, samples: bytes.as_ptr().cast(), frames };
        // SAFETY: as in `refine`.
        let call = unsafe { Updater::<WRITEI_FRAMES, _>::new(&mut transfer) };
        // SAFETY: the kernel reads so many frames of the configured spec, which `bytes` has.
        unsafe { ioctl(self, call) }?;
        Ok(transfer.result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers have the direction and size of their structures; these are those of
    /// `sound/asound.h`, protocol 2.0.15, as a C compiler finds them.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn numbers_are_those_of_the_kernel() {
        let (refine, params, software) = (HW_REFINE, HW_PARAMS, SW_PARAMS);
        assert_eq!([refine, params, software], [0xc260_4110, 0xc260_4111, 0xc088_4113]);
        assert_eq!([DELAY, WRITEI_FRAMES], [0x8008_4121, 0x4018_4150]);
        assert_eq!([PREPARE, START, DROP], [0x4140, 0x4142, 0x4143]);
        assert_eq!(core::mem::offset_of!(HwParams, intervals), 260);
        assert_eq!(core::mem::offset_of!(HwParams, requested), 512);
        assert_eq!(core::mem::offset_of!(HwParams, fifo), 536);
        assert_eq!(core::mem::offset_of!(SwParams, start_threshold), 32);
        assert_eq!(core::mem::offset_of!(SwParams, protocol), 72);
    }

    #[test]
    fn sets_are_narrowed_where_they_are() {
        let mut params = HwParams::any();
        params.fix(MaskParameter::Format, 32);
        assert_eq!([params.masks[1][0], params.masks[1][1], params.masks[0][0]], [0, 1, u32::MAX]);
        assert!(params.has(MaskParameter::Format, 32) && !params.has(MaskParameter::Format, 2));
        params.narrow(IntervalParameter::Rate, &(44_100..=44_100));
        assert_eq!(params.range(IntervalParameter::Rate), 44_100..=44_100);
        assert_eq!(params.range(IntervalParameter::BufferSize), 0..=u32::MAX);
    }
}
