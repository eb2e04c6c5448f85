//! The functions `aulos_pipe_*`.

use core::ffi::{c_int, c_void};

use aulos_rt::pipe::{
    Backpressure, BlockingReader, BlockingWriter, EndReason, OverflowPolicy, PipeConfig,
    PipeConfigError, PipeMonitor, PipeReader, PipeWriteError, PipeWriter, ReadOutcome,
    SampleEncoding, UnderrunPolicy, WriteOutcome, pipe,
};

use crate::error::{
    CResult, ErrorCode, buffer, buffer_mut, exclusive, run, run_quietly, shared, take, write,
};

/// `aulos_pipe_writer`.
#[derive(Debug)]
#[allow(unnameable_types, reason = "opaque to callers")]
pub struct WriterObject {
    end: WriterEnd,
    monitor: PipeMonitor,
    /// Bytes of a frame.
    frame: usize,
    /// Bytes that were reserved and may be committed.
    reserved: usize,
}

/// `aulos_pipe_reader`.
#[derive(Debug)]
#[allow(unnameable_types, reason = "opaque to callers")]
pub struct ReaderObject {
    end: ReaderEnd,
    monitor: PipeMonitor,
    frame: usize,
    /// Bytes that were seen in place and may be returned.
    peeked: usize,
}

/// The kind of an end never changes, so that a wait-free one makes no system call.
#[derive(Debug)]
enum WriterEnd {
    WaitFree(PipeWriter),
    Waiting(BlockingWriter),
}

#[derive(Debug)]
enum ReaderEnd {
    WaitFree(PipeReader),
    Waiting(BlockingReader),
}

/// `aulos_pipe_config`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct PipeSettings {
    pub capacity_frames: usize,
    pub rate: u32,
    pub channels: u32,
    pub sample: i32,
    pub overflow: i32,
    pub underrun: i32,
    pub writer_waits: i32,
    pub reader_waits: i32,
    pub pause_frames: usize,
    pub resume_frames: usize,
}

/// `aulos_pipe_written`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct WriteResult {
    pub stored: usize,
    pub dropped: usize,
}

/// `aulos_pipe_read_result`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct ReadResult {
    pub bytes: usize,
    pub padded: usize,
    pub skipped: usize,
    pub end: i32,
    pub failure: u32,
}

/// `aulos_pipe_status`, documented in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::exhaustive_structs, reason = "the header's")]
pub struct PipeStatus {
    pub capacity: usize,
    pub fill: usize,
    pub high_water: usize,
    pub dropped_frames: u64,
    pub padded_frames: u64,
    pub cleared_frames: u64,
}

/// Creates a pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_create(
    config: *const PipeSettings,
    writer: *mut *mut WriterObject,
    reader: *mut *mut ReaderObject,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        unsafe { write(writer, core::ptr::null_mut()) }?;
        // SAFETY: see the head of the crate.
        unsafe { write(reader, core::ptr::null_mut()) }?;
        // SAFETY: see the head of the crate.
        let (new_writer, new_reader) = unsafe { shared(config) }?.ends()?;
        // SAFETY: see the head of the crate.
        unsafe { write(writer, Box::into_raw(Box::new(new_writer))) }?;
        // SAFETY: see the head of the crate.
        unsafe { write(reader, Box::into_raw(Box::new(new_reader))) }
    })
}

/// Writes whole frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_write(
    writer: *mut WriterObject,
    data: *const c_void,
    bytes: usize,
    written: *mut WriteResult,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(writer) }?;
        // SAFETY: see the head of the crate.
        let data = unsafe { buffer(data.cast(), bytes) }?;
        object.reserved = 0;
        let outcome = match &mut object.end {
            WriterEnd::WaitFree(writer) => writer.write(data),
            WriterEnd::Waiting(writer) => writer.write(data),
        };
        let WriteOutcome { stored, dropped, .. } = outcome.map_err(write_error)?;
        if !written.is_null() {
            // SAFETY: see the head of the crate.
            unsafe { write(written, WriteResult { stored, dropped }) }?;
        }
        Ok(())
    })
}

