//! A server and its players, and what they played when.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, before_others};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, write_wav};
use aulos_blackbox::sync::delayed_link::{DelayModel, DelayedLink};
use aulos_blackbox::sync::playout::Playout;
use aulos_blackbox::sync::position_tone::{ToneCapture, frame};
use aulos_blackbox::sync::pulses::edges;
use aulos_blackbox::sync::write_stamps::{StampLibrary, read_stamps};

use crate::text;

/// A player program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Ours,
    Snapclient,
}

/// A player of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Participant {
    pub(super) program: Program,
    /// Behind the network, not on loopback.
    pub(super) is_far: bool,
    /// By how much its clock is too fast.
    pub(super) clock_ppm: i32,
}

/// What a participant has played.
#[derive(Debug)]
pub(super) struct PlayedSound {
    pub(super) participant: Participant,
    pub(super) playout: Playout,
    /// When it began pulses of announcements, in seconds since the epoch.
    pub(super) edges: Vec<f64>,
    /// Its last status, for messages: no figure comes from there.
    pub(super) status: String,
}

/// A server and players for some time.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) net: &'a NetNamespaces,
    pub(super) compiler: &'a Path,
    /// For participants that are snapclients.
    pub(super) snapclient: Option<&'a Path>,
    /// The network before participants that are far.
    pub(super) model: Option<DelayModel>,
    /// Seconds from the start of the players to their end.
    pub(super) seconds: u64,
    /// Tables of the server's configuration besides the station.
    pub(super) config: &'a str,
}

impl Session<'_> {
    /// Runs it, and reads the files that the players wrote.
    pub(super) fn run(&self, participants: &[Participant]) -> Vec<PlayedSound> {
        self.run_beside(participants, |_, _| ()).0
    }

    /// The same, with what `beside` does after the players have been started; and the time from
    /// which play-outs count.
    pub(super) fn run_beside<T>(
        &self,
        participants: &[Participant],
        beside: impl FnOnce(&AulosServer, &ScratchDir) -> T,
    ) -> (Vec<PlayedSound>, T, u64) {
        let scratch = ScratchDir::new("sync").unwrap();
        let library = StampLibrary::build(self.compiler, &scratch).unwrap();
        let link = self.model.map(|model| DelayedLink::start(self.net, model, 11).unwrap());
        let server = self.net.run_inside(0, || self.serve(&scratch));
        let port = server.stream.port();
        let start = |(number, participant): (usize, &Participant)| {
            self.start(*participant, number, port, (&scratch, &library))
        };
        let (epoch, begin) = (now(), Instant::now());
        let mut players: Vec<RunningPlayer> = participants.iter().enumerate().map(start).collect();
        let others = beside(&server, &scratch);
        std::thread::sleep(Duration::from_secs(self.seconds).saturating_sub(begin.elapsed()));
        for player in &mut players {
            // Snapclient's status after SIGTERM is not always success.
            player.process.terminate(Duration::from_secs(5)).unwrap();
        }
        server.stop().unwrap();
        drop(link);
        let sounds = players.into_iter().map(|player| player.finish(epoch)).collect();
        (sounds, others, epoch)
    }

    /// A server with a station that plays the tone.
    fn serve(&self, scratch: &ScratchDir) -> AulosServer {
        let file = scratch.join("tone.wav");
        let length = usize::try_from(self.seconds + 10).unwrap() * RATE;
        let frames: Vec<Frame> = (0..length).map(frame).collect();
        let out = BufWriter::new(File::create(&file).unwrap());
        write_wav(out, &frames, SampleWidth::B16).unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:16:2\"\n\
             sources = [\"file://{}\"]\n{}",
            text(&file),
            self.config
        );
        std::fs::write(scratch.join("aulos.toml"), config).unwrap();
        AulosServer::start_with(scratch, |command| {
            command.arg("--config").arg(scratch.join("aulos.toml"));
            command.args(["--set", "listen.stream=0.0.0.0:0"]);
        })
        .unwrap()
    }

    fn start(
        &self,
        participant: Participant,
        number: usize,
        port: u16,
        (scratch, library): (&ScratchDir, &StampLibrary),
    ) -> RunningPlayer {
        let file = |ending: &str| scratch.join(format!("player{number}.{ending}"));
        let (sound, stamps) = (file("pcm"), file("stamps"));
        let host = if participant.is_far { DelayedLink::NEAR } else { "127.0.0.1" };
        let id = format!("player{number}");
        let mut command = match participant.program {
            Program::Ours => {
                let mut command = before_others(&binary());
                command.arg("play").arg(format!("tcp://{host}:{port}"));
                command.arg("--output").arg(format!("file:{}", sound.display()));
                command.args(["--id", &id, "--json", "--quiet"]);
                command
            }
            Program::Snapclient => {
                let mut command = before_others(self.snapclient.unwrap());
                command.args(["-h", host, "-p", &port.to_string(), "--hostID", &id]);
                command.arg("--player").arg(format!("file:filename={}", sound.display()));
                command.args(["--logsink", "stderr"]);
                command
            }
        };
        library.load_into(&mut command, &sound, &stamps, participant.clock_ppm);
        let (out, err) = (file("out"), file("err"));
        let process = self.net.run_inside(usize::from(participant.is_far), || {
            Process::start(&mut command, &out, &err).unwrap()
        });
        RunningPlayer { process, participant, sound, stamps, out }
    }
}

#[derive(Debug)]
struct RunningPlayer {
    process: Process,
    participant: Participant,
    sound: PathBuf,
    stamps: PathBuf,
    out: PathBuf,
}

impl RunningPlayer {
    fn finish(self, epoch: u64) -> PlayedSound {
        let frames = SampleWidth::B16.frames(&std::fs::read(&self.sound).unwrap());
        let stamps = read_stamps(&self.stamps).unwrap();
        let participant = self.participant;
        let tone = ToneCapture::new(&frames);
        let playout = Playout::new(tone, &stamps, epoch, participant.clock_ppm);
        let printed = std::fs::read_to_string(&self.out).unwrap();
        let status = printed.lines().last().unwrap_or_default().to_owned();
        assert!(playout.begin().is_some(), "{participant:?} played nothing: {status}");
        let edges = edges(&frames).into_iter().filter_map(|frame| playout.time_of(frame)).collect();
        PlayedSound { participant, playout, edges, status }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, as in the stamps.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
