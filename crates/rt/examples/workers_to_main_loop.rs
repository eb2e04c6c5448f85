//! Worker threads send their results to a main loop, which also has a timer; the loop is embedded
//! in a foreign one that only supports poll(2). One of the workers is a real-time thread.
#![allow(unsafe_code, reason = "poll is a C function")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use aulos_rt::channel::bounded;
use aulos_rt::clock;
use aulos_rt::main_loop::{LoopFd, MainLoop};

enum UiEvent {
    Scanned { worker: u32, file: u32 },
    Peak(f32),
}

fn main() -> std::io::Result<()> {
    let mut main_loop = MainLoop::new();
    let (sender, receiver) = bounded(64);
    let audio = sender.realtime();

    // The closure runs on this thread, so it may hold values that are not `Send`.
    let scanned = Rc::new(Cell::new(0));
    let count = Rc::clone(&scanned);
    let each = move |news| match news {
        UiEvent::Scanned { worker, file } => {
            count.set(count.get() + 1);
            if file == 99 {
                println!("worker {worker} is done");
            }
        }
        UiEvent::Peak(peak) => println!("peak {peak:.1}"),
    };
    let all_news = main_loop.local().attach(receiver, each);
    let mut ticks = main_loop.handle().every(Duration::from_millis(10));
    let progress = async move {
        while ticks.tick().await.is_some() {
            println!("{} files so far", scanned.get());
        }
    };
    main_loop.local().spawn(progress).detach();

    let fd = main_loop.fd()?;
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let sender = sender.clone();
            scope.spawn(move || {
                for file in 0..100 {
                    std::thread::park_timeout(Duration::from_micros(200));
                    // Waits while the loop is behind; returns the item if the receiver is gone.
                    drop(sender.send(UiEvent::Scanned { worker, file }));
                }
            });
        }
        drop(sender);
        // The audio callback neither waits nor wakes another thread.
        scope.spawn(move || (1..4_u8).for_each(|i| drop(audio.push(UiEvent::Peak(f32::from(i))))));

        while !all_news.is_finished() {
            let next = main_loop.poll(clock::now());
            wait(&fd, next);
        }
    });
    Ok(())
}

/// The foreign loop: sleeps until the descriptor is readable or the timeout is over.
#[cfg(target_os = "linux")]
fn wait(fd: &LoopFd, until: Option<u64>) {
    use std::os::fd::{AsFd, AsRawFd};
    let left = until.map(|at| at.saturating_sub(clock::now()).div_ceil(1_000_000));
    let limit = left.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
    let mut ask = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is alive during the call.
    unsafe { libc::poll(&raw mut ask, 1, limit) };
}

#[cfg(not(target_os = "linux"))]
fn wait(_: &LoopFd, _: Option<u64>) {}
