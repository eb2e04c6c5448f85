//! The table, the points and the picture of the long form.

use std::fmt::Write as _;
use std::path::Path;

use aulos_blackbox::sync::playout::{Difference, differences, percentile};
use aulos_blackbox::sync::plot::{PlotPanel, draw};

use super::players::{PlayedSound, Program};
use super::{NetworkCase, SETTLED};

/// Pairs of the same kind.
#[derive(Debug)]
struct Pairing {
    label: &'static str,
    /// Numbers of the sounds.
    pairs: Vec<[usize; 2]>,
}

const OURS: &str = "two of ours";
const SNAPCLIENTS: &str = "two snapclients";
const MIXED: &str = "ours and a snapclient";
const OURS_ABSOLUTE: &str = "ours and one on loopback";
const SNAPCLIENT_ABSOLUTE: &str = "a snapclient and ours on loopback";

impl Pairing {
    /// All pairs of each kind. Where clocks drift, pairs are of one that does and one that does
    /// not.
    fn all(sounds: &[PlayedSound]) -> Vec<Self> {
        let is_far = sounds.iter().any(|sound| sound.participant.is_far);
        let is_drifting = sounds.iter().any(|sound| sound.participant.clock_ppm != 0);
        let of = |program, far| {
            let all = sounds.iter().map(|sound| sound.participant).enumerate();
            let wanted = all.filter(move |(_, one)| one.program == program && one.is_far == far);
            wanted.map(|(number, _)| number)
        };
        let [ours, snapclients] =
            [Program::Ours, Program::Snapclient].map(|program| of(program, is_far));
        let pairs = |ones: &[usize], others: &[usize]| {
            let pairs = ones.iter().flat_map(|one| others.iter().map(|other| [*one, *other]));
            let ppm = |number: usize| sounds[number].participant.clock_ppm;
            let differ = |pair: &[usize; 2]| (ppm(pair[0]) != ppm(pair[1])) == is_drifting;
            pairs.filter(differ).collect::<Vec<_>>()
        };
        let (ours, snapclients): (Vec<_>, Vec<_>) = (ours.collect(), snapclients.collect());
        let same = |all: &[usize]| {
            let mut pairs = pairs(all, all);
            pairs.retain(|pair| pair[0] < pair[1]);
            pairs
        };
        let near: Vec<usize> = of(Program::Ours, false).filter(|_| is_far).collect();
        let all = [
            Self { label: OURS, pairs: same(&ours) },
            Self { label: SNAPCLIENTS, pairs: same(&snapclients) },
            Self { label: MIXED, pairs: pairs(&ours, &snapclients) },
            Self { label: OURS_ABSOLUTE, pairs: pairs(&ours, &near) },
            Self { label: SNAPCLIENT_ABSOLUTE, pairs: pairs(&snapclients, &near) },
        ];
        all.into_iter().filter(|kind| !kind.pairs.is_empty()).collect()
    }
}

/// Pairs of the same kind in one case.
#[derive(Debug, Default)]
struct PairResult {
    label: &'static str,
    /// Absolute differences at settled times, sorted, in microseconds.
    apart: Vec<f64>,
    /// Signed median of them.
    bias: f64,
    /// The largest difference in the first second of sound, by pair, sorted.
    first_second: Vec<f64>,
    /// Omitted, repeated or cut frames in a minute of settled sound of one player.
    breaks_per_minute: f64,
    /// How often a card stood still.
    stops: usize,
    /// Frames that came bit by bit, and all.
    exact: [usize; 2],
    /// Largest difference in each second since the begin of the sound.
    seconds: Vec<f64>,
}

