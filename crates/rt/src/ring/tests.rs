//! A ring compared with a `VecDeque`, also just before the positions wrap.

use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Push,
    Pop,
    Peek,
    Write(usize),
    Reserve(usize, usize),
    Read(usize),
    Slices,
    Advance(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..24_usize;
    prop_oneof![
        Just(Op::Push),
        Just(Op::Pop),
        Just(Op::Peek),
        n.clone().prop_map(Op::Write),
        (n.clone(), n.clone()).prop_map(|(n, k)| Op::Reserve(n, k)),
        n.clone().prop_map(Op::Read),
        Just(Op::Slices),
        n.prop_map(Op::Advance),
    ]
}

/// The ring and its reference model, fed with consecutive numbers.
struct Pair {
    producer: Producer<u32>,
    consumer: Consumer<u32>,
    model: VecDeque<u32>,
    capacity: usize,
    next: u32,
}

impl Pair {
    fn numbers(&mut self, n: usize) -> Vec<u32> {
        (0..n)
            .map(|_| {
                self.next += 1;
                self.next
            })
            .collect()
    }

    fn put(&mut self, op: &Op) {
        let room = self.capacity - self.model.len();
        match *op {
            Op::Push => {
                let item = self.numbers(1)[0];
                let done = self.producer.push(item);
                assert_eq!(done, if room > 0 { Ok(()) } else { Err(item) });
                self.model.extend(done.ok().map(|()| item));
            }
            Op::Write(n) => {
                let items = self.numbers(n);
                let done = self.producer.write(&items);
                assert_eq!(done, n.min(room));
                self.model.extend(&items[..done]);
            }
            Op::Reserve(n, k) => {
                let k = k.min(n).min(room);
                let items = self.numbers(k);
                let (one, two) = self.producer.reserve(n);
                assert_eq!(one.len() + two.len(), n.min(room));
                one.iter_mut().chain(two).zip(&items).for_each(|(slot, item)| *slot = *item);
                self.producer.commit(k);
                self.model.extend(items);
            }
            _ => {}
        }
    }

    fn take(&mut self, op: &Op) {
        match *op {
            Op::Pop => assert_eq!(self.consumer.pop(), self.model.pop_front()),
            Op::Peek => assert_eq!(self.consumer.peek(), self.model.front()),
            Op::Read(n) => {
                let mut out = vec![0; n];
                let got = self.consumer.read(&mut out);
                assert_eq!(got, n.min(self.model.len()));
                assert!(self.model.drain(..got).eq(out[..got].iter().copied()));
                assert!(out[got..].iter().all(|&item| item == 0));
            }
            Op::Slices => {
                let (one, two) = self.consumer.as_slices();
                assert!(one.iter().chain(two).eq(&self.model));
            }
            Op::Advance(n) => {
                let gone = self.consumer.advance(n);
                assert_eq!(gone, n.min(self.model.len()));
                self.model.drain(..gone);
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn is_a_bounded_deque(
        capacity in 0..17_usize,
        before_wrap in 0..40_usize,
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let (producer, consumer) = starting_at(capacity, 0_usize.wrapping_sub(before_wrap));
        let mut pair = Pair { producer, consumer, model: VecDeque::new(), capacity, next: 0 };
        for op in ops {
            pair.put(&op);
            pair.take(&op);
            prop_assert_eq!(pair.consumer.len(), pair.model.len());
            prop_assert_eq!(pair.consumer.is_empty(), pair.model.is_empty());
            prop_assert_eq!(pair.producer.free(), capacity - pair.model.len());
        }
    }

    #[test]
    fn every_item_is_dropped_once(
        capacity in 1..9_usize,
        before_wrap in 0..12_usize,
        pushes in 0..20_usize,
        taken in 0..20_usize,
        skipped in 0..20_usize,
    ) {
        let item = Rc::new(());
        let (mut producer, mut consumer) = starting_at(capacity, 0_usize.wrapping_sub(before_wrap));
        let mut inside = 0;
        for _ in 0..pushes {
            inside += usize::from(producer.push(Rc::clone(&item)).is_ok());
        }
        for _ in 0..taken {
            inside -= usize::from(consumer.pop().is_some());
        }
        inside -= consumer.advance(skipped);
        prop_assert_eq!(Rc::strong_count(&item), 1 + inside);
        drop(producer);
        prop_assert_eq!(Rc::strong_count(&item), 1 + inside);
        drop(consumer);
        prop_assert_eq!(Rc::strong_count(&item), 1);
    }
}

#[test]
#[should_panic(expected = "3 are reserved")]
fn more_than_reserved_cannot_be_committed() {
    let (mut producer, _consumer) = ring::<u8>(3);
    producer.reserve(9);
    producer.commit(4);
}

#[test]
#[should_panic(expected = "0 are reserved")]
fn a_push_ends_the_reservation() {
    let (mut producer, _consumer) = ring::<u8>(3);
    producer.reserve(2);
    producer.push(1).unwrap();
    producer.commit(2);
}

#[test]
fn each_end_sees_the_other_go() {
    let (mut producer, consumer) = ring(4);
    producer.push(1).unwrap();
    assert!(!consumer.is_abandoned());
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(consumer.len(), 1);

    let (producer, consumer) = ring::<u8>(4);
    assert!(!producer.is_abandoned());
    drop(consumer);
    assert!(producer.is_abandoned());
}

#[test]
fn two_threads_hand_over_every_item_in_order() {
    const COUNT: u64 = 300_000;
    let (mut producer, mut consumer) = ring(61);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < COUNT {
                match producer.push(Box::new(next)) {
                    Ok(()) => next += 1,
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        let mut expected = 0;
        loop {
            let last = consumer.is_abandoned();
            while let Some(item) = consumer.pop() {
                assert_eq!(*item, expected);
                expected += 1;
            }
            if last {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(expected, COUNT);
    });
}

#[test]
fn two_threads_hand_over_runs_in_order() {
    const COUNT: usize = 2_000_000;
    let (mut producer, mut consumer) = ring::<usize>(1000);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < COUNT {
                let (one, two) = producer.reserve((next % 700 + 1).min(COUNT - next));
                let n = one.len() + two.len();
                one.iter_mut().chain(two).zip(next..).for_each(|(slot, i)| *slot = i);
                producer.commit(n);
                next += n;
                if n == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        let mut out = [0; 333];
        while expected < COUNT {
            let n = consumer.read(&mut out);
            assert!(out[..n].iter().copied().eq(expected..expected + n));
            expected += n;
            if n == 0 {
                std::thread::yield_now();
            }
        }
    });
}
