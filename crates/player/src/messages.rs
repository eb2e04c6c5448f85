//! Messages on standard error, written by a thread of their own: the first thread handles signals
//! and runs hooks, and must not wait for a terminal that is stopped or a pipe that is not read.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::thread::Builder;
use std::time::Duration;

use aulos_rt::{LineSender, LostLines, line_queue};

/// Writes a last message, without waiting for longer than [`FLUSH_LIMIT`].
pub(crate) fn write_last(text: &str) {
    // Without a thread there is nothing that writes without waiting.
    if let Ok(messages) = start() {
        text.lines().for_each(|line| push(&messages, line));
        messages.flush(FLUSH_LIMIT);
    }
}

/// Starts the thread. It ends with the last sender, or with the process.
pub(crate) fn start() -> io::Result<LineSender> {
    let (sender, writer) = line_queue();
    let mut stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let run = move || writer.run(&mut stderr, report);
    Builder::new().name("aulos-messages".to_owned()).spawn(run)?;
    Ok(sender)
}

fn report(lost: &LostLines) -> Vec<u8> {
    let LostLines { count, reason, .. } = lost;
    match reason {
        Some(reason) => format!("{count} messages were lost: {reason}\n"),
        None => format!("{count} messages were lost: they were not read in time\n"),
    }
    .into_bytes()
}

/// Appends a message on a line of its own. Its text may be a server's, and must not be a command of
/// the terminal.
pub(crate) fn push(messages: &LineSender, text: &str) {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c }).chain(['\n']);
    messages.push(line.collect::<String>().into_bytes());
}

/// Time to write the last messages at the end.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_no_command_of_the_terminal() {
        let (messages, writer) = line_queue();
        push(&messages, "`a\x1b]0;x\x07\u{9b}2J\nplaying`");
        drop(messages);
        let mut out = Vec::new();
        writer.run(&mut out, report);
        assert_eq!(String::from_utf8(out).unwrap(), "`a ]0;x  2J playing`\n");
    }
}
