//! Servers that lie, networks that break, devices that stand still.

use aulos_core::{
    Block, ChannelLayout, Codec, Frames, HEADROOM, Instant, SampleRate, SampleSpec, Span,
};
use aulos_engine::codec_guard::{CodecLibrary, fault};
use aulos_engine::encode::make_encoder;
use aulos_proto::snap::client::{ClientInput, ClientOutgoing, DisconnectReason};
use aulos_proto::snap::wire::{
    Hello, MessageStamp, PlayerReport, ServerMessage, ServerSettings, codec_header,
    write_chunk_header,
};

use super::super::{
    DevicePosition, Player, PlayerConfig, PlayerOutput, StreamFormat, UnsupportedStream,
};
use super::world::{PlayerOptions, World};
use super::{network, secs};

/// What is heard in a span of seconds: seconds of sound, and the largest deviation in microseconds.
fn heard(world: &World, from: i64, to: i64) -> (f64, f64) {
    let heard = world.heard(0);
    let within = heard.iter().filter(|heard| heard.at >= secs(from) && heard.at < secs(to));
    let worst = within.clone().map(|heard| heard.early.abs()).fold(0.0, f64::max);
    (within.count() as f64 * 0.005, worst)
}

#[test]
fn a_server_that_comes_back_is_in_time_at_once() {
    let mut world = World::new(3);
    world.add(PlayerOptions { link: network(1), ..PlayerOptions::default() });
    world.run_until(secs(20));
    world.disconnect(0);
    world.run_until(secs(25));
    // The buffer plays on, then there is silence.
    let (sound, worst) = heard(&world, 20, 25);
    assert!((0.8..1.25).contains(&sound) && worst < 100.0, "{sound} s, {worst} us");
    assert_eq!(world.status(0).playback.underruns, 1);
    world.reconnect(0);
    world.run_until(secs(40));
    let (sound, worst) = heard(&world, 25, 40);
    assert!(sound > 13.5 && worst < 100.0, "{sound} s, {worst} us");
    assert_eq!(world.status(0).playback.cuts, 0);
}

#[test]
fn a_device_that_stands_still_is_noticed() {
    let mut world = World::new(0);
    world.add(PlayerOptions {
        link: network(0),
        stall: Some((secs(10), Span::from_millis(50))),
        ..PlayerOptions::default()
    });
    world.run_until(secs(30));
    let (sound, worst) = heard(&world, 15, 30);
    assert!(sound > 14.9 && worst < 100.0, "{sound} s, {worst} us");
    let status = world.status(0);
    assert_eq!((status.device_slips, status.playback.cuts), (1, 1), "{status:?}");
}

/// As those of ALSA's plug-in for a sound server: 5 ms old on average, some of them 20 ms. The
/// punctual ones count.
#[test]
fn a_device_with_old_reports_is_followed() {
    let mut world = World::new(0);
    let old_reports = Span::from_millis(5);
    world.add(PlayerOptions { link: network(0), old_reports, ..PlayerOptions::default() });
    world.run_until(secs(15));
    let begun = world.status(0).playback;
    world.run_until(secs(180));
    let (sound, worst) = heard(&world, 20, 180);
    let status = world.status(0);
    assert!(sound > 159.0 && worst < 1_000.0, "{sound} s, {worst} us");
    // One before it is known how old reports are; it was one a second.
    assert!(status.device_slips <= 1, "{status:?}");
    assert_eq!((begun.cuts, status.playback.cuts), (0, 0), "{status:?}");
}

/// Digital silence for 20 s, to a device that takes 400 ms to open.
#[test]
fn a_device_is_released_in_silence_and_the_first_sound_is_whole() {
    let mut world = World::with_pause();
    let opening = Span::from_millis(400);
    world.add(PlayerOptions { link: network(1), opening, ..PlayerOptions::default() });
    world.run_until(secs(60));
    let [_, released, opened] = world.openings(0)[..] else { panic!("{:?}", world.openings(0)) };
    // The buffer is one second long: silence sounds from 21 to 41 s, and is known to end at 40 s.
    let after = |seconds, at: Instant| (at - secs(seconds)).as_millis();
    // Within the buffer of the device.
    assert!((-100..100).contains(&after(26, released)), "{released:?}");
    assert!((0..150).contains(&after(40, opened)), "{opened:?}");
    let (sound, worst) = heard(&world, 41, 60);
    assert!(sound > 18.98 && worst < 100.0, "{sound} s, {worst} us");
    let played = world.status(0).playback;
    assert_eq!((played.starts, played.cuts, played.underruns, played.late), (2, 0, 0, 0));
}

