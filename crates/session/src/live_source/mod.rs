//! A live source client (DJ): its request, up to its stream or its response.
//!
//! What reads the connection passes its bytes on, answers what only control knows (whether the
//! client is authorized, whether the mount is free), and does what [`HandshakeOutput`] says.

mod response;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::http::BodyFraming;
use aulos_proto::http::head_length;
use aulos_proto::icecast::shoutcast::{
    DEFAULT_CONTENT_TYPE, FirstLine, PASSWORD_ACCEPTED, complete_head,
};
use aulos_proto::icecast::{
    IcecastRequest, ReceivedTitle, RequestError, RequestKind, SourceRequest, is_unsupported_type,
};
use aulos_proto::packets::FormatHint;

pub use response::LiveResponse;

/// What has happened.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "the answers to each output")]
pub enum HandshakeInput<'a> {
    /// Bytes of the request; none when the client has closed the connection.
    Received(&'a [u8]),
    /// Whether the client may use the mount, or the response if it may not.
    Authorized(Result<(), LiveResponse>),
    /// Whether the mount was free, and is now the client's.
    Acquired(bool),
    /// Whether a client is on air at the mount, which has the title now.
    TitleSet(bool),
}

/// What to do.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "whoever serves the connection does each of them")]
pub enum HandshakeOutput {
    /// Check whether the client may use a mount.
    Authorize {
        /// The mount, with its leading slash; empty when the client has named none.
        mount: String,
        /// Whether it is for a title only.
        is_title: bool,
        /// A password without a user name, as Shoutcast's programs send it.
        password: Option<String>,
        /// `Authorization`, unchanged.
        authorization: Option<String>,
        /// `Host`, unchanged.
        host: Option<String>,
    },
    /// Acquire the mount for a stream.
    Acquire {
        /// The name of the programme.
        name: Option<String>,
        /// The `Content-Type`; empty when absent.
        content_type: String,
        /// The `User-Agent`, without control characters.
        agent: Option<String>,
    },
    /// Set the title of the mount.
    SetTitle(ReceivedTitle),
    /// Send the status of the mounts ([`LiveResponse::status`]), and close the connection.
    SendStatus {
        /// `Host`, unchanged.
        host: Option<String>,
    },
    /// Send the bytes, and go on reading.
    Send(&'static [u8]),
    /// Send the answer, and start the stream.
    Start(LiveStreamStart),
    /// Send the response, and close the connection.
    Respond(LiveResponse),
    /// Close the connection: the client has sent no request in time if `is_silent`, and else has
    /// closed it already.
    Close {
        /// Whether the client has sent no request in time.
        is_silent: bool,
    },
}

/// A stream that begins.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct LiveStreamStart {
    /// The answer that makes the client send.
    pub answer: &'static [u8],
    /// Bytes of the body that have been read already.
    pub unread: Vec<u8>,
    /// The framing of the body.
    pub framing: BodyFraming,
    /// The format according to the request.
    pub hint: FormatHint,
}

/// The request of a source client, up to its stream or its response.
#[derive(Debug)]
pub struct SourceHandshake {
    read: Vec<u8>,
    step: Step,
    deadline: Instant,
    /// The client has sent a password alone, and has been answered.
    is_shoutcast: bool,
    outputs: VecDeque<HandshakeOutput>,
}

#[derive(Debug)]
enum Step {
    /// The head of the request is being read.
    Reading,
    /// Control checks the password of a Shoutcast source.
    AuthorizingLine,
    /// The fields behind the password are being read.
    ReadingFields,
    /// Control checks the credentials for a stream.
    AuthorizingStream(Box<(SourceRequest, Option<String>)>),
    /// Control checks the credentials for a title.
    AuthorizingTitle(Box<ReceivedTitle>),
    /// Control acquires the mount.
    Acquiring(Box<SourceRequest>),
    /// Control sets the title.
    SettingTitle,
    /// The last output has been given.
    Done,
}

