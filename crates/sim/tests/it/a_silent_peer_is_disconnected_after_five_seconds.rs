//! A peer that sends nothing, or no complete Hello, is disconnected 5 s after it connected.

use std::collections::VecDeque;

use aulos_core::{Instant, Ppm, Span};
use aulos_proto::snap::session::CloseReason;
use aulos_proto::snap::wire::{ClientMessage, Hello, MessageKind, MessageStamp};
use aulos_sim::snap::{Peer, SimServer};
use aulos_sim::{Link, LocalClock};

fn at(millis: i64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

fn cut_at(script: Vec<(Instant, Vec<u8>)>) -> Option<(Instant, CloseReason)> {
    let mut server = SimServer::new(LocalClock::new(at(1_000_000), Ppm::ZERO));
    server.run_until(at(3_000));
    let peer = Peer::Script(VecDeque::from(script));
    let number = server.connect(peer, Link::CABLE, Link::CABLE, 1);
    server.run_until(at(60_000));
    server.connection(number).ended()
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = ClientMessage::Hello(Box::new(Hello::new("slow")));
    hello.write(MessageStamp { id: 1, ..MessageStamp::default() }, &mut bytes);
    bytes
}

#[test]
fn a_client_without_a_hello_is_disconnected() {
    assert_eq!(cut_at(Vec::new()), Some((at(8_000), CloseReason::NoHello)));
}

#[test]
fn who_greets_a_byte_a_second() {
    let bytes = (4_000..).step_by(1_000).map(at).zip(greeting().into_iter().map(|byte| vec![byte]));
    assert_eq!(cut_at(bytes.collect()), Some((at(8_000), CloseReason::NoHello)));
}

#[test]
fn who_asks_for_the_time_and_never_greets() {
    let mut time = Vec::new();
    ClientMessage::Time.write(MessageStamp { id: 4, ..MessageStamp::default() }, &mut time);
    assert_eq!(time.first().copied().map(u16::from), Some(MessageKind::Time.number()));
    let asks = (3_500..60_000).step_by(500).map(|millis| (at(millis), time.clone()));
    assert_eq!(cut_at(asks.collect()), Some((at(8_000), CloseReason::NoHello)));
}

#[test]
fn a_client_with_a_timely_hello_stays() {
    assert_eq!(cut_at(vec![(at(7_900), greeting())]), None);
}
