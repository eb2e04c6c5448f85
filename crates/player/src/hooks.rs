//! Programs that are run when sound begins and ends, and when the volume changes.
//!
//! They run on threads of their own, one at a time: neither the player's thread nor the messages
//! wait for them. Of events that come meanwhile the newest one is kept, because it is the state
//! that counts.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_core::{Instant, Span};
use aulos_proto::snap::wire::ServerSettings;
use aulos_rt::{LineSender, isolate_child};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock;
use crate::messages;
use crate::mixer::Mixer;

/// Programs that follow the sound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "options of the command line")]
pub struct HookConfig {
    /// Command line for the shell when sound begins.
    pub on_start: Option<String>,
    /// The same when it has ended, and when the player ends.
    pub on_stop: Option<String>,
    /// From the end of the sound to `on_stop`.
    pub stop_after: Span,
}

/// Runs the hooks and the script of the mixer.
#[derive(Debug)]
pub(crate) struct HookRunner {
    config: HookConfig,
    /// From the end of the sound to the event that reports it.
    reported_after: Span,
    player: String,
    hooks: Option<Worker>,
    mixer: Option<(Worker, Mixer)>,
    /// Whether the last hook that was due is `on_start`.
    is_started: bool,
    /// When `on_stop` is due.
    stop_at: Option<Instant>,
}

impl HookRunner {
    /// Starts a thread for each kind of program that there is.
    pub(crate) fn start(
        config: HookConfig,
        reported_after: Span,
        player: String,
        mixer: Mixer,
        messages: &LineSender,
    ) -> io::Result<Self> {
        let has_hooks = config.on_start.is_some() || config.on_stop.is_some();
        let hooks = if has_hooks { Some(Worker::start(messages)?) } else { None };
        let mixer = match mixer {
            Mixer::Script(_) => Some((Worker::start(messages)?, mixer)),
            Mixer::Software | Mixer::None => None,
        };
        let (is_started, stop_at) = (false, None);
        Ok(Self { config, reported_after, player, hooks, mixer, is_started, stop_at })
    }

    /// Sound begins, or has ended `reported_after` ago.
    pub(crate) fn sounding(&mut self, is_sounding: bool, server: &str, now: Instant) {
        let rest = self.config.stop_after - self.reported_after;
        self.stop_at = (!is_sounding && self.is_started).then(|| now + rest.max(Span::ZERO));
        if is_sounding && !self.is_started {
            self.is_started = true;
            self.run("sound", server);
        }
        self.handle_timeout(server, now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.stop_at
    }

    /// Runs `on_stop` if it is due.
    pub(crate) fn handle_timeout(&mut self, server: &str, now: Instant) {
        if self.stop_at.take_if(|at| *at <= now).is_some() {
            self.is_started = false;
            self.run("silence", server);
        }
    }

    /// The server has set the volume.
    pub(crate) fn settings(&self, settings: &ServerSettings) {
        if let Some((worker, Mixer::Script(path))) = &self.mixer
            && cfg!(feature = "hooks")
        {
            let volume = f64::from(settings.volume) / 100.0;
            let mut command = isolated(path.as_os_str());
            command.args(["--volume", &volume.to_string()]);
            command.args(["--mute", &settings.muted.to_string()]);
            worker.run(command);
        }
    }

    fn run(&self, event: &str, server: &str) {
        if !cfg!(feature = "hooks") {
            return;
        }
        let line = if event == "sound" { &self.config.on_start } else { &self.config.on_stop };
        if let (Some(worker), Some(line)) = (&self.hooks, line) {
            let mut command = isolated("/bin/sh".as_ref());
            command.args(["-c", line]).env("AULOS_EVENT", event);
            command.env("AULOS_SERVER", server).env("AULOS_PLAYER", &self.player);
            command.env("AULOS_TEXT", format!("{}: {event}", self.player));
            worker.run(command);
        }
    }

    /// Runs `on_stop` if sound has begun, and waits for everything.
    pub(crate) fn finish(mut self, server: &str) {
        if core::mem::take(&mut self.is_started) {
            self.run("silence", server);
        }
        let workers = self.hooks.into_iter().chain(self.mixer.map(|(worker, _)| worker));
        workers.for_each(Worker::join);
    }
}

/// A thread that runs one program after the other.
#[derive(Debug)]
struct Worker {
    queue: Arc<(Mutex<WorkerState>, Condvar)>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct WorkerState {
    next: Option<Command>,
    is_ending: bool,
}

impl Worker {
    fn start(messages: &LineSender) -> io::Result<Self> {
        if !cfg!(feature = "hooks") {
            return Err(io::Error::other(
                "this program was built without hooks; use `aulos play`, or build aulos-player with \
                 the feature `hooks`",
            ));
        }
        let queue = Arc::<(Mutex<WorkerState>, Condvar)>::default();
        let (own, messages) = (Arc::clone(&queue), messages.clone());
        let run = move || {
            while let Some(command) = next(&own) {
                if let Some(message) = run_command(command) {
                    messages::push(&messages, &message);
                }
            }
        };
        let thread = std::thread::Builder::new().name("aulos-hooks".to_owned()).spawn(run)?;
        Ok(Self { queue, thread })
    }

