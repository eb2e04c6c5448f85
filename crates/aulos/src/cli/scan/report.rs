//! `--report`: one HTML page with all results.
//!
//! The charts are drawn by hand: a plotting library would bring its own fonts and colors, and only
//! two lines and a few marks are needed.

use core::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use aulos_core::{Db, Lufs};
use aulos_files::scan::{LoudnessCurve, LoudnessSummary, ScanReport};

use super::output::plain;
use super::target::LoudnessTarget;

/// The page in the making.
#[derive(Debug)]
pub(super) struct ReportPage {
    target: LoudnessTarget,
    ceiling: Db,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    error: Option<String>,
    seconds: f64,
    loudness: LoudnessSummary,
    gain: Option<Db>,
    curve: LoudnessCurve,
}

impl ReportPage {
    pub(super) fn new(target: LoudnessTarget, ceiling: Option<Db>) -> Self {
        Self { target, ceiling: ceiling.unwrap_or(CEILING), entries: Vec::new() }
    }

    pub(super) fn add(&mut self, report: &mut ScanReport, error: Option<String>, gain: Option<Db>) {
        self.entries.push(Entry {
            name: plain(&report.path.to_string_lossy()),
            error,
            seconds: report.shape.map_or(0.0, |shape| shape.seconds),
            loudness: report.loudness,
            gain,
            curve: core::mem::take(&mut report.curve),
        });
    }

    /// Writes the page atomically.
    pub(super) fn write(mut self, path: &Path) -> io::Result<()> {
        let middle = self.median();
        let mut order: Vec<(Vec<String>, Entry)> = Vec::new();
        for entry in self.entries.drain(..) {
            order.push((remarks(&entry, middle, self.ceiling), entry));
        }
        // Files with remarks first, then in the order of the scan.
        order.sort_by_key(|(remarks, entry)| (remarks.is_empty(), entry.error.is_none()));
        let html = self.html(&order, middle);
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        fs::write(&part, html)?;
        fs::rename(&part, path)
    }

    /// The median loudness.
    fn median(&self) -> Option<f64> {
        let loud = self.entries.iter().filter_map(|it| it.loudness.integrated.map(Lufs::get));
        let mut loud: Vec<f64> = loud.collect();
        loud.sort_by(f64::total_cmp);
        loud.get(loud.len() / 2).copied()
    }

