//! One connection, up to its first sound or its last word.

use std::time::Duration;

use aulos_config::{Endpoint, Mount};
use aulos_io::feed::Dj;
use aulos_io::reactor::MediaWire;
use aulos_proto::icecast::{Push, Request, Wish, head_length, is_hopeless};
use aulos_proto::packets::Hint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::answer::Answer;
use crate::access::{Credentials, Denied};
use crate::control::{Control, count};
use crate::house::{DjAbout, ListenSink};
use crate::http::is_our_host;
use crate::tls::Stream;

/// How long a guest may take to say what he wants.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of what he says.
const MAX_HEAD: usize = 8 << 10;

/// Hears what a guest wants, and lets him go on air if he may.
pub(super) async fn attend(
    mut stream: Stream,
    address: &Endpoint,
    control: &Control,
    sink: &dyn ListenSink,
) {
    let mut read = Vec::with_capacity(1_024);
    let head = match timeout(PATIENCE, hear(&mut stream, &mut read)).await {
        Ok(Some(Some(head))) => head,
        Ok(Some(None)) => {
            count(&control.counters.djs_cut_long_request);
            return stream.try_answer(Answer::TooLong.text().as_bytes());
        }
        // He went away.
        Ok(None) => return,
        Err(_) => return count(&control.counters.djs_cut_without_request),
    };
    let unread = read.split_off(head);
    let answer = match Request::parse(&read) {
        // A mount on loopback may have no password, and a page of anywhere runs in a browser here.
        Ok(Request { from_page: true, .. }) => {
            count(&control.counters.http_cross_site);
            Answer::Page
        }
        Ok(Request { wish, authorization, agent, host, .. }) => {
            let said = (authorization.as_deref(), host.as_deref());
            let may = |path: &str| authorize(&stream, address, path, said, control);
            match wish {
                Wish::Push(push) => match may(&push.mount) {
                    Ok(_) if is_hopeless(&push.content_type) => {
                        count(&control.counters.djs_refused_type);
                        Answer::Unsupported
                    }
                    Ok(place) => {
                        return go_on_air((stream, unread), place, (push, agent), control, sink)
                            .await;
                    }
                    Err(answer) => answer,
                },
                Wish::Tell { mount, title } => match may(&mount) {
                    Ok((station, mount)) if sink.tell_title(&station, &mount, title) => {
                        Answer::Told
                    }
                    Ok(_) => Answer::NobodyOnAir,
                    Err(answer) => answer,
                },
                Wish::Ask => Answer::Methods,
                _ => Answer::NotHere,
            }
        }
        Err(_) => {
            count(&control.counters.djs_not_understood);
            Answer::NotUnderstood
        }
    };
    stream.try_answer(answer.text().as_bytes());
}

/// Reads to the end of the head: its length; `Some(None)` for one that has no end, `None` where the
/// guest has gone.
async fn hear(stream: &mut Stream, read: &mut Vec<u8>) -> Option<Option<usize>> {
    loop {
        if let Some(length) = head_length(read) {
            return Some(Some(length));
        }
        if read.len() >= MAX_HEAD {
            return Some(None);
        }
        let rest = MAX_HEAD - read.len();
        if (&mut *stream).take(rest as u64).read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

/// The mount of this name and its station, if he may have to do with it.
fn authorize(
    stream: &Stream,
    address: &Endpoint,
    path: &str,
    (authorization, host): (Option<&str>, Option<&str>),
    control: &Control,
) -> Result<(String, Mount), Answer> {
    let mounts = control.mounts();
    let here = mounts.into_iter().filter(|(_, mount)| mount.address == *address);
    let Some((station, mount)) = here.into_iter().find(|(_, mount)| mount.path == path) else {
        count(&control.counters.djs_refused_unknown);
        return Err(Answer::NoMount);
    };
    let Some(password) = &mount.password else {
        // A page whose own name points to this machine (DNS rebinding) asks without an `Origin`. Where
        // there is a password, it does not know it.
        if is_our_host(host, &control.resolved().http.names) {
            return Ok((station, mount));
        }
        count(&control.counters.http_wrong_host);
        return Err(Answer::OtherName);
    };
    // libshout asks once without, to learn how it is to be said.
    let Some(said) = authorization else { return Err(Answer::Unauthorized) };
    let right = match Credentials::of_header(said) {
        Credentials::Password(user, said) => {
            password.is(&crate::access::Secret::of(&said)) & (user == mount.user)
        }
        _ => false,
    };
    match control.guess(stream.from(), right) {
        Ok(()) => Ok((station, mount)),
        Err(Denied::Wrong) => Err(Answer::Unauthorized),
        Err(Denied::Slowed) => Err(Answer::TooMany),
    }
}

async fn go_on_air(
    (mut stream, unread): (Stream, Vec<u8>),
    (station, mount): (String, Mount),
    (push, agent): (Push, Option<String>),
    control: &Control,
    sink: &dyn ListenSink,
) {
    let about = DjAbout {
        from: Some(stream.from()),
        agent,
        name: push.name,
        content_type: push.content_type.clone(),
        tls: stream.is_tls(),
    };
    let Some(seat) = sink.take_seat(&station, &mount, about) else {
        count(&control.counters.djs_refused_taken);
        return stream.try_answer(Answer::Taken.text().as_bytes());
    };
    // Who does not wait for this takes it for the answer to his stream.
    let answer = if push.expects { CONTINUE } else { OK };
    let answered = async {
        stream.write_all(answer).await?;
        stream.flush().await?;
        MediaWire::new(stream.into_media()?)
    };
    match timeout(PATIENCE, answered).await {
        Ok(Ok(wire)) => {
            let hint = Hint::from_content_type(&push.content_type);
            seat.sit(Dj { wire, unread, framing: push.framing, hint });
        }
        gone => tracing::debug!(?gone, "a DJ went before his first sound"),
    }
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// libshout and its like go on as soon as they read this.
const OK: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n";
