//! `aulos-load HOST:PORT [--clients N] [--seconds S] [--settle S]`: connects many clients and
//! prints one JSON object: gaps, delays, clock errors. Works with any Snapcast server.

#![forbid(unsafe_code)]

use std::net::ToSocketAddrs as _;
use std::process::ExitCode;
use std::time::Duration;

use aulos_blackbox::load::LoadTest;

const USAGE: &str = "aulos-load HOST:PORT [--clients N] [--seconds S] [--settle S]";

fn main() -> ExitCode {
    let Some(load) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match load.run(|_| ()) {
        Ok(report) => {
            println!("{:#}", report.json());
            ExitCode::from(u8::from(report.gaps() > 0 || report.cut() > 0))
        }
        Err(e) => {
            eprintln!("aulos-load: {}: {e}", load.server);
            ExitCode::from(69)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<LoadTest> {
    let server = args.next()?.to_socket_addrs().ok()?.next()?;
    let second = Duration::from_secs(1);
    let mut load = LoadTest { server, clients: 100, settle: second * 2, listen: second * 10 };
    while let Some(option) = args.next() {
        let value = args.next()?;
        match option.as_str() {
            "--clients" => load.clients = value.parse().ok()?,
            "--seconds" => load.listen = Duration::from_secs_f64(value.parse().ok()?),
            "--settle" => load.settle = Duration::from_secs_f64(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(load)
}
