//! A callback for a C library: a function and a pointer, without panics and without waiting.
#![allow(unsafe_code, reason = "it is what this example shows")]

use std::ffi::c_void;

use aulos_rt::pipe::{
    PipeConfig, PipeConfigError, PipeReader, SampleEncoding, UnderrunPolicy, pipe,
};
use aulos_rt::{RtLog, rt_log};

/// State of the callback.
struct Player {
    reader: PipeReader,
    log: RtLog<Underruns>,
}

#[derive(Clone, Copy, Debug)]
struct Underruns {
    bytes: usize,
}

/// # Safety
/// * `user` is the `Player` that was registered, and nothing else uses it during the call.
/// * `out` has room for `frames` frames of two 16-bit samples.
unsafe extern "C" fn on_period(user: *mut c_void, out: *mut i16, frames: usize, nanos: u64) {
    // SAFETY: the first promise above.
    let player = unsafe { &mut *user.cast::<Player>() };
    // SAFETY: the second promise above; any bytes are samples.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), frames * 4) };
    // Records when this frame is played, for synchronization with other rooms.
    player.reader.stamp(nanos);
    let read = player.reader.read(out);
    if read.padded > 0 {
        player.log.push(nanos, Underruns { bytes: read.padded });
    }
}

fn main() -> Result<(), PipeConfigError> {
    let audio = PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 4800);
    let (mut writer, reader) = pipe(&PipeConfig { underrun: UnderrunPolicy::Repeat, ..audio })?;
    let (log, entries) = rt_log(64);
    let mut player = Player { reader, log };
    let user: *mut c_void = (&raw mut player).cast();

    // The writer can be in any language; here it writes 25 ms.
    assert!(writer.write(&[7; 1200 * 4]).is_ok());
    // The library calls back every 10 ms.
    let mut out = [0_i16; 480 * 2];
    for period in 0..4 {
        // SAFETY: the player is alive, and `out` has room for 480 frames of two samples.
        unsafe { on_period(user, out.as_mut_ptr(), 480, period * 10_000_000) };
    }
    for entry in entries {
        println!("{} ms: {} bytes made up", entry.nanos / 1_000_000, entry.record.bytes);
    }
    println!("the card has taken up to {:?}", writer.reader_stamp());
    Ok(())
}
