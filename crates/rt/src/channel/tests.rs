use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_core::Stream;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{
    Receiver, SendError, Sender, TryRecvError, UnboundedSender, bounded, starting_at, unbounded,
};

#[derive(Clone, Debug)]
enum Op {
    Send,
    Push,
    Receive,
    Poll,
    Free,
    Clone,
    DropSender,
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Send),
        4 => Just(Op::Push),
        8 => Just(Op::Receive),
        2 => Just(Op::Poll),
        2 => Just(Op::Free),
        2 => Just(Op::Clone),
        1 => Just(Op::DropSender),
        1 => Just(Op::Close),
    ]
}

/// Counts its instances, so that lost or twice dropped items are detected.
#[derive(Debug)]
struct Item(usize, #[allow(dead_code, reason = "its drop counts")] Arc<()>);

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Reference model of a channel: a bounded queue and two flags.
struct Model {
    row: VecDeque<usize>,
    capacity: usize,
    senders: usize,
    closed: bool,
}

impl Model {
    fn send(&mut self, item: usize) -> Result<(), SendError<usize>> {
        if self.closed {
            Err(SendError::Closed(item))
        } else if self.row.len() == self.capacity {
            Err(SendError::Full(item))
        } else {
            self.row.push_back(item);
            Ok(())
        }
    }

    fn receive(&mut self) -> Result<usize, TryRecvError> {
        let ended = self.closed || self.senders == 0;
        let none = if ended { TryRecvError::Closed } else { TryRecvError::Empty };
        self.row.pop_front().ok_or(none)
    }
}

fn number_of(refused: SendError<Item>) -> SendError<usize> {
    match refused {
        SendError::Full(item) => SendError::Full(item.0),
        SendError::Closed(item) => SendError::Closed(item.0),
    }
}

fn polled<T>(receiver: &mut Receiver<T>) -> Result<T, TryRecvError> {
    match Pin::new(receiver).poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(item)) => Ok(item),
        Poll::Ready(None) => Err(TryRecvError::Closed),
        Poll::Pending => Err(TryRecvError::Empty),
    }
}

proptest! {
    #[test]
    fn a_bounded_channel_is_a_row_with_a_bound(
        capacity in 1..9_usize,
        start in prop_oneof![Just(0), Just(usize::MAX / 2 - 3), Just(usize::MAX - 3), any::<usize>()],
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let alive = Arc::new(());
        let (sender, mut receiver) = starting_at(capacity, start);
        let realtime = sender.realtime();
        let mut senders = vec![sender];
        let mut model = Model { row: VecDeque::new(), capacity, senders: 2, closed: false };
        for (number, op) in ops.into_iter().enumerate() {
            let item = || Item(number, alive.clone());
            match op {
                Op::Send => if let Some(sender) = senders.first() {
                    prop_assert_eq!(sender.try_send(item()).map_err(number_of), model.send(number));
                },
                Op::Push => {
                    prop_assert_eq!(realtime.push(item()).map_err(number_of), model.send(number));
                }
                Op::Receive => {
                    prop_assert_eq!(receiver.try_recv().map(|item| item.0), model.receive());
                }
                Op::Poll => {
                    prop_assert_eq!(polled(&mut receiver).map(|item| item.0), model.receive());
                }
                Op::Free => prop_assert_eq!(realtime.free(), capacity - model.row.len()),
                Op::Clone => senders.extend(senders.first().cloned()),
                Op::DropSender => drop(senders.pop()),
                Op::Close => {
                    receiver.close();
                    model.closed = true;
                }
            }
            model.senders = senders.len() + 1;
            prop_assert_eq!(receiver.is_empty(), model.row.is_empty());
            prop_assert_eq!(realtime.is_closed(), model.closed);
            prop_assert_eq!(Arc::strong_count(&alive), 1 + model.row.len());
        }
        drop((senders, realtime));
        model.senders = 0;
        prop_assert_eq!(receiver.try_recv().map(|item| item.0), model.receive());
        drop(receiver);
        prop_assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn an_unbounded_channel_is_a_row(ops in prop::collection::vec(op(), 0..200)) {
        let alive = Arc::new(());
        let (sender, mut receiver) = unbounded();
        let mut senders = vec![sender];
        let capacity = usize::MAX;
        let mut model = Model { row: VecDeque::new(), capacity, senders: 1, closed: false };
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Send | Op::Push | Op::Free => if let Some(sender) = senders.first() {
                    let sent = sender.send(Item(number, alive.clone()));
                    let sent = sent.map_err(|closed| SendError::Closed(closed.0.0));
                    prop_assert_eq!(sent, model.send(number));
                },
                Op::Receive => {
                    prop_assert_eq!(receiver.try_recv().map(|item| item.0), model.receive());
                }
                Op::Poll => {
                    prop_assert_eq!(polled(&mut receiver).map(|item| item.0), model.receive());
                }
                Op::Clone => senders.extend(senders.first().cloned()),
                Op::DropSender => drop(senders.pop()),
                Op::Close => {
                    receiver.close();
                    model.closed = true;
                }
            }
            model.senders = senders.len();
            prop_assert_eq!(receiver.is_empty(), model.row.is_empty());
            prop_assert_eq!(Arc::strong_count(&alive), 1 + model.row.len());
        }
        drop(receiver);
        prop_assert_eq!(Arc::strong_count(&alive), 1);
    }
}

