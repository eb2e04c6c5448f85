//! The sound of a client on the page, in a real browser.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::wire;
use serde_json::json;

use crate::page_operation::{FINDINGS, axe_or_skip, click, says, until};
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_preset_a_band_and_a_text_are_set_on_the_page() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("page-sound").unwrap();
    let server =
        AulosServer::start(&scratch, "[[station]]\nname = \"hall\"\nsources = [\"tone://\"]\n")
            .unwrap();
    let mut client = TcpStream::connect(server.stream).unwrap();
    client.write_all(&wire::hello(0)).unwrap();
    let address = format!("http://{}/#/rooms", server.http);
    let mut browser = Browser::open(&program, &scratch, &address).unwrap();
    until(&mut browser, "!!document.querySelector('details.sound')");
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true); 0").unwrap();
    says(&mut browser, "No processing");
    click(&mut browser, "bass");
    says(&mut browser, "Preamplification \u{2212}4.99 dB, peak 0 dB");
    until(&mut browser, "document.querySelectorAll('.response .first').length === 1");
    click(&mut browser, "Add a band");
    until(&mut browser, "document.querySelectorAll('.bands li').length === 2");
    let text = "Hello\\nFilter: ON HP Fc 40 Hz";
    browser.run(&format!("document.querySelector('.import textarea').value = '{text}'")).unwrap();
    click(&mut browser, "Preview");
    says(&mut browser, "Line 1: unknown line, ignored: `Hello`");
    says(&mut browser, "(preview)");
    let mut rpc = Rpc::connect(server.control);
    let status = rpc.status();
    let id = status["groups"][0]["clients"][0]["id"].clone();
    let mut bands = || {
        let sound = rpc.call("Aulos.GetClientSound", &json!({ "client": id }));
        sound["chain"]["both"]["bands"].clone()
    };
    assert_eq!(bands()[1]["type"], "peaking", "a preview changes nothing");
    click(&mut browser, "Apply the text");
    says(&mut browser, "Preamplification 0 dB");
    assert_eq!(bands()[0]["type"], "high-pass");
    click(&mut browser, "Left, right");
    says(&mut browser, "plays a test tone: Left, right, 10 s");
    let announcements = |rpc: &mut Rpc| {
        let status = rpc.call("Aulos.GetStatus", &json!({}));
        status["stations"][0]["announcements"].clone()
    };
    let tones = announcements(&mut rpc);
    assert_eq!((&tones[0]["uri"], &tones[0]["client"]), (&json!("test-tone:identify"), &id));
    click(&mut browser, "Stop the tone");
    wait_for("the end of the tone", PATIENCE, || announcements(&mut rpc) == json!([]));
    if let Some(axe) = axe_or_skip() {
        browser.run(&format!("{axe}; 0")).unwrap();
        assert_eq!(browser.run(FINDINGS).unwrap(), json!([]));
    }
    drop(client);
    server.stop().unwrap();
}
