//! A network that is not this machine's own: two namespaces and a pair of virtual cards. Towards
//! loopback no send goes without a copy and no address is counted, so both are shown here.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::Scratch;
use aulos_blackbox::server::Aulos;
use aulos_blackbox::wire::{HEADER, Header, hello, kind, time_at};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::hostile::counter;
use crate::turn;

const CONFIG: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"96000:24:2\"\n\
    sources = [\"demo://\"]\n";

#[test]
fn what_is_sent_without_a_copy_is_what_others_hear_and_one_address_has_so_many_places() {
    let _turn = turn();
    let Some(net) = Net::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    for (listen, server) in [("0.0.0.0:0", "10.77.0.1"), ("[::]:0", "fd77::1")] {
        net.inside(0, || hear_both(&net, listen, server.parse().unwrap()));
    }
}

fn hear_both(net: &Net, listen: &str, address: IpAddr) {
    let scratch = Scratch::new("veth").unwrap();
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let server = Aulos::start_with(&scratch, |command| {
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
    let heard = net.inside(1, || chunks(far, 2)).unwrap();
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
    // The completions of the last sends have come by now, and the counters been published.
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
    // Who is copied to in any case is left alone after three times.
    assert!(copied <= 3, "{copied} copies");
    net.inside(1, || {
        let crowd: Vec<_> = (0..1_030).map_while(|_| TcpStream::connect(far).ok()).collect();
        assert!(crowd.len() >= 900, "{}: no descriptors for this test", crowd.len());
        std::thread::sleep(Duration::from_millis(600));
        let wanted = crowd.len().saturating_sub(1_024) as u64;
        assert!(count_from(net, &server) >= wanted);
    });
    server.stop().unwrap();
}

fn count_from(net: &Net, server: &Aulos) -> u64 {
    // Whichever limit is met first: as many as may be here may also come at once.
    ["connections_refused_same_address", "connections_refused_too_fast"]
        .map(|name| net.inside(0, || counter(server.http, name)))
        .iter()
        .sum()
}

/// The chunks that come in three seconds, by their time stamp.
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
    while let Some(header) = Header::parse(rest) {
        let Some(message) = rest.get(HEADER..HEADER + header.size as usize) else { break };
        if header.kind == kind::WIRE_CHUNK {
            found.insert(time_at(message, 0).unwrap(), message.to_vec());
        }
        rest = &rest[HEADER + message.len()..];
    }
    Ok(found)
}

/// Two namespaces with a pair of cards between them; they go with the test.
pub(super) struct Net([String; 2]);

impl Net {
    pub(super) fn new() -> io::Result<Self> {
        let name = |end| format!("aulos-{}-{end}", std::process::id());
        let net = Self([name("a"), name("b")]);
        let [a, b] = &net.0;
        for end in &net.0 {
            ip(&format!("netns add {end}"))?;
            ip(&format!("-n {end} link set lo up"))?;
        }
        ip(&format!("-n {a} link add card type veth peer name card netns {b}"))?;
        for (number, end) in [(1, a), (2, b)] {
            ip(&format!("-n {end} address add 10.77.0.{number}/24 dev card"))?;
            ip(&format!("-n {end} address add fd77::{number}/64 dev card nodad"))?;
            ip(&format!("-n {end} link set card up"))?;
        }
        Ok(net)
    }

    /// Runs on a thread of its own that lives in one of the two; what it starts lives there too.
    pub(super) fn inside<T: Send>(&self, end: usize, act: impl FnOnce() -> T + Send) -> T {
        let space = std::fs::File::open(format!("/run/netns/{}", self.0[end])).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), kind).unwrap();
                act()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in &self.0 {
            drop(ip(&format!("netns del {end}")));
        }
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let done = Command::new("ip").args(arguments.split(' ')).output()?;
    if done.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("ip {arguments}: {}", why.trim())))
}
