//! The kernel's side of a sound card, as its documentation has it, in real time.

use core::ffi::c_long;
use core::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Instant, Span};

use super::super::ioctl::IntervalParameter::{BufferSize, Channels, PeriodSize, Rate};
use super::*;

/// A card: what it can do, and how far it is.
#[derive(Clone, Debug)]
struct SimCard {
    formats: Vec<u8>,
    ranges: [(IntervalParameter, RangeInclusive<u32>); 4],
    buffer: u64,
    rate: u32,
    written: u64,
    started: Option<Instant>,
}

impl SimCard {
    fn new() -> Self {
        Self {
            formats: vec![2, 10],
            ranges: [
                (Channels, 2..=2),
                (Rate, 44_100..=48_000),
                (PeriodSize, 64..=4_096),
                (BufferSize, 256..=38_400),
            ],
            buffer: 0,
            rate: 48_000,
            written: 0,
            started: None,
        }
    }

    /// Frames in the buffer; an underrun if it should have played more.
    fn waiting(&self) -> Result<u64, Errno> {
        let Some(started) = self.started else { return Ok(self.written) };
        let nanos = u64::try_from((clock::now() - started).as_nanos()).unwrap();
        let played = nanos * u64::from(self.rate) / 1_000_000_000;
        self.written.checked_sub(played).ok_or(Errno::PIPE)
    }
}

impl PcmCalls for SimCard {
    fn refine(&mut self, params: &mut HwParams) -> Result<(), Errno> {
        let takes = |format: &&u8| params.has(MaskParameter::Format, **format);
        let formats: Vec<u8> = self.formats.iter().filter(takes).copied().collect();
        if formats.is_empty() || !params.has(MaskParameter::Access, RW_INTERLEAVED) {
            return Err(Errno::INVAL);
        }
        params.keep(MaskParameter::Format, &formats);
        for (which, can) in &self.ranges {
            let asked = params.range(*which);
            let (least, most) = (*asked.start().max(can.start()), *asked.end().min(can.end()));
            if least > most {
                return Err(Errno::INVAL);
            }
            params.narrow(*which, &(least..=most));
        }
        Ok(())
    }

    fn set_hardware(&mut self, params: &mut HwParams) -> Result<(), Errno> {
        self.refine(params)?;
        let period = *params.range(PeriodSize).start();
        params.narrow(PeriodSize, &(period..=period));
        let buffer = *params.range(BufferSize).end();
        if buffer < 2 * period {
            return Err(Errno::INVAL);
        }
        params.narrow(BufferSize, &(buffer..=buffer));
        (self.buffer, self.rate) = (buffer.into(), *params.range(Rate).start());
        Ok(())
    }

