//! The control port: JSON-RPC in lines.
//!
//! Lines end in LF or CRLF when they come and in CRLF when they go (python-snapcast waits for the
//! CR; facts/ecosystem.md 0.1).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use aulos_io::SystemClock;
use aulos_io::reactor::{AddressPermit, AdmitError, ConnectionLimiter, ListenPolicy};
use aulos_proto::snap::control::{LineError, LineSplitter, MAX_LINE, begins_json, to_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connections::{ConnectionPermit, ConnectionSlots, SlotError};
use super::{Caller, Control, Counters, Inbox, PeerId, count};
use crate::access::Role;
use crate::tls::{self, ClientStream};

/// Controllers at once.
pub const MAX_CONTROLLERS: usize = 1_024;
/// Bytes that are read at once.
const READ_SIZE: usize = 4 << 10;
/// How long a controller may not take what it is sent.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// A pause after a failed accept; what failed was most likely the number of open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves controllers until it is dropped.
pub async fn serve(
    listener: TcpListener,
    control: Arc<Control>,
    door: watch::Receiver<ListenPolicy>,
) {
    let mut gate = ConnectionAcceptor::new(door, ConnectionSlots::new(MAX_CONTROLLERS));
    loop {
        let Some(accepted) = gate.accept(&listener, &control, REFUSED_COUNTER).await else {
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy: door, slot } = accepted;
            // It gets notifications before it has sent anything, if it may have them.
            let (peer, inbox) = control.join(control.initial_role(None));
            let served = async {
                if let Some(stream) = open_stream(socket, address, &door, &control).await {
                    serve_controller(stream, &control, peer, inbox, &slot).await;
                }
            };
            slot.run_until_revoked(served, &control.counters.controllers_cut_unfinished).await;
            control.leave(peer);
        });
    }
}

/// What is counted at the control port when there is no slot.
const REFUSED_COUNTER: PortCounters = |counters| &counters.controllers_refused;

/// The counter of a port's connections for which there is no slot.
pub(crate) type PortCounters = fn(&Counters) -> &AtomicU64;

/// A controller that says nothing for so long speaks plainly, if it ever will: some only listen.
const TLS_DETECTION_TIME: Duration = Duration::from_secs(2);

async fn open_stream(
    socket: (TcpStream, SocketAddr),
    permit: AddressPermit,
    door: &ListenPolicy,
    control: &Control,
) -> Option<ClientStream> {
    // Whoever has to log in has to speak, and so may take his time to begin.
    let may_be_quiet = !control.access.rules().is_closed();
    let patience =
        if may_be_quiet && !door.require_tls { TLS_DETECTION_TIME } else { LOGIN_TIMEOUT };
    keep_alive(&socket.0).and_then(|()| socket.0.set_nodelay(true)).ok()?;
    let opened = tls::open(socket, permit, door, patience, may_be_quiet).await;
    opened.inspect_err(|refused| count_refused(control, *refused)).ok()
}

async fn serve_controller(
    stream: ClientStream,
    control: &Control,
    peer: PeerId,
    inbox: Inbox,
    slot: &ConnectionPermit,
) {
    let role = control.initial_role(stream.certificate());
    if role >= Role::Listen {
        control.subscribe(peer);
    }
    let mut caller = Caller::new(stream.peer_ip(), role);
    caller.peer = Some(peer);
    caller.has_logged_in = stream.certificate().is_some();
    if let Err(error) = run_session(stream, control, caller, inbox, slot).await {
        tracing::debug!(%error, "controller gone");
    }
}

/// Counts a connection that was not let in.
pub(crate) fn count_refused(control: &Control, refused: tls::RefusalReason) {
    use tls::RefusalReason as R;
    count(match refused {
        R::Gone => return,
        R::Silent => &control.counters.controllers_cut_without_login,
        R::Plain => &control.counters.control_refused_plain,
        R::Unfinished => &control.counters.control_cut_tls_unfinished,
        R::Broken => &control.counters.control_cut_tls_failed,
    });
}

/// Accepts connections: how many there may be, how fast they may come, and what they have to be.
pub(crate) struct ConnectionAcceptor {
    policy: watch::Receiver<ListenPolicy>,
    limiter: ConnectionLimiter,
    slots: ConnectionSlots,
}

/// A connection that has been accepted, and all that belongs to it.
pub(crate) struct AcceptedConnection {
    pub(crate) socket: (TcpStream, SocketAddr),
    pub(crate) address: AddressPermit,
    pub(crate) policy: ListenPolicy,
    pub(crate) slot: ConnectionPermit,
}

impl ConnectionAcceptor {
    pub(crate) fn new(mut policy: watch::Receiver<ListenPolicy>, slots: ConnectionSlots) -> Self {
        let limits = policy.borrow_and_update().limits;
        Self { policy, limiter: ConnectionLimiter::new(limits), slots }
    }

