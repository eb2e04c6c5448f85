// Rooms: groups of clients, each with the station that it plays.

import { clientNames, syncText, words } from "./format.js";
import { html, signal, useEffect, useRef, useState } from "./html.js";
import { ClientSound } from "./sound.js";
import { act, ask, link, may, say, stations, status } from "./store.js";
import { TalkButton } from "./talk.js";

/** How long a value that the reader sets is not overwritten by the server's. */
const TOUCHED_MS = 1_500;
/** The pause between two calls while a slider moves. */
const SLIDE_MS = 50;
const DRAGGED = "application/x-aulos-client";

/** The client whose button takes the focus once it is drawn in its new group. */
const moved = signal(null);

/** The groups with their clients, by name. */
function groupsOf(all) {
  const groups = new Map();
  for (const station of all) for (const client of station.clients) {
    if (!groups.has(client.group)) groups.set(client.group, { id: client.group, named: client.group_name, muted: client.group_muted, station: station.name, clients: [] });
    groups.get(client.group).clients.push(client);
  }
  const names = clientNames(all.flatMap(station => station.clients));
  for (const group of groups.values()) {
    group.clients.sort((a, b) => names.get(a.id).localeCompare(names.get(b.id)));
    const [first, ...others] = group.clients.map(client => names.get(client.id));
    group.name = group.named || (others.length > 1 ? `${first} and ${others.length} others` : words([first, ...others]));
  }
  return { names, groups: [...groups.values()].sort((a, b) => a.name.localeCompare(b.name)) };
}

/** Moves a client into a group, or into one of its own; the same for a drag and for the menu. */
async function moveClient(client, name, from, to) {
  if (to && to.id === from.id) return;
  // A client that is taken out of its group gets one of its own.
  const [group, clients] = to ? [to.id, [...to.clients.map(one => one.id), client.id]] : [from.id, from.clients.map(one => one.id).filter(id => id !== client.id)];
  moved.value = client.id;
  const done = await act("Group.SetClients", { id: group, clients });
  if (done === undefined) moved.value = null;
  else say(to ? `${name} is now in ${to.name}` : `${name} now has a group of its own`);
}

/** A button with a menu of the groups to which a client can move. */
function MoveMenu({ client, name, group, groups }) {
  const [open, setOpen] = useState(false), button = useRef(null), menu = useRef(null);
  useEffect(() => { if (moved.value === client.id) { button.current?.focus(); moved.value = null; } }, [group.id]);
  useEffect(() => { if (open) menu.current.querySelector("button")?.focus(); }, [open]);
  const close = () => { setOpen(false); button.current.focus(); };
  const step = event => {
    const items = [...menu.current.querySelectorAll("button")], at = items.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (event.key === "Escape") close();
    else if (event.key === "Tab") setOpen(false);
    else if (next !== undefined) items.at(next % items.length).focus();
    else return;
    if (event.key !== "Tab") event.preventDefault();
  };
  const choose = to => { close(); moveClient(client, name, group, to); };
  const others = groups.filter(one => one.id !== group.id);
  return html`<div class="menu" onFocusOut=${event => { if (open && !event.currentTarget.contains(event.relatedTarget)) setOpen(false); }}>
    <button type="button" ref=${button} aria-haspopup="menu" aria-expanded=${open} onClick=${() => setOpen(!open)}>Move to\u2026<span class="visually-hidden"> (${name})</span></button>
    ${open ? html`<ul role="menu" ref=${menu} aria-label=${`Move ${name} to`} onKeyDown=${step}>
      ${others.map(to => html`<li key=${to.id} role="none"><button type="button" role="menuitem" tabindex="-1" onClick=${() => choose(to)}>${to.name}<small class="dim">${to.station}</small></button></li>`)}
      ${group.clients.length > 1 ? html`<li role="none"><button type="button" role="menuitem" tabindex="-1" onClick=${() => choose(null)}>A group of its own</button></li>` : ""}
      ${others.length === 0 && group.clients.length === 1 ? html`<li role="none"><button type="button" role="menuitem" tabindex="-1" onClick=${close}>There is no other group</button></li>` : ""}</ul>` : ""}
  </div>`;
}

