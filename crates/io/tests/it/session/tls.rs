//! The same sessions over TLS, and malicious peers.

use std::sync::OnceLock;

use aulos_io::reactor::{AddressLimits, AddressPermit, ListenPolicy, MediaSocket, ReactorStats};
use aulos_proto::snap::session::Refusal;
use rcgen::KeyPair;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::*;

/// A self-signed certificate and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, key: PrivateKeyDer::Pkcs8(key.serialize_der().into()) }
    }
}

fn server() -> &'static Identity {
    static SERVER: OnceLock<Identity> = OnceLock::new();
    SERVER.get_or_init(|| Identity::new("localhost"))
}

fn trusting(identity: &Identity) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    Arc::new(roots)
}

/// The server's TLS configuration; with `client`, it accepts only that client certificate.
fn server_config(client: Option<&Identity>) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match client {
        None => builder.with_no_client_auth(),
        Some(client) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(trusting(client), provider)
                .allow_unauthenticated()
                .build()
                .unwrap(),
        ),
    };
    let Identity { certificate, key } = server();
    Arc::new(builder.with_single_cert(vec![certificate.clone()], key.clone_key()).unwrap())
}

fn client_connection(own: Option<Identity>) -> ClientConnection {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusting(server()));
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

fn secure(address: SocketAddr, own: Option<Identity>) -> Box<dyn ClientStream> {
    let mut tls = StreamOwned::new(client_connection(own), TcpStream::connect(address).unwrap());
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).unwrap();
    }
    tls.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    Box::new(tls)
}

/// A server with this listen policy.
fn server_with_policy(door: &ListenPolicy) -> TestServer {
    let test_server = TestServer::start();
    test_server.with(|context| context.set_listen_policy(door));
    test_server
}

fn tls_listen_policy() -> ListenPolicy {
    ListenPolicy { tls: Some(server_config(None).into()), ..ListenPolicy::default() }
}

impl TestServer {
    fn with<T>(&self, act: impl FnOnce(&mut ReactorPool) -> T) -> T {
        act(self.control.context.lock().unwrap().as_mut().expect("a context"))
    }

