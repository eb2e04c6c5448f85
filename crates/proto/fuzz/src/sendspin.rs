//! Sendspin: what a stranger says first, and what a client without encryption says.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::sendspin::{
    Admission, AdmissionInput, AdmissionOutput, ClientSession, PairingToken, ServerInfo, Trust,
};
use aulos_proto::ws::WsWriter;

/// Lines, each one text of a client; those that begin with a zero are binary messages. A client that
/// is let in goes on with its session.
pub fn sendspin(data: &[u8]) {
    let server = Arc::new(ServerInfo::new("fuzz".to_owned(), [7; 32]));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut admission = Admission::new(server, [8; 32], now);
    let mut session: Option<ClientSession> = None;
    let mut writer = WsWriter::default();
    for line in data.split(|byte| *byte == b'\n').take(MAX_LINES) {
        now += Span::from_millis(10);
        let is_text = line.first() != Some(&0);
        if let Some(session) = &mut session {
            session.receive(now, is_text, line);
            let mut out = Vec::new();
            while let Some(output) = session.poll_output() {
                if let aulos_proto::sendspin::ClientSessionOutput::Send(message) = output {
                    session.write(&message, now, &mut writer, &mut out);
                }
            }
            assert!(out.len() < MAX_ANSWER, "{} bytes for {}", out.len(), line.len());
            continue;
        }
        let input = match is_text {
            true => AdmissionInput::Text(line),
            false => AdmissionInput::Binary(line),
        };
        admission.handle_input(now, input);
        while let Some(output) = admission.poll_output() {
            match output {
                AdmissionOutput::Ask(_) => {
                    let trust = Trust { allows_legacy: true, ..Trust::default() };
                    admission.handle_input(now, AdmissionInput::Trust(trust));
                }
                AdmissionOutput::Done(client) => {
                    assert!(client.cipher.is_none(), "encrypted without a key");
                    session = Some(ClientSession::new(client.hello, client.cipher, now));
                }
                _ => {}
            }
        }
    }
    drop(PairingToken::parse(&String::from_utf8_lossy(data)));
}

/// Messages that are tried.
const MAX_LINES: usize = 64;

/// What one message is answered with at most: states and commands.
const MAX_ANSWER: usize = 16 * 1_024;
