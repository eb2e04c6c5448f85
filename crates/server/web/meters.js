// Meters: one canvas for a whole view, on which only what has changed is painted.
//
// Twenty meters of HTML elements cost a browser three times as much, and a canvas for each costs
// more than one for all. Components leave a gap in the layout, and the canvas over the view paints
// the bars of all gaps.

import { createContext, html, useContext, useEffect, useLayoutEffect, useRef } from "./html.js";
import { channelName, lufs, signed, tenth } from "./format.js";
import { isCalm, link, meters, status } from "./store.js";

/** The scale: EBU +18 (EBU Tech 3341) from -59 LUFS, extended to full scale. */
export const LOW = -59;
const MARKS = [-59, -50, -40, -30, -23, -18, -9, 0];
/** A station without a target is measured against that of R 128. */
const DEFAULT_TARGET = -23;
/** Levels fall 20 dB in 1.7 s (IEC 60268-10, type I); peaks are held. */
const FALL_DB_PER_S = 20 / 1.7, HOLD_MS = 1_500;
/** How fast the bar of M follows its value, which comes ten times a second. */
const FOLLOW_S = 0.07;
const PAINT_INTERVAL_MS = 50, TEXT_INTERVAL_MS = 250, SPOKEN_INTERVAL_MS = 1_000;
const LOUDNESS_HEIGHT = 14, LEVEL_HEIGHT = 5, GAP = 3;
/** More pixels than this are drawn coarser: 48 MB of memory. */
const MAX_PIXELS = 12e6;

const place = db => (Math.max(LOW, Math.min(0, db)) - LOW) / -LOW;
const heightOf = channels => LOUDNESS_HEIGHT + channels * (LEVEL_HEIGHT + GAP);

/** What is shown of one station between two frames. */
class Slot {
  loudness = LOW; shortTerm = null; holds = []; painted = ""; box = null; isVisible = true;

  constructor(station, element, channels) {
    this.station = station;
    this.element = element;
    this.levels = Array(channels).fill(LOW);
    this.target = DEFAULT_TARGET;
  }

  /** Moves what is shown towards the reading; whether it is still moving. */
  advance(reading, now, seconds, isCalmed) {
    const goal = reading?.momentary ?? LOW;
    const rest = isCalmed ? 0 : (this.loudness - goal) * Math.exp(-seconds / FOLLOW_S);
    this.loudness = Math.abs(rest) < 0.1 ? goal : goal + rest;
    this.shortTerm = reading?.shortTerm ?? null;
    const levels = reading?.levels ?? this.levels.map(() => null);
    let moves = this.loudness !== goal;
    this.levels = levels.map((level, index) => {
      const aim = level ?? LOW, fallen = (this.levels[index] ?? LOW) - FALL_DB_PER_S * seconds;
      const shown = reading && !isCalmed ? Math.max(aim, fallen, LOW) : aim;
      const hold = this.holds[index];
      if (!reading) this.holds[index] = undefined;
      else if (!hold || shown >= hold.db || now - hold.since > HOLD_MS) this.holds[index] = { db: shown, since: now };
      moves ||= shown !== aim || (this.holds[index]?.db ?? LOW) > shown;
      return shown;
    });
    return moves;
  }

  paint(context, colors) {
    const { x, y, width } = this.box;
    const at = db => Math.round(place(db) * width);
    const key = [x, y, width, at(this.loudness), this.shortTerm === null ? "" : at(this.shortTerm), this.levels.map(at), this.holds.map(hold => hold ? at(hold.db) : ""), this.target].join();
    if (key === this.painted) return;
    this.painted = key;
    context.clearRect(x - 2, y - 1, width + 4, heightOf(this.levels.length) + 2);
    const bar = (top, height, db, zones) => {
      context.fillStyle = colors.trough;
      context.fillRect(x, top, width, height);
      let from = 0;
      for (const [limit, color] of zones) {
        const to = Math.min(at(limit), at(db));
        if (to > from) {
          context.fillStyle = colors[color];
          context.fillRect(x + from, top, to - from, height);
          from = to;
        }
      }
    };
    const target = this.target ?? DEFAULT_TARGET;
    bar(y, LOUDNESS_HEIGHT, this.loudness, [[Math.min(target + 9, 0), "good"], [Math.min(target + 14, 0), "warm"], [0, "hot"]]);
    if (this.target !== null) {
      context.fillStyle = colors.accent;
      for (let top = 0; top < LOUDNESS_HEIGHT; top += 4) context.fillRect(x + at(this.target) - 1, y + top, 2, 2);
    }
    if (this.shortTerm !== null && this.shortTerm > LOW) {
      context.fillStyle = colors.card;
      context.fillRect(x + at(this.shortTerm) - 2, y, 5, LOUDNESS_HEIGHT);
      context.fillStyle = colors.text;
      context.fillRect(x + at(this.shortTerm) - 1, y, 3, LOUDNESS_HEIGHT);
    }
    this.levels.forEach((db, index) => {
      const top = y + LOUDNESS_HEIGHT + GAP + index * (LEVEL_HEIGHT + GAP), hold = this.holds[index];
      bar(top, LEVEL_HEIGHT, db, [[-9, "level"], [-1, "warm"], [0, "hot"]]);
      if (hold && hold.db > LOW) {
        context.fillStyle = hold.db > -1 ? colors.hot : hold.db > -9 ? colors.warm : colors.text;
        context.fillRect(x + Math.max(0, at(hold.db) - 2), top, 2, LEVEL_HEIGHT);
      }
    });
  }
}

