//! The control port: JSON-RPC in lines.
//!
//! Lines end in LF or CRLF when they come and in CRLF when they go (python-snapcast waits for the
//! CR; facts/ecosystem.md 0.1).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Control, Inbox, PeerId, count};

/// Bytes of one line; regrouping 1,000 clients takes a third.
pub const MAX_LINE: usize = 64 << 10;
/// Controllers at once.
pub const MAX_CONTROLLERS: usize = 1_024;
/// How long a controller may not take what it is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// A pause after a failed accept; what failed was most likely the number of open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves controllers until it is dropped.
pub async fn serve(listener: TcpListener, control: Arc<Control>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = Place::take(&open, MAX_CONTROLLERS) else {
            count(&control.counters.controllers_refused);
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let (peer, inbox) = control.join();
            if let Err(error) = converse(socket, &control, peer, inbox).await {
                tracing::debug!(%error, "controller gone");
            }
            control.leave(peer);
            drop(place);
        });
    }
}

/// A place in a limited number of them, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    pub(crate) fn take(open: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        // Only the one accept loop adds, so that between these two lines it can only become less.
        if open.load(Ordering::Relaxed) >= limit {
            return None;
        }
        open.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn converse(
    socket: TcpStream,
    control: &Control,
    peer: PeerId,
    mut inbox: Inbox,
) -> io::Result<()> {
    keep_alive(&socket)?;
    socket.set_nodelay(true)?;
    let (mut read, mut write) = socket.into_split();
    let mut lines = Lines::default();
    loop {
        tokio::select! {
            more = lines.fill(&mut read) => {
                let more = more?;
                while let Some(line) = lines.next(!more) {
                    if let Some(answer) = control.request(Some(peer), line) {
                        send(&mut write, &answer, &mut inbox, control).await?;
                    }
                    // One controller's long list does not keep the others waiting.
                    tokio::task::yield_now().await;
                }
                if lines.waiting() > MAX_LINE {
                    count(&control.counters.controllers_cut_long_line);
                    return Ok(());
                }
                if !more {
                    return Ok(());
                }
            }
            notice = inbox.next() => match notice {
                Some(notice) => send(&mut write, &notice, &mut inbox, control).await?,
                None => return Ok(()),
            },
        }
    }
}

async fn send(
    write: &mut OwnedWriteHalf,
    text: &str,
    inbox: &mut Inbox,
    control: &Control,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    tokio::select! {
        biased;
        written = timeout(WRITE_TIMEOUT, write.write_all(&bytes)) => written.unwrap_or_else(|_| {
            count(&control.counters.controllers_cut_slow);
            Err(io::ErrorKind::TimedOut.into())
        }),
        // Counted by whoever cut it.
        () = inbox.cut() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Finds a dead peer within two minutes; Home Assistant is silent for hours.
pub(crate) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    Ok(())
}

/// Bytes that become lines.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// No line ends between `start` and here.
    searched: usize,
}

impl Lines {
    /// Reads once, without losing anything when it is not waited for; false at the end.
    async fn fill(&mut self, from: &mut OwnedReadHalf) -> io::Result<bool> {
        self.bytes.drain(..self.start);
        self.searched -= std::mem::take(&mut self.start);
        Ok(from.read_buf(&mut self.bytes).await? > 0)
    }

    /// The next line that is not empty, without its end; at the end of all also one without.
    fn next(&mut self, end: bool) -> Option<&[u8]> {
        let line = loop {
            let found = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n');
            let stop = match found {
                Some(at) => self.searched + at + 1,
                None if end && self.start < self.bytes.len() => self.bytes.len(),
                None => {
                    self.searched = self.bytes.len();
                    return None;
                }
            };
            let line = self.start..stop;
            (self.start, self.searched) = (stop, stop);
            if !self.bytes[line.clone()].trim_ascii().is_empty() {
                break line;
            }
        };
        Some(self.bytes[line].trim_ascii())
    }

    /// Bytes of the line that has no end yet.
    const fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, end: bool) -> Vec<String> {
        let mut lines = Lines { bytes: text.into(), ..Lines::default() };
        let mut found = Vec::new();
        while let Some(line) = lines.next(end) {
            found.push(String::from_utf8_lossy(line).into_owned());
        }
        found
    }

    #[test]
    fn lines_end_in_either_way_and_the_last_may_have_no_end() {
        assert_eq!(lines("a\r\nb\n\r\n\n c \nd", false), ["a", "b", "c"]);
        assert_eq!(lines("a\r\nb", true), ["a", "b"]);
        assert_eq!(lines("\n\n", true), Vec::<String>::new());
    }
}
