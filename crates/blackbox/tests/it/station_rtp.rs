//! Stations over RTP with real peers: ffmpeg sends to one, GStreamer receives one from its
//! description, and a SAP listener receives its announcement. Everything stays on this machine,
//! multicast too.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::http;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::dj::{listen, share_of_the_tone};
use crate::rpc::Rpc;
use crate::{shared_turn, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// A multicast group in the organization-local scope (RFC 2365).
fn group(port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("239.192.{high}.{low}")
}

pub(crate) fn station(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0].clone()
}

/// An endless tone of 440 Hz at -12 dBFS, in real time.
fn say(ffmpeg: &Path, codec: &str, to: &str, scratch: &ScratchDir) -> Process {
    let arguments = format!(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000,volume=6dB {codec} -f rtp {to}"
    );
    let mut command = Command::new(ffmpeg);
    command.args(arguments.split_whitespace());
    Process::start(&mut command, &scratch.join("say.sdp"), &scratch.join("say.err")).unwrap()
}

/// The share of the tone in a second of the station's output.
fn heard_share(ffmpeg: &Path, server: &AulosServer) -> f64 {
    let (said, heard) = listen(ffmpeg, server.http, "default.wav");
    share_of_the_tone(heard.get(48_000..96_000).unwrap_or_else(|| panic!("{said}")))
}

#[test]
fn a_station_plays_what_ffmpeg_sends_in_every_codec() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let cases = [
        ("payload=l16&sampleformat=48000:16:2", "-ac 2 -c:a pcm_s16be", false),
        ("payload=pcmu", "-ar 8000 -ac 1 -c:a pcm_mulaw", false),
        ("payload=g722", "-ar 16000 -ac 1 -c:a g722", false),
        ("payload=opus&payload_type=97", "-ac 2 -c:a libopus -b:a 96k -payload_type 97", true),
    ];
    for (query, codec, to_a_group) in cases {
        let scratch = ScratchDir::new("station-rtp-in").unwrap();
        let port = free_port().unwrap();
        let (at, to) = if to_a_group {
            let group = group(port);
            let to = format!("rtp://{group}:{port}?localaddr=127.0.0.1&ttl=0&pkt_size=1316");
            (format!("{group}:{port}?interface=127.0.0.1&"), to)
        } else {
            (format!("127.0.0.1:{port}?"), format!("rtp://127.0.0.1:{port}?pkt_size=1316"))
        };
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"rtp://{at}{query}\"]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let mut sender = say(&ffmpeg, codec, &to, &scratch);
        wait_for("the sender on air", PATIENCE, || {
            let said = std::fs::read_to_string(scratch.join("say.err")).unwrap_or_default();
            assert!(sender.ended().unwrap().is_none(), "{query}: {said}");
            station(&mut rpc)["state"] == "playing"
        });
        let share = heard_share(&ffmpeg, &server);
        assert!(share > 0.98, "{query}: {share} of it is the tone");
        let rtp = station(&mut rpc)["sources"][0]["rtp"].clone();
        assert!(rtp["received"].as_u64().unwrap() > 50, "{rtp}");
        let trouble = ["lost", "late", "undecodable", "refused", "other_types", "other_senders"];
        for what in trouble {
            assert_eq!(rtp[what], 0, "{query}: {rtp}");
        }
        drop(sender.terminate(PATIENCE));
        server.stop().unwrap();
    }
}

#[test]
fn a_station_reads_the_sdp_of_ffmpeg() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("station-sdp-in").unwrap();
    let port = free_port().unwrap();
    let sdp = scratch.join("hall.sdp");
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"sdp://{}?interface=127.0.0.1\"]\n",
        sdp.display()
    );
    // It does not exist yet: the station reports that, and retries.
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("the reason", PATIENCE, || {
        let source = station(&mut rpc)["sources"][0].clone();
        source["state"] == "failed" && source["reason"].as_str().unwrap().contains("hall.sdp")
    });
    let codec = format!("-ac 1 -c:a pcm_s16be -payload_type 98 -sdp_file {}", sdp.display());
    let to = format!("rtp://127.0.0.1:{port}?pkt_size=1316");
    let mut sender = say(&ffmpeg, &codec, &to, &scratch);
    wait_for("the sender on air", PATIENCE, || station(&mut rpc)["state"] == "playing");
    let share = heard_share(&ffmpeg, &server);
    assert!(share > 0.98, "{share} of it is the tone");
    drop(sender.terminate(PATIENCE));
    server.stop().unwrap();
}

/// The description at `path` of a server.
fn description(server: &AulosServer, path: &str) -> String {
    let (status, sdp) = http::get(server.http, path).unwrap();
    let said = String::from_utf8(sdp).unwrap();
    assert_eq!(status, 200, "{said}");
    said
}

