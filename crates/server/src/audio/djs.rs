//! Places for DJs, as far as the audio knows of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_config::{Endpoint, Mount};
use aulos_core::Instant;
use aulos_engine::source::{Pacing, RingSource, Source};
use aulos_engine::standby::Keeper;
use aulos_io::SystemClock;
use aulos_io::feed::{DjCounters, DjFeeder, DjMount, DjSeat, DjState, StreamParts};
use aulos_proto::titles::Title;
use aulos_rt::Reader;
use aulos_rt::channel::Receiver;

use super::Inner;
use super::sources::Watch;
use crate::house::{DjAbout, DjStatus};

/// Where a port is open, or why it is not.
pub(super) type Opened = Result<SocketAddr, String>;

/// One place, and who is there.
#[derive(Debug)]
pub(super) struct Booth {
    mount: Mount,
    seat: DjMount,
    state: Reader<DjState>,
    /// Titles that the sound itself carries.
    titles: Receiver<Title>,
    /// Where its port is open, or why it is not.
    opened: Option<Opened>,
    about: DjAbout,
    since: Instant,
    title: Option<Title>,
}

/// Makes the source of a mount.
pub(super) fn open(
    mount: &Mount,
    keeper: Option<Keeper>,
    inner: &mut Inner,
) -> (Box<dyn Source>, Watch) {
    let StreamParts { writer, source, items, state, titles } = StreamParts::new();
    let (seat, feeder, state) = DjFeeder::new(writer, state, Arc::clone(&inner.dj_counters));
    inner.context.add_feeder(match keeper {
        Some(keeper) => Box::new(feeder.kept(keeper)),
        None => Box::new(feeder),
    });
    inner.codecs.add(Box::new(source));
    // A station that begins anew may have its port open from before.
    let mut ports = inner.dj_ports.iter();
    let opened =
        ports.find(|(address, _)| *address == mount.address).map(|(_, opened)| opened.clone());
    let booth = Booth {
        mount: mount.clone(),
        seat,
        state,
        titles,
        opened,
        about: DjAbout::default(),
        since: SystemClock::now(),
        title: None,
    };
    (Box::new(RingSource::new(items, Pacing::Streamed)), Watch::Dj(Box::new(booth)))
}

/// A port is open, or is not.
pub(super) fn come_to(
    address: &Endpoint,
    opened: &Result<SocketAddr, &io::Error>,
    inner: &mut Inner,
) {
    let opened: Opened = opened.as_ref().map(|at| *at).map_err(ToString::to_string);
    inner.dj_ports.retain(|(other, _)| other != address);
    inner.dj_ports.push((address.clone(), opened.clone()));
    let running = inner.stations.iter_mut().flatten();
    for watch in running.flat_map(|running| &mut running.sources) {
        if let Watch::Dj(booth) = watch
            && booth.mount.address == *address
        {
            booth.opened = Some(opened.clone());
        }
    }
}

/// The right to go on air.
pub(super) fn take_seat(
    station: &str,
    mount: &Mount,
    who: DjAbout,
    inner: &mut Inner,
) -> Option<DjSeat> {
    let booth = find(station, mount, inner)?;
    let seat = booth.seat.take()?;
    (booth.about, booth.since, booth.title) = (who, SystemClock::now(), None);
    Some(seat)
}

/// What the DJ says that he plays; false when nobody is there.
pub(super) fn tell_title(station: &str, mount: &Mount, title: Title, inner: &mut Inner) -> bool {
    let Some(booth) = find(station, mount, inner) else { return false };
    // libshout tells the first title in the moment in which it is let in.
    let taken = booth.seat.is_taken();
    if taken {
        booth.title = Some(title);
    }
    taken
}

fn find<'a>(station: &str, mount: &Mount, inner: &'a mut Inner) -> Option<&'a mut Booth> {
    let mut running = inner.stations.iter_mut().flatten();
    let running = running.find(|running| running.config.name == station)?;
    running.sources.iter_mut().find_map(|watch| match watch {
        Watch::Dj(booth) if booth.mount.is_at(mount) => Some(&mut **booth),
        _ => None,
    })
}

impl Booth {
    pub(super) fn status(&mut self) -> DjStatus {
        let state = *self.state.read();
        while let Ok(title) = self.titles.try_recv() {
            self.title = Some(title);
        }
        if !self.seat.is_taken() {
            self.title = None;
        }
        let now = SystemClock::now();
        DjStatus {
            address: self.opened.as_ref().and_then(|opened| opened.as_ref().ok()).copied(),
            on_air: state.on_air,
            about: self.about.clone(),
            since: state.on_air.then(|| now.since(self.since)),
            bytes: state.bytes,
            info: state.info.filter(|_| state.on_air),
            title: self.title.clone(),
            left: state.left,
        }
    }

    /// Why nobody can be heard.
    pub(super) fn problem(&self) -> Option<String> {
        self.opened.as_ref()?.as_ref().err().cloned()
    }
}

/// By names that never change.
pub(super) fn counters(counters: &DjCounters) -> [(&'static str, u64); 4] {
    [
        ("djs_on_air", &counters.seated),
        ("djs_cut_stalled", &counters.stalled),
        ("djs_cut_unplayable", &counters.unplayable),
        ("djs_broken", &counters.broken),
    ]
    .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
}
