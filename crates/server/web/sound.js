// The sound of a client: its curve, bands, presets, and the import of filter texts.

import { number } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { act, ask, may, say } from "./store.js";

const TYPES = ["peaking", "low-shelf", "high-shelf", "high-pass", "low-pass", "notch", "all-pass"];
const hasGain = type => ["peaking", "low-shelf", "high-shelf"].includes(type);
const MOST_BANDS = 16;
/** The plot: its size in units, and the decibels above and below its middle. */
const WIDTH = 300, HEIGHT = 90, REACH = 18;
/** What is played to one client, in place of the programme: its kind, its label, and how long in seconds. */
const TONES = [["identify", "Left, right", 10], ["noise", "Noise", 20], ["click", "Clicks", 20], ["sine", "1 kHz", 10], ["sweep", "Sweep", 5]];
/** The decades at which the plot has lines. */
const DECADES = [100, 1_000, 10_000];

const x = hz => WIDTH * Math.log(hz / 20) / Math.log(1_000);
const y = db => HEIGHT / 2 * (1 - Math.max(-REACH, Math.min(REACH, db)) / REACH);
const line = (hz, db) => "M" + hz.map((one, at) => `${x(one).toFixed(1)} ${y(db[at]).toFixed(1)}`).join("L");

/** The response of both channels, from 20 Hz to 20 kHz. */
function Curve({ response, name }) {
  if (!response) return null;
  const { hz, left_db: left, right_db: right } = response, differs = left.some((db, at) => db !== right[at]);
  return html`<svg class="response" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${`Response of ${name}, ${number(Math.min(...left))} to ${number(Math.max(...left))} dB`}>
    <path class="grid" d=${DECADES.map(one => `M${x(one).toFixed(1)} 0v${HEIGHT}`).join("") + [-12, 0, 12].map(db => `M0 ${y(db)}h${WIDTH}`).join("")}/>
    ${DECADES.map(one => html`<text x=${x(one) + 2} y=${HEIGHT - 3}>${one < 1_000 ? one : one / 1_000 + "k"}</text>`)}
    ${[-12, 12].map(db => html`<text x="2" y=${y(db) - 2}>${db > 0 ? "+" : ""}${number(db)} dB</text>`)}
    ${differs ? html`<path class="second" d=${line(hz, right)}/>` : ""}<path class="first" d=${line(hz, left)}/></svg>`;
}

/** A row of the bands; a value is set when the reader leaves its field. */
function Band({ band, at, onSet }) {
  const set = change => onSet({ ...band, ...change });
  const field = (key, label, unit, more) => html`<label>${label} <input type="number" step="any" value=${band[key]} ...${more} onChange=${event => set({ [key]: Number(event.target.value) })}/>${unit}</label>`;
  const kind = type => set({ type, gain_db: hasGain(type) ? band.gain_db ?? 0 : undefined });
  return html`<li><label><span class="visually-hidden">Type of band ${at + 1}</span><select value=${band.type} onChange=${event => kind(event.target.value)}>${TYPES.map(type => html`<option key=${type} selected=${type === band.type}>${type}</option>`)}</select></label>
    ${field("hz", "at", " Hz", { min: 10 })}${hasGain(band.type) ? field("gain_db", "gain", " dB", { min: -24, max: 24 }) : ""}${field("q", "Q", "", { min: 0.1, max: 20 })}
    <button type="button" onClick=${() => onSet(null)}>Remove<span class="visually-hidden"> band ${at + 1}</span></button></li>`;
}

function Bands({ chain, set }) {
  const both = chain?.both ?? (chain ? null : { gain_db: 0, delay_ms: 0, bands: [] });
  if (!both) return html`<p class="dim">Left and right differ: edit them as text.</p>`;
  const change = bands => set({ chain: { ...chain, both: { ...both, bands } } });
  const replace = (at, band) => change(both.bands.flatMap((one, place) => place === at ? band ?? [] : one));
  return html`<ol class="bands">${both.bands.map((band, at) => html`<${Band} key=${at} band=${band} at=${at} onSet=${one => replace(at, one)}/>`)}</ol>
    ${both.bands.length < MOST_BANDS ? html`<button type="button" onClick=${() => change([...both.bands, { type: "peaking", hz: 1_000, gain_db: 0, q: 1 }])}>Add a band</button>` : ""}`;
}

/** Buttons that play a test tone to a client, and end it. */
function TestTones({ client, name }) {
  const [tone, setTone] = useState(null);
  if (!may("Aulos.TestTone")) return "";
  const play = async (kind, label, seconds) => {
    const found = await act("Aulos.TestTone", { client: client.id, kind, seconds });
    if (!found) return;
    setTone(found.id);
    say(`${name} plays a test tone: ${label}, ${seconds} s`);
  };
  const stop = () => act("Aulos.CancelAnnouncement", { id: tone }).then(() => setTone(null));
  return html`<p class="buttons" role="group" aria-label=${`Test tones of ${name}`}><span class="dim">Test tone</span>
    ${TONES.map(([kind, label, seconds]) => html`<button type="button" key=${kind} onClick=${() => play(kind, label, seconds)}>${label}</button>`)}
    ${tone === null ? "" : html`<button type="button" onClick=${stop}>Stop the tone</button>`}</p>`;
}

export function ClientSound({ client, name }) {
  const [sound, setSound] = useState(null), [preview, setPreview] = useState(null), [open, setOpen] = useState(false), text = useRef(null);
  const writes = may("Aulos.SetClientSound");
  const load = () => ask("Aulos.GetClientSound", { client: client.id }).then(found => { setSound(found); setPreview(null); });
  useEffect(() => { if (open) load(); }, [open]);
  const call = async (params, dry_run = false) => {
    const found = await act("Aulos.SetClientSound", { client: client.id, ...params, dry_run });
    if (!found) return;
    if (dry_run) return setPreview(found);
    say(`The sound of ${name} is set`);
    load();
  };
  const shown = preview ?? sound, entered = () => ({ text: text.current.value });
  return html`<details class="sound" onToggle=${event => setOpen(event.target.open)}><summary>Sound</summary>
    ${open && shown ? html`<${Curve} response=${shown.response} name=${name}/>
    <p class="dim">${shown.chain ? `Preamplification ${number(shown.preamp_db)} dB, peak ${number(shown.peak_db)} dB${preview ? " (preview)" : ""}` : "No processing"}</p>
    ${shown.warnings?.map(one => html`<p class="warm">Line ${one.line}: ${one.message}</p>`)}
    ${writes ? html`<${Bands} chain=${sound?.chain} set=${call}/>
    <p class="buttons">${(sound?.presets ?? []).map(one => html`<button type="button" key=${one} onClick=${() => call({ preset: one })}>${one}</button>`)}</p>
    <label class="import">Filters as text, of REW, Equalizer APO or AutoEq<textarea key=${sound?.text} ref=${text} rows="4" spellcheck="false" defaultValue=${sound?.text ?? ""}></textarea></label>
    <p class="buttons"><button type="button" onClick=${() => call(entered(), true)}>Preview</button><button type="button" onClick=${() => call(entered())}>Apply the text</button></p>` : ""}
    <${TestTones} client=${client} name=${name}/>` : ""}
  </details>`;
}
