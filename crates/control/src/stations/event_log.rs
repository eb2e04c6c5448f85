//! The events of what an operator has to know: sources that fail and come back, switches, silence,
//! live sources, clients, and refused logins.
//!
//! What is logged is derived from the changes that controllers are notified of, so the audio side
//! never logs. Texts from peers are written in quotes with escapes. The same events are kept in the
//! history (`event_history`), which pages and programs read.

use aulos_session::nats::LeaseState;

use aulos_config::StationSettings;

use crate::backend::{DjEndReason, DjStatus, InputChange, SourceState, StationReport, SwitchCause};
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::hooks::HookEvent;

/// An event of a source of a station.
fn source_event(kind: EventKind, severity: EventSeverity, source: &str, text: String) -> NewEvent {
    NewEvent { kind, severity, station: None, subject: source.to_owned(), text }
}

fn info(source: &str, text: impl Into<String>) -> NewEvent {
    source_event(EventKind::Source, EventSeverity::Info, source, text.into())
}

fn warning(source: &str, text: impl Into<String>) -> NewEvent {
    source_event(EventKind::Source, EventSeverity::Warning, source, text.into())
}

/// Why each source of a station has failed, as it was logged. A radio that is tried again and again
/// has a line for each new reason, and not for each attempt.
#[derive(Debug, Default)]
pub(crate) struct LoggedFailures(Vec<Option<String>>);

impl LoggedFailures {
    /// What has changed of the sources between two statuses of a station.
    pub(crate) fn changes(
        &mut self,
        station: &StationSettings,
        before: &StationReport,
        now: &StationReport,
    ) -> Vec<NewEvent> {
        let mut entries = Vec::new();
        self.0.resize(station.sources.len(), None);
        for (index, (source, logged)) in station.sources.iter().zip(&mut self.0).enumerate() {
            let name = source.name.as_str();
            match now.sources.get(index) {
                Some(SourceState::Failed(reason)) if logged.as_ref() != Some(reason) => {
                    entries.push(warning(name, format!("source failed: {reason}")));
                    *logged = Some(reason.clone());
                }
                Some(SourceState::Ready | SourceState::Silent) if logged.take().is_some() => {
                    entries.push(info(name, "source works again"));
                }
                _ => {}
            }
            let live = |status: &StationReport| status.live_inputs.get(index).cloned().flatten();
            let (before, now) = (live(before).unwrap_or_default(), live(now).unwrap_or_default());
            entries.extend(live_change(name, &before, &now));
        }
        entries
    }
}

fn live_change(source: &str, before: &DjStatus, now: &DjStatus) -> Option<NewEvent> {
    match (before.on_air, now.on_air) {
        (false, true) => {
            let about = &now.client_info;
            let mut text = "live source connected".to_owned();
            if let Some(from) = about.from {
                text += &format!(" from {from}");
            }
            for detail in [&about.agent, &about.name, &Some(about.content_type.clone())] {
                if let Some(detail) = detail.as_ref().filter(|detail| !detail.is_empty()) {
                    text += &format!(", {detail:?}");
                }
            }
            Some(info(source, text))
        }
        (true, false) => Some(match &now.left {
            None | Some(DjEndReason::Ended) => info(source, "live source disconnected"),
            Some(why) => warning(source, why.to_string()),
        }),
        _ => None,
    }
}

/// The event of a switch; the first source of a station is no news.
pub(crate) fn switch_event(station: &StationSettings, switched: InputChange) -> Option<NewEvent> {
    let name = |index: Option<usize>| {
        let source = index.and_then(|index| station.sources.get(index));
        source.map_or("the last resort", |source| source.name.as_str())
    };
    let (from, to) = (name(switched.from), name(switched.to));
    let (severity, text) = match switched.cause {
        SwitchCause::First => return None,
        SwitchCause::Better => {
            (EventSeverity::Info, format!("playing {to}, which has priority over {from}"))
        }
        SwitchCause::Ended => (EventSeverity::Info, format!("{from} ended; playing {to}")),
        SwitchCause::Manual => (EventSeverity::Info, format!("playing {to} on request")),
        SwitchCause::Schedule => (EventSeverity::Info, format!("playing {to} by the schedule")),
        cause => {
            let is_last = switched.to.is_none();
            let severity = if is_last { EventSeverity::Error } else { EventSeverity::Warning };
            (severity, format!("{from} failed ({}); playing {to}", cause.name()))
        }
    };
    Some(source_event(EventKind::Switch, severity, to, text))
}

/// The event of a hook event that is no change of status: silence and its end, peaks, the insert, and
/// entries of the schedule.
pub(crate) fn hook_event(event: &HookEvent) -> Option<NewEvent> {
    let (kind, severity, source) = match event {
        HookEvent::Silence { source, .. } => (EventKind::Silence, EventSeverity::Error, source),
        HookEvent::Sound { source, .. } => (EventKind::Silence, EventSeverity::Info, source),
        HookEvent::InsertBypassed { .. } => {
            return Some(source_event(EventKind::Insert, EventSeverity::Warning, "", event.text()));
        }
        HookEvent::InsertRecovered { .. } => {
            return Some(source_event(EventKind::Insert, EventSeverity::Info, "", event.text()));
        }
        HookEvent::OverCeiling { source, .. } => (EventKind::Level, EventSeverity::Warning, source),
        HookEvent::ScheduleBegan { source, .. } | HookEvent::ScheduleEnded { source, .. } => {
            return Some(source_event(
                EventKind::Schedule,
                EventSeverity::Info,
                source,
                event.text(),
            ));
        }
        _ => return None,
    };
    Some(source_event(kind, severity, source.as_deref().unwrap_or_default(), event.text()))
}

