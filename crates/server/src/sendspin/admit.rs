//! A connection until its client is let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use aulos_control::backend::{MediaSocket, SendspinSocket};
use aulos_control::count;
use aulos_control::sendspin::WaitingClient;
use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_io::reactor::AddressPermit;
use aulos_proto::sendspin::{
    ActivatedClient, Admission, AdmissionError, AdmissionInput, AdmissionOutput, ClientHello, Trust,
};
use aulos_proto::ws::{FrameKind, WsMessage, WsReader, WsWriter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::context::SendspinContext;
use super::store::random_key;

/// A WebSocket whose handshake is complete.
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) permit: AddressPermit,
    pub(super) reader: WsReader,
    pub(super) writer: WsWriter,
    /// What was read behind the handshake.
    pub(super) read: Vec<u8>,
}

/// Why a client was not let in.
#[derive(Debug)]
pub(super) enum AdmitError {
    Refused(AdmissionError),
    Closed,
    Io(io::Error),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{error}"),
            Self::Closed => f.write_str("it closed the connection"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for AdmitError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Lets a client in and hands it to a media reactor. The result is kept until its connection ends.
pub(super) async fn admit(
    connection: Connection,
    context: &SendspinContext,
) -> Result<Arc<()>, AdmitError> {
    let address = connection.address;
    let mut pending =
        PendingClient { connection, context, client_id: None, is_waiting: false, out: Vec::new() };
    let result = pending.run().await;
    pending.end_waiting();
    match result {
        Ok(client) => {
            let alive = Arc::new(());
            let name = &client.hello.name;
            tracing::info!(
                target: "sendspin",
                %address,
                id = client.hello.client_id,
                name,
                dialect = client.hello.dialect.info().name,
                paired = client.is_paired,
                "a Sendspin player is let in"
            );
            context.control.sendspin.set_name(&client.hello.client_id, name);
            pending.hand_over(client, Arc::clone(&alive))?;
            Ok(alive)
        }
        Err(error) => {
            count(&context.control.counters.sendspin_not_admitted);
            tracing::warn!(target: "sendspin", %address, "a Sendspin player is not let in: {error}");
            Err(error)
        }
    }
}

/// A client that is not let in yet.
struct PendingClient<'a> {
    connection: Connection,
    context: &'a SendspinContext,
    /// Who it says it is.
    client_id: Option<String>,
    is_waiting: bool,
    out: Vec<u8>,
}

impl PendingClient<'_> {
    async fn run(&mut self) -> Result<ActivatedClient, AdmitError> {
        let now = SystemClock::now();
        let mut admission = Admission::new(Arc::clone(&self.context.server), random_key()?, now);
        let mut changes = self.context.control.sendspin.changes();
        let mut room = [0; 4_096];
        loop {
            if let Some(client) = self.read_messages(&mut admission).await? {
                return Ok(client);
            }
            let wait = admission.poll_timeout().map_or(PING_INTERVAL, until);
            tokio::select! {
                count = self.connection.socket.read(&mut room) => match count? {
                    0 => return Err(AdmitError::Closed),
                    count => self.connection.read.extend_from_slice(&room[..count]),
                },
                Ok(()) = changes.changed() => {
                    let Some(id) = &self.client_id else { continue };
                    let trust = AdmissionInput::Trust(self.trust(id));
                    admission.handle_input(SystemClock::now(), trust);
                    if let Some(client) = self.drain(&mut admission).await? {
                        return Ok(client);
                    }
                }
                () = sleep(wait) => {
                    admission.handle_timeout(SystemClock::now());
                    self.connection.writer.write(FrameKind::Ping, b"", &mut self.out);
                    if let Some(client) = self.drain(&mut admission).await? {
                        return Ok(client);
                    }
                }
            }
        }
    }