/// Gives free memory of the pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_reserve(
    writer: *mut WriterObject,
    bytes: usize,
    data: *mut *mut c_void,
    reserved: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(writer) }?;
        // SAFETY: see the head of the crate.
        let (data, reserved) = (unsafe { exclusive(data) }?, unsafe { exclusive(reserved) }?);
        let free = match &mut object.end {
            WriterEnd::WaitFree(writer) => writer.reserve(bytes),
            WriterEnd::Waiting(writer) => writer.reserve(bytes).map_err(write_error)?,
        };
        object.reserved = free.len();
        (*data, *reserved) = (free.as_mut_ptr().cast(), free.len());
        Ok(())
    })
}

/// Hands reserved memory to the reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_commit(writer: *mut WriterObject, bytes: usize) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(writer) }?;
        if bytes > object.reserved || !bytes.is_multiple_of(object.frame) {
            return Err(ErrorCode::Argument);
        }
        object.reserved = 0;
        match &mut object.end {
            WriterEnd::WaitFree(writer) => writer.commit(bytes),
            WriterEnd::Waiting(writer) => writer.commit(bytes),
        }
        Ok(())
    })
}

/// Makes the reader skip what was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_clear(writer: *mut WriterObject) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        match &mut unsafe { exclusive(writer) }?.end {
            WriterEnd::WaitFree(writer) => writer.clear(),
            WriterEnd::Waiting(writer) => writer.get_mut().clear(),
        }
        Ok(())
    })
}

/// Ends the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_finish(writer: *mut WriterObject) {
    // SAFETY: see the head of the crate.
    run_quietly(|| unsafe { take(writer) }.into_iter().for_each(|object| object.close().finish()));
}

/// Ends the stream with an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_fail(writer: *mut WriterObject, failure: u32) {
    // SAFETY: see the head of the crate.
    let object = unsafe { take(writer) };
    run_quietly(|| object.into_iter().for_each(|object| object.close().fail(failure)));
}

/// Frees a writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_writer_destroy(writer: *mut WriterObject) {
    // SAFETY: see the head of the crate.
    run_quietly(|| drop(unsafe { take(writer) }));
}

/// Reads whole frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_read(
    reader: *mut ReaderObject,
    out: *mut c_void,
    bytes: usize,
    result: *mut ReadResult,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let (object, result) = (unsafe { exclusive(reader) }?, unsafe { exclusive(result) }?);
        // SAFETY: see the head of the crate.
        let out = unsafe { buffer_mut(out.cast(), bytes) }?;
        object.peeked = 0;
        let outcome = match &mut object.end {
            ReaderEnd::WaitFree(reader) => reader.read(out),
            // Without a monitor in C no wait is cancelled.
            ReaderEnd::Waiting(reader) => reader.read(out).map_err(|_| ErrorCode::Internal)?,
        };
        *result = ReadResult::of(outcome);
        Ok(())
    })
}

/// The next bytes in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_peek(
    reader: *mut ReaderObject,
    bytes: usize,
    data: *mut *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let (object, data) = (unsafe { exclusive(reader) }?, unsafe { exclusive(data) }?);
        let found = match &mut object.end {
            ReaderEnd::WaitFree(reader) => reader.peek(bytes),
            ReaderEnd::Waiting(reader) => {
                let found = reader.read_at_least(bytes).map_err(|_| ErrorCode::Argument)?;
                (found.len() >= bytes).then_some(found)
            }
        };
        object.peeked = if found.is_some() { bytes } else { 0 };
        *data = found.map_or(core::ptr::null(), |found| found.as_ptr().cast());
        Ok(())
    })
}

/// Returns bytes to the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_advance(reader: *mut ReaderObject, bytes: usize) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let object = unsafe { exclusive(reader) }?;
        if bytes > object.peeked || !bytes.is_multiple_of(object.frame) {
            return Err(ErrorCode::Argument);
        }
        object.peeked -= bytes;
        match &mut object.end {
            ReaderEnd::WaitFree(reader) => reader.advance(bytes, bytes),
            ReaderEnd::Waiting(reader) => reader.advance(bytes, bytes),
        }
        Ok(())
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_reader_destroy(reader: *mut ReaderObject) {
    // SAFETY: see the head of the crate.
    run_quietly(|| drop(unsafe { take(reader) }));
}

