//! The other nodes of the site: requests to them, and answers to theirs.
//!
//! One task holds the subscriptions and the [`NodeTable`]. What takes longer, a call and its
//! answer, has a task of its own, of which there is a limited number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, Message, Subject, Subscriber};
use aulos_control::cluster::{
    CLUSTER_QUEUE, ClusterHandle, ClusterLink, ClusterRequest, ClusterState, MAX_CALL,
    MAX_CALL_ANSWER, NodeCallAnswer, NodeCallError, NodeReport, SettingsChange,
};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_proto::nats::{
    MAX_NODE_DOCUMENT, NodeStatus, NodeStatusRequest, SettingsKey, SettingsRecord, call_subject,
    status_subject,
};
use aulos_session::nats::{NodeTable, NodeTableOutput};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::NatsCounters;
use super::link::{Link, is_connected};
use super::origin::{client, next};
use super::settings::SettingsLink;

/// The control plane's end.
struct NodeLink {
    state: ClusterState,
    is_connected: Arc<AtomicBool>,
    commands: mpsc::Sender<NodeCommand>,
    settings: Option<SettingsLink>,
}

enum NodeCommand {
    Status(oneshot::Sender<Vec<NodeReport>>),
    Call(String, String, oneshot::Sender<Result<Vec<u8>, NodeCallError>>),
}

impl ClusterLink for NodeLink {
    fn state(&self) -> ClusterState {
        ClusterState {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            ..self.state.clone()
        }
    }

    fn request_status(&self) -> Option<oneshot::Receiver<Vec<NodeReport>>> {
        let (sender, receiver) = oneshot::channel();
        self.commands.try_send(NodeCommand::Status(sender)).ok()?;
        Some(receiver)
    }

    fn shares_settings(&self) -> bool {
        self.settings.is_some()
    }

    fn change_settings(&self, change: SettingsChange) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.change(change))
    }

    fn take_settings(&self) -> Option<(SettingsKey, SettingsRecord)> {
        self.settings.as_ref()?.take()
    }

    fn call(&self, node: &str, request: String) -> Option<NodeCallAnswer> {
        let (sender, receiver) = oneshot::channel();
        self.commands.try_send(NodeCommand::Call(node.to_owned(), request, sender)).ok()?;
        Some(receiver)
    }
}

/// The task.
pub(super) struct Nodes {
    state: ClusterState,
    is_connected: Arc<AtomicBool>,
    accepts_calls: bool,
    commands: mpsc::Receiver<NodeCommand>,
    requests: mpsc::Sender<ClusterRequest>,
    table: NodeTable,
    /// Requests of the control plane that wait for the end of the round.
    waiting: Vec<oneshot::Sender<Vec<NodeReport>>>,
    /// This node's own document, and when it was requested.
    document: Option<(Instant, Arc<str>)>,
    /// The document that the control plane is rendering, and the requests that wait for it.
    rendering: Option<oneshot::Receiver<String>>,
    asked: Vec<(Subject, u32)>,
    calls: Arc<Semaphore>,
    counters: Arc<NatsCounters>,
}

