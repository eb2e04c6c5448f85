//! Clients against servers that are late, lie and start anew, in virtual time.

use std::collections::BTreeMap;

use aulos_core::{Instant, Span};
use aulos_proto::http::HttpUrl;
use aulos_proto::m3u8::{MAX_SEGMENTS, Playlist};

use super::media_state::MediaState;
use super::*;
use crate::radio::RadioError;

/// A server of resources, and a client that fetches from it.
struct World {
    client: HlsClient,
    now: Instant,
    /// Answers by target; those that are missing are 404.
    files: BTreeMap<String, Vec<u8>>,
    fetched: Vec<String>,
    segments: Vec<HlsSegment>,
    over: Option<Result<(), RadioError>>,
}

impl World {
    fn new(target: &str, files: &[(&str, &[u8])]) -> Self {
        Self::with_choice(target, files, VariantChoice::Best)
    }

    fn with_choice(target: &str, files: &[(&str, &[u8])], choice: VariantChoice) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let url = format!("http://radio.example{target}").parse().unwrap();
        let address = HlsAddress { url, is_public: false };
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()));
        Self {
            client: HlsClient::new(address, choice, now),
            now,
            files: files.collect(),
            fetched: Vec::new(),
            segments: Vec::new(),
            over: None,
        }
    }

    fn put(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), bytes.into());
    }

    /// Answers requests until none is left.
    fn settle(&mut self) -> &mut Self {
        while let Some(output) = self.client.poll_output() {
            match output {
                HlsOutput::Fetch(request) => self.answer(&request),
                HlsOutput::Segment(segment) => self.segments.push(segment),
                HlsOutput::Title(_) => {}
                HlsOutput::Ended => self.over = Some(Ok(())),
                HlsOutput::Failed(error) => self.over = Some(Err(error)),
            }
        }
        self
    }

    fn answer(&mut self, request: &HlsRequest) {
        let HttpUrl { target, .. } = &request.url;
        self.fetched.push(target.clone());
        let input = match self.files.get(target) {
            Some(bytes) => HlsInput::Fetched {
                url: request.url.clone(),
                is_public: false,
                is_partial: false,
                bytes: bytes.clone(),
            },
            None => HlsInput::Failed(RadioError::Status(404)),
        };
        self.client.handle_input(self.now, input);
    }

    /// Lets time pass up to the next timer; returns how much.
    fn expire(&mut self) -> Span {
        let begun = self.now;
        self.now = self.client.poll_timeout().unwrap().max(self.now);
        self.client.handle_timeout(self.now);
        // What was given out is played.
        self.client.handle_input(self.now, HlsInput::Held(HeldMedia::default()));
        self.settle();
        self.now - begun
    }

    fn heard(&self) -> String {
        let texts = self.segments.iter().map(|it| String::from_utf8_lossy(&it.bytes));
        texts.collect::<Vec<_>>().join(" ")
    }
}

/// A playlist of segments of six seconds with the numbers `from..to`, which are their names too.
fn live(from: u64, to: u64) -> String {
    let head = format!("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXT-X-MEDIA-SEQUENCE:{from}\n");
    (from..to).fold(head, |text, number| text + &format!("#EXTINF:6,\n{number}\n"))
}

fn stream(world: &mut World, from: u64, to: u64) {
    world.put("/l.m3u8", live(from, to));
    for number in from..to {
        world.put(&format!("/{number}"), format!("s{number}"));
    }
}

#[test]
fn playback_begins_three_targets_before_the_end_and_reloads_by_the_rules() {
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, 10, 20);
    world.settle();
    assert_eq!(world.heard(), "s17 s18 s19");
    assert!(world.segments[0].begins && !world.segments[1].begins);
    // One target duration after a change, half of one without.
    assert_eq!(world.expire(), Span::from_secs(6));
    assert_eq!(world.expire(), Span::from_secs(3));
    stream(&mut world, 12, 22);
    assert_eq!(world.expire(), Span::from_secs(3));
    assert_eq!(world.heard(), "s17 s18 s19 s20 s21");
    assert_eq!(world.client.status().segments, 5);
}

#[test]
fn the_best_variant_that_can_be_decoded_is_played_or_what_was_asked_for() {
    let all = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900000,CODECS=\"ec-3\"\n/dolby\n\
        #EXT-X-STREAM-INF:BANDWIDTH=128000,CODECS=\"mp4a.40.2\"\n/mid\n\
        #EXT-X-STREAM-INF:BANDWIDTH=48000,CODECS=\"mp4a.40.5\"\n/low\n\
        #EXT-X-STREAM-INF:BANDWIDTH=320000,CODECS=\"mp4a.40.2\"\n/high\n";
    let mut played = Vec::new();
    for choice in ["best", "lowest", "200k", "10k"] {
        let choice = choice.parse().unwrap();
        let mut world = World::with_choice("/all", &[("/all", all.as_bytes())], choice);
        played.push(world.settle().fetched[1].clone());
    }
    assert_eq!(played, ["/high", "/low", "/mid", "/low"]);
    let mut nested = World::new("/all", &[("/all", all.as_bytes()), ("/high", all.as_bytes())]);
    assert_eq!(nested.settle().over, Some(Err(HlsError::Nested.into())));
    assert!("0k".parse::<VariantChoice>().is_err());
}

