//! Overlays: copies of a station's output with announcements for one group or one client.
//!
//! An overlay is created for the first announcement of its target and ended after the last. Its
//! chunks have the times of the station's own, so its clients continue on it, and back, without a
//! missing or doubled chunk. Its announcements start when all of them have moved, so that they are
//! heard from the beginning.
//!
//! A client plays one rendition at a time: the announcements of an overlay wait while one of its
//! clients is on another overlay, unless that has only lower priorities. Mixing per client was
//! rejected, because clients share chunks (`docs/decisions/chunk-log.md`). A play lasts for hours, so
//! no announcement waits for its end: an overlay that only plays leaves its clients to one with
//! announcements, and one for a group to one for a client.

use std::sync::Arc;

use aulos_control::backend::{AnnouncementTarget, TargetSessions};
use aulos_core::{Instant, Span};
use aulos_engine::announce::{Layer, Priority};
use aulos_engine::output_bus::MAX_BUS_OUTPUTS;
use aulos_engine::overlay::{MAX_OVERLAYS, Overlay};
use aulos_engine::rendition::Rendition;
use aulos_engine::station::StationHandle;
use aulos_io::SystemClock;
use aulos_io::reactor::{PendingMoves, StationDescriptor};

use super::encoding::{EncodingHandles, SNAPCAST_CHUNK_HEADER, register_stream};
use super::players;
use super::renditions::client_sounds;
use super::renditions::{self, LINGER};
use super::running_rendition::{
    OverlaySession, RenditionKey, RenditionKind, RunningOverlay, RunningRendition,
};
use super::state::AudioState;

/// The number of the overlay for this target on the station's output bus, created if it does not
/// exist; `None` for the station itself.
///
/// # Errors
/// The reason, for users to read.
pub(super) fn get_or_create(
    inner: &mut AudioState,
    station: usize,
    target: &AnnouncementTarget,
    sessions: &TargetSessions<'_>,
) -> Result<Option<u64>, String> {
    if *target == AnnouncementTarget::Station {
        return Ok(None);
    }
    let mut own = inner.overlays.iter().filter(|one| one.station == station && !one.is_ended);
    if let Some(overlay) = own.clone().find(|one| one.target == *target) {
        return Ok(Some(overlay.output_id));
    }
    if own.nth(MAX_OVERLAYS - 1).is_some() {
        return Err(format!(
            "{MAX_OVERLAYS} groups and clients of the station have sounds of their own; try again later"
        ));
    }
    // A client that changes its sound meanwhile does not hear the announcement.
    let mut keys: Vec<RenditionKey> = Vec::new();
    for one in sessions_of(inner, station, target, sessions).into_iter().flatten() {
        if !keys.contains(&one.key) {
            keys.push(one.key);
        }
    }
    if keys.is_empty() {
        keys.push(RenditionKey::default());
    }
    if keys.len() > MAX_ENCODINGS {
        return Err(format!("the clients have more than {MAX_ENCODINGS} sounds and encodings"));
    }
    create(inner, station, target, &keys).map(Some)
}

/// Moves clients to their overlays and back, starts announcements whose clients have been moved,
/// and ends overlays that are not needed any more.
pub(super) fn move_sessions(inner: &mut AudioState, sessions: &TargetSessions<'_>) {
    let now = SystemClock::now();
    let mut overlays = std::mem::take(&mut inner.overlays);
    let wanted: Vec<_> = overlays
        .iter_mut()
        .map(|overlay| {
            let wanted = wanted_sessions(inner, overlay, sessions, now);
            (Rank::of(overlay), wanted)
        })
        .collect();
    for at in 0..overlays.len() {
        let own = without_higher(&wanted, at);
        release(inner, &mut overlays[at], &own);
        // One that has begun goes on for the others.
        let (mut waits, mut new) =
            (overlays[at].is_waiting && is_preceded(&wanted, at), Vec::new());
        for one in own.into_iter().filter(|one| !overlays[at].sessions.contains(one)) {
            let has_it = |other: &RunningOverlay| other.has(one.session);
            if overlays.iter().any(has_it) {
                waits = true;
            } else if inner.pending_moves.iter().all(|other| other.session != one.session) {
                new.push(one);
            }
        }
        let overlay = &mut overlays[at];
        for one in new {
            let base = client_sounds::number(inner, one.session, overlay.station, &one.key);
            if is_cold(inner, overlay, &one) {
                waits = true;
                continue;
            }
            if let Some(number) = overlay.number(&one.key)
                && inner.context.continue_counted(one.session, base, number, &overlay.moves)
            {
                overlay.moved_by = now + MOVE_TIME;
                overlay.sessions.push(one);
            }
        }
        start(inner, overlay, waits, now);
    }
    overlays.retain(|overlay| {
        let is_over = overlay.sessions.is_empty() && (overlay.is_ended || overlay.is_over(now));
        if is_over {
            remove(inner, overlay);
        }
        !is_over
    });
    inner.overlays = overlays;
}

