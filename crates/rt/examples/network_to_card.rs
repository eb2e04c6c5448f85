//! A network thread feeds a sound card that needs data in every period: missing data is replaced by
//! silence, excess data drops the oldest; both are counted.

use std::time::Duration;

use aulos_rt::pipe::{
    OverflowPolicy, PipeConfig, PipeConfigError, SampleEncoding, UnderrunPolicy, pipe,
};

const RATE: u32 = 48_000;
const PERIOD_FRAMES: usize = 480;

fn main() -> Result<(), PipeConfigError> {
    let config = PipeConfig {
        overflow: OverflowPolicy::DropOldest,
        underrun: UnderrunPolicy::Silence,
        ..PipeConfig::audio(RATE, 2, SampleEncoding::S16Le, 4800)
    };
    let (mut writer, mut reader) = pipe(&config)?;
    let monitor = reader.monitor();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Packets of 5 ms arrive in bursts, as on a bad network.
            let packet = [1_u8; 240 * 4];
            for burst in [8_usize, 0, 2, 30, 0, 0, 0, 4] {
                for _ in 0..burst {
                    // Production code counts `written.dropped` as an overrun, with its cause.
                    if writer.write(&packet).is_err() {
                        return; // the card is gone
                    }
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            writer.finish();
        });
        // The sound card's callback: wait-free, whatever the writer does.
        let mut period = [0_u8; PERIOD_FRAMES * 4];
        loop {
            let read = reader.read(&mut period);
            // The card plays all of `period`: sound or silence.
            if read.end.is_some() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
    println!(
        "silence {} frames, dropped {} frames, at most {:?} waited",
        monitor.padded_frames(),
        monitor.dropped_frames(),
        monitor.high_water().duration
    );
    Ok(())
}
