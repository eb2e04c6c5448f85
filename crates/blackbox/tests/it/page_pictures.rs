//! Each view of the page at the sizes of a phone, a laptop and a wall screen, in dark and light:
//! what a checker of accessibility does not see (text that is cut off, controls that overlap or
//! break into two lines, content that moves by itself), and the pictures of the documentation.
//!
//! `AULOS_BLESS=1` writes `docs/images/page-VIEW.webp`, one sheet of six pictures for each view,
//! and each picture into the folder `page-pictures` beside the tested program, for a close look.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_blackbox::browser::{Browser, from_base64};
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::history::write_minutes;
use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// Name, width and height in CSS pixels.
const SIZES: [(&str, u32, u32); 3] =
    [("phone", 390, 844), ("laptop", 1_280, 800), ("wall", 1_920, 1_080)];
const SCHEMES: [&str; 2] = ["dark", "light"];

/// Height of each picture in a sheet, and the gap between two.
const SHEET_ROW: u32 = 540;
const SHEET_GAP: u32 = 12;

/// The views: name, address, and an expression that is true when the view is complete.
const VIEWS: [(&str, &str, &str); 8] = [
    ("live", "#/", "document.querySelectorAll('.cards .figures').length === 3"),
    ("station", "#/station/kitchen?range=24h", "!!document.querySelector('.plot canvas')"),
    ("rooms", "#/rooms", "document.querySelectorAll('.client').length === 6"),
    ("recordings", "#/recordings", "!!document.querySelector('a[download]')"),
    ("relays", "#/relays", "(document.body?.innerText ?? '').includes('Outputs of stage')"),
    ("events", "#/events", "document.querySelectorAll('.event').length > 5"),
    ("system", "#/system", "(document.body?.innerText ?? '').includes('Configuration')"),
    (
        "meter",
        "meter/kitchen?show=name,bars,scale,numbers&panel=1",
        "!!document.querySelector('.figures')",
    ),
];

/// What is wrong with the layout, as texts; and from now on the content that moves by itself.
const LAYOUT: &str = r#"(() => {
    const found = [];
    const text = one => (one.ariaLabel || one.textContent || one.id || '').trim().replace(/\s+/g, ' ').slice(0, 50);
    const name = one => `${one.localName}.${one.className} "${text(one)}"`;
    const hidden = one => !one || one.closest('.visually-hidden, [hidden]') || !one.checkVisibility({ visibilityProperty: true });
    // The part of a box that its ancestors show.
    const shown = (box, one) => {
        let { left, top, right, bottom } = box;
        for (let up = one; up; up = up.parentElement) {
            if (getComputedStyle(up).overflowX === 'visible') continue;
            const frame = up.getBoundingClientRect();
            left = Math.max(left, frame.left), right = Math.min(right, frame.right);
            top = Math.max(top, frame.top), bottom = Math.min(bottom, frame.bottom);
        }
        return { left, top, right, bottom };
    };
    const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    if (document.documentElement.scrollWidth > innerWidth) found.push('wider than its window');
    const controls = [...document.querySelectorAll('a, button, input, select, summary')].filter(one => !hidden(one));
    for (const one of controls) {
        // A button of one line is 32 to 40 pixels high.
        if (one.matches('button, .button, nav a') && !one.closest('.menu ul') && one.getBoundingClientRect().height > 46)
            found.push(`more than one line: ${name(one)}`);
    }
    const layer = one => one.closest('.player, .trouble, .newer');
    const boxes = controls.map(one => [one, shown(one.getBoundingClientRect(), one)]);
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const parent = node.parentElement;
        if (!node.data.trim() || parent.matches('script, option, style') || hidden(parent)) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const lines = [...range.getClientRects()].filter(box => box.width > 1);
        for (const box of lines) texts.push([parent, shown(box, parent), node]);
        const wide = Math.max(...lines.map(box => box.width));
        if (lines.length > 3 && wide < 110) found.push(`a column of ${lines.length} lines: ${name(parent)}`);
        const { overflowX, textOverflow } = getComputedStyle(parent);
        if (overflowX === 'hidden' && textOverflow !== 'ellipsis' && parent.scrollWidth > parent.clientWidth + 1)
            found.push(`cut off: ${name(parent)}`);
    }
    for (const one of document.querySelectorAll('nav, .buttons'))
        if (!hidden(one) && one.scrollWidth > one.clientWidth + 1) found.push(`does not fit: ${name(one)}`);
    const pairs = (list, related) => list.forEach(([one, a, node], at) => list.slice(at + 1).forEach(([other, b, next]) => {
        if (overlap(a, b) && !related(one, other, node, next) && layer(one) === layer(other))
            found.push(`overlap: ${name(one)} and ${name(other)}`);
    }));
    pairs(boxes, (one, other) => one.contains(other) || other.contains(one));
    pairs(texts, (one, other, node, next) => node === next);
    for (const one of controls) {
        const label = one.ariaLabel || one.title || one.textContent.trim() || [...(one.labels ?? [])].map(text).join('');
        if (!label) found.push(`unlabelled: ${one.outerHTML.slice(0, 120)}`);
    }
    return [...new Set(found)];
})()"#;