#[test]
fn what_is_lost_is_a_hole_of_known_length_and_a_long_hole_is_a_new_beginning() {
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, 10, 13);
    world.files.remove("/11");
    world.settle();
    assert_eq!(world.heard(), "s10 s12");
    assert_eq!(world.segments[1].missing, Span::from_secs(6));
    // Two segments fall out of the playlist.
    stream(&mut world, 15, 18);
    world.expire();
    let fallen = &world.segments[2];
    assert_eq!((fallen.missing, fallen.begins), (Span::from_secs(12), false));
    // A hundred do.
    stream(&mut world, 118, 121);
    world.expire();
    assert_eq!((world.segments[5].missing, world.segments[5].begins), (Span::ZERO, true));
    assert_eq!(world.client.status().lost, 103);
}

#[test]
fn a_server_that_starts_anew_is_followed_and_one_that_lags_is_not_taken_for_it() {
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, 100, 103);
    world.settle();
    // Another server of the same stream is two segments behind.
    stream(&mut world, 98, 101);
    world.expire();
    assert_eq!(world.segments.len(), 3);
    stream(&mut world, 0, 3);
    world.expire();
    assert_eq!(world.heard(), "s100 s101 s102 s0 s1 s2");
    assert!(world.segments[3].begins);
    assert_eq!(world.client.status().discontinuities, 1);
}

#[test]
fn a_playlist_that_does_not_change_is_dead_after_three_targets() {
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, 0, 3);
    world.settle();
    let begun = world.now;
    while world.over.is_none() {
        world.expire();
    }
    assert_eq!(world.now - begun, Span::from_secs(18));
    assert!(matches!(world.over, Some(Err(RadioError::Hls(HlsError::Stale(_))))));
}

#[test]
fn segments_are_decrypted_with_the_number_as_vector_and_wrong_keys_are_found() {
    // AES-128-CBC of "segment 7" with the key 00 01 .. 0f and the vector 7, by openssl.
    let encrypted = [
        0x09, 0xbd, 0x99, 0x8c, 0xd6, 0xc9, 0xbc, 0x3e, 0xdb, 0x9b, 0x97, 0x52, 0x2b, 0xe5, 0x9e,
        0xa4,
    ];
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXT-X-MEDIA-SEQUENCE:7\n\
        #EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:6,\n7\n#EXT-X-ENDLIST\n";
    let key: Vec<u8> = (0..16).collect();
    let files = [("/l.m3u8", list.as_bytes()), ("/k", &key), ("/7", &encrypted[..])];
    let mut world = World::new("/l.m3u8", &files);
    assert_eq!(world.settle().heard(), "segment 7");
    assert_eq!(world.over, Some(Ok(())));
    for wrong in [&[7; 16][..], &[0; 15]] {
        let mut world = World::new("/l.m3u8", &files);
        world.put("/k", wrong);
        world.settle();
        assert_eq!((world.segments.len(), world.client.status().lost), (0, 1));
    }
    let drm = list.replace("AES-128", "SAMPLE-AES");
    let mut world = World::new("/l.m3u8", &[("/l.m3u8", drm.as_bytes())]);
    assert_eq!(world.settle().over, Some(Err(HlsError::Encrypted.into())));
}

#[test]
fn ranges_and_maps_are_cut_from_answers_that_ignore_the_range() {
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXT-X-MAP:URI=\"f\",BYTERANGE=\"2@0\"\n\
        #EXTINF:6,\n#EXT-X-BYTERANGE:3@2\nf\n#EXTINF:6,\n#EXT-X-BYTERANGE:3\nf\n\
        #EXTINF:6,\n#EXT-X-BYTERANGE:9\nf\n#EXT-X-ENDLIST\n";
    let mut world = World::new("/l.m3u8", &[("/l.m3u8", list.as_bytes()), ("/f", b"IIabcdef")]);
    world.settle();
    // The last range is beyond the end of the file.
    assert_eq!((world.heard().as_str(), world.client.status().lost), ("IIabc def", 1));
}