impl SourceHandshake {
    /// A connection that was accepted at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            read: Vec::with_capacity(1_024),
            step: Step::Reading,
            deadline: now + REQUEST_TIMEOUT,
            is_shoutcast: false,
            outputs: VecDeque::new(),
        }
    }

    /// Handles what has happened. An answer to what was not asked changes nothing.
    pub fn handle_input(&mut self, input: HandshakeInput<'_>) {
        let output = match (core::mem::replace(&mut self.step, Step::Done), input) {
            (Step::Reading | Step::ReadingFields, HandshakeInput::Received([])) => {
                HandshakeOutput::Close { is_silent: false }
            }
            (Step::Reading, HandshakeInput::Received(bytes)) => match self.receive(bytes) {
                Some(output) => output,
                None => return self.step = Step::Reading,
            },
            (Step::ReadingFields, HandshakeInput::Received(bytes)) => {
                self.read.extend_from_slice(bytes);
                match self.receive_fields() {
                    Some(output) => output,
                    None => return self.step = Step::ReadingFields,
                }
            }
            (
                Step::AuthorizingStream(_) | Step::AuthorizingTitle(_) | Step::AuthorizingLine,
                HandshakeInput::Authorized(Err(response)),
            ) => HandshakeOutput::Respond(response),
            (Step::AuthorizingLine, HandshakeInput::Authorized(Ok(()))) => {
                self.is_shoutcast = true;
                self.outputs.push_back(HandshakeOutput::Send(PASSWORD_ACCEPTED));
                // A client that does not wait for the answer has sent them already.
                match self.receive_fields() {
                    Some(output) => output,
                    None => return self.step = Step::ReadingFields,
                }
            }
            (Step::AuthorizingStream(request), HandshakeInput::Authorized(Ok(()))) => {
                self.acquire(*request)
            }
            (Step::AuthorizingTitle(title), HandshakeInput::Authorized(Ok(()))) => {
                self.step = Step::SettingTitle;
                HandshakeOutput::SetTitle(*title)
            }
            (Step::Acquiring(_), HandshakeInput::Acquired(false)) => {
                HandshakeOutput::Respond(LiveResponse::MountInUse)
            }
            (Step::Acquiring(request), HandshakeInput::Acquired(true)) => {
                HandshakeOutput::Start(self.start(&request))
            }
            (Step::SettingTitle, HandshakeInput::TitleSet(is_on_air)) => {
                let yes = LiveResponse::TitleUpdated;
                HandshakeOutput::Respond(if is_on_air { yes } else { LiveResponse::NotOnAir })
            }
            (step, _) => return self.step = step,
        };
        self.outputs.push_back(output);
    }

    /// Gives up a client that has sent no request in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.step = Step::Done;
            self.outputs.push_back(HandshakeOutput::Close { is_silent: true });
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<HandshakeOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`SourceHandshake::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        matches!(self.step, Step::Reading | Step::ReadingFields).then_some(self.deadline)
    }

    /// Handles bytes of the head; `None` while it is incomplete.
    fn receive(&mut self, bytes: &[u8]) -> Option<HandshakeOutput> {
        self.read.extend_from_slice(bytes);
        if let FirstLine::Password { text, length } = FirstLine::of(&self.read) {
            self.read.drain(..length);
            self.step = Step::AuthorizingLine;
            let (mount, password) = (String::new(), Some(text));
            let (authorization, host) = (None, None);
            let is_title = false;
            return Some(HandshakeOutput::Authorize {
                mount,
                is_title,
                password,
                authorization,
                host,
            });
        }
        let Some(length) = head_length(&self.read).filter(|length| *length <= MAX_HEAD) else {
            let is_too_long = self.read.len() >= MAX_HEAD;
            return is_too_long.then_some(HandshakeOutput::Respond(LiveResponse::HeadTooLong));
        };
        let body = self.read.split_off(length);
        let head = core::mem::replace(&mut self.read, body);
        let request = match IcecastRequest::parse(&head) {
            Ok(request) => request,
            Err(RequestError::Charset) => {
                return Some(HandshakeOutput::Respond(LiveResponse::UnknownCharset));
            }
            Err(_) => return Some(HandshakeOutput::Respond(LiveResponse::BadRequest)),
        };
        // A mount on loopback may have no password, and a foreign web page may run in a local
        // browser.
        if request.from_browser {
            return Some(HandshakeOutput::Respond(LiveResponse::CrossSite));
        }
        let IcecastRequest { kind, authorization, agent, host, .. } = request;
        let (mount, password, is_title) = match kind {
            RequestKind::Source(source) => {
                let mount = source.mount.clone();
                self.step = Step::AuthorizingStream(Box::new((source, agent)));
                (mount, None, false)
            }
            RequestKind::Metadata { mount, title, password } => {
                self.step = Step::AuthorizingTitle(Box::new(title));
                (mount, password, true)
            }
            RequestKind::Status => return Some(HandshakeOutput::SendStatus { host }),
            RequestKind::Options => return Some(HandshakeOutput::Respond(LiveResponse::Methods)),
            _ => return Some(HandshakeOutput::Respond(LiveResponse::NotFound)),
        };
        Some(HandshakeOutput::Authorize { mount, is_title, password, authorization, host })
    }

    /// Handles the fields behind a password; `None` while they are incomplete.
    fn receive_fields(&mut self) -> Option<HandshakeOutput> {
        let Some((head, length)) = complete_head(&self.read).filter(|(_, end)| *end <= MAX_HEAD)
        else {
            let is_too_long = self.read.len() >= MAX_HEAD;
            return is_too_long.then_some(HandshakeOutput::Respond(LiveResponse::HeadTooLong));
        };
        self.read.drain(..length);
        let Ok(IcecastRequest { kind: RequestKind::Source(mut request), agent, .. }) =
            IcecastRequest::parse(&head)
        else {
            return Some(HandshakeOutput::Respond(LiveResponse::BadRequest));
        };
        if request.content_type.is_empty() {
            DEFAULT_CONTENT_TYPE.clone_into(&mut request.content_type);
        }
        Some(self.acquire((request, agent)))
    }

    fn acquire(&mut self, (request, agent): (SourceRequest, Option<String>)) -> HandshakeOutput {
        if is_unsupported_type(&request.content_type) {
            return HandshakeOutput::Respond(LiveResponse::UnsupportedType);
        }
        let (name, content_type) = (request.name.clone(), request.content_type.clone());
        self.step = Step::Acquiring(Box::new(request));
        HandshakeOutput::Acquire { name, content_type, agent }
    }

    fn start(&mut self, request: &SourceRequest) -> LiveStreamStart {
        LiveStreamStart {
            // A client that does not expect `100 Continue` would take it for the final answer.
            answer: match (self.is_shoutcast, request.expects_continue) {
                (true, _) => b"",
                (false, true) => CONTINUE,
                (false, false) => OK,
            },
            unread: core::mem::take(&mut self.read),
            framing: request.framing,
            hint: FormatHint::from_content_type(&request.content_type),
        }
    }
}

/// Time-out of the request.
pub const REQUEST_TIMEOUT: Span = Span::from_secs(10);

/// Maximum length of the request head in bytes.
const MAX_HEAD: usize = 8 << 10;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// libshout and similar clients start to send when they have read this.
const OK: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n";
