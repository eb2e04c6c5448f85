// One station: everything that can be seen and set of it.

import { sourceCondition, stationCondition } from "./condition.js";
import { count, fileName, lufs, number, signed, soundName, tenth } from "./format.js";
import { History } from "./history.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { ListenButton } from "./listen.js";
import { NowPlaying, rankName } from "./live.js";
import { Figures, Meter, MeterLegend, Metered } from "./meters.js";
import { Recorder } from "./recorder.js";
import { act, ask, getJson, link, may, say, send, stations, status } from "./store.js";
import { SyncButton } from "./sync.js";
import { TalkButton } from "./talk.js";

/** How often figures that are not in the meters are read. */
const READ_MS = 1_000;

/** The result of a method, read again and again while the view is seen; null without a connection. */
function usePolled(method, station, wanted) {
  const [result, setResult] = useState(null);
  useEffect(() => {
    if (!wanted) return undefined;
    let ends = false;
    const read = async () => {
      if (document.hidden) return;
      const next = await ask(method, { station });
      if (!ends) setResult(next);
    };
    read();
    const timer = setInterval(read, READ_MS);
    return () => { ends = true; clearInterval(timer); };
  }, [method, station, wanted]);
  return wanted ? result : null;
}

/** The active entry of a schedule and the next one, in the local time of the station. */
function scheduleText({ active, next: [next] }) {
  const time = at => at.slice(0, 16).replace("T", " ");
  const now = active ? `${active.source} is scheduled until ${time(active.until)}` : "No source is scheduled now";
  return `${now}; ${next ? `next ${next.source} at ${time(next.from)}` : "no entry follows"}.`;
}

/** The file that a playlist plays, the one that follows, and the last one that it could not play. */
function playlistText({ files, current, next: [next], skipped, last_skipped: last }) {
  const now = current ? `${fileName(current.file)}${current.jingle ? " (jingle)" : ""}` : "No file plays";
  const follows = next ? `; next ${fileName(next)}` : "";
  return `${now}${follows}; ${count(files, "file")}.${last ? ` ${count(skipped, "file")} skipped, the last one ${fileName(last.file)}: ${last.reason}.` : ""}`;
}

/** Whether the frames of a source of a mount go to its listeners as they came. */
function passText({ name, pass }, { active, mount }) {
  if (pass?.passed) return "passed as it comes";
  const why = pass?.reason ?? "it has no encoded frames";
  if (active !== name) return pass ? "" : "would be encoded";
  return mount.encoder ? `encoded (${mount.encoder}): ${why}` : `not sent: ${why}`;
}

function Sources({ station }) {
  const measured = usePolled("Aulos.GetLoudness", station.name, true)?.sources ?? [];
  const { preferred } = station.switch, select = may("Aulos.SetSource");
  const set = source => act("Aulos.SetSource", { station: station.name, source });
  return html`<section class="card" aria-labelledby="sources"><header><h2 id="sources">Sources</h2>
      ${select && preferred !== null ? html`<button type="button" onClick=${() => set(null)}>Automatic<span class="visually-hidden"> selection of the source</span></button>` : ""}</header>
    ${station.schedule ? html`<p class="dim">${scheduleText(station.schedule)}</p>` : ""}
    <ol class="rows sources">${station.sources.map((source, index) => {
      const { kind, text } = sourceCondition(source, station), { momentary_lufs: m, integrated_lufs: i } = measured[index]?.loudness ?? {};
      const dj = source.dj?.on_air ? `${source.dj.name || source.dj.user_agent || "live source"} from ${source.dj.from}` : "";
      const chosen = source.name === preferred;
      return html`<li key=${source.name} class=${"source " + kind}>
        <span class="dot" aria-hidden="true"></span>
        <div class="about"><strong>${source.name}</strong> <span class="what">${text}</span>${chosen ? html` <span class="dim">selected</span>` : ""}${source.name === station.switch.scheduled ? html` <span class="dim">scheduled</span>` : ""}
          <p class="path dim">${source.uri}</p>${dj ? html`<p>${dj}</p>` : ""}${source.playlist ? html`<p class="dim">${playlistText(source.playlist)}</p>` : ""}${station.mount ? html`<p class="dim">${passText(source, station)}</p>` : ""}</div>
        <span class="number dim">${m === null || m === undefined ? "" : html`<span>M ${lufs(m)}</span>`}${i === null || i === undefined ? "" : html`<span>I ${lufs(i)}</span>`}</span>
        ${source.playlist?.current && may("Aulos.SkipTrack") ? html`<button type="button" onClick=${() => act("Aulos.SkipTrack", { station: station.name, source: source.name })}>Next file<span class="visually-hidden"> of ${source.name}</span></button>` : ""}
        ${select && station.sources.length > 1 ? html`<button type="button" aria-pressed=${chosen} onClick=${() => set(chosen ? null : source.name)}>Play<span class="visually-hidden"> ${source.name}</span></button>` : ""}
      </li>`;
    })}</ol></section>`;
}

