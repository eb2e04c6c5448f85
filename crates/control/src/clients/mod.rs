//! The players: clients and groups, who is admitted, and the commands that they are sent.

mod admission;
pub(crate) mod calls;
mod greetings;
pub(crate) mod log;
mod outbox;
pub mod registry;
pub(crate) mod sound_calls;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::access::{AddressBuckets, LoginError, Role};
use crate::backend::{AudioBackend, Hello, KickReason, ReactorEvent, SessionCommand, SessionId};
use crate::control::counters::count;
use crate::effects::Effects;
use crate::outside::Outside;
use crate::refusals::RefusalFilter;
use admission::{authorize, new_client_buckets};
use greetings::GreetingSync;
use log::{log_arrival, log_departure, log_refusal, log_shared_id};
use outbox::Outbox;
use registry::Registry;

/// The clients and groups, and what the audio side has been sent about them.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) registry: Registry,
    outbox: Outbox,
    greetings: GreetingSync,
    /// Rate limit for unknown clients, per address: ids are free to invent, and each one is
    /// remembered.
    new_clients: AddressBuckets,
    refused: RefusalFilter<KickReason>,
    /// The time of the first health report that pages have not shown yet.
    health_changed_at: Option<Instant>,
    /// When browsers that are gone were last looked for.
    browsers_checked_at: Option<Instant>,
}

impl Clients {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            outbox: Outbox::default(),
            greetings: GreetingSync::default(),
            new_clients: new_client_buckets(),
            refused: RefusalFilter::default(),
            health_changed_at: None,
            browsers_checked_at: None,
        }
    }

    /// Handles an event of the audio side. `login` gives the role of the credentials of a Hello.
    pub(crate) fn handle_event(
        &mut self,
        event: ReactorEvent,
        outside: Outside<'_>,
        login: impl FnOnce(IpAddr, &Hello) -> Result<Role, LoginError>,
    ) -> Effects {
        log_departure(outside.events, &self.registry.table, &event);
        let mut arrival = None;
        match &event {
            ReactorEvent::SessionEnded { session, .. } => self.outbox.forget(*session),
            ReactorEvent::Hello { session, hello, address, authorized, .. } => {
                let peer = address.ip();
                arrival = Some((*session, peer));
                let authorized = authorize(login(peer, hello), *authorized);
                let admitted = authorized.and_then(|()| self.admit(peer, hello, outside));
                if let Err(cause) = admitted {
                    self.log_refusal(peer, cause, outside);
                    let session = *session;
                    let commands = vec![SessionCommand::Kick { session, cause }];
                    return Effects { commands, ..Effects::default() };
                }
            }
            ReactorEvent::ClientInfo { .. }
            | ReactorEvent::Command { .. }
            | ReactorEvent::Artwork { .. }
            | ReactorEvent::SendspinClient { .. } => {}
            ReactorEvent::Health { .. } => {
                self.health_changed_at.get_or_insert_with(|| outside.clock.now());
            }
        }
        let mut effects = self.registry.apply(event, outside.clock.wall_time());
        if let Some(shared) = effects.shared.take() {
            log_shared_id(outside.events, &self.registry.table, &shared);
        }
        if let Some((session, peer)) = arrival {
            self.log_arrival(session, peer, &effects.commands, outside);
        }
        effects
    }

    /// Checks the rate limit for unknown clients.
    fn admit(
        &mut self,
        from: IpAddr,
        hello: &Hello,
        outside: Outside<'_>,
    ) -> Result<(), KickReason> {
        let now = outside.clock.local();
        if self.registry.table.is_known(hello) || self.new_clients.take(from, now) {
            return Ok(());
        }
        count(&outside.counters.clients_refused_new);
        Err(KickReason::RateLimited)
    }

    /// Logs a client that has been accepted, or the reason why it was not.
    fn log_arrival(
        &self,
        session: SessionId,
        peer: IpAddr,
        commands: &[SessionCommand],
        outside: Outside<'_>,
    ) {
        let kicked = commands.iter().find_map(|command| match command {
            SessionCommand::Kick { session: kicked, cause } if *kicked == session => Some(*cause),
            _ => None,
        });
        if let Some(cause) = kicked {
            return self.log_refusal(peer, cause, outside);
        }
        self.refused.forget(peer);
        log_arrival(outside.events, &self.registry.table, session, peer);
    }

    /// Logs a refusal, once for each reason: a player tries again every second.
    fn log_refusal(&self, peer: IpAddr, cause: KickReason, outside: Outside<'_>) {
        if self.refused.is_new(peer, cause) {
            log_refusal(outside.events, peer, cause);
        }
    }

    /// Queues commands for the audio side and sends what it takes; it gets the rest later.
    pub(crate) fn send(&mut self, commands: Vec<SessionCommand>, backend: &dyn AudioBackend) {
        commands.into_iter().for_each(|command| self.outbox.push(command));
        self.outbox.flush(backend);
    }

    /// Gives the audio side the greetings of clients that have changed. Unless the server is `open`
    /// without a login, it must not answer any Hello by itself.
    pub(crate) fn send_greetings(
        &mut self,
        changed: HashSet<String>,
        open: bool,
        backend: &dyn AudioBackend,
    ) {
        self.greetings.refresh(&self.registry, changed, open, backend);
    }

    /// Forgets the players of pages that are gone.
    pub(crate) fn forget_absent_browsers(&mut self, now: Instant) -> Effects {
        let before = *self.browsers_checked_at.get_or_insert(now);
        if now.saturating_duration_since(before) < BROWSER_CHECK_INTERVAL {
            return Effects::default();
        }
        self.browsers_checked_at = Some(now);
        self.registry.forget_absent_browsers(now)
    }

    /// Whether pages have to be shown the health of clients now.
    pub(crate) fn take_health_change(&mut self, now: Instant) -> bool {
        let is_due = |since: &mut Instant| now.saturating_duration_since(*since) >= HEALTH_INTERVAL;
        self.health_changed_at.take_if(is_due).is_some()
    }

    /// The number of the station that the client of a session plays.
    pub(crate) fn station_of(&self, session: SessionId) -> Option<usize> {
        let Registry { table, stations, .. } = &self.registry;
        let (group, _) = table.client(&table.with_session(session)?.id)?;
        stations.find(&group.station).map(|(number, _)| number)
    }
}

/// Interval at which client health is shown. Reports come per client, and each update is a full
/// status.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which browsers that are gone are looked for.
const BROWSER_CHECK_INTERVAL: Duration = Duration::from_secs(5);
