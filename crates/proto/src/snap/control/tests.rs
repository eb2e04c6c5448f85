//! Requests of real clients, the examples of the standard, and invalid ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn one(text: &str) -> Result<Request, Reply> {
    match parse_incoming(text.as_bytes()) {
        IncomingMessage::Single(one) => one,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> (RequestId, i64) {
    let reply = one(text).unwrap_err();
    (reply.id, reply.outcome.unwrap_err().code)
}

fn lines(pieces: &[&[u8]]) -> Result<Vec<String>, LineError> {
    let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.next_line()? {
            found.push(String::from_utf8_lossy(line).into_owned());
        }
    }
    Ok(found)
}

#[test]
fn what_python_snapcast_sends() {
    let text = r#"{"id":5,"jsonrpc":"2.0","method":"Client.SetVolume","params":{"id":"00:21:6a:7d:74:fc","volume":{"muted":false,"percent":74}}}"#;
    let request = one(text).unwrap();
    assert_eq!(request.method, "Client.SetVolume");
    assert_eq!(request.params["volume"]["percent"], 74);
    let reply = request.reply(Ok(json!({ "volume": { "muted": false, "percent": 74 } }))).unwrap();
    let wanted = json!({
        "jsonrpc": "2.0", "id": 5, "result": { "volume": { "muted": false, "percent": 74 } },
    });
    assert_eq!(serde_json::from_str::<Value>(&reply.to_json()).unwrap(), wanted);
}

