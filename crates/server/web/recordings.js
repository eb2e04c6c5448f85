// Recordings: the recorders, and the files that they have completed.

import { TIME, bytes, clock, count, lufs, tenth } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Recorder } from "./recorder.js";
import { getJson, link, may, recordingChanges, stationLink, stations, status } from "./store.js";

const FEW = 50, MANY = 500;
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", year: "numeric" });

/** The pause between two questions for a waveform that is being computed. */
const WAVEFORM_MS = 700;

/** The waveform of a file: what has been heard is in another color, and a press goes there. */
function Waveform({ file, audio }) {
  const canvas = useRef(null), [found, setFound] = useState(null), draw = useRef(() => {});
  useEffect(() => {
    let timer = 0, ends = false;
    const read = async () => {
      const next = await getJson(`${file.url}?view=waveform`).catch(() => ({ state: "ready", points: [] }));
      if (ends) return;
      if (next.state === "ready") setFound(next);
      else timer = setTimeout(read, WAVEFORM_MS);
    };
    read();
    return () => { ends = true; clearTimeout(timer); };
  }, [file.url]);
  useLayoutEffect(() => {
    if (!found?.points.length) return undefined;
    const player = audio.current, place = canvas.current, dark = matchMedia("(prefers-color-scheme: dark)");
    draw.current = () => {
      const { clientWidth: width, clientHeight: height } = place, scale = Math.min(devicePixelRatio, 3), style = getComputedStyle(place);
      Object.assign(place, { width: Math.round(width * scale), height: Math.round(height * scale) });
      const context = place.getContext("2d"), { points, seconds } = found, heard = seconds > 0 ? player.currentTime / seconds * width : 0;
      context.scale(scale, scale);
      for (let x = 0; x < width; x += 1) {
        const from = Math.floor(x / width * points.length), to = Math.max(from + 1, Math.floor((x + 1) / width * points.length));
        const bar = Math.max(1, Math.max(...points.slice(from, to)) / 255 * height);
        context.fillStyle = style.getPropertyValue(x < heard ? "--accent" : "--level");
        context.fillRect(x, (height - bar) / 2, 1, bar);
      }
    };
    const again = () => draw.current(), resized = new ResizeObserver(again);
    resized.observe(place);
    dark.addEventListener("change", again);
    for (const event of ["timeupdate", "seeked"]) player.addEventListener(event, again);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", again);
      for (const event of ["timeupdate", "seeked"]) player.removeEventListener(event, again);
    };
  }, [found]);
  const seek = event => { audio.current.currentTime = event.offsetX / event.currentTarget.clientWidth * found.seconds; };
  if (found === null) return html`<p class="dim waveform">The waveform is being computed</p>`;
  return found.points.length === 0 ? null : html`<canvas class="waveform" ref=${canvas} role="img" aria-label=${`Waveform of ${file.name}`} onClick=${seek}></canvas>`;
}

/** A file that is heard. */
function Heard({ file }) {
  const audio = useRef(null);
  return html`<${Waveform} file=${file} audio=${audio}/><audio controls autoplay ref=${audio} src=${file.url} aria-label=${file.name}></audio>`;
}

/** One file at a time is heard. */
function File({ file, plays, onPlay }) {
  const { integrated_lufs: integrated, range_lu: range, true_peak_dbtp: peak } = file.loudness ?? {};
  const start = new Date(file.start), known = !Number.isNaN(start.getTime());
  const figures = [
    file.seconds !== null && clock(file.seconds), bytes(file.bytes), integrated !== null && integrated !== undefined && `I ${lufs(integrated)}`,
    range !== null && range !== undefined && `LRA ${tenth(range)} LU`, peak !== null && peak !== undefined && `peak ${tenth(peak)} dBTP`, file.markers > 0 && count(file.markers, "marker"),
  ].filter(Boolean);
  return html`<li class="file"><div class="about"><strong>${known ? TIME.format(start) : file.name}</strong> <span class="number dim">${figures.join(" \u00b7 ")}</span>
      <p class="path dim">${file.name}</p>${file.lost_frames > 0 ? html`<p class="warm">${count(file.lost_frames, "frame")} lost</p>` : ""}</div>
    <div class="buttons"><button type="button" aria-pressed=${plays} onClick=${() => onPlay(plays ? null : file.url)}>${plays ? "Close" : "Listen"}<span class="visually-hidden">: ${file.name}</span></button>
      <a class="button" href=${file.url} download=${file.name.split("/").at(-1)}>Download<span class="visually-hidden">: ${file.name}</span></a></div>
    ${plays ? html`<${Heard} key=${file.url} file=${file}/>` : ""}</li>`;
}

