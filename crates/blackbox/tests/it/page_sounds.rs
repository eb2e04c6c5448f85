//! Sounds for announcements: uploaded by a program and by the page, chosen, announced and deleted.

use std::fs;
use std::net::SocketAddr;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::http;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{SampleWidth, write_wav};
use serde_json::{Value, json};

use crate::page_operation::{click, until};
use crate::rpc::Rpc;
use crate::{shared_turn, text};

/// Bytes of a sound; more than are accepted.
const TOO_LONG: usize = (16 << 20) + 1;

fn config(scratch: &ScratchDir, more: &str) -> String {
    let root = scratch.join("bells");
    fs::create_dir_all(&root).unwrap();
    format!(
        "{more}[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"hall\"\n\
         sources = [\"tone://?dbfs=-40\"]\n",
        text(&root)
    )
}

/// Half a second of a tone.
fn wav(scratch: &ScratchDir, name: &str) -> Vec<u8> {
    let path = scratch.join(name);
    let tone = (0..24_000).map(|n| [if n % 100 < 50 { 8_000 } else { -8_000 }; 2]);
    let mut bytes = Vec::new();
    write_wav(&mut bytes, &tone.collect::<Vec<_>>(), SampleWidth::B16).unwrap();
    fs::write(path, &bytes).unwrap();
    bytes
}

fn sounds(server: SocketAddr) -> Vec<Value> {
    let (status, body) = http::get(server, "/api/v1/sounds").unwrap();
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice::<Value>(&body).unwrap()["sounds"].as_array().unwrap().clone()
}

/// Waits for the end of the next announcement, which has been played.
fn played(controller: &mut Rpc) -> String {
    loop {
        let notice = controller.read();
        let params = &notice["params"];
        if notice["method"] == "Aulos.OnAnnouncement" && params["state"] == "ended" {
            assert_eq!((&params["cause"], &params["reason"]), (&json!("played"), &Value::Null));
            return params["uri"].as_str().unwrap().to_owned();
        }
    }
}

#[test]
fn a_sound_is_uploaded_announced_and_deleted() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("sounds").unwrap();
    let config = config(&scratch, "");
    let sound = wav(&scratch, "bells/gong.wav");
    let server = AulosServer::start(&scratch, &config).unwrap();
    let put = |name: &str, body: &[u8]| {
        let path = format!("/api/v1/sounds/{name}");
        let (status, body) = http::request(server.http, "PUT", &path, body).unwrap();
        (status, String::from_utf8(body).unwrap())
    };
    assert_eq!(sounds(server.http).len(), 1);
    let (status, stored) = put("door%20bell.wav", &sound);
    assert_eq!(status, 201, "{stored}");
    let all = sounds(server.http);
    assert_eq!((all[0]["name"].as_str(), all.len()), (Some("door bell.wav"), 2), "{all:?}");
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap(), all[0]);
    assert_eq!(all[1]["url"], Value::Null);
    let url = format!("/{}", all[0]["url"].as_str().unwrap());
    assert_eq!(http::get(server.http, &url).unwrap(), (200, sound.clone()));
    let mut controller = Rpc::connect(server.control);
    for one in &all {
        controller.call("Aulos.Announce", &json!({ "station": "hall", "uri": one["uri"] }));
        assert_eq!(played(&mut controller), one["uri"].as_str().unwrap());
    }
    for (name, body, refusal) in [
        ("door%20bell.wav", &sound[..], 409),
        ("page.html", &sound, 400),
        ("..%2fstate.wav", &sound, 400),
        ("page.wav", b"<html></html>", 415),
        ("long.wav", &vec![0; TOO_LONG], 413),
    ] {
        let (status, why) = put(name, body);
        assert!(status == refusal && !why.is_empty(), "{name}: {status} {why}");
    }
    let delete = |path: &str| http::request(server.http, "DELETE", path, b"").unwrap().0;
    assert_eq!([delete(&url), delete(&url), delete("/api/v1/sounds/gong.wav")], [204, 404, 404]);
    assert_eq!(sounds(server.http).len(), 1);
    server.stop().unwrap();
}

/// Puts a file of these bytes into the page's field for uploads.
fn upload(browser: &mut Browser, name: &str, bytes: &[u8]) {
    let field = "document.querySelector('input[type=file]')";
    until(browser, &format!("!!{field}"));
    let script = format!(
        "(() => {{ const files = new DataTransfer();
           files.items.add(new File([new Uint8Array({})], {}, {{ type: 'audio/wav' }}));
           const field = {field};
           field.files = files.files;
           field.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()",
        json!(bytes),
        json!(name)
    );
    browser.run(&script).unwrap();
}

#[test]
fn the_page_offers_sounds_and_uploads_more() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("page-sounds").unwrap();
    let config = config(&scratch, "");
    let sound = wav(&scratch, "bells/gong.wav");
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut controller = Rpc::connect(server.control);
    controller.call("Server.GetRPCVersion", &json!({}));
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/station/hall", server.http)).unwrap();
    let chosen = "document.querySelector('form select')?.selectedOptions[0]?.textContent";
    until(&mut browser, &format!("{chosen} === 'gong.wav'"));
    click(&mut browser, "Announce");
    assert!(played(&mut controller).ends_with("/bells/gong.wav"));
    // What was uploaded is chosen, and can be deleted.
    upload(&mut browser, "door bell.wav", &sound);
    until(&mut browser, &format!("{chosen} === 'door bell.wav'"));
    let how = "(() => { document.querySelector('form [type=checkbox]').checked = true;
        document.querySelector('form [type=number]').value = '7'; })()";
    browser.run(how).unwrap();
    click(&mut browser, "Announce");
    let announced = loop {
        let status = controller.call("Aulos.GetStatus", &json!({}));
        let first = &status["stations"][0]["announcements"][0];
        if first.is_object() {
            break first.clone();
        }
    };
    assert_eq!(announced["priority"], 7);
    assert!(played(&mut controller).ends_with("/sounds/door%20bell.wav"));
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    // The browser reports the refusal as a fault.
    upload(&mut browser, "page.wav", b"<html></html>");
    until(&mut browser, "document.body.innerText.includes('not a sound file')");
    click(&mut browser, "Delete");
    until(&mut browser, &format!("{chosen} === 'gong.wav'"));
    assert_eq!(sounds(server.http).len(), 1);
    drop(browser);
    server.stop().unwrap();
}
