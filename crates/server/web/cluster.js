// The servers of a cluster, with their stations and clients, as one of them sees the others.

import { count, duration } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { ask } from "./store.js";

/** A node answers within half a second, and the server shares a result for a second. */
const READ_MS = 3_000;

/** The status of the cluster while the page is seen; null where there is none. */
function useCluster() {
  const [cluster, setCluster] = useState(null);
  useEffect(() => {
    let ends = false;
    const read = async () => {
      if (document.hidden) return;
      const next = await ask("Aulos.GetClusterStatus");
      if (!ends) setCluster(next);
    };
    read();
    const timer = setInterval(read, READ_MS);
    return () => { ends = true; clearInterval(timer); };
  }, []);
  return cluster;
}

function state(node) {
  if (node.error) return html`<span class="state lost"><span class="dot" aria-hidden="true"></span>${node.error}</span>`;
  if (!node.reachable) return html`<span class="state lost"><span class="dot" aria-hidden="true"></span>no answer for ${duration(Math.round(node.age_ms / 1000))}</span>`;
  return html`<span class="state"><span class="dot" aria-hidden="true"></span>${node.is_self ? "this server" : "reachable"}</span>`;
}

const stationText = one => `${one.state}${one.active ? `, ${one.active}` : ""}${one.publication ? `, ${one.publication}` : ""}; ${count(one.client_count, "client")}`;

function Clients({ groups, omitted }) {
  const rows = groups.flatMap(group => group.clients.filter(one => one.connected).map(one => ({ ...one, station: group.stream_id, isMuted: group.muted || one.volume.muted })));
  if (rows.length === 0) return "";
  return html`<details><summary>${count(rows.length, "connected client")}</summary><dl class="pairs">${rows.map(one => html`<div key=${one.id}><dt>${one.name || one.host || one.id}</dt>
    <dd>${one.station}, ${one.isMuted ? "muted" : `${one.volume.percent} %`}</dd></div>`)}</dl>${omitted > 0 ? html`<p class="dim">${count(omitted, "group")} more</p>` : ""}</details>`;
}

function Node({ node, index }) {
  const stations = node.stations ?? [], id = `node-${index}`;
  return html`<section class="card" aria-labelledby=${id}><header><h3 id=${id} class="node">${node.name}</h3>${state(node)}</header>
    ${node.version ? html`<p class="dim">aulos ${node.version} on ${node.host}, running for ${duration(node.uptime_s)}</p>` : ""}
    <dl class="pairs">${stations.map(one => html`<div key=${one.name}><dt>${one.name}</dt><dd>${stationText(one)}</dd></div>`)}</dl>
    <${Clients} groups=${node.groups ?? []} omitted=${node.groups_omitted ?? 0}/></section>`;
}

/** All servers; nothing on a server without a cluster. */
export function Cluster() {
  const cluster = useCluster();
  if (!cluster) return "";
  return html`<section class="cluster" aria-labelledby="cluster"><div class="heading"><h2 id="cluster">Cluster ${cluster.site}</h2>
      <span class="dim">${count(cluster.nodes.length, "server")}</span>${cluster.connected ? "" : html`<span class="state lost"><span class="dot" aria-hidden="true"></span>not connected to NATS</span>`}</div>
    <div class="columns">${cluster.nodes.map((node, index) => html`<${Node} key=${node.name} node=${node} index=${index}/>`)}</div></section>`;
}
