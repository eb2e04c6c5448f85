//! Inputs written by hand from the descriptions of the formats, not recorded from a device.

use proptest::prelude::*;

use super::*;

const LOG: &str = "\
[2021-06-04T07:20:40Z INFO  librespot] librespot 0.4.2 (Built on 2022-07-30)\n\
[2021-06-04T07:20:47Z INFO  librespot_playback::player] Loading <One <Two>> with Spotify URI <spotify:track:7zJnmSjZKjntHmOvEokGb3>\n\
[2021-06-04T07:20:47Z INFO  librespot_playback::player] <One <Two>> (310573 ms) loaded\n\
[2021-06-04T07:25:57Z WARN  librespot_core::session] <nothing> (x ms) loaded\n\
[2021-06-04T07:25:58Z INFO  librespot_playback::player] <T\u{fc}r> (1500 ms) loaded\r\n\
[2021-06-04T07:26:00Z INFO  librespot_playback::player] <no end";

fn titles(news: &[PlaybackEvent]) -> Vec<&TrackMetadata> {
    let mut titles = Vec::new();
    for told in news {
        if let PlaybackEvent::Title(title) = told {
            titles.push(title);
        }
    }
    titles
}

fn read_log(bytes: &[u8], grain: usize) -> Vec<PlaybackEvent> {
    let (mut log, mut news) = (LibrespotLogParser::default(), Vec::new());
    bytes.chunks(grain).for_each(|piece| log.push(piece, |told| news.push(told)));
    news
}

#[test]
fn titles_are_read_from_the_log_of_librespot() {
    for grain in [1, 7, 1_000] {
        let news = read_log(LOG.as_bytes(), grain);
        let [first, second] = titles(&news)[..] else { panic!("{news:?}") };
        assert_eq!(first.title.as_deref(), Some("One <Two>"));
        assert_eq!(first.duration, Some(Span::from_millis(310_573)));
        assert_eq!(first.url.as_deref(), Some("spotify:track:7zJnmSjZKjntHmOvEokGb3"));
        assert_eq!((second.title.as_deref(), &second.url), (Some("T\u{fc}r"), &None));
        assert_eq!(news[1], PlaybackEvent::Playing);
    }
}

#[test]
fn a_line_without_end_is_passed_over() {
    let mut log = vec![b'x'; 1_000_000];
    log.extend_from_slice(b"> (7 ms) loaded\n<after> (7 ms) loaded\n");
    let news = read_log(&log, 4_096);
    assert_eq!(titles(&news).len(), 1);
    assert_eq!(titles(&news)[0].title.as_deref(), Some("after"));
}

/// Formats an item as shairport-sync writes it.
fn item(kind: [u8; 4], code: [u8; 4], data: &[u8]) -> String {
    use base64::Engine;
    let hex = |letters: [u8; 4]| format!("{:08x}", u32::from_be_bytes(letters));
    let head = format!(
        "<item><type>{}</type><code>{}</code><length>{}</length>\n",
        hex(kind),
        hex(code),
        data.len()
    );
    if data.is_empty() {
        return head + "</item>\n";
    }
    let data = base64::engine::general_purpose::STANDARD.encode(data);
    head + "<data encoding=\"base64\">\n" + &data + "</data></item>\n"
}

fn pipe() -> String {
    [
        item(*b"ssnc", *b"pbeg", b""),
        item(*b"ssnc", *b"mdst", b"2373925818"),
        item(*b"core", *b"asal", "Ode an die Freude".as_bytes()),
        item(*b"core", *b"asar", "Andreas Scholl".as_bytes()),
        item(*b"core", *b"asgn", b"Classical"),
        item(*b"core", *b"ascp", b"Pergolesi"),
        item(*b"core", *b"minm", "I. Grave\u{7}\n".as_bytes()),
        item(*b"core", *b"astm", &252_960_u32.to_be_bytes()),
        item(*b"core", *b"xxxx", b"?"),
        item(*b"ssnc", *b"mden", b"2373925818"),
        "log lines may stand between them <item>".to_owned(),
        item(*b"ssnc", *b"PICT", b"\x89PNG"),
        item(*b"ssnc", *b"prgr", b"4294967000/43804/441000"),
        item(*b"ssnc", *b"pfls", b""),
        item(*b"ssnc", *b"prsm", b""),
        item(*b"ssnc", *b"mdst", b"1"),
        item(*b"core", *b"minm", b"II."),
        item(*b"ssnc", *b"mden", b"1"),
        item(*b"ssnc", *b"PICT", b""),
        item(*b"ssnc", *b"pend", b""),
    ]
    .concat()
}

