//! Announcements in a server that plays: what controllers hear, and what listeners do.

use crate::common::{Playing, resolve, scratch, wave};
use serde_json::json;

fn config(roots: &str) -> String {
    format!(
        r#"
        [listen]
        stream = 0
        control = 0
        http = 0
        [streams]
        roots = ["{roots}"]
        [[station]]
        name = "hall"
        codec = "pcm"
        sources = ["tone://?dbfs=-40"]
        "#
    )
}

#[test]
fn a_bell_is_heard_over_the_programme_and_everybody_is_told() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 14_400])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let (mut caller, mut other) = (server.controller(), server.controller());
    let mut sound = server.listen("hall");
    let uri = format!("file://{}/bell.wav", folder.display());
    assert!(sound.samples(9_600).iter().all(|sample| sample.abs() < 0.02), "the tone alone");
    let params = json!({ "station": "hall", "uri": uri, "duck_db": -20 });
    let answer = caller.call("Aulos.Announce", params.clone());
    assert_eq!(answer["result"], json!({ "id": 1, "station": "hall", "before": 0 }));
    assert_eq!(caller.call("Aulos.Announce", params)["result"]["before"], 1);
    let status = other.call("Aulos.GetStatus", json!({}));
    let shown = &status["result"]["stations"][0]["announcements"];
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
    assert_eq!((&shown[1]["id"], &shown[1]["duck_db"]), (&json!(2), &json!(-20.0)));

    // 0.5 beside a programme that is lowered by 20 dB: nine tenths of it are left.
    let said = |samples: &[f32]| samples.iter().filter(|sample| **sample > 0.4).count();
    let (mut heard, mut loudest) = (0, 0.0f32);
    while heard < 2 * 2 * 14_000 {
        let samples = sound.samples(1_920);
        heard += said(&samples);
        loudest = samples.into_iter().fold(loudest, f32::max);
    }
    assert!((loudest - 0.45).abs() < 0.01, "{loudest}");
    for controller in [&mut caller, &mut other] {
        for (id, state) in [(1, "began"), (1, "ended"), (2, "began"), (2, "ended")] {
            let notice = controller.notice_of("Aulos.OnAnnouncement")["params"].clone();
            assert_eq!((&notice["id"], &notice["state"]), (&json!(id), &json!(state)));
            assert_eq!((&notice["station"], &notice["uri"]), (&json!("hall"), &json!(uri)));
        }
    }
    let status = other.call("Aulos.GetStatus", json!({}));
    assert_eq!(status["result"]["stations"][0]["announcements"], json!([]));
}

#[test]
fn one_that_cannot_be_heard_says_why_and_one_that_is_cancelled_is_gone() {
    let folder = scratch();
    std::fs::write(folder.join("noise.wav"), [7; 5_000]).unwrap();
    std::fs::write(folder.join("long.wav"), wave(&vec![1_000; 48_000 * 60])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let mut announce = |file: &str| {
        let uri = format!("file://{}/{file}", folder.display());
        caller.call("Aulos.Announce", json!({ "station": "hall", "uri": uri }))["result"]["id"]
            .as_u64()
            .unwrap()
    };
    let (noise, gone, long) = (announce("noise.wav"), announce("gone.wav"), announce("long.wav"));
    let mut ended = |id: u64| loop {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["state"] == "began" {
            assert_eq!(notice["id"], long);
            let cancelled = caller.call("Aulos.CancelAnnouncement", json!({ "station": "hall" }));
            assert_eq!(cancelled["result"], json!({ "cancelled": [long] }));
        } else {
            assert_eq!(notice["id"], id);
            return notice;
        }
    };
    assert!(ended(noise)["reason"].as_str().unwrap().contains("not sound"));
    assert!(ended(gone)["reason"].as_str().unwrap().contains("no such file"));
    assert_eq!(ended(long)["cause"], "cancelled");
    let nothing = caller.call("Aulos.CancelAnnouncement", json!({ "id": long }));
    assert_eq!(nothing["result"], json!({ "cancelled": [] }));
}

#[test]
fn what_a_call_must_not_have_opened_is_refused() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[0; 480])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let good = format!("file://{}/bell.wav", folder.display());
    let looped = format!("{good}?loop=true");
    for (params, why) in [
        (json!({ "station": "hall", "uri": "file:///etc/hostname" }), "`roots`"),
        (json!({ "station": "hall", "uri": "process:///bin/ls" }), "a file"),
        (json!({ "station": "hall", "uri": "tone://" }), "a file"),
        (json!({ "station": "hall", "uri": looped }), "ends"),
        (json!({ "station": "hall", "uri": "bell" }), "not a source"),
        (json!({ "station": "hall", "uri": good, "duck_db": -3 }), "-6"),
        (json!({ "station": "hall", "group": "x", "uri": good }), "not both"),
        (json!({ "uri": good }), "`station`"),
        (json!({ "station": "hall" }), "`uri`"),
        (json!({ "station": "attic", "uri": good }), "Stream not found"),
        (json!({ "group": "attic", "uri": good }), "Group not found"),
    ] {
        let error = caller.call("Aulos.Announce", params.clone())["error"].to_string();
        assert!(error.contains(why), "{params}: {error}");
    }
}
