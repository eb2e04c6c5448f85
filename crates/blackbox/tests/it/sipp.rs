//! SIPp, with which telephone systems are tested: its calls' media go through a relay, and every
//! packet is counted.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;

use crate::pipewire::{TONE_DBFS, judge_tone};
use crate::relay::Relay;
use crate::rpc::Rpc;
use crate::station_rtp::station;
use crate::{dj, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A recorded DTMF event of the package: ten packets, some of which repeat the last.
const DTMF: &str = "/usr/share/sip-tester/dtmf_2833_5.pcap";
const DTMF_PACKETS: u64 = 10;

/// The caller's media: three seconds of the tone, 150 packets of 20 ms.
const SOUND_PACKETS: u64 = 150;

/// A dialogue of two SIPp on loopback; the answer names `media` as the port for RTP.
struct Call<'a> {
    sipp: &'a Path,
    scratch: &'a ScratchDir,
    /// `PCMA` or `PCMU`, and its payload type.
    codec: (&'a str, u8),
    media: u16,
    /// What the caller does between ACK and BYE.
    actions: String,
}

impl Call<'_> {
    fn run(&self) {
        let (caller, answerer) = (free_port().unwrap(), free_port().unwrap());
        let mut answer = self.start("answer", &self.answer(), answerer, &[]);
        let address = format!("127.0.0.1:{answerer}");
        let media = free_port().unwrap().to_string();
        let mut call = self.start("call", &self.call(), caller, &[&address, "-mp", &media]);
        for (process, name) in [(&mut call, "call"), (&mut answer, "answer")] {
            let status = process.wait(PATIENCE).unwrap();
            let said = std::fs::read_to_string(self.scratch.join(format!("{name}.out"))).unwrap();
            assert!(status.success(), "{name}: {status}\n{said}");
        }
    }

    fn start(&self, name: &str, scenario: &str, port: u16, more: &[&str]) -> Process {
        let [file, out, err] =
            ["xml", "out", "err"].map(|end| self.scratch.join(format!("{name}.{end}")));
        std::fs::write(&file, scenario).unwrap();
        let mut command = Command::new(self.sipp);
        command.current_dir(self.scratch.path()).args(more).args(["-i", "127.0.0.1", "-m", "1"]);
        command.args(["-nostdin", "-p", &port.to_string(), "-sf", text(&file)]);
        // Never longer than the test.
        Process::start(command.args(["-timeout", "20"]), &out, &err).unwrap()
    }

    /// The session description of one end.
    fn media(&self, port: &str) -> String {
        let (name, number) = self.codec;
        format!(
            "Content-Type: application/sdp\nContent-Length: [len]\n\nv=0\no=- 0 0 IN IP4 127.0.0.1\n\
             s=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP {number} 101\n\
             a=rtpmap:{number} {name}/8000\na=rtpmap:101 telephone-event/8000\n\n"
        )
    }

    fn answer(&self) -> String {
        let copied = "SIP/2.0 200 OK\n[last_Via:]\n[last_From:]\n[last_To:];tag=answer\n\
                      [last_Call-ID:]\n[last_CSeq:]\n";
        format!(
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n<scenario name=\"answer\">\n\
             <recv request=\"INVITE\"/>\n\
             <send><![CDATA[\n\n{copied}Contact: <sip:[local_ip]:[local_port]>\n{}\n]]></send>\n\
             <recv request=\"ACK\"/>\n<recv request=\"BYE\"/>\n\
             <send><![CDATA[\n\n{copied}Content-Length: 0\n\n]]></send>\n</scenario>\n",
            self.media(&self.media.to_string())
        )
    }

    fn call(&self) -> String {
        let request = |method: &str, number: u8, tag: &str, rest: &str| {
            format!(
                "{method} sip:relay@[remote_ip]:[remote_port] SIP/2.0\n\
                 Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
                 From: <sip:caller@[local_ip]:[local_port]>;tag=call\n\
                 To: <sip:relay@[remote_ip]:[remote_port]>{tag}\nCall-ID: [call_id]\n\
                 CSeq: {number} {method}\nContact: <sip:caller@[local_ip]:[local_port]>\n\
                 Max-Forwards: 70\n{rest}"
            )
        };
        let tag = "[peer_tag_param]";
        format!(
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n<scenario name=\"call\">\n\
             <send retrans=\"500\"><![CDATA[\n\n{}\n]]></send>\n<recv response=\"200\"/>\n\
             <send><![CDATA[\n\n{}\n]]></send>\n{}\n\
             <send retrans=\"500\"><![CDATA[\n\n{}\n]]></send>\n<recv response=\"200\"/>\n\
             </scenario>\n",
            request("INVITE", 1, "", &self.media("[media_port]")),
            request("ACK", 1, tag, "Content-Length: 0\n\n"),
            self.actions,
            request("BYE", 2, tag, "Content-Length: 0\n\n"),
        )
    }
}

