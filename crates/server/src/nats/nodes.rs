//! The other nodes of the site: requests to them, and answers to theirs.
//!
//! One task holds the subscriptions and the [`NodeTable`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, Message, Subject, Subscriber};
use aulos_control::cluster::{
    CLUSTER_QUEUE, ClusterHandle, ClusterLink, ClusterState, NodeReport, SettingsChange,
    StatusRequest,
};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_proto::nats::{
    MAX_NODE_DOCUMENT, NodeStatus, NodeStatusRequest, SettingsKey, SettingsRecord, status_subject,
};
use aulos_session::nats::{NodeTable, NodeTableOutput};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::NatsCounters;
use super::link::{Link, is_connected};
use super::origin::{client, next};
use super::settings::SettingsLink;

/// A request of the control plane for what is known of the other nodes.
type ReportsRequest = oneshot::Sender<Vec<NodeReport>>;

/// The control plane's end.
struct NodeLink {
    state: ClusterState,
    is_connected: Arc<AtomicBool>,
    requests: mpsc::Sender<ReportsRequest>,
    settings: Option<SettingsLink>,
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
        self.requests.try_send(sender).ok()?;
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
}

/// The task.
pub(super) struct Nodes {
    state: ClusterState,
    is_connected: Arc<AtomicBool>,
    /// Requests of the control plane.
    reports_requests: mpsc::Receiver<ReportsRequest>,
    /// Requests to the control plane.
    status_requests: mpsc::Sender<StatusRequest>,
    table: NodeTable,
    /// Requests of the control plane that wait for the end of the round.
    waiting: Vec<ReportsRequest>,
    /// This node's own document, and when it was requested.
    document: Option<(Instant, Arc<str>)>,
    /// The document that the control plane is rendering, and the requests that wait for it.
    rendering: Option<oneshot::Receiver<String>>,
    asked: Vec<(Subject, u32)>,
    counters: Arc<NatsCounters>,
}

impl Nodes {
    pub(super) fn new(
        state: ClusterState,
        settings: Option<SettingsLink>,
        counters: Arc<NatsCounters>,
    ) -> (Self, ClusterHandle) {
        let (requests, reports_requests) = mpsc::channel(CLUSTER_QUEUE);
        let (status_requests, control_requests) = mpsc::channel(CLUSTER_QUEUE);
        let is_connected = Arc::<AtomicBool>::default();
        let [a, b, c, d, ..] = state.process.to_le_bytes();
        let nodes = Self {
            table: NodeTable::new(u32::from_le_bytes([a, b, c, d]), SystemClock::now()),
            state: state.clone(),
            is_connected: Arc::clone(&is_connected),
            reports_requests,
            status_requests,
            waiting: Vec::new(),
            document: None,
            rendering: None,
            asked: Vec::new(),
            counters,
        };
        let link = Arc::new(NodeLink { state, is_connected, requests, settings });
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
                request = self.reports_requests.recv() => match request {
                    Some(answer) => self.request_reports(&client, answer),
                    None => return,
                },
                message = next(&mut subscriptions.status) => {
                    let Some(message) = message else { return };
                    self.handle_status_request(&message);
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
        let status = client.subscribe(status_subject(&self.state.site)).await.ok()?;
        let answers = client.subscribe(inbox.to_owned()).await.ok()?;
        Some(Subscriptions { status, answers })
    }

    /// Answers with the reports of the next round, or at once where there is no connection.
    fn request_reports(&mut self, client: &Client, answer: ReportsRequest) {
        if !is_connected(client) {
            // The asking task may have ended.
            answer.send(self.reports(false)).ok();
            return;
        }
        // What is dropped beyond the limit is answered with nothing.
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push(answer);
        }
        self.table.request(SystemClock::now());
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
            if self.status_requests.try_send(sender).is_ok() {
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
}

/// The document, once the control plane has rendered it; never without a request.
async fn rendered(rendering: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
    match rendering {
        Some(receiver) => receiver.await.ok(),
        None => std::future::pending().await,
    }
}

/// How often the end of a round is looked for.
const TICK: Duration = Duration::from_millis(50);

/// For how long a document answers more requests: a hundred nodes that ask cause two renderings a
/// second.
const DOCUMENT_REUSE: Span = Span::from_millis(500);

/// Requests that wait, of the control plane and of other nodes: one of each node at once.
const MAX_WAITING: usize = 256;

/// How long the connection may take a message.
const MAX_WAIT: Duration = Duration::from_millis(200);
