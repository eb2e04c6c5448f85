//! The running audio: what the configuration asks for, built from the floors below.
//!
//! This is the only place that knows every crate. It makes the threads, opens the sources, wires
//! stations to reactors, and gives the control plane the small view of [`crate::house`].

mod announcements;
mod djs;
mod links;
mod listen;
mod pushes;
mod recordings;
mod renditions;
mod rtp;
mod sources;
mod stations;
mod view;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aulos_config::{Endpoint, Mount, Push, Record, Resolved, RtpOut, Sound, Station};
use aulos_core::{ChannelMap, Instant, MediaTime, Span};
use aulos_engine::outlet::Outlets;
use aulos_engine::recorder::{self, When};
use aulos_engine::station::{Switched, Wish};
use aulos_engine::steady::Knobs;
use aulos_io::feed::{DjCounters, FifoCounters};
use aulos_io::reactor::{self, Channel, Context, EventSink};
use aulos_io::{CodecPool, Place, SystemClock, Workers};
use aulos_proto::snap::session::Refusal;
use aulos_proto::snap::wire::ServerSettings;
use aulos_proto::titles::Title;
use aulos_rt::ring::Consumer;
use aulos_rt::{Publisher, Reader};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::access::Credentials;
use crate::house::{
    self, Announced, Announcement, Cause, Command, DjAbout, DjSeat, Door, Event, Full, Greeting,
    Hello, House, ListenSink, MediaSocket, Recorded, SessionId, Settings, StationPosition,
    StationStatus,
};
use crate::push::Pusher;
use crate::radio::{Chore, Tuner};
use announcements::Announcements;
use links::Link;
use pushes::Pushed;
use recordings::{Recording, Studio};
use renditions::{Mapped, Move};
use sources::Watch;

/// Everything that makes sound.
pub struct Audio {
    inner: Mutex<Inner>,
}

impl std::fmt::Debug for Audio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audio").finish_non_exhaustive()
    }
}

/// Numbers for those who need chance: another one each time, and in each run of the server.
#[derive(Debug)]
struct Seeds(u64);

impl Seeds {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
}

struct Inner {
    context: Context,
    workers: Workers,
    codecs: CodecPool,
    /// By number; none where a station was removed.
    stations: Vec<Option<Running>>,
    /// Sources that are other stations.
    links: Vec<Link>,
    /// Renditions for clients that do not play all channels, and sessions that wait for one.
    mapped: Vec<Mapped>,
    moves: Vec<Move>,
    /// Counts every station that ever ran.
    runs: u64,
    /// Finds web radio and servers to push to, and what the control runtime has not begun to run for
    /// them.
    tuner: Tuner,
    pusher: Pusher,
    studio: Studio,
    chores: Vec<Chore>,
    seeds: Seeds,
    rtp: rtp::Rtp,
    /// Where DJs come to, and what happened to them.
    dj_ports: Vec<(Endpoint, djs::Opened)>,
    dj_counters: Arc<DjCounters>,
    /// Connections to sources' TCP ports that sent a request and no sound.
    source_requests: Arc<AtomicU64>,
    fifo_counters: Arc<FifoCounters>,
    /// What control has not heard yet of announcements whose station is gone.
    announced: Vec<(u64, Announced)>,
}

impl Inner {
    /// The station of this number, while it runs.
    fn station(&mut self, number: usize) -> Option<&mut Running> {
        self.stations.get_mut(number).and_then(Option::as_mut)
    }
}

/// What is the same as something that is wanted is taken out of the list, to go on.
fn take_same<T>(list: &mut Vec<T>, is_same: impl FnMut(&T) -> bool) -> Option<T> {
    let at = list.iter().position(is_same)?;
    Some(list.swap_remove(at))
}

/// A station as the control plane sees it.
#[derive(Debug)]
struct Running {
    config: Station,
    status: Reader<aulos_engine::status::StationStatus>,
    /// What the reactors know of it.
    channel: Channel,
    sources: Vec<Watch>,
    /// How often its loudness has been measured anew, and where that is told.
    resets: (u64, Publisher<u64>),
    announcements: Announcements,
    /// Servers that its stream goes to.
    pushes: Vec<Pushed>,
    /// Where it goes over RTP.
    rtp: Vec<rtp::Sent>,
    recordings: Vec<Recording>,
    outlets: Outlets,
    knobs: Knobs,
    /// Where somebody says what is to be heard, and where it comes out what is.
    wishes: Publisher<Wish>,
    switched: Consumer<Switched>,
    /// When its clients are to throw away what they have.
    flush_at: Option<Instant>,
    /// What it plays, in one line.
    title: Arc<str>,
    /// A number that no other station ever had.
    run: u64,
    place: Place,
}

