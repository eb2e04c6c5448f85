// The view of all stations: one look says whether all is well.

import { ATTENTION, BROKEN, IDLE, recording, replacedSource, serverCondition, sourceCondition, stationCondition } from "./condition.js";
import { clientNames, count, soundName } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { ListenButton } from "./listen.js";
import { Figures, Meter, MeterLegend, Metered } from "./meters.js";
import { Volume } from "./rooms.js";
import { ask, link, stationLink, stations, status } from "./store.js";
import { SyncButton } from "./sync.js";

const RANKS = { [IDLE]: "idle", [ATTENTION]: "attention", [BROKEN]: "broken" };
export const rankName = rank => RANKS[rank] ?? "well";

const CHECK = "M3 8.5l3.5 3.5L13 4.5", MARK = "M8 3v6M8 12v1";

/** The answer to the question whether all is well. */
export function Banner() {
  if (link.value !== "connected") {
    const text = { connecting: "Connecting", lost: "Connection lost", refused: "Login required" }[link.value];
    return html`<section class="banner lost" role="status"><span class="lamp" aria-hidden="true"></span><div><h1>${text}</h1>
      <p>${link.value === "refused" ? html`<a href="login">Log in</a> to see the stations.` : link.value === "lost" ? "The page connects again by itself." : "\u00a0"}</p></div></section>`;
  }
  const { rank, text, detail, problems } = serverCondition(status.value);
  return html`<section class=${"banner " + rankName(rank)} role="status">
    <span class="lamp" aria-hidden="true"><svg viewBox="0 0 16 16" width="20" height="20"><path d=${rank >= ATTENTION ? MARK : CHECK} fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/></svg></span>
    <div><h1>${text}</h1>${problems.length === 0 ? html`<p>${detail}</p>`
      : html`<ul>${byStation(problems).map(([station, [worst, ...others]]) => html`<li key=${(station ?? "") + worst.text}>${station ? html`<a href=${stationLink(station)}>${station}</a>: ` : ""}${worst.text}${others.length > 0 ? html` <span title=${others.map(problem => problem.text).join("\n")}>and ${count(others.length, "other problem")}</span>` : ""}</li>`)}</ul>`}</div>
  </section>`;
}

/** One entry for each station, its worst problem first; a problem of the server has an entry of its own. */
function byStation(problems) {
  const all = new Map();
  for (const problem of problems) {
    const key = problem.station ?? problem;
    if (!all.has(key)) all.set(key, [problem.station, []]);
    all.get(key)[1].push(problem);
  }
  for (const [, list] of all.values()) list.sort((one, other) => other.rank - one.rank);
  return [...all.values()];
}

/** The sources of a station in their order, the one on air marked. */
function SourceChips({ station }) {
  return html`<ul class="chips" aria-label=${"Sources of " + station.name}>${station.sources.map(source => {
    const { kind, text } = sourceCondition(source, station);
    return html`<li key=${source.name} class=${"chip " + kind} title=${`${source.name}: ${text}`}><span class="dot" aria-hidden="true"></span><span>${source.name}</span>
      ${kind === "ready" ? html`<span class="visually-hidden">${text}</span>` : html`<span class="what">${text.split(":")[0]}</span>`}</li>`;
  })}</ul>`;
}

/** The announcement, the title or the source client that is heard; empty if unknown. */
function titleOf(station) {
  const announcement = station.announcements.find(one => one.state === "playing");
  if (announcement) return `Announcement: ${soundName(announcement.uri)}`;
  const title = station.state === "playing" && station.playing?.title;
  if (title) return [...(station.playing.artist ?? []), title].join(" \u2013 ");
  const live = station.sources.find(source => source.name === station.active)?.dj;
  return live?.on_air ? live.name || live.user_agent || "live source" : "";
}

