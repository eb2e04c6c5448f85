//! One group, two protocols: a Sendspin player beside `aulos play` and a real snapclient.
//!
//! When the Sendspin player's sound is to be heard, the player says by its own clock filter
//! (aiosendspin's); what it plays then is in its decoded samples. When the others sound is measured
//! as always. While the three play, players of both protocols come and go, and announcements reach
//! the station and the group. The long form (`scripts/mixed-group`) prints the figures and
//! writes the picture of `docs/explanation/mixed-group.md`.

mod guests;
mod playout;
mod report;

use std::cell::OnceCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{Dialect, SendspinProcess, SendspinTools};
use aulos_blackbox::signal::{SampleWidth, write_wav};
use aulos_blackbox::sync::delayed_link::{DelayModel, DelayedLink};
use aulos_blackbox::sync::playout::percentile;
use aulos_blackbox::sync::pulses::{PULSES, announcement};

use super::JITTER_5;
use super::players::{Participant, Program, Session};
use crate::retry::{ClientCorrection, retry};
use crate::rpc::Rpc;
use crate::sendspin::approve;
use crate::{soak, text, turn};

use guests::{Events, MixedGroup};
use playout::{SETTLED, SendspinPlayout};
use report::{MixedResult, write_plot};

const PATIENCE: Duration = Duration::from_secs(20);

/// A network before all three players, and what happens while they play.
#[derive(Clone, Copy, Debug)]
struct MixedCase {
    name: &'static str,
    model: Option<DelayModel>,
    /// What the Sendspin player plays.
    format: &'static str,
    /// From the start of the players to their end.
    seconds: u64,
    /// How often others come and go, and announcements are made.
    rounds: usize,
    /// Most microseconds that the median difference may be on a busy machine.
    limit: f64,
}

/// The Sendspin player gets what is encoded for it beside the station's own chunks.
const LOOPBACK: MixedCase = MixedCase {
    name: "loopback",
    model: None,
    format: "flac:48000:16:2",
    seconds: 24,
    rounds: 1,
    limit: 1_000.0,
};
const JITTER: MixedCase = MixedCase {
    name: "0 to 5 ms of jitter",
    model: JITTER_5,
    format: STATION_FORMAT,
    seconds: 16,
    rounds: 0,
    limit: 3_000.0,
};

#[test]
fn sendspin_and_snapcast_players_are_in_sync() {
    let Some(session) = MixedTools::find_or_skip() else { return };
    let _turn = turn();
    let Some(mixed) = session.mixed() else { return };
    for case in [LOOPBACK, JITTER] {
        retry(case.name, || check(&mixed, case));
    }
}

/// The long form: minutes in which others come and go, and announcements.
#[test]
fn a_mixed_group_stays_in_sync_while_others_come_and_go() {
    if !soak() {
        return;
    }
    let Some(session) = MixedTools::find_or_skip() else { return };
    let _turn = turn();
    let Some(mixed) = session.mixed() else { return };
    let results = [LOOPBACK, JITTER].map(|case| {
        let case = MixedCase { seconds: 180, rounds: 6, format: STATION_FORMAT, ..case };
        retry(case.name, || check(&mixed, case))
    });
    write_plot(&results, Path::new(env!("CARGO_TARGET_TMPDIR")));
}

/// The programs of a session.
struct MixedTools {
    compiler: PathBuf,
    snapclient: PathBuf,
    sendspin: SendspinTools,
    net: OnceCell<NetNamespaces>,
}

struct Mixed<'a> {
    net: &'a NetNamespaces,
    compiler: &'a Path,
    snapclient: &'a Path,
    tools: &'a SendspinTools,
}

impl MixedTools {
    fn find_or_skip() -> Option<Self> {
        Some(Self {
            compiler: find_or_skip("cc")?,
            snapclient: find_or_skip("snapclient")?,
            sendspin: SendspinTools::find_or_skip()?,
            net: OnceCell::new(),
        })
    }

    /// With two networks, or a message that the test is skipped.
    fn mixed(&self) -> Option<Mixed<'_>> {
        let Ok(net) = NetNamespaces::new().inspect_err(|error| println!("{error}")) else {
            skip("network namespaces");
            return None;
        };
        let net = self.net.get_or_init(|| net);
        let Self { compiler, snapclient, sendspin, .. } = self;
        Some(Mixed { net, compiler, snapclient, tools: sendspin })
    }
}

