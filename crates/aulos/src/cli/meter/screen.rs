//! The meter's screen: numbers, bars and a history. Drawing only, without a terminal.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Lufs, SampleRate, Span};
use aulos_engine::loudness::Loudness;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::cli::figures::{clock, db, lufs};

/// Everything that the screen shows.
#[derive(Debug)]
pub(super) struct Screen {
    source: String,
    shape: Option<(SampleRate, ChannelLayout)>,
    loudness: Loudness,
    scale: Scale,
    colors: bool,
    pub(super) paused: bool,
    pub(super) waiting: bool,
    history: VecDeque<HistoryColumn>,
    /// The current column, and its number of readings.
    column: HistoryColumn,
    readings: u32,
}

/// Two seconds of history: the highest M and the last S.
#[derive(Clone, Copy, Debug, Default)]
struct HistoryColumn {
    momentary: Option<f64>,
    short_term: Option<f64>,
}

impl Screen {
    pub(super) fn new(source: &str, colors: bool) -> Self {
        Self {
            source: source.chars().filter(|letter| !letter.is_control()).collect(),
            shape: None,
            loudness: Loudness::NONE,
            scale: Scale::Lufs,
            colors,
            paused: false,
            waiting: false,
            history: VecDeque::new(),
            column: HistoryColumn::default(),
            readings: 0,
        }
    }

    pub(super) const fn set_format(&mut self, rate: SampleRate, layout: ChannelLayout) {
        self.shape = Some((rate, layout));
    }

    pub(super) fn add_reading(&mut self, loudness: Loudness) {
        self.waiting = false;
        self.loudness = loudness;
        let momentary = loudness.momentary.map(Lufs::get);
        self.column.momentary =
            [self.column.momentary, momentary].into_iter().flatten().max_by(f64::total_cmp);
        self.column.short_term = loudness.short_term.map(Lufs::get);
        self.readings += 1;
        if self.readings == COLUMN_READINGS {
            self.history.push_front(core::mem::take(&mut self.column));
            self.history.truncate(MAX_COLUMNS);
            self.readings = 0;
        }
    }

    /// Clears the history.
    pub(super) fn reset(&mut self) {
        self.history.clear();
        self.column = HistoryColumn::default();
        self.readings = 0;
    }

    pub(super) const fn next_scale(&mut self) {
        self.scale = match self.scale {
            Scale::Lufs => Scale::EbuPlus9,
            Scale::EbuPlus9 => Scale::EbuPlus18,
            Scale::EbuPlus18 => Scale::Lufs,
        };
    }

