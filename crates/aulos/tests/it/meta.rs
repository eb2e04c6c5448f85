//! Streams that play others, in a server that plays.

use crate::common::{ANY_PORTS, Playing, eventually, resolve, scratch, wave};
use serde_json::{Value, json};

fn station(name: &str, sources: &str) -> String {
    format!("[[station]]\nname = \"{name}\"\ncodec = \"pcm\"\nsources = [{sources}]\n")
}

/// What the station plays, by its source's name.
fn active(status: &Value, station: &str) -> Option<String> {
    let stations = status["result"]["stations"].as_array()?;
    let found = stations.iter().find(|one| one["name"] == station)?;
    found["active"].as_str().map(str::to_owned)
}

#[test]
fn a_meta_stream_plays_the_first_active_station_and_finds_a_restarted_one() {
    let folder = scratch();
    let bell = folder.join("bell.wav");
    std::fs::write(&bell, wave(&[16_384; 96_000])).unwrap();
    let file = format!("\"file://{}\"", bell.display());
    let text = |bell: &str| {
        ANY_PORTS.to_owned()
            + &station("all", "\"meta:///bell/tone/\"")
            + &station("bell", bell)
            + &station("tone", "\"tone://?dbfs=-40\"")
    };
    let server = Playing::start(resolve(&text(&file)));
    let mut caller = server.controller();
    let mut sound = server.listen("all");
    let mut plays = |wanted: &str| {
        eventually(|| {
            let status = caller.call("Aulos.GetStatus", json!({}));
            active(&status, "all").as_deref() == Some(wanted)
        });
    };
    // The file ends after two seconds, and the second in the list takes over.
    let mut heard = 0;
    while heard < 2 * 90_000 {
        heard += sound.samples(1_920).iter().filter(|sample| **sample > 0.4).count();
    }
    plays("tone");
    let longer = format!("\"file://{}?loop=true\"", bell.display());
    server.next(resolve(&text(&longer)));
    let mut other = server.controller();
    let reloaded = other.call("Aulos.Reload", json!({}));
    assert_eq!(reloaded["result"]["changed"], json!(["bell"]), "{reloaded}");
    plays("bell");
}

#[test]
fn meta_streams_can_be_added_but_no_cycles() {
    let text = ANY_PORTS.to_owned() + &station("one", "\"tone://?dbfs=-40\"");
    let server = Playing::start(resolve(&text));
    let mut caller = server.controller();
    let mut add = |uri: &str| {
        let answer = caller.call("Stream.AddStream", json!({ "streamUri": uri }));
        answer.get("error").map(ToString::to_string)
    };
    assert_eq!(add("meta:///one?name=two words"), None);
    assert_eq!(add("meta:///two%20words/one?name=three&codec=pcm"), None);
    assert!(add("meta:///nobody?name=four").unwrap().contains("no stream `nobody`"));
    assert!(add("meta:///five?name=five").unwrap().contains("play itself"));
    assert!(add("meta:///?name=six").unwrap().contains("names no station"));
    let mut other = server.controller();
    eventually(|| {
        let status = other.call("Aulos.GetStatus", json!({}));
        active(&status, "three").as_deref() == Some("two words")
    });
    // What it played is gone; the next one in its list goes on.
    other.call("Stream.RemoveStream", json!({ "id": "two words" }));
    eventually(|| {
        let status = other.call("Aulos.GetStatus", json!({}));
        active(&status, "three").as_deref() == Some("one")
    });
    // One that would now close the ring is refused.
    let uri = json!({ "streamUri": "meta:///three?name=two words" });
    let answer = other.call("Stream.AddStream", uri);
    assert!(answer["error"].to_string().contains("play itself"), "{answer}");
}
