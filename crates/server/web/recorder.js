// A recorder of a station: its state, and its buttons.

import { clock } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { act, may } from "./store.js";

/** The time since the start of a recording, once a second. */
function Elapsed({ start }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return html`<span class="number">${clock((now - Date.parse(start)) / 1000)}</span>`;
}

/** A form for the name of a marker. The moment is that at which it was opened. */
function MarkerForm({ recorder, onLabel, onClose }) {
  const input = useRef(null), opened = useRef(Date.now());
  useEffect(() => input.current.focus(), []);
  const submit = event => {
    event.preventDefault();
    const label = input.current.value.trim();
    if (label) onLabel(label, (Date.now() - opened.current) / 1000);
  };
  return html`<form class="inline" onSubmit=${submit} onKeyDown=${event => { if (event.key === "Escape") onClose(); }}>
    <label><span class="visually-hidden">Name of the marker in ${recorder}</span><input ref=${input} maxlength="128" placeholder="Name of the marker"/></label>
    <button type="submit">Set mark</button><button type="button" onClick=${onClose}>Cancel</button></form>`;
}

const ACTIONS = [
  ["Record", "Start", ["idle"]], ["Pause", "Pause", ["recording"]], ["Resume", "Resume", ["paused"]], ["New file", "Cut", ["recording"]],
  ["Stop", "Stop", ["recording", "paused", "waiting"]],
];

/** A recorder; its name is left out where the heading has it. */
export function Recorder({ station, recorder, isNamed = true }) {
  const { name, state, file, source, trouble, upload } = recorder;
  const [marks, setMarks] = useState(false);
  const params = { station, recorder: name };
  const mark = async (label, ago_s) => {
    setMarks(false);
    await act("Aulos.AddMarker", { ...params, label, ago_s });
  };
  return html`<li class="recorder">
    <div class="about"><p class="facts">${isNamed ? html`<strong>${name}</strong>` : ""}${source ? html` <span class="dim">of ${source}</span>` : ""}
      <span class=${"state " + (state === "recording" ? "recording" : "idle")}><span class="dot" aria-hidden="true"></span>${state}</span>
      ${state === "recording" && file ? html`<${Elapsed} start=${file.start}/>` : ""}</p>
      ${file ? html`<p class="path dim">${file.path}</p>` : ""}
      ${upload?.waiting ? html`<p class="dim">${upload.waiting} to upload</p>` : ""}
      ${upload?.last_error ? html`<p class="warm">upload: ${upload.last_error}</p>` : ""}
      ${trouble ? html`<p class="warm">${trouble}</p>` : ""}</div>
    <div class="buttons">${ACTIONS.filter(([, verb, states]) => states.includes(state) && may(`Aulos.${verb}Recording`)).map(([label, verb]) =>
      html`<button key=${verb} type="button" onClick=${() => act(`Aulos.${verb}Recording`, params)}>${label}<span class="visually-hidden">: recorder ${name}</span></button>`)}
      ${state === "recording" && may("Aulos.AddMarker") && !marks ? html`<button type="button" onClick=${() => setMarks(true)}>Mark<span class="visually-hidden">: recorder ${name}</span></button>` : ""}</div>
    ${marks ? html`<${MarkerForm} recorder=${name} onLabel=${mark} onClose=${() => setMarks(false)}/>` : ""}
  </li>`;
}
