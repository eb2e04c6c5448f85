//! A picture of differences over time, on a logarithmic scale.

use std::fmt::Write as _;

/// A panel: one case, with a line for each program.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller has measured")]
pub struct PlotPanel {
    /// What was measured.
    pub title: String,
    /// Microseconds for each second since the begin of the sound, of two programs; `NaN` where
    /// there is no figure.
    pub lines: [Vec<f64>; 2],
}

/// Draws panels two in a row, as SVG for light and dark pages. `names` are those of the programs.
#[must_use]
pub fn draw(panels: &[PlotPanel], names: [&str; 2], description: &str) -> String {
    let rows = panels.len().div_ceil(2);
    let (width, height) = (2 * PANEL_WIDTH, rows * PANEL_HEIGHT + HEAD);
    let seconds = panels.iter().flat_map(|panel| &panel.lines).map(Vec::len).max().unwrap_or(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"t d\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title id=\"t\">Difference between two players over time</title>\n\
         <desc id=\"d\">{description}</desc>\n{STYLE}\n\
         <rect class=\"bg\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (number, name) in names.iter().enumerate() {
        let x = LEFT + number * 220;
        let to = x + 24;
        let text = to + 6;
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<path class=\"p{number}\" d=\"M{x} 20H{to}\"/><text x=\"{text}\" y=\"24\">{name}</text>"
        );
    }
    for (number, panel) in panels.iter().enumerate() {
        let (x, y) = (number % 2 * PANEL_WIDTH, number / 2 * PANEL_HEIGHT + HEAD);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(panel, seconds, &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(panel: &PlotPanel, seconds: usize, svg: &mut String) {
    let bottom = TOP + GRAPH_HEIGHT;
    let right = LEFT + GRAPH_WIDTH;
    let _ = writeln!(svg, "<text class=\"h\" x=\"{LEFT}\" y=\"14\">{}</text>", panel.title);
    for (exponent, label) in DECADES.iter().enumerate() {
        let y = y_of(10_f64.powi(i32::try_from(exponent).unwrap_or(0)));
        let (x, base) = (LEFT - 6, y + 4.0);
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"e\" x=\"{x}\" y=\"{base:.1}\">{label}</text>"
        );
    }
    let is_readable = |step: &usize| seconds / step <= MAX_LABELS;
    let step = SECOND_STEPS.into_iter().find(is_readable).unwrap_or(seconds + 1);
    for second in (0..=seconds).step_by(step) {
        let x = x_of(second, seconds);
        let y = bottom + 16;
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
             <text class=\"m\" x=\"{x:.1}\" y=\"{y}\">{second} s</text>"
        );
    }
    for (number, line) in panel.lines.iter().enumerate().rev() {
        let mut path = String::new();
        let mut is_drawing = false;
        for (second, value) in line.iter().enumerate() {
            if value.is_nan() {
                is_drawing = false;
                continue;
            }
            let letter = if is_drawing { 'L' } else { 'M' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x_of(second, seconds), y_of(*value));
            is_drawing = true;
        }
        let _ = writeln!(svg, "<path class=\"p{number}\" d=\"{path}\"/>");
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn x_of(second: usize, seconds: usize) -> f64 {
    LEFT as f64 + GRAPH_WIDTH as f64 * second as f64 / seconds as f64
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn y_of(micros: f64) -> f64 {
    let decades = DECADES.len() as f64 - 1.0;
    let height = micros.max(1.0).log10().min(decades) / decades;
    (TOP + GRAPH_HEIGHT) as f64 - GRAPH_HEIGHT as f64 * height
}

/// The scale, from 1 us on.
const DECADES: [&str; 6] = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"];

/// Between labels of the seconds, and how many of them have room.
const SECOND_STEPS: [usize; 7] = [5, 10, 20, 30, 60, 300, 600];
const MAX_LABELS: usize = 8;

const HEAD: usize = 36;
const PANEL_WIDTH: usize = 460;
const PANEL_HEIGHT: usize = 230;
const GRAPH_WIDTH: usize = 380;
const GRAPH_HEIGHT: usize = 170;
const LEFT: usize = 60;
const TOP: usize = 22;

const STYLE: &str = "<style>\n\
    svg { --bg: #ffffff; --fg: #1f2328; --grid: #d0d7de; --one: #0969da; --two: #bc4c00; }\n\
    @media (prefers-color-scheme: dark) { svg { --bg: #0d1117; --fg: #e6edf3; --grid: #30363d; \
    --one: #58a6ff; --two: #f0883e; } }\n\
    .bg { fill: var(--bg); } text { fill: var(--fg); } .h { font-weight: 600; }\n\
    .e { text-anchor: end; } .m { text-anchor: middle; } .g { stroke: var(--grid); }\n\
    .p0, .p1 { fill: none; stroke-width: 1.6; } .p0 { stroke: var(--one); } \
    .p1 { stroke: var(--two); stroke-dasharray: 5 2; }\n</style>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_room_for_their_labels() {
        for (seconds, labels) in [(30, 7), (75, 8), (90, 5), (180, 7), (3_000, 6), (90_000, 1)] {
            let lines = [vec![1.0; seconds], vec![]];
            let panel = PlotPanel { title: String::new(), lines };
            let svg = draw(&[panel], ["one", "other"], "text");
            assert_eq!(svg.matches(" s</text>").count(), labels, "{seconds} s");
        }
    }

    #[test]
    fn a_panel_has_a_line_for_each_program() {
        let lines = [vec![1.0, 10.0, f64::NAN, 100_000.0], vec![1e9]];
        let panel = PlotPanel { title: "loopback".to_owned(), lines };
        let svg = draw(&[panel], ["one", "other"], "text");
        // The ends of the scale, and a gap.
        assert!(svg.contains("d=\"M60.0 192.0L155.0 158.0M345.0 22.0\""), "{svg}");
        assert!(svg.contains("d=\"M60.0 22.0\"") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