/// GStreamer that plays a description until the received audio suffices.
fn gstreamer(
    program: &Path,
    sdp: &str,
    raw: &str,
    scratch: &ScratchDir,
    enough: impl Fn(&[u8]) -> bool,
) {
    let (file, heard) = (scratch.join("out.sdp"), scratch.join("heard.raw"));
    std::fs::remove_file(&heard).ok();
    std::fs::write(&file, sdp).unwrap();
    // A busy machine is late, which is not tested here.
    let arguments = format!(
        "-q filesrc location={} ! sdpdemux latency=1000 ! decodebin ! audioconvert ! {raw} ! \
         filesink sync=false buffer-mode=unbuffered location={}",
        file.display(),
        heard.display()
    );
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    let logs = [scratch.join("gst.out"), scratch.join("gst.err")];
    let mut listener = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("what GStreamer hears", PATIENCE, || {
        let errors = std::fs::read_to_string(&logs[1]).unwrap_or_default();
        assert!(listener.ended().unwrap().is_none(), "{errors}\n{sdp}");
        std::thread::sleep(Duration::from_millis(200));
        enough(&std::fs::read(&heard).unwrap_or_default())
    });
    drop(listener.terminate(PATIENCE));
}

/// Multicast from one machine to another, each in its own namespace.
#[test]
fn gstreamer_plays_the_description_of_an_aes67_stream_bit_by_bit() {
    let Some(program) = find_or_skip("gst-launch-1.0") else { return };
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let scratch = ScratchDir::new("station-rtp-out").unwrap();
    // The content is known frame by frame: a second of the two channels, repeated.
    let sound = scratch.join("sound.raw");
    let frames: Vec<[u8; 6]> = (0..48_000_i32).map(frame).collect();
    std::fs::write(&sound, frames.as_flattened()).unwrap();
    let config = format!(
        "[[station]]\nname = \"Hall\"\nspec = \"48000:24:2\"\n\
         sources = [\"file://{}?loop=true&sampleformat=48000:s24:2\"]\n\
         rtp = [{{ dest = \"rtp://239.69.0.1\", payload = \"l24\", ptime_ms = 1, \
         interface = \"10.77.0.1\", sap = true }}]\n",
        sound.display()
    );
    let listener = net.run_inside(1, || sap_socket("10.77.0.2"));
    let server = net.run_inside(0, || AulosServer::start(&scratch, &config).unwrap());
    let announced = hear_of(&listener);
    let sdp = net.run_inside(0, || description(&server, "/rtp/Hall.sdp"));
    assert_eq!(announced, (false, sdp.clone()));
    let raw = "audio/x-raw,format=S24LE,rate=48000,channels=2";
    net.run_inside(1, || {
        gstreamer(&program, &sdp, raw, &scratch, |heard| in_a_row(heard, &frames) > 2 * 48_000);
    });
    let output = net.run_inside(0, || station(&mut Rpc::connect(server.control))["rtp"][0].clone());
    assert_eq!((&output["state"], &output["unsent"]), (&"sending".into(), &0.into()), "{output}");
    server.stop().unwrap();
    // A listener that got the announcement gets its deletion.
    while !hear_of(&listener).0 {}
}

