//! Programmes, and runs of the normalizer on them.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use aulos_core::{ChannelLayout, Rng, SampleRate};
use aulos_dsp::normalize::{LookAhead, Normalizer, NormalizerStats, Settings};
use aulos_sim::Programme;

/// Interleaved sound.
#[derive(Clone, Debug)]
pub(crate) struct Sound {
    pub(crate) hz: u32,
    pub(crate) channels: usize,
    pub(crate) samples: Vec<f32>,
}

impl Sound {
    pub(crate) fn new(hz: u32, channels: usize, samples: Vec<f32>) -> Self {
        Self { hz, channels, samples }
    }

    /// One of the generated programmes, in stereo.
    pub(crate) fn programme(programme: Programme) -> Self {
        let mono = programme.samples(SampleRate::HZ_48000);
        Self::new(48_000, 2, mono.iter().flat_map(|x| [*x, *x]).collect())
    }

    /// White noise whose level in dB is a function of time in seconds.
    pub(crate) fn noise(hz: u32, channels: usize, seconds: f64, db: impl Fn(f64) -> f64) -> Self {
        let mut random = Rng::new(5);
        let mut samples = Vec::new();
        for frame in 0..(seconds * f64::from(hz)) as usize {
            let gain = 10f64.powf(db(frame as f64 / f64::from(hz)) / 20.0);
            samples.extend((0..channels).map(|_| (gain * (2.0 * random.next_f64() - 1.0)) as f32));
        }
        Self::new(hz, channels, samples)
    }

    /// A minute of music from the distribution, as stereo at 48 kHz.
    pub(crate) fn music(name: &str) -> Self {
        let path = format!("/usr/share/games/frozen-bubble/snd/{name}.ogg");
        Self::decoded(&["-stream_loop", "3", "-i", &path], None, MINUTE)
    }

    /// A whole file, as stereo at 48 kHz.
    pub(crate) fn file(path: &str) -> Self {
        Self::decoded(&["-i", path], None, None)
    }

    /// A minute of speech.
    pub(crate) fn speech() -> Self {
        static SPEECH: OnceLock<Sound> = OnceLock::new();
        SPEECH.get_or_init(Self::read_aloud).clone()
    }

    fn read_aloud() -> Self {
        let mut espeak = Command::new("espeak-ng");
        let spoken = espeak.args(["-s", "150", "--stdout"]).arg(TEXT.repeat(4)).output();
        let wave = spoken.expect("espeak-ng: see scripts/test-setup").stdout;
        Self::decoded(&["-i", "pipe:0"], Some(wave), MINUTE)
    }

    fn decoded(input: &[&str], wave: Option<Vec<u8>>, seconds: Option<&str>) -> Self {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error"]).args(input).args(["-ac", "2", "-ar", "48000"]);
        command.args(seconds.into_iter().flat_map(|seconds| ["-t", seconds]));
        command.args(["-f", "f32le", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("ffmpeg: see scripts/test-setup");
        let mut pipe = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || std::io::Write::write_all(&mut pipe, &wave.unwrap_or_default()));
            child.wait_with_output().unwrap()
        });
        assert!(output.status.success(), "{input:?}: see scripts/test-setup");
        let samples = output.stdout.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x));
        Self::new(48_000, 2, samples.collect())
    }

    pub(crate) fn frames(&self) -> usize {
        self.samples.len() / self.channels
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.frames() as f64 / f64::from(self.hz)
    }

    pub(crate) fn gain(mut self, db: f64) -> Self {
        let gain = 10f64.powf(db / 20.0) as f32;
        self.samples.iter_mut().for_each(|x| *x *= gain);
        self
    }

    pub(crate) fn then(mut self, other: &Self) -> Self {
        assert_eq!((self.hz, self.channels), (other.hz, other.channels));
        self.samples.extend(&other.samples);
        self
    }

    /// The part between two times, in seconds.
    pub(crate) fn part(&self, from: f64, to: f64) -> Self {
        let at = |time: f64| self.channels * ((time * f64::from(self.hz)) as usize);
        let samples = self.samples[at(from)..at(to).min(self.samples.len())].to_vec();
        Self { samples, ..*self }
    }

    pub(crate) fn normalizer(&self, mode: LookAhead, settings: &Settings) -> Normalizer {
        let layout = ChannelLayout::new(self.channels).unwrap();
        Normalizer::new(mode, settings.clone(), SampleRate::new(self.hz).unwrap(), layout).unwrap()
    }

    /// The normalized sound without the latency: as long as the input.
    pub(crate) fn normalized(
        &self,
        mode: LookAhead,
        settings: &Settings,
    ) -> (Self, NormalizerStats) {
        let mut normalizer = self.normalizer(mode, settings);
        let (out, statistics) = self.through(&mut normalizer, 960);
        (out, statistics)
    }

    /// The output of a normalizer that is called with `calls` frames each time.
    pub(crate) fn through(
        &self,
        normalizer: &mut Normalizer,
        calls: usize,
    ) -> (Self, NormalizerStats) {
        let mut samples = self.samples.clone();
        for block in samples.chunks_mut(calls * self.channels) {
            normalizer.process(block);
        }
        let mut block = vec![0.0; calls * self.channels];
        loop {
            let frames = normalizer.drain(&mut block).as_usize();
            if frames == 0 {
                break;
            }
            samples.extend(&block[..frames * self.channels]);
        }
        let late = normalizer.latency().as_usize() * self.channels;
        samples.drain(..late.min(samples.len()));
        (Self { samples, ..*self }, normalizer.statistics())
    }
}

const MINUTE: Option<&str> = Some("60");
const TEXT: &str = "The aulos was the double pipe of the Greeks: two reeds, one breath. This one \
    takes live sound in at one end, keeps it at a steady loudness, and gives it out, in time, at \
    many others. Whoever sends garbage, stops reading or says nothing is cut off and counted, and \
    nobody else notices. When the song ends the demo programme comes back; send another one, and \
    it plays. Nothing has to be restarted. ";
