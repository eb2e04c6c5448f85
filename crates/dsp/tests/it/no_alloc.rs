//! Checks the `# Real-time` lines of this crate: nothing allocates after construction.

use aulos_blackbox::alloc::calls;
use aulos_core::{ChannelLayout, Db, Frames, Lufs, Ppm, SampleFormat, SampleRate};
use aulos_dsp::g711::{self, G711Law};
use aulos_dsp::sound::{Headroom, SoundChain, SoundPreset, SoundProcessor, SoundProgram};
use aulos_dsp::{Crossfade, GainRamp, LevelMeter, Limiter, Resampler, convert, mix_in, remix};
use aulos_dsp::{g722, linear_pcm, meter};

#[test]
fn nothing_allocates_after_construction() {
    let input = vec![0.1f32; 2 * 960];
    let mut output = vec![0.0f32; 6 * 960];
    let mut bytes = vec![0u8; 4 * 2 * 960];
    let mut copying = Resampler::new(2, SampleRate::HZ_48000, SampleRate::HZ_48000);
    let mut converting = Resampler::new(2, SampleRate::HZ_44100, SampleRate::HZ_48000);
    let mut level = LevelMeter::new(SampleRate::HZ_48000, 2);

    let before = calls();
    for round in 0..100 {
        for format in SampleFormat::ALL {
            convert::encode(format, &input, &mut bytes);
            convert::decode(format, &bytes, &mut output);
        }
        remix(&input, 2, &mut output, 6);
        let drift = Ppm::from_ppm(if round < 20 { 0 } else { round });
        for resampler in [&mut copying, &mut converting] {
            resampler.set_drift(drift);
            resampler.process(&input, &mut output);
        }
        let mut fade = Crossfade::equal_power(Frames(500));
        fade.mix(&input, &mut output[..2 * 960], 2);
        Crossfade::fade_out(&mut output, 2);
        let mut ramp = GainRamp::at(1.0);
        ramp.ramp_to(0.5, Frames(100));
        ramp.apply(&mut output, 2);
        mix_in(&input, 0.5, &mut output);
        level.update(&input);
        assert!(level.rms(1).get() < 0.0);
    }
    copying.reset();
    assert_eq!(calls(), before);

    // The counter works: construction does allocate.
    drop(LevelMeter::new(SampleRate::HZ_44100, 1));
    assert_eq!(calls(), before + 2);
}

#[test]
fn the_sound_of_a_client_does_not_allocate_and_its_changes_neither() {
    let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let mut processor = SoundProcessor::new(rate, layout, &SoundProgram::identity());
    let programs: Vec<SoundProgram> = SoundPreset::ALL
        .iter()
        .flat_map(|preset| Headroom::ALL.map(|headroom| (preset.chain(), headroom)))
        .map(|(chain, headroom)| SoundChain { headroom, ..chain.unwrap_or_default() })
        .map(|chain| SoundProgram::new(&chain, rate, Db::new(-1.0)))
        .collect();
    let mut sound = vec![0.5f32; 2 * 960];
    let before = calls();
    for (step, program) in programs.iter().cycle().take(300).enumerate() {
        if step % 7 == 0 {
            processor.set(program);
        }
        processor.process(&mut sound);
        sound.fill(0.5);
    }
    assert_eq!(calls(), before);
}