#[test]
fn a_file_is_not_released_in_silence() {
    let mut world = World::with_pause();
    world.add(PlayerOptions { plays_silence: true, ..PlayerOptions::default() });
    world.run_until(secs(60));
    assert_eq!(world.openings(0).len(), 1);
    assert_eq!(world.status(0).playback.starts, 1);
}

/// A player that is fed by hand. Its clock and the server's are the same.
struct Fed {
    player: Player,
    now: Instant,
    played: u64,
    heard: Vec<f32>,
    reports: Vec<PlayerReport>,
}

fn config() -> PlayerConfig {
    PlayerConfig {
        hello: Hello::new("fed"),
        latency: Span::ZERO,
        rate: None,
        release_after: Span::from_secs(5),
        plays_silence: false,
        seed: 7,
    }
}

impl Fed {
    fn new() -> Self {
        let now = secs(100);
        let mut player = Player::new(config(), now);
        player.handle_timeout(now);
        assert_eq!(player.poll_output(), Some(PlayerOutput::Connect));
        player.connected(now);
        let mut fed = Self { player, now, played: 0, heard: Vec::new(), reports: Vec::new() };
        assert!(matches!(fed.outputs()[..], [PlayerOutput::Send(_)]));
        let settings =
            ServerSettings { buffer: Span::from_millis(200), ..ServerSettings::default() };
        fed.message(1, ServerMessage::Settings(settings));
        fed
    }