const NORMALIZER = [
  ["Gain", "dB", now => signed(now.compare ? now.matching_gain_db : now.gain_db)], ["Limiter", "dB", now => tenth(now.reduction_db)],
  ["S in", "LUFS", now => tenth(now.input.short_term_lufs)], ["S out", "LUFS", now => tenth(now.output.short_term_lufs)],
  ["LRA in", "LU", now => tenth(now.input.loudness_range_lu)], ["LRA out", "LU", now => tenth(now.output.loudness_range_lu)],
];

/** What the insert of a station does, or "". */
function insertText(insert) {
  if (!insert) return "";
  const what = insert.state === "processing" ? `processes, latency ${(insert.latency_ms / 1000).toFixed(2)} s` : insert.state;
  return `Insert ${insert.program}: ${what}${insert.reason ? ` (${insert.reason})` : ""}`;
}

function Processing({ station }) {
  const wish = station.normalize, last = useRef(true);
  // Switching on again brings back what was switched off here.
  if (wish) last.current = wish;
  const now = usePolled("Aulos.GetNormalize", station.name, Boolean(wish))?.status ?? null;
  const bands = station.equalizer.map(band => `${band.type} ${band.hz} Hz${band.gain_db === undefined ? "" : ` ${band.gain_db > 0 ? "+" : ""}${number(band.gain_db)} dB`}`);
  const canSwitch = may("Aulos.SetNormalize");
  const insert = insertText(station.insert);
  if (!wish && bands.length === 0 && !canSwitch && !insert) return null;
  const text = wish && `Normalized to ${number(wish.target)} LUFS, ${wish.mode === "gain-only" ? "no limiter" : `at most ${number(wish.true_peak)} dBTP`}, mode ${wish.mode}${now ? `, latency ${(now.latency_ms / 1000).toFixed(2)} s` : ""}${now?.compare ? " \u2013 bypassed for comparison" : ""}`;
  return html`<section class="card" aria-labelledby="processing"><header><h2 id="processing">Loudness</h2>
      ${canSwitch ? html`<button type="button" aria-pressed=${Boolean(wish)} onClick=${() => act("Aulos.SetNormalize", { station: station.name, normalize: wish ? false : last.current })}>Normalize</button>` : ""}
      ${wish && may("Aulos.SetCompare") ? html`<button type="button" aria-pressed=${Boolean(now?.compare)} title="Bypass the normalizer, at matched loudness" onClick=${() => act("Aulos.SetCompare", { station: station.name, compare: !now?.compare })}>Compare</button>` : ""}</header>
    <p class="dim">${text || "The loudness of the sources is not changed."}</p>
    ${wish ? html`<div class="figures">${NORMALIZER.map(([label, unit, read]) => html`<dl key=${label}><dt>${label} <small>${unit}</small></dt><dd><b>${now ? read(now) : "\u2013"}</b></dd></dl>`)}</div>` : ""}
    ${insert ? html`<p class=${station.insert.state === "bypassed" ? "warm" : "dim"}>${insert}</p>` : ""}
    ${bands.length > 0 ? html`<p class="dim">Equalizer: ${bands.join(", ")}</p>` : ""}</section>`;
}