#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test signal")]
fn a_running_meter_does_not_allocate() {
    use meter::{Meter, MeterConfig, MeterHistory, MeterKernel, MeterMode};
    let layout = ChannelLayout::SURROUND_5_1;
    let mut meters = Vec::new();
    for kernel in [MeterKernel::Scalar, MeterKernel::Avx2, MeterKernel::Best] {
        for history in [MeterHistory::Bounded { ms: 2_000 }, MeterHistory::Histogram] {
            let mut config = MeterConfig::new(SampleRate::HZ_48000, layout, MeterMode::ALL);
            (config.kernel, config.history) = (kernel, history);
            config.coarse = history == MeterHistory::Histogram;
            meters.push(Meter::new(config).unwrap());
        }
    }
    let narrow: Vec<f32> = (0..6 * 4_801).map(|n| (n as f32 * 0.37).sin()).collect();
    let short: Vec<i16> = narrow.iter().map(|x| (x * 3e4) as i16).collect();
    let long: Vec<i32> = short.iter().map(|&x| i32::from(x) << 16).collect();
    let wide: Vec<f64> = narrow.iter().map(|&x| f64::from(x)).collect();
    let mut dirty = narrow.clone();
    dirty[1234] = f32::NAN;
    let plane = &narrow[..4_801];
    let planes = [plane; 6];

    let before = calls();
    for meter in &mut meters {
        for _ in 0..12 {
            meter.add(&narrow);
            meter.add(&short);
            meter.add(&long);
            meter.add(&wide);
            meter.add(&dirty);
            meter.add_planar(&planes);
            meter.seed(&narrow);
            assert!(meter.momentary().is_some() && meter.max_short_term().is_some());
            assert!(meter.short_term().is_some() && meter.integrated().is_some());
            assert!(meter.true_peak(5).is_some());
        }
        meter.reset();
    }
    assert_eq!(calls() - before, 0);
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a test signal")]
fn a_normalizer_does_not_allocate_while_it_works() {
    use aulos_dsp::equalizer::{Equalizer, EqualizerBand, FilterType};
    use aulos_dsp::normalize::{LookAhead, Memory, Normalizer, Settings};
    let layout = ChannelLayout::SURROUND_5_1;
    let settings = Settings { target: Lufs::new(-5.0), ..Settings::default() };
    let mut normalizers = [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly]
        .map(|mode| Normalizer::new(mode, settings.clone(), SampleRate::HZ_48000, layout).unwrap());
    let mut limiter = Limiter::new(SampleRate::HZ_48000, layout, Db::new(-1.0));
    let mut equaliser = Equalizer::new(SampleRate::HZ_48000, layout);
    let band =
        EqualizerBand { filter_type: FilterType::Peaking, hz: 100.0, gain: Db::new(6.0), q: 1.0 };
    let mut sound: Vec<f32> = (0..6 * 48_000).map(|n| (n as f32 * 0.37).sin()).collect();
    (sound[12_345], sound[23_456]) = (f32::NAN, 1e9);
    let mut block = vec![0.0_f32; 6 * 960];
    let mut plain = block.clone();

    let before = calls();
    for normalizer in &mut normalizers {
        for second in 0..24 {
            // Quiet and loud, alternating every four seconds, so that sections begin and gains
            // change.
            let gain = if second / 4 % 2 == 0 { 0.01 } else { 3.0 };
            for part in sound.chunks(block.len()) {
                let block = &mut block[..part.len()];
                block.iter_mut().zip(part).for_each(|(out, x)| *out = x * gain);
                normalizer.process(block);
            }
            let memory =
                if second % 2 == 0 { Memory::Endless } else { Memory::Sliding { seconds: 10 } };
            normalizer.set_settings(Settings { memory, ..*normalizer.settings() }).unwrap();
            if second == 20 {
                normalizer.process_with_dry(&mut block, &mut plain);
                normalizer.interrupt();
            }
            assert_eq!(normalizer.statistics().clamped, 0);
        }
        while normalizer.drain(&mut block).0 > 0 {}
        normalizer.reset();
    }
    for count in [16, 3, 0] {
        equaliser.set(&[band; 16][..count]).unwrap();
        sound.chunks_mut(block.len()).take(20).for_each(|part| equaliser.process(part));
    }
    equaliser.reset();
    limiter.process(&mut sound);
    limiter.set_ceiling(Db::new(-3.0));
    limiter.reset();
    assert_eq!(calls() - before, 0);
    assert!(limiter.reduction() <= Db::ZERO);
}

#[test]
fn codecs_of_telephones_and_studios() {
    let (mut samples, mut bytes) = ([0.1_f32; 960], [0_u8; 3 * 960]);
    let (mut encoder, mut decoder) = (g722::G722Encoder::new(), g722::G722Decoder::new());
    let before = calls();
    for _ in 0..100 {
        for law in [G711Law::Mu, G711Law::A] {
            g711::encode(law, &samples, &mut bytes);
            g711::transcode(law, G711Law::A, &mut bytes[..960]);
            g711::decode(law, &bytes, &mut samples);
        }
        encoder.encode(&samples, &mut bytes);
        decoder.decode(&bytes, &mut samples);
        linear_pcm::encode_l16(&samples, &mut bytes);
        linear_pcm::decode_l16(&bytes, &mut samples);
        linear_pcm::encode_l24(&samples, &mut bytes);
        linear_pcm::decode_l24(&bytes, &mut samples);
    }
    assert_eq!(calls() - before, 0);
}