    fn set_software(&mut self, params: &mut SwParams) -> Result<(), Errno> {
        let is_right = params.stop_threshold == self.buffer
            && params.start_threshold > params.stop_threshold
            && params.min_room > 0;
        if is_right { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        (self.written, self.started) = (0, None);
        Ok(())
    }

    fn start(&mut self) -> Result<(), Errno> {
        let can = self.started.is_none() && self.written > 0;
        self.started = Some(clock::now());
        if can { Ok(()) } else { Err(Errno::BADFD) }
    }

    fn drop(&mut self) -> Result<(), Errno> {
        self.prepare()
    }

    fn delay(&mut self) -> Result<c_long, Errno> {
        if IS_GONE.load(Ordering::Relaxed) > 0 {
            return Err(Errno::NODEV);
        }
        Ok(c_long::try_from(self.waiting()?).unwrap())
    }

    fn write(&mut self, bytes: &[u8], frame_bytes: usize) -> Result<c_long, Errno> {
        let room = self.buffer - self.waiting()?;
        let frames = room.min((bytes.len() / frame_bytes) as u64);
        if frames == 0 {
            return Err(Errno::AGAIN);
        }
        self.written += frames;
        Ok(c_long::try_from(frames).unwrap())
    }
}

static OPENED: AtomicU64 = AtomicU64::new(0);
static IS_GONE: AtomicU64 = AtomicU64::new(0);

fn configured(card: &SimCard, spec: &str, buffer: u64) -> io::Result<PcmConfig> {
    let mut pcm = KernelPcm::simulated(card.clone());
    let spec: SampleSpec = spec.parse().unwrap();
    let wanted = PcmConfig { spec, buffer: Frames(buffer), period: Frames(buffer / 4) };
    pcm.configure(wanted, &super::super::formats(spec.format))
}

#[test]
fn a_card_gets_what_it_takes_and_the_reason_says_what_it_does_not() {
    let card = SimCard::new();
    let granted = configured(&card, "48000:16:2", 3_840).unwrap();
    assert_eq!((granted.buffer, granted.period), (Frames(3_840), Frames(960)));
    assert_eq!(granted.spec.format, SampleFormat::S16Le);
    // 24 bits in the wider format, and a card that has nothing but the narrow one.
    assert_eq!(configured(&card, "44100:24:2", 3_528).unwrap().spec.format, SampleFormat::S32Le);
    let narrow = SimCard { formats: vec![2], ..card.clone() };
    assert_eq!(configured(&narrow, "48000:24:2", 3_840).unwrap().spec.format, SampleFormat::S16Le);
    for (card, spec, reason) in [
        (&card, "96000:16:2", "96000 Hz, but 44100 to 48000; `alsa:plughw:CARD` converts"),
        (&card, "48000:16:6", "6 channels, but 2 to 2;"),
        (&SimCard { formats: vec![3], ..card.clone() }, "48000:16:2", "16, 24 or 32 bits"),
    ] {
        let error = configured(card, spec, 3_840).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    // Longer and shorter buffers than the card has.
    let granted = configured(&card, "48000:16:2", 96_000).unwrap();
    assert_eq!((granted.buffer, granted.period), (Frames(38_400), Frames(64)));
    let granted = configured(&card, "48000:16:2", 100).unwrap();
    assert_eq!((granted.buffer, granted.period), (Frames(256), Frames(64)));
}

#[test]
fn the_kernels_list_has_the_devices_that_play() {
    let list = "00-00: ALC257 Analog : ALC257 Analog : playback 1 : capture 1\n\
        00-03: HDMI 0 : HDMI 0 : playback 1\n01-00: USB Audio : USB Audio : capture 1\n\
        garbage\n02-00: x\n";
    let found: Vec<_> = playback_devices(list).collect();
    assert_eq!(found, [(0, 0, "ALC257 Analog"), (0, 3, "HDMI 0")]);
}

#[test]
fn errors_say_what_to_do() {
    for (error, words) in [
        (Errno::NOENT, "/dev/snd/pcmC9D0p: no such device; --list-outputs"),
        (Errno::ACCESS, "must be in the group `audio`"),
        (Errno::BUSY, "another program is using it"),
        (Errno::IO, "os error 5"),
    ] {
        let text = open_error(error, "/dev/snd/pcmC9D0p").to_string();
        assert!(text.contains(words), "{text}");
    }
    let error = "no-such-card".parse::<KernelDevice>().unwrap().open().unwrap_err();
    assert!(error.to_string().starts_with("no such card"), "{error}");
    // This is a device, but none of sound: the kernel refuses the call.
    let null = std::fs::File::open("/dev/null").unwrap();
    let error = KernelPcm::new(null.into()).status().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
}

/// From its opening over an underrun to the loss of the card.
#[test]
fn a_card_is_played_followed_begun_anew_and_opened_again() {
    use super::super::AlsaOutput;
    use crate::output::Output as _;
    let open = || {
        OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(KernelPcm::simulated(SimCard::new())) as Box<dyn Pcm>)
    };
    let mut output = AlsaOutput::simulated(open, Span::from_millis(800));
    let start = clock::now();
    output.open("48000:16:2".parse().unwrap(), start).unwrap();
    // Serves it until then, and says whether it came to that.
    let serve = |output: &mut AlsaOutput, is_over: &dyn Fn(&AlsaOutput) -> bool| {
        let until = clock::now() + Span::from_secs(20);
        while clock::now() < until {
            let now = clock::now();
            output.progress(now).unwrap();
            if is_over(output) {
                return true;
            }
            if output.is_ready() {
                let frames = output.writable_frames(now).min(output.period());
                output.write(&vec![0.25; 2 * frames.as_usize()]).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        false
    };
    let played = |output: &AlsaOutput| output.position(clock::now()).played;
    assert!(serve(&mut output, &|output| played(output) > Frames(4_800)), "{output:?}");
    let one = output.position(clock::now());
    let more = one.played + Frames(24_000);
    assert!(serve(&mut output, &|output| played(output) > more), "{output:?}");
    let other = output.position(clock::now());
    let rate = (other.played - one.played).0 as f64 / (other.at - one.at).as_secs_f64();
    assert!((rate - 48_000.0).abs() < 500.0, "{rate} Hz");
    // Longer than the buffer: an underrun, after which the same device begins anew.
    std::thread::sleep(std::time::Duration::from_millis(900));
    output.progress(clock::now()).unwrap();
    assert!(!output.is_ready() && output.underruns() == 1, "{output:?}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 1);
    assert!(serve(&mut output, &|output| played(output) > Frames(4_800)), "{output:?}");
    assert!(played(&output) < other.played, "counted anew");
    IS_GONE.store(1, Ordering::Relaxed);
    assert!(serve(&mut output, &|output| !output.is_ready()), "{output:?}");
    let event = format!("{:?}", output.poll_event());
    assert!(event.contains("Failed") && event.contains("19"), "{event}");
    IS_GONE.store(0, Ordering::Relaxed);
    assert!(serve(&mut output, &AlsaOutput::is_ready), "{output:?}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 2);
    output.close().unwrap();
}
