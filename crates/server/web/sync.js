// Playing in time with the rooms: the buttons, and the bar while this browser is one of the
// clients. The player itself is loaded when it is wanted (player/client.js).

import { count, tenth } from "./format.js";
import { computed, effect, html, signal, useEffect, useRef } from "./html.js";
import { listening, play as listen, stop as stopListening } from "./listen.js";
import { act, ask, may, say, stations, status, trouble } from "./store.js";

const ID_KEY = "aulos.player.id";
/** The pause between two calls while a slider moves. */
const SLIDE_MS = 150;
/** How long a value that the reader sets is not overwritten by the server's. */
const TOUCHED_MS = 1_500;
const LATENCY_LIMIT_MS = 500;

/** The newest state of the player, or null while it does not run. */
const state = signal(null);
/** The station that was asked for last. */
const wanted = signal(null);
let player = null;

/** The name of this client, the same at each visit. */
function clientId() {
  try {
    const known = localStorage.getItem(ID_KEY);
    if (known) return known;
  } catch { /* A browser that keeps nothing is another client each time. */ }
  const id = `browser-${[...crypto.getRandomValues(new Uint8Array(8))].map(byte => byte.toString(16).padStart(2, "0")).join("")}`;
  try { localStorage.setItem(ID_KEY, id); } catch { /* as above */ }
  return id;
}
const id = clientId();

/** The client that this browser is, and its station, as the server knows them. */
const own = computed(() => {
  if (wanted.value === null) return null;
  const station = stations.value.find(one => one.clients.some(client => client.id === id && client.connected));
  return station ? { station, client: station.clients.find(client => client.id === id) } : null;
});

// Two tabs would be one client with two sounds.
const tabs = new BroadcastChannel(`aulos player ${new URL(".", document.baseURI).pathname}`);
tabs.onmessage = () => stop();
effect(() => { if (listening.value !== null) stop(); });

/** Makes the group of this client, which is then alone in it, play a station. */
async function assign(station) {
  const { server } = await ask("Server.GetStatus") ?? {};
  let group = server?.groups.find(one => one.clients.some(client => client.id === id));
  if (!group || group.stream_id === station) return;
  const others = group.clients.map(client => client.id).filter(one => one !== id);
  if (others.length > 0) {
    const result = await act("Group.SetClients", { id: group.id, clients: others });
    group = result?.server.groups.find(one => one.clients.some(client => client.id === id));
  }
  if (group) await act("Group.SetStream", { id: group.id, stream_id: station });
}

async function start(station) {
  stopListening();
  tabs.postMessage("started");
  wanted.value = station;
  if (player) return assign(station);
  const { SyncPlayer } = await import("./player/client.js").catch(() => ({}));
  if (wanted.value !== station || player) return undefined;
  if (!SyncPlayer) {
    wanted.value = null;
    trouble.value = "the player cannot be loaded; is the server there?";
    return undefined;
  }
  const url = new URL("stream", document.baseURI);
  Object.assign(url, { protocol: url.protocol.replace("http", "ws"), username: "", password: "" });
  let isAssigned = false;
  const started = new SyncPlayer({ url, id, version: status.value?.version ?? "", onState(next) {
    if (started !== player) return;
    state.value = next;
    if (isAssigned || next.connection !== "connected") return;
    isAssigned = true;
    assign(station).finally(() => started.release());
  } });
  player = started;
  return undefined;
}

function stop() {
  player?.close();
  player = wanted.value = state.value = null;
}

// What the system shows of it, and its keys.
const shown = computed(() => {
  if (!state.value) return null;
  const name = own.value?.station.name ?? wanted.value, { title, artist } = own.value?.station.playing ?? {};
  return JSON.stringify({ title: title || name, artist: (title && artist?.join(", ")) || name, isPlaying: state.value.isPlaying });
});
const KEYS = { play: () => player?.resume(), pause: stop, stop };
let hasKeys = false;
if ("mediaSession" in navigator) effect(() => {
  const media = navigator.mediaSession, { isPlaying, ...metadata } = JSON.parse(shown.value) ?? {};
  if (shown.value === null && !hasKeys) return;
  hasKeys = shown.value !== null;
  media.playbackState = hasKeys ? (isPlaying ? "playing" : "paused") : "none";
  if (hasKeys) media.metadata = new MediaMetadata({ ...metadata, album: "aulos" });
  for (const [action, handler] of Object.entries(KEYS)) {
    // Not every browser has each of them.
    try { media.setActionHandler(action, hasKeys ? handler : null); } catch { /* it has no such key */ }
  }
});