const SENDERS: usize = 4;
const EACH: usize = 1_500;

/// An item: (sender, count).
type Numbered = (usize, usize);

/// The receiver of the stress tests: checks the order of each sender's items.
fn check_order(next_item: impl FnMut() -> Option<Numbered>) {
    let mut counts = [0; SENDERS];
    for (who, count) in std::iter::from_fn(next_item) {
        assert_eq!(count, counts[who], "sender {who}");
        counts[who] += 1;
    }
    assert_eq!(counts, [EACH; SENDERS]);
}

/// Sender number `who` of a bounded channel, using one of three ways to send.
fn send_all(sender: &Sender<Numbered>, who: usize) {
    let realtime = (who == 3).then(|| sender.realtime());
    for count in 0..EACH {
        let mut item = (who, count);
        loop {
            let sent = match (who, &realtime) {
                (_, Some(realtime)) => realtime.push(item),
                (0, _) => sender.try_send(item),
                (1, _) => sender.send_timeout(item, Duration::from_micros(50)),
                _ => sender.send(item).map_err(|closed| SendError::Closed(closed.0)),
            };
            match sent {
                Ok(()) => break,
                Err(SendError::Full(back)) => item = back,
                Err(SendError::Closed(_)) => panic!("the channel is never closed"),
            }
            thread::yield_now();
        }
    }
}

#[test]
fn many_senders_and_a_thread_that_sleeps() {
    for capacity in [1, 2, 3, 100] {
        let (sender, mut receiver) = bounded(capacity);
        thread::scope(|scope| {
            for who in 0..SENDERS {
                let sender = sender.clone();
                scope.spawn(move || send_all(&sender, who));
            }
            drop(sender);
            check_order(|| receiver.recv());
        });
    }
}

#[test]
fn many_senders_without_a_bound() {
    let (sender, mut receiver) = unbounded();
    thread::scope(|scope| {
        for who in 0..SENDERS {
            let sender: UnboundedSender<Numbered> = sender.clone();
            scope.spawn(move || (0..EACH).for_each(|count| sender.send((who, count)).unwrap()));
        }
        drop(sender);
        check_order(|| receiver.recv());
    });
}

/// The same items through a foreign executor. There a real-time sender needs a timer.
#[test]
fn as_a_stream_under_tokio() {
    let (sender, mut receiver) = bounded(7);
    let look = receiver.waker();
    thread::scope(|scope| {
        for who in 0..SENDERS {
            let sender = sender.clone();
            scope.spawn(move || send_all(&sender, who));
        }
        drop(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _timer = runtime.spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            loop {
                ticks.tick().await;
                look.wake();
            }
        });
        let mut next = || {
            let stream = &mut receiver;
            runtime.block_on(poll_fn(|context| Pin::new(&mut *stream).poll_next(context)))
        };
        check_order(&mut next);
    });
}