fn action(what: &str, milliseconds: u32) -> String {
    format!(
        "<nop><action><exec {what}/></action></nop>\n<pause milliseconds=\"{milliseconds}\"/>\n"
    )
}

/// The tone as G.711 without a header, and the action that sends it once.
fn sound(scratch: &ScratchDir, (name, number): (&str, u8)) -> Option<String> {
    let ffmpeg = find_or_skip("ffmpeg")?;
    let file = scratch.join("sound.g711");
    let (codec, format) =
        if name == "PCMA" { ("pcm_alaw", "alaw") } else { ("pcm_mulaw", "mulaw") };
    let made = Command::new(ffmpeg)
        .args(["-nostdin", "-loglevel", "error", "-f", "lavfi"])
        .args(["-i", "sine=440:r=8000:d=3,volume=6dB", "-c:a", codec, "-f", format])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    let what = format!("rtp_stream=\"{},1,{number},{name}/8000\"", text(&file));
    Some(action(&what, 3_300))
}

/// A DTMF event, then sound: SIPp sends both from one port, each with its own SSRC.
#[test]
fn a_relay_passes_every_packet_of_a_call_of_sipp() {
    let Some(sipp) = find_or_skip("sipp") else { return };
    let _turn = shared_turn();
    for (codec, from, to) in [(("PCMA", 8), "pcma", "pcmu"), (("PCMU", 0), "pcmu", "pcma")] {
        let scratch = ScratchDir::new(&format!("sipp-{from}")).unwrap();
        let Some(sound) = sound(&scratch, codec) else { return };
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let dest = listener.local_addr().unwrap().port();
        let relay =
            Relay::start_with(&scratch, "relay", (from, to), dest, &["--events", "101:101"]);
        let event = action(&format!("play_pcap_audio=\"{DTMF}\""), 600);
        Call { sipp: &sipp, scratch: &scratch, codec, media: relay.port, actions: event + &sound }
            .run();
        let came = relay.stop();
        let total = &came["relays"][0];
        let count = |key: &str| total[key].as_u64().unwrap();
        assert_eq!(
            count("received") + count("duplicates"),
            SOUND_PACKETS + DTMF_PACKETS,
            "{total}"
        );
        assert_eq!(count("sent"), count("received"), "{total}");
        assert_eq!(count("received") - count("events"), SOUND_PACKETS, "{total}");
        for key in ["lost", "late", "reordered", "dropped", "foreign", "forged_byes"] {
            assert_eq!(count(key), 0, "{key}: {total}");
        }
        let mut packets = Vec::new();
        let mut datagram = [0; 1_500];
        listener.set_nonblocking(true).unwrap();
        while let Ok(length) = listener.recv(&mut datagram) {
            if !(192..224).contains(&datagram[1]) {
                packets.push((datagram[1] & 0x7f, length));
            }
        }
        let wanted = (if to == "pcmu" { 0 } else { 8 }, 12 + 160);
        let sounds = packets.iter().filter(|packet| **packet == wanted).count() as u64;
        let events = packets.iter().filter(|packet| **packet == (101, 16)).count() as u64;
        assert_eq!((sounds, events), (SOUND_PACKETS, count("events")), "{packets:?}");
    }
}

#[test]
fn a_station_plays_a_call_of_sipp() {
    let Some(sipp) = find_or_skip("sipp") else { return };
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("sipp-station").unwrap();
    let codec = ("PCMA", 8);
    let Some(sound) = sound(&scratch, codec) else { return };
    let media = free_port().unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
         sources = [\"rtp://127.0.0.1:{media}?payload=pcma\"]\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let call = Call { sipp: &sipp, scratch: &scratch, codec, media, actions: sound };
    let heard = std::thread::scope(|scope| {
        let heard = scope.spawn(|| dj::listen_for(&ffmpeg, server.http, "default", 6).1);
        call.run();
        heard.join().unwrap()
    });
    // The call is somewhere in it.
    let loud = heard.iter().rposition(|sample| sample.unsigned_abs() > 4_000).expect("a call");
    judge_tone("a call of SIPp", &heard[..loud - 24_000], TONE_DBFS).unwrap();
    let rtp = station(&mut rpc)["sources"][0]["rtp"].clone();
    wait_for("all packets", PATIENCE, || rtp["received"] == SOUND_PACKETS);
    for what in ["lost", "late", "undecodable", "refused", "other_types", "other_senders"] {
        assert_eq!(rtp[what], 0, "{what}: {rtp}");
    }
    server.stop().unwrap();
}
