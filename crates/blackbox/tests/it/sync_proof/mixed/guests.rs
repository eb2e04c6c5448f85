//! What happens beside the three players that are measured: others come and go, and announcements
//! are made.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use aulos_blackbox::peer::{Process, before_others};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::SendspinProcess;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use super::super::players::now;
use super::{Mixed, PATIENCE, STATION_FORMAT, client_id, sendspin_process};
use crate::rpc::Rpc;
use crate::sendspin::approve;
use crate::wait_for;

/// The group of the players that are measured, and how it is controlled.
pub(super) struct MixedGroup<'a> {
    mixed: &'a Mixed<'a>,
    rpc: Rpc,
    /// Ports of the server for Snapcast and for Sendspin.
    ports: [u16; 2],
    id: Value,
    members: Vec<String>,
    scratch: &'a ScratchDir,
}

/// When something happened, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// From the first join to the last kill, for each round.
    pub(super) changes: Vec<[u64; 2]>,
    /// The calls of announcements.
    pub(super) announced: Vec<u64>,
}

/// Between two changes, so that each has its own time in the result.
const PAUSE: Duration = Duration::from_millis(700);

impl<'a> MixedGroup<'a> {
    /// Puts the players with these ids into one group.
    pub(super) fn new(
        mixed: &'a Mixed<'a>,
        (server, sendspin_port): (&AulosServer, u16),
        members: Vec<String>,
        scratch: &'a ScratchDir,
    ) -> Self {
        let (control, stream) = (server.control, server.stream.port());
        let mut rpc = mixed.net.run_inside(0, || Rpc::connect(control));
        wait_for("the players", PATIENCE, || members.iter().all(|id| rpc.group_of(id).is_some()));
        let id = rpc.group_of(&members[0]).unwrap()["id"].clone();
        let mut group = Self { mixed, rpc, ports: [stream, sendspin_port], id, members, scratch };
        group.set_members(&[]);
        group
    }

    /// Two guests join, one of each protocol, leave the group, change the station and are killed.
    pub(super) fn change(&mut self, round: usize, events: &mut Events) {
        let begin = now();
        let snapclient = self.start_snapclient(round);
        let sendspin = self.start_sendspin(round);
        let ids = [format!("guest{round}"), client_id(&sendspin)];
        wait_for("the guests", PATIENCE, || {
            ids.iter().all(|id| self.rpc.group_of(id).is_some_and(|group| is_playing(&group, id)))
        });
        self.set_members(&ids);
        sleep(PAUSE);
        for id in &ids {
            self.set_members(&[]);
            let own = self.rpc.group_of(id).unwrap()["id"].clone();
            self.rpc.call("Group.SetStream", &json!({ "id": own, "stream_id": "other" }));
        }
        sleep(PAUSE);
        self.set_members(&ids);
        sleep(PAUSE);
        drop((snapclient, sendspin));
        sleep(PAUSE);
        events.changes.push([begin, now()]);
    }

    /// Announces to the station and then to the group, and waits until both have been heard.
    pub(super) fn announce(&mut self, file: &Path, events: &mut Events) {
        let group = self.id.clone();
        for (target, id) in [("station", json!("default")), ("group", group)] {
            let uri = format!("file://{}", file.display());
            events.announced.push(now());
            let params = json!({ target: id, "uri": uri, "duck_db": -60, "normalize": false });
            let announcement = self.rpc.call("Aulos.Announce", &params)["id"].clone();
            let end = loop {
                let event = self.rpc.hear("Aulos.OnAnnouncement");
                if event["id"] == announcement && event["state"] == "ended" {
                    break event;
                }
            };
            assert_eq!(end["cause"], "played", "{end}");
            // The programme returns within a second.
            sleep(Duration::from_millis(1_200));
        }
    }

    /// The players that are measured, and these.
    fn set_members(&mut self, more: &[String]) {
        let clients: Vec<&String> = self.members.iter().chain(more).collect();
        self.rpc.call("Group.SetClients", &json!({ "id": self.id, "clients": clients }));
    }

    fn start_snapclient(&self, round: usize) -> Process {
        let file = |ending: &str| self.scratch.join(format!("guest{round}.{ending}"));
        let mut command = before_others(self.mixed.snapclient);
        command.args(["-h", "127.0.0.1", "-p", &self.ports[0].to_string()]);
        command.args(["--hostID", &format!("guest{round}"), "--logsink", "stderr"]);
        command.arg("--player").arg(format!("file:filename={}", file("pcm").display()));
        self.mixed
            .net
            .run_inside(0, || Process::start(&mut command, &file("out"), &file("err")).unwrap())
    }

    /// An approved Sendspin player beside the server.
    fn start_sendspin(&mut self, round: usize) -> SendspinProcess {
        let name = format!("visitor{round}");
        let player = sendspin_process(
            self.mixed,
            self.ports[1],
            false,
            (self.scratch, &name, STATION_FORMAT),
        );
        approve(&mut self.rpc, &client_id(&player));
        player
    }
}

fn is_playing(group: &Value, id: &str) -> bool {
    let clients = group["clients"].as_array().unwrap();
    clients.iter().any(|client| client["id"] == *id && client["connected"] == true)
}
