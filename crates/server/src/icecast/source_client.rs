//! One connection of a source client, up to its stream or its response: performs the I/O of a
//! [`SourceHandshake`].

use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use aulos_config::{Endpoint, Mount};
use aulos_control::backend::{DjInfo, ListenSink};
use aulos_control::{Control, count};
use aulos_core::Span;
use aulos_io::SystemClock;
use aulos_io::feed::{DjMountPermit, DjStream};
use aulos_io::reactor::MediaStream;
use aulos_session::live_source::{
    HandshakeInput, HandshakeOutput, LiveResponse, LiveStreamStart, SourceHandshake,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::tls::{self, ClientStream};
use crate::url_auth::UrlAuthorizer;

use super::authorize::{MountClaim, RefusalLog};
use super::mount_status;

/// Time-out of the handshake of TLS, and of an answer.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection may use, as far as it is known.
struct MountAccess<'a> {
    from: IpAddr,
    is_tls: bool,
    address: &'a Endpoint,
    control: &'a Control,
    sink: &'a dyn ListenSink,
    programs: &'a UrlAuthorizer,
    claim: MountClaim,
    /// The station and its mount, once the client is authorized.
    place: Option<(String, Mount)>,
    permit: Option<DjMountPermit>,
}

impl MountAccess<'_> {
    /// Answers what the handshake asks; other outputs are returned.
    async fn answer(
        &mut self,
        output: HandshakeOutput,
    ) -> ControlFlow<HandshakeOutput, HandshakeInput<'static>> {
        ControlFlow::Continue(match (output, &self.place) {
            (HandshakeOutput::Authorize { mount, is_title, password, authorization, host }, _) => {
                self.claim = MountClaim { mount, is_title, password, authorization, host };
                let Self { from, address, control, programs, .. } = *self;
                let found = self.claim.authorize(from, address, control, programs).await;
                HandshakeInput::Authorized(found.map(|found| self.place = Some(found)))
            }
            (HandshakeOutput::Acquire { name, content_type, agent }, Some((station, mount))) => {
                let (from, tls) = (Some(self.from), self.is_tls);
                let about = DjInfo { from, agent, name, content_type, tls };
                self.permit = self.sink.acquire_mount(station, mount, about);
                HandshakeInput::Acquired(self.permit.is_some())
            }
            (HandshakeOutput::SetTitle(title), Some((station, mount))) => {
                let title = title.decode(mount.charset);
                HandshakeInput::TitleSet(self.sink.set_live_title(station, mount, title))
            }
            (output, _) => return ControlFlow::Break(output),
        })
    }
}

/// Reads the request, and puts the client on air if it is authorized.
pub(super) async fn serve(
    mut stream: ClientStream,
    address: &Endpoint,
    control: &Control,
    sink: &dyn ListenSink,
    (programs, refusals): (&UrlAuthorizer, &RefusalLog),
) {
    let mut handshake = SourceHandshake::new(SystemClock::now());
    let (from, is_tls) = (stream.peer_ip(), stream.is_tls());
    let (claim, place, permit) = (MountClaim::default(), None, None);
    let mut access =
        MountAccess { from, is_tls, address, control, sink, programs, claim, place, permit };
    let mut piece = [0; 1_024];
    loop {
        while let Some(output) = handshake.poll_output() {
            match access.answer(output).await {
                ControlFlow::Continue(input) => handshake.handle_input(input),
                ControlFlow::Break(HandshakeOutput::Send(bytes)) => {
                    match timeout(REQUEST_TIMEOUT, send(&mut stream, bytes)).await {
                        Ok(Ok(())) => {}
                        _ => return,
                    }
                }
                ControlFlow::Break(HandshakeOutput::Start(start)) => {
                    refusals.forget(from);
                    return start_stream(stream, access.permit, start).await;
                }
                ControlFlow::Break(HandshakeOutput::SendStatus { host }) => {
                    let role = tls::initial_login(&control.access, stream.certificate()).role;
                    let text = mount_status::response(address, host.as_deref(), role, control);
                    return stream.try_send_response(text.as_bytes());
                }
                ControlFlow::Break(HandshakeOutput::Respond(response)) => {
                    count_refusal(control, response);
                    refusals.report(from, address, &access.claim, response);
                    return stream.try_send_response(response.text().as_bytes());
                }
                ControlFlow::Break(HandshakeOutput::Close { is_silent: true }) => {
                    return count(&control.counters.djs_cut_without_request);
                }
                ControlFlow::Break(_) => return,
            }
        }
        let at = handshake.poll_timeout();
        let limit = at.map_or(Span::ZERO, |at| at.since(SystemClock::now())).as_nanos();
        let limit = Duration::from_nanos(u64::try_from(limit).unwrap_or(0));
        match timeout(limit, stream.read(&mut piece)).await {
            Ok(read) => {
                let read = piece.get(..read.unwrap_or(0)).unwrap_or_default();
                handshake.handle_input(HandshakeInput::Received(read));
            }
            Err(_) => handshake.handle_timeout(SystemClock::now()),
        }
    }
}

/// Counts a response where no other part has.
fn count_refusal(control: &Control, response: LiveResponse) {
    let counters = &control.counters;
    match response {
        LiveResponse::HeadTooLong => count(&counters.djs_cut_long_request),
        LiveResponse::CrossSite => count(&counters.http_cross_site),
        LiveResponse::BadRequest | LiveResponse::InvalidPassword => {
            count(&counters.djs_not_understood);
        }
        LiveResponse::UnsupportedType => count(&counters.djs_refused_type),
        LiveResponse::MountInUse => count(&counters.djs_refused_taken),
        _ => {}
    }
}

async fn send(stream: &mut ClientStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn start_stream(
    mut stream: ClientStream,
    permit: Option<DjMountPermit>,
    start: LiveStreamStart,
) {
    let LiveStreamStart { answer, unread, framing, hint } = start;
    let answered = async {
        send(&mut stream, answer).await?;
        MediaStream::new(stream.into_media()?)
    };
    let answered: Result<io::Result<MediaStream>, _> = timeout(REQUEST_TIMEOUT, answered).await;
    match (answered, permit) {
        (Ok(Ok(wire)), Some(permit)) => permit.start(DjStream { wire, unread, framing, hint }),
        (gone, _) => {
            tracing::debug!(reason = ?gone, "live source disconnected before its first audio");
        }
    }
}
