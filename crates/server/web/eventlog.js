// The events of the server: what has happened, and what has not been looked at yet.

import { TIME } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { act, events, link, loadEvents, may, stationLink, stations, unacknowledged } from "./store.js";

const SEVERITIES = [["info", "All events"], ["warning", "Warnings and errors"], ["error", "Errors"]];
const NAMES = { info: "Information", warning: "Warning", error: "Error" };
const KINDS = {
  switch: "Source on air", source: "Sources", silence: "Silence", level: "Peaks", client: "Clients", listener: "Web listeners", login: "Logins",
  recorder: "Recorders", output: "Outputs", relay: "Relays", configuration: "Configuration", schedule: "Schedule", insert: "Insert",
};
const rank = severity => SEVERITIES.findIndex(([name]) => name === severity);
/** A reader who is further down than this is reading: new events wait for a click. */
const READING_PX = 160;
/** How many events are drawn before the reader asks for more. */
const PAGE = 100;

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

/** Another form than a color for each severity. */
const SIGNS = { info: "M8 7v5M8 4v.5", warning: "M8 3v6M8 12v.5", error: "M4.5 4.5l7 7M11.5 4.5l-7 7" };

function Event({ event }) {
  const { id, time, station, subject, severity, text, acknowledged } = event;
  const about = [station && html`<a href=${stationLink(station)}>${station}</a>`, subject && html`<span>${subject}</span>`].filter(Boolean);
  return html`<li class=${`event ${severity}${acknowledged ? "" : " open"}`}>
    <time class="number dim" datetime=${time}>${TIME.format(new Date(time))}</time>
    <svg viewBox="0 0 16 16" width="16" height="16" role="img" aria-label=${NAMES[severity]}><path d=${SIGNS[severity]} fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/></svg>
    <div class="about">${about.length > 0 ? html`<p class="dim subject">${about.length > 1 ? html`${about[0]} \u00b7 ${about[1]}` : about[0]}</p>` : ""}<p>${text}</p></div>
    ${!acknowledged && may("Aulos.AcknowledgeEvents") ? html`<button type="button" onClick=${() => act("Aulos.AcknowledgeEvents", { id })}>Acknowledge<span class="visually-hidden">: ${text}</span></button>` : ""}</li>`;
}

function Choice({ label, value, onChoose, children }) {
  return html`<label class="field">${label}<select value=${value} onChange=${event => onChoose(event.target.value)}>${children}</select></label>`;
}

export function Events() {
  const [station, setStation] = useState(""), [severity, setSeverity] = useState("info"), [kind, setKind] = useState("");
  const [newest, setNewest] = useState(null), [shown, setShown] = useState(PAGE);
  const all = events.value ?? [], last = all[0]?.id ?? 0;
  useEffect(() => { loadEvents(1_000); }, []);
  // A list that grows above what is being read would move it away.
  useEffect(() => {
    const follow = () => setNewest(held => scrollY > READING_PX ? held ?? last : null);
    follow();
    addEventListener("scroll", follow, { passive: true });
    return () => removeEventListener("scroll", follow);
  }, [last]);
  const fits = event => (!station || event.station === station) && (!kind || event.kind === kind) && rank(event.severity) >= rank(severity);
  const fitting = all.filter(fits), visible = fitting.filter(event => newest === null || event.id <= newest), waiting = fitting.length - visible.length;
  const names = [...new Set([...stations.value.map(one => one.name), ...all.map(event => event.station).filter(Boolean)])].sort();
  const days = [];
  for (const event of visible.slice(0, shown)) {
    const day = DAY.format(new Date(event.time));
    if (days.at(-1)?.day !== day) days.push({ day, events: [] });
    days.at(-1).events.push(event);
  }
  const isFiltered = station || kind || severity !== "info";
  const clear = () => { setStation(""); setKind(""); setSeverity("info"); };
  const acknowledge = () => act("Aulos.AcknowledgeEvents", { through: last, ...(station && { station }), ...(kind && { kind }) });
  const open = isFiltered ? fitting.filter(event => !event.acknowledged).length : unacknowledged.value;
  return html`<div class="heading"><h1>Events</h1>${link.value === "connected" ? "" : html`<span class="state lost"><span class="dot" aria-hidden="true"></span>Connection lost</span>`}
      ${open > 0 && may("Aulos.AcknowledgeEvents") ? html`<button type="button" onClick=${acknowledge}>Acknowledge ${open === 1 ? "it" : `all ${open}`}</button>` : ""}</div>
    <div class="filters">
      <${Choice} label="Show" value=${severity} onChoose=${setSeverity}>${SEVERITIES.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</${Choice}>
      <${Choice} label="Station" value=${station} onChoose=${setStation}><option value="">All</option>${names.map(name => html`<option key=${name} value=${name}>${name}</option>`)}</${Choice}>
      <${Choice} label="About" value=${kind} onChoose=${setKind}><option value="">Everything</option>${Object.entries(KINDS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</${Choice}>
    </div>
    ${waiting > 0 ? html`<button type="button" class="newer" onClick=${() => { setNewest(null); scrollTo({ top: 0 }); }}>${waiting} new</button>` : ""}
    ${days.map(({ day, events: list }) => html`<section key=${day} class="card" aria-label=${day}><h2>${day}</h2><ol class="rows">${list.map(event => html`<${Event} key=${event.id} event=${event}/>`)}</ol></section>`)}
    ${visible.length > shown ? html`<p><button type="button" onClick=${() => setShown(shown + PAGE)}>Show older events</button></p>` : ""}
    ${visible.length === 0 ? html`<section class="card empty">${events.value === null ? html`<p class="dim">Loading</p>`
      : isFiltered ? html`<p>No event matches this filter.</p><p><button type="button" onClick=${clear}>Show all events</button></p>`
        : html`<p>Nothing has happened since the server started.</p><p class="dim">Changes of the source on air, silence, clients, recorders and refused logins are listed here.</p>`}</section>` : ""}`;
}
