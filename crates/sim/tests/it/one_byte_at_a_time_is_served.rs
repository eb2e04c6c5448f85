//! A peer whose bytes arrive one at a time is served like any other.

use aulos_core::{Instant, Ppm, Span};
use aulos_proto::snap::sync::OffsetFilter;
use aulos_sim::snap::{Peer, Player, SimServer};
use aulos_sim::{Link, LocalClock};

#[test]
fn bytes_one_at_a_time_in_both_directions() {
    let mut server = SimServer::new(LocalClock::new(Instant::ZERO, Ppm::ZERO));
    let trickle = Link { segment: 1, ..Link::CABLE };
    let clock = LocalClock::new(Instant::ZERO + Span::from_secs(77), Ppm::ZERO);
    let player = Player::new("thin", clock, OffsetFilter::Bounds);
    let number = server.connect(Peer::Player(player), trickle, trickle, 1);
    server.run_until(Instant::ZERO + Span::from_secs(20));

    let connection = server.connection(number);
    assert_eq!(connection.ended(), None);
    let played = connection.player().map_or(&[][..], Player::played);
    assert!(played.len() > 990, "{} chunks", played.len());
    assert!(played.windows(2).all(|pair| pair[1].chunk == pair[0].chunk + 1));
    let in_time = |error: Span| error.abs() < Span::from_millis(1);
    assert!(played.iter().skip(100).all(|played| played.error.is_some_and(in_time)));
    // A Hello, fifty quick Time requests and about eighty slow ones.
    assert!((125..135).contains(&connection.counts().messages), "{:?}", connection.counts());
}
