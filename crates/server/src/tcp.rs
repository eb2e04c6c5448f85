//! The control port: JSON-RPC in lines.
//!
//! The server accepts LF and CRLF, and sends CRLF, because python-snapcast waits for the CR.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use aulos_control::access::Role;
use aulos_control::{Caller, Control, Counters, Inbox, PeerId, count};
use aulos_io::SystemClock;
use aulos_io::descriptors::DescriptorUse;
use aulos_io::reactor::{AddressPermit, AdmitError, ConnectionLimiter, ListenPolicy};
use aulos_proto::snap::control::{LineError, LineSplitter, MAX_LINE, starts_with_json, to_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::connections::{ConnectionPermit, ConnectionSlots, SlotError};
use crate::tls::{self, ClientStream};

/// Limit of connected controllers.
pub(crate) const MAX_CONTROLLERS: usize = 1_024;
/// Bytes per read.
const READ_SIZE: usize = 4 << 10;
/// How long a controller may not read what it is sent.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept; the likely cause is the limit of open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves controllers until the future is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    control: Arc<Control>,
    policy: watch::Receiver<ListenPolicy>,
) {
    let mut acceptor = ConnectionAcceptor::new(
        policy,
        ConnectionSlots::new(MAX_CONTROLLERS),
        DescriptorUse::Control,
    );
    loop {
        let Some(accepted) = acceptor.accept(&listener, &control, REFUSED_COUNTER).await else {
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy, slot } = accepted;
            // If permitted, notifications start before the first request.
            let (peer, inbox) = control.join(tls::initial_login(&control.access, None).role);
            let served = async {
                if let Some(stream) = open_stream(socket, address, &policy, &control).await {
                    serve_controller(stream, &control, peer, inbox, &slot).await;
                }
            };
            slot.run_until_revoked(served, &control.counters.controllers_cut_unfinished).await;
            control.leave(peer);
        });
    }
}

/// The counter of this port's connections without a slot.
const REFUSED_COUNTER: PortCounters = |counters| &counters.controllers_refused;

/// Selects the counter of a port's connections without a slot.
pub(crate) type PortCounters = fn(&Counters) -> &AtomicU64;

/// A controller that sends nothing for this long is taken as plain text: some only listen.
const TLS_DETECTION_TIME: Duration = Duration::from_secs(2);

async fn open_stream(
    socket: (TcpStream, SocketAddr),
    permit: AddressPermit,
    policy: &ListenPolicy,
    control: &Control,
) -> Option<ClientStream> {
    // A controller that must log in must send something, so it gets more time.
    let may_be_quiet = !control.access.rules().requires_login();
    let patience =
        if may_be_quiet && !policy.require_tls { TLS_DETECTION_TIME } else { LOGIN_TIMEOUT };
    keep_alive(&socket.0).and_then(|()| socket.0.set_nodelay(true)).ok()?;
    let start = tls::PeerStart { patience, may_be_quiet, is_http: false };
    let opened = tls::open(socket, permit, policy, start).await;
    opened
        .inspect(|stream| count_handshake(control, stream))
        .inspect_err(|refused| count_refused(control, *refused))
        .ok()
}

async fn serve_controller(
    stream: ClientStream,
    control: &Control,
    peer: PeerId,
    inbox: Inbox,
    slot: &ConnectionPermit,
) {
    let login = tls::initial_login(&control.access, stream.certificate());
    if login.role >= Role::Listen {
        control.subscribe(peer);
    }
    let mut caller = Caller::with_login(stream.peer_ip(), login);
    caller.peer = Some(peer);
    caller.has_logged_in = stream.certificate().is_some();
    if let Err(error) = run_session(stream, control, caller, inbox, slot).await {
        if error.kind() == io::ErrorKind::OutOfMemory {
            count(&control.counters.controllers_cut_memory);
        }
        tracing::debug!(%error, "the connection of a controller failed");
    }
}

/// Counts the handshake of an accepted connection.
pub(crate) fn count_handshake(control: &Control, stream: &ClientStream) {
    if stream.is_tls() {
        count(&control.counters.control_tls_handshakes);
    }
}

/// Counts a connection that was not accepted.
pub(crate) fn count_refused(control: &Control, refused: tls::RefusalReason) {
    use tls::RefusalReason as R;
    count(match refused {
        R::Gone => return,
        R::Aborted => &control.counters.control_closed_in_tls_handshake,
        R::Silent => &control.counters.controllers_cut_without_login,
        R::Plain => &control.counters.control_refused_plain,
        R::Unfinished => &control.counters.control_cut_tls_unfinished,
        R::Broken => &control.counters.control_cut_tls_failed,
    });
}

/// Limits the connections of each address, by limits that can change.
pub(crate) struct AddressLimiter {
    policy: watch::Receiver<ListenPolicy>,
    limiter: ConnectionLimiter,
}

impl AddressLimiter {
    pub(crate) fn new(mut policy: watch::Receiver<ListenPolicy>) -> Self {
        let limits = policy.borrow_and_update().limits;
        Self { policy, limiter: ConnectionLimiter::new(limits) }
    }