/// Starts to note content that moves without an input.
const WATCH_MOVES: &str = "(() => {
    globalThis.moved = [];
    globalThis.mover?.disconnect();
    globalThis.mover = new PerformanceObserver(list => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput && entry.value > 0.001)
            moved.push(entry.value.toFixed(4) + ' ' + entry.sources.map(({ node }) =>
                `${node?.localName ?? node?.nodeName}.${node?.className ?? ''} ${(node?.textContent ?? '').slice(0, 40)}`).join(' | '));
    });
    mover.observe({ type: 'layout-shift' });
})()";

fn config(scratch: &ScratchDir) -> String {
    let dir = scratch.join("recordings");
    let dir = dir.display();
    format!(
        "[[station]]\nname = \"kitchen\"\nsources = [\"demo://\"]\n\
         normalize = {{ target = -18.0, mode = \"low\" }}\n\
         equalizer = [{{ type = \"low-shelf\", hz = 120, gain_db = 3 }}]\n\
         record = [{{ name = \"air\", dir = \"{dir}\", format = \"flac\", start = false }}, \
         {{ name = \"archive\", dir = \"{dir}\", format = \"wav\" }}]\n\
         [[station]]\nname = \"hall\"\n\
         sources = [\"tcp://127.0.0.1:9?mode=client&name=studio\", \"demo://\"]\n\
         [[station]]\nname = \"stage\"\nsources = [\"tone://\"]\n\
         rtp = [{{ dest = \"rtp://127.0.0.1:25988\", payload = \"l16\" }}]\n\
         [[relay]]\nname = \"trunk\"\nlisten = \"udp://127.0.0.1:0\"\nfrom = \"pcmu\"\nto = \"pcma\"\n\
         dest = \"udp://127.0.0.1:25986\"\n"
    )
}

/// A day of loudness, with an hour of silence and one on fallback.
fn write_history(scratch: &ScratchDir) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    write_minutes(&scratch.join("state"), (now - 86_400, now - 120), |time| {
        let swing = f64::from(u32::try_from(time / 60 % 37).unwrap()) / 6.0;
        let flags = match now.saturating_sub(time) / 3_600 {
            8 => 1,
            14 => 4,
            _ => 0,
        };
        (flags, -21.0 + swing)
    });
}