/** A loudspeaker with its sound. */
const SPEAKER = "M2 6h2.5L8 3v10L4.5 10H2zM10.5 5.8a3.2 3.2 0 0 1 0 4.4M12.5 3.8a6 6 0 0 1 0 8.4";

/** The button that makes this browser a client of a station; small, it is a picture alone. */
export function SyncButton({ station, isSmall }) {
  if (!may("Group.SetStream")) return null;
  const plays = wanted.value !== null && (own.value?.station.name ?? wanted.value) === station;
  return html`<button type="button" class=${isSmall ? "listen small" : "listen"} aria-pressed=${plays} title=${plays ? "Stop playing in sync" : "Play here, in sync with the rooms"} onClick=${() => plays ? stop() : start(station)}>
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d=${SPEAKER} fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"/></svg>
    <span class=${isSmall ? "visually-hidden" : ""}>Play in sync</span><span class="visually-hidden">: ${station}</span></button>`;
}

const ms = seconds => `${tenth(seconds * 1_000)} ms`;

/** How the player does, in one line: `{ text, warm }`. */
function syncState(now) {
  const { connection, problem, isBlocked, isPlaying, error, clockError } = now;
  if (connection === "refused") return { text: `the server refuses this browser: ${problem}`, warm: true };
  if (problem) return { text: problem, warm: true };
  if (isBlocked) return { text: "the browser waits for a press before it plays", warm: true };
  if (connection === "lost") return { text: isPlaying ? "connection lost, playing what has arrived" : "connection lost, connecting again", warm: true };
  if (connection === "connecting") return { text: "connecting", warm: false };
  if (!isPlaying || error === null) return { text: clockError === null ? "comparing clocks" : "waiting for audio", warm: false };
  const size = Math.abs(error), off = size >= 0.005;
  return { text: `${off ? `${ms(size)} ${error > 0 ? "early" : "late"}` : `in time: ${ms(size)}`} \u00b1 ${ms(clockError)}`, warm: off };
}

/** A slider that calls at most every `SLIDE_MS`, and follows the server while it is not touched. */
function Slider({ label, value, unit, onSet, ...range }) {
  const input = useRef(null), timer = useRef(0), touched = useRef(-Infinity);
  useEffect(() => { if (performance.now() - touched.current > TOUCHED_MS) input.current.value = value; });
  useEffect(() => () => clearTimeout(timer.current), []);
  const slide = () => {
    touched.current = performance.now();
    // The last value is sent too: the timer reads the slider when it runs out.
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      onSet(+input.current.value);
    }, SLIDE_MS);
  };
  return html`<label class="slider"><span>${label} <span class="number">${value} ${unit}</span></span>
    <input type="range" ref=${input} onInput=${slide} ...${range}/></label>`;
}

function SyncPanel({ now }) {
  const { text, warm } = syncState(now), { station, client } = own.value ?? {}, name = station?.name ?? wanted.value;
  const { format, settings, underruns, lost, connection, problem, isBlocked } = now, muted = client?.config.volume.muted ?? settings.muted;
  useEffect(() => { if (warm) say(`${name}: ${text}`); }, [connection, problem, isBlocked]);
  const facts = [
    format && `${format.codec} ${format.rate}:${format.bits}:${format.channels}`, count(underruns, "interruption"), lost > 0 && `${count(lost, "chunk")} lost`,
  ];
  return html`<aside class="player sync" aria-label="Player in sync">
    <div class="about"><p><strong>${name}</strong> <span class=${warm ? "warm" : "dim"}>${text}</span></p><p class="dim facts">${facts.filter(Boolean).join(" \u00b7 ")}</p></div>
    ${isBlocked ? html`<button type="button" class="urgent" onClick=${() => player?.resume()}>Start sound</button>` : ""}
    ${problem && connection !== "refused" ? html`<button type="button" onClick=${() => { stop(); listen(name); }}>Listen without sync</button>` : ""}
    <${Slider} label="Volume" unit="%" value=${settings.volume} min="0" max="100" step="1" onSet=${percent => act("Client.SetVolume", { id, volume: { percent } })}/>
    <button type="button" aria-pressed=${muted} onClick=${() => act("Client.SetVolume", { id, volume: { muted: !muted } })}>Mute</button>
    <${Slider} label="Latency" unit="ms" value=${Math.round(settings.latency * 1_000)} min=${-LATENCY_LIMIT_MS} max=${LATENCY_LIMIT_MS} step="5" onSet=${latency => act("Client.SetLatency", { id, latency })}/>
    <button type="button" onClick=${stop}>Stop<span class="visually-hidden"> playing in sync</span></button>
  </aside>`;
}

/** The bar at the bottom while this browser is a client. */
export const SyncBar = () => state.value && html`<${SyncPanel} now=${state.value}/>`;
