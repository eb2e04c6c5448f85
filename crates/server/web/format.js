// Values as text.

const minus = text => text.replace("-", "\u2212");

/** A value with one decimal, or a dash. */
export const tenth = value => value === null || value === undefined ? "\u2013" : minus(value.toFixed(1));
/** A change in decibels, with its sign. */
export const signed = value => value === null || value === undefined ? "\u2013" : (value > 0.05 ? "+" : "") + minus((Math.abs(value) < 0.05 ? 0 : value).toFixed(1));
export const lufs = value => value === null || value === undefined ? "none" : tenth(value) + " LUFS";
export const number = value => minus(String(value));
export const count = (many, one, several = one + "s") => `${many} ${many === 1 ? one : several}`;

/** A list as words: a, b and c. */
export const words = list => list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;

/** A time of day with 24 hours, whatever the language of the browser. */
export const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DATE_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
export const dateTime = text => DATE_TIME.format(new Date(text));

export const two = value => String(value).padStart(2, "0");
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${two(Math.floor(whole / 3600))}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];
/** A size in decimal units, with three digits. */
export function bytes(size) {
  if (size === null || size === undefined) return "\u2013";
  let unit = 0, value = size;
  while (value >= 1000 && unit < UNITS.length - 1) { value /= 1000; unit += 1; }
  return `${unit === 0 ? Math.round(value) : value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** A number with its thousands apart. */
export const many = value => new Intl.NumberFormat().format(value);

/** A time in its two greatest units. */
export function duration(seconds) {
  const parts = [[86_400, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];
  const first = parts.findIndex(([length]) => seconds >= length);
  if (first < 0) return "0 seconds";
  let rest = seconds;
  return parts.slice(first, first + 2).map(([length, name]) => {
    const whole = Math.floor(rest / length);
    rest -= whole * length;
    return whole > 0 && count(whole, name);
  }).filter(Boolean).join(" ");
}

export const channelName = (index, channels) => channels === 1 ? "mono" : channels === 2 ? ["left", "right"][index] : "channel " + (index + 1);

/** The last part of an address, for readers. */
export const fileName = uri => {
  const last = uri.split("/").filter(Boolean).at(-1) ?? uri;
  try { return decodeURIComponent(last); } catch { return last; }
};

/** The name of an announced sound. */
export const soundName = uri => uri === "talk:" ? "Talk" : fileName(uri);

const plainName = client => client.config.name || client.host.name || client.id;

/** The names of all clients by id: what was configured, else the host, with the id where two would be the same. */
export function clientNames(clients) {
  const uses = new Map();
  for (const client of clients) uses.set(plainName(client), (uses.get(plainName(client)) ?? 0) + 1);
  return new Map(clients.map(client => {
    const name = plainName(client);
    return [client.id, uses.get(name) > 1 && name !== client.id ? `${name} \u00b7 ${client.id}` : name];
  }));
}

const span = us => us < 1000 ? `${us} \u00b5s` : `${(us / 1000).toFixed(1)} ms`;

/** How well a client is in time, and whether it needs attention. */
export function syncText(health) {
  if (!health) return { text: "", warm: false, title: "" };
  const { sync } = health;
  const skipped = health.skipped_s_ago !== null && health.skipped_s_ago < 60;
  const late = health.ahead_ms !== null && health.ahead_ms < 0;
  const error = sync?.error_us ?? null;
  const off = error !== null && Math.abs(error) >= 1000;
  let text = `round trip ${health.round_trip_ms.toFixed(1)} ms`;
  if (skipped) text = `skipped audio ${health.skipped_s_ago} s ago`;
  else if (late) text = "late";
  else if (error !== null) {
    const bar = sync.clock_error_us === null ? "" : ` \u00b1 ${span(sync.clock_error_us)}`;
    text = off ? `${span(Math.abs(error))} ${error > 0 ? "early" : "late"}${bar}` : `in time: ${span(Math.abs(error))}${bar}`;
  }
  const delay = sync && sync.device_delay_ms !== null ? `, device delay ${sync.device_delay_ms.toFixed(1)} ms` : "";
  const own = sync ? `clock ${minus(sync.drift_ppm.toFixed(1))} ppm${delay}, ${sync.cuts} corrections, ${sync.underruns + sync.device_underruns} interruptions, ${sync.lost} chunks lost; ` : "";
  const title = own + `round trip ${health.round_trip_ms.toFixed(2)} ms \u00b1 ${health.jitter_ms.toFixed(2)} ms, ${health.ahead_ms ?? 0} ms of audio buffered, `
    + `${health.unsent_bytes} bytes unsent, ${health.retransmitted} segments retransmitted, ${health.skipped_chunks} chunks skipped`;
  return { text, warm: skipped || late || off, title };
}