impl Audio {
    /// Starts every station of `config`, serves Snapcast clients on `listener` that are what `door`
    /// says, and tells `events` what happens.
    ///
    /// # Errors
    /// When the system gives no threads or sockets.
    pub fn start(
        config: &Resolved,
        listener: TcpListener,
        door: &Door,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let sink: Arc<dyn EventSink> = Arc::new(Sink(events));
        let mut inner = Inner {
            context: Context::start(threads, &sink)?,
            workers: Workers::start(threads)?,
            codecs: CodecPool::start(threads)?,
            stations: Vec::new(),
            links: Vec::new(),
            mapped: Vec::new(),
            moves: Vec::new(),
            runs: 0,
            tuner: Tuner::default(),
            pusher: Pusher::default(),
            studio: Studio::default(),
            chores: Vec::new(),
            seeds: Seeds(RandomState::new().hash_one(std::process::id())),
            rtp: rtp::Rtp::default(),
            dj_ports: Vec::new(),
            dj_counters: Arc::default(),
            source_requests: Arc::default(),
            fifo_counters: Arc::default(),
            announced: Vec::new(),
        };
        for station in &config.stations {
            stations::start(station, &mut inner)?;
        }
        rtp::look_at_outputs(&mut inner);
        links::follow(&mut inner);
        inner.context.guard(door);
        inner.context.listen(listener)?;
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Ends everything: clients first, then stations, then decoders.
    pub fn stop(&self) {
        self.with(|inner| {
            inner.context.stop();
            inner.rtp.stop();
            inner.workers.stop();
            recordings::stop(inner, LAST_WRITES);
            inner.codecs.stop();
        });
    }

    /// Only the control plane comes here, so a lock is no harm.
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl House for Audio {
    fn command(&self, command: Command) -> Result<(), Full> {
        let session = |session: SessionId| reactor::SessionId::from_number(session.0);
        let taken = self.with(|inner| match command {
            Command::SetSettings { session: id, settings } => {
                inner.context.set(session(id), on_the_wire(settings))
            }
            Command::MoveClient { session: id, station, map } => {
                renditions::play(inner, session(id), station, map)
            }
            Command::Kick { session: id, cause } => {
                let id = session(id);
                inner.moves.retain(|other| other.session() != id);
                match cause {
                    Cause::Unauthorized => inner.context.refuse(id, Refusal::Unauthorized),
                    Cause::Slowed => inner.context.refuse(id, Refusal::Forbidden),
                    _ => inner.context.kick(id),
                }
            }
        });
        if taken { Ok(()) } else { Err(Full(command)) }
    }

    fn greet(&self, client: &str, greeting: Option<Greeting>) -> bool {
        let (client, greeting) = (Arc::from(client), greeting.map(greeting_on_the_wire));
        self.with(|inner| inner.context.greet(&client, greeting))
    }

    fn greet_newcomers(&self, greeting: Option<Greeting>) -> bool {
        self.with(|inner| inner.context.greet_newcomers(greeting.map(greeting_on_the_wire)))
    }

    fn guard(&self, door: &Door) {
        self.with(|inner| inner.context.guard(door));
    }

    fn status(&self, station: usize) -> StationStatus {
        self.with(|Inner { stations, studio, .. }| {
            let running = stations.get_mut(station).and_then(Option::as_mut);
            running.map_or_else(StationStatus::default, |running| view::status(running, studio))
        })
    }

    fn positions(&self) -> Vec<StationPosition> {
        self.with(|inner| inner.stations.iter_mut().flatten().map(view::position).collect())
    }

    fn reset_loudness(&self, station: usize) {
        self.with(|inner| {
            let running = inner.station(station);
            if let Some(Running { resets: (count, publisher), .. }) = running {
                *count += 1;
                publisher.publish(*count);
            }
        });
    }

    fn set_sound(&self, station: usize, sound: &Sound) -> Result<(), String> {
        self.with(|inner| {
            let running = inner.station(station);
            let running = running.ok_or_else(|| "the station is gone".to_owned())?;
            stations::turn(&mut running.knobs, sound)?;
            running.config.sound = sound.clone();
            Ok(())
        })
    }

    fn set_pushes(&self, station: usize, pushes: &[Push]) {
        self.with(|inner| pushes::change(inner, station, pushes));
    }

    fn set_rtp(&self, station: usize, outputs: &[RtpOut]) {
        self.with(|inner| rtp::change(inner, station, outputs));
    }

    fn description(&self, station: usize, output: usize) -> Option<String> {
        self.with(|inner| {
            let running = inner.stations.get(station).and_then(Option::as_ref)?;
            running.rtp.get(output)?.description().map(str::to_owned)
        })
    }

    fn set_records(&self, station: usize, records: &[Record]) {
        self.with(|inner| recordings::change(inner, station, records));
    }

    fn record(
        &self,
        station: usize,
        recorder: usize,
        command: recorder::Command,
        when: When,
    ) -> Result<Option<MediaTime>, String> {
        self.with(|inner| recordings::tell(inner, (station, recorder), command, when))
    }

    fn recorded(&self) -> Vec<Recorded> {
        self.with(recordings::events)
    }

    fn compare(&self, station: usize, on: bool) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.knobs.compare(on);
            }
        });
    }

    fn add_station(&self, station: &Station) -> io::Result<usize> {
        self.with(|inner| {
            let number = stations::start(station, inner)?;
            links::follow(inner);
            Ok(number)
        })
    }

    fn replace_station(&self, number: usize, station: &Station) -> io::Result<()> {
        self.with(|inner| {
            stations::replace(number, station, inner)?;
            renditions::renew(inner, number);
            links::follow(inner);
            Ok(())
        })
    }

    fn remove_station(&self, number: usize) {
        self.with(|inner| {
            if let Some(running) = inner.stations.get_mut(number).and_then(Option::take) {
                stations::end(running, inner);
                renditions::end(inner, number);
                inner.context.remove_station(number);
            }
        });
    }

    fn flush(&self, station: usize) {
        self.with(|inner| {
            let running = inner.station(station);
            if let Some(running) = running.filter(|running| running.flush_at.is_none())
                && running.outlets.flush()
            {
                let quantum = Span::from_millis(i64::from(running.config.chunk_ms));
                running.flush_at = Some(SystemClock::now() + quantum + quantum);
            }
        });
    }

    fn announce(&self, station: usize, announcement: &Announcement) -> Result<(), String> {
        self.with(|inner| {
            let running = inner.stations.get_mut(station).and_then(Option::as_mut);
            let running = running.ok_or_else(|| "the station is gone".to_owned())?;
            let Running { config, announcements, .. } = running;
            announcements.add(announcement, config, &mut inner.codecs)
        })
    }

    fn cancel_announcement(&self, station: usize, id: u64) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.announcements.cancel(id);
            }
        });
    }

    fn announced(&self) -> Vec<(u64, Announced)> {
        self.with(|inner| {
            let now = SystemClock::now();
            let mut all = std::mem::take(&mut inner.announced);
            for running in inner.stations.iter_mut().flatten() {
                running.announcements.look(now, &mut all);
            }
            all
        })
    }

    fn prefer(&self, station: usize, wish: Option<(usize, Option<Span>)>) {
        self.with(|inner| {
            if let Some(running) = inner.station(station) {
                running.wishes.publish(wish);
            }
        });
    }

    fn switched(&self) -> Vec<(usize, house::Switched)> {
        self.with(|inner| {
            let stations = inner.stations.iter_mut().enumerate();
            let running = stations.filter_map(|(number, slot)| Some((number, slot.as_mut()?)));
            running.flat_map(|(number, running)| view::switched(number, running)).collect()
        })
    }

    fn keep_maps(&self, wanted: &dyn Fn() -> Vec<(usize, ChannelMap)>) {
        self.with(|inner| {
            renditions::go_over(inner);
            // Everybody is looked at for this, so not ten times a second where nobody has a map.
            if !inner.mapped.is_empty() {
                renditions::keep(inner, &wanted());
            }
        });
    }

    fn chores(&self) -> Vec<Chore> {
        self.with(|inner| std::mem::take(&mut inner.chores))
    }

    fn djs_come_to(&self, address: &Endpoint, opened: Result<SocketAddr, &io::Error>) {
        self.with(|inner| djs::come_to(address, &opened, inner));
    }

    fn show_title(&self, station: usize, title: &str) {
        self.with(|inner| renditions::show_title(inner, station, &Arc::from(title)));
    }

    fn tidy(&self) {
        self.with(|inner| {
            inner.workers.tidy();
            links::follow(inner);
            pushes::hand_over(inner);
            inner.rtp.tidy();
            inner.rtp.try_sources();
            rtp::look_at_outputs(inner);
            recordings::retry(inner);
            flush_due(inner);
            for running in inner.stations.iter_mut().flatten() {
                running.outlets.tidy();
                running.knobs.tidy();
            }
        });
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.with(|inner| {
            let reactors = inner.context.stats();
            let mut stations =
                inner.stations.iter_mut().flatten().map(|station| *station.status.read());
            let mut all = view::counters(&reactors, &mut stations);
            all.extend(renditions::counters(&inner.mapped));
            all.extend(inner.tuner.counters());
            all.extend(inner.pusher.counters());
            all.extend(djs::counters(&inner.dj_counters));
            let requests = inner.source_requests.load(Ordering::Relaxed);
            all.push(("source_connections_refused_request", requests));
            all.extend(sources::counters(&inner.fifo_counters));
            all
        })
    }
}