/// Names for clients, one group of two, one client that is muted, a preset, two recordings.
fn use_the_server(server: &AulosServer) {
    let mut rpc = Rpc::connect(server.control);
    let status = rpc.call("Server.GetStatus", &json!({}));
    let groups = status["server"]["groups"].as_array().unwrap().clone();
    let ids: Vec<Value> = groups.iter().map(|group| group["clients"][0]["id"].clone()).collect();
    let names = [
        "Kitchen",
        "Living room",
        "Bedroom",
        "Studio monitor",
        "Garden",
        "Hall, left of the stage",
    ];
    for (id, name) in ids.iter().zip(names) {
        rpc.call("Client.SetName", &json!({ "id": id, "name": name }));
    }
    let volume = |muted, percent| json!({ "muted": muted, "percent": percent });
    rpc.call("Client.SetVolume", &json!({ "id": ids[2], "volume": volume(true, 40) }));
    rpc.call("Client.SetVolume", &json!({ "id": ids[1], "volume": volume(false, 64) }));
    let together = json!({ "id": groups[0]["id"], "clients": [ids[0], ids[1]] });
    rpc.call("Group.SetClients", &together);
    rpc.call("Group.SetName", &json!({ "id": groups[0]["id"], "name": "Downstairs" }));
    rpc.call("Group.SetStream", &json!({ "id": groups[3]["id"], "stream_id": "stage" }));
    rpc.call("Aulos.SavePreset", &json!({ "name": "Evening" }));
    for _ in 0..2 {
        rpc.call("Aulos.StartRecording", &json!({ "recorder": "air" }));
        std::thread::sleep(Duration::from_millis(2_500));
        rpc.call("Aulos.StopRecording", &json!({ "recorder": "air" }));
    }
}

fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, PATIENCE, || browser.run(expression).unwrap() == true);
}

fn set_size(browser: &mut Browser, width: u32, height: u32) {
    let metrics =
        json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", &metrics).unwrap();
}

fn set_scheme(browser: &mut Browser, scheme: &str) {
    let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    browser.call("Emulation.setEmulatedMedia", &media).unwrap();
}

fn blesses() -> bool {
    std::env::var_os("AULOS_BLESS").is_some()
}

/// Pictures of one view, and what is wrong with its layout.
fn check_view(
    browser: &mut Browser,
    name: &str,
    url: &str,
    complete: &str,
    faults: &mut Vec<String>,
) {
    let mut pictures = Vec::new();
    for scheme in SCHEMES {
        set_scheme(browser, scheme);
        let url = if name == "meter" { format!("{url}&theme={scheme}") } else { url.to_owned() };
        // Another address of the same document would not be loaded.
        browser.call("Page.navigate", &json!({ "url": "about:blank" })).unwrap();
        browser.watch(&url).unwrap();
        until(browser, complete);
        std::thread::sleep(Duration::from_millis(1_500));
        for (size, width, height) in SIZES {
            set_size(browser, width, height);
            std::thread::sleep(Duration::from_millis(400));
            browser.run(WATCH_MOVES).unwrap();
            std::thread::sleep(Duration::from_millis(900));
            for expression in [LAYOUT, "moved.map(one => `moves: ${one}`)"] {
                let found = browser.run(expression).unwrap();
                let found = found.as_array().unwrap().iter();
                faults.extend(found.map(|one| format!("{name} {size} {scheme}: {one}")));
            }
            if blesses() {
                let picture = browser.screenshot().unwrap();
                fs::write(kept().join(format!("{name}-{size}-{scheme}.png")), &picture).unwrap();
                let mut png =
                    browser.call("Page.captureScreenshot", &json!({ "format": "png" })).unwrap();
                pictures.push((width, height, png["data"].take()));
            }
        }
        let reported = browser.faults().unwrap();
        faults.extend(reported.iter().map(|one| format!("{name} {scheme}: {one}")));
        // Without pictures one scheme is enough: both have the same layout.
        if !blesses() && name != "meter" {
            break;
        }
    }
    if blesses() {
        write_sheet(browser, name, &pictures);
    }
}

