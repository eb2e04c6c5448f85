//! Events of the peers.

use serde_json::Value;

/// What a peer reports.
#[derive(Clone, Debug)]
pub struct Event {
    /// The time of the report, in microseconds: `CLOCK_MONOTONIC` for programs, the page's clock
    /// for a page.
    pub at_us: i64,
    /// All of it; `event` is its name.
    pub values: Value,
}

impl Event {
    /// Takes a line of a program, or an item of a page's list.
    #[must_use]
    pub fn parse(values: Value) -> Option<Self> {
        values["event"].as_str()?;
        Some(Self { at_us: values["at_us"].as_i64()?, values })
    }

    /// Its name: `ready`, `connected`, `group`, `stream_start`, `chunk`, `play` and others.
    #[must_use]
    pub fn name(&self) -> &str {
        self.values["event"].as_str().unwrap_or_default()
    }

    /// All of it if this is its name; as a filter of `wait_for`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Value> {
        (self.name() == name).then(|| self.values.clone())
    }
}

/// A chunk of sound, decoded by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The timestamp of its first frame, microseconds of the server's clock.
    pub server_us: i64,
    /// Its length: samples of each channel.
    pub frames: i64,
    /// Frames a second.
    pub rate: i64,
    /// CRC-32 of the decoded samples: interleaved, little endian, of the stream's width.
    pub crc32: u32,
    /// When the peer received it, as [`Event::at_us`].
    pub at_us: i64,
    /// How far ahead of its timestamp it was sent, as its header says; only in the current dialect.
    pub send_ahead_us: Option<i64>,
}

/// When a chunk sounds: microseconds of the peer's clock, by its own filter and with its own output
/// delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayTime {
    /// The timestamp of the chunk, as [`Chunk::server_us`].
    pub server_us: i64,
    /// When its first frame sounds.
    pub play_us: i64,
}

/// What a peer has received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// In the order of arrival.
    pub chunks: Vec<Chunk>,
    /// In the order of playing; a page says it with the chunk.
    pub plays: Vec<PlayTime>,
    /// Warnings and errors of the implementation, and commands of the test that failed.
    pub complaints: Vec<String>,
}

impl Received {
    /// Takes what an event adds.
    pub(super) fn add(&mut self, event: &Event) {
        let number = |key: &str| event.values[key].as_i64();
        let play =
            || Some(PlayTime { server_us: number("server_us")?, play_us: number("play_us")? });
        match event.name() {
            "chunk" => {
                let chunk = || {
                    Some(Chunk {
                        server_us: number("server_us")?,
                        frames: number("frames")?,
                        rate: number("rate")?,
                        crc32: number("crc32")?.try_into().ok()?,
                        at_us: event.at_us,
                        send_ahead_us: number("send_ahead_us"),
                    })
                };
                self.chunks.extend(chunk());
                self.plays.extend(play());
            }
            "play" => self.plays.extend(play()),
            "log" | "failed" | "refused" => self.complaints.push(event.values.to_string()),
            _ => {}
        }
    }

    /// The chunks whose timestamp is not the one before it plus its frames, to the microsecond that
    /// rounding costs.
    #[must_use]
    pub fn breaks(&self) -> Vec<Chunk> {
        let Some(first) = self.chunks.first() else { return Vec::new() };
        let mut frames = 0;
        self.chunks
            .iter()
            .filter(|chunk| {
                let due = first.server_us + frames * 1_000_000 / first.rate;
                frames += chunk.frames;
                (chunk.server_us - due).abs() > 1
            })
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chunk(server_us: i64, frames: i64) -> Event {
        let values = json!({ "event": "chunk", "at_us": 1, "server_us": server_us, "rate": 44_100,
            "frames": frames, "crc32": 7, "send_ahead_us": null });
        Event::parse(values).unwrap()
    }

    #[test]
    fn a_time_line_with_a_gap_breaks_where_it_is() {
        let mut received = Received::default();
        for event in [chunk(1_000, 441), chunk(11_000, 100), chunk(13_267, 100), chunk(15_534, 9)] {
            received.add(&event);
        }
        assert_eq!(received.breaks(), []);
        received.add(&chunk(15_900, 10));
        assert_eq!(received.breaks().len(), 1, "{received:?}");
    }

    #[test]
    fn what_is_no_event_is_none() {
        assert!(Event::parse(json!({ "at_us": 1 })).is_none());
        assert!(Event::parse(json!({ "event": "chunk" })).is_none());
        let mut received = Received::default();
        received.add(&Event::parse(json!({ "event": "chunk", "at_us": 1 })).unwrap());
        assert_eq!(received.chunks, []);
    }
}
