//! A proxy that injects every fault that a network or a server can have.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// The fault applied to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyFault {
    /// None.
    Well,
    /// The connection breaks in the middle of it.
    Break,
    /// An internal server error.
    Error500,
    /// The server is too busy.
    SlowDown,
    /// The request is not read any more, and not answered.
    Stall,
    /// The server carries it out, and half of its answer gets through.
    HalfAnAnswer,
    /// The server carries it out, and the answer is lost.
    NoAnswer,
    /// A bit is flipped in transit.
    TurnedBit,
    /// A false success: the request is not carried out.
    Lie,
    /// The answer is not S3.
    Rubbish,
    /// Access is denied.
    Denied,
    /// The bucket has been deleted.
    NoBucket,
}

const PROXY_FAULTS: [ProxyFault; 9] = [
    ProxyFault::Break,
    ProxyFault::Error500,
    ProxyFault::SlowDown,
    ProxyFault::Stall,
    ProxyFault::HalfAnAnswer,
    ProxyFault::NoAnswer,
    ProxyFault::TurnedBit,
    ProxyFault::Lie,
    ProxyFault::Rubbish,
];

/// Duration of a stall.
const HOLD: Duration = Duration::from_secs(20);

/// The proxy between uploads and server.
struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

/// Decides the fault of a request, by its first line.
type FaultPlan = Box<dyn FnMut(&str) -> ProxyFault + Send>;

struct Shared {
    server: String,
    fates: Mutex<FaultPlan>,
    suffered: [AtomicUsize; PROXY_FAULTS.len()],
    /// Writes that got through: objects and parts.
    puts: AtomicUsize,
    over: AtomicBool,
}

impl Proxy {
    /// Starts a proxy that calls `fates` for each request, with its first line.
    fn start(server: &Server, fates: impl FnMut(&str) -> ProxyFault + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            server: server.address.clone(),
            fates: Mutex::new(Box::new(fates)),
            suffered: Default::default(),
            puts: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let inner = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if inner.over.load(Ordering::Relaxed) {
                    return;
                }
                let inner = Arc::clone(&inner);
                std::thread::spawn(move || inner.serve(client.unwrap()).ok());
            }
        });
        Self { address, shared }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn puts(&self) -> usize {
        self.shared.puts.load(Ordering::Relaxed)
    }

    fn faults_applied(&self) -> Vec<(ProxyFault, usize)> {
        let counts = self.shared.suffered.iter().map(|count| count.load(Ordering::Relaxed));
        PROXY_FAULTS.into_iter().zip(counts).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        TcpStream::connect(&self.address).ok();
    }
}

impl Shared {
    /// Handles one request per connection.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        // A client that has closed is not waited for.
        client.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (mut all, mut head) = (Vec::new(), None);
        while head.is_none() {
            if read_some(&mut client, &mut all)? == 0 {
                return Ok(());
            }
            head = all.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        }
        let head = head.unwrap_or_default();
        let text = String::from_utf8_lossy(&all[..head]).into_owned();
        let first = text.lines().next().unwrap_or_default().to_owned();
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let length: usize = length.unwrap_or(0);
        let fate = (self.fates.lock().unwrap())(&first);
        if let Some(place) = PROXY_FAULTS.iter().position(|other| *other == fate) {
            self.suffered[place].fetch_add(1, Ordering::Relaxed);
        }
        let wanted =
            if matches!(fate, ProxyFault::Break | ProxyFault::Stall) { length / 2 } else { length };
        while all.len() < head + wanted {
            if read_some(&mut client, &mut all)? == 0 {
                return Ok(());
            }
        }
        if first.starts_with("PUT") && fate == ProxyFault::Well {
            self.puts.fetch_add(1, Ordering::Relaxed);
        }
        let answer = match fate {
            ProxyFault::Break => return Ok(()),
            ProxyFault::Stall => {
                // Longer than the stall time-out of the uploads under test.
                let start = Instant::now();
                while !self.over.load(Ordering::Relaxed) && start.elapsed() < HOLD {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return Ok(());
            }
            ProxyFault::Error500 => error(500, "InternalError"),
            ProxyFault::SlowDown => error(503, "SlowDown"),
            ProxyFault::Denied => error(403, "AccessDenied"),
            ProxyFault::NoBucket => error(404, "NoSuchBucket"),
            ProxyFault::Lie => false_success(&first),
            ProxyFault::Rubbish => b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
            ProxyFault::TurnedBit if length > 0 => {
                all[head + length / 2] ^= 4;
                self.ask(&all, head)?
            }
            _ => self.ask(&all, head)?,
        };
        match fate {
            ProxyFault::NoAnswer => {}
            ProxyFault::HalfAnAnswer => client.write_all(&answer[..answer.len() / 2])?,
            _ => client.write_all(&answer)?,
        }
        client.shutdown(Shutdown::Write)
    }