/// The folder of single pictures.
fn kept() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(3).unwrap().join("page-pictures");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes the pictures of a view as one, a row for each scheme.
fn write_sheet(browser: &mut Browser, name: &str, pictures: &[(u32, u32, Value)]) {
    let images: Vec<String> = pictures
        .iter()
        .map(|(_, _, data)| {
            format!("<img src=\"data:image/png;base64,{}\">", data.as_str().unwrap())
        })
        .collect();
    let row: u32 = SIZES.iter().map(|(_, width, height)| width * SHEET_ROW / height).sum();
    let (width, height) = (row + 4 * SHEET_GAP, 2 * SHEET_ROW + 3 * SHEET_GAP);
    browser.call("Page.navigate", &json!({ "url": "about:blank" })).unwrap();
    set_size(browser, width, height);
    let body = images.chunks(SIZES.len()).map(|row| format!("<div>{}</div>", row.join("")));
    let style = format!(
        "<style>body {{ margin: 0 0 0 {SHEET_GAP}px; background: #808080 }} \
         div {{ display: flex; gap: {SHEET_GAP}px; margin-top: {SHEET_GAP}px }} \
         img {{ display: block; height: {SHEET_ROW}px }}</style>"
    );
    let html = format!("{style}{}", body.collect::<String>());
    browser.run(&format!("document.documentElement.innerHTML = {}; 0", json!(html))).unwrap();
    until(browser, "[...document.images].every(one => one.complete)");
    let options = json!({ "format": "webp", "quality": 60 });
    let sheet = browser.call("Page.captureScreenshot", &options).unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let sheet = from_base64(sheet["data"].as_str().unwrap());
    fs::write(root.join(format!("page-{name}.webp")), sheet).unwrap();
}

#[test]
fn nothing_is_cut_off_overlaps_or_moves_at_any_size() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = long_shared_turn();
    let scratch = ScratchDir::new("pictures").unwrap();
    write_history(&scratch);
    let server = AulosServer::start(&scratch, &config(&scratch)).unwrap();
    let clients = Listeners::start(&server, 1..7);
    clients.go_on();
    use_the_server(&server);
    let mut browser =
        Browser::open_with(&program, &scratch, "about:blank", &["--hide-scrollbars"]).unwrap();
    let mut faults = Vec::new();
    for (name, address, complete) in VIEWS {
        let url = format!("http://{}/{address}", server.http);
        check_view(&mut browser, name, &url, complete, &mut faults);
    }
    // Control experiment: what is cut off, overlaps and has no name is found.
    browser.watch(&format!("http://{}/#/rooms", server.http)).unwrap();
    until(&mut browser, VIEWS[2].2);
    let worse = "document.querySelector('main').insertAdjacentHTML('beforeend',
        `<button></button><p class=cut>a long text</p>`);
        const style = new CSSStyleSheet();
        style.replaceSync('.cut { width: 2rem; overflow: hidden; white-space: nowrap } h1 { position: absolute; top: 0 }');
        document.adoptedStyleSheets = [style]; 0";
    browser.run(worse).unwrap();
    let found = browser.run(LAYOUT).unwrap().to_string();
    for fault in ["unlabelled: ", "cut off: "] {
        assert!(found.contains(fault), "{fault}: {found}");
    }
    drop(browser);
    clients.end();
    server.stop().unwrap();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn nothing_is_cut_off_on_the_page_of_a_listener() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("listener").unwrap();
    fs::write(scratch.join("secret"), "a long enough secret\n").unwrap();
    let config = format!(
        "{}[access]\nanonymous = \"listen\"\n[[user]]\nname = \"board\"\nrole = \"control\"\n\
         password_file = \"{}\"\n",
        config(&scratch),
        scratch.join("secret").display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut browser =
        Browser::open_with(&program, &scratch, "about:blank", &["--hide-scrollbars"]).unwrap();
    let mut faults = Vec::new();
    // The second time it is shown with the bar of what plays.
    let complete = "(() => {
        if (document.querySelectorAll('.cards .figures').length !== 3) return false;
        if (!document.querySelector('.player')) document.querySelector('.listen').click();
        return !!document.querySelector('.player') && !document.querySelector('audio').paused;
    })()";
    let url = format!("http://{}/#/", server.http);
    check_view(&mut browser, "listener", &url, complete, &mut faults);
    drop(browser);
    server.stop().unwrap();
    assert_eq!(faults, Vec::<String>::new());
}
