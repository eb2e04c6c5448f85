// The history of a station's loudness: a plot, the values under a cursor, and a table.

import { tenth } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { STATES, geometry, paint, readSeries, timeText } from "./plot.js";
import { isCalm, link, route, stationLink } from "./store.js";

/** Key in the address, label, seconds. */
const RANGES = [["1min", "1 min", 60], ["10min", "10 min", 600], ["1h", "1 h", 3_600], ["24h", "24 h", 86_400], ["7d", "7 d", 604_800], ["30d", "30 d", 2_592_000]];
const DEFAULT_RANGE = RANGES[2];
/** The range at which a history that has just begun is shown. */
const SHORT_RANGE = RANGES[1];
/** The shortest range to zoom to, in seconds, and the shortest drag, in pixels. */
const SHORTEST = 10, SHORTEST_DRAG = 6;
/** Limits of the server, and of the time between two readings in milliseconds. */
const MOST_POINTS = 2_000, LONGEST = 3_660 * 86_400, SLOWEST_MS = 60_000, CALM_MS = 5_000;
/** A station without a target is measured against that of R 128. */
const DEFAULT_TARGET = -23;
const TABLE_ROWS = 12;
/** Measures of the time to draw, one for each visit, that the browser keeps. */
const MOST_MEASURES = 100;
const COLORS = ["good", "level", "warm", "hot", "accent", "text", "dim", "line", "raised", "attention-ground", "broken-ground"];

/** `{ key, from, to, span }` of the address; a range up to now has no `from`. `opens` is the range of an address that names none. */
function viewOf(query, opens) {
  const params = Object.fromEntries(new URLSearchParams(query)), from = Number(params.from), to = Number(params.to);
  if (Number.isInteger(from) && Number.isInteger(to) && from > 0 && to - from >= SHORTEST && to - from <= LONGEST) return { key: "", from, to, span: to - from };
  const [key, , span] = RANGES.find(([one]) => one === params.range) ?? RANGES.find(([one]) => one === opens);
  return { key, span };
}

/** The newest series of a view, read again while it moves on; `problem` in place of it. */
function useSeries(name, { from, to, span }, canvas) {
  const [found, setFound] = useState({ series: null, problem: "" });
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0, isFirst = true;
    const points = Math.max(60, Math.min(MOST_POINTS, canvas.current.clientWidth));
    const pause = Math.max(isCalm.value ? CALM_MS : 1_000, Math.min(SLOWEST_MS, span * 1_000 / points));
    const read = async () => {
      const start = performance.now();
      try {
        const range = from ? `from=${from}&to=${to}` : `from=-${span}`;
        const response = await fetch(`api/v1/stations/${encodeURIComponent(name)}/history?${range}&points=${points}`, { signal: ending.signal });
        if (!response.ok) setFound({ series: null, problem: (await response.text()).trim() });
        else setFound({ series: { ...readSeries(await response.json()), started: isFirst ? start : null }, problem: "" });
      } catch (error) {
        if (error.name === "AbortError") return;
        setFound(last => ({ ...last, problem: "no connection to the server" }));
      }
      isFirst = false;
      if (ending.signal.aborted) return;
      // A range of the past does not change.
      if (!from || to * 1000 > Date.now() - 60_000) timer = setTimeout(next, pause);
    };
    const next = () => { if (document.hidden) timer = setTimeout(next, pause); else read(); };
    read();
    return () => { ending.abort(); clearTimeout(timer); };
  }, [name, from, to, span, link.value === "connected"]);
  return found;
}

function stateText(series, index) {
  const { label } = STATES.find(state => state.key === series.stateOf(index)) ?? { label: "" };
  return [label, series.has(index, "over") && "over", series.has(index, "recording") && "recording"].filter(Boolean).join(", ");
}

/** What was measured at a point, as text. */
function pointText(series, index) {
  const time = timeText(series.timeOf(index), series.step, true), state = stateText(series, index);
  if (series.measured[index] === 0) return `${time}: not measured`;
  const low = series.min[index], high = series.max[index];
  const values = high === null ? [] : [
    low === high ? `M ${tenth(high)}` : `M ${low === null ? "silence" : tenth(low)} to ${tenth(high)}`, `S ${tenth(series.shortTerm[index])}`,
    `I ${tenth(series.integrated[index])}`, `peak ${tenth(series.peak[index])}`,
  ];
  if (series.gain[index] !== null) values.push(`gain ${tenth(series.gain[index])}`);
  return `${time}: ${[...values, state].filter(Boolean).join(" \u00b7 ")}`;
}

const least = values => values.reduce((low, value) => value === null || (low !== null && low <= value) ? low : value, null);
const greatest = values => values.reduce((high, value) => value === null || (high !== null && high >= value) ? high : value, null);

