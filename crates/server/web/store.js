// What the page knows, and how it acts. Components read the signals and are drawn again when one
// changes; meters do not pass through signals, because they change ten times a second.

import { CallError, Feed } from "./feed.js";
import { batch, computed, effect, signal } from "./html.js";

/** `connecting`, `connected`, `lost` or `refused`. */
export const link = signal("connecting");
/** The result of `Aulos.GetStatus`, or null. It stays when the connection is lost. */
export const status = signal(null);
/** The names of the methods that this browser may call. */
export const permitted = signal(new Set());
/** The last problem of a call, for a note that goes away. */
export const trouble = signal("");
/** A text for screen readers. */
export const spoken = signal("");
export const stations = computed(() => status.value?.stations ?? []);

/** The newest events, the newest first, or null before they are known. */
export const events = signal(null);
/** The number of warnings and errors that are not acknowledged. */
export const unacknowledged = signal(0);
/** Changes whenever a recorder has begun or completed a file. */
export const recordingChanges = signal(0);

const VIEWS = ["rooms", "recordings", "logs", "relays", "events", "system"];

/** Where the addresses of the server are relative to this document. */
const root = document.querySelector("meta[name=aulos-root]")?.content ?? "";

/** `{ page, name, query }`: a view of the page, or `meter`, which has an address of its own. */
export const route = signal(parseRoute());
addEventListener("hashchange", () => { route.value = parseRoute(); });

function decoded(name) {
  try { return decodeURIComponent(name); } catch { return ""; }
}

function parseRoute() {
  if (root) return { page: "meter", name: decoded(location.pathname.split("/").at(-1)) };
  const [path, query = ""] = location.hash.split("?"), [, page = "", encoded = ""] = path.split("/");
  if (VIEWS.includes(page)) return { page };
  const name = page === "station" ? decoded(encoded) : "";
  if (name) return { page, name, query };
  return page ? { page: "unknown", name: location.hash } : { page: "live" };
}

export const stationLink = name => `#/station/${encodeURIComponent(name)}`;

const quiet = matchMedia("(prefers-reduced-motion: reduce)");
const calm = signal(quiet.matches);
quiet.addEventListener("change", () => { calm.value = quiet.matches; });
/** Whether the reader wants little motion. */
export const isCalm = calm;

const hidden = signal(document.hidden);
document.addEventListener("visibilitychange", () => { hidden.value = document.hidden; });

/** The newest meters by station, and the functions that are called with each frame. */
export const meters = { readings: new Map(), listeners: new Set() };

function publishMeters(readings) {
  meters.readings = readings;
  for (const listener of meters.listeners) listener(readings);
}

function socketAddress(path) {
  const address = new URL(root + path, document.baseURI);
  return Object.assign(address, { protocol: address.protocol.replace("http", "ws"), username: "", password: "" });
}

const address = socketAddress("jsonrpc");
/** The WebSocket of a talk. */
export const talkAddress = socketAddress("api/v1/talk");
let version = null;

const FIRST_EVENTS = 100, MOST_EVENTS = 1_000;
const RECORDING_CHANGES = ["closed", "deleted", "repaired", "recovered", "vanished"];

/** Takes new and changed events over. */
function addEvents(found) {
  const byId = new Map((events.value ?? []).map(event => [event.id, event]));
  for (const event of found.events) byId.set(event.id, event);
  batch(() => {
    events.value = [...byId.values()].sort((a, b) => b.id - a.id).slice(0, MOST_EVENTS);
    unacknowledged.value = found.unacknowledged;
  });
}

/** Reads the newest events in place of those that are known. */
export async function loadEvents(limit) {
  const found = await ask("Aulos.GetEvents", { limit });
  if (!found) return;
  // The numbers of a server that was started again begin anew.
  if (events.value?.[0]?.id > found.newest) events.value = null;
  addEvents(found);
}

const feed = new Feed(address, {
  open() {
    feed.call("General.GetRPCCommands").then(({ commands }) => {
      permitted.value = new Set(commands.filter(one => one.hasPermission).map(one => one.method));
    }, () => {});
    if (route.value.page !== "meter") loadEvents(events.value?.length || FIRST_EVENTS);
  },
  lost() {
    if (link.value !== "refused") link.value = "lost";
    publishMeters(new Map());
  },
  refused() { link.value = "refused"; },
  notification(method, params) {
    if (method === "Aulos.OnEvents") addEvents(params);
    if (method === "Aulos.OnRecording" && RECORDING_CHANGES.includes(params.event)) recordingChanges.value += 1;
    if (method !== "Aulos.OnStatus") return;
    // The page of another version may not fit the server.
    if (version !== null && version !== params.version) location.reload();
    version = params.version;
    status.value = params;
    link.value = "connected";
  },
  meters: publishMeters,
});

// Nothing is sent for meters that are not seen.
effect(() => {
  const { page, name } = route.value;
  const hz = calm.value ? 2 : 10, wanted = { status: true, events: page !== "meter" };
  if (!hidden.value && page === "live") wanted.meters = { hz };
  if (!hidden.value && (page === "station" || page === "meter") && stations.value.some(one => one.name === name)) wanted.meters = { stations: [name], hz };
  feed.subscribe(wanted);
});

export const may = method => permitted.value.has(method);

/** Calls a method and returns its result; a problem is shown, and the result is then undefined. */
export async function act(method, params) {
  try {
    trouble.value = "";
    return await feed.call(method, params);
  } catch (error) {
    trouble.value = error.message;
    return undefined;
  }
}

/** Stores or deletes something: its description, null when there is none, or undefined when it was refused. */
export async function send(method, path, body) {
  trouble.value = "";
  try {
    const response = await fetch(root + path, { method, body });
    if (!response.ok) throw new CallError((await response.text()).trim() || `the server answers ${response.status}`);
    return response.status === 201 ? response.json() : null;
  } catch (error) {
    trouble.value = error instanceof CallError ? error.message : "no connection to the server";
    return undefined;
  }
}

/** Calls a method for its result alone; null when there is none. */
export const ask = (method, params) => feed.call(method, params).catch(() => null);

/** Reads a resource of the HTTP API; an error has a text for readers. */
export async function getJson(path) {
  const response = await fetch(root + path, { headers: { accept: "application/json" } }).catch(() => { throw new CallError("no connection to the server"); });
  if (!response.ok) throw new CallError((await response.text()).trim() || `the server answers ${response.status}`);
  return response.json();
}

export function say(text) { spoken.value = text; }
