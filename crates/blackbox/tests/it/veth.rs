//! A network that is not loopback: two namespaces and a pair of virtual interfaces. On loopback no
//! send is zero-copy and addresses are not limited, so both are tested here.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::hostile::counter;
use crate::turn;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::wire::{HEADER, MessageHeader, hello, kind, time_at};

const CONFIG: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"96000:24:2\"\n\
    sources = [\"demo://\"]\n";

#[test]
fn zero_copy_sends_are_correct_and_connections_per_address_are_limited() {
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    for (listen, server) in [("0.0.0.0:0", "10.77.0.1"), ("[::]:0", "fd77::1")] {
        net.run_inside(0, || hear_both(&net, listen, server.parse().unwrap()));
    }
}

/// Another machine may hold a quarter of the connections of the control port and of the page's,
/// whether they have made a request or not. This machine, and every other one, can still connect.
#[test]
fn one_address_cannot_take_every_connection_of_control_and_http() {
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    net.run_inside(0, || {
        let scratch = ScratchDir::new("slots").unwrap();
        let config = scratch.join("aulos.toml");
        std::fs::write(&config, CONFIG).unwrap();
        let server = AulosServer::start_with(&scratch, |command| {
            command.arg("--config").arg(&config);
            for key in ["control", "http"] {
                command.args(["--set", &format!("listen.{key}=0.0.0.0:0")]);
            }
        })
        .unwrap();
        let call = "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"Server.GetRPCVersion\"}\n";
        let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for (port, request) in [(server.control.port(), call), (server.http.port(), get)] {
            let far = SocketAddr::new([10, 77, 0, 1].into(), port);
            // Two thirds make a request and stay, the others never complete one.
            let crowd = net.run_inside(1, || {
                let ask = |number: usize| {
                    let mut socket = TcpStream::connect(far).ok()?;
                    let whole = !number.is_multiple_of(3);
                    let part = if whole { request } else { &request[..5] };
                    socket.write_all(part.as_bytes()).ok()?;
                    socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
                    // A refused connection is closed.
                    if whole && socket.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
                        return Some((socket, true));
                    }
                    Some((socket, false))
                };
                (0..1_100).filter_map(ask).collect::<Vec<_>>()
            });
            assert!(crowd.len() >= 900, "{}: no descriptors for this test", crowd.len());
            let served = crowd.iter().filter(|(_, served)| *served).count();
            assert!(served > 200, "{served} of the first were served");
            // This end's interface is not loopback, but it has another address.
            let mut friend = TcpStream::connect(far).unwrap();
            friend.write_all(request.as_bytes()).unwrap();
            friend.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let count = friend.read(&mut [0; 64]).unwrap();
            assert!(count > 0, "port {port}: another address found no connection left");
            drop(crowd);
        }
        assert!(counter(server.http, "control_refused_same_address") > 0);
        server.stop().unwrap();
    });
}

fn hear_both(net: &NetNamespaces, listen: &str, address: IpAddr) {
    let scratch = ScratchDir::new("veth").unwrap();
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&config).args(["--set", &format!("listen.stream={listen}")]);
    })
    .unwrap();
    let port = server.stream.port();
    let near = match address {
        IpAddr::V4(_) => SocketAddr::new([127, 0, 0, 1].into(), port),
        IpAddr::V6(_) => SocketAddr::new("::1".parse().unwrap(), port),
    };
    let count = |name: &str| counter(server.http, name);
    let copy = std::thread::spawn(move || chunks(near, 1));
    let far = SocketAddr::new(address, port);
    let heard = net.run_inside(1, || chunks(far, 2)).unwrap();
    let copy = copy.join().unwrap().unwrap();
    let same = heard.iter().filter(|(at, _)| copy.contains_key(at)).count();
    assert!(
        same > 50,
        "{} and {} chunks, {same} of them at the same time",
        heard.len(),
        copy.len()
    );
    for (at, chunk) in &heard {
        assert!(copy.get(at).is_none_or(|other| other == chunk), "another sound at {at}");
    }
    // By then the completions of the last sends have come, and the counters have been published.
    std::thread::sleep(Duration::from_millis(600));
    let (sends, copied) = (count("zero_copy_sends"), count("zero_copy_copied"));
    println!(
        "{far}: {sends} sends without a copy ({} bytes), {copied} of them copied after all, {} \
         refused; {} ordinary sends ({} bytes){}",
        count("zero_copy_bytes"),
        count("zero_copy_fallbacks"),
        count("sends"),
        count("bytes_sent"),
        if copied == 0 { "" } else { ": the gain is not measurable here" }
    );
    assert!(sends + count("zero_copy_fallbacks") > 0, "it was never tried");
    // After three copied sends the server stops zero-copy for that peer.
    assert!(copied <= 3, "{copied} copies");
    net.run_inside(1, || {
        let crowd: Vec<_> = (0..1_030).map_while(|_| TcpStream::connect(far).ok()).collect();
        assert!(crowd.len() >= 900, "{}: no descriptors for this test", crowd.len());
        std::thread::sleep(Duration::from_millis(600));
        let wanted = crowd.len().saturating_sub(1_024) as u64;
        assert!(count_from(net, &server) >= wanted);
    });
    server.stop().unwrap();
}

fn count_from(net: &NetNamespaces, server: &AulosServer) -> u64 {
    // Depending on the limit that is reached first: the total number per address may also connect
    // at once.
    ["connections_refused_same_address", "connections_refused_too_fast"]
        .map(|name| net.run_inside(0, || counter(server.http, name)))
        .iter()
        .sum()
}

/// The chunks of three seconds, by their timestamp.
fn chunks(server: SocketAddr, id: usize) -> io::Result<BTreeMap<i64, Vec<u8>>> {
    let mut socket = TcpStream::connect(server)?;
    socket.write_all(&hello(id))?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (start, mut bytes, mut buffer) = (Instant::now(), Vec::new(), vec![0; 1 << 16]);
    while start.elapsed() < Duration::from_secs(3) {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    let (mut found, mut rest) = (BTreeMap::new(), &bytes[..]);
    while let Some(header) = MessageHeader::parse(rest) {
        let Some(message) = rest.get(HEADER..HEADER + header.size as usize) else { break };
        if header.kind == kind::WIRE_CHUNK {
            found.insert(time_at(message, 0).unwrap(), message.to_vec());
        }
        rest = &rest[HEADER + message.len()..];
    }
    Ok(found)
}