/// Figures of the pipe, for the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_writer_status(
    writer: *const WriterObject,
    status: *mut PipeStatus,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let now = PipeStatus::of(&unsafe { shared(writer) }?.monitor);
        // SAFETY: see the head of the crate.
        unsafe { write(status, now) }
    })
}

/// Figures of the pipe, for the reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aulos_pipe_reader_status(
    reader: *const ReaderObject,
    status: *mut PipeStatus,
) -> c_int {
    run(|| {
        // SAFETY: see the head of the crate.
        let now = PipeStatus::of(&unsafe { shared(reader) }?.monitor);
        // SAFETY: see the head of the crate.
        unsafe { write(status, now) }
    })
}

impl PipeSettings {
    fn ends(&self) -> CResult<(WriterObject, ReaderObject)> {
        let frames = |frames: usize| (frames > 0).then_some(frames);
        let config = PipeConfig {
            capacity_frames: self.capacity_frames,
            sample: nth_choice(self.sample, &SAMPLE_ENCODINGS)?,
            channels: self.channels as usize,
            rate: self.rate,
            overflow: nth_choice(self.overflow, &OverflowPolicy::ALL)?,
            underrun: nth_choice(self.underrun, &UnderrunPolicy::ALL)?,
            backpressure: Backpressure {
                pause_frames: frames(self.pause_frames),
                resume_frames: frames(self.resume_frames),
            },
            mirrored: true,
        };
        let frame = config.sample.bytes().checked_mul(config.channels);
        let frame = frame.ok_or(ErrorCode::Argument)?;
        let (writer, reader) = pipe(&config).map_err(|error| match error {
            PipeConfigError::OutOfMemory => ErrorCode::Memory,
            _ => ErrorCode::Argument,
        })?;
        let monitor = writer.monitor();
        let writer = match self.writer_waits {
            0 => WriterEnd::WaitFree(writer),
            _ => WriterEnd::Waiting(writer.blocking()),
        };
        let reader = match self.reader_waits {
            0 => ReaderEnd::WaitFree(reader),
            _ => ReaderEnd::Waiting(reader.blocking()),
        };
        let reader = ReaderObject { end: reader, monitor: monitor.clone(), frame, peeked: 0 };
        Ok((WriterObject { end: writer, monitor, frame, reserved: 0 }, reader))
    }
}

impl WriterObject {
    fn close(self) -> PipeWriter {
        match self.end {
            WriterEnd::WaitFree(writer) => writer,
            WriterEnd::Waiting(writer) => writer.into_inner(),
        }
    }
}

impl ReadResult {
    fn of(outcome: ReadOutcome) -> Self {
        let ReadOutcome { bytes, padded, skipped, end, .. } = outcome;
        let (end, failure) = match end {
            None => (0, 0),
            Some(EndReason::Finished) => (1, 0),
            Some(EndReason::Failed(code)) => (2, code),
            Some(_) => (3, 0),
        };
        Self { bytes, padded, skipped, end, failure }
    }
}

impl PipeStatus {
    fn of(monitor: &PipeMonitor) -> Self {
        Self {
            capacity: monitor.capacity().bytes,
            fill: monitor.fill().bytes,
            high_water: monitor.high_water().bytes,
            dropped_frames: monitor.dropped_frames(),
            padded_frames: monitor.padded_frames(),
            cleared_frames: monitor.cleared_frames(),
        }
    }
}

fn write_error(error: PipeWriteError) -> ErrorCode {
    match error {
        PipeWriteError::Full { .. } => ErrorCode::Full,
        PipeWriteError::ReaderGone => ErrorCode::Gone,
        // Without a monitor in C no wait is cancelled.
        _ => ErrorCode::Internal,
    }
}

fn nth_choice<T: Copy>(number: i32, all: &[T]) -> CResult<T> {
    let found = usize::try_from(number).ok().and_then(|at| all.get(at));
    found.copied().ok_or(ErrorCode::Argument)
}

/// `enum aulos_pipe_sample`.
const SAMPLE_ENCODINGS: [SampleEncoding; 8] = [
    SampleEncoding::Bytes,
    SampleEncoding::U8,
    SampleEncoding::MuLaw,
    SampleEncoding::ALaw,
    SampleEncoding::S16Le,
    SampleEncoding::S24Le,
    SampleEncoding::S32Le,
    SampleEncoding::F32Le,
];
