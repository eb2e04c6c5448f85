//! Redirects, also between public and private addresses.

use super::*;

#[test]
fn redirects_are_followed_up_to_a_limit() {
    let port = serve(|asked, out| {
        let to = match asked.target.rsplit_once('/').unwrap() {
            ("/good", "6") => return sound(out),
            ("/circle", "2") => "0".to_owned(),
            ("/away", _) => "ftp://somewhere/".to_owned(),
            (_, number) => format!("{}", number.parse::<u32>().unwrap() + 1),
        };
        write!(out, "HTTP/1.1 302 Found\r\nLocation: {to}\r\n\r\n")
    });
    let base = format!("http://127.0.0.1:{port}");
    let mut good = RadioHarness::new(&format!("{base}/good/0"));
    let state = good.until(|_, sound| sound > 0);
    assert_eq!((state.redirects, state.station_info.url), (6, Some(format!("{base}/good/6"))));
    assert_eq!(RadioHarness::reason(&format!("{base}/endless/0")), "too many redirects");
    assert_eq!(RadioHarness::reason(&format!("{base}/circle/0")), "redirect loop");
    assert!(RadioHarness::reason(&format!("{base}/away/0")).contains("invalid URL"));
}

#[test]
fn endless_redirects_are_given_up() {
    let port = serve(|asked, out| {
        static TURN: AtomicU64 = AtomicU64::new(0);
        match &asked.target[..] {
            "/live" => {
                let turn = TURN.fetch_add(1, Ordering::Relaxed);
                write!(out, "HTTP/1.1 302 Found\r\nLocation: /page{turn}\r\n\r\n")
            }
            _ => write!(out, "HTTP/1.1 200 OK\r\n\r\n<html>a page that is no sound</html>"),
        }
    });
    let mut rig = RadioHarness::new(&format!("http://127.0.0.1:{port}/live"));
    // As many as a playlist may have entries, and then a pause.
    let state = rig.until(|state, _| state.failures >= 32);
    assert_eq!(state.reason.as_deref(), Some("a web page, not audio; use the URL of the stream"));
    for _ in 0..100 {
        let now = rig.until(|_, _| true);
        assert!(now.failures <= 33, "{now:?}");
    }
}

/// A client for which 127.0.0.2 is on the public network.
fn test_network(names: Vec<(&'static str, Vec<std::net::IpAddr>)>) -> RadioClient {
    let dialer = crate::dial::Dialer::with_names(names);
    let fetcher = StreamFetcher::with_address_classes(dialer, |address| {
        if address == std::net::IpAddr::from([127, 0, 0, 2]) {
            AddressClass::Public
        } else {
            AddressClass::of(address)
        }
    });
    RadioClient { fetcher: Arc::new(fetcher), ..RadioClient::default() }
}

/// A server on the private network, and the number of requests to it.
fn private_server() -> (u16, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let count = Arc::clone(&asked);
    let port = serve(move |_, out| {
        count.fetch_add(1, Ordering::Relaxed);
        sound(out)
    });
    (port, asked)
}

#[test]
fn a_redirect_from_a_public_to_a_private_address_is_rejected() {
    let (private, asked) = private_server();
    let public = serve_on("127.0.0.2", None, move |asked, out| {
        let to = match &asked.target[..] {
            "/literal" => format!("127.0.0.1:{private}"),
            "/name" => format!("inside.example:{private}"),
            "/short" => format!("127.1:{private}"),
            "/mapped" => format!("[::ffff:127.0.0.1]:{private}"),
            "/any" => format!("0.0.0.0:{private}"),
            "/rebind" => format!("rebind.example:{private}"),
            "/sound" => return sound(out),
            list => {
                let only = list == "/only-private";
                out.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: audio/x-mpegurl\r\n\r\n")?;
                writeln!(out, "http://127.0.0.1:{private}/")?;
                return if only { Ok(()) } else { writeln!(out, "/sound") };
            }
        };
        write!(out, "HTTP/1.0 302 Found\r\nLocation: http://{to}/\r\n\r\n")
    });
    let [inside, outside] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(std::net::IpAddr::from);
    let client = || {
        test_network(vec![
            ("inside.example", vec![inside]),
            // The first lookup finds the public server, the next one this machine.
            ("rebind.example", vec![outside, inside]),
        ])
    };
    for (path, host, address, class) in [
        ("literal", "127.0.0.1", "127.0.0.1", "a loopback address"),
        ("name", "inside.example", "127.0.0.1", "a loopback address"),
        ("short", "127.1", "127.0.0.1", "a loopback address"),
        ("mapped", "::ffff:127.0.0.1", "::ffff:127.0.0.1", "a loopback address"),
        ("any", "0.0.0.0", "0.0.0.0", "an unspecified address"),
        ("only-private", "127.0.0.1", "127.0.0.1", "a loopback address"),
    ] {
        let mut rig =
            RadioHarness::with_client(&client(), &format!("http://127.0.0.2:{public}/{path}"));
        let state = rig.until(|state, _| state.reason.is_some());
        let wanted = format!(
            "a public server refers to {host}, and {address} is {class}, which only a URL in the \
             configuration may name"
        );
        assert_eq!(state.reason.as_deref(), Some(&wanted[..]), "{path}");
    }
    let mut rig =
        RadioHarness::with_client(&client(), &format!("http://rebind.example:{public}/rebind"));
    let reason = rig.until(|state, _| state.reason.is_some()).reason.unwrap();
    assert!(reason.contains("rebind.example, and 127.0.0.1 is a loopback address"), "{reason}");
    let mut rig = RadioHarness::with_client(&client(), &format!("http://127.0.0.2:{public}/list"));
    let state = rig.until(|_, sound| sound > 0);
    assert_eq!(state.station_info.url, Some(format!("http://127.0.0.2:{public}/sound")));
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing inside was asked");
}

#[test]
fn a_configured_private_address_may_redirect_anywhere() {
    let (private, asked) = private_server();
    let public = serve_on("127.0.0.2", None, |_, out| sound(out));
    let local = serve(move |asked, out| {
        let to = match &asked.target[..] {
            "/private" => format!("127.0.0.1:{private}"),
            _ => format!("127.0.0.2:{public}"),
        };
        write!(out, "HTTP/1.0 302 Found\r\nLocation: http://{to}/\r\n\r\n")
    });
    for path in ["private", "public"] {
        let mut rig = RadioHarness::with_client(
            &test_network(vec![]),
            &format!("http://127.0.0.1:{local}/{path}"),
        );
        let state = rig.until(|state, sound| sound > 0 || state.reason.is_some());
        assert_eq!((state.reason, state.redirects), (None, 1), "{path}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
