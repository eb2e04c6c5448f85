//! Text output of relays: a table while they run, and a summary.

use std::collections::HashMap;
use std::fmt::Write as _;

use aulos_server::relay::{RelayCounters, RelaySnapshot, StreamStatus, encoding_name};

/// Where a table is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableView {
    /// In characters.
    pub(super) width: usize,
    /// In lines.
    pub(super) height: usize,
    pub(super) colors: bool,
}

/// The streams that fit, those with problems first.
pub(super) fn table(
    status: &RelaySnapshot,
    before: Option<&RelaySnapshot>,
    view: &TableView,
) -> String {
    let TableView { width, height, colors } = *view;
    let mut text = String::new();
    for total in &status.relays {
        let earlier = before.and_then(|before| {
            before.relays.iter().find(|other| other.config.name == total.config.name)
        });
        let rate =
            earlier.map_or(0, |earlier| total.counts.sent.saturating_sub(earlier.counts.sent));
        let config = &total.config;
        let (from, to) = (encoding_name(&config.from), encoding_name(&config.to));
        let line = format!(
            "{}  {from} -> {to}  {} streams  {rate} packets/s  {} lost  {} late  {} dropped",
            config.name,
            total.streams,
            total.counts.lost,
            total.counts.late,
            total.counts.dropped.all()
        );
        push(&mut text, &line, width);
    }
    push(&mut text, &threads(status, before), width);
    let head = format!(
        "{:<10} {:>5} {:>8} {:<21} {:>9} {:>7} {:>6} {:>6} {:>8} {:>8}",
        "relay", "port", "ssrc", "from", "packets", "pkt/s", "lost", "late", "jitter", "drift"
    );
    if colors {
        let _ = writeln!(text, "\x1b[1m{}\x1b[0m", cut(&head, width));
    } else {
        push(&mut text, &head, width);
    }
    let earlier: HashMap<u32, &StreamStatus> = before
        .map(|before| before.rows.iter().map(|row| (row.report.sent_ssrc, row)).collect())
        .unwrap_or_default();
    let mut rows: Vec<&StreamStatus> =
        status.rows.iter().filter(|row| row.report.ssrc.is_some()).collect();
    rows.sort_by_key(|row| {
        let counts = RelayCounters::of(&row.report);
        core::cmp::Reverse(counts.lost + counts.late + counts.dropped.all())
    });
    let room = height.saturating_sub(text.lines().count() + 1);
    for row in rows.iter().take(room) {
        push(&mut text, &line(row, earlier.get(&row.report.sent_ssrc).copied()), width);
    }
    if rows.len() > room {
        push(&mut text, &format!("... and {} more", rows.len() - room), width);
    }
    text
}

fn line(row: &StreamStatus, before: Option<&StreamStatus>) -> String {
    let report = &row.report;
    let counts = RelayCounters::of(report);
    let sent = before.map_or(0, |row| row.report.tally.sent);
    let rate = before.map_or(0, |_| counts.sent.saturating_sub(sent));
    format!(
        "{:<10} {:>5} {:>8} {:<21} {:>9} {:>7} {:>6} {:>6} {:>5.1} ms {:>4.0} ppm",
        cut(&row.relay, 10),
        report.label.port,
        report.ssrc.map_or_else(String::new, |ssrc| format!("{ssrc:08x}")),
        report.from.map_or_else(String::new, |from| from.to_string()),
        counts.received,
        rate,
        counts.lost,
        counts.late,
        report.tally.jitter.jitter.as_secs_f64() * 1e3,
        f64::from(report.tally.jitter.drift.as_ppb()) * 1e-3,
    )
}

fn threads(status: &RelaySnapshot, before: Option<&RelaySnapshot>) -> String {
    let mut text = format!("{} thread(s)", status.threads.len());
    for (index, thread) in status.threads.iter().enumerate() {
        let earlier = before.and_then(|before| before.threads.get(index));
        let used = earlier.map_or(0.0, |earlier| (thread.cpu - earlier.cpu).as_secs_f64() * 100.0);
        let _ = write!(text, "  {used:.1} %");
    }
    let lost: u64 = status.threads.iter().map(|thread| thread.lost_in_kernel).sum();
    if lost > 0 {
        let _ = write!(text, "  {lost} lost in the kernel (receive buffers too small)");
    }
    text
}

/// The final counts.
pub(super) fn summary(status: &RelaySnapshot) -> String {
    let mut text = String::new();
    let row = |text: &mut String, name: &str, cells: [String; 8]| {
        let [a, b, c, d, e, f, g, h] = cells;
        let _ =
            writeln!(text, "{name:<12} {a:>8} {b:>11} {c:>11} {d:>8} {e:>8} {f:>9} {g:>10} {h:>8}");
    };
    let heads =
        ["streams", "received", "sent", "lost", "late", "reordered", "duplicates", "dropped"];
    row(&mut text, "relay", heads.map(str::to_owned));
    for total in &status.relays {
        let counts = &total.counts;
        let streams = total.ended + status_streams(status, &total.config.name);
        let cells = [
            streams,
            counts.received,
            counts.sent,
            counts.lost,
            counts.late,
            counts.reordered,
            counts.duplicates,
            counts.dropped.all(),
        ];
        row(&mut text, &total.config.name, cells.map(|count| count.to_string()));
        for (what, count, causes) in [
            ("without a stream", counts.foreign.all(), &counts.foreign.causes()[..]),
            ("dropped", counts.dropped.all(), &counts.dropped.causes()[..]),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{:<12} {count} packets {what}: {}", "", by_cause(causes));
            }
        }
    }
    text
}

fn by_cause(causes: &[(&str, u64)]) -> String {
    let causes = causes.iter().filter(|(_, count)| *count > 0);
    let words = causes.map(|(name, count)| format!("{count} {}", name.replace('_', " ")));
    words.collect::<Vec<_>>().join(", ")
}

fn status_streams(status: &RelaySnapshot, name: &str) -> u64 {
    let has_received =
        |row: &&StreamStatus| row.relay == name && row.report.tally.source.received > 0;
    status.rows.iter().filter(has_received).count() as u64
}

fn push(text: &mut String, line: &str, width: usize) {
    let _ = writeln!(text, "{}", cut(line, width));
}

fn cut(text: &str, width: usize) -> &str {
    text.char_indices().nth(width).map_or(text, |(at, _)| &text[..at])
}

/// The terminal's columns and lines.
pub(super) fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}
