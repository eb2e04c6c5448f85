use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use super::queue::{ANSWER_BYTES_PER_ADDRESS, IDLE_ADDRESSES, MAX_ANSWER_BYTES};
use super::*;

const MS: u64 = 1_000_000;

/// A line of the simulated queue: its address, its kind and the length of its calls.
#[derive(Clone, Copy)]
struct Line {
    address: u128,
    kind: CallKind,
    calls: usize,
    took: u64,
}

const STATUS: Line = Line { address: 1, kind: CallKind::Single, calls: 1, took: 30 * MS };

/// The queue with lines that wait, in virtual time: each runs its calls one after the other.
#[derive(Default)]
struct Simulation {
    queue: LongCallQueue,
    waiting: HashMap<Ticket, (Line, usize)>,
    now: u64,
    /// What ended, with the time at which it did.
    ended: Vec<(Line, u64)>,
}

impl Simulation {
    fn add(&mut self, line: Line) {
        self.wait(line, MAX_BATCH_COST + (4 << 20));
    }

    fn wait(&mut self, line: Line, reserve: usize) {
        let Line { address, kind, .. } = line;
        let reserve = if kind == CallKind::Batch { reserve } else { reserve.min(4 << 20) };
        let ticket = self.queue.wait(TurnRequest { address, kind, reserve, runs: true });
        self.waiting.insert(ticket, (line, reserve));
    }

    /// Runs one call; its line waits again, or ends and its answer is read at once.
    fn step(&mut self) -> bool {
        let Some(ticket) = self.queue.grant() else { return false };
        assert_eq!(self.queue.grant(), None, "one at a time");
        let (mut line, reserved) = self.waiting.remove(&ticket).unwrap();
        self.now += line.took;
        self.queue.end_turn(line.address, line.took);
        line.calls -= 1;
        if line.calls > 0 {
            self.wait(line, 0);
        } else {
            let bytes =
                if line.kind == CallKind::Batch { MAX_BATCH_COST + (4 << 20) } else { reserved };
            self.queue.change_bytes(line.address, line.kind, bytes, 0);
            self.ended.push((line, self.now));
        }
        true
    }
}

#[test]
fn a_status_waits_for_the_running_call_whatever_other_addresses_have_asked_for() {
    let mut simulation = Simulation::default();
    for number in 0..180 {
        let batch =
            Line { address: 2 + number % 3, kind: CallKind::Batch, calls: 8, took: 30 * MS };
        simulation.add(batch);
        simulation.add(Line { kind: CallKind::Single, calls: 1, ..batch });
    }
    for _ in 0..3 {
        for _ in 0..20 {
            assert!(simulation.step());
        }
        // At most the call that has begun, and one of those that were level.
        let asked = simulation.now;
        simulation.add(STATUS);
        while simulation.ended.last().is_none_or(|(line, _)| line.address != STATUS.address) {
            assert!(simulation.step());
        }
        assert!(simulation.now - asked <= 2 * STATUS.took, "{} ms", (simulation.now - asked) / MS);
        simulation.ended.clear();
    }
}

#[test]
fn a_status_does_not_queue_behind_the_batches_of_its_own_address() {
    let mut simulation = Simulation::default();
    for _ in 0..20 {
        simulation.add(Line { kind: CallKind::Batch, calls: 31, ..STATUS });
    }
    simulation.step();
    simulation.add(STATUS);
    simulation.add(STATUS);
    while simulation.ended.len() < 2 {
        assert!(simulation.step());
    }
    assert!(simulation.ended.iter().all(|(line, _)| line.kind == CallKind::Single));
    assert!(simulation.now <= 5 * STATUS.took, "{} ms", simulation.now / MS);
    while simulation.step() {}
    assert_eq!(simulation.ended.len(), 22, "each is served in the end");
}

