//! A TCP socket whose peer is watched while a call waits.
//!
//! A call may wait for others, and is not to be executed when its caller has gone meanwhile. The
//! end of the stream cannot be read then: further calls may be in front of it, and they are not
//! read before the first is answered. For the same reason the socket may always be readable, so the
//! watch asks the kernel now and then whether the peer has closed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::input_budget::{INPUT_BUDGET, UnfinishedInput};

/// Interval at which the watch looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// How long the call of a peer that has closed its sending side may still run. TCP does not tell
/// one that only has nothing more to send, as `nc -N`, from one that has gone.
const TIME_AFTER_CLOSE: Duration = Duration::from_secs(1);

/// A socket that can be watched, and whose unfinished input is limited.
#[derive(Debug)]
pub(crate) struct WatchedSocket(Arc<SocketWithInput>);

#[derive(Debug)]
struct SocketWithInput {
    socket: TcpStream,
    input: UnfinishedInput<'static>,
}

/// The watch of a connection's peer. It does not keep the socket open.
#[derive(Clone, Debug)]
pub(crate) struct PeerWatch {
    socket: Weak<SocketWithInput>,
    /// When it was first seen that the peer has closed its sending side; shared by all calls of the
    /// connection.
    closed_at: Arc<OnceLock<Instant>>,
}

impl From<TcpStream> for WatchedSocket {
    fn from(socket: TcpStream) -> Self {
        Self(Arc::new(SocketWithInput { socket, input: INPUT_BUDGET.connection() }))
    }
}

impl WatchedSocket {
    pub(crate) fn watch(&self) -> PeerWatch {
        PeerWatch { socket: Arc::downgrade(&self.0), closed_at: Arc::default() }
    }

    /// The socket itself, for a reactor.
    pub(crate) fn into_std(self) -> io::Result<std::net::TcpStream> {
        // A watch holds it while it looks; no call waits any more.
        Arc::into_inner(self.0).ok_or(io::ErrorKind::ResourceBusy)?.socket.into_std()
    }
}

impl PeerWatch {
    /// Awaits a call of the peer; `None` when the peer has gone before it has ended.
    pub(crate) async fn while_open<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        if self.is_over() {
            return None;
        }
        tokio::select! {
            biased;
            result = call => Some(result),
            () = self.gone() => None,
        }
    }

    /// Everything that the peer has sent is complete, and is no longer kept.
    pub(crate) fn complete_input(&self) {
        if let Some(socket) = self.socket.upgrade() {
            socket.input.complete();
        }
    }

    async fn gone(&self) {
        loop {
            sleep(WATCH_INTERVAL).await;
            let Some(socket) = self.socket.upgrade() else { return };
            let seen = peer_events(&socket.socket);
            if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            if seen.contains(PollFlags::RDHUP) {
                self.closed_at.get_or_init(Instant::now);
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.closed_at.get().is_some_and(|closed| closed.elapsed() >= TIME_AFTER_CLOSE)
    }
}

fn peer_events(socket: &TcpStream) -> PollFlags {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    // A failure means that nothing is known.
    match poll(&mut asked, Some(&Timespec::default())) {
        Ok(_) => asked[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

impl AsyncRead for WatchedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.socket.poll_read_ready(context))?;
            match self.0.socket.try_read(into.initialize_unfilled()) {
                Ok(count) => {
                    self.0.input.receive(count)?;
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl WatchedSocket {
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        send: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.socket.poll_write_ready(context))?;
            match send(&self.0.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl AsyncWrite for WatchedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |socket| socket.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&self.0.socket, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    async fn pair() -> (WatchedSocket, TcpStream) {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(local).await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0.into(), peer)
    }

    /// Whether a call that never ends is dropped soon; the bytes in front of the end stay unread.
    async fn is_dropped(watch: &PeerWatch) -> bool {
        let patience = TIME_AFTER_CLOSE + Duration::from_millis(900);
        timeout(patience, watch.while_open(pending::<()>())).await == Ok(None)
    }

    #[tokio::test]
    async fn a_call_is_dropped_when_its_peer_has_closed_behind_unread_bytes() {
        let (mut socket, mut peer) = pair().await;
        let watch = socket.watch();
        peer.write_all(&[7; 100]).await.unwrap();
        drop(peer);
        assert!(is_dropped(&watch).await);
        assert_eq!(watch.while_open(async { 1 }).await, None, "the next one is not begun");
        let mut read = Vec::new();
        socket.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [7; 100]);
    }

    #[tokio::test]
    async fn a_peer_that_has_nothing_more_to_send_still_gets_its_answer() {
        let (mut socket, mut peer) = pair().await;
        peer.write_all(b"call").await.unwrap();
        peer.shutdown().await.unwrap();
        let answer = async {
            sleep(2 * WATCH_INTERVAL).await;
            b"answer"
        };
        let answer = socket.watch().while_open(answer).await.unwrap();
        socket.write_all(answer).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut read = Vec::new();
        peer.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, answer);
    }

    #[tokio::test]
    async fn a_reset_ends_a_call_at_once_and_an_open_connection_none() {
        let (socket, mut peer) = pair().await;
        let watch = socket.watch();
        let call = async {
            sleep(2 * WATCH_INTERVAL).await;
            1
        };
        assert_eq!(watch.while_open(call).await, Some(1));
        socket.0.socket.try_write(b"unread").unwrap();
        peer.readable().await.unwrap();
        assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 1);
        // The kernel resets a connection that is closed with unread bytes.
        drop(peer);
        let soon = 5 * WATCH_INTERVAL;
        assert_eq!(timeout(soon, watch.while_open(pending::<()>())).await, Ok(None));
        socket.into_std().unwrap();
    }
}
