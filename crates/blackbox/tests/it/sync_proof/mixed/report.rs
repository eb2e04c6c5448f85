//! The figures of a mixed group, and its picture.

use std::path::Path;

use aulos_blackbox::sync::playout::{Difference, percentile};
use aulos_blackbox::sync::plot::{PlotPanel, draw};
use aulos_blackbox::sync::pulses::PULSES;

use super::guests::Events;
use super::playout::{SendspinPlayout, seconds_of_nanos};
use crate::sync_proof::players::{PlayedSound, Program};

/// What a session of the group has given.
#[derive(Debug)]
pub(super) struct MixedResult {
    name: &'static str,
    pub(super) pairs: Vec<PairResult>,
    /// Of each announcement.
    pub(super) announcements: Vec<AnnouncementResult>,
}

/// The Sendspin player beside another one.
#[derive(Debug)]
pub(super) struct PairResult {
    pub(super) program: Program,
    points: Vec<Difference>,
    /// Seconds in which others came and went.
    changes: Vec<[f64; 2]>,
}

/// How far apart the rooms were at the edges of an announcement, and how long it took, in seconds.
#[derive(Debug)]
pub(super) struct AnnouncementResult {
    /// The edges that each room has played.
    pub(super) heard: Vec<usize>,
    /// Between the first and the last room, for each edge.
    pub(super) apart: Vec<f64>,
    /// From the call to the first edge in the last room.
    pub(super) delay: f64,
}

impl MixedResult {
    pub(super) fn new(
        name: &'static str,
        sounds: &[PlayedSound],
        sendspin: &SendspinPlayout,
        (events, epoch): (&Events, u64),
    ) -> Self {
        let since = |nanos: &u64| seconds_of_nanos(nanos.saturating_sub(epoch));
        let changes: Vec<[f64; 2]> =
            events.changes.iter().map(|round| [since(&round[0]), since(&round[1])]).collect();
        let pairs = sounds
            .iter()
            .map(|sound| PairResult {
                program: sound.participant.program,
                points: sendspin.differences(&sound.playout),
                changes: changes.clone(),
            })
            .collect();
        let mut rooms = vec![&sendspin.edges];
        rooms.extend(sounds.iter().map(|sound| &sound.edges));
        let calls: Vec<f64> = events.announced.iter().map(since).collect();
        let until = |at: usize| calls.get(at + 1).copied().unwrap_or(f64::INFINITY);
        let announcements = calls.iter().enumerate().map(|(at, call)| {
            let heard = rooms.iter().map(|edges| {
                let own = edges.iter().filter(|edge| (*call..until(at)).contains(*edge));
                own.copied().collect()
            });
            AnnouncementResult::new(*call, heard.collect())
        });
        let announcements = announcements.collect();
        Self { name, pairs, announcements }
    }

    /// Prints every figure.
    pub(super) fn print(&self) {
        let name = self.name;
        for pair in &self.pairs {
            let program = pair.program;
            for (when, points) in
                [("undisturbed", pair.undisturbed()), ("while others change", pair.disturbed())]
            {
                let count = points.len();
                let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| percentile(&points, share));
                println!(
                    "{name}: Sendspin beside {program:?}, {when}: {count} points, p50 {p50:.0}, \
                     p95 {p95:.0}, p99 {p99:.0} us"
                );
            }
        }
        for one in &self.announcements {
            let (most, delay) = (one.most_apart() * 1e6, one.delay * 1e3);
            let heard = &one.heard;
            println!(
                "{name}: announcement: edges {heard:?}, rooms at most {most:.0} us apart, sound \
                 {delay:.0} ms after the call"
            );
        }
    }
}

impl PairResult {
    /// Microseconds at the times at which nobody came or went, sorted.
    pub(super) fn undisturbed(&self) -> Vec<f64> {
        self.at_times(|is_changing| !is_changing)
    }

    /// The same at the times at which others did.
    pub(super) fn disturbed(&self) -> Vec<f64> {
        self.at_times(|is_changing| is_changing)
    }

    fn at_times(&self, wanted: impl Fn(bool) -> bool) -> Vec<f64> {
        let is_changing =
            |at: f64| self.changes.iter().any(|[from, to]| (*from..*to).contains(&at));
        let points = self.points.iter().filter(|point| wanted(is_changing(point.at)));
        let mut apart: Vec<f64> = points.map(|point| point.ahead.abs() * 1e6).collect();
        apart.sort_by(f64::total_cmp);
        apart
    }

    /// The largest difference in each second, in microseconds.
    fn seconds(&self) -> Vec<f64> {
        let mut seconds = Vec::new();
        for point in &self.points {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes")]
            let second = point.at as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, f64::NAN);
            }
            seconds[second] = f64::max(seconds[second], point.ahead.abs() * 1e6);
        }
        seconds
    }
}

impl AnnouncementResult {
    fn new(call: f64, rooms: Vec<Vec<f64>>) -> Self {
        let apart = (0..PULSES).filter_map(|edge| {
            let times: Option<Vec<f64>> =
                rooms.iter().map(|room| room.get(edge).copied()).collect();
            let times = times?;
            let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Some(last - times.iter().copied().fold(f64::INFINITY, f64::min))
        });
        let apart = apart.collect();
        let first = rooms.iter().filter_map(|room| room.first().copied());
        let delay = first.fold(f64::NEG_INFINITY, f64::max) - call;
        Self { heard: rooms.iter().map(Vec::len).collect(), apart, delay }
    }

    /// Between the first and the last room, at the worst edge.
    pub(super) fn most_apart(&self) -> f64 {
        self.apart.iter().copied().fold(0.0, f64::max)
    }
}

/// Writes the picture of some sessions into a folder.
pub(super) fn write_plot(results: &[MixedResult], folder: &Path) {
    let panel = |result: &MixedResult| {
        let line = |program| {
            let pair = result.pairs.iter().find(|pair| pair.program == program);
            pair.map(PairResult::seconds).unwrap_or_default()
        };
        let title = result.name.to_owned();
        PlotPanel { title, lines: [line(Program::Ours), line(Program::Snapclient)] }
    };
    let panels: Vec<PlotPanel> = results.iter().map(panel).collect();
    let description = "The largest difference in each second between a Sendspin player and aulos \
                       play, and between it and snapclient, in one group, while other players come \
                       and go.";
    let names = ["Sendspin and aulos play", "Sendspin and snapclient"];
    let path = folder.join("mixed-group.svg");
    std::fs::write(&path, draw(&panels, names, description)).unwrap();
    println!("written: {}", path.display());
}
