//! The page below a path prefix of a reverse proxy: no address leaves the prefix, and WebSockets
//! pass.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::json;

use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);
const PREFIX: &str = "/music/";
const LONGEST_HEAD: usize = 64 * 1_024;

/// A reverse proxy that serves `server` below [`PREFIX`], and the addresses that were asked for
/// outside it.
fn proxy(server: SocketAddr) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (outside, asked) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let outside = outside.clone();
            // A connection that ends early is the browser's business.
            std::thread::spawn(move || drop(pass(socket, server, &outside)));
        }
    });
    (address, asked)
}

/// Passes one request on, without the prefix, and then everything in both directions.
fn pass(mut browser: TcpStream, server: SocketAddr, outside: &Sender<String>) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        browser.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let Some(inner) = path.strip_prefix(PREFIX) else {
        // A browser asks for this one by itself where a page names no icon.
        if path != "/favicon.ico" {
            drop(outside.send(path.to_owned()));
        }
        return browser.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    // One request for each connection, so that each begins with a head.
    let request = head
        .replacen(path, &format!("/{inner}"), 1)
        .replace("Connection: keep-alive", "Connection: close");
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(request.as_bytes())?;
    let (mut from, mut to) = (browser.try_clone()?, upstream.try_clone()?);
    std::thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
    io::copy(&mut upstream, &mut browser)?;
    browser.shutdown(Shutdown::Both)
}

fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, PATIENCE, || browser.run(expression).unwrap() == true);
}

#[test]
fn the_page_works_below_a_path_prefix_of_a_reverse_proxy() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("prefix").unwrap();
    let config = "[[station]]\nname = \"kitchen\"\nsources = [\"tone://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let (address, outside) = proxy(server.http);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{address}{PREFIX}")).unwrap();
    // Status and meters come through the WebSocket.
    until(&mut browser, "/\\d/.test(document.querySelector('.figures b')?.textContent ?? '')");
    for (hash, shown) in [
        ("#/station/kitchen", "!!document.querySelector('.plot canvas')"),
        ("#/rooms", "document.body.innerText.includes('Presets')"),
        ("#/recordings", "document.querySelector('h1').textContent === 'Recordings'"),
        ("#/relays", "document.querySelector('h1').textContent === 'Outputs'"),
        ("#/events", "document.querySelector('h1').textContent === 'Events'"),
        ("#/system", "document.body.innerText.includes('Configuration')"),
    ] {
        browser.run(&format!("location.hash = {}", json!(hash))).unwrap();
        until(&mut browser, shown);
    }
    browser.run("location.hash = '#/'").unwrap();
    until(&mut browser, "!!document.querySelector('.listen')");
    browser.run("document.querySelector('.listen').click()").unwrap();
    until(&mut browser, "document.querySelector('audio').currentTime > 0.2");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    browser.watch(&format!("http://{address}{PREFIX}meter/kitchen")).unwrap();
    until(&mut browser, "/\\d/.test(document.querySelector('.figures b')?.textContent ?? '')");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    assert_eq!(outside.try_iter().collect::<Vec<_>>(), Vec::<String>::new());
    // Control experiment: an address outside the prefix is noticed.
    browser.run("fetch('/aulos/app.js').then(() => 0)").unwrap();
    assert_eq!(outside.recv_timeout(PATIENCE).unwrap(), "/aulos/app.js");
    drop(browser);
    server.stop().unwrap();
}
