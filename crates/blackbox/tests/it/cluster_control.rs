//! The servers of a cluster, seen and controlled from one of them, through a real NATS server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::nats::{NatsServer, RawNatsClient};
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::page_operation::{FINDINGS, axe_or_skip};
use crate::play::Player;
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

fn nats_server() -> Option<PathBuf> {
    find_or_skip("nats-server")
}

/// A server of the site `test`.
struct Node {
    server: AulosServer,
    scratch: ScratchDir,
}

impl Node {
    /// With more keys of `cluster`, and more tables behind it.
    fn start(port: u16, name: &str, more: &str) -> Self {
        let scratch = ScratchDir::new("cluster-node").unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n\
             [[station]]\nname = \"of {name}\"\nsources = [\"tone://\"]\n\
             [cluster]\nurl = \"nats://127.0.0.1:{port}\"\nnode = \"{name}\"\nsite = \"test\"\n{more}\n"
        );
        Self { server: AulosServer::start(&scratch, &config).unwrap(), scratch }
    }

    fn rpc(&self) -> Rpc {
        Rpc::connect(self.server.control)
    }

    fn cluster(&self) -> Value {
        self.rpc().call("Aulos.GetClusterStatus", &json!({}))
    }

    /// What it says of a node; null if it does not know it.
    fn node(&self, name: &str) -> Value {
        find(&self.cluster()["nodes"], "name", name)
    }

    fn wait_for_node(&self, name: &str, is_reachable: bool) {
        wait_for(name, PATIENCE, || self.node(name)["reachable"] == is_reachable);
    }

    fn counter(&self, name: &str) -> u64 {
        counter(self.server.control, name)
    }
}

fn counter(control: SocketAddr, name: &str) -> u64 {
    let status = Rpc::connect(control).call("Aulos.GetStatus", &json!({}));
    status["counters"][name].as_u64().unwrap()
}

/// The object of a list with this member.
fn find(list: &Value, key: &str, value: &str) -> Value {
    let mut all = list.as_array().into_iter().flatten();
    all.find(|one| one[key] == value).cloned().unwrap_or_default()
}

/// A client of a node in its list of nodes, seen from another one.
fn client_of(node: &Value, id: &str) -> Value {
    let groups = node["groups"].as_array().into_iter().flatten();
    groups.map(|group| find(&group["clients"], "id", id)).find(Value::is_object).unwrap_or_default()
}

#[test]
fn each_node_shows_all_of_them_and_those_that_have_failed() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let mut nats = NatsServer::start(&program).unwrap();
    let [a, b, c] = ["one", "two", "three"].map(|name| Node::start(nats.port, name, ""));
    let url = format!("tcp://{}", b.server.stream);
    let player = Player::start_at(&url, &b.scratch, "kitchen", &[]);
    for name in ["one", "two", "three"] {
        a.wait_for_node(name, true);
    }
    wait_for("the client", PATIENCE, || client_of(&a.node("two"), "kitchen")["connected"] == true);
    let status = a.cluster();
    assert_eq!(
        (&status["site"], &status["node"], &status["connected"]),
        (&json!("test"), &json!("one"), &json!(true))
    );
    let names: Vec<_> = status["nodes"].as_array().unwrap().iter().map(|n| &n["name"]).collect();
    assert_eq!(names, ["one", "three", "two"]);
    let two = find(&status["nodes"], "name", "two");
    assert_eq!(find(&two["stations"], "name", "of two")["state"], "playing");
    assert_eq!(
        (&two["client_count"], &two["error"], &two["is_self"]),
        (&json!(1), &json!(null), &json!(false))
    );
    assert_eq!(find(&status["nodes"], "name", "one")["is_self"], true);
    // What Snapcast's controllers see is the one server.
    assert_eq!(a.rpc().status()["groups"].as_array().unwrap().len(), 0);
    // As `kill -9` does.
    drop(c.server);
    a.wait_for_node("three", false);
    assert_eq!(find(&a.node("three")["stations"], "name", "of three")["state"], "playing");
    nats.kill();
    wait_for("the loss", PATIENCE, || a.cluster()["connected"] == false);
    assert_eq!(a.node("one")["reachable"], true);
    assert_eq!(a.node("two")["reachable"], false);
    nats.restart().unwrap();
    a.wait_for_node("two", true);
    drop(player);
    for node in [a, b] {
        node.server.stop().unwrap();
    }
}

/// A server without `cluster` says what to do.
#[test]
fn a_server_alone_has_no_nodes() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("cluster-alone").unwrap();
    let config = "[[station]]\nname = \"a\"\nsources = [\"tone://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let answer = Rpc::connect(server.control).answer("Aulos.GetClusterStatus", &json!({}));
    assert!(answer["error"]["data"].as_str().unwrap().contains("add the table `cluster`"));
    server.stop().unwrap();
}

