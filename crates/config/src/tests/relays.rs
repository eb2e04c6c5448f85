//! `[[relay]]`.

use super::*;

#[test]
fn a_relay_has_ports_and_codecs() {
    let text = r#"
[[relay]]
name = "calls"
listen = "udp://0.0.0.0:6000-6999"
from = "pcmu"
to = "PCMA"
dest = "udp://192.0.2.7:7000"
[[relay]]
listen = "udp://[::1]:5004"
from = "l24/48000/2:98"
to = "opus:111"
dest = "udp://[2001:db8::7]:5004"
hold_ms = 20
rtcp = false
opus_complexity = 0
[[relay]]
name = "two ways"
listen = "udp://127.0.0.1:5004"
also = "udp://127.0.0.2:5004"
from = "opus:97"
to = "opus:96"
dest = "udp://192.0.2.7:5004"
dtmf = "101:100"
red_from = 98
red_to = 99
red_distance = 2
opus_fec = true
[[relay]]
name = "keys"
listen = "udp://127.0.0.1:7100"
from = "pcmu"
to = "pcma"
dest = "udp://192.0.2.7:5004"
dtmf = 101
"#;
    let relays = load_text(text, &[]).unwrap_or_else(|error| panic!("{error}")).relays;
    golden("relays", &format!("{relays:#?}\n"));
    let shown: Vec<String> =
        relays.iter().map(|relay| format!("{} -> {}", relay.listen, relay.dest)).collect();
    assert_eq!(
        shown,
        [
            "udp://0.0.0.0:6000-6999 -> udp://192.0.2.7:7000",
            "udp://[::1]:5004 -> udp://[2001:db8::7]:5004",
            "udp://127.0.0.1:5004 -> udp://192.0.2.7:5004",
            "udp://127.0.0.1:7100 -> udp://192.0.2.7:5004"
        ]
    );
}

#[test]
fn a_trunk_has_one_port_at_each_end_and_a_range_behind_it() {
    let text = r#"
[[relay]]
listen = "udp://0.0.0.0:6000-6999"
from = "pcmu"
to = "pcmu"
dest = "trunk://192.0.2.7:7000"
[[relay]]
listen = "trunk://0.0.0.0:7000"
from = "pcmu"
to = "pcma"
dest = "udp://127.0.0.1:6000-6999"
"#;
    let relays = load_text(text, &[]).unwrap_or_else(|error| panic!("{error}")).relays;
    let places: Vec<String> =
        relays.iter().map(|relay| format!("{} -> {}", relay.listen, relay.dest)).collect();
    assert_eq!(
        places,
        [
            "udp://0.0.0.0:6000-6999 -> trunk://192.0.2.7:7000",
            "trunk://0.0.0.0:7000 -> udp://127.0.0.1:6000-6999"
        ]
    );
}

const WRONG_RELAYS: &str = r#"
[[relay]]
[[relay]]
listen = "udp://0.0.0.0:6000-6999"
from = "pcmx"
to = "opus/16000"
dest = "udp://192.0.2.7:0"
[[relay]]
listen = "tcp://0.0.0.0:6000"
from = "pcmu:8"
to = "l16/48000/9"
dest = "udp://192.0.2.7:7100-7000"
[[relay]]
name = "one"
listen = "udp://0.0.0.0:6000-6009"
from = "pcmu"
to = "pcma"
dest = "udp://192.0.2.7:7000-7004"
[[relay]]
name = "two"
listen = "udp://0.0.0.0:6000-6009"
from = "pcmu"
to = "pcma"
dest = "udp://192.0.2.7:7000"
[[relay]]
name = "two"
listen = "udp://127.0.0.1:6009"
from = "opus:0"
to = "pcma/8000/1/1"
dest = "udp://:7000"
[[relay]]
listen = "udp://127.0.0.1:6009"
from = "opus"
to = "pcma"
dest = "udp://localhost:7000"
hold_ms = 5000
[[relay]]
listen = "udp://127.0.0.1:9000"
also = "udp://127.0.0.1:9001-9002"
from = "opus:97"
to = "opus"
dest = "udp://localhost:7000"
dtmf = 97
red_from = 97
red_to = 96
[[relay]]
listen = "udp://127.0.0.1:9010"
also = "udp://0.0.0.0:9010"
from = "pcmu"
to = "pcma"
dest = "udp://localhost:7000"
red_from = 5
red_distance = 2
opus_fec = true
[[relay]]
listen = "udp://127.0.0.1:9020"
also = "udp://mars:9022"
from = "pcmu"
to = "pcma"
dest = "udp://localhost:7000"
dtmf = "a:b"
[[relay]]
listen = "trunk://0.0.0.0:7000-7009"
from = "pcmu"
to = "pcma"
dest = "udp://localhost:8000"
[[relay]]
listen = "udp://0.0.0.0:9000"
from = "pcmu"
to = "pcma"
dest = "trunk://192.0.2.7:7000"
symmetric = true
"#;

#[test]
fn what_is_wrong_with_a_relay_is_named_with_its_place() {
    golden("relay_wrong", &first_problem(WRONG_RELAYS, &[]));
}