    /// Passes on the messages that are complete.
    async fn read_messages(
        &mut self,
        admission: &mut Admission,
    ) -> Result<Option<ActivatedClient>, AdmitError> {
        let malformed = |_| AdmitError::Refused(AdmissionError::Malformed);
        let mut reader = std::mem::take(&mut self.connection.reader);
        let read = std::mem::take(&mut self.connection.read);
        let mut bytes = &read[..];
        let mut admitted = None;
        while admitted.is_none() {
            let Some(message) = reader.next(&mut bytes).map_err(malformed)? else { break };
            let now = SystemClock::now();
            match message {
                WsMessage::Text(text) => admission.handle_input(now, AdmissionInput::Text(text)),
                WsMessage::Binary(data) => {
                    admission.handle_input(now, AdmissionInput::Binary(data));
                }
                WsMessage::Ping(payload) => {
                    self.connection.writer.write(FrameKind::Pong, payload, &mut self.out);
                }
                WsMessage::Close(_) => return Err(AdmitError::Closed),
                _ => {}
            }
            admitted = self.drain(admission).await?;
        }
        self.connection.read = bytes.to_vec();
        self.connection.reader = reader;
        Ok(admitted)
    }

    /// Carries out what the admission wants.
    async fn drain(
        &mut self,
        admission: &mut Admission,
    ) -> Result<Option<ActivatedClient>, AdmitError> {
        let mut admitted = None;
        while let Some(output) = admission.poll_output() {
            let writer = &mut self.connection.writer;
            match output {
                AdmissionOutput::SendText(text) => {
                    writer.write(FrameKind::Text, text.as_bytes(), &mut self.out);
                }
                AdmissionOutput::SendBinary(message) => {
                    writer.write(FrameKind::Binary, &message, &mut self.out);
                }
                AdmissionOutput::Ask(question) => {
                    let trust = self.trust(&question.client_id);
                    self.client_id = Some(question.client_id);
                    let now = SystemClock::now();
                    admission.handle_input(now, AdmissionInput::Trust(trust));
                }
                AdmissionOutput::Waits(hello) => self.begin_waiting(&hello),
                AdmissionOutput::Paired { client, psk } => {
                    let client = client.to_string();
                    if !self.context.control.sendspin.set_paired(&client, psk) {
                        return Err(AdmitError::Io(io::Error::other("too many players are known")));
                    }
                    self.context.save().await?;
                    tracing::info!(target: "sendspin", id = client, "a Sendspin player is paired");
                }
                AdmissionOutput::Done(client) => admitted = Some(client),
                AdmissionOutput::Fail(error) => {
                    self.flush().await.ok();
                    return Err(AdmitError::Refused(error));
                }
                _ => {}
            }
        }
        self.flush().await?;
        Ok(admitted)
    }

    /// What is known of the client; who may speak without encryption, the configuration says.
    fn trust(&self, client: &str) -> Trust {
        let config = self.context.control.config();
        let allows_legacy = config.sendspin.as_ref().is_some_and(|settings| {
            settings.all_legacy || settings.legacy.iter().any(|id| id == client)
        });
        Trust { allows_legacy, ..self.context.control.sendspin.of(client) }
    }

    fn begin_waiting(&mut self, hello: &ClientHello) {
        let waiting =
            WaitingClient { name: hello.name.clone(), unpaired_access: hello.unpaired_access };
        self.context.control.sendspin.set_waiting(&hello.client_id, Some(waiting));
        self.is_waiting = true;
        let hint = match hello.unpaired_access {
            true => "approve it with Aulos.ApproveSendspinClient, or pair it",
            false => "pair it with Aulos.PairSendspinClient and the token that it shows",
        };
        let (id, name) = (&hello.client_id, &hello.name);
        tracing::warn!(target: "sendspin", id, name, hint, "a Sendspin player waits to be let in");
    }

    fn end_waiting(&self) {
        if let Some(id) = self.client_id.as_ref().filter(|_| self.is_waiting) {
            self.context.control.sendspin.set_waiting(id, None);
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let written = timeout(WRITE_TIMEOUT, self.connection.socket.write_all(&out)).await;
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn hand_over(self, client: ActivatedClient, alive: Arc<()>) -> io::Result<()> {
        let Connection { socket, address, permit, reader, writer, read } = self.connection;
        let socket = MediaSocket::new(socket.into_std()?, address, permit);
        self.context.sink.accept_sendspin(SendspinSocket {
            socket,
            client: (client.hello, client.cipher),
            reader,
            writer,
            unread: read,
            alive,
        });
        Ok(())
    }
}

fn until(at: Instant) -> Duration {
    at.since(SystemClock::now()).into()
}

/// How often a client that waits is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long a client may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