    fn html(&self, order: &[(Vec<String>, Entry)], middle: Option<f64>) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Loudness of {} file(s)</title>\n<style>{STYLE}</style>\n<main>\n\
             <h1>Loudness report</h1>\n",
            order.len()
        );
        self.summary(&mut out, order, middle);
        self.table(&mut out, order);
        out += "<h2>Curves</h2>\n<p class=\"key\"><span class=\"m\">momentary (400 ms)</span> \
                <span class=\"s\">short-term (3 s)</span> <span class=\"i\">integrated</span> \
                <span class=\"p\">peak above the ceiling</span></p>\n<div class=\"cards\">\n";
        for (n, (remarks, entry)) in order.iter().enumerate() {
            if n < MAX_CURVES && !entry.curve.momentary.is_empty() {
                self.card(&mut out, n, remarks, entry);
            }
        }
        out += "</div>\n";
        if order.len() > MAX_CURVES {
            let _ = writeln!(out, "<p>Curves of the first {MAX_CURVES} files of the table.</p>");
        }
        let _ = writeln!(
            out,
            "<footer>ITU-R BS.1770-4, EBU R 128. Made by aulos {}.</footer>\n</main>\n\
             <script>{SCRIPT}</script>\n</html>",
            env!("CARGO_PKG_VERSION")
        );
        out
    }

    fn summary(&self, out: &mut String, order: &[(Vec<String>, Entry)], middle: Option<f64>) {
        let failed = order.iter().filter(|(_, it)| it.error.is_some()).count();
        let outliers = order.iter().filter(|(remarks, _)| !remarks.is_empty()).count() - failed;
        let seconds: f64 = order.iter().map(|(_, it)| it.seconds).sum();
        let loud = || order.iter().filter_map(|(_, it)| it.loudness.integrated.map(Lufs::get));
        let (least, most) =
            loud().fold((f64::MAX, f64::MIN), |(a, b), lufs| (a.min(lufs), b.max(lufs)));
        let spread = middle.map_or_else(|| "-".into(), |_| format!("{:.1}", most - least));
        let tiles = [
            (order.len().to_string(), "files"),
            (clock(seconds), "of sound"),
            (cell(middle), "LUFS in the middle"),
            (spread, "LU from softest to loudest"),
            (cell(Some(self.target.lufs().get())), "LUFS is the target"),
            (outliers.to_string(), "to look at"),
            (failed.to_string(), "failed"),
        ];
        *out += "<div class=\"tiles\">";
        for (value, label) in tiles {
            let bad = (label == "failed" || label == "to look at") && value != "0";
            let class = if bad { " class=\"bad\"" } else { "" };
            let _ = write!(out, "<div{class}><b>{value}</b><span>{label}</span></div>");
        }
        *out += "</div>\n";
    }

    fn table(&self, out: &mut String, order: &[(Vec<String>, Entry)]) {
        *out += "<h2>Files</h2>\n<div class=\"wide\"><table id=\"files\"><thead><tr>";
        for head in ["File", "I LUFS", "LRA LU", "Max M", "Max S", "Peak dB", "Gain dB", "Length"] {
            let _ = write!(out, "<th><button type=\"button\">{head}</button></th>");
        }
        *out += "</tr></thead><tbody>\n";
        for (n, (remarks, entry)) in order.iter().enumerate() {
            let it = &entry.loudness;
            let peak = it.true_peak.or(it.sample_peak).map(Db::get);
            let class = match (&entry.error, remarks.is_empty()) {
                (Some(_), _) => " class=\"failed\"",
                (None, false) => " class=\"odd\"",
                _ => "",
            };
            let name = escaped(&entry.name);
            let name = if n < MAX_CURVES && !entry.curve.momentary.is_empty() {
                format!("<a href=\"#f{n}\">{name}</a>")
            } else {
                name
            };
            let _ = write!(out, "<tr{class}><td data-v=\"{n}\">{name}");
            for remark in remarks {
                let _ = write!(out, "<small>{}</small>", escaped(remark));
            }
            *out += "</td>";
            let figures = [
                it.integrated.map(Lufs::get),
                it.range.map(Db::get),
                it.max_momentary.map(Lufs::get),
                it.max_short_term.map(Lufs::get),
                peak,
                entry.gain.map(Db::get),
            ];
            for figure in figures {
                let value = figure.map_or_else(String::new, |it| format!("{it:.3}"));
                let _ = write!(out, "<td data-v=\"{value}\">{}</td>", cell(figure));
            }
            let _ = writeln!(
                out,
                "<td data-v=\"{:.3}\">{}</td></tr>",
                entry.seconds,
                clock(entry.seconds)
            );
        }
        *out += "</tbody></table></div>\n";
    }

    fn card(&self, out: &mut String, n: usize, remarks: &[String], entry: &Entry) {
        let _ = write!(out, "<section id=\"f{n}\"><h3>{}</h3><p>", escaped(&entry.name));
        let it = &entry.loudness;
        let peak = it.true_peak.or(it.sample_peak).map(Db::get);
        let figures = [
            ("", it.integrated.map(Lufs::get), " LUFS, "),
            ("range ", it.range.map(Db::get), " LU, "),
            ("peak ", peak, " dB, "),
        ];
        for (name, figure, unit) in figures {
            if let Some(figure) = figure {
                let _ = write!(out, "{name}{figure:.1}{unit}");
            }
        }
        *out += &clock(entry.seconds);
        for remark in remarks {
            let _ = write!(out, " <em>{}</em>", escaped(remark));
        }
        *out += "</p>";
        self.picture(out, entry);
        *out += "</section>\n";
    }

    fn picture(&self, out: &mut String, entry: &Entry) {
        let Entry { curve, loudness, seconds, .. } = entry;
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"loudness over time\">"
        );
        for lufs in [-50.0, -40.0, -30.0, -20.0, -10.0] {
            let y = height(lufs);
            let _ = write!(
                out,
                "<path class=\"g\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/><text x=\"{}\" y=\"{:.1}\">\
                 {lufs:.0}</text>",
                LEFT - 5.0,
                y + 4.0
            );
        }
        for (n, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
            let _ = write!(
                out,
                "<text class=\"t\" text-anchor=\"{anchor}\" x=\"{:.0}\" y=\"{}\">{}</text>",
                LEFT + n * (WIDTH - LEFT),
                HEIGHT - 4.0,
                clock(n * seconds)
            );
        }
        line(out, "m", &curve.momentary);
        line(out, "s", &curve.short_term);
        if let Some(lufs) = loudness.integrated {
            let y = height(lufs.get());
            let _ = write!(out, "<path class=\"i\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/>");
        }
        let limit = self.ceiling.amplitude();
        let steps = curve.peak.len();
        let mut columns: Vec<u32> = Vec::new();
        for n in (0..steps).filter(|&n| f64::from(curve.peak[n]) > limit) {
            columns.push(column(n, steps));
        }
        columns.dedup();
        for x in columns {
            let _ = write!(out, "<path class=\"p\" d=\"M{x} 0v9\"/>");
        }
        *out += "</svg>";
    }
}

