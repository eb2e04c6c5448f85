// Logs: find, listen to and export any range of time that a station has sent, what is missing of a day, and holds.

import { count, duration, two } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { act, link, may, say, stationLink, stations, status } from "./store.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const FORMATS = [["flac", "FLAC"], ["wav", "WAV"], ["opus", "Opus"], ["txt", "Text"]];
const MINUTES = 5;

const day = date => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const local = date => `${day(date)} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
/** A time of the server, without the fraction of its second and with its offset, which tells doubled hours apart. */
const shown = text => `${text.slice(0, 10)} ${text.slice(11, 19)} ${text.slice(23)}`;
const seconds = ({ from_ns: from, to_ns: to }) => (to - from) / 1e9;

/** The address of a range; times with an offset are the same everywhere. */
const address = (station, range, format) => `log/${encodeURIComponent(station)}.${format}?${new URLSearchParams({ from: range.from, to: range.to, zone: ZONE })}`;

function Gaps({ gaps, leftOut, none }) {
  if (gaps.length === 0) return html`<p class="dim">${none}</p>`;
  return html`<ul class="rows">${gaps.map(gap => html`<li key=${gap.from_ns} class="gap"><span class="number">${shown(gap.from)} to ${shown(gap.to)}</span>
    <span class="warm">${gap.cause}${gap.silence ? ", silence" : ""}</span><span class="dim">${duration(Math.round(seconds(gap))) || "under a second"}</span></li>`)}</ul>
    ${leftOut > 0 ? html`<p class="dim">${count(leftOut, "file or gap", "files and gaps")} more</p>` : ""}`;
}

/** A range that was found: its files, what is missing, and what can be done with it. */
function Found({ station, found, onHeld }) {
  const [plays, setPlays] = useState(false), why = useRef(null), until = useRef(null);
  const range = { from: found.from, to: found.to };
  const hold = async event => {
    event.preventDefault();
    const wanted = { station, ...range, why: why.current.value, zone: ZONE, ...(until.current.value ? { until: `${until.current.value} 00:00` } : {}) };
    if (!await act("Aulos.AddLogHold", wanted)) return;
    why.current.value = until.current.value = "";
    say("The range is held");
    onHeld();
  };
  if (found.files.length === 0) return html`<p class="warm" role="status">Nothing was recorded from ${shown(found.from)} to ${shown(found.to)}.</p><${Gaps} gaps=${found.gaps} leftOut=${found.left_out} none=""/>`;
  return html`<h3>${shown(found.from)} to ${shown(found.to)}</h3>
    <div class="buttons"><button type="button" aria-pressed=${plays} onClick=${() => setPlays(!plays)}>${plays ? "Close" : "Listen"}</button>
      ${FORMATS.map(([format, name]) => html`<a key=${format} class="button" href=${address(station, range, format)} download>${name}<span class="visually-hidden">: export the range</span></a>`)}</div>
    ${plays ? html`<audio controls autoplay class="range" src=${address(station, range, "flac")} aria-label=${`${station} from ${shown(found.from)}`}></audio>` : ""}
    <${Gaps} gaps=${found.gaps} leftOut=${found.left_out} none="Complete: nothing is missing."/>
    <details><summary>${count(found.files.length, "file")}</summary><ul class="rows">${found.files.map(file => html`<li key=${file.from_ns} class="gap"><span class="path">${file.file}</span><span class="number dim">${shown(file.from)}</span><span class="path dim">SHA-256 ${file.sha256}</span></li>`)}</ul></details>
    <form class="inline" onSubmit=${hold}><label>Hold, because <input ref=${why} required maxlength="250" placeholder="Complaint 7"/></label><label>until <input ref=${until} type="date"/></label><button type="submit">Hold</button></form>`;
}

/** What is missing of a day, from midnight to midnight in the zone of the browser. */
function Day({ station }) {
  const [date, setDate] = useState(day(new Date())), [found, setFound] = useState(null);
  useEffect(() => {
    const from = new Date(`${date}T00:00`);
    if (Number.isNaN(from.getTime())) return undefined;
    const to = new Date(from.getFullYear(), from.getMonth(), from.getDate() + 1);
    let ends = false;
    act("Aulos.GetLog", { station, from: from.toISOString(), to: to.toISOString(), zone: ZONE }).then(answer => { if (!ends) setFound(answer ?? null); });
    return () => { ends = true; };
  }, [station, date]);
  return html`<h3>Gaps of a day</h3><p><label class="field">Day <input type="date" value=${date} onChange=${event => setDate(event.currentTarget.value)}/></label></p>
    ${found ? html`<${Gaps} gaps=${found.gaps} leftOut=${found.left_out} none="Nothing is missing."/>` : ""}`;
}

function Holds({ station, changes, onReleased }) {
  const [holds, setHolds] = useState(null);
  useEffect(() => {
    let ends = false;
    act("Aulos.GetLogHolds", { station, zone: ZONE }).then(answer => { if (!ends) setHolds(answer?.holds ?? []); });
    return () => { ends = true; };
  }, [station, changes]);
  const release = async id => { if (await act("Aulos.ReleaseLogHold", { station, hold: id })) onReleased(); };
  return html`<h3>Holds</h3>${holds === null ? "" : holds.length === 0 ? html`<p class="dim">No range is held; files are deleted when they are old enough.</p>`
    : html`<ul class="rows">${holds.map(hold => html`<li key=${hold.hold} class="gap"><strong>${hold.why}</strong><span class="number">${shown(hold.from)} to ${shown(hold.to)}</span><span class="dim">${hold.until ? `until ${shown(hold.until)}` : "until it is released"}</span>
      <button type="button" onClick=${() => release(hold.hold)}>Release<span class="visually-hidden"> ${hold.why}</span></button></li>`)}</ul>`}`;
}

/** The log of one station. */
function Log({ station, recorder }) {
  const now = new Date(), from = useRef(null), to = useRef(null);
  const [found, setFound] = useState(null), [changes, setChanges] = useState(0), [busy, setBusy] = useState(false);
  const changed = () => setChanges(held => held + 1);
  const find = async event => {
    event.preventDefault();
    setBusy(true);
    setFound(await act("Aulos.GetLog", { station, from: from.current.value.trim(), to: to.current.value.trim(), zone: ZONE }) ?? null);
    setBusy(false);
  };
  return html`<section class="card" aria-label=${`Log of ${station}`}><header><h2>${recorder.name}</h2><a href=${stationLink(station)}>${station}</a></header>
    <form class="inline" onSubmit=${find}><label>From <input ref=${from} required size="22" defaultValue=${local(new Date(now - 2 * MINUTES * 60_000))}/></label>
      <label>to <input ref=${to} required size="22" defaultValue=${local(new Date(now - MINUTES * 60_000))}/></label><button type="submit" disabled=${busy}>Find</button></form>
    <p class="dim">Times are in ${ZONE}. Where the clock shows an hour twice, write the offset: 2026-10-25 02:30+01:00. A file can be found when it is complete.</p>
    ${found ? html`<${Found} key=${found.from + found.to} station=${station} found=${found} onHeld=${changed}/>` : ""}
    <${Day} station=${station}/><${Holds} station=${station} changes=${changes} onReleased=${changed}/>
    <p class="dim path">${recorder.format} in ${recorder.dir}</p></section>`;
}

const logs = () => stations.value.flatMap(station => station.recorders.filter(one => one.log).map(recorder => ({ station: station.name, recorder })));

/** Whether a station has a log; without one the navigation has no view of logs. */
export const hasLogs = () => logs().length > 0;

export function Logs() {
  const all = logs();
  if (!status.value) return html`<h1>Logs</h1><p class="dim">${link.value === "connecting" ? "Connecting" : "No connection to the server"}</p>`;
  return html`<div class="heading"><h1>Logs</h1></div>
    ${!may("Aulos.GetLog") ? html`<section class="card empty"><p>Logs require the role <code>log</code>.</p><p><a href="login">Log in</a></p></section>`
      : all.length === 0 ? html`<section class="card empty"><p>No station has a log.</p><p class="dim">Add one to a station in the configuration, and reload it: <code>logger = { dir = "/srv/log" }</code></p></section>`
        : html`<div class="columns">${all.map(({ station, recorder }) => html`<${Log} key=${station} station=${station} recorder=${recorder}/>`)}</div>`}`;
}