/// A minimal executor: a thread that parks.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// A lost wake makes this test hang: nothing polls by itself here.
#[test]
fn as_a_stream_under_a_tiny_executor() {
    for capacity in [1, 5] {
        let (sender, mut receiver) = bounded(capacity);
        thread::scope(|scope| {
            for who in 0..SENDERS {
                let sender = sender.clone();
                scope.spawn(move || {
                    (0..EACH).for_each(|count| sender.send((who, count)).unwrap());
                });
            }
            drop(sender);
            check_order(|| block_on(|context| receiver.poll_recv(context)));
        });
    }
}

/// Waits until `done`, without a time limit, so that the test does not depend on timing.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

#[test]
fn senders_that_sleep_are_sent_away() {
    for drop_it in [false, true] {
        let (sender, mut receiver) = bounded(1);
        sender.send(0).unwrap();
        let begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            let sleepers = [1, 2, 3].map(|item| {
                let (sender, begun) = (sender.clone(), &begun);
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    sender.send(item).map_err(|closed| closed.0)
                })
            });
            until(|| begun.load(Ordering::Relaxed) == 3);
            if drop_it {
                drop(receiver);
            } else {
                receiver.close();
                assert_eq!(receiver.recv(), Some(0));
                assert_eq!(receiver.recv(), None);
            }
            let refused = sleepers.map(|sleeper| sleeper.join().unwrap());
            assert_eq!(refused, [Err(1), Err(2), Err(3)]);
        });
        assert_eq!(sender.try_send(4), Err(SendError::Closed(4)));
        assert!(sender.is_closed());
    }
}

#[test]
fn a_receiver_that_sleeps_sees_the_last_sender_go() {
    let (sender, mut receiver) = bounded::<i32>(3);
    let (wordless, mut other) = unbounded::<i32>();
    thread::scope(|scope| {
        let sleepers = [scope.spawn(move || receiver.recv()), scope.spawn(move || other.recv())];
        let silent = sender.realtime();
        drop((sender, wordless));
        drop(silent);
        assert_eq!(sleepers.map(|sleeper| sleeper.join().unwrap()), [None, None]);
    });
}

#[test]
fn waiting_has_a_limit_on_both_sides() {
    let (sender, mut receiver) = bounded(1);
    let short = Duration::from_millis(1);
    assert_eq!(receiver.recv_timeout(short), Err(TryRecvError::Empty));
    assert_eq!(sender.send_timeout(1, short), Ok(()));
    assert_eq!(sender.send_timeout(2, short), Err(SendError::Full(2)));
    assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(1));
    drop(sender);
    assert_eq!(receiver.recv_timeout(Duration::MAX), Err(TryRecvError::Closed));
}

/// An item that owns a sender of its own channel keeps nothing alive once the receiver is gone.
#[test]
fn a_channel_in_itself_is_freed() {
    #[allow(dead_code, reason = "their drops count")]
    struct Own(Option<Sender<Self>>, Arc<()>);
    let alive = Arc::new(());
    let (sender, receiver) = bounded(2);
    assert!(sender.try_send(Own(Some(sender.clone()), alive.clone())).is_ok());
    drop((sender, receiver));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn the_capacity_is_as_requested() {
    for (asked, there) in [(0, 1), (1, 1), (3, 3), (4, 4), (1000, 1000)] {
        let (sender, _receiver) = bounded(asked);
        assert_eq!(sender.free(), there);
        let fit = (0..).take_while(|&i| sender.try_send(i).is_ok()).count();
        assert_eq!(fit, there);
    }
}

#[test]
#[should_panic(expected = "out of range")]
fn a_capacity_that_no_memory_has() {
    drop(bounded::<u8>(usize::MAX));
}