/** What a station plays, in one line. */
export function NowPlaying({ station }) {
  const title = titleOf(station);
  return html`<p class="title" title=${title}>${title || html`<span class="dim">${station.active ? `From ${station.active}` : "No source has audio"}</span>`}</p>`;
}

/** Clients whose volumes are on the card of their station; more are in Rooms only. */
const FEW_CLIENTS = 3;

/** The volumes of a station with few clients. */
function Volumes({ clients }) {
  const names = clientNames(clients);
  return html`<ul class="volumes" aria-label="Volumes">${clients.map(client => html`<li key=${client.id}><span class="who">${names.get(client.id)}</span><${Volume} client=${client} name=${names.get(client.id)}/></li>`)}</ul>`;
}

/** Who receives a station; a mount has no clients. */
function audience({ mount, listeners }, clients) {
  const web = count(listeners, "web listener");
  if (mount) return web;
  return count(clients, "client") + (listeners ? `, ${web}` : "");
}

function Card({ station }) {
  const { rank, text } = stationCondition(station), replaced = replacedSource(station);
  const clients = station.clients.filter(client => client.connected);
  const { total } = station.latency_ms;
  return html`<article class="card" aria-label=${station.name}>
    <header><h2><a href=${stationLink(station.name)}>${station.name}</a></h2>
      ${recording(station) ? html`<span class="state recording"><span class="dot" aria-hidden="true"></span><abbr title="Recording">REC</abbr></span>` : ""}
      <span class=${"state " + rankName(rank)}><span class="dot" aria-hidden="true"></span>${text}</span>
      <${ListenButton} station=${station.name} isSmall/>${station.mount ? "" : html`<${SyncButton} station=${station.name} isSmall/>`}</header>
    <${NowPlaying} station=${station}/>
    ${clients.length > 0 && clients.length <= FEW_CLIENTS ? html`<${Volumes} clients=${clients}/>` : ""}
    <${Meter} station=${station}/>
    <${Figures} station=${station}/>
    <${SourceChips} station=${station}/>
    <p class="foot dim"><span>${audience(station, clients.length)}</span>
      <span title=${`latency ${total} ms`}>${station.mount ? `mount ${station.mount.codec}` : station.codec} ${station.spec}</span>${replaced ? html`<span class="replaced">in place of ${replaced.name}</span>` : ""}</p>
  </article>`;
}

/** How often the counters of relays are read. */
const RELAYS_MS = 5_000;

/** The relays; nothing where there are none. */
function Relays() {
  const [newest, setNewest] = useState(null), known = status.value.relays ?? [];
  useEffect(() => {
    if (known.length === 0) return undefined;
    const timer = setInterval(async () => {
      if (!document.hidden) setNewest((await ask("Aulos.GetStatus"))?.relays ?? null);
    }, RELAYS_MS);
    return () => clearInterval(timer);
  }, [known.length]);
  if (known.length === 0) return null;
  return html`<section class="card relays" aria-label="Relays"><h2>Relays</h2><ul class="rows">${(newest ?? known).map(relay => {
    const bad = relay.dropped + relay.foreign;
    const figures = [count(relay.streams, "stream"), `${relay.sent} sent`, `${relay.lost} lost`, relay.recovered && `${relay.recovered} recovered`, bad && `${bad} not forwarded`];
    return html`<li key=${relay.name}><span>${relay.name} <span class="dim">${relay.from} \u2192 ${relay.to}, ${relay.listen} \u2192 ${relay.dest}</span></span>
      <span class=${relay.dropped ? "number warm" : "number"}>${figures.filter(Boolean).join(" \u00b7 ")}</span></li>`;
  })}</ul></section>`;
}

export function Live() {
  return html`<${Banner}/>
    ${status.value && html`<${Metered} label="Stations"><div class="cards">${stations.value.map(station => html`<${Card} key=${station.name} station=${station}/>`)}</div></${Metered}>${stations.value.length > 0 ? html`<${MeterLegend}/>` : ""}<${Relays}/>`}`;
}
