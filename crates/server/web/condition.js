// Whether all is well, and what is not: one judgement for the banner, the cards and the sources.

import { count } from "./format.js";

const FAULTS = { late: "no audio arrives", silent: "silent", dc: "constant value", "dead channel": "dead channel", error: "failed" };
const faultText = fault => FAULTS[fault] ?? fault;

/** The ranks of a condition, from the best. */
export const WELL = 0, IDLE = 1, ATTENTION = 2, BROKEN = 3;

/** `{ kind, text }` of a source; kind is `air`, `ready`, `standby`, `waiting`, `recovering`, `suspect` or `failed`. */
export function sourceCondition(source, station) {
  const { state, fault, last_fault: last } = source.health ?? {};
  const reason = source.reason ? `: ${source.reason}` : "";
  const onAir = station.active === source.name && station.switch.output !== "last resort";
  if (onAir && !fault) return { kind: "air", text: source.state === "silent" ? "on air, silent" : "on air" };
  if (onAir) return { kind: "suspect", text: `on air, ${faultText(fault)}` };
  if (source.dj && !source.dj.on_air) return { kind: "standby", text: "no live source" };
  if (state === "disabled") return { kind: "standby", text: "standby" };
  if (source.state === "failed" || fault === "error") return { kind: "failed", text: `failed${reason}` };
  if (state === "failed" || state === "backoff") return { kind: "failed", text: faultText(fault ?? last ?? "error") + reason };
  if (fault) return { kind: "suspect", text: faultText(fault) };
  if (state === "priming" && last) return { kind: "recovering", text: `recovering (${faultText(last)})` };
  if (awaitsSender(source)) return { kind: "standby", text: "waiting for its first audio" };
  if (state === "priming" || state === "connecting") return { kind: "waiting", text: source.state === "ready" ? "starting" : "waiting for audio" };
  return { kind: "ready", text: source.state === "silent" ? "silent" : "ready" };
}

/** Sources that are written to: a sender opens them when it has something to play. */
const WRITTEN = /^(pipe|stdin|librespot|spotify|airplay):|^tcp:(?!.*[?&]mode=client(&|$))/;

/** A source that a sender opens, and that no sender has opened since the station began. That is no fault: its sender may come at any time, or never. */
function awaitsSender(source) {
  const { state, has_started: hasStarted } = source.health ?? {};
  return hasStarted === false && source.state !== "failed" && (state === "connecting" || state === "priming") && WRITTEN.test(source.uri);
}

/** The name of the source that was selected, by hand or by the schedule, or null. */
const selectedSource = station => station.switch.preferred ?? station.switch.scheduled ?? null;

/** The source that should be on air: the selected one, else the first that is always there. */
function firstChoice(station) {
  const preferred = selectedSource(station);
  return station.sources.find(source => preferred === null ? !source.dj || source.dj.on_air : source.name === preferred);
}

/** The source that should be on air while another one is, or null. */
export function replacedSource(station) {
  const first = firstChoice(station);
  const order = station.sources.map(source => source.name);
  const isBehind = selectedSource(station) !== null || order.indexOf(station.active) > order.indexOf(first?.name);
  return first && station.active && station.active !== first.name && isBehind ? first : null;
}

/** A recorder of this station that writes a file. */
export const recording = station => station.recorders.some(recorder => recorder.state === "recording");

/** `{ rank, text, problems }` of a station. */
export function stationCondition(station) {
  const problems = [], add = (rank, text) => problems.push({ rank, text });
  const failed = station.sources.filter(source => sourceCondition(source, station).kind === "failed");
  const cannotOpen = failed.filter(source => source.state === "failed");
  const replaced = replacedSource(station);
  let text = "Playing";
  if (station.state === "stopped") {
    text = "Stopped";
    add(BROKEN, "the station is stopped");
  } else if (station.switch.output === "last resort" && station.switch.last_resort_ms > 0) {
    text = "Last resort";
    add(BROKEN, "no source has audio; the last resort plays");
  } else if (replaced && (selectedSource(station) !== null || !awaitsSender(replaced))) {
    text = "On fallback";
    add(ATTENTION, `on fallback: ${station.active} plays in place of ${replaced.name} (${sourceCondition(replaced, station).text})`);
  } else if (station.state === "silent") {
    text = "Silent";
    if (cannotOpen.length > 0) add(BROKEN, "silence: no source has audio");
  }
  for (const source of cannotOpen) {
    if (source !== replaced) add(ATTENTION, `source ${source.name} ${sourceCondition(source, station).text}`);
  }
  if (station.insert?.state === "bypassed") add(ATTENTION, `insert bypassed: ${station.insert.reason}`);
  for (const recorder of station.recorders) {
    if (recorder.trouble) add(ATTENTION, `recorder ${recorder.name}: ${recorder.trouble}`);
    if (recorder.upload?.last_error) add(ATTENTION, `upload of recorder ${recorder.name}: ${recorder.upload.last_error}`);
  }
  for (const push of station.pushes) if (push.state !== "pushing" && push.last_error) add(ATTENTION, `output ${push.target}: ${push.last_error}`);
  for (const output of station.rtp) if (output.reason) add(ATTENTION, `output ${output.dest}: ${output.reason}`);
  const idle = station.state === "silent" ? IDLE : WELL;
  return { rank: Math.max(idle, ...problems.map(problem => problem.rank)), text, problems };
}

/** `{ rank, text, detail, problems }` of the server; each problem has its station, if it is one's. */
export function serverCondition(status) {
  const conditions = status.stations.map(station => ({ station, condition: stationCondition(station) }));
  const problems = conditions.flatMap(({ station, condition }) => condition.problems.map(problem => ({ ...problem, station: station.name })));
  // A hook that cannot deliver events is a problem of its own.
  for (const hook of status.hooks ?? []) {
    if (hook.last_error?.s_ago < 600) problems.push({ rank: ATTENTION, text: `hook ${hook.name}: ${hook.last_error.text}` });
  }
  const all = conditions.length;
  const bad = conditions.filter(one => one.condition.rank >= ATTENTION);
  const playing = status.stations.filter(station => station.state === "playing").length;
  const idle = conditions.filter(one => one.condition.rank === IDLE).length;
  let text = all === 1 ? `${status.stations[0].name} is well` : `All ${all} stations are well`;
  if (all === 0) text = "No station is configured";
  else if (bad.length === 1 && all === 1) text = `${bad[0].station.name} needs attention`;
  else if (bad.length > 0) text = `${bad.length} of ${all} stations ${bad.length === 1 ? "needs" : "need"} attention`;
  else if (problems.length > 0) text = "The stations are well, but not the server";
  const clients = status.stations.flatMap(station => station.clients).filter(client => client.connected).length;
  const listeners = status.stations.reduce((sum, station) => sum + station.listeners, 0);
  const waiting = status.stations.flatMap(station => station.sources.filter(awaitsSender));
  const detail = [
    playing > 0 && (all > 1 ? `${playing} playing` : "playing"), idle > 0 && (all > 1 ? `${idle} silent` : "silent: nothing plays"),
    waiting.length > 0 && (waiting.length === 1 ? `source ${waiting[0].name} waits for its first audio` : `${waiting.length} sources wait for their first audio`),
    clients > 0 && count(clients, "client"), listeners > 0 && count(listeners, "web listener"),
  ].filter(Boolean).join(", ");
  return { rank: Math.max(WELL, ...problems.map(problem => problem.rank)), text, detail, problems };
}