impl ListenSink for Audio {
    fn take_seat(&self, station: &str, mount: &Mount, who: DjAbout) -> Option<DjSeat> {
        self.with(|inner| djs::take_seat(station, mount, who, inner))
    }

    fn tell_title(&self, station: &str, mount: &Mount, title: Title) -> bool {
        self.with(|inner| djs::tell_title(station, mount, title, inner))
    }

    fn accept(&self, socket: MediaSocket, read: Vec<u8>) {
        self.with(|inner| listen::accept(socket, &read, inner));
    }

    fn stream(&self, socket: MediaSocket, read: Vec<u8>) {
        self.with(|inner| inner.context.web_client(socket, read));
    }
}

/// Lets clients throw away what they have buffered, once their station has sent the last of it: any
/// later chunk would be heard alone.
fn flush_due(inner: &mut Inner) {
    let now = SystemClock::now();
    for (number, slot) in inner.stations.iter_mut().enumerate() {
        let due = slot.as_mut().and_then(|running| running.flush_at.take_if(|at| *at <= now));
        if due.is_some() {
            let mapped = inner.mapped.iter().filter(|mapped| mapped.station == number);
            let numbers = mapped.map(|mapped| mapped.number).chain([number]);
            numbers.for_each(|number| inner.context.flush_station(number));
        }
    }
}