impl PairResult {
    fn new(sounds: &[PlayedSound], pairing: &Pairing, points: &mut String) -> Self {
        let mut result = Self { label: pairing.label, ..Self::default() };
        let (mut ahead, mut breaks) = (Vec::new(), 0);
        for (number, [one, other]) in pairing.pairs.iter().enumerate() {
            let [one, other] = [&sounds[*one], &sounds[*other]];
            let all = differences(&one.playout, &other.playout);
            let Some(begin) = all.first().map(|point| point.at) else { continue };
            let is_settled = |point: &&Difference| {
                [one, other].iter().all(|sound| sound.playout.is_settled(point.at, SETTLED))
            };
            ahead.extend(all.iter().filter(is_settled).map(|point| point.ahead * 1e6));
            let first = all.iter().take_while(|point| point.at < begin + 1.0);
            result
                .first_second
                .push(first.map(|point| point.ahead.abs() * 1e6).fold(0.0, f64::max));
            for sound in [one, other] {
                breaks += sound.playout.settled_breaks(SETTLED);
                result.stops += sound.playout.stops();
                let exact = sound.playout.tone().exact;
                result.exact = [result.exact[0] + exact[0], result.exact[1] + exact[1]];
            }
            result.add_seconds(&all, begin);
            for point in all.iter().step_by(10) {
                let (at, ahead) = (point.at - begin, point.ahead * 1e6);
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(points, "{} {number},{at:.1},{ahead:.1}", pairing.label);
            }
        }
        ahead.sort_by(f64::total_cmp);
        result.bias = percentile(&ahead, 0.5);
        // Two players, a point every 10 ms.
        let minutes = count(ahead.len()) * 2.0 / 6_000.0;
        result.breaks_per_minute = count(breaks) / minutes;
        result.apart = ahead.into_iter().map(f64::abs).collect();
        result.apart.sort_by(f64::total_cmp);
        result.first_second.sort_by(f64::total_cmp);
        result
    }

    fn add_seconds(&mut self, all: &[Difference], begin: f64) {
        for point in all {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes")]
            let second = (point.at - begin) as usize;
            if self.seconds.len() <= second {
                self.seconds.resize(second + 1, f64::NAN);
            }
            self.seconds[second] = self.seconds[second].max(point.ahead.abs() * 1e6);
        }
    }
}

/// What a case has given.
#[derive(Debug)]
pub(super) struct CaseResult {
    name: String,
    share: f64,
    pairs: Vec<PairResult>,
    points: String,
}

impl CaseResult {
    pub(super) fn new(case: &NetworkCase, sounds: &[PlayedSound]) -> Self {
        let mut points = String::new();
        let pairings = Pairing::all(sounds);
        let pairs: Vec<PairResult> =
            pairings.iter().map(|pairing| PairResult::new(sounds, pairing, &mut points)).collect();
        let is_ours = |sound: &&PlayedSound| sound.participant.program == Program::Ours;
        for sound in sounds.iter().filter(is_ours) {
            println!("{}: {}", case.name, sound.status);
        }
        let result = Self { name: case.name.to_owned(), share: case.share, pairs, points };
        print!("{}", result.rows());
        result
    }

    fn pair(&self, label: &str) -> Option<&PairResult> {
        self.pairs.iter().find(|pair| pair.label == label)
    }