/** The value of the selection that stands for a typed address. */
const ADDRESS = "address";

/** The choice of a sound: those of the server's folders, an upload, or the address of one. */
function AnnounceForm({ station }) {
  const [list, setList] = useState(null), [chosen, setChosen] = useState(""), address = useRef(null), chime = useRef(null), priority = useRef(null);
  const read = wanted => getJson("api/v1/sounds").then(found => {
    setList(found);
    setChosen(old => wanted || old || found.sounds[0]?.uri || ADDRESS);
  }).catch(() => { setList({ sounds: [], more: false }); setChosen(ADDRESS); });
  useEffect(() => { read(); }, []);
  const submit = async event => {
    event.preventDefault();
    const uri = chosen === ADDRESS ? address.current.value.trim() : chosen;
    const how = { chime: chime.current.checked, priority: Number(priority.current.value) };
    if (await act("Aulos.Announce", { station: station.name, uri, ...how })) say(`The announcement is queued on ${station.name}`);
  };
  const upload = async event => {
    const file = event.target.files[0];
    if (!file) return;
    const stored = await send("PUT", `api/v1/sounds/${encodeURIComponent(file.name)}`, file);
    event.target.value = "";
    if (stored) {
      say(`${file.name} is uploaded`);
      await read(stored.uri);
    }
  };
  if (!list) return null;
  const current = list.sounds.find(one => one.uri === chosen);
  const remove = async () => {
    if (await send("DELETE", current.url) === undefined) return;
    setChosen("");
    await read();
  };
  return html`<form class="inline" onSubmit=${submit}>
    <label>Sound <select value=${chosen} onChange=${event => setChosen(event.target.value)}>
      ${list.sounds.map(one => html`<option key=${one.uri} value=${one.uri}>${one.name}</option>`)}
      <option value=${ADDRESS}>An address</option></select></label>
    ${chosen === ADDRESS ? html`<label>Address <input ref=${address} required placeholder="URL of a sound file" autocomplete="off" spellcheck=${false}/></label>` : ""}
    <label class="check"><input ref=${chime} type="checkbox"/> Chime before it</label>
    <label class="check" title="From 0 to 9: it interrupts announcements of a lower priority">Priority <input ref=${priority} type="number" required min="0" max="9" defaultValue="5"/></label>
    <button type="submit">Announce</button>
    ${current?.url ? html`<button type="button" onClick=${remove}>Delete<span class="visually-hidden"> ${current.name}</span></button>` : ""}
    <label class="button">Upload a sound<input type="file" class="visually-hidden" accept="audio/*,.flac,.opus,.caf,.mka" onChange=${upload}/></label></form>
    ${list.more ? html`<p class="dim">The server lists ${list.sounds.length} sounds; there are more.</p>` : ""}`;
}

function Announcements({ station }) {
  const waiting = station.announcements, make = may("Aulos.Announce");
  if (!make && waiting.length === 0) return null;
  return html`<section class="card" aria-labelledby="announcements"><header><h2 id="announcements">Announcements</h2></header>
    ${make ? html`<${TalkButton} target=${{ station: station.name }} name=${station.name}/>` : ""}
    <ul class="rows">${waiting.map(one => html`<li key=${one.id}><span class="about"><strong>${soundName(one.uri)}</strong> <span class="dim">${one.state}</span></span>
      ${may("Aulos.CancelAnnouncement") ? html`<button type="button" onClick=${() => act("Aulos.CancelAnnouncement", { id: one.id })}>Cancel<span class="visually-hidden"> ${soundName(one.uri)}</span></button>` : ""}</li>`)}</ul>
    ${make ? html`<${AnnounceForm} station=${station}/>` : ""}</section>`;
}

