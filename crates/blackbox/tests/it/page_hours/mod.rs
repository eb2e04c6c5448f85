//! A page that is open for hours: its memory, nodes and listeners do not grow.
//!
//! The page's own modules run in a real browser, in the virtual time of `virtual_time.js`. Compared
//! are values at the same place of different hours, each after a garbage collection.

use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::http;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{long_shared_turn, soak, wait_for};

const VIRTUAL_TIME: &str = include_str!("virtual_time.js");

/// Compared are the first and the last.
fn hours() -> usize {
    if soak() { 8 } else { 3 }
}

/// Virtual seconds of one call, so that a busy machine answers in time.
const STEP_S: usize = 60;

/// The views: their address, and a text that shows that they are there.
const VIEWS: [(&str, &str); 4] = [
    ("#/", "room for all"),
    ("#/station/hall", "History"),
    ("#/rooms", "Move to"),
    ("#/events", "what happened as number"),
];

/// How much may be more in the last hour than in the first. Code that the browser compiles in the
/// course of time is part of its heap, about 400 kB; 8 bytes for each frame of meters would be a
/// megabyte.
const MOST_GROWTH: Usage =
    Usage { heap_bytes: 1e6, nodes: 40.0, listeners: 10.0, detached: 10.0, timers: 3.0 };

/// What a page holds, after a garbage collection.
#[derive(Clone, Copy, Debug)]
struct Usage {
    heap_bytes: f64,
    /// All nodes, in the document or not.
    nodes: f64,
    listeners: f64,
    /// Nodes that are in no document, and are held by a script.
    detached: f64,
    timers: f64,
}

impl Usage {
    fn read(browser: &mut Browser) -> Self {
        for _ in 0..2 {
            browser.call("HeapProfiler.collectGarbage", &json!({})).unwrap();
        }
        let heap = browser.call("Runtime.getHeapUsage", &json!({})).unwrap();
        let dom = browser.call("Memory.getDOMCounters", &json!({})).unwrap();
        let detached = browser.call("DOM.getDetachedDomNodes", &json!({})).unwrap();
        let trees = detached["detachedNodes"].as_array().unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        Self {
            heap_bytes: number(&heap["usedSize"]),
            nodes: number(&dom["nodes"]),
            listeners: number(&dom["jsEventListeners"]),
            detached: f64::from(u32::try_from(trees.len()).unwrap()),
            timers: number(&browser.run("world.timers()").unwrap()),
        }
    }

    /// What has grown beyond its limit since `before`.
    fn growth(&self, before: &Self) -> Vec<String> {
        let rows = [
            ("heap bytes", self.heap_bytes - before.heap_bytes, MOST_GROWTH.heap_bytes),
            ("nodes", self.nodes - before.nodes, MOST_GROWTH.nodes),
            ("listeners", self.listeners - before.listeners, MOST_GROWTH.listeners),
            ("detached nodes", self.detached - before.detached, MOST_GROWTH.detached),
            ("timers", self.timers - before.timers, MOST_GROWTH.timers),
        ];
        let grown = rows.iter().filter(|(_, more, most)| more > most);
        grown.map(|(what, more, most)| format!("{more} more {what}, at most {most}")).collect()
    }
}

/// What the fed page is told, as a real server says it.
fn templates(server: &AulosServer) -> Value {
    let mut rpc = Rpc::connect(server.control);
    wait_for("two clients", Duration::from_secs(30), || {
        let status = rpc.call("Aulos.GetStatus", &json!({}));
        status["stations"][0]["clients"].as_array().unwrap().len() == 2
    });
    let status = rpc.call("Aulos.GetStatus", &json!({}));
    let station = json!({ "station": "hall" });
    let path = "/api/v1/stations/hall/history?from=-60&points=60";
    let (code, history) = http::get(server.http, path).unwrap();
    assert_eq!(code, 200);
    json!({
        "status": status,
        "history": serde_json::from_slice::<Value>(&history).unwrap(),
        "answers": {
            "General.GetRPCCommands": rpc.call("General.GetRPCCommands", &json!({})),
            "Aulos.GetLoudness": rpc.call("Aulos.GetLoudness", &station),
            "Aulos.GetNormalize": rpc.call("Aulos.GetNormalize", &station),
            "Aulos.GetPresets": rpc.call("Aulos.GetPresets", &json!({})),
        },
    })
}

