//! The writer's thread: one for all files of a device.
//!
//! It drains before it sleeps. After finding little it sleeps until a ring has enough for a write,
//! or the oldest byte has waited [`BATCH_DELAY`]; after finding nothing, until the first byte. So a
//! producer at full rate causes no wake-ups, and a trickle costs two per [`BATCH_DELAY`].
//!
//! Real-time producers wake no thread, so they are polled: soon again after much data, and less and
//! less often otherwise.

use std::io;
use std::time::Duration;

use aulos_core::{Instant, Span};
use aulos_rt::channel::{Receiver, UnboundedSender, unbounded};
use aulos_rt::writer_ring::{ConsumerWaker, RecordConsumer};

use super::sink::{FileSink, RequestKind};
use super::ticket::TicketReply;
use crate::SystemClock;
use crate::disk::{SyncCallback, Syncer};

pub(super) enum WriterCommand {
    Open(Box<FileSink>),
    Attach { file: u64, number: u64, ring: RecordConsumer, is_realtime: bool },
    Ask { file: u64, want: RequestKind, reply: TicketReply },
    Synced { file: u64, up_to: u64, result: io::Result<()> },
    End,
}

/// The handle to the thread.
#[derive(Clone)]
pub(super) struct WriterHandle {
    commands: UnboundedSender<WriterCommand>,
    consumer_waker: ConsumerWaker,
}

impl WriterHandle {
    pub(super) fn send(&self, command: WriterCommand) {
        // If the thread has ended, the dropped command reports it to its caller.
        drop(self.commands.send(command));
        self.consumer_waker.wake();
    }

    /// Tells the thread the result of a sync.
    fn sync_callback(&self, file: u64, up_to: u64) -> SyncCallback {
        let handle = self.clone();
        Box::new(move |result| handle.send(WriterCommand::Synced { file, up_to, result }))
    }

    pub(super) fn consumer_waker(&self) -> &ConsumerWaker {
        &self.consumer_waker
    }
}

/// Starts the writing and the syncing thread.
///
/// # Errors
/// When the system has no threads left.
pub(super) fn start() -> io::Result<WriterHandle> {
    let (commands, received) = unbounded();
    let handle = WriterHandle { commands, consumer_waker: ConsumerWaker::default() };
    let syncer = Syncer::start()?;
    let thread = WriterThread {
        commands: received,
        handle: handle.clone(),
        syncer,
        sinks: Vec::new(),
        is_ending: false,
        oldest: None,
        poll: BATCH_DELAY,
    };
    // It is not joined, because with a hanging disk that could block for ever. It ends when its
    // files are done.
    std::thread::Builder::new().name("aulos-disk".to_owned()).spawn(move || thread.run())?;
    Ok(handle)
}

struct WriterThread {
    commands: Receiver<WriterCommand>,
    handle: WriterHandle,
    syncer: Syncer,
    sinks: Vec<FileSink>,
    is_ending: bool,
    /// When the oldest byte of the current batch was seen.
    oldest: Option<Instant>,
    /// The time until the next poll of real-time producers.
    poll: Span,
}

impl WriterThread {
    fn run(mut self) {
        loop {
            self.handle_commands();
            self.sinks.retain(|sink| !sink.is_over());
            if self.is_ending && self.sinks.is_empty() {
                return;
            }
            let now = SystemClock::now();
            if self.is_due(now) {
                self.oldest = None;
                for sink in &mut self.sinks {
                    let number = sink.number;
                    sink.work(now, &self.syncer, |up_to| self.handle.sync_callback(number, up_to));
                }
            } else {
                self.sleep(now);
                self.poll = (self.poll * 2).min(BATCH_DELAY);
            }
        }
    }

    fn handle_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                WriterCommand::Open(sink) => self.sinks.push(*sink),
                WriterCommand::Attach { file, number, ring, is_realtime } => {
                    // Without the file the ring is dropped here, which closes it.
                    if let Some(sink) = self.sink(file) {
                        sink.attach(number, ring, is_realtime);
                    }
                }
                WriterCommand::Ask { file, want, reply } => {
                    if let Some(sink) = self.sink(file) {
                        sink.request(want, reply);
                    }
                }
                WriterCommand::Synced { file, up_to, result } => {
                    if let Some(sink) = self.sink(file) {
                        sink.synced(up_to, result);
                    }
                }
                WriterCommand::End => self.is_ending = true,
            }
        }
    }

    fn sink(&mut self, file: u64) -> Option<&mut FileSink> {
        self.sinks.iter_mut().find(|sink| sink.number == file)
    }

    /// Whether a sink is due, or waiting data has waited long enough.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.sinks.iter().any(|sink| sink.is_due(now, WAKE_AT)) {
            self.poll = SHORTEST_POLL;
            return true;
        }
        if !self.sinks.iter().any(|sink| sink.has_bytes(now)) {
            self.oldest = None;
            return false;
        }
        let oldest = *self.oldest.get_or_insert(now);
        now >= oldest + BATCH_DELAY
    }

    fn sleep(&self, now: Instant) {
        let wake_at = if self.oldest.is_some() { WAKE_AT } else { 1 };
        let company = self.oldest.map(|oldest| oldest + BATCH_DELAY);
        let is_polling = self.sinks.iter().any(FileSink::has_realtime);
        let poll = is_polling.then(|| now + self.poll);
        let rests = self.sinks.iter().filter_map(FileSink::paused_until);
        let until = company.into_iter().chain(poll).chain(rests).min();
        let limit = until.map(|until| Duration::from(until.since(now)));
        self.handle.consumer_waker.sleep(wake_at, limit, || {
            !self.commands.is_empty() || self.sinks.iter().any(|sink| sink.is_due(now, wake_at))
        });
    }
}

/// A ring with this much is worth a write. A write of a quarter of a megabyte is as efficient as
/// one of a megabyte, and fits a small cache.
const WAKE_AT: usize = 64 * 1024;

/// How long a single record waits for others before it is written: short compared with what a
/// killed process may lose, long compared with a system call.
pub(super) const BATCH_DELAY: Span = Span::from_millis(5);

/// The shortest interval between two polls of real-time producers.
const SHORTEST_POLL: Span = Span::from_micros(200);

/// Ends the thread when the last handle that can open a file is dropped.
pub(super) struct ThreadGuard(pub(super) WriterHandle);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.send(WriterCommand::End);
    }
}