    /// Draws the screen; what does not fit is left out, the least important first.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut rows = RowCursor { area, next: area.y };
        let tall = area.height >= 16;
        self.title(frame.buffer_mut(), rows.take(1));
        rows.skip(u16::from(tall));
        for (name, value) in [
            ("M", self.loudness.momentary),
            ("S", self.loudness.short_term),
            ("I", self.loudness.integrated),
        ] {
            self.bar(frame.buffer_mut(), rows.take(1), name, value);
        }
        self.axis(frame.buffer_mut(), rows.take(1));
        rows.skip(u16::from(tall));
        for line in self.figures(area.width) {
            let row = rows.take(1);
            put(frame.buffer_mut(), row, 1, &line, Style::new());
        }
        rows.skip(u16::from(tall));
        let rest = rows.left();
        if rest > 0 {
            let keys = Rect { y: area.bottom() - 1, height: 1, ..area };
            put(frame.buffer_mut(), keys, 1, KEYS, self.dim());
        }
        if rest > MIN_HISTORY {
            self.draw_history(frame.buffer_mut(), rows.take(rest - 1 - u16::from(tall)));
        }
    }

    fn title(&self, buffer: &mut Buffer, row: Rect) {
        let state = match (self.paused, self.waiting, self.shape) {
            (true, ..) => "paused".to_owned(),
            (_, true, _) | (.., None) => "waiting for audio".to_owned(),
            (.., Some((rate, layout))) => {
                let channels = layout.channels();
                let plural = if channels == 1 { "" } else { "s" };
                format!("{} Hz, {channels} channel{plural}", rate.hz())
            }
        };
        let right = format!("{state}  {} ", clock(self.loudness.measured));
        let room = usize::from(row.width).saturating_sub(right.len() + 2);
        let source: String = self.source.chars().take(room).collect();
        put(buffer, row, 1, &source, Style::new().add_modifier(Modifier::BOLD));
        let at = row.width.saturating_sub(u16::try_from(right.len()).unwrap_or(0));
        let style = if self.paused { self.color(Color::Yellow) } else { self.dim() };
        put(buffer, row, at, &right, style);
    }

    fn bar(&self, buffer: &mut Buffer, row: Rect, name: &str, value: Option<Lufs>) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let (number, unit) = self.scale.number(value);
        put(buffer, row, 1, name, bold);
        put(buffer, row, 3, &format!("{number:>6} {unit}"), bold);
        let room = row.width.saturating_sub(BAR_LABEL + 1);
        let bar = Rect { x: row.x + BAR_LABEL, width: room, ..row }.intersection(row);
        put(buffer, bar, 0, &"\u{2500}".repeat(usize::from(bar.width)), self.dim());
        let Some(value) = value else { return };
        let eighths = self.scale.place(value.get(), f64::from(bar.width) * 8.0);
        let mut text = "\u{2588}".repeat(eighths / 8);
        if let Some(part) = PARTS.get(eighths % 8) {
            text += part;
        }
        put(buffer, bar, 0, &text, self.color(self.scale.color(value.get())));
    }

    fn axis(&self, buffer: &mut Buffer, row: Rect) {
        let room = row.width.saturating_sub(BAR_LABEL + 1);
        let mut free = 0;
        for mark in self.scale.marks() {
            let text = self.scale.mark(*mark);
            let at = column(self.scale.place(*mark, f64::from(room)));
            let half = column(text.len() / 2);
            let at = at.saturating_sub(half).min(room.saturating_sub(column(text.len())));
            if at < free || room < column(text.len()) {
                continue;
            }
            put(buffer, row, BAR_LABEL + at, &text, self.dim());
            free = at + column(text.len()) + 1;
        }
    }

    fn figures(&self, width: u16) -> Vec<String> {
        let read = &self.loudness;
        let unit = self.scale.unit();
        let figure = |value| self.scale.number(value).0;
        let parts = [
            format!("LRA {} LU", db(read.range)),
            format!("true peak {} dBTP, now {}", db(read.true_peak), db(read.current_true_peak)),
            format!("sample peak {} dBFS", db(read.sample_peak)),
            format!("max M {} {unit}", figure(read.max_momentary)),
            format!("max S {} {unit}", figure(read.max_short_term)),
        ];
        let mut lines: Vec<String> = Vec::new();
        for part in parts {
            match lines.last_mut() {
                Some(line) if line.len() + part.len() + 5 <= usize::from(width) => {
                    *line += "   ";
                    *line += &part;
                }
                _ => lines.push(part),
            }
        }
        lines
    }

    /// Draws M as columns and S as a line over them, the newest at the right.
    fn draw_history(&self, buffer: &mut Buffer, area: Rect) {
        let height = f64::from(area.height);
        for (row, mark) in [(0, self.scale.high()), (area.height - 1, self.scale.low())] {
            let text = format!("{:>6}", self.scale.mark(mark));
            put(buffer, Rect { y: area.y + row, height: 1, ..area }, 1, &text, self.dim());
        }
        if area.height > 3 {
            put(
                buffer,
                Rect { y: area.y + 1, height: 1, ..area },
                1,
                "\u{2588} M",
                self.color(Color::Green),
            );
            put(buffer, Rect { y: area.y + 2, height: 1, ..area }, 1, "\u{2501} S", Style::new());
        }
        let room = area.width.saturating_sub(HISTORY_LABEL + 1);
        for (back, past) in (0..room).zip(&self.history) {
            let x = area.x + HISTORY_LABEL + room - 1 - back;
            if let Some(momentary) = past.momentary {
                let mut eighths = self.scale.place(momentary, height * 8.0);
                for y in (area.y..area.bottom()).rev() {
                    let Some(part) = COLUMNS.get(eighths.min(8)).filter(|_| eighths > 0) else {
                        break;
                    };
                    let style = self.color(self.scale.color(momentary));
                    buffer[(x, y)].set_symbol(part).set_style(style);
                    eighths = eighths.saturating_sub(8);
                }
            }
            if let Some(short_term) = past.short_term {
                let rows = column(self.scale.place(short_term, height));
                let y = area.bottom() - 1 - rows.min(area.height - 1);
                // In the terminal's text color, over the bar.
                buffer[(x, y)].set_symbol("\u{2501}").set_style(Style::reset());
            }
        }
    }

    fn dim(&self) -> Style {
        if self.colors { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    fn color(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }
}

/// The scale of bars and history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// -59 to 0 LUFS.
    Lufs,
    /// -18 to +9 LU around -23 LUFS (EBU Tech 3341).
    EbuPlus9,
    /// -36 to +18 LU around -23 LUFS.
    EbuPlus18,
}

