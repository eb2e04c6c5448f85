//! A sender of zeros is replaced after ten seconds, and comes back with its signal.

use crate::station_sim::{SentContent, StationSim};
use aulos_core::{SampleRate, Span};

#[test]
fn and_comes_back_with_its_sound() {
    let mut sim = StationSim::new(SampleRate::HZ_48000, &[0], true, 1);
    sim.run(Span::from_secs(2));
    sim.analyzer.reset();
    for round in 0..50 {
        assert_eq!(sim.status().active, Some(0), "round {round}");
        sim.senders[0].set_content(sim.now, SentContent::Silence);
        sim.run(Span::from_secs(11));
        assert_eq!(sim.status().active, Some(1), "round {round}");
        sim.run(Span::from_secs(round % 7));
        sim.senders[0].set_content(sim.now, SentContent::Sound);
        sim.run(Span::from_millis(1_100 + 7 * round));
    }
    // Silence is detected on input, 0.4 s before it would be played.
    let silence = sim.analyzer.silence().max(sim.analyzer.sent_silence());
    assert!(silence <= Span::from_millis(9_650), "{silence}");
    let (least, most) = sim.decision_times.silence;
    println!("silence was noticed {least} to {most} after its time");
    assert!(least >= -Span::from_millis(100) && most <= Span::from_millis(100));
    assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
    assert_eq!(sim.status().switches, 1 + 100);
}