    /// Passes a message of the server on; returns the outputs, the requests of the time left out.
    fn message(&mut self, refers_to: u16, message: ServerMessage<'_>) -> Vec<PlayerOutput> {
        let mut bytes = Vec::new();
        message.write(MessageStamp { refers_to, ..MessageStamp::default() }, &mut bytes);
        self.bytes(&bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<PlayerOutput> {
        self.player.handle_input(self.now, ClientInput::Received(bytes));
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<PlayerOutput> {
        std::iter::from_fn(|| self.player.poll_output()).collect()
    }

    fn stream(&mut self, codec: &str, header: &[u8]) -> Vec<PlayerOutput> {
        self.message(0, ServerMessage::CodecHeader { codec: codec.as_bytes(), header })
    }

    /// A stream of 48000:16:2 in PCM.
    fn pcm(&mut self) {
        let message = codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap();
        // Behind the name and two lengths.
        self.stream("pcm", &message[11..]);
        self.player.device_opened();
    }

    fn chunk(&mut self, timestamp: Instant, payload: &[u8]) {
        let mut bytes = vec![0; HEADROOM];
        let used = write_chunk_header(&mut bytes, self.now, timestamp, payload.len());
        self.bytes(&[&bytes[HEADROOM - used..], payload].concat());
    }

    /// Lets time pass: 20 ms at a time, with exchanges of the time without delay. Returns the peak.
    fn pass(&mut self, millis: i64) -> f32 {
        let mut peak = 0.0_f32;
        for _ in 0..millis / 20 {
            self.exchange();
            let position = DevicePosition { played: Frames(self.played), at: self.now };
            let mut out = [0.0; 1_920];
            self.player.render(self.now, position, &mut out);
            self.heard.extend_from_slice(&out);
            peak = out.iter().fold(peak, |peak, sample| peak.max(sample.abs()));
            self.played += 960;
            self.now += Span::from_millis(20);
        }
        peak
    }

    fn exchange(&mut self) {
        while self.player.poll_timeout().is_some_and(|at| at <= self.now) {
            self.player.handle_timeout(self.now);
            for output in self.outputs() {
                let PlayerOutput::Send(request) = output else { continue };
                if let ClientOutgoing::ClientInfo(info) = request {
                    assert_eq!((info.volume, info.muted), (None, None));
                    self.reports.extend(info.report);
                    continue;
                }
                let mut bytes = Vec::new();
                request.write(self.now, &mut bytes);
                let id = u16::from_le_bytes([bytes[2], bytes[3]]);
                let sent = aulos_proto::snap::wire::WireTime::from_instant(self.now);
                let stamp =
                    MessageStamp { refers_to: id, sent, received: sent, ..MessageStamp::default() };
                let mut answer = Vec::new();
                ServerMessage::Time { latency: aulos_proto::snap::wire::WireTime::ZERO }
                    .write(stamp, &mut answer);
                self.bytes(&answer);
            }
            self.now += Span::from_micros(100);
        }
    }
}

/// 20 ms at half of full scale.
fn loud() -> Vec<u8> {
    [0, 0x40].repeat(1_920)
}

#[test]
fn chunks_of_the_past_and_of_next_year_do_not_disturb_those_of_now() {
    let mut fed = Fed::new();
    fed.pcm();
    fed.pass(100);
    let now = fed.now;
    fed.chunk(now - Span::from_secs(50), &loud());
    assert!(fed.pass(100) < f32::MIN_POSITIVE);
    for number in 0..20 {
        fed.chunk(fed.now + Span::from_millis(20 * number), &loud());
    }
    fed.chunk(now + Span::from_secs(31_536_000), &loud());
    assert!((fed.pass(500) - 0.5).abs() < 1e-3);
    fed.pass(300);
    let status = fed.player.status(fed.now);
    assert_eq!(status.playback.starts, 1, "{status:?}");
    // The one of next year waits, until the server's timeline goes on where it was.
    assert_eq!((status.queued, status.playback.late), (1, 1), "{status:?}");
    for number in 0..20 {
        fed.chunk(fed.now + Span::from_millis(20 * number), &loud());
    }
    assert!((fed.pass(500) - 0.5).abs() < 1e-3);
}

#[test]
fn damaged_chunks_are_silence_and_are_counted() {
    let mut fed = Fed::new();
    fed.pcm();
    fed.pass(100);
    for number in 0..10 {
        let chunk = if number % 2 == 0 { Vec::new() } else { loud() };
        fed.chunk(fed.now + Span::from_millis(20 * number), &chunk);
    }
    fed.pass(600);
    let status = fed.player.status(fed.now);
    assert!(status.playback.damaged > 0 && !status.is_playing, "{status:?}");
}

/// Two players of one thread, with the same chunks of Opus. The library panics in the first one at
/// a chunk, if one is given.
fn two_players_of_opus(fault: Option<i64>) -> [Fed; 2] {
    let mut encoder = make_encoder(Codec::Opus, SampleSpec::DEFAULT, Frames(960)).unwrap();
    let mut both = [Fed::new(), Fed::new()];
    for fed in &mut both {
        let header = [b"SUPO" as &[u8], &48_000_u32.to_le_bytes(), &[16, 0, 2, 0]].concat();
        fed.stream("opus", &header);
        fed.player.device_opened();
        fed.pass(100);
    }
    let mut block = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, 1_920);
    block.resize(Frames(960));
    for number in 0..60 {
        for (at, sample) in block.samples_mut().iter_mut().enumerate() {
            *sample = 0.25 * ((at / 2) as f32 * core::f32::consts::TAU * 10.0 / 960.0).sin();
        }
        let mut chunk = Vec::new();
        encoder.encode(&block, &mut chunk).unwrap();
        for (at, fed) in both.iter_mut().enumerate() {
            if fault == Some(number) && at == 0 {
                fault::plan(CodecLibrary::UnsafeLibopus, 0);
            }
            fed.chunk(fed.now, &chunk);
            fed.pass(20);
            assert!(!fault::is_planned(), "the player calls the library in its own turn");
        }
    }
    for fed in &mut both {
        fed.pass(400);
    }
    both
}

#[test]
fn a_panic_of_the_codec_costs_a_chunk_of_one_player() {
    let [_, undisturbed] = two_players_of_opus(None);
    let [hit, neighbor] = two_players_of_opus(Some(30));
    assert!(neighbor.heard == undisturbed.heard, "the neighbour changed");
    let stats = |fed: &Fed| fed.player.status(fed.now).playback;
    assert_eq!((stats(&neighbor).codec_panics, stats(&neighbor).damaged), (0, 0));
    assert_eq!((stats(&hit).codec_panics, stats(&hit).damaged), (1, 1));
    let silent = |fed: &Fed| fed.heard.chunks(2).filter(|frame| *frame == [0.0; 2]).count();
    let longer = silent(&hit) - silent(&undisturbed);
    assert!((480..=1_920).contains(&longer), "{longer} frames of silence");
}

#[test]
fn another_codec_in_mid_stream_begins_anew() {
    let mut fed = Fed::new();
    fed.pcm();
    let format = fed.player.device_format(fed.now);
    assert_eq!(format, None, "no chunk yet");
    fed.chunk(fed.now, &loud());
    let format = fed.player.device_format(fed.now).unwrap();
    assert_eq!((format.rate, format.layout.channels()), (SampleRate::HZ_48000, 2));
    let opus = [b"SUPO" as &[u8], &48_000_u32.to_le_bytes(), &[16, 0, 1, 0]].concat();
    let outputs = fed.stream("opus", &opus);
    let spec = SampleSpec { layout: ChannelLayout::new(1).unwrap(), ..SampleSpec::DEFAULT };
    let opus = StreamFormat { codec: Codec::Opus, spec };
    assert_eq!(outputs, [PlayerOutput::Stream(opus)]);
    assert_eq!(fed.player.device_format(fed.now).unwrap().layout.channels(), 1);
    assert_eq!(fed.player.status(fed.now).queued, 0);
    for (codec, header) in
        [("ogg", &b"vorbis"[..]), ("flac", b"fLaC"), ("pcm", b"RIFF"), ("opus", b"SUPO")]
    {
        let outputs = fed.stream(codec, header);
        let [PlayerOutput::Unsupported(why)] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(matches!(why, UnsupportedStream::Codec(_)), codec == "ogg");
        assert_eq!(fed.player.device_format(fed.now), None);
    }
}

#[test]
fn a_flood_is_bounded_and_garbage_ends_the_connection() {
    let mut fed = Fed::new();
    fed.pcm();
    for number in 0..20_000 {
        fed.chunk(fed.now + Span::from_millis(number), &[0; 4]);
    }
    let status = fed.player.status(fed.now);
    assert_eq!((status.queued, status.no_room), (6_000, 14_000));
    let outputs = fed.bytes(&[0xff; 64]);
    assert_eq!(outputs, [PlayerOutput::Disconnect(DisconnectReason::BadType)]);
    let retry_at = fed.player.poll_timeout().unwrap();
    assert!((350..=700).contains(&(retry_at - fed.now).as_millis()));
    fed.player.handle_timeout(retry_at);
    assert_eq!(fed.outputs(), [PlayerOutput::Connect]);
    fed.player.disconnected(fed.now);
    assert!(!fed.player.status(fed.now).is_connected);
}

/// A thousand listeners of a server that is killed come back in 350 ms, and not in one.
#[test]
fn players_of_a_failed_server_return_at_different_times() {
    let now = secs(100);
    let mut pauses: Vec<i64> = (0..1_000)
        .map(|seed| {
            let mut player = Player::new(PlayerConfig { seed, ..config() }, now);
            player.handle_timeout(now);
            player.connected(now);
            player.disconnected(now);
            (player.poll_timeout().unwrap() - now).as_millis()
        })
        .collect();
    pauses.sort_unstable();
    assert!(pauses[0] >= 350 && pauses[999] <= 700, "{} {}", pauses[0], pauses[999]);
    // In no 50 ms of them come more than a fifth.
    let most = (350..700)
        .step_by(50)
        .map(|from| pauses.iter().filter(|pause| (from..from + 50).contains(*pause)).count());
    assert!(most.max() < Some(200), "{pauses:?}");
}

#[test]
fn volume_and_mute_are_ramps_and_sound_is_reported() {
    let mut fed = Fed::new();
    fed.pcm();
    fed.pass(100);
    for number in 0..100 {
        fed.chunk(fed.now + Span::from_millis(20 * number), &loud());
    }
    fed.pass(400);
    let settings =
        ServerSettings { buffer: Span::from_millis(200), volume: 50, ..ServerSettings::default() };
    fed.message(0, ServerMessage::Settings(settings));
    fed.pass(40);
    // (10^0.5 - 1) / 9 of a half.
    assert!((fed.pass(100) - 0.1201).abs() < 1e-3);
    fed.message(0, ServerMessage::Settings(ServerSettings { muted: true, ..settings }));
    fed.pass(40);
    assert!(fed.pass(100) < f32::MIN_POSITIVE);
    assert!(fed.player.is_sounding);
    fed.pass(6_000);
    assert!(!fed.player.is_sounding);
}

/// Of nothing to hear, and of chunks that nothing takes.
#[test]
fn a_muted_device_is_released_until_there_is_sound_again() {
    let mut fed = Fed::new();
    let settings =
        ServerSettings { buffer: Span::from_millis(200), muted: true, ..ServerSettings::default() };
    fed.pcm();
    fed.player.device_closed();
    let mut wants = Vec::new();
    for number in 0..600 {
        match number {
            // Silence at first, and sound from here on: 4 s, then muted for 4 s.
            200 => assert_eq!(wants, [false; 200]),
            400 => drop(fed.message(0, ServerMessage::Settings(settings))),
            _ => {}
        }
        let payload = if number < 200 { vec![0; 3_840] } else { loud() };
        fed.chunk(fed.now, &payload);
        fed.exchange();
        fed.now += Span::from_millis(20);
        wants.push(fed.player.device_format(fed.now).is_some());
    }
    let status = fed.player.status(fed.now);
    assert!(status.queued < 16 && status.playback.late > 380, "{status:?}");
    // Nothing has come that could be heard for five seconds.
    assert!(wants[200..].iter().all(|wants| *wants));
    fed.now += Span::from_millis(1_100);
    fed.chunk(fed.now, &loud());
    assert_eq!(fed.player.device_format(fed.now), None);
    fed.message(0, ServerMessage::Settings(ServerSettings { muted: false, ..settings }));
    assert!(fed.player.device_format(fed.now).is_some());
    fed.message(0, ServerMessage::Settings(ServerSettings { volume: 0, muted: false, ..settings }));
    assert_eq!(fed.player.device_format(fed.now), None);
}

#[test]
fn a_fixed_volume_leaves_the_samples_alone() {
    let mut fed = Fed::new();
    fed.player.fix_volume();
    let settings = ServerSettings {
        buffer: Span::from_millis(200),
        volume: 10,
        muted: true,
        ..ServerSettings::default()
    };
    fed.message(0, ServerMessage::Settings(settings));
    fed.pcm();
    fed.pass(100);
    for number in 0..100 {
        fed.chunk(fed.now + Span::from_millis(20 * number), &loud());
    }
    fed.pass(400);
    assert!((fed.pass(100) - 0.5).abs() < 1e-3);
    let shown = fed.message(0, ServerMessage::Settings(ServerSettings { volume: 20, ..settings }));
    assert!(matches!(shown[..], [PlayerOutput::Settings(found)] if found.volume == 20));
    assert!((fed.pass(100) - 0.5).abs() < 1e-3);
}

#[test]
fn a_server_that_asks_gets_reports_and_others_get_none() {
    let mut fed = Fed::new();
    fed.pcm();
    for number in 0..1_000 {
        fed.chunk(fed.now + Span::from_millis(20 * number), &loud());
    }
    fed.pass(3_000);
    assert_eq!(fed.reports, []);
    let settings = ServerSettings {
        buffer: Span::from_millis(200),
        report_interval: Some(Span::from_secs(2)),
        ..ServerSettings::default()
    };
    fed.message(0, ServerMessage::Settings(settings));
    fed.pass(7_000);
    assert_eq!(fed.reports.len(), 3);
    let report = fed.reports[2];
    assert!(report.sync_error.is_some_and(|error| error.as_micros().abs() < 100), "{report:?}");
    assert!(report.clock_error.is_some() && report.device_delay.is_some(), "{report:?}");
    assert_eq!((report.cuts, report.underruns, report.lost), (0, 0, 0));
    assert_eq!(report.device_underruns, 0);
    fed.player.set_device_underruns(2);
    fed.pass(2_000);
    assert_eq!(fed.reports.pop().map(|report| report.device_underruns), Some(2));
    // Nothing is reported without a connection.
    fed.player.disconnected(fed.now);
    fed.pass(3_000);
    assert_eq!(fed.reports.len(), 3);
}