impl Nodes {
    pub(super) fn new(
        state: ClusterState,
        accepts_calls: bool,
        settings: Option<SettingsLink>,
        counters: Arc<NatsCounters>,
    ) -> (Self, ClusterHandle) {
        let (commands, receiver) = mpsc::channel(CLUSTER_QUEUE);
        let (requests, control_requests) = mpsc::channel(CLUSTER_QUEUE);
        let is_connected = Arc::<AtomicBool>::default();
        let [a, b, c, d, ..] = state.process.to_le_bytes();
        let nodes = Self {
            table: NodeTable::new(u32::from_le_bytes([a, b, c, d]), SystemClock::now()),
            state: state.clone(),
            is_connected: Arc::clone(&is_connected),
            accepts_calls,
            commands: receiver,
            requests,
            waiting: Vec::new(),
            document: None,
            rendering: None,
            asked: Vec::new(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            counters,
        };
        let link = Arc::new(NodeLink { state, is_connected, commands, settings });
        (nodes, ClusterHandle { link, requests: control_requests })
    }

    /// Runs until the control plane has dropped its end.
    pub(super) async fn run(mut self, link: Arc<Link>) {
        let client = client(&link).await;
        let inbox = client.new_inbox();
        let Some(mut subscriptions) = self.subscribe(&client, &inbox).await else { return };
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_command(&client, command),
                    None => return,
                },
                message = next(&mut subscriptions.status) => {
                    let Some(message) = message else { return };
                    self.handle_status_request(&message);
                }
                message = next_call(&mut subscriptions.calls) => {
                    let Some(message) = message else { return };
                    self.handle_call(&client, message);
                }
                message = next(&mut subscriptions.answers) => {
                    let Some(message) = message else { return };
                    self.handle_answer(&message);
                }
                document = rendered(&mut self.rendering) => {
                    self.rendering = None;
                    self.document = document.map(|text| (SystemClock::now(), text.into()));
                    self.answer_all(&client).await;
                }
                _ = tick.tick() => self.table.handle_timeout(SystemClock::now()),
            }
            self.is_connected.store(is_connected(&client), Ordering::Relaxed);
            if !self.asked.is_empty() && self.rendering.is_none() {
                self.answer_all(&client).await;
            }
            self.drain(&client, &inbox).await;
        }
    }

    async fn subscribe(&self, client: &Client, inbox: &str) -> Option<Subscriptions> {
        let ClusterState { site, node, .. } = &self.state;
        let status = client.subscribe(status_subject(site)).await.ok()?;
        let answers = client.subscribe(inbox.to_owned()).await.ok()?;
        let calls = if self.accepts_calls {
            Some(client.subscribe(call_subject(site, node)).await.ok()?)
        } else {
            None
        };
        Some(Subscriptions { status, answers, calls })
    }

    fn handle_command(&mut self, client: &Client, command: NodeCommand) {
        match command {
            NodeCommand::Status(answer) if is_connected(client) => {
                // What is dropped beyond the limit is answered with nothing.
                if self.waiting.len() < MAX_WAITING {
                    self.waiting.push(answer);
                }
                self.table.request(SystemClock::now());
            }
            NodeCommand::Status(answer) => drop(answer.send(self.reports(false))),
            NodeCommand::Call(node, request, answer) => {
                let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else { return };
                let subject = call_subject(&self.state.site, &node);
                let client = client.clone();
                tokio::spawn(async move {
                    // The caller may have gone.
                    answer.send(call(&client, subject, request).await).ok();
                    drop(permit);
                });
            }
        }
    }

    fn handle_answer(&mut self, message: &Message) {
        let is_own = NodeStatus::parse(&message.payload).is_ok_and(|status| {
            status.process == self.state.process && status.node == self.state.node
        });
        if !is_own {
            let before = self.table.counts();
            self.table.handle_input(SystemClock::now(), &message.payload);
            self.counters.add_answers(self.table.counts(), before);
        }
    }

    fn handle_status_request(&mut self, message: &Message) {
        let parsed = NodeStatusRequest::parse(&message.payload);
        match (parsed, &message.reply) {
            (Ok(request), Some(reply)) if self.asked.len() < MAX_WAITING => {
                self.asked.push((reply.clone(), request.round));
            }
            _ => {
                self.counters.statuses_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Answers the requests that wait, if the document is new enough; otherwise it is rendered
    /// first.
    async fn answer_all(&mut self, client: &Client) {
        let now = SystemClock::now();
        let fresh = self.document.as_ref().filter(|(at, _)| now - *at < DOCUMENT_REUSE);
        let Some(document) = fresh.map(|(_, text)| Arc::clone(text)) else {
            let (sender, receiver) = oneshot::channel();
            if self.requests.try_send(ClusterRequest::Status(sender)).is_ok() {
                self.rendering = Some(receiver);
            } else {
                let dropped = std::mem::take(&mut self.asked).len() as u64;
                self.counters.statuses_dropped.fetch_add(dropped, Ordering::Relaxed);
            }
            return;
        };
        for (reply, round) in std::mem::take(&mut self.asked) {
            let mut message = Vec::new();
            let document = document.as_bytes();
            let document = document.get(..MAX_NODE_DOCUMENT).unwrap_or(document);
            let ClusterState { node, process, .. } = &self.state;
            NodeStatus { round, process: *process, node, document }.write(&mut message);
            let sent = timeout(MAX_WAIT, client.publish(reply, message.into())).await;
            let counter = match sent {
                Ok(Ok(())) => &self.counters.statuses,
                Ok(Err(_)) | Err(_) => &self.counters.statuses_dropped,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes a call of another node to the control plane.
    fn handle_call(&self, client: &Client, message: Message) {
        let permit = Arc::clone(&self.calls).try_acquire_owned();
        let (Ok(permit), Some(reply)) = (permit, message.reply) else {
            self.counters.calls_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (sender, receiver) = oneshot::channel();
        let mut call = message.payload.to_vec();
        // One byte more than the control plane takes.
        call.truncate(MAX_CALL + 1);
        if self.requests.try_send(ClusterRequest::Call(call, sender)).is_err() {
            self.counters.calls_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let client = client.clone();
        tokio::spawn(async move {
            if let Ok(Ok(answer)) = timeout(CALL_TIMEOUT, receiver).await {
                // The asking node has a time-out.
                timeout(MAX_WAIT, client.publish(reply, answer.into())).await.ok();
            }
            drop(permit);
        });
    }

    async fn drain(&mut self, client: &Client, inbox: &str) {
        while let Some(output) = self.table.poll_output() {
            match output {
                NodeTableOutput::Ask { round } => {
                    let mut message = Vec::new();
                    NodeStatusRequest { round }.write(&mut message);
                    let subject = status_subject(&self.state.site);
                    let ask =
                        client.publish_with_reply(subject, inbox.to_owned(), Bytes::from(message));
                    // Without it the round is over without answers.
                    timeout(MAX_WAIT, ask).await.ok();
                }
                NodeTableOutput::Complete => {
                    let reports = self.reports(true);
                    for answer in std::mem::take(&mut self.waiting) {
                        answer.send(reports.clone()).ok();
                    }
                }
                _ => {}
            }
        }
    }

    /// The nodes as they are known; none is reachable without a connection.
    fn reports(&self, is_connected: bool) -> Vec<NodeReport> {
        let now = SystemClock::now();
        let nodes = self.table.nodes().map(|node| NodeReport {
            name: node.name.clone(),
            process: node.process,
            age: (now - node.answered_at).max(Span::ZERO),
            is_reachable: is_connected && node.is_reachable,
            is_duplicate: node.is_duplicate,
            document: node.document.clone(),
        });
        nodes.collect()
    }
}

struct Subscriptions {
    status: Subscriber,
    answers: Subscriber,
    calls: Option<Subscriber>,
}

/// The next call; never one where calls are not accepted.
async fn next_call(calls: &mut Option<Subscriber>) -> Option<Message> {
    match calls {
        Some(calls) => next(calls).await,
        None => std::future::pending().await,
    }
}

/// The document, once the control plane has rendered it; never without a request.
async fn rendered(rendering: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
    match rendering {
        Some(receiver) => receiver.await.ok(),
        None => std::future::pending().await,
    }
}

/// Executes a call on another node.
async fn call(client: &Client, subject: String, request: String) -> Result<Vec<u8>, NodeCallError> {
    if !is_connected(client) {
        return Err(NodeCallError::NotConnected);
    }
    let answer = timeout(CALL_TIMEOUT, client.request(subject, request.into())).await;
    let answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            return Err(NodeCallError::NoNode);
        }
        Ok(Err(_)) | Err(_) => return Err(NodeCallError::TimedOut),
    };
    if answer.payload.len() > MAX_CALL_ANSWER {
        return Err(NodeCallError::TooLarge);
    }
    Ok(answer.payload.to_vec())
}

/// How often the end of a round is looked for.
const TICK: Duration = Duration::from_millis(50);

/// For how long a document answers more requests: a hundred nodes that ask cause two renderings a
/// second.
const DOCUMENT_REUSE: Span = Span::from_millis(500);

/// Requests that wait, of the control plane and of other nodes: one of each node at once.
const MAX_WAITING: usize = 256;

/// Calls under way in both directions.
const MAX_CALLS: usize = 32;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the connection may take a message.
const MAX_WAIT: Duration = Duration::from_millis(200);