    /// A permit for one more connection; none if there are too many or they come too fast, which is
    /// counted.
    pub(crate) fn admit(&mut self, from: IpAddr, counters: &Counters) -> Option<AddressPermit> {
        if self.policy.has_changed().unwrap_or(false) {
            self.limiter.set_limits(self.policy.borrow_and_update().limits);
        }
        let permit = self.limiter.admit(from, SystemClock::now());
        let counted = permit.inspect_err(|refused| {
            count(match refused {
                AdmitError::TooMany => &counters.control_refused_same_address,
                AdmitError::TooFast => &counters.control_refused_too_fast,
            });
        });
        counted.ok()
    }
}

/// Accepts connections within the limits of number, rate and TLS.
pub(crate) struct ConnectionAcceptor {
    limiter: AddressLimiter,
    slots: ConnectionSlots,
    port: DescriptorUse,
}

/// An accepted connection with its permits.
pub(crate) struct AcceptedConnection {
    pub(crate) socket: (TcpStream, SocketAddr),
    pub(crate) address: AddressPermit,
    pub(crate) policy: ListenPolicy,
    pub(crate) slot: ConnectionPermit,
}

impl ConnectionAcceptor {
    pub(crate) fn new(
        policy: watch::Receiver<ListenPolicy>,
        slots: ConnectionSlots,
        port: DescriptorUse,
    ) -> Self {
        Self { limiter: AddressLimiter::new(policy), slots, port }
    }

    /// The next connection; none if it was refused or could not be accepted. `full` selects the
    /// counter for a missing slot.
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
        let counters = &control.counters;
        if !self.port.allows(socket.as_raw_fd()) {
            count(full(counters));
            drop(socket);
            sleep(ACCEPT_PAUSE).await;
            return None;
        }
        let from = address.ip();
        // The limits of a proxy are those of its clients, which their requests name.
        let is_proxy =
            self.port == DescriptorUse::Http && control.config().http.is_trusted_proxy(from);
        let admitted = if is_proxy {
            (AddressPermit::default(), self.slots.admit_proxy(from))
        } else {
            (self.limiter.admit(from, counters)?, self.slots.admit(from))
        };
        match admitted {
            (permit, Ok(slot)) => {
                let policy = self.limiter.policy.borrow().clone();
                Some(AcceptedConnection {
                    socket: (socket, address),
                    address: permit,
                    policy,
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

/// The counter for a missing slot.
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
    let watch = stream.watch();
    let mut begun = false;
    let too_late = sleep(LOGIN_TIMEOUT);
    tokio::pin!(too_late);
    loop {
        tokio::select! {
            biased;
            () = &mut too_late, if caller.role == Role::None => {
                count(&control.counters.controllers_cut_without_login);
                return Ok(());
            }
            // An answer does not wait for the full status that a change by others has queued.
            bytes = stream.read(&mut block) => {
                let count = eof_without_close_notify(bytes)?;
                // The last line may lack its end.
                let bytes = if count == 0 { b"\n" } else { &block[..count] };
                begun = begun || check_first_bytes(bytes, control)?;
                lines.push(bytes);
                while let Some(line) = next_line(&mut lines, control)? {
                    let call = control.request(&mut caller, line);
                    let Some(answer) = watch.while_open(call).await else { return Ok(()) };
                    if let Some(answer) = answer {
                        let (answer, _permit) = answer.into_parts();
                        let line = to_line(answer);
                        send(&mut stream, std::iter::once(&line[..]), &mut inbox, control).await?;
                    }
                    watch.complete_input();
                    establish(&caller, slot, control)?;
                    lines.set_limit(max_line_length(&caller));
                    // A long batch of one controller must not delay the others.
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
        }
    }
}

/// How long a connection may stay without a login where one is required.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the slot permanent after a permitted call.
pub(crate) fn establish(
    caller: &Caller,
    slot: &ConnectionPermit,
    control: &Control,
) -> io::Result<()> {
    if caller.role == Role::None {
        return Ok(());
    }
    slot.establish(caller.has_logged_in).map_err(|_| {
        count(&control.counters.controllers_refused);
        io::ErrorKind::ConnectionRefused.into()
    })
}

/// Longest line or message before a login: enough for credentials.
pub(crate) const MAX_LINE_BEFORE_LOGIN: usize = 8 << 10;

/// The longest line or message of a caller.
pub(crate) fn max_line_length(caller: &Caller) -> usize {
    if caller.role == Role::None { MAX_LINE_BEFORE_LOGIN } else { MAX_LINE }
}

/// Checks that a connection begins with JSON; white space may come first.
fn check_first_bytes(bytes: &[u8], control: &Control) -> io::Result<bool> {
    match starts_with_json(bytes) {
        Some(true) => Ok(true),
        None => Ok(false),
        // A browser sent here by a web page, or another client that is not a controller.
        Some(false) => {
            count(&control.counters.controllers_cut_not_json);
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Treats a missing `close_notify` of TLS as the end of the stream.
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
        // The code that cut the connection has counted it.
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
    // TLS may buffer some of it.
    stream.flush().await
}

/// Detects a dead peer within two minutes; Home Assistant may be silent for hours.
pub(crate) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    Ok(())
}