    /// Runs this next, in place of what waits.
    fn run(&self, command: Command) {
        locked(&self.queue.0).next = Some(command);
        self.queue.1.notify_one();
    }

    fn join(self) {
        locked(&self.queue.0).is_ending = true;
        self.queue.1.notify_one();
        drop(self.thread.join());
    }
}

/// The next program, when there is one; `None` at the end.
fn next((state, changed): &(Mutex<WorkerState>, Condvar)) -> Option<Command> {
    let mut state = locked(state);
    loop {
        if let Some(command) = state.next.take() {
            return Some(command);
        }
        if state.is_ending {
            return None;
        }
        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn locked(state: &Mutex<WorkerState>) -> MutexGuard<'_, WorkerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that gets nothing of this process but its output and error, which is ours.
fn isolated(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    isolate_child(&mut command);
    command
}

/// Runs a program, with its process group, which is killed when it takes too long. Returns a line
/// if the program has failed.
fn run_command(mut command: Command) -> Option<String> {
    // Standard output may be that of the samples.
    let output =
        io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Into::into);
    command.stdin(Stdio::null()).stdout(output);
    let name = command.get_args().last().filter(|_| command.get_program() == "/bin/sh");
    let name = name.unwrap_or_else(|| command.get_program()).to_string_lossy().into_owned();
    match command.spawn().map(wait) {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(why))) => Some(format!("`{name}` {why}")),
        Ok(Err(error)) => Some(format!("`{name}`: {error}")),
        Err(error) => Some(format!("cannot run `{name}`: {error}")),
    }
}

/// Why the program has failed, if it has.
fn wait(mut child: Child) -> io::Result<Option<String>> {
    let deadline = clock::now() + HOOK_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("has failed: {status}")));
        }
        if clock::now() >= deadline {
            kill_process_group(Pid::from_child(&child), Signal::KILL)?;
            child.wait()?;
            return Ok(Some(format!("was killed after {} s", HOOK_TIMEOUT.as_millis() / 1_000)));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// As that of `[[hook]]` by default.
const HOOK_TIMEOUT: Span = Span::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::ZERO + Span::from_secs(seconds)
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("aulos-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn hooks_follow_the_sound_after_their_delay_and_the_end_of_the_player() {
        let folder = folder("hooks");
        let log = folder.join("log");
        let line = format!(
            "echo $AULOS_EVENT $AULOS_SERVER $AULOS_PLAYER >> {}; sleep 0.01",
            log.display()
        );
        let config = HookConfig {
            on_start: Some(line.clone()),
            on_stop: Some(line),
            stop_after: Span::from_secs(8),
        };
        let reported = Span::from_secs(5);
        let (messages, _) = aulos_rt::line_queue();
        let start = || {
            HookRunner::start(config.clone(), reported, "den".to_owned(), Mixer::None, &messages)
        };
        let mut hooks = start().unwrap();
        hooks.sounding(true, "s", at(1));
        hooks.sounding(false, "s", at(10));
        assert_eq!(hooks.poll_timeout(), Some(at(13)));
        hooks.handle_timeout("s", at(12));
        hooks.sounding(true, "s", at(12));
        assert_eq!(hooks.poll_timeout(), None, "sound is back in time");
        hooks.finish("s");
        let lines = || std::fs::read_to_string(&log).unwrap();
        // The first one may have been replaced before it began.
        assert!(["sound s den\nsilence s den\n", "silence s den\n"].contains(&&*lines()));
        std::fs::remove_file(&log).unwrap();
        let mut hooks = start().unwrap();
        hooks.sounding(true, "s", at(1));
        hooks.sounding(false, "s", at(10));
        hooks.handle_timeout("s", at(13));
        assert!(hooks.poll_timeout().is_none() && !hooks.is_started);
        hooks.finish("s");
        assert!(lines().ends_with("silence s den\n"), "{}", lines());
        assert_eq!(lines().matches("silence").count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_volume_script_gets_the_last_volume_and_a_failure_does_no_harm() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder("mixer");
        let (script, log) = (folder.join("volume"), folder.join("log"));
        let text = format!("#!/bin/sh\necho $* >> {}\nexit 3\n", log.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let start = |path| {
            let config = HookConfig::default();
            let (messages, _) = aulos_rt::line_queue();
            let mixer = Mixer::Script(path);
            HookRunner::start(config, Span::ZERO, String::new(), mixer, &messages).unwrap()
        };
        let hooks = start(script);
        for volume in 0..=50 {
            let muted = volume == 50;
            hooks.settings(&ServerSettings { volume, muted, ..ServerSettings::default() });
        }
        hooks.finish("s");
        let lines = std::fs::read_to_string(&log).unwrap();
        assert!(lines.ends_with("--volume 0.5 --mute true\n"), "{lines}");
        let missing = start(folder.join("missing"));
        missing.settings(&ServerSettings::default());
        missing.finish("s");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