/// Fails if the machine did not run a player for half a second.
fn check(mixed: &Mixed<'_>, case: MixedCase) -> Result<MixedResult, ClientCorrection> {
    let name = case.name;
    let port = free_port().unwrap();
    let scratch = ScratchDir::new("sync-mixed").unwrap();
    let file = scratch.join("announcement.wav");
    let out = BufWriter::new(File::create(&file).unwrap());
    write_wav(out, &announcement(), SampleWidth::B16).unwrap();
    let config = format!(
        "[sendspin]\nenabled = true\ndiscover = false\nlisten = \"0.0.0.0:{port}\"\n\
         [streams]\nroots = [\"{}\"]\n[[station]]\nname = \"other\"\nsources = [\"tone://\"]\n",
        text(scratch.path())
    );
    let session = Session {
        net: mixed.net,
        compiler: mixed.compiler,
        snapclient: Some(mixed.snapclient),
        model: case.model,
        seconds: case.seconds,
        config: &config,
    };
    let is_far = case.model.is_some();
    let player = |program| Participant { program, is_far, clock_ppm: 0 };
    let mut events = Events::default();
    let (sounds, sendspin, epoch) =
        session.run_beside(&[player(Program::Ours), player(Program::Snapclient)], |server, _| {
            let begin = Instant::now();
            let sendspin = sendspin_process(mixed, port, is_far, (&scratch, "room", case.format));
            let control = server.control;
            let mut rpc = mixed.net.run_inside(0, || Rpc::connect(control));
            approve(&mut rpc, &client_id(&sendspin));
            let members = ["player0".to_owned(), "player1".to_owned(), client_id(&sendspin)];
            let mut group = MixedGroup::new(mixed, (server, port), members.to_vec(), &scratch);
            for round in 0..case.rounds {
                // Rounds have as much time with changes as without them.
                let at = Duration::from_secs_f64(SETTLED + 4.0) + PERIOD * u32_of(round);
                sleep(at.saturating_sub(begin.elapsed()));
                group.change(round, &mut events);
                group.announce(&file, &mut events);
            }
            sendspin
        });
    let sound = sendspin.sound.clone();
    let received = sendspin.quit().unwrap();
    assert_eq!(received.breaks(), [], "{name}");
    let frames = SampleWidth::B16.frames(&std::fs::read(&sound).unwrap());
    for played in &sounds {
        if played.playout.stops() > 0 {
            return Err(ClientCorrection::host_stall(format!("{name}: the card stopped")));
        }
    }
    let playout = SendspinPlayout::new(&received, &frames, epoch);
    let result = MixedResult::new(name, &sounds, &playout, (&events, epoch));
    result.print();
    assert_together(&result, case);
    Ok(result)
}

/// Every room plays at the same time, also while others come and go, and each announcement is in
/// every room.
fn assert_together(result: &MixedResult, MixedCase { name, limit, rounds, .. }: MixedCase) {
    for pair in &result.pairs {
        let program = pair.program;
        let mut at_times = vec![("undisturbed", pair.undisturbed())];
        at_times.extend((rounds > 0).then(|| ("while others change", pair.disturbed())));
        for (when, apart) in at_times {
            assert!(apart.len() > 100, "{name}, {when}: {} points", apart.len());
            let p50 = percentile(&apart, 0.5);
            assert!(p50 < limit, "{name}, {when}: {program:?} {p50:.0} us");
        }
    }
    for announcement in &result.announcements {
        assert_eq!(announcement.heard, [PULSES; 3], "{name}");
        let mut apart: Vec<f64> = announcement.apart.iter().map(|apart| apart * 1e6).collect();
        apart.sort_by(f64::total_cmp);
        let p50 = percentile(&apart, 0.5);
        assert!(p50 < limit, "{name}: an announcement, {p50:.0} us");
    }
}

/// A player of the current dialect, which is to be approved.
fn sendspin_process(
    mixed: &Mixed<'_>,
    port: u16,
    is_far: bool,
    (scratch, name, format): (&ScratchDir, &str, &str),
) -> SendspinProcess {
    let host = if is_far { DelayedLink::NEAR } else { "127.0.0.1" };
    let url = format!("ws://{host}:{port}/sendspin");
    mixed.net.run_inside(usize::from(is_far), || {
        let options = ["--url", &*url, "--unpaired", "--format", format];
        SendspinProcess::client(mixed.tools, Dialect::Current, scratch, name, &options).unwrap()
    })
}

fn client_id(player: &SendspinProcess) -> String {
    player.ready["client_id"].as_str().unwrap().to_owned()
}

fn u32_of(round: usize) -> u32 {
    u32::try_from(round).unwrap()
}

/// What the station has, as a Sendspin player lists it.
const STATION_FORMAT: &str = "pcm:48000:16:2";

/// From one round of changes to the next one.
const PERIOD: Duration = Duration::from_secs(25);