#[test]
fn web_pages_and_failures_in_a_row_end_the_stream_with_a_reason() {
    let mut world = World::new("/l.m3u8", &[]);
    let list = live(0, 12) + "#EXT-X-ENDLIST\n";
    world.put("/l.m3u8", list);
    for number in 0..12 {
        world.put(&format!("/{number}"), " <!DOCTYPE html>");
    }
    assert_eq!(world.settle().over, Some(Err(HlsError::Segments.into())));
    assert_eq!(world.fetched.len(), 7);
    // A server that is busy is asked again, with pauses.
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, 0, 3);
    drop(world.client.poll_output());
    let bytes = live(0, 3).into_bytes();
    let url = "http://radio.example/l.m3u8".parse().unwrap();
    let input = HlsInput::Fetched { url, is_public: false, is_partial: false, bytes };
    world.client.handle_input(world.now, input);
    drop(world.client.poll_output());
    world.client.handle_input(world.now, HlsInput::Failed(RadioError::Status(503)));
    assert!(world.client.poll_output().is_none());
    world.expire();
    assert_eq!(world.heard(), "s0 s1 s2");
}

#[test]
fn after_a_public_server_only_public_ones_are_asked() {
    let mut world = World::new("/l.m3u8", &[]);
    let Some(HlsOutput::Fetch(first)) = world.client.poll_output() else { panic!() };
    assert!(!first.is_public);
    let bytes = live(0, 3).replace("\n0\n", "\nhttp://10.0.0.1/0\n").into_bytes();
    let input = HlsInput::Fetched { url: first.url, is_public: true, is_partial: false, bytes };
    world.client.handle_input(world.now, input);
    let Some(HlsOutput::Fetch(second)) = world.client.poll_output() else { panic!() };
    assert_eq!((second.url.host.as_str(), second.is_public), ("10.0.0.1", true));
}

/// A hundred hours of a sender whose clock is off by so many ppm, and whose segments show up to
/// three seconds late: how often nothing was left, and the least and the greatest reserve.
fn reserves(ppm: f64) -> (u64, Span, Span) {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut pacer = SegmentPacer::new(Span::from_secs(6), now);
    let (mut released, mut made, mut is_late) = (Span::ZERO, 18.0_f64, false);
    let mut available = Span::from_secs(18);
    let (mut least, mut most) = (Span::MAX, Span::ZERO);
    let mut rng = aulos_core::Rng::new(3);
    for tick in 0..100 * 7_200 {
        now += Span::from_millis(500);
        made += 0.5 * (1.0 + ppm * 1e-6);
        // Whole segments, at a reload.
        if tick % 6 == 0 {
            is_late = !is_late && rng.below(3) == 0;
        }
        if tick % 6 == 0 && !is_late {
            #[expect(clippy::cast_possible_truncation, reason = "some days")]
            let segments = (made / 6.0) as i64;
            available = Span::from_secs(segments * 6);
        }
        let due = pacer.due(now, released, available - released, false);
        released = due.clamp(released, available);
        // The first hour shows what is usual.
        if tick > 7_200 {
            let reserve = available - released;
            (least, most) = (least.min(reserve), most.max(reserve));
        }
    }
    (pacer.dry_runs(), least, most)
}

#[test]
fn the_reserve_lasts_for_days_whatever_the_clock_of_the_sender() {
    // Without following, 36 s would be missing, or held more.
    for ppm in [-100.0, 0.0, 100.0] {
        let (dry_runs, least, most) = reserves(ppm);
        assert_eq!(dry_runs, 0, "{ppm}");
        assert!(least > Span::from_millis(500) && most < Span::from_secs(30), "{ppm}: {most}");
    }
}

#[test]
fn what_follows_a_lost_beginning_begins() {
    let mut world = World::new("/l.m3u8", &[]);
    world.put("/l.m3u8", live(10, 11));
    world.settle();
    assert_eq!(world.client.status().lost, 1, "the only segment is missing");
    stream(&mut world, 10, 12);
    while world.segments.is_empty() {
        world.expire();
    }
    assert_eq!(world.heard(), "s11");
    assert!(world.segments[0].begins);
}

#[test]
fn an_ended_playlist_without_a_segment_that_can_be_fetched_fails() {
    let mut world = World::new("/l.m3u8", &[]);
    world.put("/l.m3u8", live(0, 2) + "#EXT-X-ENDLIST\n");
    world.settle();
    assert!(matches!(world.over, Some(Err(_))), "{:?}", world.over);
}

#[test]
fn numbers_and_durations_without_sense_are_bounded() {
    let mut world = World::new("/l.m3u8", &[]);
    stream(&mut world, u64::MAX - 6, u64::MAX - 1);
    world.settle();
    let heard = world.segments.len();
    assert!(heard > 0);
    world.expire();
    assert_eq!(world.segments.len(), heard, "the same playlist again has nothing new");
    // Segments without a duration are no reason to keep them all.
    let mut media = MediaState::new("http://radio.example/l.m3u8".parse().unwrap(), world.now);
    for from in [1, 15_001, 30_001] {
        let text = live(from, from + 15_000).replace("#EXTINF:6,", "#EXTINF:0,");
        let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes()) else { panic!() };
        media.update(world.now, playlist);
        assert!(media.queue.len() <= MAX_SEGMENTS, "{}", media.queue.len());
    }
}
