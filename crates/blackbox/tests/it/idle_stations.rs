//! What a station costs that nobody listens to: a server may have hundreds.

use std::time::Duration;

use aulos_blackbox::process_usage;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;

use crate::shared_turn;

#[test]
fn a_station_without_listeners_takes_little_more_than_a_megabyte() {
    let _turn = shared_turn();
    // The codec with the largest chunks.
    let resident = |stations: usize| {
        std::thread::spawn(move || {
            let scratch = ScratchDir::new("idle").unwrap();
            let station = |number| {
                format!(
                    "[[station]]\nname = \"s{number}\"\ncodec = \"pcm\"\n\
                     sources = [\"tone://?hz=300\"]\n"
                )
            };
            let config: String = (0..stations).map(station).collect();
            let server = AulosServer::start(&scratch, &config).unwrap();
            // Until every buffer of the second and a half that is kept has been used.
            std::thread::sleep(Duration::from_millis(1_900));
            let resident = process_usage::read(server.id()).unwrap().resident;
            server.stop().unwrap();
            resident
        })
    };
    let [one, many] = [1, 41].map(resident);
    let each = (many.join().unwrap() - one.join().unwrap()) / 40;
    println!("{} kB for each station", each >> 10);
    assert!(each <= 1_300 << 10, "{each} bytes");
}
