//! Listeners of a radio station, and what each of them hears: players of Icecast streams and of
//! HLS, with the buffers that players have.
//!
//! They decode nothing. What they know is how much sound has arrived and when, so that a stall is
//! one that a person would hear; the bytes of a few are kept for a decoder.

mod frames;
mod hls;
mod listener;
mod playout;
mod stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use listener::{Listener, lock};

pub use playout::{ListenerReport, Playout};

/// What a listener plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Player {
    /// An MP3 or AAC stream at a path of the HTTP port.
    Stream(&'static str),
    /// The media playlist of a rendition.
    Hls(&'static str),
}

impl Player {
    /// The path that it requests.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Stream(path) | Self::Hls(path) => path,
        }
    }

    /// The sound that a player has before it begins. Browsers and radios begin a stream with some
    /// two seconds; HLS begins with what its first segments hold (RFC 8216, 6.3.3).
    const fn reserve(self) -> Duration {
        match self {
            Self::Stream(_) => Duration::from_millis(1_000),
            Self::Hls(_) => Duration::from_millis(100),
        }
    }
}

/// Listeners of one kind, a thread each.
#[derive(Debug)]
pub struct Listeners {
    player: Player,
    begin: Instant,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    playouts: Vec<Arc<Mutex<Playout>>>,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Listeners {
    /// Starts so many. They come back after each error, until [`Listeners::stop`].
    #[must_use]
    pub fn start(player: Player, server: SocketAddr, count: usize) -> Self {
        let (begin, end) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let kept = Arc::default();
        let playouts: Vec<_> =
            (0..count).map(|_| Arc::new(Mutex::new(Playout::new(player.reserve())))).collect();
        let threads = playouts.iter().enumerate().map(|(index, playout)| {
            let listener = Listener {
                server,
                path: player.path(),
                begin,
                end: end.clone(),
                playout: playout.clone(),
                kept: (index == 0).then(|| Arc::clone(&kept)),
            };
            std::thread::spawn(move || match player {
                Player::Stream(_) => stream::play(&listener),
                Player::Hls(_) => hls::play(&listener, index),
            })
        });
        let threads = threads.collect();
        Self { player, begin, end, threads, playouts, kept }
    }

    /// What they play.
    #[must_use]
    pub const fn player(&self) -> Player {
        self.player
    }

    /// What each of them has heard since the last call.
    #[must_use]
    pub fn heard(&self) -> Vec<ListenerReport> {
        let now = self.begin.elapsed();
        self.playouts.iter().map(|playout| lock(playout).take(now)).collect()
    }

    /// The bytes that the first of them has received since the last call.
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.kept))
    }

    /// Ends them.
    pub fn stop(self) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
