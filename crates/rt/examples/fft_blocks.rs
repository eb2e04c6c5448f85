//! Blocks of 1024 samples, overlapping by half, from writes of any size: in place and as one slice,
//! without another buffer.

use aulos_rt::pipe::{PipeConfig, PipeReadError, SampleEncoding, pipe};

const BLOCK: usize = 1024 * 4;
const HOP: usize = BLOCK / 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (writer, reader) = pipe(&PipeConfig::audio(48_000, 1, SampleEncoding::F32Le, 8192))?;
    let (mut writer, mut reader) = (writer.blocking(), reader.blocking());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let tone: Vec<u8> =
                (0..48_000_u16).flat_map(|i| (f32::from(i) * 0.06).sin().to_le_bytes()).collect();
            // A decoder delivers pieces of any length.
            for piece in tone.chunks(1000 * 4 - 4) {
                if writer.write(piece).is_err() {
                    return;
                }
            }
            writer.finish();
        });
        let mut blocks = 0;
        loop {
            let there = reader.read_at_least(BLOCK)?;
            let Some(block) = there.get(..BLOCK) else { break };
            blocks += 1;
            if blocks % 20 == 0 {
                println!("block {blocks}: energy {:.1}", energy(block));
            }
            // Half a block is consumed, all of it was examined: the next read waits for more than
            // this.
            reader.advance(HOP, BLOCK);
        }
        println!("{blocks} blocks, ended {:?}", reader.into_inner().monitor().fill());
        Ok::<_, PipeReadError>(())
    })?;
    Ok(())
}

/// Stands for the transform.
fn energy(block: &[u8]) -> f32 {
    let (samples, _) = block.as_chunks();
    samples.iter().map(|&sample| f32::from_le_bytes(sample).powi(2)).sum()
}
