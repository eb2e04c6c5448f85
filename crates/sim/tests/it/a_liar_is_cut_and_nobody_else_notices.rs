//! A peer that lies about lengths is cut, and nobody else notices.

use std::collections::VecDeque;

use aulos_core::{Instant, Ppm, Span};
use aulos_proto::snap::session::Cause;
use aulos_proto::snap::sync::Filter;
use aulos_proto::snap::wire::{ClientMessage, Header, Hello, Kind, Stamp};
use aulos_sim::snap::{Heard, House, Peer, Player};
use aulos_sim::{Link, LocalClock, Random};

fn world(millis: i64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

fn header(kind: Kind, size: u32) -> Vec<u8> {
    Header { kind, stamp: Stamp::default(), size }.emit().to_vec()
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = ClientMessage::Hello(Box::new(Hello::new("liar")));
    hello.write(Stamp { id: 1, ..Stamp::default() }, &mut bytes);
    bytes
}

/// A greeting whose JSON claims to be longer, or shorter, than it is.
fn inner_lie(length: u32) -> Vec<u8> {
    let mut bytes = greeting();
    bytes[26..30].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn lies() -> Vec<(Cause, Vec<u8>)> {
    let mut random = Random::new(9);
    let noise = (0..5_000).map(|_| random.bits().to_le_bytes()[0] | 16).collect();
    vec![
        (Cause::TooLarge, header(Kind::Hello, u32::MAX)),
        (Cause::TooLarge, header(Kind::Hello, 1_000_001)),
        (Cause::TooLarge, [greeting(), header(Kind::ClientInfo, u32::MAX)].concat()),
        (Cause::BadHello, inner_lie(u32::MAX)),
        (Cause::BadHello, inner_lie(3)),
        (Cause::BadHello, header(Kind::Hello, 0)),
        (Cause::BadType, noise),
        (Cause::NoHello, header(Kind::Hello, 60_000)),
        (Cause::NoHello, [header(Kind::Base, 60_000), vec![0; 59_999]].concat()),
        (Cause::Malformed, [greeting(), header(Kind::ClientInfo, 2), vec![1, 2]].concat()),
    ]
}

/// What an honest player hears in 20 s among these liars, and how each of them ended.
fn listen(lies: &[(Cause, Vec<u8>)]) -> (Vec<Heard>, Vec<Option<Cause>>) {
    let mut house = House::new(LocalClock::new(world(9_000), Ppm::ZERO));
    let clock = LocalClock::new(world(0), Ppm::from_ppm(20));
    let player = Player::new("honest", clock, Filter::Line);
    let honest = house.connect(Peer::Player(player), Link::WIFI, Link::WIFI, 7);
    house.run_until(world(5_000));
    let liars: Vec<_> = (8..)
        .zip(lies)
        .map(|(seed, (_, bytes))| {
            let script = VecDeque::from([(world(6_000), bytes.clone())]);
            house.connect(Peer::Script(script), Link::WIFI, Link::CABLE, seed)
        })
        .collect();
    house.run_until(world(20_000));
    let heard = house.connection(honest).player().map(|player| player.heard().to_vec());
    let ends = liars.into_iter().map(|liar| house.connection(liar).ended().map(|(_, cause)| cause));
    (heard.unwrap_or_default(), ends.collect())
}

#[test]
fn every_liar_is_cut_with_its_cause_and_the_others_hear_what_they_would_have_heard() {
    let lies = lies();
    let (among_liars, ends) = listen(&lies);
    let wanted: Vec<_> = lies.iter().map(|(cause, _)| Some(*cause)).collect();
    assert_eq!(ends, wanted);

    let (alone, _) = listen(&[]);
    assert!(alone.len() > 950);
    assert_eq!(among_liars, alone);
}
