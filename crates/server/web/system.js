// The server itself: what it runs on, what it uses, what it refused, and how it is configured.

import { Cluster } from "./cluster.js";
import { bytes, count, dateTime, duration } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { act, getJson, may, say } from "./store.js";

const READ_MS = 2_000, CONFIGURATION_MS = 15_000;
/** Counters of what did not go as its sender wanted. */
const REFUSED = /cut|refused|dropped|superseded|lost|failed|slowed|wrong|cross|not_|evicted|over_budget|skipped|broken/;

const words = name => name.replaceAll("_", " ").replace(/\b(http|rpc|tls)\b/g, short => short.toUpperCase()).replace(/\bdjs\b/, "live sources");

/** A resource that is read again and again while the page is seen: the newest result and the last problem. */
function useResource(path, everyMs, version) {
  const [result, setResult] = useState({ data: null, problem: "" });
  useEffect(() => {
    let ends = false;
    const read = async () => {
      if (document.hidden) return;
      const next = await getJson(path).then(data => ({ data, problem: "" }), error => ({ problem: error.message }));
      if (!ends) setResult(held => ({ ...held, ...next }));
    };
    read();
    const timer = setInterval(read, everyMs);
    return () => { ends = true; clearInterval(timer); };
  }, [path, everyMs, version]);
  return result;
}

function Facts({ rows }) {
  return html`<dl class="pairs">${rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

const percent = value => value === null || value === undefined ? "\u2013" : `${value.toFixed(1)} %`;

function Load({ system }) {
  const { process, threads } = system;
  return html`<section class="card" aria-labelledby="load"><header><h2 id="load">Load</h2></header>
    <div class="figures three"><dl><dt>CPU <small>of one core</small></dt><dd><b>${percent(process.cpu_percent)}</b></dd></dl>
      <dl><dt>Memory</dt><dd><b>${bytes(process.resident_bytes)}</b></dd></dl>
      <dl><dt>Open files</dt><dd><b>${process.open_files ?? "\u2013"}</b>${process.max_open_files ? html` <small>of ${process.max_open_files}</small>` : ""}</dd></dl></div>
    ${threads.length > 0 ? html`<table><caption class="visually-hidden">Threads</caption><thead><tr><th scope="col">Thread</th><th scope="col" class="number">CPU</th><th scope="col" class="number">CPU time</th></tr></thead>
      <tbody>${threads.map(thread => html`<tr key=${thread.name}><td>${thread.name}</td><td class="number">${percent(thread.cpu_percent)}</td><td class="number">${thread.cpu_s.toFixed(2)} s</td></tr>`)}</tbody></table>` : ""}</section>`;
}

function Refused({ counters }) {
  const all = Object.entries(counters).filter(([, number]) => number > 0).sort();
  const refused = all.filter(([name]) => REFUSED.test(name)), others = all.filter(([name]) => !REFUSED.test(name));
  return html`<section class="card" aria-labelledby="refused"><header><h2 id="refused">Dropped and refused</h2></header>
    ${refused.length === 0 ? html`<p class="dim">Nothing has been dropped or refused.</p>` : html`<${Facts} rows=${refused.map(([name, number]) => [words(name), number])}/>`}
    ${others.length > 0 ? html`<details><summary>Other counters</summary><${Facts} rows=${others.map(([name, number]) => [words(name), number])}/></details>` : ""}</section>`;
}

/** The keys of a configuration with their paths; an element of a list has its name or number. */
function flatten(value, path = "") {
  if (Array.isArray(value) && value.some(one => one !== null && typeof one === "object")) return value.flatMap((one, index) => flatten(one, `${path}.${one?.name ?? index}`));
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return Object.entries(value).flatMap(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key));
  return [[path, Array.isArray(value) ? value.join(", ") : String(value)]];
}

function reloadText(report) {
  const parts = [["added", "added"], ["changed", "changed"], ["adjusted", "adjusted"], ["removed", "removed"], ["settings", "new settings of"], ["needs_restart", "after a restart:"], ["failed", "failed:"]]
    .filter(([key]) => report[key].length > 0).map(([key, text]) => `${text} ${report[key].join(", ")}`);
  return parts.length === 0 ? "Nothing has changed." : `${parts.join("; ")}.`;
}

function Configuration() {
  const [reads, setReads] = useState(0), [report, setReport] = useState("");
  const { data, problem } = useResource("api/v1/configuration", CONFIGURATION_MS, reads);
  const reload = async () => {
    const result = await act("Aulos.Reload");
    setReads(reads + 1);
    if (!result) return setReport("");
    setReport(reloadText(result));
    say("The configuration has been read again");
  };
  const rows = data ? flatten(data.configuration ?? {}).filter(([path]) => path) : [];
  return html`<section class="card wide" aria-labelledby="configuration"><header><h2 id="configuration">Configuration</h2>
      <button type="button" onClick=${reload}>Reload</button><a class="button" href="api/v1/diagnostics" download>Diagnostics</a></header>
    ${report ? html`<p role="status">${report}</p>` : ""}
    ${data && !data.is_current ? html`<p class="warm">The file has errors and is not applied; <code>aulos check</code> shows them.</p>` : ""}
    ${problem ? html`<p class="warm">${problem}</p>` : ""}
    <p class="dim">Keys that are set${data ? `, as read at ${dateTime(data.read_at)}` : ""}; all others have the defaults of the <a href="api/v1/configuration/reference">reference</a>. Diagnostics are one file with the versions, this configuration, the status and the events, without secrets.</p>
    ${data && rows.length === 0 ? html`<p>No key is set.</p>` : html`<${Facts} rows=${rows.map(([path, value]) => [path, html`<code>${value}</code>`])}/>`}
    ${data?.warnings.length > 0 ? html`<ul class="warm">${data.warnings.map(text => html`<li key=${text}>${text}</li>`)}</ul>` : ""}</section>`;
}

export function System() {
  const { data, problem } = useResource("api/v1/system", READ_MS);
  return html`<div class="heading"><h1>System</h1>${problem ? html`<span class="state lost"><span class="dot" aria-hidden="true"></span>${problem}</span>` : ""}</div>
    ${data === null ? html`<section class="card empty"><p class="dim">${problem || "Loading"}</p></section>` : html`<div class=${problem ? "columns stale" : "columns"}>
      <div class="stack"><section class="card" aria-labelledby="server"><header><h2 id="server">Server</h2></header><${Facts} rows=${[
        ["Version", `aulos ${data.version}`], ["Host", data.host.name], ["System", `${data.host.os}, ${data.host.arch}`],
        ["Running for", duration(data.uptime_s)], ["Started", dateTime(data.started)], ["Log level", data.log_level], ["Optional parts", data.features.join(", ") || "none"],
        ["Connections", `${count(data.connections.clients, "client")}, ${count(data.connections.listeners, "web listener")}, ${count(data.connections.controllers, "controller")}`],
      ]}/></section><${Refused} counters=${data.counters}/></div>
      <${Load} system=${data}/>${may("Aulos.Reload") ? html`<${Configuration}/>` : ""}</div>`}
    <${Cluster}/>`;
}
