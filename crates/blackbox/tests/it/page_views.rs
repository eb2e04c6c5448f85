//! The views of the page in a real browser: what they show is what the API says, and what they set
//! takes effect.

use std::fs::OpenOptions;
use std::sync::mpsc;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::paced_writer::PacedWriter;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, tonal};
use serde_json::{Value, json};

use crate::page_operation::says;
use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
const TWO_STATIONS: &str = "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n\
    [[station]]\nname = \"Night <b>radio\"\nsources = [\"demo://\"]\n";

/// Waits until an expression is true in the page.
fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, PATIENCE, || browser.run(expression).unwrap() == true);
}

/// Waits until the page shows a text.
fn page(server: &AulosServer, hash: &str) -> String {
    format!("http://{}/{hash}", server.http)
}

/// The button of this label.
fn button(text: &str) -> String {
    let text = json!(text);
    format!(
        "[...document.querySelectorAll('button')].find(one => one.textContent.startsWith({text}))"
    )
}

/// The page presses a key as a keyboard does.
fn press(browser: &mut Browser, key: &str, code: u32) {
    for kind in ["rawKeyDown", "keyUp"] {
        let mut event =
            json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key == "Enter" && kind == "rawKeyDown" {
            event["type"] = json!("keyDown");
            event["text"] = json!("\r");
        }
        browser.call("Input.dispatchKeyEvent", &event).unwrap();
    }
}

/// Differences of M, S and I between the meters of the first card and the API, in LU.
const DIFFERENCES: &str = "(async () => {
    const { stations: [{ loudness }] } = await (await fetch('api/v1/status')).json();
    const shown = [...document.querySelectorAll('.figures')[0].querySelectorAll('b')]
        .map(one => Number(one.textContent.replace('\\u2212', '-')));
    const told = [loudness.momentary_lufs, loudness.short_term_lufs, loudness.integrated_lufs];
    return told.map((value, at) => value === null ? 99 : Math.abs(value - shown[at]));
})()";

#[test]
fn the_views_show_what_the_api_says_and_nothing_is_reported_as_wrong() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("views").unwrap();
    let server = AulosServer::start(&scratch, TWO_STATIONS).unwrap();
    let clients = Listeners::start(&server, 1..3);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&page(&server, "")).unwrap();
    says(&mut browser, "All 2 stations are well");
    // A name is text and nothing else.
    says(&mut browser, "Night <b>radio");
    wait_for("meters as the API says", PATIENCE, || {
        let differences = browser.run(DIFFERENCES).unwrap();
        let differences = differences.as_array().unwrap();
        differences.iter().all(|lu| lu.as_f64().is_some_and(|lu| lu <= 0.1))
    });
    // The bar of M is painted: green where the level is, the color of the trough at its end.
    until(
        &mut browser,
        "(() => {
            const canvas = document.querySelector('canvas'), gap = document.querySelector('.gap');
            const place = canvas.getBoundingClientRect(), box = gap.getBoundingClientRect();
            const scale = canvas.width / place.width;
            // A copy, because a canvas that is read often is painted by the processor.
            const copy = new OffscreenCanvas(canvas.width, canvas.height);
            const context = copy.getContext('2d', { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const pixel = share => [...context.getImageData(
                (box.left - place.left + share * box.width) * scale,
                (box.top - place.top + 3) * scale, 1, 1).data].join();
            return document.querySelectorAll('canvas').length === 1 && pixel(0.1) !== pixel(0.99)
                && !pixel(0.1).endsWith(',0') && !pixel(0.99).endsWith(',0');
        })()",
    );
    until(&mut browser, "document.querySelector('[role=meter]').ariaValueText.endsWith('LUFS')");
    for (hash, text) in [
        ("#/station/Night%20%3Cb%3Eradio", "Announcements"),
        ("#/station/nowhere", "There is no station of this name"),
        ("#/rooms", "Move to"),
        ("#/", "All 2 stations are well"),
    ] {
        browser.run(&format!("location.hash = {}", json!(hash))).unwrap();
        says(&mut browser, text);
    }
    // One connection for calls, status and meters; the player has its own.
    let open = "performance.getEntriesByType('resource').every(e =>
        e.name.startsWith(location.origin) && !e.name.includes('events'))";
    assert_eq!(browser.run(open).unwrap(), true);
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    clients.end();
    server.stop().unwrap();
}

