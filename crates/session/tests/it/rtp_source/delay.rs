//! The adaptive playout delay of a source: it follows the network while the station gets a stream
//! without gaps.

use aulos_core::{Instant, Span};
use aulos_engine::input::InputConfig;
use aulos_proto::rtp::Encoding;
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_session::rtp::PlayoutDelay;
use aulos_sim::{DatagramLink, Link};

use super::fixture::StationFixture;
use super::repair::{
    InputFixture, LOOK, OPUS, OPUS_TYPE, PACKET, PCMU, opus_voice, packet, red_packet, repeated,
};

const GOOD: Link = Link { delay: Span::from_millis(5), ..Link::CABLE };
const BAD: Link = Link { jitter: Span::from_millis(40), max_jitter: Span::from_millis(80), ..GOOD };

const ADAPTIVE: PlayoutDelay =
    PlayoutDelay { min: Span::from_millis(10), max: Span::from_millis(200) };

/// A sender of a second of speech and half a second of digital silence, in turn, over a simulated
/// network. Silence is sent in packets as well.
struct TalkFixture {
    receiver: InputFixture,
    network: DatagramLink,
    voice: Vec<Vec<u8>>,
    number: u64,
    next: Instant,
    /// The difference between the received audio and the elapsed time, in milliseconds: minimum and
    /// maximum.
    ahead: (f64, f64),
    began: Option<(Instant, usize)>,
}

impl TalkFixture {
    fn new(delay: PlayoutDelay, network: Link) -> Self {
        let receiver = InputFixture::with(PCMU, 0, Some(delay));
        let (next, voice) = (receiver.now, super::repair::pcmu_voice(500));
        let network = DatagramLink::new(network, 5);
        Self { receiver, network, voice, number: 0, next, ahead: (0.0, 0.0), began: None }
    }

    fn run(&mut self, span: Span) {
        let end = self.receiver.now + span;
        while self.receiver.now < end {
            while self.next <= self.receiver.now {
                let payload = match self.number % 75 {
                    0..50 => &self.voice[self.number as usize % 500][..],
                    _ => &[0xff; 160],
                };
                self.network.send(self.next, &packet(1, self.number, 160, 0, payload));
                (self.number, self.next) = (self.number + 1, self.next + PACKET);
            }
            while let Some(at) = self.network.poll_timeout().filter(|at| *at <= self.receiver.now) {
                let datagram = self.network.receive(at).unwrap();
                self.receiver.receive(&datagram);
            }
            self.receiver.wait(LOOK);
            self.look();
        }
    }

    /// The view of the station's input: the received audio against the elapsed time.
    fn look(&mut self) {
        let (now, heard) = (self.receiver.now, self.receiver.heard.len());
        let Some((since, first)) = self.began else {
            if heard > 0 {
                self.began = Some((now, heard));
            }
            return;
        };
        let passed = (now - since).as_secs_f64() * 1e3;
        let ahead = (heard - first) as f64 / 8.0 - passed;
        self.ahead = (self.ahead.0.min(ahead), self.ahead.1.max(ahead));
    }

    fn delay_ms(&self) -> f64 {
        self.receiver.intake.state().wait.as_secs_f64() * 1e3
    }
}

#[test]
fn the_delay_grows_and_shrinks_with_the_network_and_the_stream_is_unbroken() {
    let mut talk = TalkFixture::new(ADAPTIVE, GOOD);
    let mut delays = Vec::new();
    for link in [GOOD, BAD, GOOD] {
        talk.network.set(link);
        talk.run(Span::from_secs(60));
        delays.push(talk.delay_ms());
    }
    let counts = talk.receiver.counts();
    println!("{delays:.0?} ms, ahead {:.1?} ms, {counts:?}", talk.ahead);
    assert!(delays[0] < 25.0, "{delays:?}");
    assert!((60.0..130.0).contains(&delays[1]), "{delays:?}");
    assert!(delays[2] < 30.0, "{delays:?}");
    // Late packets occur when the network becomes bad, and hardly afterwards.
    assert!(counts.late > 0 && counts.late < 60, "{counts:?}");
    assert!(counts.stretched > 0 && counts.lost == 0 && counts.skipped == 0, "{counts:?}");
    assert_eq!((counts.gaps, counts.overflown), (0, 0));
    // A packet and a poll interval, plus what the adaptation and the resampler behind it share.
    assert!(talk.ahead.0 > -60.0 && talk.ahead.1 < 60.0, "{:?}", talk.ahead);
}

