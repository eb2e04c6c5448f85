//! Ours at the whole job: receive, put in order, PCMU to PCMA, send to one port, with RTCP.

use std::sync::Arc;

use aulos_core::Instant;
use aulos_io::udp::{SharedPortConfig, SocketOptions, UdpConfig, UdpContext, bind_socket};
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_session::datagram::{Machine, Packet, StreamKey};
use aulos_session::relay::{
    RelayPlan, RelayStream, RelayStreamConfig, RelayStreamLabel, RtpPayloadFormat,
};

pub(crate) fn relay(role: &str, streams: usize, first: u16, sink: u16, until_stop: impl FnOnce()) {
    let mut config = UdpConfig::default();
    config.threads = 1;
    let mut context = UdpContext::start(&config).expect("a context");
    let encoding =
        |codec| RtpPayloadFormat::new(Encoding { codec, clock_rate: 8_000, channels: 1 });
    let opus =
        RtpPayloadFormat::new(Encoding { codec: RtpCodec::Opus, clock_rate: 48_000, channels: 2 });
    let to = if role == "relay-opus" { opus } else { encoding(RtpCodec::Pcma) };
    let wishes = RelayStreamConfig::new(encoding(RtpCodec::Pcmu), to);
    let plan = Arc::new(RelayPlan::new(wishes).expect("a table does it"));
    let dest = ([127, 0, 0, 1], sink).into();
    let make = move |number: u32| {
        RelayStream::new(
            Arc::clone(&plan),
            RelayStreamLabel::default(),
            dest,
            number,
            u64::from(number),
        )
    };
    let mut port = first;
    if role != "relay-port" {
        for stream in 0..streams {
            let to = first + u16::try_from(stream).expect("a port");
            let address = ([127, 0, 0, 1], to).into();
            let socket = bind_socket(address, &SocketOptions::default()).expect("a free port");
            context.add(Some(socket), make(u32::from(to))).expect("a socket");
        }
    } else {
        let wish = SharedPortConfig::new(([127, 0, 0, 1], 0).into());
        let factory = |_| {
            let (make, mut next) = (make.clone(), 0);
            move |_: Instant, _: StreamKey, _: &Packet<'_>| {
                next += 1;
                Some(make(next))
            }
        };
        port = context.open(&wish, factory).expect("a port").address.port();
    }
    // The last of them is in when its thread has answered.
    context.stream_reports();
    println!("{port}");
    until_stop();
    let ended = context.stop();
    let sent: u64 = ended.iter().map(|ended| Machine::report(&ended.machine).tally.sent).sum();
    println!("{sent}");
}