impl Scale {
    const fn low(self) -> f64 {
        match self {
            Self::Lufs | Self::EbuPlus18 => -59.0,
            Self::EbuPlus9 => -41.0,
        }
    }

    const fn high(self) -> f64 {
        match self {
            Self::Lufs => 0.0,
            Self::EbuPlus9 => -14.0,
            Self::EbuPlus18 => -5.0,
        }
    }

    const fn marks(self) -> &'static [f64] {
        match self {
            Self::Lufs => &[-59.0, -50.0, -40.0, -30.0, -23.0, -18.0, -10.0, 0.0],
            Self::EbuPlus9 => &[-41.0, -35.0, -29.0, -26.0, -23.0, -20.0, -17.0, -14.0],
            Self::EbuPlus18 => &[-59.0, -47.0, -35.0, -29.0, -23.0, -17.0, -11.0, -5.0],
        }
    }

    const fn unit(self) -> &'static str {
        if matches!(self, Self::Lufs) { "LUFS" } else { "LU" }
    }

    /// A loudness in the scale's unit, with the unit.
    fn number(self, value: Option<Lufs>) -> (String, &'static str) {
        let text = match (self, value) {
            (Self::Lufs, value) => lufs(value),
            (_, None) => "-".to_owned(),
            (_, Some(value)) => format!("{:+.1}", value.get() - EBU_TARGET),
        };
        (text, self.unit())
    }

    fn mark(self, lufs: f64) -> String {
        match self {
            Self::Lufs => format!("{lufs:.0}"),
            _ if lufs > EBU_TARGET => format!("{:+.0}", lufs - EBU_TARGET),
            _ => format!("{:.0}", lufs - EBU_TARGET),
        }
    }

    /// The position of a loudness on a scale of `steps`.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and some thousands"
    )]
    fn place(self, lufs: f64, steps: f64) -> usize {
        let share = (lufs - self.low()) / (self.high() - self.low());
        (share.clamp(0.0, 1.0) * steps).round() as usize
    }

    /// Green up to the usual loudness of music, then yellow, and red above; on EBU scales relative
    /// to the target.
    fn color(self, lufs: f64) -> Color {
        let (usual, loud) =
            if self == Self::Lufs { (-14.0, -9.0) } else { (EBU_TARGET + 1.0, EBU_TARGET + 9.0) };
        match lufs {
            lufs if lufs <= usual => Color::Green,
            lufs if lufs <= loud => Color::Yellow,
            _ => Color::Red,
        }
    }
}

/// Hands out the rows of the screen from the top.
struct RowCursor {
    area: Rect,
    next: u16,
}

impl RowCursor {
    const fn left(&self) -> u16 {
        self.area.bottom().saturating_sub(self.next)
    }

