//! Players of other services as programs: `librespot://` (Spotify), `airplay://`.

use std::path::PathBuf;

use aulos_core::SampleSpec;

use crate::keys::keys;
use crate::source::data_timeout::DataTimeout;
use crate::source::kind::{TitleFifo, TitleFormat};
use crate::source::process::ProcessSource;
use crate::source::query::{Parsed, Query};

keys! {
    /// Parameters of `librespot:`.
    pub(crate) struct LibrespotParams {
        /// Name of the device in Spotify.
        devicename: String = "Snapcast";
        /// Bit rate in kbit/s: 96, 160 or 320.
        bitrate: String = "320";
        /// Initial volume in percent.
        volume: String = "100";
        /// User name.
        username: String;
        /// Not used: librespot 0.5 and later log in by an app of Spotify in the same network.
        password: String;
        /// Directory of the cache.
        cache: String;
        /// Keep no sound in the cache.
        disable_audio_cache: bool = false;
        /// Spotify's volume normalization.
        normalize: bool = false;
        /// Continue with similar titles.
        autoplay: Option<bool>, default_doc "as the app of Spotify sets it";
        /// Program that librespot runs on events.
        onevent: String;
        /// Further arguments of librespot.
        params: String;
        /// Read titles from librespot's log.
        titles: bool = true;
        /// Log what librespot writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::OFF;
    }

    /// Parameters of `airplay:`.
    pub(crate) struct AirplayParams {
        /// Name of the device that players see.
        devicename: String = "Snapcast";
        /// Port to listen on.
        port: String = "5000";
        /// Password.
        password: String;
        /// Further arguments of shairport-sync.
        params: String;
        /// Read titles; requires a shairport-sync that was built with metadata.
        titles: bool = true;
        /// Log what shairport-sync writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::OFF;
    }
}

/// Spotify, played by librespot to standard output.
pub(crate) fn librespot(query: &Query<'_>) -> Parsed<ProcessSource> {
    let params: LibrespotParams = query.params();
    let mut line = format!(
        "--backend pipe --name {} --bitrate {} --initial-volume {}",
        quote(&params.devicename),
        quote(&params.bitrate),
        quote(&params.volume)
    );
    for (value, option) in [
        (&params.username, "--username"),
        (&params.cache, "--cache"),
        (&params.onevent, "--onevent"),
    ] {
        if !value.is_empty() {
            line += &format!(" {option} {}", quote(value));
        }
    }
    for (on, option) in [
        (params.disable_audio_cache, "--disable-audio-cache"),
        (params.normalize, "--enable-volume-normalisation"),
    ] {
        if on {
            line += &format!(" {option}");
        }
    }
    if let Some(on) = params.autoplay {
        line += if on { " --autoplay on" } else { " --autoplay off" };
    }
    if !params.password.is_empty() {
        let hint = "remove it; choose the device in an app of Spotify once, and set `cache` to keep \
                    the login";
        query.problems.warn(query.at, "librespot has no option for a password any more", hint);
    }
    add_arguments(&mut line, &params.params);
    let titles = params.titles.then_some(TitleFormat::Librespot);
    player_process(query, line, (params.log_stderr, params.timeout), titles)
}

/// `AirPlay`, played by shairport-sync to standard output.
pub(crate) fn airplay(query: &Query<'_>) -> Parsed<ProcessSource> {
    let params: AirplayParams = query.params();
    let mut line = format!(
        "--output=stdout {} {}",
        quote(&format!("--name={}", params.devicename)),
        quote(&format!("--port={}", params.port))
    );
    if !params.password.is_empty() {
        line += &format!(" {}", quote(&format!("--password={}", params.password)));
    }
    // A shairport-sync built without metadata support does not start with the options for titles.
    add_arguments(&mut line, &params.params);
    let titles = params.titles.then_some(TitleFormat::Airplay);
    player_process(query, line, (params.log_stderr, params.timeout), titles)
}

fn add_arguments(line: &mut String, more: &str) {
    if !more.is_empty() {
        *line += &format!(" {more}");
    }
}

/// A player process with 44.1 kHz output; without a slash it is looked up in `PATH`.
fn player_process(
    query: &Query<'_>,
    params: String,
    (log_stderr, DataTimeout(timeout)): (bool, DataTimeout),
    titles: Option<TitleFormat>,
) -> Parsed<ProcessSource> {
    let path = query.path()?;
    let name = path.strip_prefix("/").ok().filter(|rest| rest.components().count() == 1);
    let path = name.map_or_else(|| path.clone(), PathBuf::from);
    let spec = "44100:16:2".parse().unwrap_or(SampleSpec::DEFAULT);
    let titles = titles.map(|kind| TitleFifo { kind, fifo: PathBuf::new() });
    Some(vec![ProcessSource { path, params, spec, log_stderr, timeout, titles }])
}

/// Quotes one argument for [`aulos_io::feed::split_arguments`].
fn quote(argument: &str) -> String {
    format!("\"{}\"", argument.replace('\\', "\\\\").replace('"', "\\\""))
}
