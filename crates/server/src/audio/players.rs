//! Which encoding of a station a Sendspin client gets: the station's own if it can play that, else
//! another codec, and its sound in that codec.

use std::sync::Arc;

use aulos_control::backend::{ActiveSound, ClientSound};
use aulos_core::{Codec, SampleFormat};
use aulos_engine::encode::CodecConfig;
use aulos_io::reactor::SessionId;
use aulos_proto::sendspin::{AudioFormat, SupportedFormat};

use super::renditions::{client_sounds, station_in_codec};
use super::running_rendition::{PlayerFormats, RenditionKey, WantedRendition};
use super::state::AudioState;

/// What a client can play of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlayableEncoding {
    /// The station's own chunks, as every client of Snapcast.
    Own,
    /// Another codec.
    Other(CodecConfig),
    /// Nothing.
    None,
}

/// Sets what the client of a session can play; `None` when it has ended.
pub(super) fn set_formats(
    inner: &mut AudioState,
    session: SessionId,
    formats: Option<&Arc<[SupportedFormat]>>,
) {
    inner.players.retain(|player| player.session != session);
    if let Some(formats) = formats {
        let formats = Arc::clone(formats);
        inner.players.push(PlayerFormats { session, formats, plays: None, is_outdated: false });
    }
}

/// Lets a session play a station with its sound, in an encoding that its client can play; one that
/// `continues` plays the station already. Returns false when the reactor's queue is full.
pub(super) fn play(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    sound: ClientSound,
    continues: bool,
) -> bool {
    if let Some(player) = inner.players.iter_mut().find(|player| player.session == session) {
        (player.plays, player.is_outdated) = (Some((station, sound.clone())), false);
    }
    if encoding(inner, session, station) == PlayableEncoding::None {
        let running = inner.station(station);
        let (station, format) = running.map_or_else(Default::default, |running| {
            let own = AudioFormat::from_codec_header(&running.channel.codec_header);
            (running.config.name.clone(), own.map(|own| own.format.to_string()))
        });
        tracing::warn!(
            target: "sendspin",
            station,
            format,
            "a Sendspin player can play no encoding of this station; it stays silent"
        );
    }
    let key = key(inner, session, station, sound);
    client_sounds::play(inner, session, station, key, continues)
}

/// What a session with this sound plays of a station.
pub(super) fn key(
    inner: &AudioState,
    session: SessionId,
    station: usize,
    sound: ClientSound,
) -> RenditionKey {
    let codec = match encoding(inner, session, station) {
        PlayableEncoding::Other(codec) => Some(codec),
        PlayableEncoding::Own | PlayableEncoding::None => None,
    };
    RenditionKey { sound: client_sounds::playable(inner, station, sound), codec }
}

/// The sessions that play renditions: those with `sounds`, and Sendspin sessions.
pub(super) fn wanted(inner: &AudioState, sounds: Vec<ActiveSound>) -> Vec<WantedRendition> {
    let players = inner.players.iter().filter_map(|player| {
        let (station, sound) = player.plays.clone()?;
        Some(ActiveSound { session: player.session, station, sound })
    });
    let wanted =
        sounds.into_iter().chain(players).map(|ActiveSound { session, station, sound }| {
            WantedRendition { session, station, key: key(inner, session, station, sound) }
        });
    wanted.filter(|one| !one.key.is_station()).collect()
}

/// Notes that a station has been replaced: its players may need another encoding now.
pub(super) fn handle_replacement(inner: &mut AudioState, station: usize) {
    for player in &mut inner.players {
        player.is_outdated |= player.plays.as_ref().is_some_and(|(own, _)| *own == station);
    }
}

/// Chooses again for the players of stations that have been replaced. A reactor that takes no
/// command now is told the next time.
pub(super) fn choose_again(inner: &mut AudioState) {
    for at in 0..inner.players.len() {
        let player = &mut inner.players[at];
        if !std::mem::take(&mut player.is_outdated) {
            continue;
        }
        let (session, Some((station, sound))) = (player.session, player.plays.clone()) else {
            continue;
        };
        let codec = key(inner, session, station, sound.clone()).codec;
        if codec != client_sounds::codec(inner, session) {
            let is_taken = play(inner, session, station, sound, false);
            inner.players[at].is_outdated = !is_taken;
        }
    }
}

/// The first of these that the client of a session can play: the station's own encoding, FLAC, PCM,
/// Opus.
fn encoding(inner: &AudioState, session: SessionId, station: usize) -> PlayableEncoding {
    let player = inner.players.iter().find(|player| player.session == session);
    let running = inner.stations.get(station).and_then(Option::as_ref);
    let (Some(player), Some(running)) = (player, running) else { return PlayableEncoding::Own };
    let can_play = |format: SupportedFormat| player.formats.iter().any(|own| own.matches(&format));
    let own = AudioFormat::from_codec_header(&running.channel.codec_header);
    // A display needs no sound.
    if player.formats.is_empty() || own.is_some_and(|own| can_play(own.format)) {
        return PlayableEncoding::Own;
    }
    let codec = [Codec::Flac, Codec::Pcm, Codec::Opus].into_iter().find_map(|codec| {
        let settings = running.config.codec_settings(codec);
        let spec = station_in_codec(&running.config, settings).spec;
        let channels = u16::try_from(spec.layout.channels()).ok()?;
        let (hz, bits) = (spec.rate.hz(), spec.format.bits());
        // A rendition of PCM has 24 bits as in files, which Snapcast's header cannot say.
        let has_header = codec != Codec::Pcm || spec.format != SampleFormat::S24Le;
        (has_header && can_play(SupportedFormat { codec, channels, hz, bits })).then_some(settings)
    });
    codec.map_or(PlayableEncoding::None, PlayableEncoding::Other)
}