    /// The lines of the table.
    fn rows(&self) -> String {
        let mut rows = String::new();
        for pair in &self.pairs {
            let at = |share| percentile(&pair.apart, share);
            let most = pair.first_second.last().copied().unwrap_or(f64::NAN);
            let exact = 100.0 * count(pair.exact[0]) / count(pair.exact[1]);
            let _ = writeln!(
                rows,
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:+.0} | {:.0} / {most:.0} | {:.1} | \
                 {exact:.0} % | {} |",
                self.name,
                pair.label,
                at(0.5),
                at(0.95),
                at(0.99),
                pair.bias,
                percentile(&pair.first_second, 0.5),
                pair.breaks_per_minute,
                pair.stops
            );
        }
        rows
    }

    /// What is not as it must be.
    fn faults(&self) -> Vec<String> {
        let p99 = |label| self.pair(label).map(|pair| percentile(&pair.apart, 0.99));
        let (Some(ours), Some(peer)) = (p99(OURS), p99(SNAPCLIENTS)) else { return Vec::new() };
        let mut faults = Vec::new();
        println!("{}: p99 {ours:.0} / {peer:.0} us = {:.3}", self.name, ours / peer);
        let limit = (peer * self.share).max(FRAME_US);
        if ours.is_nan() || ours > limit {
            let name = &self.name;
            faults.push(format!("{name}: p99 {ours:.0} us, more than {limit:.0} us"));
        }
        faults.extend(self.late_starts());
        faults
    }

    fn late_starts(&self) -> Option<String> {
        let most = *self.pair(OURS)?.first_second.last()?;
        (most > FIRST_SECOND_US).then(|| format!("{}: first second {most:.0} us", self.name))
    }
}

/// All cases.
#[derive(Debug, Default)]
pub(super) struct SyncTable {
    cases: Vec<CaseResult>,
    starts: Option<CaseResult>,
}

impl SyncTable {
    pub(super) fn push(&mut self, case: CaseResult) {
        self.cases.push(case);
    }

    /// Rounds of many starts: only their first second counts.
    pub(super) fn push_starts(&mut self, rounds: &[Vec<PlayedSound>]) {
        let mut points = String::new();
        let mut pairs = [OURS, SNAPCLIENTS].map(|label| PairResult { label, ..<_>::default() });
        for sounds in rounds {
            for (pair, pairing) in pairs.iter_mut().zip(Pairing::all(sounds)) {
                let round = PairResult::new(sounds, &pairing, &mut points);
                pair.first_second.extend(round.first_second);
                pair.stops += round.stops;
            }
        }
        for pair in &mut pairs {
            pair.first_second.sort_by(f64::total_cmp);
            let at = |share| percentile(&pair.first_second, share);
            println!(
                "starts, {}: {} pairs, p50 {:.0}, p90 {:.0}, most {:.0} us",
                pair.label,
                pair.first_second.len(),
                at(0.5),
                at(0.9),
                at(1.0)
            );
        }
        let (name, pairs) = ("starts".to_owned(), Vec::from(pairs));
        self.starts = Some(CaseResult { name, share: 1.0, pairs, points });
    }

    /// Prints the table, writes the points and the picture into a folder; what is not met.
    pub(super) fn report(&self, folder: &Path) -> Vec<String> {
        println!(
            "| network | pair | p50 | p95 | p99 | bias | first second, p50 / most | breaks a \
             minute | bit by bit | card stops |\n|---|---|---|---|---|---|---|---|---|---|"
        );
        let mut points = "case,pair,seconds,ahead_us\n".to_owned();
        let mut panels = Vec::new();
        for case in &self.cases {
            print!("{}", case.rows());
            points.extend(case.points.lines().map(|line| format!("{},{line}\n", case.name)));
            let line = |label| case.pair(label).map_or_else(Vec::new, |pair| pair.seconds.clone());
            let lines = [line(OURS), line(SNAPCLIENTS)];
            panels.push(PlotPanel { title: case.name.clone(), lines });
        }
        let description = "The largest difference in each second between two players of one server, \
                           two of aulos and two snapclients, on several networks.";
        let picture = draw(&panels, ["two of aulos", "two snapclients"], description);
        for (name, content) in [("player-sync.csv", points), ("player-sync.svg", picture)] {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            println!("written: {}", path.display());
        }
        let faults = self.cases.iter().flat_map(CaseResult::faults);
        faults.chain(self.starts.iter().filter_map(CaseResult::late_starts)).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "minutes of frames")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Players at rest have their content on whole frames, so less than a frame is chance.
const FRAME_US: f64 = 20.8;

/// Most that two of ours may be apart in their first second.
const FIRST_SECOND_US: f64 = 1_000.0;
