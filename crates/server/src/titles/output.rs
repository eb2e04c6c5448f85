//! The task of one output: waits for titles, and sends them.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aulos_config::{Endpoint, TitleOutputSettings, TitleTarget, Webhook};
use aulos_control::titles::{self, OutputOutcome};
use aulos_control::{Control, ShownTitle};
use aulos_io::SystemClock;
use aulos_proto::uri::percent_encode_url;
use aulos_session::title_output::{TitleOutput, TitleOutputInput};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use super::encoder::TitleEncoder;
use super::files::FileWriter;
use crate::dial::{Dialer, connect_to_any};
use crate::post::{PostBody, get, post};

/// What the task of an output needs.
pub(super) struct OutputTask {
    pub(super) control: Arc<Control>,
    pub(super) dialer: Arc<Dialer>,
    /// For an output that is a file.
    pub(super) files: Option<FileWriter>,
    pub(super) station: String,
    pub(super) settings: TitleOutputSettings,
}

impl OutputTask {
    /// Sends titles until the station ends.
    pub(super) async fn run(self) {
        let Some(mut shown) = titles::subscribe(&self.control, &self.station) else { return };
        let seed = RandomState::new().hash_one(&self.station);
        let mut output = TitleOutput::new(self.settings.interval, seed);
        let mut encoder = TitleEncoder::new(&self.settings);
        let mut link: Option<TcpStream> = None;
        let mut is_failing = false;
        // The present title is the first one.
        shown.mark_changed();
        loop {
            let Some(title) = output.poll_output() else {
                let pause = output.poll_timeout().map(|at| at.since(SystemClock::now()));
                tokio::select! {
                    changed = shown.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        if let Some(title) = shown.borrow_and_update().clone() {
                            output.handle_input(SystemClock::now(), TitleOutputInput::Title(title));
                        }
                    }
                    () = sleep(pause.unwrap_or_default().into()), if pause.is_some() => {
                        output.handle_timeout(SystemClock::now());
                    }
                    // Some receivers do so after each title, so it is no trouble by itself.
                    () = closed(&mut link) => {
                        link = None;
                        output.handle_input(SystemClock::now(), TitleOutputInput::Failed);
                        self.report(OutputOutcome::FailedAgain);
                    }
                }
                continue;
            };
            let sent = timeout(SEND_TIMEOUT, self.send(&title, &mut encoder, &mut link)).await;
            let sent = sent.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            let was_failing = std::mem::replace(&mut is_failing, sent.is_err());
            let (input, outcome) = match sent {
                Ok(()) if was_failing => (TitleOutputInput::Sent, OutputOutcome::SentAgain),
                Ok(()) => (TitleOutputInput::Sent, OutputOutcome::Sent),
                Err(_) if was_failing => (TitleOutputInput::Failed, OutputOutcome::FailedAgain),
                Err(why) => (TitleOutputInput::Failed, OutputOutcome::Failed(why)),
            };
            if is_failing {
                link = None;
            }
            output.handle_input(SystemClock::now(), input);
            self.report(outcome);
        }
    }

    fn report(&self, outcome: OutputOutcome) {
        let output = self.settings.target.name();
        titles::report_output(&self.control, &self.station, &output, outcome);
    }

    async fn send(
        &self,
        title: &Arc<ShownTitle>,
        encoder: &mut TitleEncoder,
        link: &mut Option<TcpStream>,
    ) -> Result<(), String> {
        let bytes = encoder.encode(&title.playing);
        match &self.settings.target {
            TitleTarget::File(path) => {
                let writer = self.files.as_ref().ok_or("no thread for files")?;
                writer.write(path, bytes).await.map_err(|error| error.to_string())
            }
            TitleTarget::Udp(to) => self.send_datagram(to, &bytes).await,
            TitleTarget::Tcp(to) => {
                if link.is_none() {
                    *link = Some(self.connect(to).await?);
                }
                let stream = link.as_mut().ok_or("no connection")?;
                stream.write_all(&bytes).await.map_err(|error| error.to_string())
            }
            TitleTarget::Http { server, path, has_body } => {
                let target = path.render_escaped(&title.playing, escaped);
                let server = Webhook { target, ..server.clone() };
                let sent = if *has_body {
                    let content_type = encoder.content_type();
                    let body = PostBody { content_type, id: None, content: bytes };
                    post(&self.dialer, &server, body).await
                } else {
                    get(&self.dialer, &server).await
                };
                sent.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    async fn send_datagram(&self, to: &Endpoint, bytes: &[u8]) -> Result<(), String> {
        let to = self.resolve(to).await?.into_iter().next().ok_or(NO_ADDRESS)?;
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let sent = async {
            let socket = UdpSocket::bind(any).await?;
            socket.send_to(bytes, to).await
        };
        sent.await.map(drop).map_err(|error: io::Error| error.to_string())
    }

    async fn connect(&self, to: &Endpoint) -> Result<TcpStream, String> {
        let found = self.resolve(to).await?;
        if found.is_empty() {
            return Err(NO_ADDRESS.to_owned());
        }
        let (_, stream) =
            connect_to_any(found, None).await.map_err(|error| error.kind().to_string())?;
        // A receiver that was switched off closes nothing.
        let options = rustix::net::sockopt::set_tcp_user_timeout(&stream, DEAD_AFTER_MS)
            .and_then(|()| rustix::net::sockopt::set_socket_keepalive(&stream, true));
        options.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    async fn resolve(&self, to: &Endpoint) -> Result<Vec<SocketAddr>, String> {
        let found = self.dialer.resolve(&to.host, to.port).await;
        found.map_err(|_| NO_ADDRESS.to_owned())
    }
}

/// A value within the path or query of a web address; old programs take `;` for `&`.
fn escaped(value: &str) -> String {
    percent_encode_url(value).replace('/', "%2F").replace(';', "%3B")
}

/// Waits until a connection that is kept ends. What its receiver sends is not needed.
async fn closed(link: &mut Option<TcpStream>) {
    let Some(stream) = link else { return std::future::pending().await };
    let mut ignored = [0; 256];
    while stream.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
}

const NO_ADDRESS: &str = "the host name has no address";

/// Time for a title, with the connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a receiver may leave data unacknowledged.
const DEAD_AFTER_MS: u32 = 10_000;
