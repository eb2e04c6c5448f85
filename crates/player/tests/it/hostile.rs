//! Servers that misbehave: the player says what is wrong, stays small and can be stopped.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use aulos_core::{Rng, Span};
use aulos_player::{PlayOptions, PlayerEvent, PlayerHandle, event_message};

use super::server::{Server, pcm_header};

/// Not a target: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Playing {
    handle: PlayerHandle,
    messages: Vec<String>,
}

impl Playing {
    fn start(server: SocketAddr) -> Self {
        Self::start_at(&format!("tcp://{server}"))
    }

    pub(crate) fn start_at(server: &str) -> Self {
        let options = PlayOptions {
            server: server.parse().unwrap(),
            id: Some("test".to_owned()),
            ..PlayOptions::new("null".parse().unwrap())
        };
        let (config, _) = options.into_config().unwrap();
        Self { handle: PlayerHandle::start(config).unwrap(), messages: Vec::new() }
    }

    /// Waits for a message with these words.
    pub(crate) fn expect(&mut self, words: &str) {
        let start = Instant::now();
        while !self.messages.iter().any(|message| message.contains(words)) {
            assert!(start.elapsed() < PATIENCE, "no `{words}` in {:#?}", self.messages);
            std::thread::sleep(Duration::from_millis(5));
            self.collect();
        }
    }

    fn collect(&mut self) {
        while let Ok(event) = self.handle.events.try_recv() {
            let _: &PlayerEvent = &event;
            self.messages.extend(event_message(&event, "the server"));
        }
    }

    /// Stops it, which takes no longer than the system does.
    pub(crate) fn stop(self) {
        let start = Instant::now();
        self.handle.stop();
        self.handle.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[test]
fn garbage_is_named_once_and_tried_again() {
    let mut random = Rng::new(1);
    let server = Server::start(4, move |connection| {
        let garbage: Vec<u8> = (0..500).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        // The player may have closed the connection already.
        drop(connection.socket.write_all(&garbage));
        drop(connection.socket.read(&mut [0; 1_000]));
    });
    let mut player = Playing::start(server.address);
    player.expect("may not be a Snapcast server; trying again");
    server.join();
    player.expect("refused");
    let named = player.messages.iter().filter(|text| text.contains("Snapcast server")).count();
    assert_eq!(named, 1, "{:#?}", player.messages);
    player.stop();
}

#[test]
fn a_silent_server_is_given_up_after_two_seconds() {
    let server = Server::start(1, |connection| {
        let begin = Instant::now();
        while connection.socket.read(&mut [0; 1_000]).is_ok_and(|length| length > 0) {}
        // The player's two seconds begin with its Hello, before this thread gets the connection.
        assert!(begin.elapsed() >= Duration::from_millis(1_500), "{:?}", begin.elapsed());
    });
    let mut player = Playing::start(server.address);
    player.expect("the server does not answer within 2 s");
    player.stop();
    server.join();
}

#[test]
fn an_unknown_codec_is_named() {
    let server = Server::start(1, |connection| {
        connection.greet("ogg", b"\x01vorbis");
        while connection.socket.read(&mut [0; 1_000]).is_ok_and(|length| length > 0) {}
    });
    let mut player = Playing::start(server.address);
    player.expect("`ogg`, which is not supported: choose flac, opus or pcm");
    player.stop();
    server.join();
}

#[test]
fn a_server_that_comes_later_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut player = Playing::start(address);
    player.expect("refused");
    let listener = TcpListener::bind(address).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut hello = [0; 26];
    socket.read_exact(&mut hello).unwrap();
    assert_eq!(hello[0], 5);
    player.stop();
}

/// Chunks of the next hours, as fast as they can be sent.
#[test]
fn endless_chunks_of_the_future_fill_a_bounded_queue() {
    let server = Server::start(1, |connection| {
        connection.greet("pcm", &pcm_header());
        let payload = vec![1; 192];
        for number in 0.. {
            if !connection.chunk(3_600_000_000 + number * 1_000, &payload) {
                return;
            }
            if number % 64 == 0 {
                connection.answer();
            }
        }
    });
    let mut player = Playing::start(server.address);
    let start = Instant::now();
    let status = loop {
        let status = *player.handle.status.read();
        if status.no_room > 1_000 {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.queued <= 6_000 && status.playback.starts == 0, "{status:?}");
    player.stop();
    server.join();
}

/// A server of a few lines is in time, and its end is said and heard.
#[test]
fn a_stream_plays_in_time_and_its_loss_is_a_message() {
    let server = Server::start(1, |connection| {
        connection.greet("pcm", &pcm_header());
        let payload: Vec<u8> = (0..960_u16).flat_map(|i| [i.to_le_bytes(); 2].concat()).collect();
        for number in 0..200 {
            let at = number * 20_000;
            while connection.now() < at {
                connection.answer();
            }
            connection.chunk(at, &payload);
        }
    });
    let mut player = Playing::start(server.address);
    let start = Instant::now();
    let status = loop {
        let status = *player.handle.status.read();
        if status.is_playing && status.sync_error.is_some() {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.is_connected && status.playback.starts >= 1, "{status:?}");
    let delay = status.device_delay.unwrap();
    assert!(delay > Span::from_millis(10) && delay < Span::from_millis(100), "{status:?}");
    player.expect("connected to the server");
    player.expect("the stream is pcm 48000:16:2");
    player.expect("volume 100 %, buffer 1000 ms");
    player.expect("the server has closed the connection");
    server.join();
    player.stop();
}
