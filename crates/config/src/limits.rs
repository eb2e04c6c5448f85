//! Every bound of a configuration, with its reason.

use std::ops::RangeInclusive;

/// A station costs a place in every reactor's table and some hundred kilobytes of buffers.
pub const MAX_STATIONS: usize = 1_000;
/// Each source is buffered and metered while it waits.
pub const MAX_SOURCES: usize = 32;
/// Names stand in URLs, file names and on small screens.
pub const MAX_NAME: usize = 64;
/// A label of DNS has 63 bytes (RFC 1035, 2.3.4), and ` (2)` has to fit behind a name that is taken.
pub const MAX_SERVICE_NAME: usize = 56;
/// Snapcast's least chunk, and Opus' longest packet.
pub const CHUNK_MS: RangeInclusive<u32> = 10..=60;
/// snapclient's least buffer; above a minute a join would send megabytes at once.
pub const BUFFER_MS: RangeInclusive<u32> = 20..=60_000;
/// The lengths of one Opus packet that are at least one chunk (RFC 6716, 2.1.4).
pub const OPUS_CHUNK_MS: [u32; 4] = [10, 20, 40, 60];
/// What the clients' sound cards play.
pub const STATION_RATE: RangeInclusive<u32> = 8_000..=192_000;
/// What FLAC can carry (RFC 9639, 9.1.3), and more than any client has speakers.
pub const MAX_STATION_CHANNELS: usize = 8;
/// Below one chunk a switch would fire between two chunks; an hour is never.
pub const TIMEOUT_MS: RangeInclusive<u32> = 20..=3_600_000;
/// What is buffered in front of the switch.
pub const INPUT_BUFFER_MS: RangeInclusive<u32> = 0..=60_000;
/// Longer fades would need more of both sources than is buffered.
pub const CROSSFADE_MS: RangeInclusive<u32> = 0..=10_000;
/// An hour is never.
pub const HOLD_IN_S: RangeInclusive<u32> = 0..=3_600;
/// Silence is below any wanted sound, and above the noise of a 24-bit converter.
pub const SILENCE_DBFS: RangeInclusive<f64> = -120.0..=0.0;
/// A day of silence is an alarm that nobody hears.
pub const SILENCE_S: RangeInclusive<f64> = 0.1..=86_400.0;
/// More would be a fault in the unit: what is that quiet is normalised.
pub const GAIN_DB: RangeInclusive<f64> = -60.0..=20.0;
/// Snapcast's scale of volumes.
pub const VOLUME: RangeInclusive<u32> = 0..=100;
/// The level of a tone.
pub const TONE_DBFS: RangeInclusive<f64> = -120.0..=0.0;
/// Mounts stand in URLs and on small screens.
pub const MAX_MOUNT: usize = 128;
/// Each user is compared with at every login.
pub const MAX_USERS: usize = 256;
/// Shorter ones are guessed, slowed down or not.
pub const MIN_PASSWORD: usize = 8;
/// A token is guessed without a name.
pub const MIN_TOKEN: usize = 16;
/// Bytes of a secret, and of the file that holds it.
pub const MAX_SECRET: usize = 1_024;
/// Sessions from one address. Below 16 a browser with its player and its calls is shut out.
pub const SESSIONS_PER_ADDRESS: RangeInclusive<u32> = 16..=1_000_000;
/// Connections a second from one address, once the burst is spent.
pub const CONNECTIONS_PER_SECOND: RangeInclusive<u32> = 1..=1_000_000;
/// Wrong logins from one address, at once and a minute.
pub const LOGIN_ATTEMPTS: RangeInclusive<u32> = 1..=10_000;
/// Somebody who mistypes gets so many tries; a program that guesses gets no further than a few
/// thousand a day.
pub const DEFAULT_LOGIN_ATTEMPTS: u32 = 10;
/// Bytes of a configuration file: a thousand stations need a fifth of it.
pub const MAX_FILE: u64 = 4 << 20;
/// Each is a task, and may be a program that runs.
pub const MAX_HOOKS: usize = 32;
/// An hour-long attempt would be an alarm that comes too late.
pub const HOOK_TIMEOUT_S: RangeInclusive<u32> = 1..=300;
/// As long as a mail server takes that is busy.
pub const DEFAULT_HOOK_TIMEOUT_S: u32 = 10;
/// With pauses of up to 30 s, twenty attempts last some ten minutes.
pub const HOOK_TRIES: RangeInclusive<u32> = 1..=20;
/// Of a webhook: over in 8 s at most, where answers come at once. A program is run once, because it
/// may have done a part of its work.
pub const DEFAULT_HOOK_TRIES: u32 = 5;
/// Servers take a hundred or so.
pub const MAX_HOOK_HEADERS: usize = 32;
/// Each is a connection, and a mount of a server.
pub const MAX_PUSHES: usize = 16;
/// What a server is told of a programme, in a head that it reads as a whole.
pub const MAX_PUSH_TEXT: usize = 256;
/// How long a password is, is the other server's affair.
pub const MIN_PUSH_PASSWORD: usize = 1;
/// How long a token is, is the other server's affair.
pub const MIN_HOOK_TOKEN: usize = 1;
/// Relays of one server; one of them may have thousands of streams.
pub const MAX_RELAYS: usize = 256;
/// Ports of one relay, each with a socket.
pub const MAX_RELAY_PORTS: usize = 16_384;
/// How long a relay waits for what is late.
pub const RELAY_HOLD_MS: RangeInclusive<u32> = 0..=1_000;
/// After how much silence a relayed stream has ended.
pub const RELAY_IDLE_S: RangeInclusive<u32> = 1..=3_600;
/// After how much silence a relayed stream may be taken over.
pub const RELAY_TAKEOVER_MS: RangeInclusive<u32> = 0..=60_000;
/// Payload types that SDP gives a meaning.
pub const RED_TYPES: RangeInclusive<u32> = 96..=127;
/// Packets that RED repeats in each.
pub const RED_DISTANCE: RangeInclusive<u32> = 1..=4;
/// Streams that come to a single port.
pub const RELAY_STREAMS: RangeInclusive<u32> = 1..=100_000;
/// What Opus can be told.
pub const OPUS_BITRATE: RangeInclusive<u32> = 6_000..=510_000;
/// What Opus can be told.
pub const OPUS_COMPLEXITY: RangeInclusive<u32> = 0..=10;
/// Each is one more encoder, and one more copy of all that is heard.
pub const MAX_RECORDERS: usize = 8;
/// What a person types, or copies from a web page; how long it is, is the other server's affair.
pub const MIN_UPLOAD_KEY: usize = 1;
/// Amazon's have 20 letters; others have been seen with 128.
pub const MAX_UPLOAD_KEY: usize = 256;
/// An object's name has 1,024 bytes (S3, "Naming Amazon S3 objects"), and a file's name up to 255.
pub const MAX_UPLOAD_PREFIX: usize = 512;
/// Files at once; each takes the memory of one part.
pub const UPLOAD_CONCURRENCY: RangeInclusive<u32> = 1..=16;
/// One waits for an answer while the other is sent.
pub const DEFAULT_UPLOAD_CONCURRENCY: u32 = 2;
/// Below 5 MiB S3 refuses every part but the last; above, memory is held for nothing.
pub const UPLOAD_PART_MIB: RangeInclusive<u32> = 5..=512;
/// 78 GiB in 10,000 parts, which is as many as S3 takes.
pub const DEFAULT_UPLOAD_PART_MIB: u32 = 8;
/// Places that one station goes to over RTP, each with an encoding and a socket of its own.
pub const MAX_RTP_OUTPUTS: usize = 16;
/// What a packet has room for in a network of 1,500 bytes (AES67).
pub const MAX_RTP_PAYLOAD: usize = 1_440;
/// Below a millisecond nothing is paced here; above, telephony ends at 60.
pub const RTP_PTIME_MS: RangeInclusive<f64> = 1.0..=60.0;
/// Payload types have seven bits.
pub const RTP_TYPE: RangeInclusive<u32> = 0..=127;
/// The field has eight bits; with 0 nothing would leave this machine.
pub const RTP_HOPS: RangeInclusive<u32> = 1..=255;
/// The mark has six bits.
pub const RTP_DSCP: RangeInclusive<u32> = 0..=63;
