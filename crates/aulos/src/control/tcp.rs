//! The control port: JSON-RPC in lines.
//!
//! Lines end in LF or CRLF when they come and in CRLF when they go (python-snapcast waits for the
//! CR; facts/ecosystem.md 0.1).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aulos_io::SystemClock;
use aulos_io::reactor::{Door, Doorman, Refused, Ticket};
use aulos_proto::snap::control::{LineError, Lines, write_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Caller, Control, Inbox, PeerId, count};
use crate::access::Role;
use crate::tls::{self, Stream};

/// Controllers at once.
pub const MAX_CONTROLLERS: usize = 1_024;
/// Bytes that are read at once.
const READ: usize = 4 << 10;
/// How long a controller may not take what it is sent.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// A pause after a failed accept; what failed was most likely the number of open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves controllers until it is dropped.
pub async fn serve(listener: TcpListener, control: Arc<Control>, door: watch::Receiver<Door>) {
    let open = Arc::new(AtomicUsize::new(0));
    let mut gate = Gate::new(door);
    loop {
        let Some((socket, ticket, door)) = gate.accept(&listener, &control).await else { continue };
        let Some(place) = Place::take(&open, MAX_CONTROLLERS) else {
            count(&control.counters.controllers_refused);
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            // It hears of what happens before it has said a word, if it may.
            let (peer, inbox) = control.join(control.role_at_the_door(None));
            if let Some(stream) = open_stream(socket, ticket, &door, &control).await {
                attend(stream, &control, peer, inbox).await;
            }
            control.leave(peer);
            drop(place);
        });
    }
}

/// A controller that says nothing for so long speaks plainly, if it ever will: some only listen.
const QUIET: Duration = Duration::from_secs(2);

async fn open_stream(
    socket: (TcpStream, SocketAddr),
    ticket: Ticket,
    door: &Door,
    control: &Control,
) -> Option<Stream> {
    // Whoever has to log in has to speak, and so may take his time to begin.
    let may_be_quiet = !control.access.rules().is_closed();
    let patience = if may_be_quiet && !door.require_tls { QUIET } else { LOGIN_TIMEOUT };
    keep_alive(&socket.0).and_then(|()| socket.0.set_nodelay(true)).ok()?;
    let opened = tls::open(socket, ticket, door, patience, may_be_quiet).await;
    opened.inspect_err(|refused| count_refused(control, *refused)).ok()
}

async fn attend(stream: Stream, control: &Control, peer: PeerId, inbox: Inbox) {
    let role = control.role_at_the_door(stream.certificate());
    if role >= Role::Listen {
        control.let_hear(peer);
    }
    let caller = Caller { peer: Some(peer), from: stream.from(), role };
    if let Err(error) = converse(stream, control, caller, inbox).await {
        tracing::debug!(%error, "controller gone");
    }
}

/// Counts a connection that was not let in.
pub(crate) fn count_refused(control: &Control, refused: tls::Refused) {
    use tls::Refused as R;
    count(match refused {
        R::Gone => return,
        R::Silent => &control.counters.controllers_cut_without_login,
        R::Plain => &control.counters.control_refused_plain,
        R::Unfinished => &control.counters.control_cut_tls_unfinished,
        R::Broken => &control.counters.control_cut_tls_failed,
    });
}

/// Lets connections in: how many, how fast, and what they have to be.
pub(crate) struct Gate {
    door: watch::Receiver<Door>,
    doorman: Doorman,
}

impl Gate {
    pub(crate) fn new(mut door: watch::Receiver<Door>) -> Self {
        let limits = door.borrow_and_update().limits;
        Self { door, doorman: Doorman::new(limits) }
    }

    /// The next one, none where it was refused or there was none to be had.
    pub(crate) async fn accept(
        &mut self,
        listener: &TcpListener,
        control: &Control,
    ) -> Option<((TcpStream, SocketAddr), Ticket, Door)> {
        let Ok((socket, address)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            return None;
        };
        if self.door.has_changed().unwrap_or(false) {
            self.doorman.set_limits(self.door.borrow_and_update().limits);
        }
        let door = self.door.borrow().clone();
        match self.doorman.admit(address.ip(), SystemClock::now()) {
            Ok(ticket) => Some(((socket, address), ticket, door)),
            Err(refused) => {
                count(match refused {
                    Refused::Crowded => &control.counters.control_refused_same_address,
                    Refused::TooFast => &control.counters.control_refused_too_fast,
                });
                None
            }
        }
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
    mut stream: Stream,
    control: &Control,
    mut caller: Caller,
    mut inbox: Inbox,
) -> io::Result<()> {
    let (mut lines, mut block) = (Lines::default(), [0; READ]);
    let too_late = sleep(LOGIN_TIMEOUT);
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            bytes = stream.read(&mut block) => {
                let count = end_without_goodbye(bytes)?;
                // The last line may have no end.
                lines.push(if count == 0 { b"\n" } else { &block[..count] });
                while let Some(line) = next_line(&mut lines, control)? {
                    if let Some(answer) = control.request(&mut caller, line) {
                        send(&mut stream, &answer, &mut inbox, control).await?;
                    }
                    // One controller's long list does not keep the others waiting.
                    tokio::task::yield_now().await;
                }
                if count == 0 {
                    return Ok(());
                }
            }
            notice = inbox.next() => match notice {
                Some(notice) => send(&mut stream, &notice, &mut inbox, control).await?,
                None => return Ok(()),
            },
            () = &mut too_late, if caller.role == Role::Nobody => {
                count(&control.counters.controllers_cut_without_login);
                return Ok(());
            }
        }
    }
}

/// How long somebody may be connected who may do nothing.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer that closes its socket without closing its TLS has closed.
fn end_without_goodbye(read: io::Result<usize>) -> io::Result<usize> {
    read.or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(error),
    })
}

fn next_line<'a>(lines: &'a mut Lines, control: &Control) -> io::Result<Option<&'a [u8]>> {
    lines.next_line().map_err(|error: LineError| {
        count(&control.counters.controllers_cut_long_line);
        io::Error::new(io::ErrorKind::InvalidData, error)
    })
}

async fn send(
    stream: &mut Stream,
    text: &str,
    inbox: &mut Inbox,
    control: &Control,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    write_line(text, &mut bytes);
    tokio::select! {
        biased;
        written = timeout(WRITE_TIMEOUT, write(stream, &bytes)) => written.unwrap_or_else(|_| {
            count(&control.counters.controllers_cut_slow);
            Err(io::ErrorKind::TimedOut.into())
        }),
        // Counted by whoever cut it.
        () = inbox.cut() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    // TLS may hold some of it back.
    stream.flush().await
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
