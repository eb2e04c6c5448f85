//! What each client plays of its station: the one place that chooses a rendition for a client.
//!
//! Clients of a station with equal [`RenditionKey`]s share a rendition, and those with nothing of
//! their own play the station's chunks. A client that plays on while its sound changes is never
//! cut:
//!
//! ```text
//!  its rendition has other clients,      a rendition that sounds the same is made for it,
//!  or it plays the station's chunks   -> it continues on that one, whose sound then changes
//!  its rendition has no other clients -> the sound of the rendition changes
//!  afterwards                         -> it continues on the rendition of others with that sound
//! ```
//!
//! The change itself is a cross-fade in the rendition. Switching between two finished renditions
//! was rejected: their samples differ, and each client would hear the step.

use aulos_control::backend::ClientSound;
use aulos_core::{ChannelMap, Span};
use aulos_engine::encode::CodecConfig;
use aulos_io::SystemClock;
use aulos_io::reactor::SessionId;

use crate::audio::running_rendition::{
    PlayingSession, RenditionKey, RenditionKind, RunningRendition, SoundChange, WantedRendition,
};
use crate::audio::state::AudioState;

/// Lets a session play this of a station; one that `continues` plays the station already.
/// Returns false when the reactor's queue is full.
pub(in crate::audio) fn play(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    key: RenditionKey,
    continues: bool,
) -> bool {
    if continues && let Some(done) = change(inner, session, station, &key) {
        return done;
    }
    inner.pending_moves.retain(|other| other.session != session);
    inner.playing.retain(|other| other.session != session);
    inner.overlays.iter_mut().for_each(|overlay| overlay.forget(session));
    let without_sound = RenditionKey { sound: ClientSound::default(), ..key };
    for key in [key, without_sound] {
        if key.is_station() {
            break;
        }
        match super::get_or_create(inner, station, key.clone()) {
            Ok(_) => {
                inner.pending_moves.push(WantedRendition { session, station, key });
                complete_moves(inner);
                return true;
            }
            Err(error) => {
                tracing::warn!(
                    %error, map = %key.sound.map, codec = ?key.codec,
                    "cannot make a rendition for a client; it gets the station's own sound"
                );
            }
        }
    }
    inner.context.set_station(session, station)
}

/// The sound as far as the station can have it: one with a single channel needs no map.
pub(in crate::audio) fn playable(
    inner: &AudioState,
    station: usize,
    sound: ClientSound,
) -> ClientSound {
    let running = inner.stations.get(station).and_then(Option::as_ref);
    let is_mono = running.is_none_or(|running| running.config.spec.layout.channels() < 2);
    ClientSound { map: if is_mono { ChannelMap::Stereo } else { sound.map }, ..sound }
}

/// The number in the reactors of what a session plays, announcements apart.
pub(in crate::audio) fn number(
    inner: &AudioState,
    session: SessionId,
    station: usize,
    key: &RenditionKey,
) -> usize {
    let playing = inner.playing.iter().find(|one| one.session == session);
    if let Some(playing) = playing.filter(|one| one.station == station) {
        return playing.number;
    }
    super::find(inner, station, key).map_or(station, |at| inner.renditions[at].number)
}

/// The encoding that a session plays of its station, if not the station's own.
pub(in crate::audio) fn codec(inner: &AudioState, session: SessionId) -> Option<CodecConfig> {
    let number = inner.playing.iter().find(|one| one.session == session)?.number;
    inner.renditions.iter().find(|one| one.number == number)?.key()?.codec
}