/// Lets virtual time pass in the view of an address.
fn pass(browser: &mut Browser, (hash, text): (&str, &str), seconds: usize) {
    browser.run(&format!("world.show({})", json!(hash))).unwrap();
    for _ in 0..seconds / STEP_S {
        browser.run(&format!("world.pass({STEP_S})")).unwrap();
    }
    let shown = browser.run("document.body.innerText").unwrap();
    assert!(shown.as_str().unwrap().contains(text), "{hash}: {shown}");
}

#[test]
fn a_page_open_for_hours_holds_no_more_than_after_one() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = long_shared_turn();
    let scratch = ScratchDir::new("hours").unwrap();
    let config = "[[station]]\nname = \"hall\"\nsources = [\"tone://\", \"demo://\"]\nnormalize = \"r128\"\n\
        [[station]]\nname = \"room for all\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let clients = Listeners::start(&server, 1..3);
    let script = VIRTUAL_TIME.replace("TEMPLATES", &templates(&server).to_string());
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    // Without the page enabled, scripts of new documents are not run.
    browser.call("Page.enable", &json!({})).unwrap();
    browser.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script })).unwrap();
    browser.watch(&format!("http://{}/", server.http)).unwrap();
    // The server has said everything that is needed of it.
    let is_there = "document.readyState === 'complete' && !!document.querySelector('main')";
    wait_for("the page", Duration::from_secs(30), || {
        browser.run(is_there).unwrap_or_default() == true
    });
    clients.end();
    // Console messages would be kept for the debugger.
    browser.call("Runtime.disable", &json!({})).unwrap();
    // What is made once is there before the first hour: code, and what is kept of the last view.
    for view in VIEWS.into_iter().chain(VIEWS) {
        pass(&mut browser, view, 5 * STEP_S);
    }
    // The long form gives each view all of the time, the short one a part of each hour.
    let parts: Vec<&[(&str, &str)]> =
        if soak() { VIEWS.chunks(1).collect() } else { vec![&VIEWS[..]] };
    let mut usage: Vec<(String, Usage)> = Vec::new();
    for views in parts {
        for hour in 1..=hours() {
            for view in views {
                pass(&mut browser, *view, 3_600 / views.len());
                usage.push((format!("{} {hour}", view.0), Usage::read(&mut browser)));
            }
            browser.run("world.loseConnection()").unwrap();
        }
    }
    let counts = browser.run("world.counts").unwrap();
    for (hash, _) in VIEWS {
        let of =
            |hour: usize| usage.iter().find(|(at, _)| *at == format!("{hash} {hour}")).unwrap().1;
        let growth = of(hours()).growth(&of(1));
        assert_eq!(growth, Vec::<String>::new(), "{hash}: {usage:#?}");
    }
    // Control experiments: the time has passed, and what stays is found.
    let count = |name: &str| counts[name].as_u64().unwrap();
    let hours = if soak() { 4 * hours() as u64 } else { hours() as u64 };
    assert!(count("frames") >= hours * 15_000 && count("paints") >= hours * 15_000, "{counts}");
    assert!(count("statuses") >= hours * 1_700 && count("events") >= hours * 1_700, "{counts}");
    assert!(count("connections") >= hours, "{counts}");
    let before = Usage::read(&mut browser);
    browser.run("world.leak(200)").unwrap();
    let found = Usage::read(&mut browser).growth(&before);
    assert_eq!(found.len(), 4, "{found:?}");
    drop(browser);
    server.stop().unwrap();
}