/** One sentence about the whole plot, for readers who do not see it. */
function summary(name, series) {
  const high = greatest(series.max), integrated = series.integrated.findLast(value => value !== null) ?? null;
  const states = STATES.filter(({ key }) => series.columns.flags.some((_, index) => series.stateOf(index) === key)).map(({ label }) => label);
  const text = high === null ? "no loudness" : `momentary loudness from ${tenth(least(series.min))} to ${tenth(high)} LUFS, integrated loudness ${tenth(integrated)} LUFS`;
  return `History of ${name}, ${timeText(series.from, series.step, true)} to ${timeText(series.to, series.step, true)}: ${text}${states.length > 0 ? `; at times ${states.join(", ")}` : ""}`;
}

function Table({ series }) {
  const size = Math.max(1, Math.ceil(series.count / TABLE_ROWS));
  const rows = Array.from({ length: Math.ceil(series.count / size) }, (_, row) => {
    const begin = row * size, end = Math.min(series.count, begin + size), part = values => values.slice(begin, end);
    const energies = part(series.shortTerm).filter(value => value !== null).map(value => 10 ** (value / 10));
    const mean = energies.length > 0 ? 10 * Math.log10(energies.reduce((sum, one) => sum + one, 0) / energies.length) : null;
    const states = new Set(part(series.measured).map((_, index) => stateText(series, begin + index)).filter(Boolean));
    return [timeText(series.timeOf(begin), series.step, true), tenth(greatest(part(series.max))), tenth(mean), tenth(part(series.integrated).findLast(value => value !== null) ?? null), tenth(greatest(part(series.peak))), [...states].join("; ")];
  });
  return html`<div class="table" tabindex="0" role="region" aria-label="History as a table"><table><thead><tr>${["From", "M max", "S mean", "I", "Peak", "State"].map(head => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows.map(([time, ...cells]) => html`<tr key=${time}><th scope="row">${time}</th>${cells.map((cell, index) => html`<td key=${index}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

function Legend({ series }) {
  const seen = new Set(series ? series.columns.flags.map((_, index) => series.stateOf(index)) : []);
  const has = name => series?.columns.flags.some((_, index) => series.has(index, name));
  const items = [["momentary", "M"], ["short", "S"], ["integrated", "I"], ["target", "target"], ...STATES.filter(({ key }) => seen.has(key)).map(({ key, label }) => [key, label])];
  if (has("over")) items.push(["over", "true peak over"]);
  if (has("recording")) items.push(["recording", "recording"]);
  return html`<ul class="legend">${items.map(([kind, label]) => html`<li key=${kind}><span class=${"swatch " + kind} aria-hidden="true"></span>${label}</li>`)}</ul>`;
}

export function History({ station }) {
  // A server that has just been started would show an hour with a line at its end.
  const [opens, setOpens] = useState(DEFAULT_RANGE[0]);
  const { name } = station, view = viewOf(route.value.query, opens), canvas = useRef(null), plot = useRef(null), drag = useRef(null);
  const [cursor, setCursor] = useState(null), [marked, setMarked] = useState(null), [isTable, setTable] = useState(false);
  const { series, problem } = useSeries(name, view, canvas);
  const target = station.normalize ? station.normalize.target : DEFAULT_TARGET;
  const rangeLink = key => stationLink(name) + (key === opens ? "" : "?range=" + key);
  useEffect(() => {
    if (!series || route.value.query) return;
    const first = series.measured.findIndex(count => count > 0);
    const [key, , span] = SHORT_RANGE, age = first < 0 ? 0 : series.to - series.timeOf(first);
    if (age < span) setOpens(key);
  }, [series !== null]);
  const spanLink = (from, to) => {
    const latest = Math.ceil(Date.now() / 1000), span = Math.round(Math.max(SHORTEST, Math.min(LONGEST, to - from)));
    const end = Math.max(span + 1, Math.min(Math.round(Math.max(to, from + span)), latest));
    return `${stationLink(name)}?from=${end - span}&to=${end}`;
  };
  const show = address => { location.hash = address; };

  const draw = useRef(null);
  useLayoutEffect(() => {
    draw.current = () => {
      // The observer may still report a canvas that another view has replaced.
      if (!series || !canvas.current) return;
      const style = getComputedStyle(canvas.current);
      paint(canvas.current, series, target, Object.fromEntries(COLORS.map(color => [color, style.getPropertyValue("--" + color)])));
    };
    draw.current();
    // Not for each reading of a range that moves on: the browser keeps every measure.
    if (!series?.started) return;
    if (performance.getEntriesByType("measure").length >= MOST_MEASURES) performance.clearMeasures();
    performance.measure(`history ${series.to - series.from}`, { start: series.started });
  }, [series, target]);
  useEffect(() => {
    const again = () => draw.current(), resized = new ResizeObserver(again), dark = matchMedia("(prefers-color-scheme: dark)");
    resized.observe(canvas.current);
    dark.addEventListener("change", again);
    return () => { resized.disconnect(); dark.removeEventListener("change", again); };
  }, []);

  const place = () => geometry(canvas.current.clientWidth, canvas.current.clientHeight, series);
  const timeAt = event => place().time(event.clientX - canvas.current.getBoundingClientRect().left);
  const down = event => {
    if (!series || event.button !== 0) return;
    drag.current = { x: event.clientX, time: timeAt(event) };
    plot.current.setPointerCapture(event.pointerId);
  };
  const move = event => {
    if (!series) return;
    const time = timeAt(event), start = drag.current;
    setCursor(time);
    setMarked(start && Math.abs(event.clientX - start.x) >= SHORTEST_DRAG ? [Math.min(start.time, time), Math.max(start.time, time)] : null);
  };
  const up = () => {
    drag.current = null;
    setMarked(null);
    if (marked) show(spanLink(...marked));
  };
  const cancel = () => { drag.current = null; setMarked(null); };
  const zoom = factor => {
    const middle = cursor !== null && cursor > series.from && cursor < series.to ? cursor : (series.from + series.to) / 2;
    return spanLink(middle - (middle - series.from) * factor, middle + (series.to - middle) * factor);
  };
  const pan = share => spanLink(series.from + share * view.span, series.to + share * view.span);
  const keys = event => {
    if (!series || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = cursor ?? series.to, step = series.step * (event.shiftKey ? 10 : 1);
    const act = {
      ArrowLeft: () => setCursor(Math.max(series.from, now - step)), ArrowRight: () => setCursor(Math.min(series.to - 1, now + step)),
      Home: () => setCursor(series.from), End: () => setCursor(series.to - 1), PageUp: () => show(pan(-0.5)), PageDown: () => show(pan(0.5)),
      "+": () => show(zoom(0.5)), "-": () => show(zoom(2)), Escape: () => { cancel(); setCursor(null); show(rangeLink(DEFAULT_RANGE[0])); },
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };

  const index = series && cursor !== null && cursor >= series.from && cursor < series.to ? series.indexAt(cursor) : null;
  const span = series ? `${timeText(series.from, series.step, true)} \u2013 ${timeText(series.to, series.step, series.to - series.from > 86_400 || new Date(series.from * 1000).getDate() !== new Date(series.to * 1000).getDate())}` : "\u00a0";
  const x = time => place().x(time) + "px", width = ([from, to]) => place().x(to) - place().x(from) + "px";
  const icon = (label, text, address) => html`<a class="icon" href=${series ? address() : undefined} aria-label=${label} title=${label}>${text}</a>`;
  return html`<section class="card history" aria-labelledby="history"><header><h2 id="history">History</h2>
      <div class="buttons" role="group" aria-label="Range">${RANGES.map(([key, label]) => html`<a key=${key} href=${rangeLink(key)} aria-current=${key === view.key ? "true" : undefined}>${label}</a>`)}</div>
      <div class="buttons" role="group" aria-label="Move and zoom">${icon("Earlier", "\u2039", () => pan(-0.5))}${icon("Later", "\u203a", () => pan(0.5))}${icon("Zoom out", "\u2212", () => zoom(2))}${icon("Zoom in", "+", () => zoom(0.5))}</div></header>
    <div class="plot" ref=${plot} tabindex="0" role="slider" aria-label=${"Time in the history of " + name} aria-valuemin=${series?.from ?? 0} aria-valuemax=${series?.to ?? 0}
      aria-valuenow=${Math.round(index === null ? series?.to ?? 0 : cursor)} aria-valuetext=${index === null ? span : pointText(series, index)} aria-describedby="summary"
      title="Drag to zoom" onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${cancel} onPointerLeave=${() => { if (!drag.current) setCursor(null); }} onKeyDown=${keys}>
      <canvas ref=${canvas} aria-hidden="true"></canvas>
      ${marked ? html`<span class="marked" style=${{ left: x(marked[0]), width: width(marked) }}></span>` : ""}
      ${index !== null ? html`<span class="cursor" style=${{ left: x(cursor) }}></span>` : ""}
      ${problem && !series ? html`<p class="dim">${problem}</p>` : ""}</div>
    <p id="summary" class="visually-hidden">${series ? summary(name, series) : ""}</p>
    <p class="reading dim">${index === null ? span : pointText(series, index)}</p><${Legend} series=${series}/>
    <details open=${isTable} onToggle=${event => setTable(event.currentTarget.open)}><summary>As a table</summary>${isTable && series ? html`<${Table} series=${series}/>` : ""}</details></section>`;
}
