//! The judges themselves, before real peers on both sides: if these fail, the fault is in the
//! judge or in the machine, and what the other tests say means nothing.

use std::fs::OpenOptions;
use std::time::Duration;

use aulos_blackbox::judge;
use aulos_blackbox::load::Load;
use aulos_blackbox::peer::{RESYNC, Snapclient, Snapserver, find_or_skip, lines_with};
use aulos_blackbox::scratch::Scratch;
use aulos_blackbox::signal::{Bits, RATE, programme};
use aulos_blackbox::writer::Writer;

use crate::{long_or_short, turn};

fn through_snapserver(bits: Bits, codec: &str) {
    let (Some(server), Some(client)) = (find_or_skip("snapserver"), find_or_skip("snapclient"))
    else {
        return;
    };
    let _turn = turn();
    let time = long_or_short(60, 5);
    let scratch = Scratch::new("peers").unwrap();
    let fifo = scratch.fifo("in").unwrap();
    let spec = format!("48000:{}:2", bits.count());
    let server = Snapserver::start(&server, &scratch, &fifo, codec, &spec).unwrap();
    let mut client = Snapclient::start(&client, server.port, &scratch, "judge").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let load = Load {
        server: ([127, 0, 0, 1], server.port).into(),
        clients: 20,
        settle: Duration::from_secs(1),
        listen: time - Duration::from_secs(2),
    };
    let sound = programme(RATE * usize::try_from(time.as_secs()).unwrap(), bits, 3);
    let bytes = bits.bytes(&[&vec![[0, 0]; RATE], &sound[..], &vec![[0, 0]; 2 * RATE]].concat());
    let pipe = OpenOptions::new().write(true).open(fifo).unwrap();
    let per_second = bytes.len() / (bytes.len() / RATE / bits.bytes(&[[0, 0]]).len());
    let writer = std::thread::spawn(move || Writer::steady(pipe, per_second).write(&bytes));
    std::thread::sleep(Duration::from_millis(300));
    let report = load.run(|_| ()).unwrap();
    writer.join().unwrap().unwrap();
    let log = client.log().unwrap();
    let captured = bits.frames(&client.stop().unwrap());
    let faults = judge::compare(&sound, &captured);
    let resync = lines_with(&log, &RESYNC);
    assert!(faults.is_empty(), "{}: {resync:?}", faults[0]);
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{:#}", report.json());
    assert!(report.heard.iter().all(|h| h.chunks > 0 && h.strange == 0), "{:#}", report.json());
    assert!(report.reference.is_some_and(|o| o.offset.abs() < 5_000), "{:?}", report.reference);
}

#[test]
fn the_judge_passes_real_peers_pcm_16() {
    through_snapserver(Bits::B16, "pcm");
}

#[test]
fn the_judge_passes_real_peers_flac_24() {
    through_snapserver(Bits::B24, "flac");
}
