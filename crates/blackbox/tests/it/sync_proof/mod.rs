//! Players of one server beside snapclients in the same runs, real processes on a real network
//! stack: how far apart they sound.
//!
//! The method is described in `docs/explanation/player-sync.md`. The short form asserts what a busy
//! machine permits. The long form (`scripts/soak sync_proof`) prints the table of that page and
//! writes its picture.

mod mixed;
mod players;
mod table;

use std::path::Path;
use std::time::Duration;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::sync::delayed_link::DelayModel;
use aulos_blackbox::sync::playout::{differences, percentile};
use aulos_blackbox::sync::write_stamps::CAN_DRIFT;

use crate::retry::{ClientCorrection, retry};
use crate::{soak, turn};

use players::{Participant, PlayedSound, Program, Session};
use table::{CaseResult, SyncTable};

/// A network, and a drift for every second player.
#[derive(Clone, Copy, Debug)]
struct NetworkCase {
    name: &'static str,
    /// `None` for loopback.
    model: Option<DelayModel>,
    clock_ppm: i32,
    /// Most that the difference between two of ours may be, as a share of that between two
    /// snapclients.
    share: f64,
}

const fn network(base_us: u64, jitter_ms: u64, loss: f64) -> Option<DelayModel> {
    let (base, jitter) = (Duration::from_micros(base_us), Duration::from_millis(jitter_ms));
    Some(DelayModel { base, jitter, loss })
}

const CASES: [NetworkCase; 6] = [
    NetworkCase { name: "loopback", model: None, clock_ppm: 0, share: 1.0 },
    NetworkCase { name: "0.5 ms", model: network(500, 0, 0.0), clock_ppm: 0, share: 1.0 },
    NetworkCase { name: "0.5 to 5.5 ms", model: JITTER_5, clock_ppm: 0, share: 0.25 },
    NetworkCase { name: "0.5 to 20.5 ms", model: network(500, 20, 0.0), clock_ppm: 0, share: 0.25 },
    NetworkCase {
        name: "1 ms and 1 % lost",
        model: network(1_000, 0, 0.01),
        clock_ppm: 0,
        share: 0.25,
    },
    NetworkCase {
        name: "0.5 ms, one clock +50 ppm",
        model: network(500, 0, 0.0),
        clock_ppm: 50,
        share: 0.05,
    },
];

const JITTER_5: Option<DelayModel> = network(500, 5, 0.0);

/// Players of each program in a long case.
const PLAYERS: usize = 4;

/// A player on loopback, against which the others' absolute error is measured.
const REFERENCE: Participant = Participant { program: Program::Ours, is_far: false, clock_ppm: 0 };

/// After the start of the sound or of the card, in the long form: snapclient's first corrections
/// take so long.
const SETTLED: f64 = 12.0;

/// Two players on loopback and two behind a network with 0 to 5 ms of jitter in each direction.
#[test]
fn two_players_are_in_sync_through_a_jittery_network() {
    let Some(compiler) = find_or_skip("cc") else { return };
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    retry("two players in sync", || short_form(&net, &compiler));
}

/// Fails if the machine did not run a player for half a second.
fn short_form(net: &NetNamespaces, compiler: &Path) -> Result<(), ClientCorrection> {
    let ours = |is_far| Participant { program: Program::Ours, is_far, clock_ppm: 0 };
    let participants = [ours(false), ours(false), ours(true), ours(true)];
    let session =
        Session { net, compiler, snapclient: None, model: JITTER_5, seconds: 8, config: "" };
    let sounds = session.run(&participants);
    // Half of the jitter is the most that a clock can be wrong if no process stalls.
    for (name, pair, limit) in
        [("loopback", &sounds[..2], 1_000.0), ("0 to 5 ms of jitter", &sounds[2..], 3_000.0)]
    {
        let stops: usize = pair.iter().map(|sound| sound.playout.stops()).sum();
        if stops > 0 {
            return Err(ClientCorrection::host_stall(format!("{name}: {stops} card stops")));
        }
        let points = differences(&pair[0].playout, &pair[1].playout);
        let mut apart: Vec<f64> = points.iter().map(|point| point.ahead.abs() * 1e6).collect();
        apart.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| percentile(&apart, share));
        println!("{name}: {} points, p50 {p50:.1}, p95 {p95:.1}, p99 {p99:.1} us", apart.len());
        assert!(apart.len() > 500, "{name}: {} points", apart.len());
        assert!(p50 < limit, "{name}: {p50:.0} us");
        for sound in pair {
            let breaks = sound.playout.settled_breaks(1.0);
            assert_eq!(breaks, 0, "{name}: frames are omitted or repeated: {:?}", sound.status);
        }
        let exact = pair.iter().map(|sound| sound.playout.tone().exact);
        let [exact, all] = exact.fold([0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
        println!("{name}: {exact} of {all} frames bit by bit");
    }
    Ok(())
}

/// The long form: every network, snapclients beside ours, and many starts.
#[test]
fn players_are_closer_than_snapclients() {
    if !soak() {
        return;
    }
    let (Some(compiler), Some(snapclient)) = (find_or_skip("cc"), find_or_skip("snapclient"))
    else {
        return;
    };
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let seconds = seconds_of("AULOS_SYNC_SECONDS", 180);
    let session = |model, seconds| Session {
        net: &net,
        compiler: &compiler,
        snapclient: Some(&snapclient),
        model,
        seconds,
        config: "",
    };
    let mut table = SyncTable::default();
    for case in CASES.iter().filter(|case| is_wanted(case.name)) {
        if case.clock_ppm != 0 && !CAN_DRIFT {
            skip("processor whose clock can be replaced");
            continue;
        }
        let is_far = case.model.is_some();
        let mut participants = participants(PLAYERS, is_far, case.clock_ppm);
        if is_far {
            participants.push(REFERENCE);
        }
        table.push(CaseResult::new(case, &session(case.model, seconds).run(&participants)));
    }
    if is_wanted("starts") {
        let rounds = (0..3).map(|_| session(JITTER_5, 8).run(&participants(8, true, 0)));
        let rounds: Vec<Vec<PlayedSound>> = rounds.collect();
        table.push_starts(&rounds);
    }
    let faults = table.report(Path::new(env!("CARGO_TARGET_TMPDIR")));
    assert!(faults.is_empty(), "{faults:#?}");
}

/// As many of ours as of snapclient, in turn; every second of each has the drift.
fn participants(count: usize, is_far: bool, clock_ppm: i32) -> Vec<Participant> {
    (0..count)
        .flat_map(|number| {
            let clock_ppm = if number % 2 == 1 { clock_ppm } else { 0 };
            [Program::Ours, Program::Snapclient].map(|program| Participant {
                program,
                is_far,
                clock_ppm,
            })
        })
        .collect()
}

/// `AULOS_SYNC_CASE` chooses cases by a part of their name, for work on one of them.
fn is_wanted(name: &str) -> bool {
    std::env::var("AULOS_SYNC_CASE").map_or(true, |wanted| name.contains(&wanted))
}

fn seconds_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
