//! Every interleaving of threads that take and return objects.

use aulos_rt_loom::pool::Pool;
use loom::thread;

/// Two threads and one object: loom's cells report two concurrent writers.
#[test]
fn one_owner_at_a_time() {
    loom::model(|| {
        let pool = Pool::new(1, || 0);
        let other = pool.clone();
        let thread = thread::spawn(move || {
            if let Some(mut object) = other.take() {
                *object += 1;
            }
        });
        if let Some(mut object) = pool.take() {
            *object += 1;
        }
        thread.join().unwrap();
        assert_eq!(pool.available(), 1);
        assert!(*pool.take().unwrap() >= 1);
    });
}

/// The ABA case, which a stack without change counter gets wrong: one thread is about to take A
/// while the other takes A and B and returns A.
#[test]
fn a_reused_top_of_the_stack_is_detected() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pool = Pool::new(2, || 0);
        let other = pool.clone();
        let thread = thread::spawn(move || {
            let a = other.take();
            let b = other.take();
            drop(a);
            b.map(|mut b| *b += 1)
        });
        let mine = pool.take().map(|mut object| {
            *object += 1;
            object
        });
        thread.join().unwrap();
        drop(mine);
        assert_eq!(pool.available(), 2);
        let (one, two) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(!std::ptr::eq(&*one, &*two));
        assert!(pool.take().is_none());
    });
}

/// Two readers release at once; the next owner writes. Loom reports a read that was not finished.
#[test]
fn the_last_of_the_readers_brings_it_home() {
    loom::model(|| {
        let pool = Pool::new(1, || 5);
        let one = pool.take().unwrap().freeze();
        let two = one.clone();
        let thread = thread::spawn(move || {
            assert_eq!(*one, 5);
            drop(one);
        });
        assert_eq!(*two, 5);
        drop(two);
        if let Some(mut object) = pool.take() {
            *object = 6;
        }
        thread.join().unwrap();
        assert_eq!(pool.available(), 1);
    });
}

/// The pool itself is dropped first, readers on two threads last.
#[test]
fn the_last_handle_frees() {
    loom::model(|| {
        let pool = Pool::new(1, || loom::sync::Arc::new(1));
        let one = pool.take().unwrap().freeze();
        let two = one.clone();
        drop(pool);
        let thread = thread::spawn(move || drop(one));
        drop(two);
        thread.join().unwrap();
    });
}
