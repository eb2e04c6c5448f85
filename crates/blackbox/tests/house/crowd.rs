//! Two hundred listeners cost no thread, no memory that grows, and nobody a frame.

use std::time::Duration;

use aulos_blackbox::account::{Account, of};
use aulos_blackbox::load::{Load, Mark};
use aulos_blackbox::scratch::Scratch;
use aulos_blackbox::server::Aulos;

use crate::hostile::counter;
use crate::{long_or_short, turn};

#[test]
fn two_hundred_clients_hear_everything() {
    let _turn = turn();
    for codec in ["pcm", "flac", "opus"] {
        hear(codec);
    }
}

fn hear(codec: &str) {
    let scratch = Scratch::new("crowd").unwrap();
    let config =
        format!("[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nsources = [\"demo://\"]\n");
    let server = Aulos::start(&scratch, &config).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let id = server.id();
    let alone = of(id).unwrap();
    let (mut begin, mut end) = (Account::default(), Account::default());
    let load = Load {
        server: server.stream,
        clients: 200,
        settle: Duration::from_secs(3),
        listen: long_or_short(60, 8),
    };
    let report = load
        .run(|mark| {
            *(if mark == Mark::Begin { &mut begin } else { &mut end }) = of(id).unwrap();
        })
        .unwrap();
    // Towards this machine the kernel copies in any case, so nobody asks it not to.
    let counted = |name| counter(server.http, name);
    assert_eq!((counted("zero_copy_sends"), counted("bytes_sent") > 0), (0, true));
    server.stop().unwrap();
    let json = report.json();
    println!("{codec}: {json:#}");
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{json:#}");
    assert!(report.heard.iter().all(|h| h.strange == 0 && h.early == 0), "{json:#}");
    // 20 ms a chunk, unless the codec has another: everyone got the time's worth of them.
    let fewest = report.heard.iter().map(|h| h.chunks).min().unwrap_or(0);
    assert!(fewest + 50 >= 50 * long_or_short(60, 8).as_secs(), "{fewest} chunks: {json:#}");
    assert_eq!((alone.threads, begin.threads), (end.threads, end.threads), "threads");
    // What the kernel or an allocator does once is not growth; a few bytes per chunk would be.
    let grown = end.resident.saturating_sub(begin.resident);
    println!(
        "{codec}: resident {} kB, grown by {} kB; {} threads",
        end.resident >> 10,
        grown >> 10,
        end.threads
    );
    assert!(grown < 1 << 20, "grown by {grown} bytes");
}