#[test]
fn the_page_says_that_the_server_is_away_and_comes_back() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("away").unwrap();
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, TWO_STATIONS).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config);
    })
    .unwrap();
    let http = server.http;
    let mut browser = Browser::open(&program, &scratch, &page(&server, "")).unwrap();
    says(&mut browser, "All 2 stations are well");
    let momentary = "document.querySelector('.figures b').textContent";
    until(&mut browser, &format!("/\\d/.test({momentary})"));
    server.stop().unwrap();
    says(&mut browser, "Connection lost");
    // No value of the past stays bright.
    until(&mut browser, &format!("{momentary} === '\\u2013'"));
    until(&mut browser, "!!document.querySelector('.metered.stale')");
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config).args(["--set", &format!("listen.http={http}")]);
    })
    .unwrap();
    assert_eq!(server.http, http);
    says(&mut browser, "All 2 stations are well");
    until(&mut browser, &format!("/\\d/.test({momentary})"));
    drop(browser);
    server.stop().unwrap();
}

#[test]
fn a_source_without_its_first_sender_is_no_fault_and_one_that_stopped_is() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("first-start").unwrap();
    let fifo = scratch.join("player");
    // As the embedded default.
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"pipe://{}?name=player\", \"demo://\"]\n",
        text(&fifo)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let mut station = || rpc.call("Aulos.GetStatus", &json!({}))["stations"][0].clone();
    let mut plays = |source: &str| {
        wait_for(source, PATIENCE, || station()["active"] == source);
    };
    plays("demo");
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&page(&server, "")).unwrap();
    says(&mut browser, "default is well");
    says(&mut browser, "source player waits for its first audio");
    until(&mut browser, "!document.querySelector('.banner').matches('.attention, .broken')");
    let second = SampleWidth::B16.bytes(&tonal(RATE, SampleWidth::B16));
    let pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut writer = PacedWriter::steady(pipe, second.len());
        while stopped.try_recv().is_err() {
            writer.write(&second).unwrap();
        }
    });
    plays("player");
    says(&mut browser, "default is well");
    until(&mut browser, "!document.body.innerText.includes('first audio')");
    stop.send(()).unwrap();
    writer.join().unwrap();
    plays("demo");
    says(&mut browser, "default needs attention");
    says(&mut browser, "on fallback: demo plays in place of player");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}

