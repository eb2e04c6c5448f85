//! `insert` of a station: a program that processes its programme.

use std::path::PathBuf;

use aulos_core::{Frames, SampleFormat, SampleSpec, Span};
use aulos_proto::uri::Uri;

use crate::keys::{NamedEnum, keys};
use crate::limits::{INSERT_DELAY, INSERT_LATENCY};
use crate::problem::{ConfigValue, Problems};
use crate::source::query::Query;

keys! {
    /// A program that processes the programme of a station, such as a sound processor: it reads
    /// WAVE on its standard input and writes WAVE to its standard output, as many frames as it
    /// reads. It is the first stage, before `equalizer` and `normalize`. While it does not work,
    /// the programme is played without it.
    pub(crate) struct InsertConfig (text is "uri") {
        /// The program and its arguments.
        uri: ConfigValue<String> = "", required "insert = \"process:///usr/bin/sox?params=-q -t wav - -t wav - bass +3\"";
        /// Format of the samples on its standard input: `f32`, `s16`, `s24` or `s32`. Its output
        /// has the format of its own header.
        format: SampleFormat = SampleFormat::F32;
        /// Samples without a header, in both directions.
        raw: bool = false;
        /// Latency of the stage, from `20ms` to `2s`, the same from the first frame on. Without it
        /// the programme is delayed as far as the program needs once it works.
        latency: Option<ConfigValue<Span>>, default_doc "found by measurement";
        /// By how many frames the program delays the sound, for one whose output has so little in
        /// common with its input that this cannot be measured.
        delay: Option<u32>, range INSERT_DELAY, "frames", default_doc "found by measurement";
        /// Log what the program writes to standard error, up to 20 lines a minute.
        log_stderr: bool = true;
    }

    /// Parameters of an insert's URI.
    pub(crate) struct InsertParams {
        /// Arguments of the program, separated by spaces.
        params: String;
    }
}

impl NamedEnum for SampleFormat {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("f32", Self::F32), ("s16", Self::S16Le), ("s24", Self::S24Le), ("s32", Self::S32Le)]
    }
}

/// The insert of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertSettings {
    /// The program.
    pub path: PathBuf,
    /// Its arguments in one string, as written.
    pub params: String,
    /// Format of the samples that it is given.
    pub format: SampleFormat,
    /// Whether there is no WAVE header in either direction.
    pub raw: bool,
    /// Latency of the stage; none is found by measurement.
    pub latency: Option<Span>,
    /// Delay of the program's sound; none is found by measurement.
    pub delay: Option<Frames>,
    /// Whether its standard error is logged.
    pub log_stderr: bool,
}

/// Validates the insert of a station.
pub(crate) fn resolve(
    config: &InsertConfig,
    spec: SampleSpec,
    problems: &Problems,
) -> Option<InsertSettings> {
    let (path, params) = parse_uri(&config.uri, problems)?;
    let latency = config.latency.as_ref().filter(|latency| {
        let is_in_range = INSERT_LATENCY.contains(&latency.value);
        if !is_in_range {
            let message = "`latency` must last from 20ms to 2s".to_owned();
            problems.add_with_hint(latency.at, message, "latency = \"200ms\"");
        }
        is_in_range
    });
    Some(InsertSettings {
        path,
        params,
        format: config.format,
        raw: config.raw,
        latency: latency.map(|latency| latency.value),
        // A second at most, whatever the rate is.
        delay: config
            .delay
            .map(|delay| Frames(u64::from(delay)).min(spec.rate.frames(Span::from_secs(1)))),
        log_stderr: config.log_stderr,
    })
}

/// The program of a URI and its arguments.
pub(crate) fn parse_uri(
    text: &ConfigValue<String>,
    problems: &Problems,
) -> Option<(PathBuf, String)> {
    let example = "insert = \"process:///usr/bin/sox?params=-q -t wav - -t wav - bass +3\"";
    let uri = text.value.parse::<Uri>().ok().filter(|uri| uri.scheme == "process");
    let Some(uri) = uri else {
        // Without a URI, which has been reported.
        if !text.value.is_empty() {
            let start: String = text.value.chars().take(60).collect();
            let message = format!("\"{}\" is not a process: URI", start.escape_debug());
            problems.add_with_hint(text.at, message, example);
        }
        return None;
    };
    let query = Query { uri: &uri, at: text.at, problems };
    let InsertParams { params, .. } = query.params();
    Some((query.path()?, params))
}
