use serde_json::json;

use super::*;

/// The status of a full server.
const STATUS_BYTES: usize = 4 << 20;

fn text(peers: &Peers, bytes: usize) -> Notification {
    Notification::new("Server.OnUpdate", &json!("x".repeat(bytes)), peers.live())
}

/// Like the control plane: a status without room is sent later.
fn update(peers: &mut Peers) -> usize {
    if let Err(cut) = peers.make_room() {
        return cut;
    }
    let text = text(peers, STATUS_BYTES);
    peers.notify(None, NotificationKind::WholeStatus, text).cut
}

fn part(peers: &mut Peers, number: usize) -> Delivery {
    let text = Notification::new("Client.OnConnect", &json!(number), peers.live());
    peers.notify(None, NotificationKind::PartOfStatus, text)
}

/// The next notification, if there is one.
fn take(inbox: &mut Inbox) -> Option<Arc<Notification>> {
    let next = std::pin::pin!(inbox.next());
    match next.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(next) => next,
        std::task::Poll::Pending => None,
    }
}

fn methods_and_params(inbox: &mut Inbox) -> Vec<String> {
    let texts = std::iter::from_fn(|| take(inbox));
    texts.map(|text| text.to_json()).map(|json| json[26..json.len().min(60)].to_owned()).collect()
}

#[test]
fn a_crowd_of_controllers_that_do_not_read_takes_no_more_memory_than_the_bound() {
    let mut peers = Peers::default();
    let (mut crowd, mut cut, mut most) = (Vec::new(), 0, 0);
    // Each controller begins to take a notification and never ends, so that each holds another one.
    for round in 0..2_000 {
        if round % 2 == 0 && crowd.len() < 1_024 {
            crowd.push((peers.join(true).1, None));
        }
        cut += update(&mut peers);
        part(&mut peers, round);
        for (inbox, taken) in &mut crowd {
            if taken.is_none() {
                *taken = take(inbox);
            }
        }
        most = most.max(peers.live().get());
        // The connections of cut controllers end.
        crowd.retain(|(inbox, _)| !inbox.0.lock().is_cut);
    }
    // A kilobyte is for notifications about clients.
    let bound = MAX_LIVE_BYTES + 2 * (STATUS_BYTES + 1_024);
    assert!(most <= bound, "{most} bytes of {bound}");
    assert!(most > MAX_LIVE_BYTES / 2 && cut > 500, "{most} bytes, {cut} cut");
    drop(crowd);
    drop(peers);
}

#[test]
fn those_who_have_not_taken_the_oldest_text_are_cut_first_and_who_reads_is_not() {
    let mut peers = Peers::default();
    let (_, mut reader) = peers.join(true);
    let mut slow: Vec<(Inbox, Option<Arc<Notification>>)> = Vec::new();
    for _ in 0..40 {
        slow.push((peers.join(true).1, None));
        update(&mut peers);
        slow.iter_mut().filter(|(_, taken)| taken.is_none()).for_each(|(inbox, taken)| {
            *taken = take(inbox);
        });
        let cut = |(inbox, _): &(Inbox, _)| inbox.0.lock().is_cut;
        let first_left = slow.iter().position(|one| !cut(one)).unwrap_or(slow.len());
        assert!(slow[first_left..].iter().all(|one| !cut(one)), "one that came later was cut");
        // Their connections end, which frees the memory.
        slow.iter_mut().filter(|one| cut(one)).for_each(|(_, taken)| *taken = None);
        slow.retain(|one| !cut(one));
        while take(&mut reader).is_some() {
            reader.sent();
        }
        assert!(!reader.0.lock().is_cut);
    }
    assert!(slow.len() < 40 && slow.len() > 4, "{}", slow.len());
}

#[test]
fn one_that_reads_gets_everything_and_one_that_is_behind_the_newest_status_and_what_follows() {
    let mut peers = Peers::default();
    let (_, mut reader) = peers.join(true);
    let (_, mut behind) = peers.join(true);
    let mut got = Vec::new();
    for number in 0..3 {
        update(&mut peers);
        part(&mut peers, number);
        let other = Notification::new("Aulos.OnSwitch", &json!(number), peers.live());
        peers.notify(None, NotificationKind::Other, other);
        got.extend(methods_and_params(&mut reader));
        reader.sent();
    }
    assert_eq!(got.len(), 9, "{got:?}");
    let got = methods_and_params(&mut behind);
    let begin = |method: &str| format!("\"{method}\",\"params\":");
    let want = [
        begin("Aulos.OnSwitch") + "0}",
        begin("Aulos.OnSwitch") + "1}",
        begin("Server.OnUpdate"),
        begin("Client.OnConnect") + "2}",
        begin("Aulos.OnSwitch") + "2}",
    ];
    assert_eq!(got.len(), want.len(), "{got:?}");
    assert!(got.iter().zip(&want).all(|(got, want)| got.starts_with(want)), "{got:?}");
}

#[test]
fn what_is_short_is_never_replaced() {
    let mut peers = Peers::default();
    let (_, mut inbox) = peers.join(true);
    for number in 0..100 {
        let text = text(&peers, 1_000);
        let delivery = peers.notify(None, NotificationKind::WholeStatus, text);
        assert_eq!((delivery, part(&mut peers, number)), Default::default());
    }
    assert_eq!(methods_and_params(&mut inbox).len(), 200);
}

#[test]
fn one_that_takes_nothing_is_cut_when_too_many_wait() {
    let mut peers = Peers::default();
    let (_, mut inbox) = peers.join(true);
    let cut: usize = (0..=MAX_WAITING).map(|number| part(&mut peers, number).cut).sum();
    assert_eq!(cut, 1);
    assert!(take(&mut inbox).is_none() && inbox.0.lock().is_cut);
    assert_eq!(peers.live().get(), 0);
}

#[test]
fn a_status_that_is_longer_than_any_bound_reaches_those_who_read() {
    let mut peers = Peers::default();
    let (_, mut inbox) = peers.join(true);
    for _ in 0..3 {
        assert_eq!(peers.make_room(), Ok(()));
        let text = text(&peers, 2 * MAX_LIVE_BYTES);
        assert_eq!(peers.notify(None, NotificationKind::WholeStatus, text).cut, 0);
        assert!(take(&mut inbox).is_some());
        inbox.sent();
    }
}
