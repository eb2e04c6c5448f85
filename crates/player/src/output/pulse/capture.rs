//! A record stream of PulseAudio or PipeWire, over the server's unix socket. Nothing here waits.

use std::os::fd::OwnedFd;

use aulos_core::{Frames, Instant, SampleFormat, SampleSpec};

use super::record::{RecordClient, RecordConfig};
use super::server;
use super::wire::{MAX_CHANNELS, sample_format};
use crate::capture::device::{CaptureDevice, CaptureError};

/// A source of a sound server.
#[derive(Debug)]
pub(crate) struct PulseCapture {
    socket: OwnedFd,
    client: RecordClient,
    spec: SampleSpec,
}

impl PulseCapture {
    /// Connects to the server and asks for a stream of `source`, or of its default source.
    pub(crate) fn open(
        source: Option<&str>,
        mut spec: SampleSpec,
        now: Instant,
    ) -> Result<Self, CaptureError> {
        let failed = |(path, error)| CaptureError::Device {
            name: format!("the sound server at {path}"),
            error,
        };
        let socket = server::connect_server().map_err(failed)?;
        if sample_format(spec.format).is_none() {
            spec.format = SampleFormat::S16Le;
        }
        if spec.layout.channels() > usize::from(MAX_CHANNELS) {
            let error = std::io::Error::other(format!("it has at most {MAX_CHANNELS} channels"));
            return Err(CaptureError::Device { name: "the sound server".to_owned(), error });
        }
        let config = RecordConfig {
            spec,
            source: source.map(str::to_owned).or_else(server::preferred_source),
            fragment: Frames(u64::from(spec.rate.hz() / FRAGMENTS_PER_SECOND).max(1)),
            cookie: server::cookie(),
        };
        Ok(Self { socket, client: RecordClient::new(config, now), spec })
    }

    fn exchange(&mut self, now: Instant) -> Result<(), CaptureError> {
        let Self { socket, client, .. } = self;
        client.handle_timeout(now)?;
        let failed =
            |client: &RecordClient, error| CaptureError::Device { name: client.name(), error };
        server::flush(socket, client.output_mut()).map_err(|error| failed(client, error))?;
        if client.is_full() {
            return Ok(());
        }
        let mut refused = None;
        let received = server::receive(socket, |bytes| {
            if refused.is_none() {
                refused = client.handle_input(now, bytes).err();
            }
            Ok(())
        });
        match refused {
            Some(error) => Err(error),
            None => received.map_err(|error| failed(client, error)),
        }
    }
}

impl CaptureDevice for PulseCapture {
    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn read(&mut self, now: Instant, into: &mut [u8]) -> Result<usize, CaptureError> {
        self.exchange(now)?;
        Ok(self.client.read(into))
    }

    fn is_suspended(&self) -> bool {
        self.client.is_suspended()
    }

    fn overruns(&self) -> u64 {
        // The server does not report what it has dropped.
        0
    }
}

impl Drop for PulseCapture {
    fn drop(&mut self) {
        self.client.delete();
        // The server notices the end of the connection as well.
        drop(server::flush(&self.socket, self.client.output_mut()));
    }
}

/// Samples come in parts of 20 ms.
const FRAGMENTS_PER_SECOND: u32 = 50;
