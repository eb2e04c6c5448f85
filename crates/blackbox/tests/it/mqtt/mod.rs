//! The built server with a real mosquitto.

mod broker;

use std::process::Command;
use std::time::Duration;

use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{hear, shared_turn, text, wait_for};
use broker::{Mosquitto, Subscriber, certificate};

const PATIENCE: Duration = Duration::from_secs(20);

const ROOT: &str = "aulos/box";

/// A station with everything that has entities, and the broker at this URL.
fn config(scratch: &ScratchDir, url: &str, more: &str) -> String {
    let folder = scratch.join("recordings");
    format!(
        "[mqtt]\nurl = \"{url}\"\nname = \"box\"\n{more}\n\
         [[station]]\nname = \"Große Halle\"\ncodec = \"pcm\"\n\
         sources = [{{ uri = \"tone://?dbfs=-20\", name = \"studio\" }}, \
         {{ uri = \"demo://\", name = \"loop\" }}]\nnormalize = true\n\
         equalizer = [{{ type = \"peaking\", hz = 1000, gain_db = 3 }}]\n\
         record = [{{ dir = \"{}\", name = \"tape\", start = false }}]\n\
         [[station]]\nname = \"attic\"\ncodec = \"pcm\"\nsources = [\"demo://\"]\n",
        text(&folder)
    )
}

fn start(scratch: &ScratchDir, broker: &Mosquitto, more: &str) -> AulosServer {
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    AulosServer::start(scratch, &config(scratch, &url, more)).unwrap()
}

fn counter(rpc: &mut Rpc, name: &str) -> u64 {
    let status = rpc.call("Aulos.GetStatus", &Value::Null);
    status["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"))
}

fn wait_connected(rpc: &mut Rpc) {
    wait_for("a connection to the broker", PATIENCE, || counter(rpc, "mqtt_connected") == 1);
}

/// What a subscriber knows of a device.
struct Device<'a> {
    subscriber: &'a Subscriber,
    broker: &'a Mosquitto,
    id: String,
    document: Value,
}

impl<'a> Device<'a> {
    /// Waits for the device whose name begins so; `meanwhile` is called again and again.
    fn wait(
        subscriber: &'a Subscriber,
        broker: &'a Mosquitto,
        name: &str,
        mut meanwhile: impl FnMut(),
    ) -> Self {
        let mut found = None;
        wait_for(name, PATIENCE, || {
            meanwhile();
            found = subscriber.last().into_iter().find_map(|(topic, payload)| {
                let id = topic.strip_prefix("homeassistant/device/")?.strip_suffix("/config")?;
                let document: Value = serde_json::from_str(&payload).ok()?;
                let is_it = document["dev"]["name"].as_str()?.starts_with(name);
                is_it.then(|| (id.to_owned(), document))
            });
            found.is_some()
        });
        let (id, document) = found.unwrap();
        Self { subscriber, broker, id, document }
    }

    fn components(&self) -> impl Iterator<Item = &Value> {
        self.document["cmps"].as_object().unwrap().values()
    }

    fn topic(&self, key: &str) -> &str {
        self.document["cmps"][key]["stat_t"].as_str().unwrap()
    }

    fn wait_state(&self, key: &str, state: &str) {
        self.subscriber.wait(self.topic(key), state);
    }

    /// Sends a command; its effect comes back as a state.
    fn command(&self, key: &str, payload: &str, state: &str) {
        self.broker.publish(self.document["cmps"][key]["cmd_t"].as_str().unwrap(), &[payload]);
        self.wait_state(key, state);
    }
}