/** The canvas of a view, and the slots on it. */
class MeterCanvas {
  #canvas; #context; #view; #slots = new Set(); #scale = 1; #timer = 0; #last = 0; #measuring = 0; #colors = {};
  #listener = () => this.#start();
  #resized = new ResizeObserver(() => this.measure());
  #seen = new IntersectionObserver(entries => {
    for (const entry of entries) for (const slot of this.#slots) if (slot.element === entry.target) slot.isVisible = entry.isIntersecting;
    this.#start();
  }, { rootMargin: "100px" });
  #dark = matchMedia("(prefers-color-scheme: dark)");
  #recolored = () => this.#repaint();

  constructor(view, canvas) {
    this.#view = view;
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#resized.observe(view);
    this.#dark.addEventListener("change", this.#recolored);
    meters.listeners.add(this.#listener);
  }

  close() {
    meters.listeners.delete(this.#listener);
    this.#resized.disconnect();
    this.#seen.disconnect();
    this.#dark.removeEventListener("change", this.#recolored);
    cancelAnimationFrame(this.#timer);
    cancelAnimationFrame(this.#measuring);
  }

  add(slot) {
    this.#slots.add(slot);
    this.#seen.observe(slot.element);
    this.measure();
    return () => {
      this.#slots.delete(slot);
      this.#seen.unobserve(slot.element);
      this.measure();
    };
  }

  /** Finds the gaps again, before the next painting. */
  measure() {
    if (this.#measuring) return;
    this.#measuring = requestAnimationFrame(() => {
      this.#measuring = 0;
      const view = this.#view.getBoundingClientRect();
      const width = Math.ceil(view.width), height = Math.ceil(view.height);
      const scale = Math.min(devicePixelRatio, Math.sqrt(MAX_PIXELS / Math.max(1, width * height)));
      let moved = false;
      for (const slot of this.#slots) {
        const box = slot.element.getBoundingClientRect();
        const next = { x: Math.round(box.left - view.left), y: Math.round(box.top - view.top), width: Math.round(box.width) };
        moved ||= JSON.stringify(next) !== JSON.stringify(slot.box);
        slot.box = next;
      }
      const resized = this.#canvas.width !== Math.ceil(width * scale) || this.#canvas.height !== Math.ceil(height * scale);
      if (!moved && !resized) return;
      if (resized) {
        this.#canvas.width = Math.ceil(width * scale);
        this.#canvas.height = Math.ceil(height * scale);
        Object.assign(this.#canvas.style, { width: `${width}px`, height: `${height}px` });
      }
      this.#scale = scale;
      this.#repaint();
    });
  }

  #repaint() {
    const style = getComputedStyle(this.#view);
    for (const name of ["good", "level", "warm", "hot", "trough", "accent", "text", "card"]) this.#colors[name] = style.getPropertyValue("--" + name);
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#context.setTransform(this.#scale, 0, 0, this.#scale, 0, 0);
    for (const slot of this.#slots) slot.painted = "";
    this.#paint(0);
  }

  #start() {
    if (this.#timer || document.hidden) return;
    this.#timer = requestAnimationFrame(now => this.#frame(now));
  }

  #frame(now) {
    this.#timer = 0;
    const passed = now - this.#last;
    if (passed < PAINT_INTERVAL_MS - 4) return this.#start();
    this.#last = now;
    if (this.#paint(Math.min(passed, 250) / 1000, now)) this.#start();
  }

  /** Paints what has changed; whether something is still moving. */
  #paint(seconds, now = performance.now()) {
    let moves = false;
    for (const slot of this.#slots) {
      const moving = slot.advance(meters.readings.get(slot.station), now, seconds, isCalm.value);
      if (!slot.isVisible || !slot.box) continue;
      moves ||= moving;
      slot.paint(this.#context, this.#colors);
    }
    return moves && !isCalm.value;
  }
}

const Surface = createContext(null);

/** A view with meters: its content, and the canvas over it. */
export function Metered({ children, label }) {
  const view = useRef(null), canvas = useRef(null), surface = useRef({ canvas: null, waiting: new Set() });
  useLayoutEffect(() => {
    const created = new MeterCanvas(view.current, canvas.current);
    surface.current.canvas = created;
    for (const attach of surface.current.waiting) attach(created);
    return () => created.close();
  }, []);
  // Every status may move the gaps.
  useEffect(() => surface.current.canvas.measure(), [status.value]);
  return html`<${Surface.Provider} value=${surface.current}>
    <div class=${link.value === "connected" ? "metered" : "metered stale"} ref=${view} role="group" aria-label=${label}>
      ${children}<canvas ref=${canvas} aria-hidden="true"></canvas>
    </div></${Surface.Provider}>`;
}

/** The gap for the meter of a station, with its scale. */
export function Meter({ station }) {
  const surface = useContext(Surface), gap = useRef(null), slot = useRef(null);
  const channels = station.levels_dbfs.length || 2, target = station.normalize ? station.normalize.target : null;
  useLayoutEffect(() => {
    const own = new Slot(station.name, gap.current, channels);
    slot.current = own;
    let remove = () => {};
    const attach = canvas => { remove = canvas.add(own); };
    if (surface.canvas) attach(surface.canvas);
    surface.waiting.add(attach);
    return () => { surface.waiting.delete(attach); remove(); };
  }, [station.name, channels]);
  useLayoutEffect(() => { slot.current.target = target; }, [target]);
  // Screen readers drop values that change ten times per second.
  useEffect(() => {
    const speak = () => {
      const value = meters.readings.get(station.name)?.momentary ?? null;
      gap.current?.setAttribute("aria-valuenow", Math.max(LOW, Math.min(0, value ?? LOW)).toFixed(1));
      gap.current?.setAttribute("aria-valuetext", value === null ? "silence" : lufs(value));
    };
    speak();
    const timer = setInterval(speak, SPOKEN_INTERVAL_MS);
    return () => clearInterval(timer);
  }, [station.name]);
  return html`<div class="meter">
    <div class="gap" ref=${gap} role="meter" aria-label=${"Momentary loudness of " + station.name} aria-valuemin=${LOW} aria-valuemax="0" aria-valuenow=${LOW}
      aria-valuetext="silence" style=${{ height: heightOf(channels) + "px" }} title=${`Loudness M with a mark for S${target === null ? "" : " and for the target"}; below, the level of ${station.levels_dbfs.map((_, index) => channelName(index, channels)).join(", ")}`}></div>
    <div class="axis" aria-hidden="true">${MARKS.map(mark => html`<span key=${mark} class=${mark === -50 || mark === -18 ? "minor" : ""} style=${{ left: place(mark) * 100 + "%" }}>${tenth(mark).slice(0, -2)}</span>`)}</div>
  </div>`;
}

/** The figures of a station: short and full name, unit, value, and whether the value is too high. */
const FIGURES = [
  ["M", "Momentary loudness", "LUFS", reading => tenth(reading.momentary)],
  ["S", "Short-term loudness", "LUFS", reading => tenth(reading.shortTerm)],
  ["I", "Integrated loudness", "LUFS", reading => tenth(reading.integrated)],
  ["LRA", "Loudness range", "LU", reading => tenth(reading.range)],
  ["Peak", "Maximum true peak", "dBTP", reading => tenth(reading.maxPeak), reading => reading.maxPeak !== null && reading.maxPeak > -1],
  ["Gain", "Gain of the normalizer", "dB", reading => signed(reading.gain)],
];
const NO_READING = { momentary: null, shortTerm: null, integrated: null, range: null, maxPeak: null, gain: null };

/** Loudness in numbers, at most four times a second. */
export function Figures({ station, only }) {
  const list = useRef(null), gain = Boolean(station.normalize);
  const shown = FIGURES.filter(([label]) => only ? only.includes(label) : gain || label !== "Gain");
  // A layout effect ends with its element; another one ends after it.
  useLayoutEffect(() => {
    let last = 0;
    const write = () => {
      const now = performance.now(), reading = meters.readings.get(station.name);
      if (reading && now - last < TEXT_INTERVAL_MS - 10) return;
      last = now;
      shown.forEach(([, , , text, isHot], index) => {
        const value = list.current.children[index].querySelector("b"), next = text(reading ?? NO_READING);
        if (value.textContent !== next) value.textContent = next;
        value.classList.toggle("hot", Boolean(reading && isHot?.(reading)));
      });
    };
    write();
    meters.listeners.add(write);
    return () => meters.listeners.delete(write);
  }, [station.name, gain]);
  return html`<div class="figures" ref=${list}>${shown.map(([label, name, unit]) => html`<dl key=${label} title=${`${name}, ${unit}`}><dt><span aria-hidden="true">${label} <small>${unit}</small></span><span class="visually-hidden">${name}, ${unit}</span></dt><dd><b></b></dd></dl>`)}</div>`;
}

/** What the bars and marks of the meters are. */
export function MeterLegend() {
  return html`<ul class="marks" aria-label="Marks of the meters">
    <li><span class="swatch momentary" aria-hidden="true"></span>bar: momentary loudness (M)</li><li><span class="swatch now" aria-hidden="true"></span>mark: short-term loudness (S)</li>
    <li><span class="swatch aim" aria-hidden="true"></span>dots: target</li><li><span class="swatch level" aria-hidden="true"></span>thin bars: sample peaks of the channels, the highest held for a moment</li></ul>`;
}
