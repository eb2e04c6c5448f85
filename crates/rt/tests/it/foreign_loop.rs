//! Channels and the main loop inside a loop that waits on file descriptors: poll(2) and epoll. They
//! wait without a time limit, so that a lost wake makes the test hang.
#![allow(unsafe_code, reason = "poll and epoll are C functions")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use aulos_rt::channel::{FdReceiver, TryRecvError, bounded, unbounded};
use aulos_rt::clock;
use aulos_rt::main_loop::MainLoop;

/// Waits until the descriptor is readable or the time is over; returns whether it is readable.
fn poll(fd: &impl AsFd, limit_ms: i32) -> bool {
    let mut ask = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives during the call.
    let n = unsafe { libc::poll(&raw mut ask, 1, limit_ms) };
    assert!(n >= 0, "{}", std::io::Error::last_os_error());
    n == 1
}

/// An epoll instance with one descriptor.
struct Epoll(OwnedFd);

impl Epoll {
    fn new(fd: &impl AsFd, events: i32) -> Self {
        // SAFETY: a plain request.
        let number = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(number >= 0);
        // SAFETY: the call has just made this descriptor, and no other code knows it.
        let epoll = Self(unsafe { OwnedFd::from_raw_fd(number) });
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: 0 };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: both descriptors are open, and the event lives during the call.
        let refused =
            unsafe { libc::epoll_ctl(number, add, fd.as_fd().as_raw_fd(), &raw mut event) };
        assert_eq!(refused, 0);
        epoll
    }

    fn wait(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event, which lives during the call.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, -1) };
        assert_eq!(n, 1);
    }
}

const SENDERS: usize = 3;
const EACH: usize = 5_000;
type Item = (usize, usize);

/// Several senders and a loop that waits with `wait` and then receives until the channel is empty,
/// or just one item if the descriptor is level-triggered. All items arrive, in their senders'
/// order.
fn everything_arrives(
    mut receiver: FdReceiver<Item>,
    send: impl Fn(Item) + Clone + Send,
    just_one: bool,
    wait: impl Fn(&FdReceiver<Item>),
) {
    let mut counts = [0; SENDERS];
    thread::scope(|scope| {
        for who in 0..SENDERS {
            let send = send.clone();
            scope.spawn(move || (0..EACH).for_each(|count| send((who, count))));
        }
        drop(send);
        'all: loop {
            wait(&receiver);
            loop {
                match receiver.try_recv() {
                    Ok((who, count)) => {
                        assert_eq!(count, counts[who]);
                        counts[who] += 1;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Closed) => break 'all,
                }
                if just_one {
                    break;
                }
            }
        }
    });
    assert_eq!(counts, [EACH; SENDERS]);
    assert!(poll(&receiver, -1), "the end stays readable");
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
}

fn small() -> (impl Fn(Item) + Clone + Send, FdReceiver<Item>) {
    let (sender, receiver) = bounded(10);
    (move |item| sender.send(item).unwrap(), receiver.into_fd().unwrap())
}

#[test]
fn under_poll() {
    for just_one in [false, true] {
        let (send, receiver) = small();
        everything_arrives(receiver, send, just_one, |receiver| assert!(poll(receiver, -1)));
        let (sender, receiver) = unbounded();
        let send = move |item| sender.send(item).unwrap();
        let receiver = receiver.into_fd().unwrap();
        everything_arrives(receiver, send, just_one, |receiver| assert!(poll(receiver, -1)));
    }
}

#[test]
fn under_epoll() {
    for (events, just_one) in
        [(libc::EPOLLIN, true), (libc::EPOLLIN, false), (libc::EPOLLIN | libc::EPOLLET, false)]
    {
        let (send, receiver) = small();
        let epoll = Epoll::new(&receiver, events);
        everything_arrives(receiver, send, just_one, |_| epoll.wait());
    }
}

#[test]
fn a_descriptor_is_not_readable_without_values() {
    let (sender, receiver) = bounded(2);
    let mut receiver = receiver.into_fd().unwrap();
    assert!(poll(&receiver, -1), "the first look arms it");
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert!(!poll(&receiver, 0));
    sender.try_send(1).unwrap();
    assert!(poll(&receiver, 0));
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert!(!poll(&receiver, 0));
    // A real-time sender needs another thread to wake the receiver.
    let look = {
        let receiver = receiver.into_inner();
        let look = receiver.waker();
        let mut receiver = receiver.into_fd().unwrap();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        let realtime = sender.realtime();
        drop(sender);
        assert_eq!((poll(&receiver, 0), receiver.try_recv()), (true, Err(TryRecvError::Empty)));
        realtime.push(2).unwrap();
        assert!(!poll(&receiver, 0));
        look.wake();
        assert!(poll(&receiver, 0));
        assert_eq!(receiver.try_recv(), Ok(2));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        look.wake();
        assert!(!poll(&receiver, 0), "there is nothing to look at");
        drop(realtime);
        look.wake();
        assert!(poll(&receiver, 0));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        look
    };
    look.wake();
}

/// The main loop inside poll(2): items, futures of other threads and timers; it quits by itself.
#[test]
fn our_loop_inside_another() {
    let mut main_loop = MainLoop::new();
    let fd = main_loop.fd().unwrap();
    let (sender, receiver) = bounded(10);
    let got = Rc::new(Cell::new(0));
    let count = Rc::clone(&got);
    main_loop.local().attach(receiver, move |item: usize| count.set(count.get() + item)).detach();
    let handle = main_loop.handle();
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..EACH).for_each(|_| sender.send(1).unwrap());
            let late = handle.sleep(Duration::from_millis(2));
            let quit = handle.clone();
            let last = async move {
                late.await;
                drop(sender);
                quit.quit();
            };
            handle.spawn(last).detach();
        });
        loop {
            let next = main_loop.poll(clock::now());
            if main_loop.handle().is_quitting() {
                break;
            }
            let left = next.map(|at| at.saturating_sub(clock::now()).div_ceil(1_000_000));
            poll(&fd, left.map_or(-1, |ms| i32::try_from(ms).unwrap()));
        }
    });
    assert_eq!(got.get(), EACH);
}

/// Only the descriptor wakes this loop.
#[test]
fn every_wish_of_another_thread_is_seen() {
    let mut main_loop = MainLoop::new();
    let fd = main_loop.fd().unwrap();
    let (handle, done) = (main_loop.handle(), Rc::new(Cell::new(0)));
    let (sender, receiver) = unbounded();
    let count = Rc::clone(&done);
    main_loop.local().attach(receiver, move |()| count.set(count.get() + 1)).detach();
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..EACH {
                let sender = sender.clone();
                handle.call(move || sender.send(()).unwrap());
            }
        });
        while done.get() < EACH {
            assert!(poll(&fd, -1));
            while main_loop.poll(0).is_some() {}
        }
    });
    assert!(main_loop.poll(0).is_none());
    assert!(!poll(&fd, 0));
}
