//! Playlists of servers, and those that lie.

use aulos_core::Span;
use proptest::prelude::*;

use super::*;

fn media(text: &str) -> Result<MediaPlaylist, M3u8Error> {
    match Playlist::parse(text.as_bytes())? {
        Playlist::Media(playlist) => Ok(playlist),
        Playlist::Multivariant(_) => panic!("a multivariant playlist"),
    }
}

#[test]
fn a_live_playlist_gives_its_segments_with_all_that_concerns_them() {
    let playlist = media(
        "\u{feff}#EXTM3U\r\n#EXT-X-VERSION:7\r\n#EXT-X-TARGETDURATION:6\r\n\
         #EXT-X-MEDIA-SEQUENCE:1234567890123\r\n#EXT-X-MAP:URI=\"init.mp4\",BYTERANGE=\"700@0\"\r\n\
         #EXT-X-KEY:METHOD=AES-128,URI=\"key?a=1,2\",IV=0x0102\r\n#EXTINF:5.76,\r\n\
         #EXT-X-BYTERANGE:1000@700\r\na.m4s\r\n#EXT-X-BYTERANGE:500\r\n#EXTINF:5.76,no title\r\n\
         a.m4s\r\n#EXT-X-DISCONTINUITY\r\n#EXT-X-KEY:METHOD=NONE\r\n#EXT-X-GAP\r\n\
         #EXTINF:5,title=\"A, B\",artist=\"C\"\r\nb.m4s\r\n",
    )
    .unwrap();
    assert_eq!(playlist.target, Span::from_secs(6));
    assert_eq!((playlist.sequence, playlist.is_ended), (1_234_567_890_123, false));
    let [first, second, third] = &playlist.segments[..] else { panic!("{playlist:?}") };
    assert_eq!(first.duration, Span::from_millis(5_760));
    assert_eq!(first.range, Some(ByteRange { offset: 700, length: 1_000 }));
    assert_eq!(second.range, Some(ByteRange { offset: 1_700, length: 500 }));
    let key = first.key.as_deref().unwrap();
    assert_eq!((key.method, &key.uri[..]), (Encryption::Aes128, "key?a=1,2"));
    assert_eq!(key.iv.map(u128::from_be_bytes), Some(0x102));
    assert_eq!(first.map.as_deref().unwrap().range, Some(ByteRange { offset: 0, length: 700 }));
    assert_eq!(
        (second.title.as_ref(), second.is_gap, second.is_discontinuous),
        (None, false, false)
    );
    assert!(third.is_gap && third.is_discontinuous && third.key.is_none());
    let title = third.title.as_ref().unwrap();
    assert_eq!((title.title.as_deref(), title.artist.as_deref()), (Some("A, B"), Some("C")));
}

#[test]
fn variants_have_their_sound_where_it_is_beside_the_picture() {
    let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"de.m3u8\"\n\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",DEFAULT=YES,URI=\"en.m3u8\"\n\
         #EXT-X-STREAM-INF:BANDWIDTH=2000000,CODECS=\"avc1.4d401f,mp4a.40.2\",AUDIO=\"a\"\nv.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS=\"mp4a.40.5\"\nlow.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=400000,CODECS=\"ec-3\"\nsurround.m3u8\n";
    let Ok(Playlist::Multivariant(playlist)) = Playlist::parse(text.as_bytes()) else { panic!() };
    let found: Vec<_> = playlist
        .variants
        .iter()
        .map(|it| (&it.uri[..], it.bandwidth, it.has_known_sound(), it.is_audio_only()))
        .collect();
    let expected = [
        ("en.m3u8", 2_000_000, true, false),
        ("low.m3u8", 64_000, true, true),
        ("surround.m3u8", 400_000, false, true),
    ];
    assert_eq!(found, expected);
}

#[test]
fn playlists_that_lie_give_a_reason() {
    let head = "#EXTM3U\n#EXT-X-TARGETDURATION:6\n";
    let error = |rest: &str| media(&format!("{head}{rest}")).unwrap_err();
    assert_eq!(media("<html>").unwrap_err(), M3u8Error::NotPlaylist);
    assert_eq!(error(""), M3u8Error::Empty);
    assert_eq!(media("#EXTM3U\n#EXTINF:6,\na\n").unwrap_err(), M3u8Error::NoTargetDuration);
    for target in ["0", "-1", "NaN", "six"] {
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:{target}\n#EXTINF:6,\na\n");
        assert_eq!(media(&text).unwrap_err(), M3u8Error::NoTargetDuration, "{target}");
    }
    assert_eq!(error("a\n"), M3u8Error::InvalidTag("EXTINF"));
    assert_eq!(error("#EXTINF:-6,\na\n"), M3u8Error::InvalidTag("EXTINF"));
    let range = "#EXTINF:6,\n#EXT-X-BYTERANGE:18446744073709551615@1\na\n";
    assert_eq!(error(range), M3u8Error::InvalidTag("EXT-X-BYTERANGE"));
    let number = "#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n#EXTINF:6,\na\n";
    assert_eq!(error(number), M3u8Error::InvalidTag("EXT-X-MEDIA-SEQUENCE"));
    assert_eq!(error("#EXT-X-KEY:METHOD=AES-128\n"), M3u8Error::InvalidTag("EXT-X-KEY"));
    assert_eq!(error("#EXTINF:6,\n{$base}/a\n"), M3u8Error::Variables);
    assert_eq!(error(&"#EXTINF:6,\na\n".repeat(MAX_SEGMENTS + 1)), M3u8Error::TooLarge);
    // A part without bytes is a gap.
    let empty = media(&format!("{head}#EXTINF:6,\n#EXT-X-BYTERANGE:0@9\na\n")).unwrap();
    assert!(empty.segments[0].is_gap && empty.segments[0].range.is_none());
    // A segment of a year is one of two minutes.
    let long = media(&format!("{head}#EXTINF:31536000,\na\n")).unwrap();
    assert_eq!(long.segments[0].duration, media::MAX_DURATION);
}

proptest! {
    #[test]
    fn any_lines_give_an_answer(
        lines in prop::collection::vec(
            prop_oneof![
                Just("#EXTM3U".to_owned()),
                "#EXT-X-(KEY|MAP|BYTERANGE|MEDIA-SEQUENCE|TARGETDURATION|STREAM-INF):[A-Z0-9=\",@.]{0,20}",
                "#EXTINF:[0-9.e+-]{0,5},?",
                "[a-z]{1,3}",
            ],
            0..12,
        ),
    ) {
        let _answer = Playlist::parse(format!("#EXTM3U\n{}", lines.join("\n")).as_bytes());
    }
}
