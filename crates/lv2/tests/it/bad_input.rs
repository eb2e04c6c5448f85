//! Hosts and sound that are wrong.

use std::ptr;

use aulos_lv2::table::PLUGINS;

use crate::host::{Host, Library, linked};
use crate::programme;

fn uris() -> impl Iterator<Item = &'static str> {
    PLUGINS.iter().map(|plugin| plugin.uri.to_str().unwrap())
}

#[test]
fn there_is_no_plugin_behind_the_last_one() {
    for index in [6, 7, u32::MAX] {
        assert!(unsafe { linked()(index) }.is_null());
    }
}

#[test]
fn rates_that_are_none_are_refused() {
    for uri in uris() {
        for rate in [0.0, -1.0, 7_999.0, 44_100.5, 192_001.0, 1e300, f64::NAN, f64::INFINITY] {
            assert!(Host::instantiate(linked(), uri, rate).is_none(), "{rate}");
        }
        for rate in [8_000.0, 11_025.0, 44_100.0, 192_000.0] {
            assert!(Host::instantiate(linked(), uri, rate).is_some(), "{rate}");
        }
    }
}

#[test]
fn ports_may_be_unconnected_or_unknown_and_blocks_empty() {
    for uri in uris() {
        let mut host = Host::instantiate(linked(), uri, 48_000.0).unwrap();
        let ports = host.first_control() + host.ports().count();
        // Before it is activated, and with nothing connected.
        for port in (0..ports).chain([ports, 1_000, u32::MAX as usize]) {
            host.connect(port, ptr::null_mut());
        }
        host.run_connected(0);
        host.activate();
        for frames in [0, 1, 8_192, 480_000, 0] {
            host.run_connected(frames);
        }
        // One output alone: without an input it is silent.
        let mut out = vec![1.0; 8_192];
        host.connect(host.plugin.channels, out.as_mut_ptr());
        host.run_connected(8_192);
        assert!(out.iter().all(|sample| *sample == 0.0), "{uri}");
    }
}

#[test]
fn parameters_out_of_range_are_brought_into_it() {
    let sound = programme(0.2, 2);
    let wrong = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38, -1e38, 1e-42, 2.5];
    let mut host = Host::new(linked(), "urn:aulos:normalizer:stereo");
    for port in host.plugin.inputs() {
        for value in wrong {
            *host.control(port.symbol) = value;
            let out = host.play(&sound, &[128]);
            assert!(out.iter().all(|sample| sample.abs() <= 10.0), "{}: {value}", port.symbol);
            for shown in host.plugin.outputs() {
                let range = shown.min..=shown.max;
                let found = *host.control(shown.symbol);
                assert!(
                    range.contains(&found),
                    "{} {value}: {} {found}",
                    port.symbol,
                    shown.symbol
                );
            }
        }
        *host.control(port.symbol) = port.default;
    }
}

#[test]
fn sound_that_is_none_becomes_silence_and_leaves_no_trace() {
    for uri in uris().filter(|uri| uri.contains("normalizer")) {
        let mut host = Host::new(linked(), uri);
        let channels = host.plugin.channels;
        let good = programme(1.0, channels);
        for value in
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40, f32::MIN_POSITIVE]
        {
            let bad: Vec<f32> = good.iter().map(|_| value).collect();
            let out = host.play(&bad, &[64, 1_000]);
            assert!(out.iter().all(|sample| sample.is_finite()), "{uri}: {value}");
            let mut mixed = good.clone();
            mixed.iter_mut().step_by(1_001).for_each(|sample| *sample = value);
            let out = host.play(&mixed, &[256]);
            // The ceiling is -1 dBTP.
            assert!(out.iter().all(|sample| sample.abs() < 0.892), "{uri}: {value}");
        }
        host.play(&good, &[256]);
        let out = host.play(&good, &[256]);
        assert!(out.iter().any(|sample| sample.abs() > 0.01), "{uri}");
    }
}

#[test]
fn it_can_be_loaded_two_hundred_times() {
    let sound = programme(0.02, 2);
    for round in 0..200 {
        let library = Library::load();
        let mut host = Host::new(
            library.entry(),
            ["urn:aulos:normalizer:stereo", "urn:aulos:meter:stereo"][round % 2],
        );
        assert_eq!(host.play(&sound, &[64]).len(), sound.len());
        drop(host);
    }
    // And in many places of a session at the same time.
    let library = Library::load();
    let mut all: Vec<Host> =
        (0..200).map(|_| Host::new(library.entry(), "urn:aulos:normalizer:stereo")).collect();
    let outs: Vec<Vec<f32>> = all.iter_mut().map(|host| host.play(&sound, &[64])).collect();
    assert!(outs.windows(2).all(|pair| pair[0] == pair[1]));
}
