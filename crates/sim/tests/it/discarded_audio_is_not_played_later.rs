//! What a standby sender sent while another one was on air is not played long after.

use crate::station_sim::StationSim;
use aulos_core::{SampleRate, Span};

#[test]
fn the_end_of_a_sender_that_was_not_on_air() {
    let mut sim = StationSim::new(SampleRate::HZ_48000, &[0, 0], true, 1);
    sim.run(Span::from_secs(2));
    sim.senders[1].end_for(sim.now, Span::from_secs(600));
    sim.run(Span::from_secs(60));
    let before = sim.status();
    assert_eq!((before.active, before.inputs[1].buffered), (Some(0), Span::ZERO));
    sim.senders[0].stop_for(sim.now, Span::from_secs(60));
    sim.run(Span::from_secs(2));
    let after = sim.status();
    assert_eq!((after.active, after.switches), (Some(2), before.switches + 1));
    assert_eq!(sim.analyzer.frames_by_source[1], 0);
}