/// What is no answer of a node is dropped and counted; what a node says wrongly is its error.
#[test]
fn forged_answers_are_counted_or_the_error_of_a_node() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    let node = Node::start(nats.port, "one", "");
    wait_for("the connection", PATIENCE, || node.cluster()["connected"] == true);
    let port = nats.port;
    let mut round = 0;
    // Answers each request with everything that is wrong.
    let forge = std::thread::spawn(move || {
        let mut client = RawNatsClient::connect(port).unwrap();
        while let Ok((reply, request)) = client.receive_request("aulos.v1.test.control.status") {
            round += 1;
            let number = &request[8..12];
            for (name, document) in [
                ("bad", &b"<img src=x onerror=alert(1)>"[..]),
                ("deep", &[b'['; 50_000]),
                ("<b>", b"{\"version\":1}"),
                ("one", b"{}"),
            ] {
                client.publish(&reply, &answer(number, name, document)).unwrap();
            }
            client.publish(&reply, &answer(&[0; 4], "late", b"{}")).unwrap();
            let mut damaged = answer(number, "damaged", b"{}");
            damaged.push(0);
            client.publish(&reply, &damaged).unwrap();
            client.publish(&reply, b"text").unwrap();
            client.publish(&reply, &vec![0; 900_000]).unwrap();
            client.flush().unwrap();
            if round == 2 {
                return;
            }
        }
    });
    for name in ["bad", "deep", "<b>"] {
        wait_for(name, PATIENCE, || node.node(name)["error"] == "its status cannot be read");
    }
    let own = node.node("one")["error"].clone();
    assert!(own.as_str().unwrap().contains("several servers have this name"), "{own}");
    wait_for("the second round", PATIENCE, || {
        node.cluster();
        node.counter("nats_answers_late") >= 2
    });
    forge.join().unwrap();
    for name in ["malformed", "too_large", "checksum", "late"] {
        assert_eq!(node.counter(&format!("nats_answers_{name}")), 2, "{name}");
    }
    node.server.stop().unwrap();
}

/// The answer of a node with its checksum.
fn answer(round: &[u8], node: &str, document: &[u8]) -> Vec<u8> {
    let length = u32::try_from(node.len()).unwrap().to_le_bytes();
    let body = [round, &[7; 8], &length, node.as_bytes(), document].concat();
    let checksum = !body.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    });
    [b"AULn\x01\0\0\0", &checksum.to_le_bytes()[..], &body].concat()
}

const SHARED: &str = "share_settings = true";

/// The settings of a client and the station of its group at a node; null if it is not there.
fn settings(node: &Node, id: &str) -> Value {
    let Some(group) = node.rpc().group_of(id) else { return Value::Null };
    let config = find(&group["clients"], "id", id)["config"].clone();
    json!({
        "name": config["name"],
        "percent": config["volume"]["percent"],
        "latency": config["latency"],
        "station": group["stream_id"],
    })
}

/// A client whose server has died finds its settings at the next one.
#[test]
fn a_client_that_moves_to_another_node_keeps_its_settings() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    // Both have the station `jazz`.
    let more = format!("{SHARED}\n[[station]]\nname = \"jazz\"\nsources = [\"tone://\"]");
    let [a, b] = ["one", "two"].map(|name| Node::start(nats.port, name, &more));
    let player =
        Player::start_at(&format!("tcp://{}", a.server.stream), &a.scratch, "kitchen", &[]);
    let mut rpc = a.rpc();
    wait_for("the client", PATIENCE, || rpc.group_of("kitchen").is_some());
    let group = rpc.group_of("kitchen").unwrap()["id"].clone();
    for percent in 1..=30 {
        let volume = json!({ "percent": percent });
        rpc.call("Client.SetVolume", &json!({ "id": "kitchen", "volume": volume }));
    }
    rpc.call("Client.SetName", &json!({ "id": "kitchen", "name": "Kitchen" }));
    rpc.call("Client.SetLatency", &json!({ "id": "kitchen", "latency": 20 }));
    rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": "jazz" }));
    wait_for("the change is written", PATIENCE, || {
        a.counter("nats_settings_written") >= 2 && a.counter("nats_settings_waiting") == 0
    });
    // One client and one group; the steps of the slider are no revisions of their own.
    assert!(a.counter("nats_settings_written") <= 4, "{}", a.counter("nats_settings_written"));
    wait_for("the other node", PATIENCE, || b.counter("nats_settings_applied") >= 2);
    assert_eq!(settings(&b, "kitchen"), Value::Null, "it has never been there");
    let expected = json!({ "name": "Kitchen", "percent": 30, "latency": 20, "station": "jazz" });
    assert_eq!(settings(&a, "kitchen"), expected);
    drop(player);
    // As `kill -9` does.
    drop(a.server);
    let player =
        Player::start_at(&format!("tcp://{}", b.server.stream), &b.scratch, "kitchen", &[]);
    wait_for("the client", PATIENCE, || settings(&b, "kitchen") == expected);
    assert_eq!(b.rpc().group_of("kitchen").unwrap()["id"], group);
    drop(player);
    b.server.stop().unwrap();
}