#[test]
fn a_fixed_delay_is_constant() {
    let delay = Span::from_millis(80);
    let mut talk = TalkFixture::new(PlayoutDelay { min: delay, max: delay }, GOOD);
    for link in [GOOD, BAD, GOOD] {
        talk.network.set(link);
        talk.run(Span::from_secs(20));
        assert!((talk.delay_ms() - 80.0).abs() < 3.0, "{}", talk.delay_ms());
    }
    assert_eq!(talk.receiver.counts().stretched, 0);
}

/// The delay stays in its range, however late packets are.
#[test]
fn the_delay_is_never_longer_than_the_most() {
    let most = Span::from_millis(50);
    let mut talk = TalkFixture::new(PlayoutDelay { min: Span::ZERO, max: most }, BAD);
    talk.run(Span::from_secs(60));
    assert!(talk.delay_ms() <= 55.0, "{}", talk.delay_ms());
    assert!(talk.receiver.counts().late > 20, "{:?}", talk.receiver.counts());
}

/// With a playout delay, an input buffer of 60 ms suffices on a network with delays of up to 80 ms,
/// for any drift; without one it underruns.
#[test]
fn a_short_input_behind_a_play_out_delay_does_not_run_dry() {
    let buffer = InputConfig {
        buffer: Span::from_millis(60),
        timeout: Span::from_millis(50),
        ..InputConfig::default()
    };
    let underruns = |delay, ppm| {
        let mut studio = StationFixture::with(GOOD, ppm, false, delay, buffer);
        studio.run(Span::from_secs(60));
        studio.change(BAD);
        studio.run(Span::from_secs(300));
        studio.change(GOOD);
        studio.run(Span::from_secs(60));
        let status = studio.status();
        println!("{ppm} ppm: {} underruns, {:?}", status.underruns, studio.intake.state().counts);
        status.underruns + status.switches - 1
    };
    assert!(underruns(None, 100) > 0, "the network is not bad enough");
    for ppm in [100, -100] {
        assert_eq!(underruns(Some(ADAPTIVE), ppm), 0);
    }
}

/// A sender that fails is concealed while its packets may only be late; then the station switches
/// to its fallback.
#[test]
fn a_sender_that_dies_behind_a_play_out_delay_is_covered() {
    let mut studio = StationFixture::with(GOOD, 0, true, Some(ADAPTIVE), InputConfig::default());
    studio.run(Span::from_secs(10));
    assert_eq!(studio.status().active, Some(0));
    studio.cut(true);
    studio.run(Span::from_secs(2));
    assert_eq!(studio.status().active, Some(1));
    let counts = studio.intake.state().counts;
    assert!(counts.concealed <= 8_000 * 4 / 10 && counts.gaps == 1, "{counts:?}");
    studio.cut(false);
    studio.run(Span::from_secs(20));
    assert_eq!((studio.status().active, studio.status().underruns), (Some(0), 0));
}

#[test]
fn opus_is_restored_from_the_next_packet_behind_a_play_out_delay() {
    let payloads = opus_voice(500);
    let is_lost = |number: usize| number > 20 && number < 490 && number % 20 == 7;
    let mut receiver = InputFixture::with(OPUS, OPUS_TYPE, Some(ADAPTIVE));
    for (number, payload) in payloads.iter().enumerate() {
        if !is_lost(number) {
            receiver.receive(&packet(1, number as u64, 960, OPUS_TYPE, payload));
        }
        receiver.wait(PACKET);
    }
    let (counts, repeated) = (receiver.counts(), repeated(&payloads, is_lost));
    assert!(repeated > 5);
    assert_eq!(counts.recovered_fec, repeated, "{counts:?}");
}