/// Changes the sound of a session that plays; `None` if it has to begin anew, and otherwise whether
/// the reactor has taken the command.
fn change(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    key: &RenditionKey,
) -> Option<bool> {
    let is_moving = inner.pending_moves.iter().any(|other| other.session == session)
        || inner.overlays.iter().any(|overlay| overlay.has(session));
    if is_moving {
        return None;
    }
    let playing = inner.playing.iter().find(|one| one.session == session);
    let (from, at) = match playing {
        None => (station, None),
        Some(one) if one.station != station => return None,
        Some(one) => {
            let number = one.number;
            (number, Some(inner.renditions.iter().position(|one| one.number == number)?))
        }
    };
    let before = match at.map(|at| &inner.renditions[at].kind) {
        None => RenditionKey::default(),
        Some(RenditionKind::Shared(key)) => key.clone(),
        Some(_) => return None,
    };
    if (before.sound.map, before.codec) != (key.sound.map, key.codec) {
        return None;
    }
    let is_alone = users(inner, from) == 1;
    if let Some(at) = at.filter(|at| is_alone && inner.renditions[*at].has_processor) {
        inner.renditions[at].kind = RenditionKind::Shared(key.clone());
        // Before its client has come, it still has to sound as where that comes from.
        if matches!(inner.renditions[at].change, None | Some(SoundChange::Fade(_))) {
            begin_fade(inner, at);
        }
        return Some(true);
    }
    let made = super::program(inner, station, &before.sound)
        .and_then(|program| super::make(inner, station, key.clone(), Some(&program)));
    match made {
        Ok(rendition) => {
            let warms = before.sound.chain.is_some();
            Some(continue_on_new(inner, session, (from, warms), rendition))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot make a rendition for the new sound of a client");
            None
        }
    }
}

/// The number of sessions that play a rendition, those included that are about to leave it.
fn users(inner: &AudioState, number: usize) -> usize {
    let leaves = |change: Option<SoundChange>| matches!(change, Some(SoundChange::Warm { from, .. }) if from == number);
    let leaving = inner.renditions.iter().filter(|one| leaves(one.change)).count();
    inner.playing.iter().filter(|one| one.number == number).count() + leaving
}

/// Lets a session continue on a rendition that still sounds as `from`, and changes afterwards; one
/// that `warms` has filters to fill first. False when the reactor has not taken the command.
fn continue_on_new(
    inner: &mut AudioState,
    session: SessionId,
    (from, warms): (usize, bool),
    mut rendition: RunningRendition,
) -> bool {
    let RunningRendition { station, number, .. } = rendition;
    let (now, chunk) = (SystemClock::now(), rendition.channel.chunk);
    let is_taken = warms || inner.context.continue_on(session, from, number);
    rendition.change = Some(if warms {
        SoundChange::Warm { until: now + WARM_UP + chunk + chunk, session, from }
    } else {
        SoundChange::Begin(now + MOVE_TIME + chunk + chunk)
    });
    if is_taken {
        inner.playing.retain(|one| one.session != session);
        inner.playing.push(PlayingSession { session, station, number });
    } else {
        rendition.kind = RenditionKind::Leaving { to: station, sessions: Vec::new() };
    }
    inner.renditions.push(rendition);
    is_taken
}

/// Lets limiters keep to another ceiling of a station.
pub(in crate::audio) fn follow_ceiling(inner: &mut AudioState, station: usize) {
    for at in 0..inner.renditions.len() {
        let rendition = &inner.renditions[at];
        let is_ready = matches!(rendition.change, None | Some(SoundChange::Fade(_)));
        if rendition.station == station && rendition.has_processor && is_ready {
            begin_fade(inner, at);
        }
    }
}

/// Carries on with changes and moves, and ends renditions that nothing plays.
pub(in crate::audio) fn update(
    inner: &mut AudioState,
    wanted: &dyn Fn(&AudioState) -> Vec<WantedRendition>,
) {
    complete_moves(inner);
    // `wanted` looks at every client; without renditions there is nothing to compare.
    if inner.renditions.is_empty() {
        inner.playing.clear();
        return;
    }
    let now = SystemClock::now();
    for at in 0..inner.renditions.len() {
        let RunningRendition { number, change, .. } = inner.renditions[at];
        let chunk = inner.renditions[at].channel.chunk;
        match change {
            Some(SoundChange::Warm { until, session, from })
                if until <= now && inner.context.continue_on(session, from, number) =>
            {
                let begin = now + MOVE_TIME + chunk + chunk;
                inner.renditions[at].change = Some(SoundChange::Begin(begin));
            }
            Some(SoundChange::Begin(due)) if due <= now => begin_fade(inner, at),
            Some(SoundChange::Fade(due)) if due <= now => inner.renditions[at].change = None,
            _ => {}
        }
    }
    let wanted = wanted(inner);
    let AudioState { playing, renditions, .. } = &mut *inner;
    // A client on its way back to the station's own sound is not among the wanted ones.
    let changes = |number| {
        let mut on_the_way =
            renditions.iter().filter(|one| one.change.is_some() || one.is_as_station());
        on_the_way.any(|one| one.number == number)
    };
    playing.retain(|one| {
        wanted.iter().any(|other| other.session == one.session) || changes(one.number)
    });
    merge(inner);
    super::remove_unused(inner, &wanted);
}