#[test]
fn addresses_get_the_same_time_whatever_their_calls_cost() {
    let mut simulation = Simulation::default();
    for _ in 0..200 {
        simulation.add(Line { took: 30 * MS, ..STATUS });
        simulation.add(Line { address: 2, took: 3 * MS, ..STATUS });
    }
    while simulation.ended.len() < 200 {
        simulation.step();
    }
    let time_of = |address| -> u64 {
        simulation
            .ended
            .iter()
            .map(|(line, _)| line)
            .filter(|line| line.address == address)
            .map(|line| line.took)
            .sum()
    };
    assert!(time_of(1).abs_diff(time_of(2)) <= 60 * MS, "{} {}", time_of(1), time_of(2));
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn is_ready<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A permit for an answer of this length.
fn answer(calls: &LongCalls, from: IpAddr, length: usize) -> AnswerPermit {
    let mut line = calls.request(from, false);
    assert!(is_ready(pin!(line.begin())), "{from}");
    line.end(length).unwrap()
}

const STATUS_BYTES: usize = 4 << 20;

#[test]
fn an_address_has_some_bytes_of_answers_in_memory_and_all_have_some_more() {
    let calls = LongCalls::new(Clock::default());
    let per_address = ANSWER_BYTES_PER_ADDRESS / STATUS_BYTES;
    let mut held: Vec<_> = (0..per_address).map(|_| answer(&calls, ip(1), STATUS_BYTES)).collect();
    let mut line = calls.request(ip(1), false);
    let mut next = pin!(line.begin());
    assert!(!is_ready(next.as_mut()));
    // Another address, and a batch of this one, do not wait for it.
    drop(answer(&calls, ip(2), STATUS_BYTES));
    let mut batch = calls.request(ip(1), true);
    assert!(is_ready(pin!(batch.turn())));
    drop(batch);
    held.pop();
    assert!(is_ready(next.as_mut()));
    for last in 2..=u8::try_from(MAX_ANSWER_BYTES / ANSWER_BYTES_PER_ADDRESS).unwrap() {
        held.extend((0..per_address).map(|_| answer(&calls, ip(last), STATUS_BYTES)));
    }
    let mut line = calls.request(ip(200), false);
    let mut next = pin!(line.begin());
    assert!(!is_ready(next.as_mut()));
    held.pop();
    assert!(is_ready(next.as_mut()));
}

#[test]
fn the_memory_of_small_answers_is_returned() {
    let calls = LongCalls::new(Clock::default());
    for _ in 0..2 * MAX_ANSWER_BYTES / LARGE_ANSWER {
        let mut line = calls.request(ip(1), false);
        assert!(is_ready(pin!(line.turn())));
        assert!(line.end(LARGE_ANSWER - 1).is_none());
        let mut batch = calls.request(ip(1), true);
        assert!(is_ready(pin!(batch.turn())));
        batch.pause(LARGE_ANSWER - 1);
        // While the first waits for another program.
        let mut other = calls.request(ip(1), true);
        assert!(is_ready(pin!(other.turn())));
    }
}

#[test]
fn one_batch_of_an_address_is_executed_at_a_time() {
    let calls = LongCalls::new(Clock::default());
    let (mut first, mut second) = (calls.request(ip(1), true), calls.request(ip(1), true));
    assert!(is_ready(pin!(first.turn())));
    let mut turn = pin!(second.turn());
    assert!(!is_ready(turn.as_mut()));
    assert!(is_ready(pin!(first.turn())), "its next call");
    let unread = first.end(LARGE_ANSWER).unwrap();
    assert!(is_ready(turn.as_mut()));
    drop(unread);
}

#[test]
fn what_is_dropped_while_it_waits_or_runs_leaves_nothing_behind() {
    let calls = LongCalls::new(Clock::default());
    let mut running = calls.request(ip(1), false);
    let Some(turn) = now(running.turn()) else { panic!("the queue is empty") };
    let mut gone: Vec<_> = (0..20).map(|_| calls.request(ip(1), true)).collect();
    let mut waiting: Vec<_> = gone.iter_mut().map(|line| Box::pin(line.turn())).collect();
    assert!(waiting.iter_mut().all(|line| !is_ready(line.as_mut())));
    drop(turn);
    // The first was granted its turn, and never took it.
    drop(waiting);
    drop((gone, running));
    let mut line = calls.request(ip(1), true);
    assert!(is_ready(pin!(line.turn())));
    drop(line);
    let lines = calls.lock();
    assert!(lines.wakers.is_empty());
    assert_eq!(format!("{:?}", lines.queue).matches("bytes: 0").count(), 3);
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn the_addresses_of_one_network_share_their_answers() {
    let calls = LongCalls::new(Clock::default());
    let [one, neighbor, elsewhere] =
        ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| ip.parse().unwrap());
    let _held = answer(&calls, one, ANSWER_BYTES_PER_ADDRESS);
    let mut request = calls.request(neighbor, false);
    assert!(!is_ready(pin!(request.begin())));
    let mut request = calls.request(elsewhere, false);
    assert!(is_ready(pin!(request.begin())));
}

#[test]
fn addresses_are_forgotten_without_a_waiting_line_and_without_an_answer() {
    let calls = LongCalls::new(Clock::default());
    let _held = answer(&calls, ip(1), ANSWER_BYTES_PER_ADDRESS);
    for last in 2..=255 {
        drop(answer(&calls, ip(last), LARGE_ANSWER));
    }
    assert!(calls.lock().queue.address_count() <= IDLE_ADDRESSES);
    let mut line = calls.request(ip(1), false);
    assert!(!is_ready(pin!(line.begin())), "it still holds its answer");
}
