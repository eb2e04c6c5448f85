//! The page in a real browser: it shows the station and plays it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, tonal, write_wav};

use serde_json::json;

use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

/// Plays `src` (or that of the page's own player), and returns its progress in three seconds.
const PLAY: &str = r"(async src => {
    const audio = document.querySelector('audio') ?? document.body.appendChild(new Audio());
    if (src) audio.src = src;
    await audio.play();
    await new Promise(done => setTimeout(done, 3000));
    if (audio.error) throw new Error(audio.error.message);
    return audio.currentTime;
})";

/// Control experiment with a file that is known to play: if this fails, the browser cannot play
/// audio.
#[test]
fn the_reference_meter_reads_a_file() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("judge").unwrap();
    let file = scratch.join("tone.wav");
    write_wav(File::create(&file).unwrap(), &tonal(10 * RATE, SampleWidth::B16), SampleWidth::B16)
        .unwrap();
    let page = scratch.join("page.html");
    std::fs::write(&page, "<!doctype html><audio src=tone.wav></audio>").unwrap();
    let url = format!("file://{}", page.display());
    let mut browser = Browser::open(&program, &scratch, &url).unwrap();
    let loaded = "document.readyState == 'complete' && !!document.querySelector('audio')";
    wait_for("the page", Duration::from_secs(20), || browser.run(loaded).unwrap() == true);
    let played = browser.run(&format!("{PLAY}()")).unwrap();
    assert!(played.as_f64().is_some_and(|s| (2.0..4.0).contains(&s)), "{played}");
}

#[test]
fn the_page_shows_the_normalizer_and_its_comparison() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("steady").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n\
        normalize = { target = -18.0, mode = \"low\" }\n\
        equalizer = [{ type = \"low-shelf\", hz = 120, gain_db = 3 }]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let mut browser =
        Browser::open(&program, &scratch, &format!("http://{}/#/station/default", server.http))
            .unwrap();
    let says = |browser: &mut Browser, text: &str| {
        let shown = format!("(document.body?.innerText ?? '').includes('{text}')");
        wait_for(text, Duration::from_secs(20), || browser.run(&shown).unwrap() == true);
    };
    says(
        &mut browser,
        "Normalized to \u{2212}18 LUFS, at most \u{2212}1 dBTP, mode low, latency 0.01 s",
    );
    says(&mut browser, "Equalizer: low-shelf 120 Hz +3 dB");
    let compare =
        "[...document.querySelectorAll('button')].find(one => one.textContent == 'Compare')";
    browser.run(&format!("{compare}.click()")).unwrap();
    says(&mut browser, "bypassed for comparison");
    let pressed = browser.run(&format!("{compare}.getAttribute('aria-pressed')")).unwrap();
    assert_eq!(pressed, "true");
    let picture = browser.screenshot().unwrap();
    let kept = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap();
    std::fs::write(kept.join("page-normalized.png"), picture).unwrap();
    drop(browser);
    server.stop().unwrap();
}

/// A page of another site: each request that a browser sends without a preflight.
const ATTACK: &str = r"(async (ports, body) => {
    for (const port of ports) {
        const url = `http://127.0.0.1:${port}/`;
        for (const type of ['text/plain', 'application/x-www-form-urlencoded']) {
            const headers = { 'Content-Type': type };
            await fetch(url, { method: 'POST', mode: 'no-cors', headers, body }).catch(() => 0);
        }
        navigator.sendBeacon(url, body);
        const form = document.createElement('form');
        Object.assign(form, { action: url, method: 'post', enctype: 'text/plain', target: 'frame' });
        const field = document.createElement('input');
        Object.assign(field, { name: body, value: '' });
        form.append(field);
        document.body.append(form);
        form.submit();
        await new Promise(done => setTimeout(done, 500));
        new WebSocket(`ws://127.0.0.1:${port}/jsonrpc`).onopen = e => e.target.send(body);
        await new Promise(done => setTimeout(done, 500));
    }
    return true;
})";