    /// Forwards the request to the server, over a connection that closes after the answer.
    fn ask(&self, all: &[u8], head: usize) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(&all[..head - 2])?;
        server.write_all(b"connection: close\r\n\r\n")?;
        // It may refuse after the head.
        server.write_all(&all[head..]).ok();
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).ok();
        Ok(answer)
    }
}

fn read_some(from: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 65_536];
    let count = from.read(&mut piece)?;
    into.extend_from_slice(&piece[..count]);
    Ok(count)
}

fn error(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<Error><Code>{code}</Code><Message>please wait</Message></Error>");
    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A response that looks like a success.
fn false_success(first: &str) -> Vec<u8> {
    let body = if first.starts_with("POST") && first.contains("uploads") {
        "<InitiateMultipartUploadResult><UploadId>lie</UploadId></InitiateMultipartUploadResult>"
    } else if first.starts_with("POST") {
        "<CompleteMultipartUploadResult><ETag>lie</ETag></CompleteMultipartUploadResult>"
    } else {
        ""
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\netag: \"lie\"\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Every fault for every kind of request, in a seeded order; at most `most` in total, so that it
/// ends.
fn random_faults(seed: u64, most: usize) -> impl FnMut(&str) -> ProxyFault + Send {
    let (mut chance, mut count) = (noise(seed, 100_000).into_iter().cycle(), 0);
    move |_| {
        let (whether, which) = (chance.next().unwrap(), chance.next().unwrap());
        if count >= most || whether > 120 {
            return ProxyFault::Well;
        }
        count += 1;
        PROXY_FAULTS[usize::from(which) % PROXY_FAULTS.len()]
    }
}

/// Checks that every deleted file is on the server.
fn none_deleted_early(station: &RecordingHarness, server: &Server, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        // In this order: it may be uploaded between the two checks.
        assert!(station.path(name).exists() || has(server, name, bytes), "{name} is lost");
    }
}

#[test]
fn despite_faults_every_file_is_uploaded_completely_before_its_deletion() {
    let Some((server, dir)) = server("upload-faults") else { return };
    let proxy = Proxy::start(&server, random_faults(41, 150));
    let stall = Duration::from_secs(2);
    let station = RecordingHarness::start_with(&dir, &config(&proxy.endpoint()), stall);
    let files: Vec<_> = (0..24)
        .map(|number| {
            let size = if number % 8 == 7 { 2 * PART + 99 } else { 3_000 << (number % 8) };
            (format!("{number}.wav"), noise(number, size))
        })
        .collect();
    for (name, bytes) in &files {
        station.record(name, bytes);
    }
    let tell = || format!("{:?} {:?}", station.uploader.state(), proxy.faults_applied());
    wait(
        "everything is uploaded",
        || {
            none_deleted_early(&station, &server, &files);
            station.uploader.state().waiting == 0
        },
        tell,
    );
    for (name, bytes) in &files {
        assert!(has(&server, name, bytes), "{name}");
        assert!(!station.path(name).exists(), "{name}");
    }
    for key in server.objects() {
        let there = server.object(&key);
        assert!(files.iter().any(|(_, bytes)| there.as_ref() == Some(bytes)), "{key} is nobody's");
    }
    assert!(
        proxy.faults_applied().iter().all(|(_, count)| *count > 0),
        "{:?}",
        proxy.faults_applied()
    );
    let state = station.uploader.state();
    assert!(state.failures > 20 && state.error.is_none(), "{state:?}");
    station.stop();
}

#[test]
fn an_interrupted_upload_resumes_with_its_current_part() {
    let Some((server, dir)) = server("upload-stop") else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let (sent, seen) = (Arc::clone(&stop), AtomicUsize::new(0));
    let proxy = Proxy::start(&server, move |first| {
        let is_part = first.starts_with("PUT") && first.contains("partNumber");
        if is_part && seen.fetch_add(1, Ordering::Relaxed) == 3 {
            // The fourth part stalls, and the server stops.
            sent.store(true, Ordering::Relaxed);
            return ProxyFault::Stall;
        }
        ProxyFault::Well
    });
    let bytes = noise(5, 6 * PART);
    let station = RecordingHarness::start(&dir, &config(&proxy.endpoint()));
    station.record("long.wav", &bytes);
    wait("three parts", || stop.load(Ordering::Relaxed), String::new);
    station.stop();
    assert_eq!(server.object("radio/roof/long.wav"), None);
    let station = RecordingHarness::start(&dir, &config(&proxy.endpoint()));
    station.wait_until_idle();
    assert!(server.object("radio/roof/long.wav").unwrap() == bytes);
    assert_eq!(proxy.puts(), 6, "no part got through twice");
    assert_eq!(server.parts(), 0);
    station.stop();
}

#[test]
fn a_changed_file_restarts_its_upload_and_leaves_no_parts() {
    let Some((server, dir)) = server("upload-changed") else { return };
    let (reached, changed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (here, there) = (Arc::clone(&reached), Arc::clone(&changed));
    let proxy = Proxy::start(&server, move |first| {
        if first.contains("partNumber=3") && !here.swap(true, Ordering::Relaxed) {
            wait("it changes", || there.load(Ordering::Relaxed), String::new);
            return ProxyFault::Break;
        }
        ProxyFault::Well
    });
    let station = RecordingHarness::start(&dir, &config(&proxy.endpoint()));
    station.record("a.wav", &noise(1, 4 * PART));
    wait("two parts", || reached.load(Ordering::Relaxed), String::new);
    assert!(server.parts() >= 2);
    let other = noise(2, 3 * PART + 5);
    std::fs::write(station.path("a.wav"), &other).unwrap();
    changed.store(true, Ordering::Relaxed);
    station.wait_until_idle();
    assert!(server.object("radio/roof/a.wav").unwrap() == other);
    assert_eq!(server.parts(), 0);
    station.stop();
}

#[test]
fn a_missing_read_permission_is_reported_and_the_file_is_sent_once() {
    let Some((server, dir)) = server("upload-look") else { return };
    let may = Arc::new(AtomicBool::new(false));
    let allowed = Arc::clone(&may);
    let proxy = Proxy::start(&server, move |first| {
        match first.starts_with("PUT") || allowed.load(Ordering::Relaxed) {
            true => ProxyFault::Well,
            false => ProxyFault::Denied,
        }
    });
    let station = RecordingHarness::start(&dir, &config(&proxy.endpoint()));
    station.record("a.wav", b"kept");
    let told = || station.uploader.state().error.unwrap_or_default();
    wait("it is told", || told().contains("s3:GetObject"), told);
    wait("it is tried again", || station.uploader.state().failures > 3, told);
    assert_eq!((proxy.puts(), station.path("a.wav").exists()), (1, true));
    may.store(true, Ordering::Relaxed);
    station.wait_until_idle();
    assert_eq!((proxy.puts(), server.object("radio/roof/a.wav").unwrap()), (1, b"kept".to_vec()));
    station.stop();
}

#[test]
fn a_missing_bucket_is_distinguished_from_a_missing_object() {
    let Some((server, dir)) = server("upload-bucket") else { return };
    let is_there = Arc::new(AtomicBool::new(false));
    let made = Arc::clone(&is_there);
    let proxy = Proxy::start(&server, move |_| match made.load(Ordering::Relaxed) {
        true => ProxyFault::Well,
        false => ProxyFault::NoBucket,
    });
    let station = RecordingHarness::start(&dir, &config(&proxy.endpoint()));
    station.record("a.wav", b"kept");
    let told = || station.uploader.state().error.unwrap_or_default();
    wait("it is told", || told().contains("the bucket does not exist; create it"), told);
    assert_eq!(proxy.puts(), 0, "nothing is sent in vain");
    is_there.store(true, Ordering::Relaxed);
    station.wait_until_idle();
    assert_eq!(server.object("radio/roof/a.wav").unwrap(), b"kept");
    station.stop();
}