/// Checks that every state that is described is there for a subscriber that comes later.
fn check_retained(later: &Subscriber, devices: &[Device<'_>]) {
    let components: Vec<&Value> = devices.iter().flat_map(Device::components).collect();
    assert!(components.len() > 30, "{}", components.len());
    for component in components.iter().filter(|component| component["p"] != "event") {
        let Some(topic) = component["stat_t"].as_str() else { continue };
        wait_for(topic, PATIENCE, || {
            let is_it = |(kept, name, payload): &(bool, String, String)| {
                *kept && name == topic && !payload.is_empty()
            };
            later.messages().iter().any(is_it)
        });
    }
}

#[test]
fn every_entity_appears_and_changes_and_goes_with_the_server() {
    let _turn = shared_turn();
    let Some(broker) = Mosquitto::start() else { return };
    let (scratch, subscriber) = (ScratchDir::new("mqtt").unwrap(), broker.subscribe());
    let server = start(&scratch, &broker, "");
    let mut rpc = Rpc::connect(server.control);
    let mut client = ListenerClient::connect(server.stream, 1).unwrap();
    subscriber.wait(&format!("{ROOT}/status"), "online");
    // The name of the server is followed by that of the machine.
    let devices = ["aulos ", "Große Halle", "attic", "load1"].map(|name| {
        Device::wait(&subscriber, &broker, name, || {
            hear(&mut client);
        })
    });
    let later = broker.subscribe();
    check_retained(&later, &devices);
    let [_, hall, _, room] = &devices;
    assert!(hall.id.starts_with("aulos_box_station_Gro_e_Halle_"), "{}", hall.id);
    wait_for("a loudness", PATIENCE, || {
        let last = subscriber.last();
        let loudness = last.get(hall.topic("momentary")).map_or("", String::as_str);
        serde_json::from_str::<Value>(loudness).is_ok_and(|it| it["momentary"].is_number())
    });

    hall.command("programme", "loop", "loop");
    hall.wait_state("source", "loop");
    for key in ["recording", "normalize", "equalizer"] {
        let first = if key == "recording" { ["ON", "OFF"] } else { ["OFF", "ON"] };
        first.iter().for_each(|state| hall.command(key, state, state));
    }
    let equalizer = rpc.call("Aulos.GetEqualizer", &json!({ "station": "große" }));
    assert_eq!(equalizer["equalizer"][0]["gain_db"], 3.0, "{equalizer}");
    let events =
        subscriber.messages().into_iter().filter(|(_, name, _)| name == hall.topic("event"));
    let events: Vec<String> = events.map(|(_, _, payload)| payload).collect();
    for event in ["source_changed", "record_began", "record_ended"] {
        assert!(events.iter().any(|payload| payload.contains(event)), "{event}: {events:?}");
    }
    assert!(!later.messages().iter().any(|(kept, name, _)| *kept && name.ends_with("/event")));

    room.command("volume", "37", "37");
    room.command("stream", "attic", "attic");
    room.wait_state("connected", "ON");
    drop(client);
    room.wait_state("connected", "OFF");
    let commands = counter(&mut rpc, "mqtt_commands");
    assert_eq!(commands, 1 + 6 + 2);

    // A station that a reload removes is removed there too.
    let whole = config(&scratch, &format!("mqtt://127.0.0.1:{}", broker.port), "");
    let (first, _) = whole.split_once("[[station]]\nname = \"attic\"").unwrap();
    std::fs::write(scratch.join("aulos.toml"), first).unwrap();
    rpc.call("Aulos.Reload", &Value::Null);
    subscriber.wait("homeassistant/device/aulos_box_station_attic/config", "");

    let pid = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    subscriber.wait(&format!("{ROOT}/status"), "offline");
}

/// Whether the broker retains a topic that contains this.
fn has_retained(broker: &Mosquitto, part: &str) -> bool {
    let later = broker.subscribe();
    // What is retained comes before everything that is published after the subscription.
    wait_for("what is retained", PATIENCE, || {
        broker.publish("test/mark", &["x"]);
        later.last().contains_key("test/mark")
    });
    later.messages().iter().any(|(kept, topic, _)| *kept && topic.contains(part))
}

#[test]
fn a_station_that_is_removed_while_the_server_is_down_is_removed_at_the_broker() {
    let _turn = shared_turn();
    let Some(broker) = Mosquitto::start() else { return };
    let (scratch, subscriber) = (ScratchDir::new("mqtt").unwrap(), broker.subscribe());
    let server = start(&scratch, &broker, "");
    let attic = "homeassistant/device/aulos_box_station_attic/config";
    for (entity, state) in [("silence", "OFF"), ("programme", "auto")] {
        subscriber.wait(&format!("{ROOT}/station/attic/{entity}"), state);
    }
    assert!(subscriber.last().contains_key(attic));
    drop(server);
    subscriber.wait(&format!("{ROOT}/status"), "offline");
    assert!(has_retained(&broker, "attic"));

    let whole = config(&scratch, &format!("mqtt://127.0.0.1:{}", broker.port), "");
    let (first, _) = whole.split_once("[[station]]\nname = \"attic\"").unwrap();
    let server = AulosServer::start(&scratch, first).unwrap();
    subscriber.wait(attic, "");
    for entity in ["silence", "source", "loudness", "programme"] {
        subscriber.wait(&format!("{ROOT}/station/attic/{entity}"), "");
    }
    assert!(!has_retained(&broker, "attic"));
    // Those of the other station stay.
    assert!(has_retained(&broker, "station/Gro_e_Halle_"));
    assert_eq!(counter(&mut Rpc::connect(server.control), "mqtt_refused"), 0);
    server.stop().unwrap();
}

#[test]
fn a_broker_that_restarts_gets_everything_again_and_one_that_floods_gets_a_counter() {
    let _turn = shared_turn();
    let Some(mut broker) = Mosquitto::start() else { return };
    let scratch = ScratchDir::new("mqtt").unwrap();
    let server = start(&scratch, &broker, "clients = false");
    let mut rpc = Rpc::connect(server.control);
    wait_connected(&mut rpc);
    broker.kill();
    wait_for("the end of the connection", PATIENCE, || counter(&mut rpc, "mqtt_connected") == 0);
    assert!(counter(&mut rpc, "mqtt_disconnects") >= 1);
    broker.restart();
    let subscriber = broker.subscribe();
    subscriber.wait(&format!("{ROOT}/status"), "online");
    subscriber.wait(&format!("{ROOT}/station/attic/programme"), "auto");

    // Home Assistant starts: descriptions come again within ten seconds.
    let document = "homeassistant/device/aulos_box_station_attic/config";
    let count = || subscriber.messages().iter().filter(|(_, topic, _)| topic == document).count();
    let before = count();
    broker.publish("homeassistant/status", &["online"]);
    wait_for("descriptions after the start", PATIENCE, || count() > before);

    let set = format!("{ROOT}/station/attic/programme/set");
    broker.publish(&set, &["loud"; 5_000]);
    wait_for("refusals", PATIENCE, || counter(&mut rpc, "mqtt_refused") >= 5_000);
    broker.publish(&set, &["auto"; 2_000]);
    wait_for("more refusals", PATIENCE, || {
        counter(&mut rpc, "mqtt_refused") + counter(&mut rpc, "mqtt_commands") >= 7_000
    });
    assert!(counter(&mut rpc, "mqtt_commands") < 500);
    assert_eq!(counter(&mut rpc, "mqtt_connected"), 1);
    broker.publish(&set, &["x".repeat(20_000).as_str()]);
    wait_for("the refusal of a long message", PATIENCE, || {
        server.printed().unwrap().contains("the broker has sent a message of more than 16384 bytes")
    });
    server.stop().unwrap();
}

#[test]
fn users_passwords_and_certificates_are_those_of_the_broker() {
    let _turn = shared_turn();
    let Some(passwords) = find_or_skip("mosquitto_passwd") else { return };
    let mut files = None;
    let broker = Mosquitto::start_with(|folder| {
        let users = folder.join("users");
        let made = Command::new(&passwords)
            .args(["-b", "-c", text(&users), "aulos", "hush-hush"])
            .status()
            .unwrap();
        assert!(made.success());
        files = certificate(folder);
        let Some([cert, key]) = &files else { return (String::new(), Vec::new()) };
        let lines = format!(
            "allow_anonymous false\npassword_file {}\ncertfile {}\nkeyfile {}\n",
            text(&users),
            text(cert),
            text(key)
        );
        let login = ["-u", "aulos", "-P", "hush-hush", "--cafile", text(cert)];
        (lines, login.map(str::to_owned).to_vec())
    });
    let (Some(broker), Some([cert, _])) = (broker, files) else { return };
    let scratch = ScratchDir::new("mqtt").unwrap();
    let secret = scratch.join("password");
    let ca = format!("ca = \"{}\"\n", text(&cert));
    let login = format!("user = \"aulos\"\npassword_file = \"{}\"\n", text(&secret));
    let (port, host) = (broker.port, "127.0.0.1");
    std::fs::write(&secret, "hush-hush\n").unwrap();
    let file = scratch.join("aulos.toml");
    let first = config(&scratch, &format!("mqtts://aulos:wrong-one@{host}:{port}"), &ca);
    let server = AulosServer::start(&scratch, &first).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let printed = || server.printed().unwrap();
    wait_for("the refusal of a login", PATIENCE, || {
        printed().contains("the broker refuses this user; check user and password")
    });
    for (url, keys, why) in [
        ("mqtts", &login, "TLS: invalid peer certificate: UnknownIssuer"),
        ("mqtt", &login, "closed the connection at the login; a port with TLS needs mqtts://"),
    ] {
        let count = || printed().matches(why).count();
        let before = count();
        std::fs::write(&file, config(&scratch, &format!("{url}://{host}:{port}"), keys)).unwrap();
        let report = rpc.call("Aulos.Reload", &Value::Null);
        assert_eq!(report["settings"], json!(["mqtt"]), "{report}");
        wait_for(why, PATIENCE, || count() > before);
        assert_eq!(counter(&mut rpc, "mqtt_connected"), 0);
    }
    let good = format!("mqtts://{host}:{port}");
    std::fs::write(&file, config(&scratch, &good, &(ca + &login))).unwrap();
    rpc.call("Aulos.Reload", &Value::Null);
    wait_connected(&mut rpc);
    broker.subscribe().wait(&format!("{ROOT}/status"), "online");
    let shown = rpc.call("Aulos.GetStatus", &Value::Null).to_string();
    for text in [printed(), shown] {
        assert!(!text.contains("hush-hush") && !text.contains("wrong-one"), "{text}");
    }
    server.stop().unwrap();
}
