//! The history of loudness: what survives a kill and a full disk, what the API answers, and the
//! plot of the page.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_blackbox::browser::Browser;
use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::http;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::state::{fill, on_a_disk_of_its_own, remount};
use crate::{hear, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
const TONE: &str = "[history]\nmax_loss_s = 1\n\
    [[station]]\nname = \"kitchen\"\nsources = [\"tone://\"]\n";

fn ask(server: SocketAddr, query: &str) -> (u16, String) {
    let (status, body) =
        http::get(server, &format!("/api/v1/stations/kitchen/history{query}")).unwrap();
    (status, String::from_utf8(body).unwrap())
}

fn series(server: SocketAddr, query: &str) -> Value {
    let (status, body) = ask(server, query);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Times of the points that were measured.
fn measured(series: &Value) -> Vec<u64> {
    let (start, step) = (series["start"].as_u64().unwrap(), series["step_s"].as_u64().unwrap());
    let shares = series["columns"]["measured"].as_array().unwrap().iter();
    let times = (start..).step_by(usize::try_from(step).unwrap());
    times.zip(shares).filter(|(_, share)| share.as_f64() > Some(0.0)).map(|(at, _)| at).collect()
}

fn counter(server: SocketAddr, name: &str) -> u64 {
    let (_, body) = http::get(server, "/api/v1/status").unwrap();
    serde_json::from_slice::<Value>(&body).unwrap()["counters"][name].as_u64().unwrap()
}

#[test]
fn a_killed_server_has_its_history_up_to_the_promised_loss_and_a_stopped_one_all() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("history").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    wait_for("eight seconds", PATIENCE, || measured(&series(server.http, "?from=-60")).len() >= 8);
    let before = series(server.http, "?from=-60");
    let level = before["columns"]["momentary_max_lufs"].as_array().unwrap();
    let last = level.iter().rev().find_map(Value::as_f64).unwrap();
    assert!((-30.0..-10.0).contains(&last), "{level:?}");
    assert_eq!((&before["tier"], &before["step_s"]), (&json!("1s"), &json!(1)));
    let killed = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    let before = measured(&before);
    drop(server);

    let server = AulosServer::start(&scratch, TONE).unwrap();
    let found = measured(&series(server.http, "?from=-90"));
    // The tail of each second, that second itself, and a busy machine.
    let lost = before.iter().filter(|time| !found.contains(time)).count();
    assert!(lost <= 3, "{lost} of {} seconds: {before:?} {found:?}", before.len());
    wait_for("two more seconds", PATIENCE, || {
        measured(&series(server.http, "?from=-90")).len() >= found.len() + 2
    });
    let before = measured(&series(server.http, "?from=-90"));
    server.stop().unwrap();

    let exported = Command::new(binary())
        .args(["history", "export", "--step", "1s", "--format", "jsonl"])
        .arg(scratch.join("state"))
        .output()
        .unwrap();
    assert!(exported.status.success(), "{exported:?}");
    let rows = String::from_utf8(exported.stdout).unwrap();
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert!(rows.len() >= before.len(), "{} rows of {}", rows.len(), before.len());
    assert!(rows.iter().all(|row| row["station"] == "kitchen" && row["stopped"] == false));
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let found = measured(&series(server.http, "?from=-120"));
    assert!(before.iter().all(|time| found.contains(time)), "{before:?} {found:?}");
    server.stop().unwrap();
}

#[test]
fn the_api_has_limits_and_roles_and_a_history_that_is_off_is_not_there() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("history-api").unwrap();
    let config = format!(
        "{TONE}[[user]]\nname = \"a\"\npassword = \"long secret\"\nrole = \"listen\"\n\
         [access]\nanonymous = \"none\"\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    assert_eq!(ask(server.http, "").0, 401);
    server.stop().unwrap();

    let server = AulosServer::start(&scratch, TONE).unwrap();
    for (query, expected) in [
        ("?points=2001", "`points` must be a number from 1 to 2000"),
        ("?from=10&to=5", "`from` has to be before `to`"),
        ("?from=now", "`from` must be a whole number"),
        ("?last=5", "unknown parameter `last`"),
        ("?from=1&to=4000000000", "the range is longer than"),
    ] {
        let (status, body) = ask(server.http, query);
        assert!(status == 400 && body.starts_with(expected), "{query}: {status} {body}");
    }
    let path = "/api/v1/stations/nowhere/history";
    assert_eq!(http::get(server.http, path).unwrap().0, 404);
    let widest = series(server.http, "?from=-300000000&points=2000");
    assert!(widest["columns"]["flags"].as_array().unwrap().len() <= 2_001, "{widest}");
    for column in widest["columns"].as_object().unwrap().values() {
        assert_eq!(
            column.as_array().unwrap().len(),
            widest["columns"]["flags"].as_array().unwrap().len()
        );
    }
    server.stop().unwrap();

    let off = TONE.replace("max_loss_s = 1", "enabled = false");
    let server = AulosServer::start(&scratch, &off).unwrap();
    let (status, body) = ask(server.http, "");
    assert!(status == 404 && body.contains("`history.enabled` is false"), "{status} {body}");
    server.stop().unwrap();
}

#[test]
fn a_full_disk_costs_no_sound_and_is_counted_and_logged_once() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("history-full").unwrap();
    fs::create_dir(scratch.join("state")).unwrap();
    let Some(server) = on_a_disk_of_its_own(&scratch, TONE) else {
        return skip("mount namespaces");
    };
    let disk = PathBuf::from(format!("/proc/{}/root", server.id()))
        .join(scratch.join("state").strip_prefix("/").unwrap());
    let mut client = ListenerClient::connect(server.stream, 1).unwrap();
    let failures = || counter(server.http, "history_not_written");
    wait_for("the first tail", PATIENCE, || {
        hear(&mut client) && disk.join("history/tail").exists()
    });
    fill(&disk.join("filler"));
    let before = failures();
    wait_for("failing writes", PATIENCE, || hear(&mut client) && failures() > before + 1);
    fs::remove_file(disk.join("filler")).unwrap();
    wait_for("room", PATIENCE, || {
        hear(&mut client) && server.printed().unwrap().contains("writing the history works again")
    });
    let before = failures();
    remount(&server, &scratch.join("state"), "ro");
    wait_for("failing writes", PATIENCE, || hear(&mut client) && failures() > before + 1);
    remount(&server, &scratch.join("state"), "rw");
    // Deleted under the server: it begins anew.
    fs::remove_dir_all(disk.join("history")).unwrap();
    wait_for("a tail", PATIENCE, || hear(&mut client) && disk.join("history/tail").exists());
    let said = server.printed().unwrap();
    assert_eq!(said.matches("cannot write the history").count(), 2, "{said}");
    assert!(measured(&series(server.http, "?from=-60")).len() >= 4);
    assert_eq!((client.stats.gaps, client.stats.cut), (0, false), "{:?}", client.stats);
    server.stop().unwrap();
}