/// Whether its filters are filled, so that clients of an equal one can continue on it.
pub(in crate::audio) fn is_warm(rendition: &RunningRendition) -> bool {
    SystemClock::now().since(rendition.since) > WARM_UP
}

/// Moves the clients of a rendition whose change is complete to the one that others have with the
/// same sound, to one without a processor if they need none, or back to the station.
fn merge(inner: &mut AudioState) {
    for at in 0..inner.renditions.len() {
        let rendition = &inner.renditions[at];
        let Some(key) = rendition.key().cloned() else { continue };
        let stays = !rendition.has_processor && !key.is_station();
        if rendition.change.is_some() || stays {
            continue;
        }
        let (own, station) = (rendition.number, rendition.station);
        let on_it = inner.playing.iter().filter(|one| one.number == own);
        let sessions: Vec<SessionId> = on_it.map(|one| one.session).collect();
        let to = if key.is_station() {
            station
        } else {
            if key.sound.chain.is_none() && !sessions.is_empty() {
                // Without a free slot they stay where they are.
                let _made = super::get_or_create(inner, station, key.clone());
            }
            let found = super::find(inner, station, &key);
            let found = found.map(|found| &inner.renditions[found]);
            found.filter(|found| is_warm(found)).map_or(own, |found| found.number)
        };
        if to == own {
            continue;
        }
        // What a reactor does not take now is tried again.
        if !sessions.iter().all(|session| inner.context.continue_on(*session, own, to)) {
            continue;
        }
        inner.playing.retain(|one| one.number != own || to != station);
        inner.playing.iter_mut().filter(|one| one.number == own).for_each(|one| one.number = to);
        inner.renditions[at].kind = RenditionKind::Leaving { to, sessions };
    }
}

/// Moves sessions whose rendition has as much history as they have buffered, so that playback has
/// no gap.
fn complete_moves(inner: &mut AudioState) {
    let now = SystemClock::now();
    let mut moves = std::mem::take(&mut inner.pending_moves);
    moves.retain(|one| {
        let running = inner.stations.get(one.station).and_then(Option::as_ref);
        let buffer = running.map(|running| Span::from_millis(i64::from(running.config.buffer_ms)));
        let rendition = super::find(inner, one.station, &one.key);
        let (Some(buffer), Some(at)) = (buffer, rendition) else { return false };
        let rendition = &inner.renditions[at];
        let number = rendition.number;
        if now.since(rendition.since) < buffer || !inner.context.set_station(one.session, number) {
            return true;
        }
        let (session, station) = (one.session, one.station);
        inner.playing.push(PlayingSession { session, station, number });
        false
    });
    inner.pending_moves = moves;
}

/// Lets a rendition change to the sound that it is to have.
fn begin_fade(inner: &mut AudioState, at: usize) {
    let rendition = &inner.renditions[at];
    let (station, output, chunk) =
        (rendition.station, rendition.output_id, rendition.channel.chunk);
    let Some(sound) = rendition.key().map(|key| key.sound.clone()) else { return };
    if let Ok(program) = super::program(inner, station, &sound)
        && let Some(running) = inner.station(station)
    {
        running.handle.set_sound(output, program);
    }
    let until = SystemClock::now() + FADE_TIME + chunk + chunk;
    inner.renditions[at].change = Some(SoundChange::Fade(until));
}

/// The longest time between two sends to a client, with a margin; two chunks come on top.
const MOVE_TIME: Span = Span::from_millis(150);

/// How long a new rendition with filters runs before a client continues on it: what a session may
/// be behind, and the time constants of usual bands.
const WARM_UP: Span = Span::from_millis(300);

/// What a change of sound takes: the processor's 200 ms, and a step of the control thread.
const FADE_TIME: Span = Span::from_millis(350);