/// A name, the format, what makes a packet, how many packets before it that repeats, and whether it
/// does.
type Repeater<'a> =
    (&'a str, (Encoding, u8), &'a dyn Fn(usize) -> Vec<u8>, usize, &'a dyn Fn(usize) -> bool);

/// Packets over a network with little jitter that loses one in twenty: the delay alone would not
/// leave a repetition the time to arrive, which comes a packet or two later.
#[test]
fn repetitions_have_the_time_to_arrive() {
    const LOSSY: Link = Link {
        jitter: Span::from_millis(4),
        max_jitter: Span::from_millis(20),
        loss: 0.05,
        ..GOOD
    };
    const PACKETS: usize = 3_000;
    let (opus, pcmu) = (opus_voice(PACKETS), super::repair::pcmu_voice(PACKETS));
    let send_opus = |number: usize| packet(1, number as u64, 960, OPUS_TYPE, &opus[number]);
    let send_red = |number: usize| red_packet(&pcmu, number, 160, 0, 2);
    let (in_next, in_next_two) =
        (|next: usize| opus_fec_ticks(&opus[next]).is_some(), |_: usize| true);
    let senders: [Repeater<'_>; 2] = [
        ("FEC", (OPUS, OPUS_TYPE), &send_opus, 1, &in_next),
        ("RED", (PCMU, 0), &send_red, 2, &in_next_two),
    ];
    for (what, (encoding, payload_type), send, generations, repeats) in senders {
        let mut receiver = InputFixture::with(encoding, payload_type, Some(ADAPTIVE));
        let mut network = DatagramLink::new(LOSSY, 5);
        let mut arrived = vec![false; PACKETS];
        let recovered = |receiver: &InputFixture| {
            let counts = receiver.counts();
            counts.recovered_red + counts.recovered_fec
        };
        let mut before = 0;
        for number in 0..PACKETS {
            let next = receiver.now + PACKET;
            network.send(receiver.now, &send(number));
            while receiver.now < next {
                while let Some(at) = network.poll_timeout().filter(|at| *at <= receiver.now) {
                    let datagram = network.receive(at).unwrap();
                    arrived[usize::from(u16::from_be_bytes([datagram[2], datagram[3]]))] = true;
                    receiver.receive(&datagram);
                }
                receiver.wait(LOOK);
            }
            if number == PACKETS / 2 {
                before = recovered(&receiver);
            }
        }
        // The last ones are still under way.
        let second_half = PACKETS / 2..PACKETS - 20;
        let could_be = second_half.filter(|number| {
            let following = number + 1..=number + generations;
            !arrived[*number] && following.into_iter().any(|next| arrived[next] && repeats(next))
        });
        let (recovered, could_be) = (recovered(&receiver) - before, could_be.count() as u64);
        println!("{what}: {recovered} of {could_be}, {:?}", receiver.intake.state().wait);
        assert!(
            could_be > 40 && recovered * 100 >= could_be * 95,
            "{what}: {recovered}, {could_be}"
        );
    }
}

/// A sender that empties its own buffer at once: outdated packets are skipped, and nothing piles
/// up.
#[test]
fn a_flood_is_passed_over() {
    let mut talk = TalkFixture::new(ADAPTIVE, GOOD);
    talk.run(Span::from_secs(10));
    // A stall of three seconds, and then everything at once.
    let held: Vec<Vec<u8>> = (0..150)
        .map(|at| packet(1, talk.number + at, 160, 0, &talk.voice[at as usize % 500]))
        .collect();
    talk.receiver.wait(Span::from_secs(3));
    for datagram in &held {
        talk.receiver.receive(datagram);
    }
    (talk.number, talk.next) = (talk.number + 150, talk.receiver.now);
    talk.run(Span::from_secs(20));
    let state = talk.receiver.intake.state();
    assert!(state.wait <= Span::from_millis(205) && state.held < 20, "{state:?}");
    assert!(state.counts.late + state.counts.skipped > 100, "{state:?}");
}