export function Volume({ client, name }) {
  const slider = useRef(null), touched = useRef(-Infinity), timer = useRef(0), [shown, setShown] = useState(client.config.volume.percent);
  const { percent, muted, cap } = client.config.volume;
  useEffect(() => {
    if (performance.now() - touched.current <= TOUCHED_MS) return;
    if (slider.current) slider.current.value = percent;
    setShown(percent);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const slide = event => {
    touched.current = performance.now();
    setShown(+event.target.value);
    // The last value is sent too: the timer reads the slider when it runs out.
    if (!timer.current) timer.current = setTimeout(() => {
      timer.current = 0;
      act("Client.SetVolume", { id: client.id, volume: { percent: +slider.current.value } });
    }, SLIDE_MS);
  };
  const limit = cap === undefined ? "" : html`<small class="dim"> of at most ${cap}</small>`;
  if (!may("Client.SetVolume")) return html`<span class="volume"><span class="number">${muted ? "muted" : `${percent} %`}${limit}</span></span>`;
  return html`<span class="volume">
    <input type="range" min="0" max="100" step="1" ref=${slider} aria-label=${"Volume of " + name} onInput=${slide}/>
    <span class="number">${shown} %${limit}</span>
    <button type="button" aria-pressed=${muted} onClick=${() => act("Client.SetVolume", { id: client.id, volume: { muted: !muted } })}>Mute<span class="visually-hidden"> ${name}</span></button></span>`;
}

/** A text or a number that is set when the reader leaves the field or presses Enter. */
function Field({ label, value, unit, type = "text", onSet, ...more }) {
  const input = useRef(null);
  useEffect(() => { if (document.activeElement !== input.current) input.current.value = value; });
  const set = () => { if (input.current.value !== String(value)) onSet(input.current.value); };
  return html`<label class="field">${label} <span><input type=${type} ref=${input} onChange=${set} ...${more}/>${unit ? ` ${unit}` : ""}</span></label>`;
}

const GroupName = ({ group }) => html`<${Field} label="Name of the group" value=${group.named} placeholder=${group.name} onSet=${name => act("Group.SetName", { id: group.id, name })}/>`;

/** What is set once and seldom looked at. */
function ClientSettings({ client, name, group }) {
  const { config, host, snapclient } = client;
  return html`<details><summary>More</summary><div class="settings">
    ${may("Client.SetName") ? html`<${Field} label="Name" value=${config.name} placeholder=${host.name} onSet=${name => act("Client.SetName", { id: client.id, name })}/>` : ""}
    ${group.clients.length === 1 && may("Group.SetName") ? html`<${GroupName} group=${group}/>` : ""}
    ${may("Client.SetLatency") ? html`<${Field} label="Latency" type="number" step="1" unit="ms" value=${config.latency} onSet=${text => act("Client.SetLatency", { id: client.id, latency: Number(text) || 0 })}/>` : html`<p>Latency ${config.latency} ms</p>`}
    ${may("Aulos.SetVolumeCap") ? html`<${Field} label="Maximum volume" type="number" min="0" max="100" unit="%" value=${config.volume.cap ?? 100} onSet=${text => act("Aulos.SetVolumeCap", { client: client.id, percent: Number(text) })}/>` : ""}
    <p class="dim">${snapclient.name} ${snapclient.version}, ${host.ip}${host.os ? `, ${host.os}` : ""}</p>
    ${!client.connected && may("Server.DeleteClient") ? html`<button type="button" onClick=${() => act("Server.DeleteClient", { id: client.id })}>Forget</button>` : ""}
    ${group.clients.length > 1 ? html`<${TalkButton} target=${{ client: client.id }} name=${name} isQuiet/>` : ""}
    ${may("Aulos.GetClientSound") ? html`<${ClientSound} client=${client} name=${name}/>` : ""}
  </div></details>`;
}

function ClientRow({ client, name, group, groups }) {
  const { text, warm, title } = syncText(client.connected ? client.health : null), move = may("Group.SetClients");
  const channels = client.config.channels ? html` <span class="dim">${client.config.channels}</span>` : "";
  const drag = event => {
    event.dataTransfer.setData(DRAGGED, client.id);
    event.dataTransfer.effectAllowed = "move";
  };
  return html`<li class=${client.connected ? "client" : "client away"}>
    <div class="facts">
    <span class="who" draggable=${move} onDragStart=${drag}>${name === group.name ? html`<span class="visually-hidden">${name}</span><span class="dim">${client.snapclient.name} on ${client.host.name || client.host.ip}</span>` : html`<strong>${name}</strong>`}${channels}${client.connected ? "" : html` <span class="dim">disconnected</span>`}</span>
    <span class=${warm ? "health warm" : "health"} title=${title}>${text}</span>
    </div>
    <${Volume} client=${client} name=${name}/>
    ${move ? html`<${MoveMenu} client=${client} name=${name} group=${group} groups=${groups}/>` : ""}
    <${ClientSettings} client=${client} name=${name} group=${group}/>
  </li>`;
}

function Group({ group, groups, names }) {
  const [over, setOver] = useState(0), move = may("Group.SetClients");
  const isOurs = event => move && event.dataTransfer.types.includes(DRAGGED);
  const drop = event => {
    setOver(0);
    if (!isOurs(event)) return;
    event.preventDefault();
    const id = event.dataTransfer.getData(DRAGGED), from = groups.find(one => one.clients.some(client => client.id === id));
    if (from) moveClient(from.clients.find(client => client.id === id), names.get(id), from, group);
  };
  // Entering a child comes before leaving its parent, so the two are counted.
  return html`<section class=${over > 0 ? "card group over" : "card group"} aria-label=${group.name}
      onDragOver=${event => { if (isOurs(event)) event.preventDefault(); }} onDrop=${drop}
      onDragEnter=${event => { if (isOurs(event)) setOver(count => count + 1); }} onDragLeave=${event => { if (isOurs(event)) setOver(count => Math.max(0, count - 1)); }}>
    <header><h2>${group.name}</h2>
      <label class="field">Station ${may("Group.SetStream")
        ? html`<select value=${group.station} onChange=${event => act("Group.SetStream", { id: group.id, stream_id: event.target.value })}>${stations.value.filter(one => !one.mount).map(one => html`<option key=${one.name} value=${one.name} selected=${one.name === group.station}>${one.name}</option>`)}</select>`
        : html`<strong>${group.station}</strong>`}<span class="visually-hidden"> of ${group.name}</span></label>
      ${may("Group.SetMute") && (group.clients.length > 1 || group.muted) ? html`<button type="button" aria-pressed=${group.muted} onClick=${() => act("Group.SetMute", { id: group.id, mute: !group.muted })}>Mute group<span class="visually-hidden"> ${group.name}</span></button>` : group.muted ? html`<span class="dim">muted</span>` : ""}
      <${TalkButton} target=${{ group: group.id }} name=${group.name} isQuiet/></header>
    <ul class="rows">${group.clients.map(client => html`<${ClientRow} key=${client.id} client=${client} name=${names.get(client.id)} group=${group} groups=${groups}/>`)}</ul>
    ${group.clients.length > 1 && may("Group.SetName") ? html`<details><summary>Rename</summary><${GroupName} group=${group}/></details>` : ""}
  </section>`;
}

function Presets() {
  const [list, setList] = useState([]), name = useRef(null);
  useEffect(() => { ask("Aulos.GetPresets").then(result => setList(result?.presets ?? [])); }, [link.value]);
  const save = may("Aulos.SavePreset"), names = list.map(preset => preset.name ?? preset);
  if (!save && names.length === 0) return null;
  const change = async (method, params, text) => {
    const result = await act(method, params);
    if (result?.presets) setList(result.presets);
    if (result !== undefined) say(text);
  };
  const submit = event => {
    event.preventDefault();
    const value = name.current.value.trim();
    change("Aulos.SavePreset", { name: value }, `Preset ${value} is saved`);
    name.current.value = "";
  };
  return html`<section class="card presets" aria-labelledby="presets"><header><h2 id="presets">Presets</h2></header>
    ${names.length === 0 ? html`<p class="dim">A preset restores which clients play together, and what.</p>` : ""}
    <ul class="rows">${names.map(one => html`<li key=${one}><strong class="about">${one}</strong><span class="buttons">
      ${may("Aulos.ApplyPreset") ? html`<button type="button" onClick=${() => change("Aulos.ApplyPreset", { name: one }, `Preset ${one} is applied`)}>Apply<span class="visually-hidden"> ${one}</span></button>` : ""}
      ${may("Aulos.DeletePreset") ? html`<button type="button" onClick=${() => change("Aulos.DeletePreset", { name: one }, `Preset ${one} is deleted`)}>Delete<span class="visually-hidden"> ${one}</span></button>` : ""}</span></li>`)}</ul>
    ${save ? html`<form class="inline" onSubmit=${submit}><label>Save as <input ref=${name} required maxlength="64" placeholder="Evening"/></label><button type="submit">Save</button></form>` : ""}</section>`;
}

export function Rooms() {
  if (!status.value) return html`<h1>Rooms</h1><p class="dim">${link.value === "connecting" ? "Connecting" : "No connection to the server"}</p>`;
  const { groups, names } = groupsOf(stations.value);
  return html`<div class="heading"><h1>Rooms</h1>${link.value === "connected" ? "" : html`<span class="state lost"><span class="dot" aria-hidden="true"></span>Connection lost</span>`}</div>
    <div class=${link.value === "connected" ? "groups" : "groups stale"} inert=${link.value !== "connected"}>
      ${groups.map(group => html`<${Group} key=${group.id} group=${group} groups=${groups} names=${names}/>`)}
      ${groups.length === 0 ? html`<section class="card"><p class="dim">No client yet. Start one with: <code>snapclient -h ${location.hostname}</code></p></section>` : ""}
      <${Presets}/></div>`;
}
