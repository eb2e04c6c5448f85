// Relays, and the outputs of the stations to other machines: where to, how much, and what was lost.

import { bytes, count, many } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { ask, link, stationLink, status } from "./store.js";

const READ_MS = 2_000;

/** The newest status and relays, and what they were before. */
function useCounters() {
  const [shown, setShown] = useState(null), before = useRef(null);
  useEffect(() => {
    let ends = false;
    const read = async () => {
      if (document.hidden) return;
      const [current, relays] = await Promise.all([ask("Aulos.GetStatus"), ask("Aulos.GetRelays")]);
      if (ends || !current) return;
      const next = { at: performance.now(), stations: current.stations, relays: relays?.relays ?? [] };
      setShown({ ...next, before: before.current });
      before.current = next;
    };
    read();
    const timer = setInterval(read, READ_MS);
    return () => { ends = true; clearInterval(timer); };
  }, []);
  return shown;
}

/** A change per second, or a dash before the second reading. */
function rate(now, then, seconds) {
  return then === undefined || !(seconds > 0) ? null : Math.max(0, now - then) / seconds;
}

const perSecond = (value, text) => value === null ? "\u2013" : text(value);

function Row({ title, path, state, kind, figures, problem }) {
  return html`<li class="route"><div class="about"><p class="facts"><strong>${title}</strong><span class=${"state " + kind}><span class="dot" aria-hidden="true"></span>${state}</span></p>
      <p class="path dim">${path}</p>${problem ? html`<p class="warm">${problem}</p>` : ""}</div>
    <div class="figures">${figures.map(([label, value, isBad]) => html`<dl key=${label}><dt>${label}</dt><dd><b class=${isBad ? "warm" : ""}>${value}</b></dd></dl>`)}</div></li>`;
}

function Relay({ relay, old, seconds }) {
  const packets = rate(relay.sent, old?.sent, seconds), data = rate(relay.sent_bytes, old?.sent_bytes, seconds);
  const causes = Object.entries({ ...relay.dropped_by, ...relay.foreign_by }).filter(([, number]) => number > 0).map(([name, number]) => `${number} ${name.replaceAll("_", " ")}`);
  const [state, kind] = relay.streams === 0 ? ["waiting for packets", ""] : [count(relay.streams, "stream"), "well"];
  return html`<${Row} title=${relay.name} path=${`${relay.from} \u2192 ${relay.to}, ${relay.listen} \u2192 ${relay.dest}`} state=${state} kind=${kind} problem=${causes.length > 0 ? `not forwarded: ${causes.join(", ")}` : ""}
    figures=${[["Packets", many(relay.sent)], ["Per second", perSecond(packets, value => many(Math.round(value)))], ["Data", bytes(relay.sent_bytes)], ["Rate", perSecond(data, value => `${bytes(value)}/s`)],
      ["Lost", many(relay.lost), false], ["Dropped", many(relay.dropped + relay.foreign), relay.dropped > 0]]}/>`;
}

function Output({ output, old, seconds }) {
  const packets = rate(output.packets, old?.packets, seconds), data = rate(output.bytes, old?.bytes, seconds);
  return html`<${Row} title=${output.dest} path=${`${output.encoding}, payload type ${output.payload_type}${output.sap ? ", announced by SAP" : ""}`} state=${output.state} kind=${output.reason ? "attention" : output.state === "sending" ? "well" : ""} problem=${output.reason}
    figures=${[["Packets", many(output.packets)], ["Per second", perSecond(packets, value => many(Math.round(value)))], ["Data", bytes(output.bytes)], ["Rate", perSecond(data, value => `${bytes(value)}/s`)],
      ["Unsent", many(output.unsent), output.unsent > 0], ["Gaps", many(output.gaps), output.gaps > 0]]}/>`;
}

function Push({ push, old, seconds }) {
  const data = rate(push.bytes, old?.bytes, seconds), runs = push.state === "pushing";
  const problem = runs ? push.title_error && `titles: ${push.title_error}` : push.last_error && `${push.last_error}${push.retry_in_s ? `; next attempt in ${push.retry_in_s} s` : ""}`;
  return html`<${Row} title=${push.target} path=${push.format ? `${push.codec}, as ${push.format}` : push.codec} state=${push.state} kind=${runs ? "well" : problem ? "attention" : ""} problem=${problem}
    figures=${[["Data", bytes(push.bytes)], ["Rate", perSecond(data, value => `${bytes(value)}/s`)], ["Connects", many(push.connects)], ["Failures", many(push.failures), push.failures > 0 && !runs], ["Skipped", many(push.skipped_chunks), false]]}/>`;
}

export function Relays() {
  const shown = useCounters();
  if (!status.value) return html`<h1>Outputs</h1><p class="dim">${link.value === "connecting" ? "Connecting" : "No connection to the server"}</p>`;
  const heading = html`<div class="heading"><h1>Outputs</h1>${link.value === "connected" ? "" : html`<span class="state lost"><span class="dot" aria-hidden="true"></span>Connection lost</span>`}</div>`;
  if (!shown) return html`${heading}<section class="card empty"><p class="dim">Loading</p></section>`;
  const seconds = shown.before ? (shown.at - shown.before.at) / 1000 : 0;
  const oldStation = name => shown.before?.stations.find(one => one.name === name);
  const sending = shown.stations.filter(station => station.rtp.length + station.pushes.length > 0);
  return html`${heading}<div class=${link.value === "connected" ? "stack" : "stack stale"}>
    ${shown.relays.length > 0 ? html`<section class="card" aria-labelledby="relays"><header><h2 id="relays">Relays</h2></header><ul class="rows">${shown.relays.map(relay => html`<${Relay} key=${relay.name} relay=${relay} old=${shown.before?.relays.find(one => one.name === relay.name)} seconds=${seconds}/>`)}</ul></section>` : ""}
    ${sending.map(station => html`<section key=${station.name} class="card" aria-label=${"Outputs of " + station.name}><header><h2>Outputs of <a href=${stationLink(station.name)}>${station.name}</a></h2></header><ul class="rows">
      ${station.rtp.map((output, index) => html`<${Output} key=${output.dest + index} output=${output} old=${oldStation(station.name)?.rtp[index]} seconds=${seconds}/>`)}
      ${station.pushes.map((push, index) => html`<${Push} key=${push.target + index} push=${push} old=${oldStation(station.name)?.pushes[index]} seconds=${seconds}/>`)}</ul></section>`)}
    ${shown.relays.length + sending.length === 0 ? html`<section class="card empty"><p>There are no relays, RTP outputs and pushes.</p>
      <p class="dim">A relay forwards RTP streams: a table <code>[[relay]]</code> in the configuration. A station is sent elsewhere by its keys <code>rtp</code> and <code>push</code>.</p></section>` : ""}</div>`;
}
