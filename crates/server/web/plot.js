// The plot of a history: one canvas, painted whole. A thousand points take a few milliseconds, so
// there is nothing to keep between two paintings.

import { tenth, two } from "./format.js";

/** The scale in LUFS, and its lines. */
const LOW = -50, HIGH = 0, LINES = [-40, -30, -20, -10];
/** Space for the labels, and the height of the strips that mark states. */
const LEFT = 34, RIGHT = 2, TOP = 10, BOTTOM = 22, STRIP = 4;
const LABEL_WIDTH = 64;
/** Seconds between two labels of time. */
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 604_800];
const DAY = 86_400;

/** States with the colors of their band and strip, the most important last. */
export const STATES = [
  { key: "absent", label: "not measured", band: null, strip: "line" },
  { key: "silent", label: "silent", band: "raised", strip: "dim" },
  { key: "fallback", label: "on fallback", band: "attention-ground", strip: "warm" },
  { key: "last_resort", label: "last resort", band: "broken-ground", strip: "hot" },
  { key: "stopped", label: "stopped", band: "broken-ground", strip: "hot" },
];

const local = time => new Date(time * 1000);
const date = day => day.toLocaleDateString("en-GB", { day: "numeric", month: "short" });

/** A time of day, with seconds or the date where the step needs them. */
export function timeText(time, step, withDate = false) {
  const at = local(time);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}${step < 60 ? `:${two(at.getSeconds())}` : ""}`;
  if (step >= DAY) return date(at);
  return withDate ? `${date(at)}, ${clock}` : clock;
}

/** The answer of the server with functions of its columns. */
export function readSeries(answer) {
  const { columns, start, step_s: step, flags: names } = answer;
  const bits = Object.fromEntries(names.map((name, bit) => [name, 1 << bit]));
  const count = columns.flags.length;
  const has = (index, name) => (columns.flags[index] & bits[name]) !== 0;
  const stateOf = index => {
    if (columns.measured[index] === 0) return "absent";
    return ["stopped", "last_resort", "fallback", "silent"].find(name => has(index, name)) ?? "";
  };
  return {
    ...answer, step, count, has, stateOf,
    max: columns.momentary_max_lufs, min: columns.momentary_min_lufs, shortTerm: columns.short_term_lufs,
    integrated: columns.integrated_lufs, peak: columns.true_peak_dbtp, gain: columns.gain_db, measured: columns.measured,
    timeOf: index => start + index * step,
    indexAt: time => Math.max(0, Math.min(count - 1, Math.floor((time - start) / step))),
  };
}

/** Where times and levels are on a canvas of this size, in CSS pixels. */
export function geometry(width, height, { from, to }) {
  const right = Math.max(LEFT + 1, width - RIGHT), bottom = height - BOTTOM;
  return {
    left: LEFT, right, top: TOP, bottom,
    x: time => LEFT + (time - from) / (to - from) * (right - LEFT),
    y: level => TOP + (HIGH - Math.max(LOW, Math.min(HIGH, level))) / (HIGH - LOW) * (bottom - TOP),
    time: x => from + Math.max(0, Math.min(1, (x - LEFT) / (right - LEFT))) * (to - from),
  };
}

/** Runs of points with the same value of `of`; nothing for a value that is false. */
function runs(series, of) {
  const found = [];
  for (let index = 0; index < series.count; index += 1) {
    const value = of(index), last = found.at(-1);
    if (!value) continue;
    if (last?.value === value && last.end === index) last.end = index + 1;
    else found.push({ value, begin: index, end: index + 1 });
  }
  return found;
}

/** Paints a series; `colors` has the colors of the page by their names. */
export function paint(canvas, series, target, colors) {
  const { clientWidth: width, clientHeight: height } = canvas, scale = Math.min(devicePixelRatio, 3);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d"), place = geometry(width, height, series);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.save();
  context.beginPath();
  context.rect(place.left, 0, place.right - place.left, height);
  context.clip();
  paintStates(context, series, place, colors);
  context.restore();
  paintScale(context, place, target, colors);
  paintTimes(context, series, place, colors);
  context.save();
  context.beginPath();
  context.rect(place.left, place.top, place.right - place.left, place.bottom - place.top);
  context.clip();
  paintMomentary(context, series, place, colors);
  paintLine(context, series, series.integrated, place, colors.accent, 1.25);
  paintLine(context, series, series.shortTerm, place, colors.good, 1.75);
  context.restore();
}

function paintStates(context, series, { x, top, bottom }, colors) {
  const bands = runs(series, series.stateOf);
  for (const { value, begin, end } of bands) {
    const { band, strip } = STATES.find(state => state.key === value);
    const left = x(series.timeOf(begin));
    // What is shorter than a pixel is still seen.
    const width = Math.max(1.5, x(series.timeOf(end)) - left);
    context.fillStyle = colors[band] ?? colors[strip];
    context.globalAlpha = band ? 1 : 0.35;
    context.fillRect(left, top, width, bottom - top);
    context.globalAlpha = 1;
    context.fillStyle = colors[strip];
    context.fillRect(left, top - STRIP, width, STRIP);
  }
  for (const [name, y, height] of [["recording", bottom, 3], ["over", top, 5]]) {
    context.fillStyle = colors.hot;
    for (const { begin, end } of runs(series, index => series.has(index, name))) {
      const left = x(series.timeOf(begin));
      context.fillRect(left, y, Math.max(1.5, x(series.timeOf(end)) - left), height);
    }
  }
}

function paintScale(context, { left, right, y }, target, colors) {
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const level of [HIGH, ...LINES, LOW]) {
    const at = Math.round(y(level)) + 0.5;
    context.fillStyle = colors.line;
    context.fillRect(left, at - 0.5, right - left, 1);
    // The mark of the target takes the place of a label beside it.
    if (Math.abs(level - target) < 4) continue;
    context.fillStyle = colors.dim;
    context.fillText(tenth(level).slice(0, -2), left - 7, at);
  }
  context.strokeStyle = context.fillStyle = colors.text;
  context.setLineDash([2, 4]);
  context.globalAlpha = 0.75;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(left, Math.round(y(target)) + 0.5);
  context.lineTo(right, Math.round(y(target)) + 0.5);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
  context.fillText(tenth(target).replace(/\.0$/, ""), left - 7, y(target));
}

function paintTimes(context, { from, to }, { left, right, bottom, x }, colors) {
  const wanted = (to - from) * LABEL_WIDTH / Math.max(1, right - left);
  const step = TICKS.find(tick => tick >= wanted) ?? TICKS.at(-1);
  // Full hours and days are those of the reader's clock.
  const offset = local((from + to) / 2).getTimezoneOffset() * 60;
  context.textBaseline = "top";
  for (let time = Math.ceil((from - offset) / step) * step + offset; time <= to; time += step) {
    const at = Math.round(x(time)), isMidnight = (time - offset) % DAY === 0;
    const text = timeText(time, isMidnight && step >= 60 ? DAY : step), half = context.measureText(text).width / 2;
    context.fillStyle = colors.line;
    context.fillRect(at, bottom, 1, 4);
    context.fillStyle = isMidnight ? colors.text : colors.dim;
    context.textAlign = "center";
    if (at - half >= left - 16 && at + half <= right + 2) context.fillText(text, at, bottom + 7);
  }
}

/** The range of M of each point as an area. */
function paintMomentary(context, series, { x, y, bottom }, colors) {
  context.fillStyle = colors.level;
  context.globalAlpha = 0.55;
  for (const { begin, end } of runs(series, index => series.max[index] !== null)) {
    context.beginPath();
    for (let index = begin; index < end; index += 1) {
      context.lineTo(x(series.timeOf(index)), y(series.max[index]) - 0.5);
      context.lineTo(x(series.timeOf(index + 1)), y(series.max[index]) - 0.5);
    }
    for (let index = end - 1; index >= begin; index -= 1) {
      const low = series.min[index] === null ? bottom : y(series.min[index]) + 0.5;
      context.lineTo(x(series.timeOf(index + 1)), low);
      context.lineTo(x(series.timeOf(index)), low);
    }
    context.fill();
  }
  context.globalAlpha = 1;
}

function paintLine(context, series, values, { x, y }, color, width) {
  context.strokeStyle = color;
  context.lineWidth = width;
  context.lineJoin = context.lineCap = "round";
  context.beginPath();
  for (const { begin, end } of runs(series, index => values[index] !== null)) {
    context.moveTo(x(series.timeOf(begin)), y(values[begin]));
    for (let index = begin; index < end; index += 1) context.lineTo(x(series.timeOf(index + 0.5)), y(values[index]));
    context.lineTo(x(series.timeOf(end)), y(values[end - 1]));
  }
  context.stroke();
}
