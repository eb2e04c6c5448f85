//! One group, two protocols: a Sendspin player beside `aulos play` and a real snapclient.
//!
//! When the Sendspin player's sound is to be heard, the player says by its own clock filter
//! (aiosendspin's); what it plays then is in its decoded samples. When the others sound is measured
//! as always.

use std::path::Path;
use std::time::Duration;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{Dialect, Received, SendspinProcess, SendspinTools};
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::SampleWidth;
use aulos_blackbox::sync::delayed_link::{DelayModel, DelayedLink};
use aulos_blackbox::sync::playout::{Playout, percentile};
use aulos_blackbox::sync::position_tone::{ToneCapture, WINDOW};
use serde_json::{Value, json};

use super::JITTER_5;
use super::players::{Participant, Program, Session};
use crate::retry::{ClientCorrection, retry};
use crate::rpc::Rpc;
use crate::{turn, wait_for};

/// What a player writes to a file at a time sounds so much later, in seconds: the latency of the card
/// of snapclient's file player, which ours has too.
const FILE_DELAY: f64 = 0.010;

const PATIENCE: Duration = Duration::from_secs(20);

/// After the start: both kinds of players correct their first estimates of the clock.
const SETTLED: f64 = 6.0;

#[test]
fn sendspin_and_snapcast_players_are_in_sync() {
    let Some(compiler) = find_or_skip("cc") else { return };
    let Some(snapclient) = find_or_skip("snapclient") else { return };
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let mixed = Mixed { net: &net, compiler: &compiler, snapclient: &snapclient, tools: &tools };
    for (name, model, limit) in
        [("loopback", None, 1_000.0), ("0 to 5 ms of jitter", JITTER_5, 3_000.0)]
    {
        retry(name, || compare(&mixed, (name, model, limit)));
    }
}

struct Mixed<'a> {
    net: &'a NetNamespaces,
    compiler: &'a Path,
    snapclient: &'a Path,
    tools: &'a SendspinTools,
}

/// Fails if the machine did not run a player for half a second.
fn compare(
    mixed: &Mixed<'_>,
    (name, model, limit): (&str, Option<DelayModel>, f64),
) -> Result<(), ClientCorrection> {
    let port = free_port().unwrap();
    let config =
        format!("[sendspin]\nenabled = true\ndiscover = false\nlisten = \"0.0.0.0:{port}\"\n");
    let session = Session {
        net: mixed.net,
        compiler: mixed.compiler,
        snapclient: Some(mixed.snapclient),
        model,
        seconds: 16,
        config: &config,
    };
    let is_far = model.is_some();
    let player = |program| Participant { program, is_far, clock_ppm: 0 };
    let (sounds, (sendspin, scratch), epoch) = session
        .run_beside(&[player(Program::Ours), player(Program::Snapclient)], |server, _| {
            start_sendspin(mixed, server, port, is_far)
        });
    let sound = sendspin.sound.clone();
    let received = sendspin.quit().unwrap();
    assert_eq!(received.breaks(), [], "{name}");
    let frames = SampleWidth::B16.frames(&std::fs::read(&sound).unwrap());
    drop(scratch);
    for played in &sounds {
        if played.playout.stops() > 0 {
            return Err(ClientCorrection::host_stall(format!("{name}: the card stopped")));
        }
        let program = played.participant.program;
        let mut apart = differences(&played.playout, &received, &ToneCapture::new(&frames), epoch);
        apart.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| percentile(&apart, share));
        println!(
            "{name}: Sendspin beside {program:?}: {} points, p50 {p50:.0}, p95 {p95:.0}, p99 {p99:.0} us",
            apart.len()
        );
        assert!(apart.len() > 200, "{name}: {} points", apart.len());
        assert!(p50 < limit, "{name}: {program:?} {p50:.0} us");
    }
    Ok(())
}

/// Microseconds between the players, at each chunk of the Sendspin player, where both are settled.
#[expect(clippy::cast_precision_loss, reason = "days of microseconds")]
fn differences(playout: &Playout, received: &Received, tone: &ToneCapture, epoch: u64) -> Vec<f64> {
    let mut first_frame = 0;
    let mut apart = Vec::new();
    let epoch_us = epoch as f64 / 1e3;
    for chunk in &received.chunks {
        let window = first_frame / WINDOW;
        let is_whole = first_frame % WINDOW == 0;
        first_frame += usize::try_from(chunk.frames).unwrap();
        let position = tone.positions.get(window).copied().flatten().filter(|_| is_whole);
        // The last estimate before it sounds.
        let play = received.plays.iter().rev().find(|play| play.server_us == chunk.server_us);
        let (Some(middle), Some(play)) = (position, play) else { continue };
        let at = (play.play_us as f64 - epoch_us) / 1e6;
        let start = middle - (WINDOW as f64 - 1.0) / 2.0;
        let written_at = at - FILE_DELAY;
        if playout.is_settled(written_at, SETTLED)
            && let Some(ahead) = playout.ahead_of(start, written_at)
        {
            apart.push(ahead.abs() * 1e6);
        }
    }
    apart
}

/// A player of the current dialect that has been approved, and the folder of its files.
fn start_sendspin(
    mixed: &Mixed<'_>,
    server: &AulosServer,
    port: u16,
    is_far: bool,
) -> (SendspinProcess, ScratchDir) {
    let scratch = ScratchDir::new("sync-mixed").unwrap();
    let host = if is_far { DelayedLink::NEAR } else { "127.0.0.1" };
    let url = format!("ws://{host}:{port}/sendspin");
    let player = mixed.net.run_inside(usize::from(is_far), || {
        let options = ["--url", &*url, "--unpaired", "--format", "pcm:48000:16:2"];
        SendspinProcess::client(mixed.tools, Dialect::Current, &scratch, "room", &options).unwrap()
    });
    let id = player.ready["client_id"].as_str().unwrap().to_owned();
    mixed.net.run_inside(0, || {
        let mut rpc = Rpc::connect(server.control);
        wait_for("the player to wait", PATIENCE, || {
            let clients = rpc.call("Aulos.GetSendspinClients", &Value::Null)["clients"].clone();
            clients.as_array().unwrap().iter().any(|one| one["id"] == *id && one["waiting"] == true)
        });
        rpc.call("Aulos.ApproveSendspinClient", &json!({ "client": id }));
    });
    (player, scratch)
}
