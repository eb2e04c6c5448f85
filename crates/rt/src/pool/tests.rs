use std::sync::atomic::AtomicUsize as Count;

use proptest::prelude::*;

use super::*;

#[test]
fn each_object_has_one_user_and_returns_unchanged() {
    let pool = Pool::new(2, Vec::<u8>::new);
    let mut one = pool.take().unwrap();
    let two = pool.take().unwrap();
    assert!(pool.take().is_none());
    assert_eq!(pool.available(), 0);
    one.push(7);
    drop(one);
    assert_eq!(pool.available(), 1);
    assert_eq!(*pool.take().unwrap(), [7]);
    drop(two);
    assert_eq!((pool.available(), pool.capacity()), (2, 2));
}

#[test]
fn a_pool_of_nothing_lends_nothing() {
    assert!(Pool::new(0, || ()).take().is_none());
}

/// Counts its drops.
struct Ends<'a>(&'a Count);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn objects_end_with_the_last_handle_and_not_before() {
    let ends = Count::new(0);
    let ended = || ends.load(Ordering::Relaxed);
    let pool = Pool::new(3, || Ends(&ends));
    let unique = pool.take().unwrap();
    let shared = pool.take().unwrap().freeze();
    drop(pool.take());
    let clone = shared.clone();
    drop(pool);
    drop(unique);
    drop(shared);
    assert_eq!(ended(), 0);
    drop(clone);
    assert_eq!(ended(), 3);
}

proptest! {
    /// Handles are taken, frozen, cloned and dropped in any order; the model is a list of each
    /// handle's object.
    #[test]
    fn an_object_is_free_exactly_when_no_handle_has_it(
        count in 1..5_usize,
        ops in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..120),
    ) {
        let mut number = 0;
        let pool = Pool::new(count, || { number += 1; number - 1 });
        let (mut unique, mut shared) = (Vec::new(), Vec::new());
        for (op, which) in ops {
            match op {
                0 => unique.extend(pool.take()),
                1 if !unique.is_empty() => {
                    shared.push(unique.swap_remove(which.index(unique.len())).freeze());
                }
                2 if !shared.is_empty() => shared.push(shared[which.index(shared.len())].clone()),
                3 if !shared.is_empty() => drop(shared.swap_remove(which.index(shared.len()))),
                3 if !unique.is_empty() => drop(unique.swap_remove(which.index(unique.len()))),
                _ => {}
            }
            let mut out: Vec<usize> = shared.iter().map(|s| **s).collect();
            out.sort_unstable();
            out.dedup();
            out.extend(unique.iter().map(|u| **u));
            let total = out.len();
            out.sort_unstable();
            out.dedup();
            prop_assert_eq!(out.len(), total, "two unique handles of one object");
            prop_assert_eq!(pool.available(), count - total);
        }
    }
}

/// Each thread marks its objects; an object held twice would show another thread's mark.
#[test]
fn threads_never_hold_the_same_object() {
    let pool = Pool::new(3, || 0_usize);
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let pool = pool.clone();
            scope.spawn(move || {
                for round in 0..60_000 {
                    let Some(mut object) = pool.take() else {
                        std::thread::yield_now();
                        continue;
                    };
                    *object = thread;
                    if round % 3 == 0 {
                        let shared = object.freeze();
                        let clone = shared.clone();
                        drop(shared);
                        assert_eq!(*clone, thread);
                    } else {
                        std::hint::spin_loop();
                        assert_eq!(*object, thread);
                    }
                }
            });
        }
    });
    assert_eq!(pool.available(), 3);
}
