//! A server that plays another Snapcast server: the samples behind both.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::capture_check::compare;
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::{Snapserver, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, programme};
use serde_json::{Value, json};

use crate::play::{LEAD_S, Player, TAIL_S, frames, playing, serve};
use crate::retry::{ClientCorrection, retry, retry_after_stall};
use crate::rpc::Rpc;
use crate::{timed_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// The buffer of the other server, that of the source, and a reserve: what a relay delays.
const RELAY_DELAY: Duration = Duration::from_millis(1_800);

/// A server whose station plays the stream of another one.
struct Relay {
    server: AulosServer,
    player: Player,
    bits: SampleWidth,
    _scratch: ScratchDir,
}

impl Relay {
    fn start(origin: u16, bits: SampleWidth) -> Self {
        let scratch = ScratchDir::new("snapcast-relay").unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:{}:2\"\n\
             sources = [\"snapcast://127.0.0.1:{origin}?id=relay&host_name=Relay\"]\n",
            bits.count(),
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let url = format!("tcp://{}", server.stream);
        let player = Player::start_at(&url, &scratch, "player", &[]);
        Self { server, player, bits, _scratch: scratch }
    }

    fn status(&self) -> Value {
        Rpc::connect(self.server.control).call("Aulos.GetStatus", &json!({}))
    }

    /// What differs between `sound` and what the player has played, with the counters.
    fn end(mut self, sound: &[Frame]) -> Result<(), String> {
        let status = self.status();
        let played = self.player.statuses().pop();
        let faults = compare(sound, &self.bits.frames(&self.player.stop()));
        self.server.stop().unwrap();
        if faults.is_empty() {
            return Ok(());
        }
        let (counters, station) = (&status["counters"], &status["stations"][0]["sources"]);
        Err(format!("{faults:?}: {counters} {station} {played:?}"))
    }
}

#[test]
fn what_another_aulos_plays_is_relayed_bit_by_bit() {
    retry_after_stall("snapcast_source::what_another_aulos_plays_is_relayed_bit_by_bit", || {
        let _turn = timed_turn();
        std::thread::scope(|scope| {
            for (codec, bits) in [("pcm", SampleWidth::B16), ("flac", SampleWidth::B24)] {
                scope.spawn(move || {
                    let sound = programme(frames(), bits, 11);
                    retry(&format!("a relay of {codec} {bits:?}"), || {
                        match through_aulos(codec, bits, &sound) {
                            // On a busy machine the relay may begin later than the sound.
                            Err(why) if why.starts_with("[Missing { at: 0,") => {
                                Err(ClientCorrection::host_stall(why))
                            }
                            outcome => {
                                assert_eq!(outcome, Ok(()), "{codec} {bits:?}");
                                Ok(())
                            }
                        }
                    });
                    println!("{codec} {bits:?}: {} frames bit-exact", sound.len());
                });
            }
        });
    });
}

fn through_aulos(codec: &str, bits: SampleWidth, sound: &[Frame]) -> Result<(), String> {
    let scratch = ScratchDir::new("snapcast-origin").unwrap();
    let origin = serve(&scratch, codec, bits, sound);
    let relay = Relay::start(origin.stream.port(), bits);
    let mut rpc = Rpc::connect(origin.control);
    wait_for("the relay", PATIENCE, || rpc.group_of("relay").is_some());
    let client = rpc.group_of("relay").unwrap()["clients"][0].clone();
    assert_eq!(client["host"]["name"], "Relay", "{client}");
    assert_eq!(client["snapclient"]["name"], "aulos", "{client}");
    // The programme of a relay does not depend on the volume of a loudspeaker.
    let volume = json!({ "id": "relay", "volume": { "muted": true, "percent": 9 } });
    rpc.call("Client.SetVolume", &volume);
    let seconds = Duration::from_secs(LEAD_S + TAIL_S);
    std::thread::sleep(seconds + playing() + RELAY_DELAY);
    let outcome = relay.end(sound);
    origin.stop().unwrap();
    outcome
}

#[test]
fn what_snapserver_plays_is_relayed_bit_by_bit() {
    retry_after_stall("snapcast_source::what_snapserver_plays_is_relayed_bit_by_bit", || {
        let Some(program) = find_or_skip("snapserver") else { return };
        let _turn = timed_turn();
        let sound = programme(frames(), SampleWidth::B16, 13);
        // Snapserver shifts all timestamps when its reader is late, as on a busy machine.
        retry("a relay of snapserver", || {
            through_snapserver(&program, &sound).map_err(ClientCorrection::host_stall)
        });
    });
}

fn through_snapserver(program: &Path, sound: &[Frame]) -> Result<(), String> {
    let (scratch, bits) = (ScratchDir::new("snapcast-snapserver").unwrap(), SampleWidth::B16);
    let fifo = scratch.fifo("in").unwrap();
    let origin = Snapserver::start(program, &scratch, &fifo, "flac", "48000:16:2").unwrap();
    let relay = Relay::start(origin.port, bits);
    let silence = |s: u64| vec![[0, 0]; RATE * usize::try_from(s).unwrap()];
    let tail = silence(TAIL_S + 1);
    let bytes = bits.bytes(&[&silence(LEAD_S), sound, &tail].concat());
    let per_second = bits.bytes(&silence(1)).len();
    let pipe = OpenOptions::new().write(true).open(fifo).unwrap();
    PacedWriter::steady(pipe, per_second).write(&bytes).unwrap();
    relay.end(sound)
}

/// Without a server at the address, the status says why.
#[test]
fn a_server_that_cannot_be_played_is_said_to_be_so() {
    let _turn = crate::shared_turn();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let relay = Relay::start(nobody, SampleWidth::B16);
    let reason = |relay: &Relay| relay.status()["stations"][0]["sources"][0]["reason"].clone();
    let expected = format!("127.0.0.1:{nobody}: connection refused");
    wait_for("the reason", PATIENCE, || reason(&relay) == expected);
    relay.server.stop().unwrap();
}