fn read_pipe(bytes: &[u8], grain: usize) -> Vec<PlaybackEvent> {
    let (mut pipe, mut news) = (AirplayMetadataParser::default(), Vec::new());
    bytes.chunks(grain).for_each(|piece| pipe.push(piece, |told| news.push(told)));
    news
}

#[test]
fn titles_are_read_from_the_pipe_of_shairport_sync() {
    let own = |text: &str| Some(text.to_owned());
    let first = TrackMetadata {
        title: own("I. Grave"),
        artist: own("Andreas Scholl"),
        album: own("Ode an die Freude"),
        genre: own("Classical"),
        composer: own("Pergolesi"),
        duration: Some(Span::from_millis(252_960)),
        url: None,
        art_url: None,
        ..TrackMetadata::default()
    };
    let second = TrackMetadata { title: own("II."), ..TrackMetadata::default() };
    let expected = [
        PlaybackEvent::Playing,
        PlaybackEvent::Title(first),
        PlaybackEvent::Picture(b"\x89PNG".to_vec()),
        PlaybackEvent::Position(Span::from_millis(1_000), Span::from_millis(10_006)),
        PlaybackEvent::Paused,
        PlaybackEvent::Playing,
        PlaybackEvent::Title(second),
        PlaybackEvent::Picture(Vec::new()),
        PlaybackEvent::Stopped,
    ];
    for grain in [1, 7, 100_000] {
        assert_eq!(read_pipe(pipe().as_bytes(), grain), expected);
    }
}

#[test]
fn an_oversized_picture_is_dropped_and_the_next_title_is_read() {
    let large = item(*b"ssnc", *b"PICT", &vec![7; 8 << 20]);
    let news = read_pipe((large + &pipe()).as_bytes(), 65_536);
    assert_eq!(titles(&news).len(), 2);
    let pictures = news.iter().filter(|told| matches!(told, PlaybackEvent::Picture(_)));
    assert_eq!(pictures.count(), 2, "only those of the rest");
}

proptest! {
    #[test]
    fn any_input_is_accepted_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..900) {
        let pipe = pipe();
        let mut torn = pipe.as_bytes()[..cut.min(pipe.len())].to_vec();
        torn.extend_from_slice(&bytes);
        torn.extend_from_slice(pipe.as_bytes());
        let _news = read_log(&torn, 33);
        let news = read_pipe(&torn, 33);
        prop_assert!(titles(&news).len() >= 2, "what comes whole behind it is heard");
    }
}

#[test]
fn a_text_file_has_the_title_in_its_first_line_in_several_charsets() {
    let parse = |bytes: &[u8]| {
        let title = TrackMetadata::from_text_file(bytes, TitleCharset::default());
        (title.artist.unwrap_or_default(), title.title.unwrap_or_default())
    };
    let expected = ("Björk".to_owned(), "Jóga".to_owned());
    assert_eq!(parse("\n  Björk - Jóga \r\nsecond".as_bytes()), expected);
    assert_eq!(parse("\u{FEFF}Björk - Jóga".as_bytes()), expected);
    assert_eq!(parse(b"Bj\xF6rk - J\xF3ga\n"), expected);
    let wide: Vec<u8> = "\u{FEFF}Björk - Jóga".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(parse(&wide), expected);
    assert_eq!(parse(b""), Default::default());
    let cyrillic = TitleCharset::of_label("windows-1251").unwrap();
    let title = TrackMetadata::from_text_file(b"\xCC\xE8\xF0", cyrillic);
    assert_eq!(title.title.as_deref(), Some("Мир"));
}