/// A page of another origin, and a record of what it sent to a port that accepts everything.
fn other_site() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (posted, received) = mpsc::channel();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let (mut request, mut block) = (Vec::new(), [0; 4_096]);
            while let Ok(count) = socket.read(&mut block) {
                request.extend_from_slice(&block[..count]);
                if count == 0 || request.starts_with(b"GET ") {
                    break;
                }
            }
            let page = "<!doctype html><title>other</title><iframe name=frame></iframe>";
            let length = page.len();
            // A browser that has disconnected is done.
            drop(write!(
                socket,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n{page}"
            ));
            if posted.send(String::from_utf8_lossy(&request).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn a_page_of_another_site_cannot_send_commands() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("other-site").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let (site, received) = other_site();
    let mut browser = Browser::open(&program, &scratch, &format!("http://{site}/")).unwrap();
    let loaded = "document.title == 'other' && !!document.querySelector('iframe')";
    wait_for("the page", Duration::from_secs(20), || browser.run(loaded).unwrap() == true);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "Aulos.SavePreset",
        "params": { "name": "evil" } });
    let ports = [site.port(), server.control.port(), server.stream.port(), server.http.port()];
    let attack = format!("{ATTACK}({}, {})", json!(ports), json!(format!("{call}\r\n")));
    assert_eq!(browser.run(&attack).unwrap(), true);
    // Control experiment: what the browser sent to a port that accepts everything contains the
    // call.
    let sent: Vec<String> = received.try_iter().filter(|one| one.starts_with("POST ")).collect();
    assert!(sent.iter().any(|one| one.contains("\r\n\r\n{\"id\":1,")), "{sent:?}");
    let mut rpc = Rpc::connect(server.control);
    let presets = rpc.call("Aulos.GetPresets", &json!({}));
    assert_eq!(presets["presets"], json!([]), "{presets}");
    let status = rpc.call("Aulos.GetStatus", &json!({}));
    let count = |name: &str| status["counters"][name].as_u64().unwrap();
    assert!(count("controllers_cut_not_json") >= 3, "{}", status["counters"]);
    assert_eq!((count("rpc_not_understood"), count("sessions")), (0, 0));
    assert!(count("sessions_cut_protocol_error") >= 3, "{}", status["counters"]);
    assert!(count("http_cross_site") >= 1, "{}", status["counters"]);
    drop(browser);
    server.stop().unwrap();
}

#[test]
fn the_page_shows_the_station_and_plays_it() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("page").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let clients = Listeners::start(&server, 1..3);
    let url = format!("http://{}/", server.http);
    let mut browser = Browser::open(&program, &scratch, &url).unwrap();
    let shown = "(document.body?.innerText ?? '').includes('default')";
    wait_for("the station's name", Duration::from_secs(20), || browser.run(shown).unwrap() == true);
    let has_player = browser.run("!!document.querySelector('audio')").unwrap();
    assert_eq!(has_player, true, "the page has a player");
    let played = browser.run(&format!("{PLAY}('/listen/default')")).unwrap();
    assert!(played.as_f64().is_some_and(|s| s > 1.0), "played {played} s of 3");
    // The whole station has been running longer; the position is the listener's.
    let jump = "(async () => {
        const audio = document.querySelector('audio');
        const before = audio.currentTime;
        audio.currentTime = before + 600;
        await new Promise(done => setTimeout(done, 4000));
        if (audio.error) throw new Error(audio.error.message);
        return [before, audio.currentTime, audio.paused, audio.readyState];
    })()";
    let after = browser.run(jump).unwrap();
    let seconds = |at: usize| after[at].as_f64().unwrap();
    assert!(seconds(0) < 10.0, "it began at the uptime of the station: {after}");
    assert!((0.5..10.0).contains(&seconds(1)), "it waits for what is ahead: {after}");
    assert!(after[2] == false && seconds(3) >= 2.0, "{after}");
    browser.run("location.hash = '#/rooms'").unwrap();
    let health = "[...document.querySelectorAll('.health')].map(one => one.textContent).join()";
    wait_for("how each client does", Duration::from_secs(20), || {
        let shown = browser.run(health).unwrap();
        let shown: Vec<&str> = shown.as_str().unwrap_or_default().split(',').collect();
        shown.len() == 2 && shown.iter().all(|one| one.ends_with(" ms"))
    });
    let picture = browser.screenshot().unwrap();
    assert!(picture.starts_with(b"\x89PNG"), "{} bytes", picture.len());
    // Kept for inspection, beside the tested program.
    let kept = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap();
    std::fs::write(kept.join("page.png"), picture).unwrap();
    let loud = browser.run(
        "performance.getEntriesByType('resource').every(e => e.name.startsWith(location.origin))",
    );
    assert_eq!(loud.unwrap(), true, "the page fetches from its own server only");
    drop(browser);
    clients.end();
    server.stop().unwrap();
}