    /// The next connection; none where it was refused or could not be accepted. `full` counts those
    /// for which there is no slot.
    pub(crate) async fn accept(
        &mut self,
        listener: &TcpListener,
        control: &Control,
        full: PortCounters,
    ) -> Option<AcceptedConnection> {
        let Ok((socket, address)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            return None;
        };
        if self.policy.has_changed().unwrap_or(false) {
            self.limiter.set_limits(self.policy.borrow_and_update().limits);
        }
        let counters = &control.counters;
        let permit = self.limiter.admit(address.ip(), SystemClock::now());
        let permit = permit.inspect_err(|refused| {
            count(match refused {
                AdmitError::TooMany => &counters.control_refused_same_address,
                AdmitError::TooFast => &counters.control_refused_too_fast,
            });
        });
        let slot = permit.ok().map(|permit| (permit, self.slots.admit(address.ip())));
        match slot? {
            (permit, Ok(slot)) => {
                let door = self.policy.borrow().clone();
                Some(AcceptedConnection {
                    socket: (socket, address),
                    address: permit,
                    policy: door,
                    slot,
                })
            }
            (_, Err(error)) => {
                count(slot_error_counter(error, counters, full));
                None
            }
        }
    }
}

/// What is counted when there is no slot.
pub(crate) fn slot_error_counter(
    error: SlotError,
    counters: &Counters,
    full: PortCounters,
) -> &AtomicU64 {
    match error {
        SlotError::AddressShare => &counters.control_refused_same_address,
        SlotError::Full => full(counters),
    }
}

async fn run_session(
    mut stream: ClientStream,
    control: &Control,
    mut caller: Caller,
    mut inbox: Inbox,
    slot: &ConnectionPermit,
) -> io::Result<()> {
    let (mut lines, mut block) =
        (LineSplitter::with_limit(max_line_length(&caller)), [0; READ_SIZE]);
    let mut begun = false;
    let too_late = sleep(LOGIN_TIMEOUT);
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            bytes = stream.read(&mut block) => {
                let count = eof_without_close_notify(bytes)?;
                // The last line may have no end.
                let bytes = if count == 0 { b"\n" } else { &block[..count] };
                begun = begun || check_first_bytes(bytes, control)?;
                lines.push(bytes);
                while let Some(line) = next_line(&mut lines, control)? {
                    if let Some(answer) = control.request(&mut caller, line).await {
                        let line = to_line(answer);
                        send(&mut stream, std::iter::once(&line[..]), &mut inbox, control).await?;
                    }
                    establish(&caller, slot, control)?;
                    lines.set_limit(max_line_length(&caller));
                    // One controller's long list does not keep the others waiting.
                    tokio::task::yield_now().await;
                }
                if count == 0 {
                    return Ok(());
                }
            }
            notice = inbox.next() => match notice {
                Some(notice) => {
                    send(&mut stream, notice.pieces(), &mut inbox, control).await?;
                    inbox.sent();
                }
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

/// A connection that has made a call that it may make keeps its slot.
pub(crate) fn establish(
    caller: &Caller,
    slot: &ConnectionPermit,
    control: &Control,
) -> io::Result<()> {
    if caller.role == Role::Nobody {
        return Ok(());
    }
    slot.establish(caller.has_logged_in).map_err(|_| {
        count(&control.counters.controllers_refused);
        io::ErrorKind::ConnectionRefused.into()
    })
}

/// The longest line or message of a connection that may do nothing: it has a name and a secret to say.
pub(crate) const MAX_LINE_BEFORE_LOGIN: usize = 8 << 10;

/// The longest line or message that a caller may send.
pub(crate) fn max_line_length(caller: &Caller) -> usize {
    if caller.role == Role::Nobody { MAX_LINE_BEFORE_LOGIN } else { MAX_LINE }
}

/// Whether a connection has begun to send JSON; white space may come first.
fn check_first_bytes(bytes: &[u8], control: &Control) -> io::Result<bool> {
    match begins_json(bytes) {
        Some(true) => Ok(true),
        None => Ok(false),
        // A browser that a web page has sent here, or something else that is no controller.
        Some(false) => {
            count(&control.counters.controllers_cut_not_json);
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// A peer that closes its socket without closing its TLS has closed.
fn eof_without_close_notify(read: io::Result<usize>) -> io::Result<usize> {
    read.or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(error),
    })
}

fn next_line<'a>(lines: &'a mut LineSplitter, control: &Control) -> io::Result<Option<&'a [u8]>> {
    lines.next_line().map_err(|error: LineError| {
        count(&control.counters.controllers_cut_long_line);
        io::Error::new(io::ErrorKind::InvalidData, error)
    })
}

/// Sends the pieces of a line.
async fn send<'a>(
    stream: &mut ClientStream,
    pieces: impl Iterator<Item = &'a [u8]>,
    inbox: &mut Inbox,
    control: &Control,
) -> io::Result<()> {
    tokio::select! {
        biased;
        written = timeout(WRITE_TIMEOUT, write(stream, pieces)) => written.unwrap_or_else(|_| {
            count(&control.counters.controllers_cut_slow);
            Err(io::ErrorKind::TimedOut.into())
        }),
        // Counted by whoever cut it.
        () = inbox.cut() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn write<'a>(
    stream: &mut ClientStream,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    for piece in pieces {
        stream.write_all(piece).await?;
    }
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