/// Hands what the reactors tell to the control plane.
struct Sink(Sender<Event>);

impl EventSink for Sink {
    fn event(&self, event: reactor::Event) -> Result<(), reactor::Event> {
        let place = match self.0.try_reserve() {
            Ok(place) => place,
            Err(TrySendError::Full(())) => return Err(event),
            // The server is going down: nobody wants to know any more.
            Err(TrySendError::Closed(())) => return Ok(()),
        };
        place.send(match event {
            reactor::Event::Hello { session, hello, address, vouched, answered } => Event::Hello {
                session: SessionId(session.number()),
                peer: address.ip(),
                hello: Box::new(introduce(&hello, vouched)),
                answered: answered.map(greeting_from_the_wire),
            },
            reactor::Event::ClientInfo { session, info } => Event::ClientInfo {
                session: SessionId(session.number()),
                volume: info.volume,
                muted: info.muted,
            },
            reactor::Event::Health { session, health } => Event::Health {
                session: SessionId(session.number()),
                health: view::health(&health),
            },
            reactor::Event::Left { session, .. } => {
                Event::Left { session: SessionId(session.number()) }
            }
        });
        Ok(())
    }
}

fn on_the_wire(settings: Settings) -> ServerSettings {
    ServerSettings {
        buffer: Span::from_millis(i64::from(settings.buffer_ms)),
        latency: Span::from_millis(i64::from(settings.latency_ms)),
        volume: settings.volume,
        muted: settings.muted,
    }
}

fn greeting_on_the_wire(greeting: Greeting) -> reactor::Greeting {
    reactor::Greeting { settings: on_the_wire(greeting.settings), station: greeting.station }
}

/// Gives back what [`greeting_on_the_wire`] was given.
fn greeting_from_the_wire(greeting: reactor::Greeting) -> Greeting {
    let settings = greeting.settings;
    let settings = Settings {
        volume: settings.volume,
        muted: settings.muted,
        latency_ms: i32::try_from(settings.latency.as_millis()).unwrap_or(0),
        buffer_ms: u32::try_from(settings.buffer.as_millis()).unwrap_or(0),
    };
    Greeting { settings, station: greeting.station }
}

fn introduce(hello: &aulos_proto::snap::wire::Hello, vouched: bool) -> Hello {
    Hello {
        mac: hello.mac.clone(),
        host_name: hello.host_name.clone(),
        client_name: hello.client_name.clone(),
        version: hello.version.clone(),
        os: hello.os.clone(),
        arch: hello.arch.clone(),
        id: hello.id.clone(),
        instance: hello.instance,
        protocol: hello.protocol_version,
        auth: hello.auth.as_ref().map(|auth| Credentials::of(&auth.scheme, &auth.param)),
        vouched,
    }
}

/// What a disk that stands still may take at the end.
const LAST_WRITES: Span = Span::from_secs(3);

/// More threads than this would not find work on a machine that serves audio.
const MAX_THREADS: usize = 4;
