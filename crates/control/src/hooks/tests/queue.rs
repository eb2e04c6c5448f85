//! The delivery queue in virtual time.

use aulos_core::Instant;
use proptest::prelude::*;

use super::super::queue::{Delivery, DeliveryError, MAX_WAITING, PER_MINUTE};
use super::*;

fn hook(tries: u32) -> Arc<Hook> {
    let text = format!("[[hook]]\nurl = \"http://h/\"\ntries = {tries}");
    Arc::new(resolve(&text).hooks.remove(0))
}

fn event(number: u64) -> Arc<HookMessage> {
    let (kind, station) = (HookEventKind::Silence, Some("a".to_owned()));
    Arc::new(HookMessage { kind, station, id: number.to_string(), body: Map::new() })
}

struct World {
    queue: HookQueue,
    now: Instant,
    next: u64,
}

impl World {
    fn new(tries: u32) -> Self {
        Self { queue: HookQueue::new(hook(tries), 7), now: Instant::from_nanos(1), next: 0 }
    }

    fn happen(&mut self, count: u64) {
        for _ in 0..count {
            self.queue.handle_input(self.now, QueueInput::Event(event(self.next)));
            self.next += 1;
        }
    }

    fn end(&mut self, outcome: Result<(), DeliveryError>) {
        self.queue.handle_input(self.now, QueueInput::Finished(outcome));
    }

    /// Waits for the next attempt, as a task does; returns the waiting time.
    fn wait(&mut self) -> Option<(Delivery, Span)> {
        let start = self.now;
        loop {
            self.queue.handle_timeout(self.now);
            if let Some(delivery) = self.queue.poll_output() {
                return Some((delivery, self.now - start));
            }
            self.now = self.queue.poll_timeout()?;
        }
    }

    fn number(delivery: &Delivery) -> u64 {
        delivery.event.id.parse().unwrap()
    }
}

#[test]
fn one_after_the_other_in_their_order() {
    let mut world = World::new(5);
    world.happen(3);
    for expected in 0..3 {
        let (delivery, pause) = world.wait().unwrap();
        assert_eq!((World::number(&delivery), pause, delivery.attempt), (expected, Span::ZERO, 1));
        assert!(world.wait().is_none(), "two at once");
        world.end(Ok(()));
    }
    assert!(world.wait().is_none());
    assert_eq!((world.queue.counts().delivered, world.queue.waiting()), (3, 0));
}

#[test]
fn pauses_double_up_to_half_a_minute_and_the_last_attempt_is_the_last() {
    let mut world = World::new(10);
    world.happen(2);
    let mut most = 500;
    for attempt in 1..=10 {
        let (delivery, pause) = world.wait().unwrap();
        assert_eq!((World::number(&delivery), delivery.attempt), (0, attempt));
        if attempt > 1 {
            let pause = pause.as_millis();
            assert!((most / 2..=most).contains(&pause), "{attempt}: {pause} ms, {most} at most");
            most = (most * 2).min(30_000);
        }
        world.end(Err(DeliveryError::Status(503)));
    }
    let (delivery, pause) = world.wait().unwrap();
    assert_eq!((World::number(&delivery), pause), (1, Span::ZERO));
    let counts = world.queue.counts();
    assert_eq!((counts.failed, counts.retries, counts.delivered), (1, 9, 0));
    assert_eq!(
        counts.last_error.as_ref().map(|(fault, _)| fault),
        Some(&DeliveryError::Status(503))
    );
}

#[test]
fn pauses_of_different_hooks_differ() {
    let pause = |seed| {
        let mut world = World { queue: HookQueue::new(hook(2), seed), ..World::new(2) };
        world.happen(1);
        world.wait().unwrap();
        world.end(Err(DeliveryError::Broken));
        world.wait().unwrap().1
    };
    let mut pauses: Vec<Span> = (0..100).map(pause).collect();
    pauses.sort_unstable();
    pauses.dedup();
    assert!(pauses.len() > 60, "{} of 100", pauses.len());
}

#[test]
fn what_would_be_the_same_every_time_is_tried_once() {
    for (fault, again) in [
        (DeliveryError::Status(400), false),
        (DeliveryError::Status(404), false),
        (DeliveryError::Status(301), false),
        (DeliveryError::Status(408), true),
        (DeliveryError::Status(429), true),
        (DeliveryError::Status(500), true),
        (DeliveryError::TimedOut(1), true),
        (DeliveryError::Name, true),
        (DeliveryError::Connect(std::io::ErrorKind::ConnectionRefused), true),
    ] {
        let mut world = World::new(5);
        world.happen(1);
        world.wait().unwrap();
        world.end(Err(fault.clone()));
        assert_eq!(world.wait().is_some(), again, "{fault:?}");
    }
}

