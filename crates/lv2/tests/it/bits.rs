//! The output is that of `aulos-dsp`, which `aulos normalize` uses too, bit by bit.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::normalize::{LookAhead, Normalizer, Settings};

use crate::host::{Host, Library, linked};
use crate::{bits, programme};

/// The programme normalized in one piece.
pub(crate) fn expected(programme: &[f32], mode: LookAhead, channels: usize) -> Vec<f32> {
    let layout = ChannelLayout::new(channels).unwrap();
    let (rate, settings) = (SampleRate::HZ_48000, Settings::default());
    let mut normalizer = Normalizer::new(mode, settings, rate, layout).unwrap();
    let mut out = programme.to_vec();
    normalizer.process(&mut out);
    out
}

pub(crate) const MODES: [LookAhead; 4] =
    [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly];

#[test]
fn blocks_of_every_size_give_the_bits_of_the_whole() {
    let library = Library::load();
    let powers = (0..14).map(|power| vec![1 << power]);
    // The last one takes all in one block.
    let others = [3, 255, 257, 1_000, 8_191, 480_000].map(|size| vec![size]);
    let changing = vec![1, 8_192, 7, 256, 64, 1_023, 2, 4_096, 441];
    let sizes: Vec<Vec<usize>> = powers.chain(others).chain([changing]).collect();
    for (value, mode) in (0_u8..).zip(MODES) {
        // The look-ahead comes first, then something is heard.
        let sound = programme(if mode == LookAhead::Full { 4.5 } else { 1.5 }, 2);
        let whole = bits(&expected(&sound, mode, 2));
        assert!(whole.iter().filter(|sample| **sample != 0).count() > 80_000);
        for sizes in &sizes {
            let mut host = Host::new(library.entry(), "urn:aulos:normalizer:stereo");
            *host.control("mode") = f32::from(value);
            let out = host.play(&sound, sizes);
            assert!(bits(&out) == whole, "{mode:?}, blocks of {sizes:?}");
        }
    }
}

#[test]
fn one_channel_and_six_give_the_bits_too() {
    for (uri, channels) in [("urn:aulos:normalizer:mono", 1), ("urn:aulos:normalizer:5.1", 6)] {
        let sound = programme(1.5, channels);
        let mut host = Host::new(linked(), uri);
        let out = host.play(&sound, &[300, 64, 1_024]);
        assert!(bits(&out) == bits(&expected(&sound, LookAhead::Low, channels)), "{uri}");
    }
}

/// Hosts may connect an output to the memory of an input, even of another channel.
#[test]
fn outputs_may_be_the_memory_of_inputs() {
    let sound = programme(1.5, 2);
    let whole = expected(&sound, LookAhead::Low, 2);
    for crossed in [0, 1] {
        let mut host = Host::new(linked(), "urn:aulos:normalizer:stereo");
        let mut planes = [vec![0.0; 512], vec![0.0; 512]];
        for channel in 0..2 {
            host.connect(channel, planes[channel].as_mut_ptr());
            host.connect(2 + channel, planes[channel ^ crossed].as_mut_ptr());
        }
        let mut out = Vec::new();
        for block in sound.chunks(2 * 512) {
            for (place, sample) in block.iter().enumerate() {
                planes[place % 2][place / 2] = *sample;
            }
            host.run_connected(block.len() / 2);
            let (left, right) = (&planes[crossed], &planes[1 ^ crossed]);
            out.extend(left.iter().zip(right).take(block.len() / 2).flat_map(|(l, r)| [*l, *r]));
        }
        assert!(bits(&out) == bits(&whole));
    }
}

#[test]
fn a_meter_passes_every_bit_and_shows_the_figures_of_the_library() {
    use aulos_dsp::meter::{Meter, MeterConfig, MeterHistory, MeterMode};

    let mut sound = programme(4.0, 2);
    let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let mut config = MeterConfig::new(rate, layout, MeterMode::ALL);
    config.history = MeterHistory::Histogram;
    let mut meter = Meter::new(config).unwrap();
    meter.add(&sound);
    let mut host = Host::new(linked(), "urn:aulos:meter:stereo");
    // Figures are read every 100 ms.
    assert!(bits(&host.play(&sound, &[4_800])) == bits(&sound));
    let peak = (0..2).filter_map(|channel| meter.true_peak(channel)).fold(0.0, f64::max);
    for (symbol, value) in [
        ("momentary", meter.momentary().unwrap().get()),
        ("short_term", meter.short_term().unwrap().get()),
        ("integrated", meter.integrated().unwrap().get()),
        ("true_peak", 20.0 * peak.log10()),
        ("max_momentary", meter.max_momentary().unwrap().get()),
        ("max_short_term", meter.max_short_term().unwrap().get()),
    ] {
        let shown = f64::from(*host.control(symbol));
        assert!((shown - value).abs() < 1e-4, "{symbol}: {shown}, not {value}");
    }
    // NaN, infinity, a negative zero and a denormal are passed as they are.
    sound[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, -0.0, 1e-40]);
    assert!(bits(&host.play(&sound[..4_800], &[100])) == bits(&sound[..4_800]));
}
