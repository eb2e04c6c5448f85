//! The audio backend: builds threads, sources, stations and reactors from the configuration.
//!
//! This is the only module that uses every crate. To the control plane it shows only the traits of
//! [`aulos_control::backend`].

mod announcements;
mod encoding;
mod insert;
mod insert_monitor;
mod listen;
mod log_watch;
mod mount_monitor;
mod mounts;
mod overlays;
mod players;
mod pushes;
mod recordings;
mod renditions;
mod rtp;
mod running_push;
mod running_rendition;
mod sources;
mod state;
mod station_recorder;
mod stations;
mod view;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use aulos_config::{
    Endpoint, Mount, ProcessingSettings, PushSettings, RecorderSettings, ResolvedConfig,
    RtpOutputSettings, StationSettings,
};
use aulos_control::backend::{
    ActiveSound, Announcement, AudioBackend, BackgroundTask, CommandQueueFull, DjInfo,
    DjMountPermit, Greeting, GreetingSink, KickReason, ListenPolicy, ListenSink, ListenerRequest,
    MediaSocket, ProgrammeEvent, ReactorEvent, SendspinSocket, SessionCommand, SessionId,
    StationPosition, StationRecorderEvent, StationReport, TargetSessions,
};
use aulos_core::{MediaTime, Rng, Span};
use aulos_engine::recorder::{self, CommandTime};
use aulos_engine::station::StationEvent;
use aulos_engine::switch::SwitchSchedule;
use aulos_files::record::MarkerRequest;
use aulos_io::reactor::{EventSink, ReactorPool};
use aulos_io::{CodecPool, SystemClock, Workers};
use aulos_proto::sendspin::{ArtworkUpdate, RoomState, SupportedFormat, TransportCommand};
use aulos_proto::snap::session::Refusal;
use aulos_proto::titles::TrackMetadata;
use aulos_session::hls::HlsWindow;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use aulos_control::cluster::ClusterHandle;

use crate::codec_panics;
use crate::hls::HlsTable;
use crate::nats::NatsService;
use crate::push::PushClient;
use crate::radio::{ClipClient, RadioClient};
use announcements::SoundThreads;
use renditions::client_sounds;
use sources::counters::SourceCounters;
use sources::{djs, links};
use state::{AudioState, RunningStation};
use station_recorder::RecorderManager;

/// The audio backend; see [`aulos_control::backend`] for its interface.
pub struct Audio {
    inner: Mutex<AudioState>,
    /// Apart, so that a request for a segment does not wait for the control plane.
    hls: Arc<HlsTable>,
}

impl std::fmt::Debug for Audio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audio").finish_non_exhaustive()
    }
}