#[test]
fn ids_are_echoed_unchanged() {
    for id in ["0", "-7", "1.5", "18446744073709551615", r#""a""#, r#""""#, "null"] {
        let request = one(&format!(r#"{{"id":{id},"method":"m"}}"#)).unwrap();
        let json = request.reply(Ok(Value::Null)).unwrap().to_json();
        assert!(
            json.contains(&format!(r#""id":{id},"#)) || json.contains(&format!(r#""id":{id}}}"#)),
            "{json}"
        );
    }
    assert_eq!(one(r#"{"method":"m"}"#).unwrap().reply(Ok(Value::Null)), None);
    assert_eq!(refused(r#"{"id":[],"method":"m"}"#), (RequestId::Null, code::INVALID_REQUEST));
}

#[test]
fn bad_requests_get_the_standards_codes() {
    let number = |number: i64| RequestId::Number(number.into());
    assert_eq!(refused("{\"jsonrpc\": \"2.0\", \"method\""), (RequestId::Null, code::PARSE_ERROR));
    assert_eq!(refused(&"[".repeat(1_000)), (RequestId::Null, code::PARSE_ERROR));
    assert_eq!(refused("[]"), (RequestId::Null, code::INVALID_REQUEST));
    assert_eq!(refused("1"), (RequestId::Null, code::INVALID_REQUEST));
    assert_eq!(refused(r#"{"id":1,"method":1}"#), (number(1), code::INVALID_REQUEST));
    assert_eq!(
        refused(r#"{"id":2,"jsonrpc":"1.0","method":"m"}"#),
        (number(2), code::INVALID_REQUEST)
    );
    assert_eq!(
        refused(r#"{"id":3,"method":"m","params":"x"}"#),
        (number(3), code::INVALID_REQUEST)
    );
    let many = format!("[{}1]", "1,".repeat(MAX_BATCH));
    assert_eq!(refused(&many), (RequestId::Null, code::INVALID_REQUEST));
}

#[test]
fn a_batch_keeps_its_order_and_its_faults() {
    let text = r#"[{"id":1,"method":"a"},1,{"method":"b"},{"id":"2","method":"c"}]"#;
    let IncomingMessage::Batch(calls) = parse_incoming(text.as_bytes()) else { panic!("no batch") };
    let replies: Vec<_> = calls
        .into_iter()
        .filter_map(|call| match call {
            Ok(request) => request.reply(Ok(json!("ok"))),
            Err(reply) => Some(reply),
        })
        .collect();
    let json: Value = serde_json::from_str(&Reply::batch_to_json(&replies).unwrap()).unwrap();
    let ids: Vec<_> = json.as_array().unwrap().iter().map(|reply| reply["id"].clone()).collect();
    assert_eq!(ids, [json!(1), Value::Null, json!("2")]);
    assert_eq!(json[1]["error"]["code"], code::INVALID_REQUEST);
    assert_eq!(Reply::batch_to_json(&[]), None);
}

#[test]
fn plugins_answer() {
    let IncomingMessage::Reply(reply) =
        parse_incoming(br#"{"jsonrpc":"2.0","id":9,"error":{"code":4,"message":"no"}}"#)
    else {
        panic!("no reply")
    };
    assert_eq!(reply.outcome, Err(RpcError::new(4, "no")));
    assert!(matches!(parse_incoming(br#"{"id":1,"result":"ok"}"#), IncomingMessage::Reply(_)));
}

#[test]
fn a_line_has_one_end() {
    let params = json!({ "id": "x\r\n", "mute": true });
    let message = json!({ "jsonrpc": "2.0", "method": "Group.OnMute", "params": params });
    let out = to_line(message.to_string());
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert!(out.ends_with(b"}\r\n"));
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["params"]["id"], "x\r\n");
}

#[test]
fn a_line_is_ascii_with_the_same_meaning() {
    let text =
        json!({ "Küche": ["ä", "\u{1f3b5} a\u{7f}b \\ \"", "", "\u{0}\u{2028}"] }).to_string();
    let line = to_line(text.clone());
    assert!(line.is_ascii() && line.ends_with(b"\r\n"));
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap().to_string(), text);
    let mut out = b"before ".to_vec();
    write_json(&text, &mut out);
    assert_eq!([&out[b"before ".len()..], b"\r\n"].concat(), line);
}

#[test]
fn lines_end_with_lf_or_crlf_and_empty_lines_are_skipped() {
    assert_eq!(lines(&[b"a\r\nb\n\r\n\n c \r", b"\nd"]).unwrap(), ["a", "b", "c"]);
    let long = vec![b'x'; MAX_LINE];
    assert_eq!(lines(&[&long, b"\n"]).unwrap().len(), 1);
    assert_eq!(lines(&[&long, b"x", b"\n"]), Err(LineError::TooLong));
    assert_eq!(lines(&[&long, b"x\n"]), Err(LineError::TooLong));
}

proptest! {
    #[test]
    fn how_lines_are_cut_does_not_matter(
        text in "[a-c\r\n ]{0,100}", cuts in prop::collection::vec(0..=100_usize, 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        let bytes: Vec<_> = text.bytes().collect();
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(lines(&pieces), lines(&[&bytes]));
        prop_assert_eq!(lines(&single), lines(&[&bytes]));
    }

    #[test]
    fn any_line_gives_a_json_response(text in "[\\[\\]{}\":,0-9a-z\\\\]{0,80}", raw: Vec<u8>) {
        for bytes in [text.as_bytes(), &raw] {
            if let IncomingMessage::Single(Err(reply)) = parse_incoming(bytes) {
                prop_assert!(serde_json::from_str::<Value>(&reply.to_json()).is_ok());
            }
        }
    }
}

#[test]
fn a_control_connection_must_start_with_json() {
    for json in ["{", "[", " \r\n\t{\"id\":1}", "[[["] {
        assert_eq!(starts_with_json(json.as_bytes()), Some(true), "{json:?}");
    }
    for other in ["POST / HTTP/1.1\r\n\r\n{}", "\0{", "\"", "\u{feff}{", "}", "1", "\r\nGET /"] {
        assert_eq!(starts_with_json(other.as_bytes()), Some(false), "{other:?}");
    }
    for nothing in ["", " ", "\r\n\r\n"] {
        assert_eq!(starts_with_json(nothing.as_bytes()), None);
    }
}

#[test]
fn a_limit_can_be_raised_between_two_lines() {
    let mut lines = LineSplitter::with_limit(4);
    lines.push(b"abcd\nabcdefgh\n");
    assert_eq!(lines.next_line(), Ok(Some(&b"abcd"[..])));
    lines.set_limit(8);
    assert_eq!(lines.next_line(), Ok(Some(&b"abcdefgh"[..])));
    lines.push(b"123456789\n");
    assert_eq!(lines.next_line(), Err(LineError::TooLong));
}
