//! A peer that sends false lengths is disconnected, without an effect on other peers.

use std::collections::VecDeque;

use aulos_core::{Instant, Ppm, Rng, Span};
use aulos_proto::snap::session::CloseReason;
use aulos_proto::snap::sync::OffsetFilter;
use aulos_proto::snap::wire::{ClientMessage, Hello, MessageHeader, MessageKind, MessageStamp};
use aulos_sim::snap::{Peer, PlayedChunk, Player, SimServer};
use aulos_sim::{Link, LocalClock};

fn world(millis: i64) -> Instant {
    Instant::ZERO + Span::from_millis(millis)
}

fn header(kind: MessageKind, size: u32) -> Vec<u8> {
    MessageHeader { kind, stamp: MessageStamp::default(), size }.to_bytes().to_vec()
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = ClientMessage::Hello(Box::new(Hello::new("liar")));
    hello.write(MessageStamp { id: 1, ..MessageStamp::default() }, &mut bytes);
    bytes
}

/// A Hello with a false length of its JSON.
fn inner_lie(length: u32) -> Vec<u8> {
    let mut bytes = greeting();
    bytes[26..30].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn lies() -> Vec<(CloseReason, Vec<u8>)> {
    let mut random = Rng::new(9);
    let noise = (0..5_000).map(|_| random.next_u64().to_le_bytes()[0] | 16).collect();
    vec![
        (CloseReason::TooLarge, header(MessageKind::Hello, u32::MAX)),
        (CloseReason::TooLarge, header(MessageKind::Hello, 1_000_001)),
        (CloseReason::TooLarge, [greeting(), header(MessageKind::ClientInfo, u32::MAX)].concat()),
        (CloseReason::BadHello, inner_lie(u32::MAX)),
        (CloseReason::BadHello, inner_lie(3)),
        (CloseReason::BadHello, header(MessageKind::Hello, 0)),
        (CloseReason::BadType, noise),
        (CloseReason::NoHello, header(MessageKind::Hello, 60_000)),
        (CloseReason::NoHello, [header(MessageKind::Base, 60_000), vec![0; 59_999]].concat()),
        (
            CloseReason::Malformed,
            [greeting(), header(MessageKind::ClientInfo, 2), vec![1, 2]].concat(),
        ),
    ]
}

/// The chunks that an honest player gets in 20 s among these peers, and why each of those was
/// disconnected.
fn listen(lies: &[(CloseReason, Vec<u8>)]) -> (Vec<PlayedChunk>, Vec<Option<CloseReason>>) {
    let mut server = SimServer::new(LocalClock::new(world(9_000), Ppm::ZERO));
    let clock = LocalClock::new(world(0), Ppm::from_ppm(20));
    let player = Player::new("honest", clock, OffsetFilter::Bounds);
    let honest = server.connect(Peer::Player(player), Link::WIFI, Link::WIFI, 7);
    server.run_until(world(5_000));
    let liars: Vec<_> = (8..)
        .zip(lies)
        .map(|(seed, (_, bytes))| {
            let script = VecDeque::from([(world(6_000), bytes.clone())]);
            server.connect(Peer::Script(script), Link::WIFI, Link::CABLE, seed)
        })
        .collect();
    server.run_until(world(20_000));
    let heard = server.connection(honest).player().map(|player| player.played().to_vec());
    let ends =
        liars.into_iter().map(|liar| server.connection(liar).ended().map(|(_, cause)| cause));
    (heard.unwrap_or_default(), ends.collect())
}

#[test]
fn every_invalid_client_is_disconnected_with_its_cause_without_effect_on_others() {
    let lies = lies();
    let (among_liars, ends) = listen(&lies);
    let wanted: Vec<_> = lies.iter().map(|(cause, _)| Some(*cause)).collect();
    assert_eq!(ends, wanted);

    let (alone, _) = listen(&[]);
    assert!(alone.len() > 950);
    assert_eq!(among_liars, alone);
}
