//! A client whose clock is off by 100 ppm stays in sync with the server, over a bad network.

use aulos_core::{Instant, Ppm, Span};
use aulos_proto::snap::sync::OffsetFilter;
use aulos_sim::snap::{Peer, Player, SimServer};
use aulos_sim::{Link, LocalClock};

/// The largest playout error in milliseconds from the second minute to the tenth, and whether every
/// chunk arrived, in order and in time.
fn ten_minutes(ppm: i32, link: Link, filter: OffsetFilter, seed: u64) -> (f64, bool) {
    let booted = |seconds| Instant::ZERO + Span::from_secs(seconds);
    let mut server = SimServer::new(LocalClock::new(booted(50_000), Ppm::ZERO));
    let clock = LocalClock::new(booted(123), Ppm::from_ppm(ppm));
    let player = Player::new("drifting", clock, filter);
    let number = server.connect(Peer::Player(player), link, link, seed);
    server.run_until(Instant::ZERO + Span::from_secs(600));

    let Some(player) = server.connection(number).player() else { return (f64::NAN, false) };
    assert_eq!((player.ended(), server.connection(number).ended()), (None, None));
    let played = player.played();
    let whole = played.len() > 29_000
        && played.windows(2).all(|pair| pair[1].chunk == pair[0].chunk + 1)
        && played.iter().skip(50).all(|played| played.early > Some(Span::ZERO));
    let errors = played.iter().skip(60 * 50).filter_map(|played| played.error);
    let worst = errors.map(|error| error.abs()).max().unwrap_or(Span::MAX);
    (worst.as_secs_f64() * 1e3, whole)
}

#[test]
fn a_cable_keeps_a_twentieth_of_a_millisecond() {
    for ppm in [-100, 0, 100] {
        let (worst, whole) = ten_minutes(ppm, Link::CABLE, OffsetFilter::Bounds, 1);
        assert!(worst < 0.05, "{ppm} ppm: {worst} ms");
        assert!(whole);
    }
}

#[test]
fn a_busy_wifi_keeps_two_and_a_half_milliseconds() {
    for (ppm, seed) in [(-100, 2), (-100, 3), (0, 4), (100, 5), (100, 6)] {
        let (worst, whole) = ten_minutes(ppm, Link::WIFI, OffsetFilter::Bounds, seed);
        assert!(worst < 2.5, "{ppm} ppm: {worst} ms");
        assert!(whole);
    }
}

/// Control experiment for the tests above: the same measurement detects a filter that lags.
#[test]
fn the_plain_median_would_lag_by_ten_milliseconds() {
    let (worst, _) = ten_minutes(100, Link::CABLE, OffsetFilter::Median, 1);
    assert!((9.0..11.0).contains(&worst), "{worst} ms");
}
