//! Announcements in a server that plays: what controllers hear, and what listeners do.

use crate::common::{Playing, resolve, scratch, wave, waves};
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
fn an_announcement_plays_over_the_programme_and_is_notified() {
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
fn an_unplayable_announcement_has_a_reason_and_a_cancelled_one_ends() {
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
    assert!(ended(noise)["reason"].as_str().unwrap().contains("not an audio file"));
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
        (json!({ "station": "hall", "uri": "file:///etc/hostname" }), "`streams.roots`"),
        (json!({ "station": "hall", "uri": "process:///bin/ls" }), "a file"),
        (json!({ "station": "hall", "uri": "tone://" }), "a file"),
        (json!({ "station": "hall", "uri": looped }), "ends"),
        (json!({ "station": "hall", "uri": "bell" }), "not a source"),
        (json!({ "station": "hall", "uri": good, "duck_db": -3 }), "-6"),
        (json!({ "station": "hall", "group": "x", "uri": good }), "not both"),
        (json!({ "uri": good }), "`station`"),
        (json!({ "station": "hall" }), "`uri`"),
        (
            json!({ "station": "attic", "uri": good }),
            "there is no station `attic`; there is `hall`",
        ),
        (json!({ "group": "attic", "uri": good }), "Group not found"),
    ] {
        let error = caller.call("Aulos.Announce", params.clone())["error"].to_string();
        assert!(error.contains(why), "{params}: {error}");
    }
}

/// Two and a half seconds of noise that swells and fades like speech, about -33 LUFS from two
/// loudspeakers.
fn quiet_voice() -> Vec<i16> {
    let mut noise = 1u32;
    (0..120_000u32)
        .map(|n| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [_, _, _, high] = noise.to_le_bytes();
            let swell = (f64::from(n) / 3_000.0).sin().abs();
            #[allow(clippy::cast_possible_truncation, reason = "far below full scale")]
            let sample = (swell * (f64::from(high) - 127.5) * 10.0) as i16;
            sample
        })
        .collect()
}

/// Integrated loudness of stereo sound, as FFmpeg measures it.
fn judge(name: &str, samples: &[f32]) -> f64 {
    let path = scratch().join(name);
    #[allow(clippy::cast_possible_truncation, reason = "it came as such samples")]
    let samples: Vec<i16> = samples.iter().map(|sample| (sample * 32_768.0) as i16).collect();
    std::fs::write(&path, waves(&samples, 2)).unwrap();
    let output = std::process::Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-i"])
        .arg(&path)
        .args(["-af", "ebur128", "-f", "null", "-"])
        .output()
        .expect("this test needs ffmpeg: install it (apt-get install ffmpeg)");
    std::fs::remove_file(path).unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap();
    summary.split("I:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_quiet_voice_is_as_loud_as_its_station_is_normalized_to() {
    let folder = scratch();
    let voice = quiet_voice();
    std::fs::write(folder.join("voice.wav"), wave(&voice)).unwrap();
    std::fs::write(folder.join("silence.wav"), wave(&[0; 48_000])).unwrap();
    let station = format!(
        "[[station]]\nname = \"level\"\ncodec = \"pcm\"\nnormalize = {{ target = -18.0 }}\n\
         sources = [\"file://{}/silence.wav?loop=true\"]\n",
        folder.display()
    );
    let server = Playing::start(resolve(&(config(folder.to_str().unwrap()) + &station)));
    let mut caller = server.controller();
    // One listener for all: another one would hear a second of what was before.
    let mut sound = server.listen("level");
    let uri = format!("file://{}/voice.wav", folder.display());
    let as_it_is: Vec<f32> =
        voice.iter().flat_map(|sample| [f32::from(*sample) / 32_768.0; 2]).collect();
    let own = judge("own.wav", &as_it_is);
    for (more, wanted) in [
        (json!({}), -18.0),
        (json!({ "gain_db": -6, "duck_db": -6 }), -24.0),
        // It gives away a tenth to the programme.
        (json!({ "normalize": false, "duck_db": -20 }), own - 0.9),
    ] {
        let mut params = json!({ "station": "level", "uri": uri });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(caller.call("Aulos.Announce", params.clone())["result"]["id"].is_u64());
        let (mut heard, mut said) = (Vec::new(), 0);
        // All of it, and then a quarter of a second of silence.
        while said < 2 * 100_000 || heard[heard.len() - 24_000..].iter().any(|s: &f32| *s != 0.0) {
            let samples = sound.samples(4_800);
            said += samples.iter().filter(|sample| **sample != 0.0).count();
            heard.extend(samples);
            assert!(heard.len() < 2 * 48_000 * 60, "{said}");
        }
        // Without the silence around it, which the gate would not leave out of the first and last 400 ms.
        let begin = heard.iter().position(|sample| *sample != 0.0).unwrap();
        let end = heard.iter().rposition(|sample| *sample != 0.0).unwrap();
        let loudness = judge("heard.wav", &heard[begin / 2 * 2..end / 2 * 2 + 2]);
        assert!((loudness - wanted).abs() < 0.3, "{params}: {loudness}, not {wanted}");
    }
    let wrong = json!({ "station": "level", "uri": uri, "gain_db": 21 });
    let refused = caller.call("Aulos.Announce", wrong);
    assert!(refused["error"]["data"].to_string().contains("-40 to 20"), "{refused}");
}
