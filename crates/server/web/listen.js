// Listening in the browser: one audio element for the page, so that it plays on while the reader
// looks at another station.

import { html, signal, useEffect, useRef } from "./html.js";
import { link, stations, trouble } from "./store.js";

/** The name of the station that is listened to, or null. */
export const listening = signal(null);
const player = document.getElementById("player");
const address = name => {
  const mount = stations.value.find(one => one.name === name)?.mount;
  // Relative, because a proxy may have put the page elsewhere.
  return mount ? mount.path.slice(1) : `listen/${encodeURIComponent(name)}`;
};

// A browser that seeks ahead of a live stream would wait until the stream arrives there.
player.addEventListener("seeking", () => {
  const { buffered } = player;
  if (buffered.length === 0 || player.currentTime <= buffered.end(buffered.length - 1)) return;
  const plays = !player.paused;
  player.load();
  if (plays) player.play().catch(() => {});
});

player.addEventListener("error", () => {
  // Stopping takes the address away, which is not a fault.
  if (listening.value === null || !player.hasAttribute("src")) return;
  if (link.value === "connected") trouble.value = `cannot play ${listening.value} in this browser`;
  stop();
});

export function play(name) {
  listening.value = name;
  player.src = address(name);
  player.play().catch(error => { if (error.name === "NotAllowedError") stop(); });
  if ("mediaSession" in navigator) navigator.mediaSession.metadata = new MediaMetadata({ title: name, artist: "aulos" });
}

export function stop() {
  listening.value = null;
  player.pause();
  player.removeAttribute("src");
  player.load();
}

const PLAY = "M4 2.5v11l9-5.5z", STOP = "M3.5 3.5h9v9h-9z";

/** The one button that plays a station; small, it is a picture alone. */
export function ListenButton({ station, isSmall }) {
  const plays = listening.value === station;
  return html`<button type="button" class=${isSmall ? "listen small" : "listen"} aria-pressed=${plays} title=${plays ? "Stop listening" : "Listen here"} onClick=${() => plays ? stop() : play(station)}>
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d=${plays ? STOP : PLAY} fill="currentColor"/></svg>
    <span class=${isSmall ? "visually-hidden" : ""}>${plays ? "Stop" : "Listen"}</span><span class="visually-hidden"> ${plays ? "" : "to "}${station}</span></button>`;
}

/** The bar at the bottom while something is listened to. */
export function PlayerBar() {
  const volume = useRef(null), name = listening.value;
  useEffect(() => { if (volume.current) volume.current.value = player.volume * 100; }, [name]);
  if (name === null) return null;
  const station = stations.value.find(one => one.name === name);
  const title = station?.playing?.title;
  return html`<aside class="player" aria-label="Player">
    <p><strong>${name}</strong>${title ? html` <span class="dim">${[...(station.playing.artist ?? []), title].join(", ")}</span>` : ""}</p>
    <label class="volume"><span class="visually-hidden">Volume of this browser</span>
      <input type="range" min="0" max="100" ref=${volume} onInput=${event => { player.volume = event.target.value / 100; }}/></label>
    <button type="button" onClick=${stop}>Stop</button>
  </aside>`;
}
