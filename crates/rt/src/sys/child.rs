//! What a program that is started must not get from this process.

#![allow(unsafe_code, reason = "calls between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{close_others_at_exec, end_with};

/// Isolates a program from this process:
///
/// * It has a process group of its own: Ctrl-C in the terminal is for this process, and the
///   program's own children can be ended with it.
/// * It ends when this process ends, even by SIGKILL, where the kernel can do so (Linux). The thread
///   that starts it must therefore live as long as the program is to live.
/// * It has no variables by which a service manager addresses this process: it would report its own
///   readiness in our place, or take our sockets.
/// * Every signal has its default action and none is blocked: this process ignores SIGPIPE, and may
///   have inherited more from its own parent.
/// * It gets standard input, output and error and no other descriptor, where the kernel can do so
///   (Linux 5.11).
///
/// Call it before the program's own variables are set.
pub fn isolate_child(command: &mut Command) {
    command.process_group(0);
    for name in SUPERVISION_VARIABLES {
        command.env_remove(name);
    }
    let parent = std::process::id();
    let prepare = move || {
        reset_signals()?;
        close_others_at_exec();
        end_with(parent)
    };
    // SAFETY: between fork and exec it makes system calls and nothing else: no lock is taken and no
    // memory allocated.
    unsafe { command.pre_exec(prepare) };
}

/// The variables of `sd_notify(3)`, `sd_watchdog_enabled(3)` and `sd_listen_fds(3)`. Those that
/// describe the service (its directories, its credentials) stay: a program of the service may use
/// them.
const SUPERVISION_VARIABLES: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
];

/// Gives every signal its default action and unblocks all. Async-signal-safe (POSIX.1-2024, 2.4.3).
fn reset_signals() -> io::Result<()> {
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the default action is no function. A number that is no signal, or one whose
        // action is fixed, is refused, and that does no harm.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: zeros are a value of this type, which has no pointers.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: the set is initialized, and the old one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) }
    {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Linux has the most signals.
const LAST_SIGNAL: i32 = 64;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Ignores signals, blocks one, and opens a descriptor that does not close by itself.
    fn spoil_process() -> String {
        for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGUSR2] {
            // SAFETY: no test of this crate depends on the action of these signals.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        // SAFETY: zeros are a value of this type, which has no pointers.
        let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours.
        unsafe { libc::sigaddset(&raw mut blocked, libc::SIGUSR1) };
        // SAFETY: the set is initialized, and the old one is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut()) };
        // SAFETY: the call makes a descriptor that nothing else uses.
        unsafe { libc::fcntl(2, libc::F_DUPFD, 200) }.to_string()
    }

    #[test]
    fn a_program_gets_nothing_that_is_ours() {
        let fd = spoil_process();
        let script = "env; grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd; \
                      ps -o pgid= -p $$ | tr -d ' ' | sed \"s/^$$\\$/own group/\"";
        let run = |isolated: bool| {
            let mut command = Command::new("/bin/sh");
            for name in SUPERVISION_VARIABLES {
                command.env(name, "1");
            }
            if isolated {
                isolate_child(&mut command);
            }
            command.env("AULOS_EVENT", "sound").args(["-c", script]).stdin(Stdio::null());
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let (before, now) = (run(false), run(true));
        // 32 and 33 belong to the threads of the C library, which does not let others change them.
        let library = 0b11 << 31;
        let is_clean = |line: &str| {
            let set = line.split_whitespace().nth(1).unwrap();
            u64::from_str_radix(set, 16).unwrap() & !library == 0
        };
        let signals = |text: &str| {
            let lines: Vec<_> = text.lines().filter(|line| line.starts_with("Sig")).collect();
            assert_eq!(lines.len(), 2, "{text}");
            lines.into_iter().all(is_clean)
        };
        assert!(before.contains("NOTIFY_SOCKET=") && !signals(&before), "{before}");
        assert!(before.lines().any(|line| line == fd), "{before}");
        for name in SUPERVISION_VARIABLES {
            assert!(!now.contains(name), "{now}");
        }
        assert!(now.contains("AULOS_EVENT=sound") && now.contains("PATH="), "{now}");
        assert!(signals(&now), "{now}");
        assert!(!now.lines().any(|line| line == fd), "{now}");
        assert!(now.contains("own group"), "{now}");
    }
}