/// Remarks about a file.
fn remarks(entry: &Entry, middle: Option<f64>, ceiling: Db) -> Vec<String> {
    let mut remarks: Vec<String> = entry.error.clone().into_iter().collect();
    let it = &entry.loudness;
    if let Some(peak) = it.true_peak.or(it.sample_peak)
        && peak.get() > ceiling.get()
    {
        remarks.push(format!("peak {:.1} dB is above {:.1} dB", peak.get(), ceiling.get()));
    }
    match (it.integrated.map(Lufs::get), middle) {
        (Some(lufs), Some(middle)) if (lufs - middle).abs() > OUTLIER_LU => {
            let way = if lufs > middle { "louder" } else { "softer" };
            remarks.push(format!("{:.1} LU {way} than the middle", (lufs - middle).abs()));
        }
        (None, _) if entry.error.is_none() => remarks.push("silent".into()),
        _ => {}
    }
    remarks
}

/// A line through the greatest value of each column.
fn line(out: &mut String, class: &str, values: &[f32]) {
    let mut points: Vec<(u32, f32)> = Vec::new();
    for (n, value) in values.iter().enumerate() {
        let x = column(n, values.len());
        match points.last_mut() {
            Some((last, most)) if *last == x => *most = most.max(*value),
            _ => points.push((x, *value)),
        }
    }
    let _ = write!(out, "<path class=\"{class}\" d=\"");
    for (n, (x, value)) in points.iter().enumerate() {
        let verb = if n == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{verb}{x} {:.1}", height(f64::from(*value)));
    }
    *out += "\"/>";
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "within the picture"
)]
fn column(n: usize, of: usize) -> u32 {
    (LEFT + (n as f64 + 0.5) / of.max(1) as f64 * (WIDTH - LEFT)) as u32
}

/// The distance from the top: 0 LUFS is at the top of the scale, -60 at its bottom.
fn height(lufs: f64) -> f64 {
    let depth = (-lufs.max(LOWEST)).max(0.0) / -LOWEST;
    depth * (HEIGHT - 20.0)
}

fn cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".into(), |figure| format!("{figure:.1}"))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length of sound")]
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (h, m, s) = (whole / 3600, whole / 60 % 60, whole % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Direction overrides would reverse the following text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The default ceiling, from EBU R 128.
const CEILING: Db = Db::new(-1.0);
/// Deviation from the median that makes a file an outlier, in LU.
const OUTLIER_LU: f64 = 3.0;
/// Limit of charts; a page with more is slow to open.
const MAX_CURVES: usize = 500;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 34.0;
const LOWEST: f64 = -60.0;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_and_never_markup() {
        let name = "<script>alert(\"1\")</script>&'\u{202e}.wav";
        let safe = escaped(name);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{202e}']), "{safe}");
        assert!(safe.contains("&lt;script&gt;") && safe.contains("&amp;&#39;"), "{safe}");
    }

    #[test]
    fn a_picture_stays_within_its_frame() {
        for lufs in [f64::NEG_INFINITY, -90.0, -23.0, 0.0, 12.0] {
            assert!((0.0..=HEIGHT).contains(&height(lufs)), "{lufs}");
        }
        for of in [1, 7, 86_400] {
            assert!(f64::from(column(0, of)) >= LEFT && f64::from(column(of - 1, of)) <= WIDTH);
        }
    }

    #[test]
    fn lengths_are_read_as_on_a_clock() {
        assert_eq!(
            [0.0, 59.6, 3_600.0, 90_061.0].map(clock),
            ["0:00", "1:00", "1:00:00", "25:01:01"]
        );
    }
}