/// A USB adapter, a VLAN or a network manager removes an interface and makes it again.
#[test]
fn rtp_goes_on_after_its_interface_was_removed_and_made_again() {
    let _turn = shared_turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let scratches =
        ["rtp-interface-out", "rtp-interface-in"].map(|name| ScratchDir::new(name).unwrap());
    let configs = [
        "[[station]]\nname = \"Hall\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
         rtp = [{ dest = \"rtp://239.69.0.1:5004\", payload = \"l24\", interface = \"card\" }]\n",
        "[[station]]\nname = \"Room\"\n\
         sources = [\"rtp://239.69.0.1:5004?payload=l24&interface=card\"]\n",
    ];
    let servers = [0, 1].map(|end| {
        net.run_inside(end, || AulosServer::start(&scratches[end], configs[end]).unwrap())
    });
    let state =
        |end: usize| net.run_inside(end, || station(&mut Rpc::connect(servers[end].control)));
    let is_played = || state(1)["sources"][0]["state"] == "ready";
    wait_for("the first sound", PATIENCE, is_played);
    net.remove_interfaces().unwrap();
    wait_for("its end", PATIENCE, || !is_played());
    wait_for("the state of the output", PATIENCE, || state(0)["rtp"][0]["state"] == "waiting");
    net.add_interfaces().unwrap();
    wait_for("the sound", Duration::from_secs(15), is_played);
    assert_eq!(state(0)["rtp"][0]["state"], "sending");
    servers.into_iter().for_each(|server| server.stop().unwrap());
}

/// The longest run of consecutive frames.
fn in_a_row(heard: &[u8], frames: &[[u8; 6]]) -> usize {
    let (mut longest, mut run, mut next) = (0, 0, None);
    for frame in heard.as_chunks::<6>().0 {
        let number = number_of(frame);
        let right = frames.get(number) == Some(frame) && next.is_none_or(|next| next == number);
        run = if right { run + 1 } else { 0 };
        longest = longest.max(run);
        next = right.then_some((number + 1) % frames.len());
    }
    longest
}

/// The content of a frame identifies it, and the other channel is its negative.
fn frame(number: i32) -> [u8; 6] {
    let ([a, b, c, _], [d, e, f, _]) =
        ((number << 4).to_le_bytes(), (-(number << 4)).to_le_bytes());
    [a, b, c, d, e, f]
}

fn number_of(frame: &[u8; 6]) -> usize {
    let [a, b, c, ..] = *frame;
    usize::try_from(i32::from_le_bytes([a, b, c, 0]) >> 4).unwrap_or(usize::MAX)
}

#[test]
fn gstreamer_plays_telephony_and_opus_of_a_station() {
    let Some(program) = find_or_skip("gst-launch-1.0") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("station-rtp-codecs").unwrap();
    let (one, other) = (free_port().unwrap(), free_port().unwrap());
    let config = format!(
        "[[station]]\nname = \"Hall\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\nrtp = [\n\
         {{ dest = \"rtp://127.0.0.1:{one}\", payload = \"pcmu\" }},\n\
         {{ dest = \"rtp://127.0.0.1:{other}\", payload = \"opus\" }}]\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    for path in ["/rtp/Hall.sdp", "/rtp/Hall.sdp?output=2"] {
        let raw = "audioresample ! audio/x-raw,format=S16LE,rate=48000,channels=1";
        gstreamer(&program, &description(&server, path), raw, &scratch, is_the_tone);
    }
    assert_eq!(http::get(server.http, "/rtp/Hall.sdp?output=3").unwrap().0, 404);
    server.stop().unwrap();
}

/// Whether a second of it is the tone, at its level: -12 dBFS are 8,231, and G.711 is accurate to
/// some per cent.
fn is_the_tone(heard: &[u8]) -> bool {
    let samples = heard.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
    let samples: Vec<i16> = samples.collect();
    samples.chunks_exact(48_000).any(|second| {
        let loudest = second.iter().map(|sample| i32::from(*sample).abs()).max();
        share_of_the_tone(second) > 0.98 && loudest.is_some_and(|top| (7_700..8_800).contains(&top))
    })
}

#[test]
fn a_missing_interface_is_reported_and_a_reload_changes_outputs_while_playing() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("station-rtp-reload").unwrap();
    let (port, listener) = (free_port().unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = |rtp: &str| {
        format!("[[station]]\nname = \"Hall\"\nsources = [\"tone://\"]\nrtp = [{rtp}]\n")
    };
    let away = format!("{{ dest = \"rtp://239.192.0.1:{port}\", interface = \"nocard0\" }}");
    let server = AulosServer::start(&scratch, &config(&away)).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("the reason", PATIENCE, || {
        let output = station(&mut rpc)["rtp"][0].clone();
        output["state"] == "waiting"
            && output["reason"].as_str().is_some_and(|why| why.contains("nocard0"))
    });
    assert_eq!(http::get(server.http, "/rtp/Hall.sdp").unwrap().0, 404);
    let here =
        format!("{{ dest = \"rtp://{}\", payload = \"pcma\" }}", listener.local_addr().unwrap());
    std::fs::write(scratch.join("aulos.toml"), config(&here)).unwrap();
    let reloaded = rpc.call("Aulos.Reload", &Value::Null);
    assert_eq!(reloaded["adjusted"], serde_json::json!(["Hall"]), "{reloaded}");
    let mut datagram = [0; 1_500];
    let length = listener.recv(&mut datagram).unwrap();
    assert_eq!((length, datagram[1] & 0x7f), (12 + 160, 8));
    // Without it nothing more is received, except packets in transit, and the reports.
    std::fs::write(scratch.join("aulos.toml"), config("")).unwrap();
    rpc.call("Aulos.Reload", &Value::Null);
    listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    wait_for("the end", PATIENCE, || listener.recv(&mut datagram).is_err());
    server.stop().unwrap();
}

/// SAP announcements: whether it is a deletion, and the description.
fn hear_of(listener: &UdpSocket) -> (bool, String) {
    let mut datagram = [0; 4_096];
    let length = listener.recv(&mut datagram).expect("an announcement within a minute");
    let at = datagram[..length].windows(5).position(|window| window == b"v=0\r\n").unwrap();
    // RFC 2974, 6: the bit T.
    let is_over = datagram[0] & 0x04 != 0;
    (is_over, String::from_utf8_lossy(&datagram[at..length]).into_owned())
}

/// A socket in SAP's group for sites, on the interface with that address.
fn sap_socket(card: &str) -> UdpSocket {
    let socket = UdpSocket::bind("239.255.255.255:9875").unwrap();
    socket.join_multicast_v4(&"239.255.255.255".parse().unwrap(), &card.parse().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}