/// CRC-32 as in the documentation of the format, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    })
}

/// Appends a block to a day file.
fn push_block(file: &mut Vec<u8>, kind: u8, count: usize, start: u64, body: &[u8]) {
    let mut block = vec![0, 0, u8::try_from(count).unwrap(), kind];
    block.extend(u32::try_from(start).unwrap().to_le_bytes());
    block.extend(body);
    block.resize(968, 0);
    file.extend(crc32(&block).to_le_bytes());
    file.extend(block);
}

/// Writes minutes of `kitchen` from `from` to `to` as the documentation of the format says; `level`
/// gives flags, and M in LUFS.
pub(crate) fn write_minutes(
    state: &Path,
    (from, to): (u64, u64),
    level: impl Fn(u64) -> (u8, f64),
) {
    let folder = state.join("history/1min");
    fs::create_dir_all(&folder).unwrap();
    for day in from / 86_400..=to / 86_400 {
        let mut file = b"aulos.ah\x01\x02\0\0\0\0\0\0".to_vec();
        push_block(&mut file, 255, 7, 0, b"kitchen");
        for hour in (0..24).map(|hour| day * 86_400 + hour * 3_600) {
            let mut body = Vec::new();
            for time in (0..60).map(|minute| hour + 60 * minute) {
                let (flags, m) = level(time);
                #[allow(clippy::cast_possible_truncation, reason = "levels")]
                let figures = [m, m - 9.0, m - 4.0, -23.0, 6.5, m + 11.0, -2.5]
                    .map(|figure| (figure * 100.0) as i16);
                let within = (from..to).contains(&time);
                body.extend(figures.iter().flat_map(|figure| figure.to_le_bytes()));
                body.extend([flags, if within { 6 } else { 0 }]);
            }
            push_block(&mut file, 2, 60, hour, &body);
        }
        let name = Command::new("date")
            .args(["-u", "-d", &format!("@{}", day * 86_400), "+%Y-%m-%d.ah"])
            .output()
            .unwrap();
        fs::write(folder.join(String::from_utf8(name.stdout).unwrap().trim()), file).unwrap();
    }
}

fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, PATIENCE, || browser.run(expression).unwrap() == true);
}

#[test]
fn the_page_draws_a_day_of_history_within_200_ms() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("history-page").unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let minutes = |time: u64| {
        let swing = f64::from(u32::try_from(time / 60 % 37).unwrap()) / 6.0;
        let flags = match now.saturating_sub(time) / 3_600 {
            8 => 1,
            14 => 4,
            _ => 0,
        };
        (flags, -20.0 + swing)
    };
    write_minutes(&scratch.join("state"), (now - 86_400, now - 120), minutes);
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/station/kitchen?range=24h", server.http)).unwrap();
    // It has been drawn: the area of M stands out of its ground.
    let painted = "(() => {
        const canvas = document.querySelector('.plot canvas');
        if (!canvas || performance.getEntriesByName('history 86400').length === 0) return false;
        const copy = new OffscreenCanvas(canvas.width, canvas.height);
        const context = copy.getContext('2d', { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        const { data } = context.getImageData(canvas.width / 2, 0, 1, canvas.height);
        return new Set(Array.from({ length: canvas.height }, (_, y) =>
            data.slice(4 * y, 4 * y + 4).join())).size > 5;
    })()";
    until(&mut browser, painted);
    let legend = "document.querySelector('.legend').innerText";
    until(
        &mut browser,
        &format!("{legend}.includes('on fallback') && {legend}.includes('silent')"),
    );
    // Of several, because the first one shares the machine with the start of the page.
    for range in ["1 h", "24 h", "7 d", "24 h", "10 min", "24 h"] {
        let click = format!(
            "[...document.querySelectorAll('.history a')].find(one => one.textContent === '{range}').click()"
        );
        browser.run(&click).unwrap();
        let pressed =
            format!("document.querySelector('.history [aria-current]').textContent === '{range}'");
        until(&mut browser, &pressed);
        std::thread::sleep(Duration::from_millis(300));
    }
    let drawn = browser
        .run("performance.getEntriesByName('history 86400').map(one => one.duration)")
        .unwrap();
    let mut drawn: Vec<f64> = drawn.as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    drawn.sort_by(f64::total_cmp);
    println!("24 h asked for and drawn in ms: {drawn:.0?}");
    assert!(drawn.len() >= 3 && drawn[drawn.len() / 2] < 200.0, "{drawn:?}");
    keys_and_a_drag_zoom(&mut browser);
    let picture = browser.screenshot().unwrap();
    let kept = std::env::current_exe().unwrap().ancestors().nth(3).map(PathBuf::from).unwrap();
    fs::write(kept.join("page-history.png"), picture).unwrap();
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}

fn keys_and_a_drag_zoom(browser: &mut Browser) {
    // Keys move the cursor and zoom; the address has the range, and the server is asked for it.
    browser.run("document.querySelector('.plot').focus()").unwrap();
    for key in ["ArrowLeft", "ArrowLeft", "+"] {
        let press = format!(
            "document.querySelector('.plot').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"
        );
        browser.run(&press).unwrap();
    }
    until(browser, "/from=\\d+&to=\\d+$/.test(location.hash)");
    until(browser, "performance.getEntriesByName('history 43200').length > 0");
    let value = "document.querySelector('.plot').ariaValueText";
    until(browser, &format!("{value}.includes('M ') && {value}.includes('peak')"));
    // A drag over the middle third.
    let drag = "(() => {
        const box = document.querySelector('.plot').getBoundingClientRect();
        return [box.left + 34 + (box.width - 36) / 3, box.left + 34 + (box.width - 36) * 2 / 3, box.top + 80];
    })()";
    let points = browser.run(drag).unwrap();
    for (kind, x) in [("mousePressed", 0), ("mouseMoved", 1), ("mouseReleased", 1)] {
        let event = json!({
            "type": kind, "x": points[x], "y": points[2], "button": "left", "buttons": 1, "clickCount": 1,
        });
        browser.call("Input.dispatchMouseEvent", &event).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    until(
        browser,
        "(([from, to]) => Math.abs(to - from - 14400) < 300)(location.hash.match(/\\d{9,}/g))",
    );
    browser.run("document.querySelector('.history details').open = true").unwrap();
    until(browser, "document.querySelectorAll('.history tbody tr').length >= 10");
    browser.run("history.back()").unwrap();
    until(browser, "performance.getEntriesByName('history 43200').length > 1");
    browser.run("history.back()").unwrap();
    until(browser, "location.hash.endsWith('?range=24h')");
}
