//! The rate limit of full statuses that connecting clients cause, in virtual time.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aulos_control::access::Role;
use aulos_control::backend::{ReactorEvent, SessionId};
use aulos_control::registry::store::SavedState;
use aulos_control::{Clock, Control, ControlOptions, ControlParts, HostInfo, Inbox, registry_for};
use aulos_proto::snap::wire::ClientInfo;
use aulos_server::relay::RtpRelayManager;
use serde_json::Value;

use crate::common::{FakeBackend, TWO_STATIONS, hello, resolve};

/// Full statuses for connecting clients in a second, in bytes; the newest one may exceed it.
const STATUS_BYTES_PER_SECOND: usize = 16 << 20;
const STEP: Duration = Duration::from_millis(4);

/// A control plane whose time only this test advances.
struct World {
    control: Control,
    now: Arc<Mutex<Instant>>,
    clients: u64,
}

impl World {
    fn new() -> Self {
        let resolved = resolve(TWO_STATIONS);
        let registry = registry_for(&resolved, 1);
        let relays = Box::new(RtpRelayManager::default());
        let now = Arc::new(Mutex::new(Instant::now()));
        let read = Arc::clone(&now);
        let audio = Arc::new(FakeBackend::default());
        let saved = SavedState::default();
        let config = Arc::new(resolved);
        let host = HostInfo::default();
        let parts = ControlParts { config, backend: audio, relays, host, registry, saved };
        let clock = Clock::new(move || *read.lock().unwrap());
        let control = Control::new(parts, ControlOptions { clock, ..ControlOptions::default() });
        Self { control, now, clients: 0 }
    }

    /// An unknown client connects. Loopback has no limit of new clients.
    fn connect(&mut self) {
        let mut event = hello(self.clients, &format!("client-{}", self.clients));
        if let ReactorEvent::Hello { address, .. } = &mut event {
            *address = ([127, 0, 0, 1], 0).into();
        }
        self.control.handle_event(event);
        self.clients += 1;
    }

    /// The newest client changes its own volume.
    fn change_volume(&self, percent: u8) {
        let session = SessionId(self.clients - 1);
        let info = ClientInfo { volume: Some(percent), muted: Some(false), report: None };
        self.control.handle_event(ReactorEvent::ClientInfo { session, info });
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
        self.control.tick();
    }
}

/// A controller, and the clients that it has been told of.
struct Observer {
    inbox: Inbox,
    known: HashSet<String>,
    /// Sizes of the full statuses.
    statuses: Vec<usize>,
    volumes: usize,
}

impl Observer {
    fn new(inbox: Inbox) -> Self {
        Self { inbox, known: HashSet::new(), statuses: Vec::new(), volumes: 0 }
    }

    /// Reads what waits now; returns the bytes of full statuses.
    async fn read(&mut self) -> usize {
        let before = self.statuses.iter().sum::<usize>();
        while let Ok(Some(notice)) = tokio::time::timeout(Duration::ZERO, self.inbox.next()).await {
            let text = notice.to_json();
            let notice: Value = serde_json::from_str(&text).unwrap();
            match notice["method"].as_str().unwrap() {
                "Server.OnUpdate" => {
                    self.statuses.push(text.len());
                    self.known = clients(&notice["params"]);
                }
                method => {
                    let id = notice["params"]["id"].as_str().unwrap();
                    assert!(self.known.contains(id), "{method} of {id} before its status");
                    self.volumes += usize::from(method == "Client.OnVolumeChanged");
                }
            }
        }
        self.statuses.iter().sum::<usize>() - before
    }
}

fn clients(status: &Value) -> HashSet<String> {
    let groups = status["server"]["groups"].as_array().unwrap();
    let clients = groups.iter().flat_map(|group| group["clients"].as_array().unwrap());
    clients.map(|client| client["id"].as_str().unwrap().to_owned()).collect()
}

/// In each step a client connects and changes its volume: without the limit there would be a full
/// status in each step, a hundred megabytes a second.
#[tokio::test]
async fn statuses_for_newcomers_stay_under_the_limit_and_the_newest_comes_at_last() {
    let mut world = World::new();
    (0..1_200).for_each(|_| world.connect());
    let (reading, inbox) = world.control.join(Role::Admin);
    let mut reader = Observer::new(inbox);
    let (waiting, inbox) = world.control.join(Role::Admin);
    let mut held_back = Observer::new(inbox);
    world.advance(Duration::from_secs(60));
    reader.read().await;
    let (mut second, mut most) = (VecDeque::new(), 0);
    let steps = 300;
    for step in 0..steps {
        world.connect();
        world.change_volume(u8::try_from(step % 100).unwrap());
        world.advance(STEP);
        second.push_back(reader.read().await);
        if second.len() > usize::try_from(1_000 / STEP.as_millis()).unwrap() {
            second.pop_front();
        }
        most = most.max(second.iter().sum());
    }
    let largest = *reader.statuses.iter().max().unwrap();
    assert!(most <= STATUS_BYTES_PER_SECOND + largest, "{most} bytes in a second");
    // The limit is used, and it is the limit that has left statuses out.
    assert!(most > STATUS_BYTES_PER_SECOND / 2, "{most} bytes in a second");
    assert!(reader.statuses.len() < steps / 2, "{} statuses", reader.statuses.len());
    // Nothing is lost: the status that is due comes without another client.
    world.advance(Duration::from_secs(1));
    reader.read().await;
    assert_eq!(reader.known.len() as u64, world.clients);
    assert_eq!(reader.volumes, steps);
    // The one that has not read gets the newest status, and few before it.
    held_back.read().await;
    assert_eq!(held_back.known, reader.known);
    assert!(held_back.statuses.len() <= 2, "{:?}", held_back.statuses);
    for peer in [reading, waiting] {
        world.control.leave(peer);
    }
}

/// A change by a call is shown with the next tick, with the newcomers that have waited.
#[tokio::test]
async fn a_call_does_not_wait_for_the_limit() {
    let mut world = World::new();
    (0..1_200).for_each(|_| world.connect());
    let (_peer, inbox) = world.control.join(Role::Admin);
    let mut reader = Observer::new(inbox);
    world.advance(Duration::from_secs(60));
    assert!(reader.read().await > 256 << 10);
    world.connect();
    world.advance(Duration::from_millis(1));
    assert_eq!(reader.read().await, 0, "the limit holds it back");
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"Server.DeleteClient",
        "params":{"id":"client-0"}}"#;
    let mut caller = aulos_control::Caller::internal();
    let answer = world.control.request(&mut caller, call).await.unwrap();
    assert!(answer.contains("\"result\""), "{:.200}", &*answer);
    world.advance(Duration::from_millis(1));
    reader.read().await;
    assert!(reader.known.contains("client-1200") && !reader.known.contains("client-0"));
}