function Files({ entry, playing, onPlay, onMore }) {
  const days = [];
  for (const file of [...entry.files].sort((a, b) => b.start.localeCompare(a.start))) {
    const start = new Date(file.start), day = Number.isNaN(start.getTime()) ? "Unknown time" : DAY.format(start);
    if (days.at(-1)?.day !== day) days.push({ day, files: [] });
    days.at(-1).files.push(file);
  }
  if (entry.error) return html`<p class="warm">The folder ${entry.dir} cannot be read: ${entry.error}</p>`;
  if (days.length === 0) return html`<p class="dim">No file is complete yet. A file appears here when the recorder stops, or begins the next one.</p>`;
  return html`${days.map(({ day, files }) => html`<div key=${day}><h3>${day}</h3><ul class="rows">${files.map(file => html`<${File} key=${file.url} file=${file} plays=${playing === file.url} onPlay=${onPlay}/>`)}</ul></div>`)}
    ${entry.more && onMore ? html`<p><button type="button" onClick=${onMore}>Show older files</button></p>` : entry.more ? html`<p class="dim">Older files are in ${entry.dir}.</p>` : ""}`;
}

export function Recordings() {
  const [found, setFound] = useState({ recorders: null, problem: "" }), [limit, setLimit] = useState(FEW), [playing, setPlaying] = useState(null);
  const changes = recordingChanges.value, mayRead = may("Aulos.StartRecording");
  useEffect(() => {
    if (!mayRead) return undefined;
    let ends = false;
    getJson(`api/v1/recordings?limit=${limit}`).then(data => { if (!ends) setFound({ recorders: data.recorders, problem: "" }); },
      error => { if (!ends) setFound(held => ({ ...held, problem: error.message })); });
    return () => { ends = true; };
  }, [changes, limit, mayRead, link.value === "connected"]);
  const all = stations.value.flatMap(station => station.recorders.filter(one => !one.log).map(recorder => ({ station: station.name, recorder })));
  const entryOf = (station, name) => found.recorders?.find(one => one.station === station && one.recorder === name);
  if (!status.value) return html`<h1>Recordings</h1><p class="dim">${link.value === "connecting" ? "Connecting" : "No connection to the server"}</p>`;
  return html`<div class="heading"><h1>Recordings</h1>${link.value === "connected" ? "" : html`<span class="state lost"><span class="dot" aria-hidden="true"></span>Connection lost</span>`}</div>
    ${found.problem ? html`<p class="problems" role="status">${found.problem}</p>` : ""}
    ${!mayRead ? html`<section class="card empty"><p>Recordings require the role <code>control</code>.</p><p><a href="login">Log in</a></p></section>`
      : all.length === 0 ? html`<section class="card empty"><p>No station has a recorder.</p><p class="dim">Add one to a station in the configuration, and reload it: <code>record = [{ dir = "/srv/recordings" }]</code></p></section>`
        : html`<div class="columns">${all.map(({ station, recorder }) => {
          const entry = entryOf(station, recorder.name);
          return html`<section key=${station + "/" + recorder.name} class="card" aria-label=${`${recorder.name} of ${station}`}><header><h2>${recorder.name}</h2><a href=${stationLink(station)}>${station}</a></header>
            <ul class="rows"><${Recorder} station=${station} recorder=${recorder} isNamed=${false}/></ul>
            <p class="dim path">${recorder.format} in ${recorder.dir}${recorder.free_bytes === null ? "" : `, ${bytes(recorder.free_bytes)} free`}</p>
            ${entry ? html`<${Files} entry=${entry} playing=${playing} onPlay=${setPlaying} onMore=${limit < MANY ? () => setLimit(MANY) : null}/>` : html`<p class="dim">Loading</p>`}</section>`;
        })}</div>`}`;
}
