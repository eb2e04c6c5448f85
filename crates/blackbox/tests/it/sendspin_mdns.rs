//! Sendspin by mDNS in both directions: a player finds the server and connects, and the server finds
//! a player and connects. aiosendspin and its python-zeroconf are at the other end of a pair of
//! virtual interfaces.

use std::time::Duration;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{Dialect, SendspinPeer, SendspinProcess, SendspinTools};
use serde_json::{Value, json};

use crate::mdns::{network, start_at};
use crate::rpc::Rpc;
use crate::{quiet_turn, wait_for};

/// As that of the tests of mDNS.
const PATIENCE: Duration = Duration::from_secs(60);

/// A player at the other end.
fn player(
    net: &NetNamespaces,
    tools: &SendspinTools,
    scratch: &ScratchDir,
    name: &str,
    options: &[&str],
) -> SendspinProcess {
    let options = [&["--unpaired", "--format", "flac:48000:16:2"], options].concat();
    net.run_inside(1, || {
        SendspinProcess::client(tools, Dialect::Current, scratch, name, &options).unwrap()
    })
}

#[test]
fn servers_and_players_find_each_other() {
    let _turn = quiet_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(net) = network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("sendspin-mdns").unwrap();
    let sets = ["sendspin.enabled=true", "sendspin.listen=10.77.0.1:8937", "mdns.name=Upstairs"];
    let server = start_at(&net, 0, &scratch, &sets);
    let mut rpc = net.run_inside(0, || Rpc::connect(server.control));
    let mut approve = |player: &mut SendspinProcess| {
        let id = player.ready["client_id"].clone();
        wait_for("the player to wait", PATIENCE, || {
            let clients = rpc.call("Aulos.GetSendspinClients", &Value::Null)["clients"].clone();
            clients.as_array().unwrap().iter().any(|one| one["id"] == id && one["waiting"] == true)
        });
        rpc.call("Aulos.ApproveSendspinClient", &json!({ "client": id }));
        player.wait_for_chunks(20, PATIENCE).unwrap();
        assert_eq!(player.received().breaks(), []);
    };

    // On a port of its own, as beside Music Assistant: only the announcement tells it.
    let mut kitchen = player(&net, &tools, &scratch, "kitchen", &["--discover", "10.77.0.2"]);
    let found = kitchen.wait_for("the server", PATIENCE, |event| event.named("discovered"));
    assert_eq!(found.unwrap()["url"], "ws://10.77.0.1:8937/sendspin");
    approve(&mut kitchen);

    let announced = ["--listen", "8928", "--announce", "10.77.0.2"];
    let mut hall = player(&net, &tools, &scratch, "hall", &announced);
    approve(&mut hall);
    kitchen.quit().unwrap();
    hall.quit().unwrap();
    server.stop().unwrap();
}