    fn skip(&mut self, rows: u16) {
        self.next = (self.next + rows).min(self.area.bottom());
    }

    /// Takes this many rows, or as many as are left.
    fn take(&mut self, rows: u16) -> Rect {
        let height = rows.min(self.left());
        let taken = Rect { y: self.next, height, ..self.area };
        self.skip(rows);
        taken
    }
}

/// Writes into a row from column `at`; what does not fit is cut off.
fn put(buffer: &mut Buffer, row: Rect, at: u16, text: &str, style: Style) {
    if row.height > 0 && at < row.width {
        buffer.set_stringn(row.x + at, row.y, text, usize::from(row.width - at), style);
    }
}

fn column(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

const KEYS: &str = "q quit   r reset   p pause   e scale";

/// Width left of a bar: name, number, unit.
const BAR_LABEL: u16 = 16;
/// Width left of the history.
const HISTORY_LABEL: u16 = 9;
/// The history is drawn if more rows than this are left.
const MIN_HISTORY: u16 = 4;

/// Readings in a column of 2 s.
const COLUMN_READINGS: u32 = 20;
/// More columns than any terminal has.
const MAX_COLUMNS: usize = 1_000;

/// 0 LU.
const EBU_TARGET: f64 = -23.0;

const PARTS: [&str; 8] =
    ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
const COLUMNS: [&str; 9] = [
    " ", "\u{2581}", "\u{2582}", "\u{2583}", "\u{2584}", "\u{2585}", "\u{2586}", "\u{2587}",
    "\u{2588}",
];

/// Ties the column length to the number of readings.
const _: () = assert!(Span::from_secs(2).as_millis() == 100 * COLUMN_READINGS as i64);

#[cfg(test)]
mod tests {
    use aulos_core::Db;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    /// A minute of rising loudness.
    fn screen() -> Screen {
        let mut screen = Screen::new("file:///srv/a programme.flac", false);
        screen.set_format(SampleRate::HZ_48000, ChannelLayout::STEREO);
        for n in 0..620u32 {
            let lufs = |offset: f64| Some(Lufs::new(-45.0 + 0.05 * f64::from(n) + offset));
            screen.add_reading(Loudness {
                measured: Span::from_millis(100 * i64::from(n + 1)),
                momentary: lufs(0.0),
                short_term: lufs(-4.0),
                integrated: lufs(-8.0),
                range: Some(Db::new(12.3)),
                max_momentary: lufs(1.0),
                max_short_term: lufs(-3.0),
                true_peak: Some(Db::new(-1.04)),
                sample_peak: Some(Db::new(-1.3)),
                current_true_peak: Some(Db::new(-7.0)),
                current_sample_peak: None,
            });
        }
        screen
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(move |x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn the_screen_matches_its_expected_text() {
        let mut screen = screen();
        let mut text = drawn(&screen, 80, 24);
        screen.next_scale();
        text += &drawn(&screen, 80, 12);
        screen.next_scale();
        screen.paused = true;
        text += &drawn(&screen, 48, 16);
        text += &drawn(&Screen::new("pipe:///run/x.fifo", true), 80, 9);
        aulos_blackbox::golden::compare(env!("CARGO_MANIFEST_DIR"), "meter_screen.txt", &text);
    }

    #[test]
    fn every_size_is_drawn() {
        let screen = screen();
        for width in (0..40).chain([80, 200, 1_200]) {
            for height in (0..30).chain([100]) {
                let text = drawn(&screen, width, height);
                assert_eq!(text.lines().count(), usize::from(height));
            }
        }
    }

    #[test]
    fn a_missing_value_is_a_dash_without_a_bar() {
        let mut screen = screen();
        screen.add_reading(Loudness::NONE);
        let text = drawn(&screen, 80, 24);
        let bars: Vec<_> = text.lines().filter(|line| line.contains("LUFS")).take(3).collect();
        assert!(
            bars.iter().all(|bar| bar.contains(" - LUFS") && !bar.contains('\u{2588}')),
            "{text}"
        );
    }
}