impl Audio {
    /// Starts every station of `config`, accepts Snapcast clients on `listener` under this
    /// `policy`, and sends events to `events`.
    ///
    /// # Errors
    /// When a thread or a socket cannot be created.
    pub fn start(
        config: &ResolvedConfig,
        listener: TcpListener,
        policy: &ListenPolicy,
        events: Sender<ReactorEvent>,
    ) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let sink: Arc<dyn EventSink> = Arc::new(ControlEventSink(events));
        let hls = Arc::<HlsTable>::default();
        let mut inner = AudioState {
            context: ReactorPool::start(threads, &sink)?,
            workers: Workers::start(threads)?,
            codecs: CodecPool::start(threads)?,
            stations: Vec::new(),
            links: Vec::new(),
            renditions: Vec::new(),
            playing: Vec::new(),
            pending_moves: Vec::new(),
            players: Vec::new(),
            overlays: Vec::new(),
            lost_chunks: Arc::default(),
            station_runs: 0,
            radio_client: RadioClient::default(),
            clip_client: ClipClient::default(),
            pusher: PushClient::default(),
            recorder_manager: RecorderManager::default(),
            background_tasks: Vec::new(),
            seeds: Rng::new(RandomState::new().hash_one(std::process::id())),
            rtp: rtp::RtpService::default(),
            dj_ports: Vec::new(),
            source_counters: SourceCounters::default(),
            state_dir: config.state_dir.clone(),
            nats: NatsService::new(config.cluster.as_ref()),
            hls: Arc::clone(&hls),
            finished_events: Vec::new(),
        };
        for station in &config.stations {
            stations::start(station, &mut inner)?;
        }
        rtp::open_outputs(&mut inner);
        links::connect_all(&mut inner);
        inner.context.set_listen_policy(policy);
        inner.context.listen(listener)?;
        Ok(Self { inner: Mutex::new(inner), hls })
    }

    /// Joins the cluster of the configuration, if there is one. To be called once; a cluster that
    /// cannot be joined is logged.
    pub fn join_cluster(&self) -> Option<ClusterHandle> {
        self.with(|inner| inner.nats.join()).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot join the cluster");
            None
        })
    }

    /// Stops clients first, then stations, then decoders.
    pub fn stop(&self) {
        self.with(|inner| {
            inner.context.stop();
            inner.rtp.stop();
            inner.workers.stop();
            inner.nats.stop();
            recordings::stop(inner, FINAL_WRITE_TIMEOUT);
            inner.codecs.stop();
        });
    }

    /// Runs `act` under the lock. Only the control plane takes it, so no real-time thread waits.
    fn with<T>(&self, act: impl FnOnce(&mut AudioState) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl GreetingSink for Audio {
    fn set_greeting(&self, client: &str, greeting: Option<Greeting>) -> bool {
        self.with(|inner| inner.context.set_greeting(&Arc::from(client), greeting))
    }

    fn set_default_greeting(&self, greeting: Option<Greeting>) -> bool {
        self.with(|inner| inner.context.set_default_greeting(greeting))
    }
}

impl AudioBackend for Audio {
    fn command(&self, command: SessionCommand) -> Result<(), CommandQueueFull> {
        let retry = command.clone();
        let taken = self.with(|inner| match command {
            SessionCommand::SetSettings { session, settings } => {
                inner.context.set_settings(session, settings)
            }
            SessionCommand::MoveClient { session, station, sound, continues } => {
                players::play(inner, session, station, sound, continues)
            }
            SessionCommand::Kick { session, cause } => {
                inner.pending_moves.retain(|other| other.session != session);
                let refuse = |refusal| inner.context.refuse(session, refusal);
                match cause {
                    KickReason::Unauthorized => refuse(Refusal::Unauthorized),
                    KickReason::RateLimited => refuse(Refusal::Forbidden),
                    _ => inner.context.kick(session),
                }
            }
        });
        if taken { Ok(()) } else { Err(CommandQueueFull(retry)) }
    }

    fn set_listen_policy(&self, policy: &ListenPolicy) {
        self.with(|inner| inner.context.set_listen_policy(policy));
    }

    fn status(&self, station: usize) -> StationReport {
        self.with(|AudioState { stations, recorder_manager, hls, .. }| {
            let running = stations.get_mut(station).and_then(Option::as_mut);
            running.map_or_else(StationReport::default, |running| {
                view::report(running, recorder_manager, hls)
            })
        })
    }

    fn positions(&self) -> Vec<StationPosition> {
        self.with(|inner| inner.stations.iter_mut().flatten().map(view::position).collect())
    }

    fn reset_loudness(&self, station: usize) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.handle.reset_loudness();
            }
        });
    }

    fn set_sound(&self, station: usize, sound: &ProcessingSettings) -> Result<(), String> {
        self.with(|inner| {
            let running = inner.station(station);
            let running = running.ok_or_else(|| "the station has been removed".to_owned())?;
            stations::apply_sound(&mut running.handle, sound)?;
            let before = std::mem::replace(&mut running.config.sound, sound.clone());
            if before.ceiling() != sound.ceiling() {
                client_sounds::follow_ceiling(inner, station);
            }
            Ok(())
        })
    }

    fn set_pushes(&self, station: usize, pushes: &[PushSettings]) {
        self.with(|inner| pushes::change(inner, station, pushes));
    }

    fn set_rtp(&self, station: usize, outputs: &[RtpOutputSettings]) {
        self.with(|inner| rtp::change(inner, station, outputs));
    }

    fn sdp(&self, station: usize, output: usize) -> Option<String> {
        self.with(|inner| {
            let running = inner.stations.get(station).and_then(Option::as_ref)?;
            running.rtp.get(output)?.description().map(str::to_owned)
        })
    }

    fn set_records(&self, station: usize, records: &[RecorderSettings]) {
        self.with(|inner| recordings::change(inner, station, records));
    }

    fn record(
        &self,
        station: usize,
        recorder: usize,
        command: recorder::RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, String> {
        self.with(|inner| recordings::send_command(inner, (station, recorder), command, when))
    }

    fn mark(
        &self,
        station: usize,
        recorder: usize,
        label: &str,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, String> {
        self.with(|inner| recordings::mark(inner, (station, recorder), label, when))
    }

    fn recorder_events(&self) -> Vec<StationRecorderEvent> {
        self.with(recordings::take_events)
    }

    fn set_bypass(&self, station: usize, on: bool) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.handle.set_bypass(on);
            }
        });
    }

    fn add_station(&self, station: &StationSettings) -> io::Result<usize> {
        self.with(|inner| {
            let number = stations::start(station, inner)?;
            links::connect_all(inner);
            Ok(number)
        })
    }

    fn replace_station(&self, number: usize, station: &StationSettings) -> io::Result<()> {
        self.with(|inner| {
            stations::replace(number, station, inner)?;
            renditions::rebuild(inner, number);
            players::handle_replacement(inner, number);
            overlays::end(inner, number);
            links::connect_all(inner);
            Ok(())
        })
    }

    fn remove_station(&self, number: usize) {
        self.with(|inner| {
            if let Some(running) = inner.stations.get_mut(number).and_then(Option::take) {
                inner.hls.remove(&running.config.name);
                stations::end(running, inner);
                renditions::end(inner, number);
                inner.context.remove_station(number);
            }
        });
    }

    fn flush(&self, station: usize) {
        self.with(|inner| {
            let running = inner.station(station);
            if let Some(running) = running.filter(|running| running.flush_at.is_none()) {
                running.handle.flush();
                let quantum = Span::from_millis(i64::from(running.config.chunk_ms));
                running.flush_at = Some(SystemClock::now() + quantum + quantum);
            }
        });
    }

    fn announce(
        &self,
        station: usize,
        announcement: &Announcement,
        sessions: &TargetSessions<'_>,
    ) -> Result<(), String> {
        self.with(|inner| {
            let target = &announcement.target;
            let overlay = overlays::get_or_create(inner, station, target, sessions)?;
            let AudioState { stations, codecs, clip_client, background_tasks, .. } = inner;
            let running = stations.get_mut(station).and_then(Option::as_mut);
            let running = running.ok_or_else(|| "the station has been removed".to_owned())?;
            let RunningStation { config, announcements, handle, .. } = running;
            let mut threads = SoundThreads { codecs, clips: clip_client, tasks: background_tasks };
            announcements.add(announcement, overlay, config, handle, &mut threads)?;
            overlays::move_sessions(inner, sessions);
            Ok(())
        })
    }

    fn move_announced(&self, sessions: &TargetSessions<'_>) {
        self.with(|inner| overlays::move_sessions(inner, sessions));
    }

    fn cancel_announcement(&self, station: usize, id: u64) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.handle.cancel_announcement(id);
            }
        });
    }

    fn set_preferred_source(&self, station: usize, request: Option<(usize, Option<Span>)>) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.handle.set_preference(request);
            }
        });
    }

    fn skip_track(&self, station: usize, source: usize) -> bool {
        self.with(|inner| {
            let sources = inner.station(station).map(|running| &mut running.sources);
            sources.and_then(|all| all.get_mut(source)).is_some_and(|source| source.skip_track())
        })
    }

    fn control_source(&self, station: usize, source: usize, command: TransportCommand) -> bool {
        self.with(|inner| {
            let sources = inner.station(station).map(|running| &mut running.sources);
            sources
                .and_then(|all| all.get_mut(source))
                .is_some_and(|source| source.control(command))
        })
    }

    fn set_schedule(&self, station: usize, schedule: SwitchSchedule) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.handle.set_schedule(schedule);
            }
        });
    }

    fn programme_events(&self) -> Vec<ProgrammeEvent> {
        self.with(|inner| {
            let mut events = std::mem::take(&mut inner.finished_events);
            for (number, slot) in inner.stations.iter_mut().enumerate() {
                let Some(RunningStation { config, announcements, handle, .. }) = slot else {
                    continue;
                };
                announcements.update(handle);
                let now = SystemClock::now();
                let heard_at = now + Span::from_millis(i64::from(config.buffer_ms));
                handle.handle_timeout(now, |event| match event {
                    StationEvent::Switched(event) => {
                        events.push(ProgrammeEvent::Switched(number, event.change));
                    }
                    StationEvent::Announcement(event) => {
                        announcements.handle_event(event, now, heard_at);
                    }
                });
                events.extend(std::iter::from_fn(|| announcements.poll_event(now)));
            }
            events
        })
    }

    fn retain_sounds(&self, wanted: &dyn Fn() -> Vec<ActiveSound>) {
        self.with(|inner| {
            players::choose_again(inner);
            client_sounds::update(inner, &|inner| players::wanted(inner, wanted()));
        });
    }

    fn take_background_tasks(&self) -> Vec<BackgroundTask> {
        self.with(|inner| std::mem::take(&mut inner.background_tasks))
    }

    fn set_dj_address(&self, address: &Endpoint, opened: Result<SocketAddr, &io::Error>) {
        self.with(|inner| djs::set_port_status(address, &opened, inner));
    }

    fn set_title(&self, station: usize, title: &str) {
        self.with(|inner| stations::show_title(inner, station, &Arc::from(title)));
    }

    fn set_player_formats(&self, session: SessionId, formats: Option<&Arc<[SupportedFormat]>>) {
        self.with(|inner| players::set_formats(inner, session, formats));
    }

    fn set_room(&self, session: SessionId, room: &Arc<RoomState>) -> bool {
        self.with(|inner| inner.context.set_room(session, room))
    }

    fn set_artwork(&self, session: SessionId, update: &Arc<ArtworkUpdate>) -> bool {
        self.with(|inner| inner.context.set_artwork(session, update))
    }

    fn reap_ended(&self) {
        self.with(|inner| {
            inner.workers.free_removed();
            links::connect_all(inner);
            pushes::hand_over(inner);
            inner.rtp.free_ended_sessions();
            rtp::follow_interfaces(inner);
            inner.rtp.open_sources();
            rtp::open_outputs(inner);
            recordings::retry(inner);
            sources::log_obstacles(inner);
            mounts::log_obstacles(&mut inner.stations);
            flush_due(inner);
        });
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.with(|inner| {
            let reactors = inner.context.stats();
            let mut stations =
                inner.stations.iter_mut().flatten().map(|station| *station.handle.status());
            let mut all = view::counters(&reactors, &mut stations);
            all.extend(renditions::counters(&inner.renditions, &inner.lost_chunks));
            all.extend(mounts::counters(&mut inner.stations));
            all.extend(self.hls.counters());
            all.extend(codec_panics::counters());
            all.extend(inner.radio_client.counters());
            all.extend(inner.pusher.counters());
            all.extend(inner.source_counters.values());
            all.extend(inner.nats.counters());
            all
        })
    }
}