/// Both nodes know the client. A change without `JetStream` waits; those of two nodes are merged.
#[test]
fn changes_without_jetstream_wait_and_are_merged() {
    let Some(program) = nats_server() else { return };
    let _turn = shared_turn();
    let mut nats = NatsServer::start(&program).unwrap();
    let [a, b] = ["one", "two"].map(|name| Node::start(nats.port, name, SHARED));
    for node in [&a, &b] {
        let url = format!("tcp://{}", node.server.stream);
        let player = Player::start_at(&url, &node.scratch, "kitchen", &[]);
        wait_for("the client", PATIENCE, || node.rpc().group_of("kitchen").is_some());
        drop(player);
    }
    let volume = |percent: u8| json!({ "id": "kitchen", "volume": { "percent": percent } });
    a.rpc().call("Client.SetVolume", &volume(50));
    wait_for("the other node", PATIENCE, || settings(&b, "kitchen")["percent"] == 50);
    nats.kill();
    a.rpc().call("Client.SetVolume", &volume(31));
    b.rpc().call("Client.SetName", &json!({ "id": "kitchen", "name": "Kitchen" }));
    wait_for("the changes wait", PATIENCE, || {
        a.counter("nats_settings_waiting") == 1 && b.counter("nats_settings_waiting") == 1
    });
    assert_eq!(settings(&b, "kitchen")["percent"], 50);
    nats.restart().unwrap();
    for node in [&a, &b] {
        wait_for("both changes", PATIENCE, || {
            let found = settings(node, "kitchen");
            found["percent"] == 31 && found["name"] == "Kitchen"
        });
    }
    // What is no record is dropped and counted, and the next change replaces it.
    let mut raw = RawNatsClient::connect(nats.port).unwrap();
    raw.publish("$KV.aulos_settings.test.client.kitchen", b"{\"volume\":1000}").unwrap();
    raw.flush().unwrap();
    wait_for("the malformed value", PATIENCE, || b.counter("nats_settings_malformed") == 1);
    a.rpc().call("Client.SetVolume", &volume(32));
    wait_for("the next change", PATIENCE, || settings(&b, "kitchen")["percent"] == 32);
    assert_eq!(settings(&b, "kitchen")["name"], "Kitchen");
    for node in [a, b] {
        node.server.stop().unwrap();
    }
}

/// The view System lists all nodes, on a phone and on a wall, and what a node says is text.
#[test]
fn the_page_shows_all_nodes() {
    let Some(program) = nats_server() else { return };
    let Some(chromium) = find_or_skip("chromium") else { return };
    let axe = axe_or_skip();
    let _turn = shared_turn();
    let nats = NatsServer::start(&program).unwrap();
    let a = Node::start(nats.port, "one", "[access]\nanonymous = \"listen\"");
    let b = Node::start(nats.port, "<b>two", "");
    let url = format!("tcp://{}", b.server.stream);
    let player = Player::start_at(&url, &b.scratch, "kitchen", &[]);
    a.wait_for_node("<b>two", true);
    let mut browser = Browser::open(&chromium, &a.scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/system", a.server.http)).unwrap();
    for text in ["Cluster test", "2 servers", "<b>two", "of one", "of <b>two", "1 connected client"]
    {
        says(&mut browser, text);
    }
    let two = "document.querySelectorAll('.cluster .card').length === 2 &&
        document.querySelector('.cluster b') === null";
    assert_eq!(browser.run(two).unwrap(), true);
    browser.run("document.querySelector('.cluster details').open = true; 0").unwrap();
    says(&mut browser, "100 %");
    if let Some(axe) = &axe {
        browser.run(&format!("{axe}; 0")).unwrap();
        assert_eq!(browser.run(FINDINGS).unwrap(), json!([]));
    }
    for width in [360, 1_280, 3_840] {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &size).unwrap();
        let fits = "document.documentElement.scrollWidth <= innerWidth";
        wait_for("the width", PATIENCE, || browser.run(fits).unwrap() == true);
    }
    // As `kill -9` does.
    drop(b.server);
    says(&mut browser, "no answer for");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop((browser, player));
    a.server.stop().unwrap();
}

/// Waits until the page shows a text.
fn says(browser: &mut Browser, text: &str) {
    let shows = format!("(document.body?.innerText ?? '').includes({})", json!(text));
    wait_for(text, PATIENCE, || browser.run(&shows).unwrap() == true);
}