    fn wait_for_stats(&self, what: &str, found: impl Fn(&ReactorStats) -> bool) {
        for _ in 0..1_500 {
            if found(&self.with(ReactorPool::stats)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what} did not happen: {:?}", self.with(ReactorPool::stats));
    }
}

#[test]
fn a_tls_client_gets_the_same_stream_and_time() {
    let test_server = server_with_policy(&tls_listen_policy());
    std::thread::sleep(Duration::from_millis(1_200));
    let mut safe = TestClient::on(secure(test_server.address, None), "safe");
    let mut bare = TestClient::connect(test_server.address, "bare");
    for _ in 0..40 {
        safe.run(Span::from_millis(25));
        bare.run(Span::from_millis(25));
    }
    for player in [&safe, &bare] {
        player.assert_continuous();
        assert!(player.timestamps.len() > 120, "{} chunks", player.timestamps.len());
        let offset = player.machine.sync().offset(SystemClock::now()).expect("an offset");
        assert!(offset.abs() < Span::from_millis(5), "{offset}");
    }
    test_server.wait_for_stats("a handshake", |stats| stats.tls_sessions == 1);
    drop(safe);
    test_server.wait_for("its leaving", |seen| {
        seen.iter().any(|seen| matches!(seen, SeenEvent::Left(..)))
    });
    test_server.stop();
}

#[test]
fn a_client_with_tls_that_reads_late_still_gets_every_frame() {
    let test_server = server_with_policy(&tls_listen_policy());
    let mut player = TestClient::on(secure(test_server.address, None), "late");
    player.run(Span::from_millis(300));
    for _ in 0..4 {
        // Less than its buffer, more than what TLS buffers.
        std::thread::sleep(Duration::from_millis(700));
        player.run(Span::from_millis(300));
    }
    player.assert_continuous();
    assert!(player.timestamps.len() > 150, "{} chunks", player.timestamps.len());
    test_server.stop();
}

#[test]
fn where_tls_is_wanted_nothing_else_is_served() {
    let test_server =
        server_with_policy(&ListenPolicy { require_tls: true, ..tls_listen_policy() });
    let mut bare = TestClient::connect(test_server.address, "bare");
    bare.run(Span::from_secs(5));
    assert!(bare.closed && bare.settings.is_empty());
    test_server.wait_for_stats("the refusal", |stats| stats.plain_refused == 1);
    let mut safe = TestClient::on(secure(test_server.address, None), "safe");
    safe.run(Span::from_millis(300));
    assert!(!safe.timestamps.is_empty());
    test_server.stop();
}

#[test]
fn an_invalid_tls_handshake_is_closed_and_counted() {
    let test_server = server_with_policy(&tls_listen_policy());
    let mut honest = TestClient::on(secure(test_server.address, None), "honest");
    honest.run(Span::from_millis(100));
    let hello = {
        let mut hello = Vec::new();
        client_connection(None).write_tls(&mut hello).unwrap();
        hello
    };
    let send = |bytes: &[u8]| {
        let mut socket = plain(test_server.address);
        socket.write_all(bytes).unwrap();
        socket
    };
    let garbage = send(&[&[0x16, 3, 1, 2, 0], &[0xA5; 512][..]].concat());
    // Longer than a record may be (RFC 8446, 5.2).
    let huge = send(&[&[0x16, 3, 3, 0xFF, 0xFF], &[0; 1_024][..]].concat());
    let half = send(&hello[..hello.len() / 2]);
    let mute = send(&hello);
    let one = send(&[0x16]);
    // A Snapcast message within a handshake that has been answered.
    let mut turned = send(&hello);
    turned.write_all(&[5, 0, 2, 0, 0, 0]).unwrap();
    honest.run(Span::from_secs(7));
    honest.assert_continuous();
    assert!(!honest.closed && honest.timestamps.len() > 300, "{}", honest.timestamps.len());
    test_server
        .wait_for_stats("the cuts", |stats| stats.tls_failed == 3 && stats.tls_unfinished == 3);
    drop((garbage, huge, half, mute, one, turned));
    test_server.stop();
}

#[test]
fn only_a_known_client_certificate_is_accepted() {
    let known = Identity::new("kitchen");
    let door =
        ListenPolicy { tls: Some(server_config(Some(&known)).into()), ..ListenPolicy::default() };
    let test_server = server_with_policy(&door);
    let mut with = TestClient::on(secure(test_server.address, Some(known)), "with");
    with.run(Span::from_millis(200));
    let mut without = TestClient::on(secure(test_server.address, None), "without");
    without.run(Span::from_millis(200));
    let vouched = test_server.control.vouched.lock().unwrap().clone();
    assert_eq!(vouched, [("with".to_owned(), true), ("without".to_owned(), false)]);
    // With TLS 1.3 the client learns of a rejected certificate after its side of the handshake is
    // complete.
    let mut stranger =
        TestClient::on(secure(test_server.address, Some(Identity::new("kitchen"))), "stranger");
    stranger.run(Span::from_secs(2));
    assert!(stranger.closed && stranger.settings.is_empty());
    test_server.wait_for_stats("the failure", |stats| stats.tls_failed == 1);
    test_server.stop();
}

#[test]
fn a_rejected_client_is_notified_and_disconnected() {
    let test_server = server_with_policy(&tls_listen_policy());
    test_server.control.refuse.store(true, SeqCst);
    let mut client = TestClient::on(secure(test_server.address, None), "stranger");
    client.run(Span::from_secs(3));
    assert!(client.closed && client.settings.is_empty(), "{:?}", client.settings);
    test_server.wait_for_stats("the refusal", |stats| stats.unauthorized == 1);
    test_server.stop();
}

#[test]
fn bytes_buffered_by_tls_survive_the_websocket_handover() {
    let test_server = server_with_policy(&tls_listen_policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, address) = listener.accept().unwrap();
    let mut theirs = client_connection(None);
    let mut ours = ServerConnection::new(server_config(None)).unwrap();
    let pass = |theirs: &mut ClientConnection, ours: &mut ServerConnection| {
        let mut wire = Vec::new();
        theirs.write_tls(&mut wire).unwrap();
        let mut wire = &wire[..];
        while !wire.is_empty() {
            ours.read_tls(&mut wire).unwrap();
            ours.process_new_packets().unwrap();
        }
        let mut wire = Vec::new();
        ours.write_tls(&mut wire).unwrap();
        let mut wire = &wire[..];
        while !wire.is_empty() {
            theirs.read_tls(&mut wire).unwrap();
            theirs.process_new_packets().unwrap();
        }
    };
    while theirs.is_handshaking() || ours.is_handshaking() {
        pass(&mut theirs, &mut ours);
    }
    // The Hello is already decrypted in the TLS state: the socket will not report it.
    let mut hello = Vec::new();
    let message = wire::ClientMessage::Hello(Hello::new("web").into());
    message.write(wire::MessageStamp { id: 2, ..wire::MessageStamp::default() }, &mut hello);
    let mut frame = vec![0x82, 0x80 | 126];
    frame.extend_from_slice(&u16::try_from(hello.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&hello);
    theirs.writer().write_all(&frame).unwrap();
    pass(&mut theirs, &mut ours);
    let socket = MediaSocket::new(socket, address, AddressPermit::default());
    let socket = socket.with_tls(Some(Box::new(ours))).authorized(true);
    test_server.with(|context| context.add_websocket_client(socket, Vec::new()));
    let mut answer = StreamOwned::new(theirs, client);
    answer.sock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut head = [0; 2];
    answer.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0x82, "a whole binary message");
    assert_eq!(*test_server.control.vouched.lock().unwrap(), [("web".to_owned(), true)]);
    test_server.stop();
}

#[test]
fn limits_per_address_do_not_count_this_machine() {
    let limits = AddressLimits { per_address: 16, per_second: 1 };
    let test_server = server_with_policy(&ListenPolicy { limits, ..ListenPolicy::default() });
    let many: Vec<TcpStream> = (0..100).map(|_| plain(test_server.address)).collect();
    test_server.wait_for_stats("all of them", |stats| stats.accepted >= 100);
    let stats = test_server.with(ReactorPool::stats);
    assert_eq!((stats.refused, stats.refused_too_fast), (0, 0));
    drop(many);
    test_server.stop();
}

/// The refusal that [`ControlStub`] answers with.
pub(super) const REFUSAL: Refusal = Refusal::Unauthorized;