impl ListenSink for Audio {
    fn acquire_mount(&self, station: &str, mount: &Mount, info: DjInfo) -> Option<DjMountPermit> {
        self.with(|inner| djs::take_seat(station, mount, info, inner))
    }

    fn set_live_title(&self, station: &str, mount: &Mount, title: TrackMetadata) -> bool {
        self.with(|inner| djs::set_title(station, mount, title, inner))
    }

    fn disconnect_source(&self, station: &str, mount: &Mount) -> bool {
        self.with(|inner| djs::disconnect(station, mount, inner))
    }

    fn move_listeners(&self, from: &str, to: &str) -> bool {
        self.with(|inner| mounts::move_listeners(from, to, inner))
    }

    fn accept_listener(&self, socket: MediaSocket, request: ListenerRequest) {
        self.with(|inner| listen::accept(socket, request, inner));
    }

    fn hls_window(&self, station: &str) -> Option<Arc<Mutex<HlsWindow>>> {
        self.hls.window(station)
    }

    fn accept_websocket(&self, socket: MediaSocket, read: Vec<u8>) {
        self.with(|inner| inner.context.add_websocket_client(socket, read));
    }

    fn accept_sendspin(&self, client: SendspinSocket) {
        self.with(|inner| inner.context.add_sendspin_client(client));
    }
}

/// Makes clients discard their buffer once the station has sent its last chunk: a later chunk
/// would be played alone.
fn flush_due(inner: &mut AudioState) {
    let now = SystemClock::now();
    for (number, slot) in inner.stations.iter_mut().enumerate() {
        let due = slot.as_mut().and_then(|running| running.flush_at.take_if(|at| *at <= now));
        if due.is_some() {
            let mapped = inner.renditions.iter().filter(|mapped| mapped.station == number);
            let numbers = mapped.map(|mapped| mapped.number).chain([number]);
            numbers.for_each(|number| inner.context.flush_station(number));
        }
    }
}

/// Forwards events of the reactors to the control plane.
struct ControlEventSink(Sender<ReactorEvent>);

impl EventSink for ControlEventSink {
    fn push(&self, event: ReactorEvent) -> Result<(), ReactorEvent> {
        match self.0.try_send(event) {
            Err(TrySendError::Full(event)) => Err(event),
            // Closed: the server is shutting down.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// How long the shutdown waits for the next recording to be completed, so that a hung disk does not
/// block it.
const FINAL_WRITE_TIMEOUT: Span = Span::from_secs(10);

/// Upper bound for threads of each kind; more do not help an audio server.
const MAX_THREADS: usize = 4;