/// Ends the overlays of a station that has been replaced. Their clients join its successor; the
/// next [`move_sessions`] removes them.
pub(super) fn end(inner: &mut AudioState, station: usize) {
    let mut overlays = std::mem::take(&mut inner.overlays);
    for overlay in overlays.iter_mut().filter(|one| one.station == station) {
        overlay.is_ended = true;
        release(inner, overlay, &[]);
    }
    inner.overlays = overlays;
}

fn create(
    inner: &mut AudioState,
    station: usize,
    target: &AnnouncementTarget,
    keys: &[RenditionKey],
) -> Result<u64, String> {
    let programs: Vec<_> = keys
        .iter()
        .map(|key| match &key.sound.chain {
            Some(_) => renditions::program(inner, station, &key.sound).map(Some),
            None => Ok(None),
        })
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let reactors = inner.context.reactors();
    let running = inner.station(station).ok_or("the station has been removed")?;
    let (mut overlay, mut parts): (Option<Overlay>, Vec<_>) = (None, Vec::new());
    for (key, program) in keys.iter().zip(&programs) {
        let name = format!("{} (announcements)", running.config.name);
        let config = renditions::settings_for(&running.config, key);
        let new = EncodingHandles::new(&config, &name, reactors).map_err(|e| e.to_string())?;
        let EncodingHandles { encoder, quantum, pool, outputs, channel, taps } = new;
        let rendition = Rendition::new(encoder, pool, outputs, SNAPCAST_CHUNK_HEADER)
            .with_demand(channel.demand.clone());
        let mut rendition = rendition.with_channel_map(key.sound.map, quantum);
        if let Some(program) = program {
            rendition = rendition.with_sound(program, quantum);
        }
        overlay = Some(match overlay {
            Some(overlay) => overlay.with_rendition(rendition),
            None => Overlay::new(rendition, quantum),
        });
        parts.push((key.clone(), channel, taps));
    }
    let overlay = overlay.ok_or("an overlay needs a rendition")?;
    let output_id = running.handle.add_output(overlay).map_err(|full| full.to_string())?;
    start_at(&mut running.handle, output_id, None);
    let mut numbers = Vec::new();
    for (key, channel, taps) in parts {
        let number = register_stream(None, &channel, taps, inner);
        inner.renditions.push(rendition(station, output_id, number, channel));
        numbers.push((key, number));
    }
    inner.overlays.push(RunningOverlay {
        station,
        target: target.clone(),
        output_id,
        numbers,
        sessions: Vec::new(),
        moves: PendingMoves::default(),
        moved_by: Instant::ZERO,
        is_waiting: true,
        only_plays: false,
        priority: Priority::DEFAULT,
        is_ended: false,
        ends_at: None,
    });
    Ok(output_id)
}

fn rendition(
    station: usize,
    output_id: u64,
    number: usize,
    channel: StationDescriptor,
) -> RunningRendition {
    RunningRendition {
        station,
        kind: RenditionKind::Overlay,
        number,
        output_id,
        channel,
        since: SystemClock::now(),
        has_processor: false,
        change: None,
        unused_since: None,
        listeners: Arc::default(),
    }
}

/// The sessions that an overlay should have now. Cancels the announcements of a target that does
/// not play the station any more.
fn wanted_sessions(
    inner: &mut AudioState,
    overlay: &mut RunningOverlay,
    sessions: &TargetSessions<'_>,
    now: Instant,
) -> Vec<OverlaySession> {
    if overlay.is_ended {
        return Vec::new();
    }
    let found = sessions_of(inner, overlay.station, &overlay.target, sessions);
    let Some(running) = inner.station(overlay.station) else { return Vec::new() };
    if found.is_none() {
        running.announcements.cancel_all(overlay.output_id, &mut running.handle);
    }
    let [play, announcement] =
        Layer::ALL.map(|layer| running.announcements.highest(overlay.output_id, layer));
    overlay.only_plays = play.is_some() && announcement.is_none();
    overlay.priority = announcement.or(play).unwrap_or(overlay.priority);
    if play.or(announcement).is_some() {
        overlay.ends_at = None;
    } else {
        // Clients hear the end when their buffer has passed.
        let buffer = Span::from_millis(i64::from(running.config.buffer_ms));
        overlay.ends_at.get_or_insert(now + buffer + LINGER);
    }
    if overlay.is_over(now) { Vec::new() } else { found.unwrap_or_default() }
}

/// Which overlay a client plays that several want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    GroupPlay,
    ClientPlay,
    /// The highest priority of those that it has, or had: clients still hear the last one's end.
    Announcement(Priority),
}

impl Rank {
    const fn of(overlay: &RunningOverlay) -> Self {
        match (overlay.only_plays, &overlay.target) {
            (true, AnnouncementTarget::Client(_)) => Self::ClientPlay,
            (true, _) => Self::GroupPlay,
            (false, _) => Self::Announcement(overlay.priority),
        }
    }
}

