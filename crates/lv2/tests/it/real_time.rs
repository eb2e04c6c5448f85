//! `run` neither allocates nor frees nor makes a system call, whatever the controls do: the proof
//! of `lv2:hardRTCapable`.

use aulos_blackbox::alloc::calls_during;
#[cfg(target_os = "linux")]
use aulos_blackbox::syscalls::{NONE, guarded};
use aulos_lv2::table::PLUGINS;

use crate::host::{Host, linked};
use crate::programme;

/// A host that is ready to run, with the memory of its ports.
struct Session {
    host: Host,
    input: Vec<Vec<f32>>,
    output: Vec<Vec<f32>>,
}

// The test hands it to one other thread.
unsafe impl Send for Session {}

impl Session {
    fn new(uri: &str) -> Self {
        let mut host = Host::new(linked(), uri);
        host.run_connected(0);
        let planes = || vec![programme(0.1, 1); host.plugin.channels];
        let (input, output) = (planes(), planes());
        Self { host, input, output }
    }

    /// Blocks of all sizes while every control moves over its range, and out of it.
    fn run(&mut self) {
        for round in 0_u16..60 {
            for port in self.host.plugin.inputs() {
                let way = f32::from(round % 7) / 5.0;
                *self.host.control(port.symbol) = port.min + (port.max - port.min) * way;
            }
            for frames in [0, 1, 64, 257, 4_096] {
                self.host.run(&mut self.input, &mut self.output, frames);
            }
            self.input[0][5] = f32::NAN;
        }
    }
}

#[test]
fn nothing_is_allocated_while_it_runs() {
    assert_eq!(calls_during(|| drop(std::hint::black_box(Box::new(1)))), 2);
    for plugin in &PLUGINS {
        let mut session = Session::new(plugin.uri.to_str().unwrap());
        assert_eq!(calls_during(|| session.run()), 0, "{}", plugin.name);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_system_call_is_made_while_it_runs() {
    assert_ne!(guarded(std::thread::yield_now), NONE);
    for plugin in &PLUGINS {
        let session = Session::new(plugin.uri.to_str().unwrap());
        let work = move || {
            let mut session = session;
            session.run();
            std::mem::forget(session);
        };
        assert_eq!(guarded(work), NONE, "{}", plugin.name);
    }
}
