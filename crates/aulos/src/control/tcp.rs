//! The control port: JSON-RPC in lines.
//!
//! Lines end in LF or CRLF when they come and in CRLF when they go (python-snapcast waits for the
//! CR; facts/ecosystem.md 0.1).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aulos_proto::snap::control::{LineError, Lines, write_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Control, Inbox, PeerId, count};

/// Controllers at once.
pub const MAX_CONTROLLERS: usize = 1_024;
/// Bytes that are read at once.
const READ: usize = 4 << 10;
/// How long a controller may not take what it is sent.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
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
        let one_more = |count| (count < limit).then_some(count + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
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
    let (mut lines, mut block) = (Lines::default(), [0; READ]);
    loop {
        tokio::select! {
            count = read.read(&mut block) => {
                let count = count?;
                // The last line may have no end.
                lines.push(if count == 0 { b"\n" } else { &block[..count] });
                while let Some(line) = next_line(&mut lines, control)? {
                    if let Some(answer) = control.request(Some(peer), line) {
                        send(&mut write, &answer, &mut inbox, control).await?;
                    }
                    // One controller's long list does not keep the others waiting.
                    tokio::task::yield_now().await;
                }
                if count == 0 {
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

fn next_line<'a>(lines: &'a mut Lines, control: &Control) -> io::Result<Option<&'a [u8]>> {
    lines.next_line().map_err(|error: LineError| {
        count(&control.counters.controllers_cut_long_line);
        io::Error::new(io::ErrorKind::InvalidData, error)
    })
}

async fn send(
    write: &mut OwnedWriteHalf,
    text: &str,
    inbox: &mut Inbox,
    control: &Control,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    write_line(text, &mut bytes);
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