/// The overlays of a higher rank that want a session.
fn claims<'a>(
    wanted: &'a [(Rank, Vec<OverlaySession>)],
    own: &'a Rank,
    session: &'a OverlaySession,
) -> impl Iterator<Item = &'a Rank> {
    let higher = wanted.iter().filter(move |(rank, _)| rank > own);
    let claims =
        higher.filter(|(_, others)| others.iter().any(|other| other.session == session.session));
    claims.map(|(rank, _)| rank)
}

/// The sessions that the overlay `at` wants and none of a higher rank.
fn without_higher(wanted: &[(Rank, Vec<OverlaySession>)], at: usize) -> Vec<OverlaySession> {
    let Some((own, sessions)) = wanted.get(at) else { return Vec::new() };
    let is_free = |session: &&OverlaySession| claims(wanted, own, session).next().is_none();
    sessions.iter().filter(is_free).cloned().collect()
}

/// Whether a client of the overlay `at` hears an announcement of a higher rank, or its end: what
/// has not begun waits for that, so that it is heard from its beginning. Nothing waits for a play.
fn is_preceded(wanted: &[(Rank, Vec<OverlaySession>)], at: usize) -> bool {
    let Some((own, sessions)) = wanted.get(at) else { return false };
    let mut claims = sessions.iter().flat_map(|session| claims(wanted, own, session));
    claims.any(|rank| matches!(rank, Rank::Announcement(_)))
}

/// Whether the overlay's rendition for a session still fills its filters.
fn is_cold(inner: &AudioState, overlay: &RunningOverlay, one: &OverlaySession) -> bool {
    let number = overlay.number(&one.key);
    let mut renditions = inner.renditions.iter();
    let own = renditions.find(|rendition| Some(rendition.number) == number);
    one.key.sound.chain.is_some() && own.is_some_and(|own| !client_sounds::is_warm(own))
}

/// Moves the sessions back that are not wanted, as far as the reactors take the commands.
fn release(inner: &AudioState, overlay: &mut RunningOverlay, wanted: &[OverlaySession]) {
    let RunningOverlay { sessions, numbers, station, is_ended, .. } = overlay;
    sessions.retain(|one| {
        if wanted.contains(one) {
            return true;
        }
        let base = client_sounds::number(inner, one.session, *station, &one.key);
        let number = numbers.iter().find(|(key, _)| *key == one.key);
        !match number {
            // The successor of a station has other times, and possibly another codec.
            Some((_, number)) if !*is_ended => {
                inner.context.continue_on(one.session, *number, base)
            }
            _ => inner.context.set_station(one.session, base),
        }
    });
}

/// Lets announcements start once every client has moved, apart from those whose connection is
/// blocked.
fn start(inner: &mut AudioState, overlay: &mut RunningOverlay, waits: bool, now: Instant) {
    let waits = waits || (now < overlay.moved_by && !overlay.moves.is_done());
    if overlay.is_ended || overlay.is_waiting == waits {
        return;
    }
    overlay.is_waiting = waits;
    let Some(running) = inner.station(overlay.station) else { return };
    start_at(&mut running.handle, overlay.output_id, (!waits).then_some(now));
}

/// Lets the sounds of an overlay start at this time.
fn start_at(handle: &mut StationHandle, overlay: u64, time: Option<Instant>) {
    for layer in Layer::ALL {
        handle.queue(Some(overlay), layer).into_iter().for_each(|queue| queue.start_at(time));
    }
}

fn remove(inner: &mut AudioState, overlay: &RunningOverlay) {
    if !overlay.is_ended
        && let Some(running) = inner.station(overlay.station)
    {
        running.handle.remove_output(overlay.output_id);
    }
    let is_its = |number: usize| overlay.numbers.iter().any(|(_, own)| *own == number);
    inner.renditions.retain(|mapped| !is_its(mapped.number));
    overlay.numbers.iter().for_each(|(_, number)| inner.context.remove_station(*number));
}

/// The sessions of a target; `None` if it does not play the station.
fn sessions_of(
    inner: &AudioState,
    station: usize,
    target: &AnnouncementTarget,
    sessions: &TargetSessions<'_>,
) -> Option<Vec<OverlaySession>> {
    let sessions = sessions(station, target)?.into_iter().map(|(session, sound)| OverlaySession {
        session,
        key: players::key(inner, session, station, sound),
    });
    Some(sessions.collect())
}

/// The longest wait for clients to move. They move with the next chunk, apart from one whose
/// connection is blocked or whose buffer is full.
const MOVE_TIME: Span = Span::from_millis(200);

/// How often an overlay encodes: for clients that have each another sound or encoding, of which a
/// station has no more.
const MAX_ENCODINGS: usize = MAX_BUS_OUTPUTS;