#[test]
fn a_flood_of_events_is_dropped_and_the_next_one_has_the_count() {
    let mut world = World::new(1);
    let mut told = 0;
    for _ in 0..200 {
        world.happen(1);
        world.now += Span::from_millis(100);
        while let Some((delivery, _)) = world.wait() {
            assert_eq!(delivery.dropped, 0);
            told += 1;
            world.end(Ok(()));
        }
    }
    assert_eq!(told, PER_MINUTE);
    world.now += Span::from_secs(60);
    world.happen(1);
    let (delivery, _) = world.wait().unwrap();
    let missing = 200 - PER_MINUTE as u64;
    assert_eq!((World::number(&delivery), delivery.dropped), (200, missing));
    // It fails: the next one reports the dropped events again.
    world.end(Err(DeliveryError::Broken));
    world.happen(1);
    assert_eq!(world.wait().unwrap().0.dropped, missing);
    world.end(Ok(()));
    assert_eq!(world.queue.counts().dropped, missing);
    world.happen(1);
    assert_eq!(world.wait().unwrap().0.dropped, 0);
}

#[test]
fn a_hook_that_hangs_keeps_the_newest() {
    let mut world = World::new(1);
    world.happen(1);
    world.wait().unwrap();
    for _ in 0..10 {
        world.happen(PER_MINUTE as u64);
        world.now += Span::from_secs(60);
    }
    world.end(Ok(()));
    let all = 10 * PER_MINUTE as u64;
    let mut numbers = Vec::new();
    while let Some((delivery, _)) = world.wait() {
        numbers.push(World::number(&delivery));
        world.end(Ok(()));
    }
    // The last accepted one: each minute had one too many, the first included.
    assert_eq!(numbers.len(), MAX_WAITING);
    assert!(numbers.is_sorted() && numbers.contains(&all), "{numbers:?}");
    let counts = world.queue.counts();
    assert_eq!(counts.delivered + counts.dropped, all + 1);
}

#[test]
fn a_changed_hook_of_the_same_name_keeps_its_state() {
    let mut world = World::new(9);
    world.happen(2);
    world.wait().unwrap();
    world.queue.handle_input(world.now, QueueInput::ConfigChanged(hook(2)));
    world.end(Err(DeliveryError::Broken));
    let (delivery, _) = world.wait().unwrap();
    assert_eq!((delivery.attempt, delivery.hook.tries), (2, 2));
    world.end(Err(DeliveryError::Broken));
    assert_eq!(World::number(&world.wait().unwrap().0), 1);
}

#[test]
fn no_delivery_starts_after_the_stop() {
    let mut world = World::new(5);
    world.happen(2);
    world.wait().unwrap();
    world.queue.handle_input(world.now, QueueInput::Stop);
    assert!(!world.queue.is_over());
    world.end(Err(DeliveryError::Broken));
    assert!(world.queue.is_over() && world.wait().is_none());
}

proptest! {
    /// For any inputs: the order is kept, nothing is delivered twice, every loss is counted, and
    /// the queue is bounded.
    #[test]
    fn every_event_is_delivered_abandoned_or_counted(
        steps in proptest::collection::vec((0..5u8, 0..20_000i64), 1..400)
    ) {
        let mut world = World::new(3);
        let (mut trying, mut last) = (None, None);
        for (step, millis) in steps {
            world.now += Span::from_millis(millis);
            match step {
                0 | 1 => world.happen(1 + millis.unsigned_abs() % 5),
                2 => trying = trying.take().map(|()| world.end(Ok(()))).and(None),
                3 => trying = trying.take().map(|()| world.end(Err(DeliveryError::Broken))).and(None),
                _ => {
                    world.queue.handle_timeout(world.now);
                    if let Some(delivery) = world.queue.poll_output() {
                        prop_assert!(trying.replace(()).is_none(), "two at once");
                        let number = World::number(&delivery);
                        let again = delivery.attempt > 1;
                        prop_assert!(last.is_none_or(|last| number > last || again && number == last));
                        last = Some(number);
                    }
                }
            }
            prop_assert!(world.queue.waiting() <= MAX_WAITING + 1);
            let counts = world.queue.counts();
            let seen = counts.delivered + counts.failed + counts.dropped;
            prop_assert_eq!(seen + world.queue.waiting() as u64, world.next);
        }
    }
}