/// The clients of each group, by the registry.
fn groups(rpc: &mut Rpc) -> Vec<usize> {
    let status = rpc.call("Server.GetStatus", &json!({}));
    let groups = status["server"]["groups"].as_array().unwrap();
    let mut sizes: Vec<usize> =
        groups.iter().map(|group| group["clients"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn clients_are_regrouped_by_keyboard_and_by_drag_and_the_focus_stays() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("regroup").unwrap();
    let server = AulosServer::start(&scratch, TWO_STATIONS).unwrap();
    let clients = Listeners::start(&server, 1..4);
    let mut rpc = Rpc::connect(server.control);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&page(&server, "#/rooms")).unwrap();
    until(&mut browser, "document.querySelectorAll('.client').length === 3");
    assert_eq!(groups(&mut rpc), [1, 1, 1]);
    browser.run(&format!("{}.focus()", button("Move to"))).unwrap();
    press(&mut browser, "Enter", 13);
    until(&mut browser, "document.activeElement.role === 'menuitem'");
    // The menu closes with Escape, and the focus is where it was.
    press(&mut browser, "Escape", 27);
    until(&mut browser, "document.activeElement.ariaHasPopup === 'menu'");
    press(&mut browser, "Enter", 13);
    until(&mut browser, "document.activeElement.role === 'menuitem'");
    press(&mut browser, "ArrowDown", 40);
    press(&mut browser, "Enter", 13);
    wait_for("two clients in a group", PATIENCE, || groups(&mut rpc) == [1, 2]);
    until(&mut browser, "document.activeElement.ariaHasPopup === 'menu'");
    until(&mut browser, "/is now in/.test(document.querySelector('[aria-live]').textContent)");
    until(&mut browser, "document.querySelectorAll('.group').length === 2");
    let drag = "(() => {
        const [from, to] = [...document.querySelectorAll('.group')]
            .sort((a, b) => a.querySelectorAll('.client').length - b.querySelectorAll('.client').length);
        const dataTransfer = new DataTransfer(), options = { bubbles: true, cancelable: true, dataTransfer };
        from.querySelector('.who').dispatchEvent(new DragEvent('dragstart', options));
        const taken = !to.dispatchEvent(new DragEvent('dragover', options));
        to.dispatchEvent(new DragEvent('drop', options));
        return taken;
    })()";
    assert_eq!(browser.run(drag).unwrap(), true, "the group takes a client that is dragged");
    wait_for("three clients in a group", PATIENCE, || groups(&mut rpc) == [3]);
    until(&mut browser, "document.querySelectorAll('.group').length === 1");
    // The group plays another station, and a volume and a name are set.
    let choose = "(() => {
        const select = document.querySelector('select');
        select.value = 'Night <b>radio';
        select.dispatchEvent(new Event('change', { bubbles: true }));
        const slider = document.querySelector('input[type=range]');
        slider.value = 37;
        slider.dispatchEvent(new Event('input', { bubbles: true }));
    })()";
    browser.run(choose).unwrap();
    wait_for("the station and the volume", PATIENCE, || {
        let status = rpc.call("Server.GetStatus", &json!({}));
        let group = &status["server"]["groups"][0];
        let clients = group["clients"].as_array().unwrap();
        group["stream_id"] == "Night <b>radio"
            && clients.iter().any(|client| client["config"]["volume"]["percent"] == 37)
    });
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    clients.end();
    server.stop().unwrap();
}

#[test]
fn what_a_role_may_not_do_is_not_shown() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("roles").unwrap();
    std::fs::write(scratch.join("secret"), "a long enough secret\n").unwrap();
    let config = format!(
        "{TWO_STATIONS}[access]\nanonymous = \"listen\"\n[[user]]\nname = \"board\"\nrole = \"control\"\n\
         password_file = \"{}\"\n",
        scratch.join("secret").display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let clients = Listeners::start(&server, 1..3);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&page(&server, "#/rooms")).unwrap();
    until(&mut browser, "document.querySelectorAll('.client').length === 2");
    let controls = "[...document.querySelectorAll('main :is(button, input, select, form)')]
        .map(one => one.textContent)";
    assert_eq!(browser.run(controls).unwrap(), json!([]));
    browser.run("location.hash = '#/station/default'").unwrap();
    says(&mut browser, "Sources");
    let shown = browser.run(controls).unwrap();
    let shown: Vec<String> = shown.as_array().unwrap().iter().map(words).collect();
    assert_eq!(shown, ["Listen to default"]);
    // After a login there is what the role may do, and what only an administrator may is absent.
    let login = format!("http://board:a%20long%20enough%20secret@{}/login", server.http);
    browser.watch(&login).unwrap();
    says(&mut browser, "All 2 stations are well");
    browser.run("location.hash = '#/rooms'").unwrap();
    until(&mut browser, &format!("!!{}", button("Move to")));
    browser.run("document.querySelector('details').open = true").unwrap();
    says(&mut browser, "Latency");
    let text = browser.run("document.body.innerText").unwrap();
    assert!(!text.as_str().unwrap().contains("Maximum volume"), "{text}");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    clients.end();
    server.stop().unwrap();
}

/// The words of a text, whatever is between them.
fn words(text: &Value) -> String {
    text.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}