/// What has changed of the outputs between two statuses of a station. The audio side logs it.
pub(crate) fn output_changes(
    station: &StationSettings,
    before: &StationReport,
    now: &StationReport,
) -> Vec<NewEvent> {
    let mut events = Vec::new();
    let mut add = |severity, output: String, text: String| {
        let (kind, station) = (EventKind::Output, None);
        events.push(NewEvent { kind, severity, station, subject: output, text });
    };
    for (index, (push, state)) in station.pushes.iter().zip(&now.pushes).enumerate() {
        let Some(old) = before.pushes.get(index) else { continue };
        let (was, is) = (old.phase.name(), state.phase.name());
        if let Some(error) = state.error.as_ref().filter(|_| state.error != old.error) {
            add(EventSeverity::Warning, push.target.to_string(), format!("push failed: {error}"));
        } else if was != is && is == "pushing" {
            add(EventSeverity::Info, push.target.to_string(), "push started".to_owned());
        }
    }
    for (index, (output, state)) in station.rtp.iter().zip(&now.rtp_outputs).enumerate() {
        let old = before.rtp_outputs.get(index).and_then(|old| old.problem.as_ref());
        if let Some(problem) = state.problem.as_ref().filter(|problem| Some(*problem) != old) {
            let text = format!("RTP output failed: {problem}");
            add(EventSeverity::Warning, format!("rtp://{}", output.dest), text);
        }
    }
    if let Some(state) = &now.publication
        && now.publication != before.publication
    {
        let (severity, text) = publication_change(state);
        add(severity, "nats".to_owned(), text);
    }
    events
}

/// What a change of the part in a station's publication means.
fn publication_change(state: &LeaseState) -> (EventSeverity, String) {
    match state {
        LeaseState::Holder { epoch } => {
            (EventSeverity::Info, format!("this server sends the station, with epoch {epoch}"))
        }
        LeaseState::Standby { holder } => {
            (EventSeverity::Info, format!("stand-by: `{holder}` sends the station"))
        }
        LeaseState::Unconfirmed { .. } => {
            let text = "JetStream does not confirm the lease; the station is sent until another \
                        server has it";
            (EventSeverity::Warning, text.to_owned())
        }
        LeaseState::Waiting => (EventSeverity::Info, "waiting for the lease".to_owned()),
        LeaseState::Unleased { .. } => {
            let text = "NATS has no JetStream, so every server that publishes this station sends \
                        it; start nats-server with -js";
            (EventSeverity::Warning, text.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DjInfo;

    fn station() -> StationSettings {
        let text = "[[station]]\nname = \"a\"\nsources = [\"tcp://:1?name=studio\", \"demo://\"]";
        let file = aulos_config::ConfigFile { name: "a.toml", text };
        let env = aulos_config::Environment::default();
        aulos_config::load(Some(file), &[], &env).unwrap().stations.remove(0)
    }

    fn is_warning(event: &NewEvent) -> bool {
        event.severity != EventSeverity::Info
    }

    fn with_source(state: SourceState) -> StationReport {
        StationReport { sources: vec![state, SourceState::Ready], ..StationReport::default() }
    }

    #[test]
    fn a_failure_has_one_line_for_each_reason_and_one_when_it_is_over() {
        let (station, mut logged) = (station(), LoggedFailures::default());
        let mut texts = Vec::new();
        let mut before = StationReport::default();
        let failed = |why: &str| SourceState::Failed(why.to_owned());
        for state in [
            failed("refused"),
            SourceState::Waiting,
            failed("refused"),
            failed("no route"),
            SourceState::Ready,
            SourceState::Waiting,
            failed("refused"),
        ] {
            let now = with_source(state);
            let new = logged.changes(&station, &before, &now);
            texts.extend(new.into_iter().map(|event| (is_warning(&event), event.text)));
            before = now;
        }
        let line = |is_warning, text: &str| (is_warning, text.to_owned());
        assert_eq!(
            texts,
            [
                line(true, "source failed: refused"),
                line(true, "source failed: no route"),
                line(false, "source works again"),
                line(true, "source failed: refused"),
            ]
        );
    }

    #[test]
    fn a_live_source_is_logged_when_it_comes_and_goes() {
        let about = DjInfo {
            from: Some([192, 0, 2, 7].into()),
            agent: Some("butt\n1.0".to_owned()),
            ..DjInfo::default()
        };
        let on_air = DjStatus { on_air: true, client_info: about, ..DjStatus::default() };
        let off = DjStatus { left: Some(DjEndReason::Broken), ..DjStatus::default() };
        let came = live_change("dj", &DjStatus::default(), &on_air).unwrap();
        assert_eq!(came.text, "live source connected from 192.0.2.7, \"butt\\n1.0\"");
        let left = live_change("dj", &on_air, &off).unwrap();
        assert_eq!(left, warning("dj", DjEndReason::Broken.to_string()));
        assert_eq!(live_change("dj", &on_air, &on_air), None);
    }

    #[test]
    fn a_switch_is_logged_with_its_cause() {
        let text = |from, to, cause| {
            switch_event(&station(), InputChange { from, to, cause })
                .map(|event| (is_warning(&event), event.text))
        };
        let line = |is_warning, text: &str| Some((is_warning, text.to_owned()));
        assert_eq!(
            text(Some(0), Some(1), SwitchCause::Late),
            line(true, "studio failed (late); playing demo")
        );
        assert_eq!(
            text(Some(1), Some(0), SwitchCause::Better),
            line(false, "playing studio, which has priority over demo")
        );
        assert_eq!(
            text(Some(1), None, SwitchCause::Error),
            line(true, "demo failed (error); playing the last resort")
        );
        assert_eq!(text(None, Some(0), SwitchCause::First), None);
    }
}
