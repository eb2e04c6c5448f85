use super::*;

const START: Instant = Instant::ZERO;

fn answer(round: u32, node: &str, process: u64, document: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    NodeStatus { round, process, node, document }.write(&mut bytes);
    bytes
}

/// Begins a round; returns its number.
fn begin(table: &mut NodeTable, now: Instant) -> u32 {
    table.request(now);
    match table.poll_output() {
        Some(NodeTableOutput::Ask { round }) => round,
        other => panic!("{other:?}"),
    }
}

fn end(table: &mut NodeTable, now: Instant) {
    table.handle_timeout(now);
    assert_eq!(table.poll_output(), Some(NodeTableOutput::Complete));
    assert_eq!((table.poll_output(), table.poll_timeout()), (None, None));
}

fn reachable(table: &NodeTable) -> Vec<(&str, bool)> {
    table.nodes().map(|node| (node.name.as_str(), node.is_reachable)).collect()
}

#[test]
fn a_node_that_is_silent_stays_with_its_age_until_it_is_forgotten() {
    let mut table = NodeTable::new(0, START);
    let round = begin(&mut table, START);
    for node in ["studio", "barn"] {
        table.handle_input(START + Span::from_millis(20), &answer(round, node, 1, b"{}"));
    }
    table.handle_timeout(START + ROUND - Span::from_millis(1));
    assert_eq!(table.poll_output(), None);
    end(&mut table, START + ROUND);
    assert_eq!(reachable(&table), [("barn", true), ("studio", true)]);
    let later = START + Span::from_secs(10);
    let round = begin(&mut table, later);
    table.handle_input(later, &answer(round, "studio", 1, b"{\"a\":1}"));
    end(&mut table, later + ROUND);
    assert_eq!(reachable(&table), [("barn", false), ("studio", true)]);
    let barn = table.nodes().next().unwrap();
    assert_eq!(barn.answered_at, START + Span::from_millis(20));
    let much_later = START + FORGET_AFTER + Span::from_secs(1);
    begin(&mut table, much_later);
    end(&mut table, much_later + ROUND);
    assert_eq!(reachable(&table), [("studio", false)]);
}

/// A hundred pages ask no more of the others than one does.
#[test]
fn requests_share_a_round() {
    let mut table = NodeTable::new(0, START);
    let (mut asked, mut completed) = (0, 0);
    for ms in 0..10_000 {
        let now = START + Span::from_millis(ms);
        for _ in 0..10 {
            table.request(now);
        }
        table.handle_timeout(now);
        while let Some(output) = table.poll_output() {
            match output {
                NodeTableOutput::Ask { .. } => asked += 1,
                NodeTableOutput::Complete => completed += 1,
            }
        }
    }
    // A round and the second in which its result is used again.
    assert_eq!(asked, 7);
    assert!(completed > 1_000);
}

#[test]
fn what_is_wrong_is_dropped_and_counted_by_its_cause() {
    let mut table = NodeTable::new(40, START);
    table.handle_input(START, &answer(41, "early", 1, b"{}"));
    let round = begin(&mut table, START);
    assert_eq!(round, 41);
    table.handle_input(START, &answer(round, "a", 1, b"{}"));
    table.handle_input(START, &answer(round, "a", 1, b"{\"other\":1}"));
    table.handle_input(START, &answer(round - 1, "b", 1, b"{}"));
    table.handle_input(START, b"{\"node\":\"a\"}");
    table.handle_input(START, &vec![0; aulos_proto::nats::MAX_NODE_STATUS + 1]);
    let mut damaged = answer(round, "c", 1, b"{}");
    *damaged.last_mut().unwrap() ^= 1;
    table.handle_input(START, &damaged);
    let found = table.counts();
    assert_eq!((found.accepted, found.repeated, found.late), (1, 1, 2));
    assert_eq!((found.malformed, found.too_large, found.checksum), (1, 1, 1));
    assert_eq!(reachable(&table), [("a", true)]);
    assert!(!table.nodes().next().unwrap().is_duplicate);
    table.handle_input(START, &answer(round, "a", 2, b"{}"));
    let node = table.nodes().next().unwrap();
    assert!(node.is_duplicate && node.document == b"{}");
}

#[test]
fn nodes_and_bytes_are_limited() {
    let mut table = NodeTable::new(0, START);
    let round = begin(&mut table, START);
    for number in 0..MAX_NODES + 10 {
        table.handle_input(START, &answer(round, &format!("n{number}"), 1, b"{}"));
    }
    assert_eq!((table.nodes().count(), table.counts().overflow), (MAX_NODES, 10));
    end(&mut table, START + ROUND);
    let (mut now, document) = (START, vec![b' '; aulos_proto::nats::MAX_NODE_DOCUMENT]);
    for _ in 0..3 {
        now += Span::from_secs(2);
        let round = begin(&mut table, now);
        for number in 0..MAX_NODES {
            table.handle_input(now, &answer(round, &format!("n{number}"), 1, &document));
        }
        end(&mut table, now + ROUND);
        let bytes: usize = table.nodes().map(|node| node.document.len()).sum();
        assert!(bytes <= MAX_DOCUMENT_BYTES && bytes > MAX_DOCUMENT_BYTES / 2, "{bytes}");
    }
}

#[test]
fn a_clock_that_goes_backwards_does_not_open_a_round_for_longer() {
    let mut table = NodeTable::new(0, START);
    let now = START + Span::from_secs(100);
    begin(&mut table, now);
    table.handle_timeout(START);
    assert_eq!(table.poll_timeout(), Some(now + ROUND));
    end(&mut table, now + ROUND);
}
