//! Which encoding of a station a Sendspin client gets: the station's own if it can play that, else a
//! rendition in a codec that it can play.

use std::sync::Arc;

use aulos_control::backend::ClientSound;
use aulos_core::{Codec, SampleFormat};
use aulos_io::reactor::SessionId;
use aulos_proto::sendspin::{AudioFormat, SupportedFormat};

use super::renditions::{client_sounds, listen, station_in_codec};
use super::running_rendition::PlayerFormats;
use super::state::AudioState;

/// Sets what the client of a session can play; `None` when it has ended.
pub(super) fn set_formats(
    inner: &mut AudioState,
    session: SessionId,
    formats: Option<&Arc<[SupportedFormat]>>,
) {
    inner.players.retain(|player| player.session != session);
    if let Some(formats) = formats {
        let formats = Arc::clone(formats);
        inner.players.push(PlayerFormats { session, formats, keeps: None });
    }
}

/// Lets a session play a station with its sound, or in another encoding if its client cannot play
/// that of the station. Returns false when the reactor's queue is full.
pub(super) fn play(
    inner: &mut AudioState,
    session: SessionId,
    station: usize,
    sound: ClientSound,
    continues: bool,
) -> bool {
    match rendition(inner, session, station) {
        Some(number) => inner.context.set_station(session, number),
        None => client_sounds::play(inner, session, station, sound, continues),
    }
}

/// The rendition that a Sendspin session plays in place of the station's own encoding; `None` if it
/// plays that, or is no such session.
fn rendition(inner: &mut AudioState, session: SessionId, station: usize) -> Option<usize> {
    let at = inner.players.iter().position(|player| player.session == session)?;
    let formats = Arc::clone(&inner.players[at].formats);
    inner.players[at].keeps = None;
    let running = inner.stations.get(station).and_then(Option::as_ref)?;
    let config = &running.config;
    let can_play = |format: SupportedFormat| formats.iter().any(|own| own.matches(&format));
    let own = AudioFormat::from_codec_header(&running.channel.codec_header);
    if own.as_ref().is_some_and(|own| can_play(own.format)) {
        return None;
    }
    let codec = [Codec::Flac, Codec::Pcm, Codec::Opus].into_iter().find_map(|codec| {
        let settings = config.codec_settings(codec);
        let spec = station_in_codec(config, settings).spec;
        let channels = u16::try_from(spec.layout.channels()).ok()?;
        let (hz, bits) = (spec.rate.hz(), spec.format.bits());
        // A rendition of PCM has 24 bits as in files, which Snapcast's header cannot say.
        let has_header = codec != Codec::Pcm || spec.format != SampleFormat::S24Le;
        (has_header && can_play(SupportedFormat { codec, channels, hz, bits })).then_some(settings)
    });
    // A display needs no sound.
    if formats.is_empty() {
        return None;
    }
    let Some(codec) = codec else {
        let (station, format) = (&config.name, own.map(|own| own.format.to_string()));
        tracing::warn!(
            target: "sendspin",
            station,
            format,
            "a Sendspin player can play no encoding of this station; it stays silent"
        );
        return None;
    };
    match listen(inner, station, Some(codec)) {
        Ok(target) => {
            inner.players[at].keeps = target.keep_alive;
            Some(target.number)
        }
        Err(error) => {
            tracing::warn!(target: "sendspin", %error, "cannot encode a station for a player");
            None
        }
    }
}
