//! Players in a simulated world: the content says of each frame when it should sound.

mod faults;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a simulated world in small numbers"
)]
mod world;

use aulos_core::{Instant, Ppm, Span};
use aulos_sim::Link;

use world::{ContentDeviation, PlayerOptions, World, percentile, percentile_of};

fn secs(seconds: i64) -> Instant {
    Instant::ZERO + Span::from_secs(seconds)
}

/// A network with this mean jitter in each direction. A chunk is one piece: of the pieces of a
/// chunk, the last would be late more than the single one of an answer.
fn network(jitter: i64) -> Link {
    let jitter = Span::from_millis(jitter);
    Link { delay: Span::from_micros(500), jitter, segment: 65_536, ..Link::CABLE }
}

/// |difference| of two players every 10 ms, in microseconds, from `from` to `to` seconds.
fn differences(world: &World, from: i64, to: i64) -> Vec<f64> {
    let (one, other) = (world.heard(0), world.heard(1));
    let times = (from * 100..to * 100).map(|number| Instant::ZERO + Span::from_millis(number * 10));
    let both = times.filter_map(|at| {
        Some((ContentDeviation::at(&one, at)?, ContentDeviation::at(&other, at)?))
    });
    both.map(|(one, other)| (one - other).abs()).collect()
}

/// Two players with cards of +100 and -100 ppm, which wander, on computers whose clocks drift too.
fn two_players(link: Link, seconds: i64) -> World {
    let mut world = World::new(7);
    for (ppm, seed) in [(100, 1), (-100, 2)] {
        let (card, clock) = (Ppm::from_ppm(ppm), Ppm::from_ppm(ppm / -5));
        let wander = Ppm::from_ppm(ppm.signum());
        let surroundings = PlayerOptions { card, clock, wander, link, seed, ..Default::default() };
        world.add(surroundings);
    }
    world.run_until(secs(seconds));
    world
}

/// Limits are those of the product, in microseconds: the first second of sound, and all from the
/// second minute on.
#[test]
fn two_players_sound_at_the_same_time() {
    let seconds = if std::env::var_os("AULOS_SOAK").is_some() { 86_400 } else { 180 };
    println!("jitter, loss | p50 / p95 / p99 / max, us | < 500 us after, s | rate, change per s");
    std::thread::scope(|scope| {
        for (link, first_limit, p99_limit) in [
            (network(0), 50.0, 10.0),
            (network(5), 1_000.0, 200.0),
            (network(20), 1_000.0, 500.0),
            (Link { loss: 0.01, ..network(1) }, 1_000.0, 100.0),
        ] {
            scope.spawn(move || check_two_players(link, seconds, [first_limit, p99_limit]));
        }
    });
}

fn check_two_players(link: Link, seconds: i64, [first_limit, p99_limit]: [f64; 2]) {
    let world = two_players(link, seconds);
    let begin = differences(&world, 0, 60);
    let first = percentile(begin[..100].to_vec(), 1.0);
    let converged = begin.iter().rposition(|off| *off >= 500.0).map_or(0, |at| at + 1);
    let mut later = differences(&world, 60, seconds);
    let sounds = later.len();
    later.sort_by(f64::total_cmp);
    let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|share| percentile_of(&later, share));
    let [rate, change] = [0, 1].map(|which| (0..2).map(|one| world.rates(one)[which]).max());
    println!(
        "{} ms, {} % | {p50:.0} / {p95:.0} / {p99:.0} / {max:.0} | {:.2} | {rate:?} {change:?}",
        link.jitter.as_millis(),
        link.loss * 100.0,
        converged as f64 / 100.0,
    );
    assert!(first < first_limit && p99 < p99_limit, "{link:?}: {first} {p50} {p99}");
    assert!(rate <= Some(Ppm::from_ppm(500)) && change <= Some(Ppm::from_ppm(51)), "{rate:?}");
    for player in 0..2 {
        let stats = world.status(player).playback;
        assert_eq!((stats.starts, stats.cuts, stats.underruns, stats.jumps), (1, 0, 0, 0));
    }
    assert!(sounds as i64 > (seconds - 61) * 98, "{sounds} of {seconds} s");
}

#[test]
fn a_player_is_in_time_with_the_server_and_says_so() {
    let mut world = World::new(0);
    let (clock, card) = (Ppm::from_ppm(-40), Ppm::from_ppm(25));
    world.add(PlayerOptions { clock, card, link: network(0), ..PlayerOptions::default() });
    world.run_until(secs(60));
    let heard = world.heard(0);
    let worst = heard.iter().filter(|heard| heard.at > secs(10)).map(|heard| heard.early.abs());
    assert!(worst.clone().count() > 9_000 && worst.fold(0.0, f64::max) < 25.0);
    let status = world.status(0);
    assert!(status.is_connected && status.is_playing && status.queued > 20, "{status:?}");
    assert!((status.server_drift.as_ppb() - 40_000).abs() < 500, "{status:?}");
    assert!((status.device_drift.as_ppb() - 65_000).abs() < 500, "{status:?}");
    assert!(status.offset_error.unwrap() < Span::from_micros(20), "{status:?}");
    let delay = status.device_delay.unwrap();
    assert!((Span::from_millis(55)..=Span::from_millis(85)).contains(&delay), "{status:?}");
}

/// Without drift the samples are those of the stream, bit by bit.
#[test]
fn without_drift_every_sample_is_that_of_the_stream() {
    let mut world = World::new(0);
    world.add(PlayerOptions { link: network(0), ..PlayerOptions::default() });
    world.run_until(secs(20));
    assert!(world.heard(0).len() > 3_500);
    let (exact, other) = world.exact_frames(0);
    // What fades in, and what passes while the rate settles.
    assert!(exact > 18 * 48_000 && other < 48_000, "{exact} exact, {other} not");
}
