//! Fuzz targets: each accepts arbitrary bytes and checks a property of the parsers.
//!
//! They are plain functions, so that `cargo test` runs them on the corpus and on seeded mutations
//! with a stable compiler, and cargo-fuzz (`fuzz/`) runs the same functions for hours.

#![allow(clippy::missing_panics_doc, clippy::panic, reason = "to panic is how a target says no")]

mod rtp;
mod segments;
mod sendspin;
mod srt;

use core::hint::black_box;
use std::sync::Arc;

use aulos_core::{Instant, Span};

use aulos_proto::http::{self, BodyDecoder, HttpUrl, head_length};
use aulos_proto::icecast::shoutcast::{FirstLine, complete_head};
use aulos_proto::icecast::{
    IcecastRequest, IcecastUrl as PushTarget, RequestKind, SourceMethod, SourceResponse,
    StreamMetadata,
};
use aulos_proto::nats::{
    ChunkMessage, ClockReply, ClockRequest, LeaseRecord, NodeStatus, NodeStatusRequest,
    SettingsRecord, StreamRecord,
};
use aulos_proto::packets::{
    FormatHint, MAX_PACKET, PacketFormat, PacketSplitter, SplitterEvent, StreamFormatError,
};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, InsertOutcome, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
    MAX_DELAY,
};
use aulos_proto::snap::wire::{
    ClientMessage, Hello, MAX_MESSAGE, ParsedMessage, ServerMessage, ServerSettings, Transport,
    parse_framed, parse_message,
};
use aulos_proto::snap::{Session, SnapcastClient, client, control, session, sync};
use aulos_proto::titles::{
    AirplayMetadataParser, LibrespotLogParser, MAX_TEXT, PlaybackEvent, TitleCharset, TrackMetadata,
};
use aulos_proto::uri::Uri;
use aulos_proto::{flac as flac_file, mdns as mdns_search, mp3, ogg, wav, ws};

pub use rtp::{red, rtcp, rtp, sap, sdp};
pub use segments::{m3u8, mpegts};
pub use sendspin::sendspin;
pub use srt::srt;

/// All targets by name, which is also the name of the corpus.
pub const TARGETS: [(&str, FuzzTarget); 27] = [
    ("snap_wire", snap_wire),
    ("snap_session", snap_session),
    ("snap_client", snap_client),
    ("snap_control", snap_control),
    ("uri", uri),
    ("wav", wav),
    ("ogg", ogg),
    ("mpegts", mpegts),
    ("m3u8", m3u8),
    ("flac", flac),
    ("left_behind", left_behind),
    ("ws", ws),
    ("ws_client", ws_client),
    ("mdns", mdns),
    ("nats", nats),
    ("titles", titles),
    ("packets", packets),
    ("http", http),
    ("icecast", icecast),
    ("rtp", rtp),
    ("rtcp", rtcp),
    ("red", red),
    ("sdp", sdp),
    ("sap", sap),
    ("jitter", jitter),
    ("srt", srt),
    ("sendspin", sendspin),
];

/// Accepts any bytes, and panics when a property is violated.
pub type FuzzTarget = fn(&[u8]);

/// Every message that can be parsed can be encoded and parsed again.
pub fn snap_wire(data: &[u8]) {
    let framed = parse_framed(data).ok();
    let streamed = match parse_message(data, MAX_MESSAGE) {
        Ok(ParsedMessage::Message(frame)) => Some(frame),
        _ => None,
    };
    for (frame, framing) in [(streamed, Transport::Stream), (framed, Transport::WebSocket)]
        .into_iter()
        .filter_map(|(frame, framing)| frame.map(|frame| (frame, framing)))
    {
        if let Ok(message) = ClientMessage::parse(&frame, framing) {
            let mut bytes = Vec::new();
            message.write(frame.header.stamp, &mut bytes);
            let Ok(ParsedMessage::Message(again)) = parse_message(&bytes, MAX_MESSAGE) else {
                unreachable!("what we write is whole")
            };
            assert_eq!(ClientMessage::parse(&again, Transport::Stream), Ok(message));
        }
        if let Ok(message) = ServerMessage::parse(&frame) {
            let mut bytes = Vec::new();
            message.write(frame.header.stamp, &mut bytes);
            assert!(matches!(parse_message(&bytes, MAX_MESSAGE), Ok(ParsedMessage::Message(_))));
        }
    }
}