function Outputs({ station }) {
  const pushes = station.pushes.map(push => {
    const wrong = push.state === "pushing" ? push.title_error && `titles: ${push.title_error}` : push.last_error;
    return { name: `${push.target} (${push.format})`, state: push.state, wrong };
  });
  const outputs = [...pushes, ...station.rtp.map(out => ({ name: `${out.dest} (${out.encoding})`, state: out.state, wrong: out.reason }))];
  if (outputs.length === 0) return null;
  return html`<section class="card" aria-labelledby="outputs"><header><h2 id="outputs">Outputs</h2></header>
    <ul class="rows">${outputs.map(out => html`<li key=${out.name}><span class="about"><strong>${out.name}</strong>${out.wrong ? html`<p class="warm">${out.wrong}</p>` : ""}</span><span class=${out.wrong ? "warm" : "dim"}>${out.state}</span></li>`)}</ul></section>`;
}

export function Station({ name }) {
  const station = stations.value.find(one => one.name === name);
  if (!status.value) return html`<h1>${name}</h1><p class="dim">${link.value === "connecting" ? "Connecting" : "No connection to the server"}</p>`;
  if (!station) return html`<h1>${name}</h1><p>There is no station of this name. <a href="#/">All stations</a></p>`;
  const { rank, text, problems } = stationCondition(station), lost = link.value !== "connected";
  const { input, insert, look_ahead: lookAhead, client, total } = station.latency_ms;
  const parts = [[input, "input"], [insert, "insert"], [lookAhead, "look-ahead"], [client, "clients"]].filter(([ms]) => ms > 0).map(([ms, what]) => `${what} ${ms}`);
  return html`<div class="heading"><h1>${name}</h1>
      <span class=${"state " + (lost ? "lost" : rankName(rank))}><span class="dot" aria-hidden="true"></span>${lost ? "Connection lost" : text}</span><${ListenButton} station=${name}/>${station.mount ? "" : html`<${SyncButton} station=${name}/>`}</div>
    ${problems.length > 0 && !lost ? html`<div class="problems" role="status"><ul>${problems.map(problem => html`<li key=${problem.text}>${problem.text}</li>`)}</ul></div>` : ""}
    <${NowPlaying} station=${station}/>
    <${Metered} label=${"Meters of " + name}><section class="card" aria-label="Meters"><${Meter} station=${station}/><${MeterLegend}/><${Figures} station=${station}/>
      <p class="foot dim"><span title=${`latency: ${parts.join(" + ")} ms`}>${station.mount ? `mount ${station.mount.path}, ${station.mount.codec}` : station.codec} ${station.spec}, ${station.mount ? "" : `buffer ${station.buffer_ms} ms, `}latency ${total} ms${station.listeners ? `, ${count(station.listeners, "web listener")}` : ""}</span>
        ${may("Aulos.ResetLoudness") ? html`<button type="button" onClick=${() => act("Aulos.ResetLoudness", { station: name })}>Reset<span class="visually-hidden"> the loudness of ${name}</span></button>` : ""}</p></section></${Metered}>
    <${History} station=${station}/>
    <div class="columns"><${Sources} station=${station}/>${station.mount ? "" : html`<${Processing} station=${station}/>`}
      ${station.recorders.length > 0 ? html`<section class="card" aria-labelledby="recorders"><header><h2 id="recorders">Recorders</h2></header>
        <ul class="rows">${station.recorders.map(recorder => html`<${Recorder} key=${recorder.name} station=${name} recorder=${recorder}/>`)}</ul></section>` : ""}
      ${station.mount ? "" : html`<${Announcements} station=${station}/>`}<${Outputs} station=${station}/></div>`;
}
