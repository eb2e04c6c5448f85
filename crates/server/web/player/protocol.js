// Messages of Snapcast's stream protocol, each of them one binary WebSocket message
// (docs/standards/snapcast.md). Times are seconds, on the wire whole microseconds.

export const CODEC_HEADER = 1, WIRE_CHUNK = 2, SERVER_SETTINGS = 3, TIME = 4, HELLO = 5, CLIENT_INFO = 7, ERROR = 8;

const HEADER = 26;
const FIELD = { kind: 0, id: 2, refersTo: 4, sent: 6, received: 14, size: 22 };
const text = new TextDecoder(), bytes = new TextEncoder();

/** A time as the wire has it. */
export const wholeMicros = seconds => Math.floor(seconds * 1e6) / 1e6;

function putTime(view, at, seconds) {
  const micros = Math.floor(seconds * 1e6), whole = Math.floor(micros / 1e6);
  view.setInt32(at, whole, true);
  view.setInt32(at + 4, micros - whole * 1e6, true);
}

const getTime = (view, at) => view.getInt32(at, true) + view.getInt32(at + 4, true) / 1e6;

function message(kind, id, sent, payload) {
  const out = new Uint8Array(HEADER + payload.length), view = new DataView(out.buffer);
  view.setUint16(FIELD.kind, kind, true);
  view.setUint16(FIELD.id, id, true);
  putTime(view, FIELD.sent, sent);
  view.setUint32(FIELD.size, payload.length, true);
  out.set(payload, HEADER);
  return out;
}

function withLength(content) {
  const out = new Uint8Array(4 + content.length);
  new DataView(out.buffer).setUint32(0, content.length, true);
  out.set(content, 4);
  return out;
}

const json = value => withLength(bytes.encode(JSON.stringify(value)));

export const hello = (id, sent, properties) => message(HELLO, id, sent, json(properties));
export const timeRequest = (id, sent) => message(TIME, id, sent, new Uint8Array(8));
export const clientInfo = (sent, info) => message(CLIENT_INFO, 0, sent, json(info));

/** The blobs of a payload, each behind its length, from `at` on. */
function blobs(view, at, count) {
  const found = [];
  for (; found.length < count; at += 4 + found.at(-1).length) {
    const length = view.getUint32(at, true);
    found.push(new Uint8Array(view.buffer, view.byteOffset + at + 4, length));
  }
  return found;
}

/**
 * Parses a message of a server: `{ kind, id, refersTo, sent, received }` and what the kind has.
 * Throws a `RangeError` or a `SyntaxError` for a malformed one.
 */
export function parse(buffer) {
  const view = new DataView(buffer);
  const kind = view.getUint16(FIELD.kind, true);
  const stamp = {
    kind, id: view.getUint16(FIELD.id, true), refersTo: view.getUint16(FIELD.refersTo, true),
    sent: getTime(view, FIELD.sent), received: getTime(view, FIELD.received),
  };
  if (view.getUint32(FIELD.size, true) !== buffer.byteLength - HEADER) throw new RangeError("the size in the header is not that of the message");
  if (kind === WIRE_CHUNK) {
    const [payload] = blobs(view, HEADER + 8, 1);
    return { ...stamp, timestamp: getTime(view, HEADER), payload };
  }
  if (kind === TIME) return { ...stamp, latency: getTime(view, HEADER) };
  if (kind === CODEC_HEADER) {
    const [codec, header] = blobs(view, HEADER, 2);
    return { ...stamp, codec: text.decode(codec), header };
  }
  if (kind === SERVER_SETTINGS) return { ...stamp, settings: settings(JSON.parse(text.decode(blobs(view, HEADER, 1)[0]))) };
  if (kind === ERROR) {
    const [error, detail] = blobs(view, HEADER + 4, 2).map(blob => text.decode(blob));
    return { ...stamp, code: view.getUint32(HEADER, true), error, detail };
  }
  return stamp;
}

const LEAST_REPORT_MS = 500;

/** Settings with their defaults; values out of range are limited. Times are seconds. */
function settings(given) {
  const number = (value, otherwise) => Number.isFinite(value) ? value : otherwise;
  return {
    buffer: number(given.bufferMs, 1_000) / 1_000, latency: number(given.latency, 0) / 1_000,
    volume: Math.min(100, Math.max(0, number(given.volume, 100))), muted: given.muted === true,
    reportInterval: Number.isFinite(given.reportMs) ? Math.max(LEAST_REPORT_MS, given.reportMs) / 1_000 : null,
  };
}
