//! Limits of configuration values, with their reasons.

use std::ops::RangeInclusive;

use aulos_core::Span;

/// A station costs an entry in every reactor's table and some hundred kilobytes of buffers.
pub const MAX_STATIONS: usize = 1_000;
/// Each source is buffered and metered even while it is not active.
pub const MAX_SOURCES: usize = 32;
/// Names appear in URLs, in file names and on small screens.
pub const MAX_NAME: usize = 64;
/// A DNS label has 63 bytes (RFC 1035, 2.3.4), and ` (2)` must fit behind a name that is in use.
pub const MAX_SERVICE_NAME: usize = 56;
/// From Snapcast's shortest chunk to Opus' longest packet.
pub const CHUNK_MS: RangeInclusive<u32> = 10..=60;
/// From snapclient's shortest buffer; with more than a minute, a new client would get megabytes at
/// once.
pub const BUFFER_MS: RangeInclusive<u32> = 20..=60_000;
/// Icecast's default is 64; more than that of the log of a mount, some seconds, is never sent.
pub const BURST_KB: RangeInclusive<u32> = 0..=1_024;
/// Listeners of one mount: more than a process has descriptors.
pub const MAX_LISTENERS: RangeInclusive<u32> = 1..=1_000_000;
/// Up to a month, after which a listener is no person.
pub const MAX_DURATION_S: RangeInclusive<u32> = 1..=2_678_400;
/// The rates of clients' sound cards.
pub const STATION_RATE: RangeInclusive<u32> = 8_000..=192_000;
/// The limit of FLAC (RFC 9639, 9.1.3), and more speakers than any client has.
pub const MAX_STATION_CHANNELS: usize = 8;
/// From one chunk, because a shorter timeout would fire between two chunks, to an hour, which is as
/// good as never.
pub const TIMEOUT_MS: RangeInclusive<u32> = 20..=3_600_000;
/// A program needs a moment to start; a source that is silent for longer than a day is not watched.
pub const DATA_TIMEOUT: RangeInclusive<Span> = Span::from_secs(1)..=Span::from_secs(86_400);
/// Buffer in front of the switch.
pub const INPUT_BUFFER_MS: RangeInclusive<u32> = 0..=60_000;
/// A longer fade would need more of both sources than is buffered.
pub const CROSSFADE_MS: RangeInclusive<u32> = 0..=10_000;
/// From two quanta of 10 ms, to what processors with long windows need.
pub const INSERT_LATENCY: RangeInclusive<Span> = Span::from_millis(20)..=Span::from_secs(2);
/// A second at the highest rate.
pub const INSERT_DELAY: RangeInclusive<u32> = 0..=192_000;
/// Up to an hour, which is as good as never.
pub const FAILBACK_DELAY_S: RangeInclusive<u32> = 0..=3_600;
/// An hour of each day of a week has 168; the control plane passes over all at each change.
pub const MAX_SCHEDULE_ENTRIES: usize = 500;
/// From a jingle to a week, after which a weekly entry begins anew.
pub const SCHEDULE_FOR: RangeInclusive<Span> = Span::from_secs(1)..=Span::from_secs(604_800);
/// Below any wanted sound, and down to below the noise of a 24-bit converter.
pub const SILENCE_DBFS: RangeInclusive<f64> = -120.0..=0.0;
/// A silence alarm after more than a day would be useless.
pub const SILENCE_S: RangeInclusive<f64> = 0.1..=86_400.0;
/// A higher gain points to a wrong unit; a very quiet source should be normalized.
pub const GAIN_DB: RangeInclusive<f64> = -60.0..=20.0;
/// Sounds of clients: each is one of the outputs of a station, which are 64.
pub const MAX_SOUNDS: RangeInclusive<u32> = 0..=32;
/// Snapcast's volume scale.
pub const VOLUME: RangeInclusive<u32> = 0..=100;
/// A client has about ten series, each of some hundred bytes in every scrape.
pub const CLIENT_SERIES: RangeInclusive<u32> = 0..=1_000;
/// Seconds of history at risk: a block is a minute, and a write each second would wear out a flash
/// disk for a second of history.
pub const MAX_LOSS_S: RangeInclusive<u32> = 1..=60;
/// A shorter lease could not be renewed over a slow line, and a longer one keeps listeners waiting.
pub const LEASE_TTL_MS: RangeInclusive<u32> = 200..=60_000;
/// Between two plays of a file; a check of each file against so many costs nothing.
pub const NO_REPEAT: RangeInclusive<u32> = 0..=1_000;
/// The end of one file and the beginning of the next are in memory meanwhile.
pub const PLAYLIST_CROSSFADE: RangeInclusive<Span> = Span::ZERO..=Span::from_secs(10);
/// From very quiet film to the loudest music.
pub const PLAYLIST_TARGET: RangeInclusive<f64> = -40.0..=-5.0;
/// A jingle after each file, or hardly ever.
pub const JINGLE_EVERY: RangeInclusive<u32> = 1..=1_000;
/// Level of a tone.
pub const TONE_DBFS: RangeInclusive<f64> = -120.0..=0.0;
/// Of a tone that is interrupted: a click at least, and no station that seems dead for ever.
pub const TONE_ON_OFF: RangeInclusive<Span> = Span::from_millis(10)..=Span::from_secs(3_600);
/// Mounts appear in URLs and on small screens.
pub const MAX_MOUNT: usize = 128;
/// Every login is compared with each user.
pub const MAX_USERS: usize = 256;
/// Shorter passwords can be guessed even with rate limits.
pub const MIN_PASSWORD: usize = 8;
/// Source clients are set up with passwords such as `hackme`; shorter than [`MIN_PASSWORD`], they
/// are used with a warning.
pub const MIN_MOUNT_PASSWORD: usize = 4;
/// A token is checked without a user name, so it must be longer than a password.
pub const MIN_TOKEN: usize = 16;
/// Largest secret, and largest secret file, in bytes.
pub const MAX_SECRET: usize = 1_024;
/// Sessions per address. With fewer than 16, a browser with player and calls would be refused.
pub const SESSIONS_PER_ADDRESS: RangeInclusive<u32> = 16..=1_000_000;
/// Sustained connection rate per address, after the burst.
pub const CONNECTIONS_PER_SECOND: RangeInclusive<u32> = 1..=1_000_000;
/// Failed logins per address: burst, and per minute.
pub const LOGIN_ATTEMPTS: RangeInclusive<u32> = 1..=10_000;
/// Enough for typing errors; a program can try no more than a few thousand passwords a day.
pub const DEFAULT_LOGIN_ATTEMPTS: u32 = 10;
/// Largest configuration file in bytes; a thousand stations need a fifth of it.
pub const MAX_FILE: u64 = 4 << 20;
/// Each hook is a task, and possibly a running program.
pub const MAX_HOOKS: usize = 32;
/// With a longer attempt the alarm would come too late.
pub const HOOK_TIMEOUT_S: RangeInclusive<u32> = 1..=300;
/// Enough for a busy mail server.
pub const DEFAULT_HOOK_TIMEOUT_S: u32 = 10;
/// With pauses of up to 30 s, twenty attempts take about ten minutes.
pub const HOOK_TRIES: RangeInclusive<u32> = 1..=20;
/// For a webhook; over within 8 s if the server answers at once. A program is run only once,
/// because it may have done part of its work.
pub const DEFAULT_HOOK_TRIES: u32 = 5;
/// Servers accept about a hundred.
pub const MAX_HOOK_HEADERS: usize = 32;
/// Each rendition is an encoder.
pub const MAX_HLS_RENDITIONS: usize = 8;
/// From what a request for each segment still pays for, to what a listener waits for at the start.
pub const HLS_SEGMENT_MS: RangeInclusive<i64> = 1_000..=20_000;
/// Segments are in memory, for twice as long: an hour of FLAC in stereo has some 400 MB.
pub const MAX_HLS_WINDOW: Span = Span::from_secs(4 * 3_600);
/// Every place for a title costs a byte.
pub const ICY_METAINT: RangeInclusive<u32> = 256..=65_536;
/// Each push is a connection, and a mount on a server.
pub const MAX_PUSHES: usize = 16;
/// Texts about a stream are sent in the head of every response.
pub const MAX_ICY_TEXT: usize = 256;
/// The bit rates that are announced, in kbit/s.
pub const ICY_BITRATE_KBPS: RangeInclusive<u32> = 1..=100_000;
/// Each is a task, and a connection at most.
pub const MAX_TITLE_OUTPUTS: usize = 16;
/// A radio text has 64 letters, a label of DAB+ 128 bytes; a request may have more around it.
pub const MAX_TITLE_TEMPLATE: usize = 4_096;
/// A title that comes an hour later is none.
pub const MAX_TITLE_INTERVAL: Span = Span::from_secs(3_600);
/// Ten bits of a site, six of an encoder (EN 62106-10).
pub const UECP_ADDRESS: RangeInclusive<u32> = 0..=65_535;
/// Descriptions of the programme are sent in a request head, which the server reads as a whole.
pub const MAX_PUSH_TEXT: usize = 256;
/// The other server defines the length of its passwords.
pub const MIN_PUSH_PASSWORD: usize = 1;
/// The other server defines the length of its tokens.
pub const MIN_HOOK_TOKEN: usize = 1;
/// Relays per server; a single one may have thousands of streams.
pub const MAX_RELAYS: usize = 256;
/// Ports per relay, each with a socket.
pub const MAX_RELAY_PORTS: usize = 16_384;
/// How long a relay waits for a late packet.
pub const RELAY_REORDER_WAIT_MS: RangeInclusive<u32> = 0..=1_000;
/// Silence after which a relayed stream ends.
pub const RELAY_IDLE_S: RangeInclusive<u32> = 1..=3_600;
/// Silence after which another address may take over a relayed stream.
pub const RELAY_TAKEOVER_MS: RangeInclusive<u32> = 0..=60_000;
/// Dynamic payload types, whose meaning SDP defines.
pub const RED_TYPES: RangeInclusive<u32> = 96..=127;
/// Number of earlier packets that RED repeats in each packet.
pub const RED_DISTANCE: RangeInclusive<u32> = 1..=4;
/// Streams on a single port.
pub const RELAY_STREAMS: RangeInclusive<u32> = 1..=100_000;
/// The range of libopus.
pub const OPUS_BITRATE: RangeInclusive<u32> = 6_000..=510_000;
/// The range of libopus.
pub const OPUS_COMPLEXITY: RangeInclusive<u32> = 0..=10;
/// Each recorder is a further encoder and a copy of the audio.
pub const MAX_RECORDERS: usize = 8;
/// The other server defines the length of its keys.
pub const MIN_UPLOAD_KEY: usize = 1;
/// Amazon's keys have 20 characters; keys of 128 have been seen elsewhere.
pub const MAX_UPLOAD_KEY: usize = 256;
/// An object name has at most 1,024 bytes (S3, "Naming Amazon S3 objects"), and a file name up to
/// 255.
pub const MAX_UPLOAD_PREFIX: usize = 512;
/// Concurrent files; each takes the memory of one part.
pub const UPLOAD_CONCURRENCY: RangeInclusive<u32> = 1..=16;
/// One upload sends while the other waits for a response.
pub const DEFAULT_UPLOAD_CONCURRENCY: u32 = 2;
/// S3 refuses parts below 5 MiB except for the last one; larger parts cost memory.
pub const UPLOAD_PART_MIB: RangeInclusive<u32> = 5..=512;
/// 78 GiB in 10,000 parts, the largest number in S3.
pub const DEFAULT_UPLOAD_PART_MIB: u32 = 8;
/// RTP outputs per station, each with an encoder and a socket.
pub const MAX_RTP_OUTPUTS: usize = 16;
/// The payload of a packet in a network with an MTU of 1,500 bytes (AES67).
pub const MAX_RTP_PAYLOAD: usize = 1_440;
/// The pacing is not finer than a millisecond; telephony ends at 60.
pub const RTP_PTIME_MS: RangeInclusive<f64> = 1.0..=60.0;
/// A payload type has seven bits.
pub const RTP_PAYLOAD_TYPE: RangeInclusive<u32> = 0..=127;
/// The field has eight bits; with 0 no packet would leave this machine.
pub const RTP_TTL: RangeInclusive<u32> = 1..=255;
/// The field has six bits.
pub const RTP_DSCP: RangeInclusive<u32> = 0..=63;
/// Integrated loudness of a normalized programme. These ranges are those of the normalizer and the
/// equalizer, as a test checks.
pub const TARGET_LUFS: RangeInclusive<f64> = -70.0..=-5.0;
/// Maximum true peak of a normalized programme.
pub const TRUE_PEAK: RangeInclusive<f64> = -9.0..=0.0;
/// Loudness range that the normalizer keeps.
pub const LRA: RangeInclusive<f64> = 1.0..=50.0;
/// Lowest gain of the normalizer.
pub const MIN_GAIN_DB: RangeInclusive<f64> = -60.0..=0.0;
/// Highest gain of the normalizer.
pub const MAX_GAIN_DB: RangeInclusive<f64> = 0.0..=60.0;
/// Fastest rise of the gain.
pub const RISE_DB_S: RangeInclusive<f64> = 0.1..=20.0;
/// Fastest fall of the gain.
pub const FALL_DB_S: RangeInclusive<f64> = 0.1..=60.0;
/// Momentary loudness below which the gain is held.
pub const GATE_LUFS: RangeInclusive<f64> = -70.0..=-20.0;
/// Memory of the normalizer.
pub const MEMORY_S: RangeInclusive<u32> = 10..=600;
/// Preamplification of a client's sound.
pub const PREAMP_DB: RangeInclusive<f64> = -40.0..=40.0;
/// Gain of one channel of a client.
pub const CHANNEL_GAIN_DB: RangeInclusive<f64> = -24.0..=24.0;
/// Delay of one channel of a client.
pub const CHANNEL_DELAY_MS: RangeInclusive<f64> = 0.0..=100.0;
/// Gain of an equalizer band.
pub const BAND_GAIN_DB: RangeInclusive<f64> = -24.0..=24.0;
/// Quality factor of an equalizer band.
pub const BAND_Q: RangeInclusive<f64> = 0.1..=20.0;
/// Bits per sample of a recording.
pub const RECORD_BITS: RangeInclusive<u32> = 16..=32;
/// Bit rate of a recording in kbit/s, as of libopus.
pub const RECORD_KBPS: RangeInclusive<u32> = 6..=510;
/// Retention by number needs at least one file.
pub const KEEP_FILES: RangeInclusive<u32> = 1..=u32::MAX;
/// A packet that others have overtaken is waited for no longer than this.
pub const JITTER_MS: RangeInclusive<u32> = 0..=1_000;
/// No server buffers for longer.
pub const SOURCE_LATENCY_MS: RangeInclusive<u32> = 0..=60_000;

/// From a network without loss to one over satellites.
pub const SRT_LATENCY_MS: RangeInclusive<u32> = 20..=8_000;

/// How much earlier than at the origin a station of NATS plays; later, if negative.
pub const NATS_LATENCY_MS: RangeInclusive<f64> = -1_000.0..=60_000.0;

/// Copies of the records and leases among the servers of a NATS cluster: the most that NATS has.
pub const CLUSTER_REPLICAS: RangeInclusive<u32> = 1..=5;