/// A session has few outputs, none after its end, and the same ones however the bytes are split.
/// The first byte is the size of the pieces; 0 means all at once, 255 a WebSocket.
pub fn snap_session(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    if *cut == 255 {
        run_session(core::iter::once(session::SessionInput::Framed(data)));
        return;
    }
    let pieces =
        |size: usize| run_session(data.chunks(size.max(1)).map(session::SessionInput::Received));
    let whole = pieces(data.len());
    assert_eq!(pieces(usize::from(*cut)), whole);
}

/// The same messages result however the bytes are split, none above the limit. The first byte is
/// the size of the pieces.
pub fn ws(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let read = |size: usize| {
        let (mut reader, mut found) = (ws::WsReader::default(), Vec::new());
        for mut piece in data.chunks(size.max(1)) {
            loop {
                match reader.next(&mut piece) {
                    Ok(Some(message)) => {
                        if let ws::WsMessage::Binary(bytes) = message {
                            assert!(bytes.len() <= ws::MAX_MESSAGE);
                        }
                        found.push(format!("{message:?}"));
                    }
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    };
    assert_eq!(read(data.len()), read(usize::from(*cut)));
}

/// The same events result however the bytes of a server are split. The first byte is the size of
/// the pieces.
pub fn ws_client(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let read = |size: usize| {
        let (mut client, mut found) = (ws::WsClient::new(1), Vec::new());
        for mut piece in data.chunks(size.max(1)) {
            loop {
                match client.next(&mut piece) {
                    Ok(Some(event)) => found.push(format!("{event:?}")),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    };
    assert_eq!(read(data.len()), read(usize::from(*cut)));
}

/// A record of a cluster that can be parsed is the same when it is written and parsed again. Such a
/// record is hard to hit, because of its checksum; what is left of a message without it must be
/// refused.
pub fn nats(data: &[u8]) {
    let mut bytes = Vec::new();
    if let Ok(chunk) = ChunkMessage::parse(data) {
        chunk.write(&mut bytes);
        assert_eq!(ChunkMessage::parse(&bytes), Ok(chunk));
    } else if let Ok(record) = StreamRecord::parse(data) {
        record.write(&mut bytes);
        assert_eq!(StreamRecord::parse(&bytes), Ok(record));
    } else if let Ok(lease) = LeaseRecord::parse(data) {
        lease.write(&mut bytes);
        assert_eq!(LeaseRecord::parse(&bytes), Ok(lease));
    } else if let Ok(settings) = SettingsRecord::parse(data) {
        settings.write(&mut bytes);
        assert_eq!(SettingsRecord::parse(&bytes), Ok(settings));
    } else if let Ok(status) = NodeStatus::parse(data) {
        status.write(&mut bytes);
        assert_eq!(NodeStatus::parse(&bytes), Ok(status));
    } else if let Ok(request) = NodeStatusRequest::parse(data) {
        request.write(&mut bytes);
        assert_eq!(NodeStatusRequest::parse(&bytes), Ok(request));
    } else if let Ok(request) = ClockRequest::parse(data) {
        request.write(&mut bytes);
        assert_eq!(ClockRequest::parse(&bytes), Ok(request));
    } else if let Ok(reply) = ClockReply::parse(data) {
        reply.write(&mut bytes);
        assert_eq!(ClockReply::parse(&bytes), Ok(reply));
    }
}

/// A search accepts any packets, and what it finds is usable. The first byte is the length of the
/// first packet.
pub fn mdns(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let Some(mut search) = mdns_search::MdnsSearch::new("_snapcast._tcp") else { return };
    let (first, second) = data.split_at(data.len().min(usize::from(*cut)));
    for packet in [first, second, data] {
        search.handle_packet(packet);
        assert!(search.query().len() <= mdns_search::MAX_PACKET);
        for found in search.found() {
            assert!(found.port > 0 && !found.addresses.is_empty());
        }
    }
}

/// A client accepts any input from a server. The first byte is the size of the pieces; 0 means all
/// at once.
pub fn snap_client(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let size = if *cut == 0 { data.len().max(1) } else { usize::from(*cut) };
    let config =
        client::ClientConfig { hello: Hello::new("fuzz"), filter: sync::OffsetFilter::default() };
    let mut client = SnapcastClient::new(config, Instant::ZERO);
    let (mut now, mut ended, mut out) = (Instant::ZERO, false, Vec::new());
    for piece in data.chunks(size) {
        now += Span::from_millis(1);
        client.handle_input(now, client::ClientInput::Received(piece));
        client.handle_timeout(now);
        while let Some(output) = client.poll_output() {
            assert!(!ended, "an output after the end");
            match output {
                client::ClientOutput::Send(outgoing) => outgoing.write(now, &mut out),
                client::ClientOutput::Close(_) => ended = true,
                client::ClientOutput::Chunk { payload, .. } => {
                    assert!(payload.len() <= MAX_MESSAGE);
                }
                _ => {}
            }
        }
    }
    black_box(client.playout(now));
}

/// Every line gets a reply, and every reply is JSON on one line.
pub fn snap_control(data: &[u8]) {
    let mut lines = control::LineSplitter::default();
    lines.push(data);
    while let Ok(Some(line)) = lines.next_line() {
        let replies = match control::parse_incoming(line) {
            control::IncomingMessage::Single(call) => vec![call],
            control::IncomingMessage::Batch(calls) => calls,
            control::IncomingMessage::Reply(reply) => vec![Err(reply)],
            other => panic!("a new kind of message: {other:?}"),
        };
        for call in replies {
            let reply = call.map_or_else(Some, |request| request.reply(Ok(true.into())));
            let json = reply.map(|reply| reply.to_json()).unwrap_or_default();
            assert!(!json.contains(['\r', '\n']));
        }
    }
}

/// A URI is rejected or parsed, and its raw text is preserved.
pub fn uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(uri) = text.parse::<Uri>() {
        assert_eq!(uri.raw, text.trim());
        black_box((uri.authority(), uri.get("name")));
    }
}

/// The audio never begins beyond the input, and every request for more bytes makes progress.
pub fn wav(data: &[u8]) {
    match wav::parse(data) {
        Ok(wav::ParseOutcome::Incomplete { needed }) => {
            assert!(needed > data.len() && needed <= wav::MAX_PREAMBLE);
        }
        Ok(wav::ParseOutcome::Complete(wave)) => assert!(wave.data_offset <= data.len()),
        Err(_) => {}
    }
}

/// A page never ends beyond the input, and every written page can be parsed.
pub fn ogg(data: &[u8]) {
    let mut rest = data;
    while let Ok(ogg::ParsedPage::Page(page)) = ogg::parse_page(rest) {
        rest = rest.get(page.total_len()..).unwrap_or_default();
    }
    let mut out = Vec::new();
    ogg::PageWriter::new(1).write_packet(data, 7, ogg::StreamBoundary::Middle, &mut out);
    assert!(matches!(ogg::parse_page(&out), Ok(ogg::ParsedPage::Page(_))));
}

/// Encoding a parsed header reproduces it. The scan result does not depend on how the bytes are
/// split, and is not longer than the input.
pub fn flac(data: &[u8]) {
    let mut numbered = Vec::new();
    flac_file::FrameRenumberer::default().write(data, &mut numbered);
    // The number 0 is the shortest.
    assert!(numbered.len() <= data.len() && numbered.len() + 7 > data.len());
    let head = match flac_file::FlacFileHeader::parse(data) {
        Some(Ok(head)) => head,
        Some(Err(needed)) => return assert!(needed > data.len()),
        None => return,
    };
    assert!(head.stream_info_patch().is_applied_to(data));
    let sound =
        usize::try_from(head.audio_offset).ok().and_then(|at| data.get(at..)).unwrap_or_default();
    let walk = |size: usize| {
        let mut walk = flac_file::FlacScanner::new(head.info.clone());
        sound.chunks(size.max(1)).for_each(|piece| walk.push(piece));
        walk.finish()
    };
    let found = walk(sound.len());
    assert!(found.end <= sound.len() as u64 && found.smallest <= found.largest);
    assert_eq!(found, walk(3));
}

/// The scan of an unfinished file does not depend on how the bytes are split. Its last page is in
/// the file, and marking it as the end is detected; an MP3 file needs one repair.
pub fn left_behind(data: &[u8]) {
    left_behind_mp3(data);
    let walk = |data: &[u8], size: usize| {
        let mut walk = ogg::OggScanner::default();
        data.chunks(size.max(1)).for_each(|piece| walk.push(piece));
        walk.finish()
    };
    let found = walk(data, data.len());
    assert_eq!(found, walk(data, 3));
    let Some(last) = found.last else { return };
    let at = usize::try_from(last.at).unwrap_or(usize::MAX);
    let patch = data.get(at..at + last.length).and_then(|page| ogg::mark_last_page(page, last.at));
    let Some(patch) = patch else { unreachable!("the last page is whole") };
    let mut ended = data.to_vec();
    let place = ended.get_mut(at..at + patch.bytes().len()).unwrap_or_default();
    place.copy_from_slice(patch.bytes());
    assert!(walk(&ended, data.len()).last.is_some_and(|last| last.ends));
}

fn left_behind_mp3(data: &[u8]) {
    let walk = |data: &[u8], size: usize| {
        let mut walk = mp3::Mp3Scanner::default();
        data.chunks(size.max(1)).for_each(|piece| walk.push(piece));
        walk.finish()
    };
    let Ok(found) = walk(data, data.len()) else {
        assert!(walk(data, 3).is_err());
        return;
    };
    let again = walk(data, 3).map(|again| (again.end, again.frames, again.damaged));
    assert_eq!(again, Ok((found.end, found.frames, found.damaged)));
    let end = usize::try_from(found.end).unwrap_or(usize::MAX);
    let mut repaired = data.get(..end).unwrap_or_default().to_vec();
    for patch in found.patches.iter().flatten() {
        let at = usize::try_from(patch.at()).unwrap_or(usize::MAX);
        let place = repaired.get_mut(at..at + patch.bytes().len()).unwrap_or_default();
        place.copy_from_slice(patch.bytes());
    }
    let whole = walk(&repaired, data.len()).map(|it| (it.patches.is_none(), it.frames, it.end));
    assert_eq!(whole, Ok((true, found.frames, found.end)));
}

/// The packets do not depend on how the bytes are split, and none is above the limit. The first
/// byte is the size of the pieces; an odd one is a hint at FLAC.
pub fn packets(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let hint = match cut % 4 {
        1 => FormatHint::Flac,
        3 => FormatHint::Segments,
        _ => FormatHint::None,
    };
    assert_eq!(split(hint, data, data.len()), split(hint, data, usize::from(*cut)));
}

/// A decoded body does not depend on how the bytes are split and is not longer than the input;
/// playlists and URLs stay within their limits. The first byte is the size of the pieces, the
/// second selects the framing.
pub fn http(data: &[u8]) {
    let [cut, how, data @ ..] = data else { return };
    let framing = match how % 3 {
        0 => http::BodyFraming::Chunked,
        1 => http::BodyFraming::UntilClosed,
        _ => http::BodyFraming::Length(u64::from(*how)),
    };
    let read = |size: usize| {
        let mut body = BodyDecoder::new(framing, (how & 8 != 0).then(|| usize::from(*how)));
        let (mut sound, mut titles) = (Vec::new(), Vec::new());
        for piece in data.chunks(size.max(1)) {
            let before = sound.len();
            let pushed = body.push(
                piece,
                |bytes| sound.extend_from_slice(bytes),
                |title| titles.push(title),
            );
            assert!(sound.len() - before <= piece.len());
            if let Err(error) = pushed {
                return (sound, titles, Some(error));
            }
        }
        (sound, titles, None)
    };
    assert_eq!(read(data.len()), read(usize::from(*cut)));
    if let (Ok(entries), Ok(base)) =
        (http::playlist_entries(data), "http://h/a/b?c".parse::<HttpUrl>())
    {
        assert!(!entries.is_empty() && entries.len() <= http::MAX_PLAYLIST_ENTRIES);
        for url in entries.iter().filter_map(|entry| base.join(entry).ok()) {
            let line = format!("{}{}", url.target, url.authority());
            assert!(!line.contains(['\r', '\n', ' ']));
        }
    }
}

/// All events for pieces of `grain`. PCM packets, whose size depends on the pieces, are
/// concatenated.
fn split(
    hint: FormatHint,
    data: &[u8],
    grain: usize,
) -> (Vec<(SplitterEvent, Vec<u8>)>, Option<StreamFormatError>) {
    let (mut splitter, mut found) =
        (PacketSplitter::new(hint), Vec::<(SplitterEvent, Vec<u8>)>::new());
    let (mut plain, mut more) = (false, true);
    let mut pieces = data.chunks(grain.max(1));
    while more {
        match pieces.next() {
            Some(piece) => assert_eq!(splitter.push(piece), piece.len()),
            None => {
                splitter.finish();
                more = false;
            }
        }
        loop {
            let event = match splitter.next() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(why) => return (found, Some(why)),
            };
            let packet = match &event {
                SplitterEvent::Packet(_) => splitter.packet(),
                SplitterEvent::Begin(start) => {
                    plain = matches!(start.format, PacketFormat::Pcm { .. });
                    &[]
                }
                _ => &[],
            };
            assert!(packet.len() <= MAX_PACKET);
            match found.last_mut() {
                Some((SplitterEvent::Packet(_), sound)) if plain && !packet.is_empty() => {
                    sound.extend_from_slice(packet);
                }
                _ => found.push((event, packet.to_vec())),
            }
        }
    }
    (found, None)
}

/// The events do not depend on how the bytes are split, and no text exceeds the limit.
pub fn titles(data: &[u8]) {
    let log = |grain| {
        let (mut log, mut news) = (LibrespotLogParser::default(), Vec::new());
        data.chunks(grain).for_each(|piece| log.push(piece, |told| news.push(told)));
        news
    };
    let pipe = |grain| {
        let (mut pipe, mut news) = (AirplayMetadataParser::default(), Vec::new());
        data.chunks(grain).for_each(|piece| pipe.push(piece, |told| news.push(told)));
        news
    };
    let whole = data.len().max(1);
    let (from_log, from_pipe) = (log(whole), pipe(whole));
    assert_eq!(from_log, log(3));
    assert_eq!(from_pipe, pipe(3));
    for told in from_log.iter().chain(&from_pipe) {
        if let PlaybackEvent::Title(TrackMetadata { title, artist, album, .. }) = told {
            let texts = [title, artist, album].into_iter().flatten();
            texts.for_each(|text| assert!(!text.is_empty() && text.len() <= MAX_TEXT));
        }
    }
}

/// Drives a session and returns what does not depend on how the bytes are split: the Hello, the
/// close reason and the counters.
fn run_session<'a>(
    inputs: impl Iterator<Item = session::SessionInput<'a>>,
) -> (Option<Box<Hello>>, Option<session::CloseReason>, session::SessionStats) {
    let mut session = Session::new(Instant::ZERO);
    let (mut who, mut end) = (None, None);
    let mut out = Vec::new();
    for input in inputs {
        session.handle_input(Instant::ZERO, input);
        let mut outputs = 0;
        while let Some(output) = session.poll_output() {
            assert!(end.is_none(), "an output after the end");
            outputs += 1;
            assert!(outputs <= session::TIME_BURST + 8, "outputs pile up");
            match output {
                session::SessionOutput::Event(session::SessionEvent::Hello(hello)) => {
                    let settings = session::SessionInput::Settings(ServerSettings::default());
                    session.handle_input(Instant::ZERO, settings);
                    let stream = session::SessionInput::Stream(Arc::from(&b"stream"[..]));
                    session.handle_input(Instant::ZERO, stream);
                    who = Some(hello);
                }
                session::SessionOutput::Event(_) => {}
                session::SessionOutput::Send(outgoing) => outgoing.write(Instant::ZERO, &mut out),
                session::SessionOutput::Close(cause) => end = Some(cause),
                other => panic!("a new kind of output: {other:?}"),
            }
        }
    }
    (who, end, session.stats())
}

/// A request to a source port is parsed or rejected, and none of its texts is too long or contains
/// a line break; likewise for responses of a server. A URL results in exactly one request.
pub fn icecast(data: &[u8]) {
    let head = head_length(data);
    assert!(head.is_none_or(|head| head <= data.len()));
    let clean = |text: &str| text.len() <= MAX_TEXT && !text.contains(char::is_control);
    for way in [SourceMethod::Put, SourceMethod::Source] {
        if let Ok(Some(SourceResponse::Refused(_, said))) = SourceResponse::parse(data, way) {
            assert!(clean(&said));
        }
    }
    if let Ok(Ok(target)) = core::str::from_utf8(data).map(str::parse::<PushTarget>) {
        let about =
            StreamMetadata { name: Some(target.mount.clone()), ..StreamMetadata::default() };
        let request = target.source_request(SourceMethod::Put, Some("x"), &about, "fuzz");
        // A URL that was parsed can always be sent; an empty request would fail below.
        let request = request.unwrap_or_default();
        assert_eq!(head_length(request.as_bytes()), Some(request.len()), "one head");
        assert!(matches!(
            IcecastRequest::parse(request.as_bytes()).map(|it| it.kind),
            Ok(RequestKind::Source(_))
        ));
    }
    if let FirstLine::Password { text, length } = FirstLine::of(data) {
        assert!(length <= data.len() && !text.contains(char::is_control));
    }
    assert!(complete_head(data).is_none_or(|(_, length)| length <= data.len()));
    let Ok(request) = IcecastRequest::parse(data) else { return };
    assert!(request.agent.as_deref().is_none_or(clean));
    match request.kind {
        RequestKind::Source(push) => {
            assert!(clean(&push.content_type) && push.name.as_deref().is_none_or(clean));
        }
        RequestKind::Metadata { title, .. } => {
            let title = title.decode(TitleCharset::default());
            assert!([title.title, title.artist].iter().flatten().all(|text| clean(text)));
        }
        _ => {}
    }
}

/// A jitter buffer returns everything that was inserted, once, finally waits, and has room after it
/// was drained. The first byte is the mode; five bytes are one operation.
pub fn jitter(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let mode = match mode % 4 {
        0 => JitterMode::Relay { hold: Span::from_millis(40) },
        1 => JitterMode::Playout(DelayPolicy::Fixed(Span::from_millis(i64::from(*mode)))),
        2 => JitterMode::Playout(DelayPolicy::ADAPTIVE),
        _ => JitterMode::Relay { hold: MAX_DELAY },
    };
    let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: 8_000, slots: 16, mode });
    let (mut now, mut numbers, mut inside) = (Instant::ZERO, (0_u64, 0_u64), 0_usize);
    for operation in data.as_chunks::<5>().0 {
        let &[what, a, b, c, d] = operation;
        let wild = u64::from(u32::from_le_bytes([a, b, c, d])) << (what >> 3);
        match what & 7 {
            0 => now += Span::from_millis(i64::from(a)),
            // Up to 18 years of uptime.
            1 => now = Instant::from_nanos(wild & ((1 << 59) - 1)),
            2 => buffer.begin_run(),
            3 => buffer.finish(),
            4 => {
                black_box(buffer.adjust(Span::from_nanos(wild.cast_signed())));
            }
            5 => numbers = (wild, wild.rotate_left(u32::from(a))),
            _ => {}
        }
        numbers = (numbers.0.wrapping_add(1), numbers.1.wrapping_add(160));
        let arrival = Arrival {
            sequence: numbers.0.wrapping_add(u64::from(b & 15)),
            timestamp: numbers.1.wrapping_add(u64::from(b & 15) * 160),
            ticks: if c & 1 == 0 { 0 } else { u32::try_from(wild).unwrap_or(1) },
            marker: c & 2 != 0,
            received: now - Span::from_millis(i64::from(d & 31)),
        };
        match buffer.insert(arrival, ()) {
            InsertOutcome::Held => inside += 1,
            InsertOutcome::Full(()) => {
                inside -= drain(&mut buffer, now);
                let again = buffer.insert(arrival, ());
                assert!(
                    matches!(again, InsertOutcome::Held | InsertOutcome::Late(())),
                    "{again:?}"
                );
                inside += usize::from(again == InsertOutcome::Held);
            }
            _ => {}
        }
        if c & 4 != 0 {
            inside -= drain(&mut buffer, now);
        }
        assert_eq!(buffer.stats().held, inside);
    }
}

/// Takes all output that is due; returns the number of packets.
fn drain(buffer: &mut JitterBuffer<()>, now: Instant) -> usize {
    let (mut packets, mut pieces) = (0, 0);
    loop {
        match buffer.poll(now) {
            JitterOutput::Packet(_) | JitterOutput::Skip(_) => packets += 1,
            JitterOutput::Missing(missing) => assert!(missing.ticks > 0),
            JitterOutput::Wait(until) => {
                assert!(until.is_none_or(|until| until > now));
                return packets;
            }
        }
        pieces += 1;
        assert!(pieces < 100_000, "it never waits");
    }
}
