// The player of the page: a Snapcast client over the WebSocket of the server. It joins the
// connection, the clocks, the decoder and the audio; the decisions are in those modules.
//
// Everything is done when a message arrives, chunks at least fifty times a second, because a hidden
// page's timers run once a second at most. A timer does it too, for when nothing arrives.

import { ServerClock, ownTime } from "./clock.js";
import { UnsupportedStream, openDecoder, parseFormat } from "./decoder.js";
import { Output } from "./output.js";
import { CODEC_HEADER, ERROR, SERVER_SETTINGS, TIME, WIRE_CHUNK, clientInfo, hello, parse, timeRequest, wholeMicros } from "./protocol.js";
import { Schedule, stretch } from "./schedule.js";

const TICK_MS = 50;
/** The state is told as often. */
const STATE_INTERVAL = 0.25;
/** The pause before the next attempt doubles between these, in milliseconds. */
const FIRST_PAUSE_MS = 500, LONGEST_PAUSE_MS = 10_000;
/** A server that does not complete a connection in so long is tried again, in seconds. */
const CONNECT_TIMEOUT = 10;
/** Seconds between now and a position at which something can still begin or end. */
const LEAD = 0.03;
/** Chunks are given to the browser so long ahead: more than the second of a hidden page's timers. */
const HORIZON = 2;
/** At most so many seconds wait decoded, and so many chunks for their decoder. */
const MAX_QUEUED = 30, MAX_UNDECODED = 1_500;
/** Seconds of decoded sound from which on it begins, and at which it ends because none follows; less with a small buffer. */
const ENOUGH = 0.25, NEAR_END = 0.07;

const seconds = () => performance.now() / 1_000;
/** The volume curve of Snapcast's clients, so that one group has one loudness. */
export const gainOf = ({ volume, muted }) => muted ? 0 : volume >= 100 ? 1 : (10 ** (volume / 100) - 1) / 9;

/** What the browser calls itself, for the list of clients. */
export function browserName(agent) {
  const find = names => names.find(([word]) => agent.includes(word))?.[1];
  return {
    browser: find([["Edg", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["FxiOS", "Firefox"], ["Chrom", "Chrome"], ["CriOS", "Chrome"], ["Safari/", "Safari"]]) ?? "",
    os: find([["Android", "Android"], ["iPhone", "iOS"], ["iPad", "iPadOS"], ["Windows", "Windows"], ["Mac OS", "macOS"], ["Linux", "Linux"]]) ?? "",
  };
}

export class SyncPlayer {
  #url; #hello; #onState; #socket = null; #clock = new ServerClock(); #retryMs = FIRST_PAUSE_MS; #retry = 0; #openedAt = 0;
  #settings = { buffer: 1, latency: 0, volume: 100, muted: false, reportInterval: null };
  #reportAt = Infinity; #ticker = 0; #toldAt = 0;
  #stream = null; #output = null; #schedule = null; #earliest = 0;
  /** Decoded chunks: those that wait for their turn, and those that the browser has. */
  #waiting = []; #placed = [];
  #counts = { underruns: 0, jumps: 0, lost: 0 };
  #connection = "connecting"; #problem = ""; #isHeld = true; #error = null;

  /**
   * `url` is that of `/stream`; `onState` is called with each new state; `id`, `name` and `version`
   * say what this client is. It connects at once, and is silent until `release`.
   */
  constructor({ url, id, version, onState }) {
    const { browser, os } = browserName(navigator.userAgent);
    this.#url = url;
    this.#onState = onState;
    this.#hello = {
      MAC: "00:00:00:00:00:00", ID: id, HostName: ["Browser", browser, os && `on ${os}`].filter(Boolean).join(" "), ClientName: "aulos web player",
      Version: version, OS: os, Arch: "web", Instance: 1, SnapStreamProtocolVersion: 2,
    };
    this.#ticker = setInterval(() => this.#tick(), TICK_MS);
    this.#connect();
  }

  /** Lets sound begin. */
  release() { this.#isHeld = false; }

  /** Resumes the audio after the browser has suspended it; from a press of the reader. */
  resume() { this.#output?.resume(); }

  close() {
    clearInterval(this.#ticker);
    clearTimeout(this.#retry);
    this.#socket?.close();
    this.#socket = null;
    this.#endStream();
    this.#output?.close();
    this.#output = null;
  }

  #connect() {
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#openedAt = seconds();
    socket.onopen = () => {
      socket.send(hello(1, seconds(), this.#hello));
      this.#clock.begin(seconds());
    };
    socket.onmessage = ({ data }) => {
      const now = seconds();
      if (socket !== this.#socket) return;
      try {
        this.#receive(now, parse(data));
      } catch (error) {
        if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
        this.#lost();
      }
      this.#tick();
    };
    socket.onclose = () => { if (socket === this.#socket) this.#lost(); };
  }

  /** What has arrived plays to its end; the estimate of the clock stays. */
  #lost() {
    this.#socket.onclose = null;
    this.#socket.close();
    this.#socket = null;
    this.#reportAt = Infinity;
    if (this.#connection === "refused") return this.#tell();
    this.#connection = "lost";
    this.#retry = setTimeout(() => this.#connect(), this.#retryMs * (0.7 + 0.6 * Math.random()));
    this.#retryMs = Math.min(2 * this.#retryMs, LONGEST_PAUSE_MS);
    return this.#tell();
  }

  #receive(now, message) {
    const { kind } = message;
    if (kind === TIME) this.#clock.reply(now, message);
    else if (kind === WIRE_CHUNK) this.#decode(message);
    else if (kind === CODEC_HEADER) this.#begin(message);
    else if (kind === SERVER_SETTINGS) this.#set(now, message.settings);
    else if (kind === ERROR) {
      this.#connection = "refused";
      this.#problem = message.detail || message.error;
      this.#lost();
    }
  }

  #set(now, settings) {
    const isMoved = settings.buffer !== this.#settings.buffer || settings.latency !== this.#settings.latency;
    this.#settings = settings;
    this.#connection = "connected";
    this.#retryMs = FIRST_PAUSE_MS;
    this.#reportAt = settings.reportInterval === null ? Infinity : Math.min(this.#reportAt, now + settings.reportInterval);
    this.#output?.setGain(gainOf(settings));
    if (isMoved) this.#replace();
    this.#tell();
  }

  /** A codec header begins another stream: what is there of the last one is discarded. */
  #begin({ codec, header }) {
    this.#endStream();
    const stream = { format: null, decoder: null, undecoded: [], hasBegun: false };
    this.#stream = stream;
    this.#problem = "";
    this.#open(stream, codec, header).catch(error => {
      if (this.#stream !== stream) return;
      stream.undecoded = null;
      this.#problem = error instanceof UnsupportedStream ? error.message : `the decoder of the browser fails: ${error.message}`;
      this.#tell();
    });
  }

  async #open(stream, codec, header) {
    const format = parseFormat(codec, header);
    if (this.#output?.rate !== format.rate) {
      this.#output?.close();
      this.#output = new Output(format.rate, () => this.#stateChanged());
      this.#output.setGain(gainOf(this.#settings));
    }
    this.#schedule = new Schedule(format.rate);
    this.#earliest = 0;
    const decoder = await openDecoder(format, (at, channels) => this.#sound(at, channels), () => { this.#counts.lost += 1; });
    if (this.#stream !== stream) return decoder.close();
    Object.assign(stream, { format, decoder });
    for (const { timestamp, payload } of stream.undecoded.splice(0)) decoder.decode(timestamp, payload);
    return this.#tell();
  }

  #endStream() {
    this.#cut();
    this.#waiting = [];
    this.#placed = [];
    this.#stream?.decoder?.close();
    this.#stream = null;
  }

  #decode({ timestamp, payload }) {
    const stream = this.#stream;
    if (stream?.decoder) stream.decoder.decode(timestamp, payload);
    else if (stream?.undecoded?.length < MAX_UNDECODED) stream.undecoded.push({ timestamp, payload });
  }

  #sound(at, channels) {
    this.#waiting.push({ at, channels, frame: null, frames: channels[0].length });
    // While the browser refuses to play, what waits grows old and nothing is lost.
    while (at - this.#waiting[0].at > MAX_QUEUED) {
      this.#waiting.shift();
      if (this.#output.isRunning) this.#counts.lost += 1;
    }
    this.#tick();
  }

  #stateChanged() {
    if (this.#output?.isRunning) this.#replace();
    this.#tell();
  }

  /** Does what is due. */
  #tick() {
    const now = seconds(), socket = this.#socket;
    if (this.#output?.sample(now)) this.#replace();
    if (socket?.readyState === WebSocket.OPEN) {
      const sent = wholeMicros(seconds()), id = this.#clock.request(sent);
      if (id !== null) socket.send(timeRequest(id, sent));
      if (this.#clock.isLost(now)) this.#lost();
      else if (now >= this.#reportAt) this.#report(now);
    } else if (socket && now - this.#openedAt > CONNECT_TIMEOUT) this.#lost();
    this.#place(now);
    if (now - this.#toldAt >= STATE_INTERVAL) this.#tell();
  }

  /** The position at which content of the server's time `at` has to sound, a fraction too. */
  #ideal(line, at) {
    const delay = Math.max(0, this.#settings.buffer - this.#settings.latency);
    return this.#output.positionAt(ownTime(line, at + delay));
  }

  #place(now) {
    const output = this.#output, line = this.#clock.line(now);
    if (!output?.isReady || !this.#schedule || !line) return;
    const { position, rate } = output;
    this.#measure(line, position);
    while (this.#waiting.length > 0 && (this.#schedule.end !== null || this.#canBegin(now, line))) {
      const [chunk] = this.#waiting, ideal = this.#ideal(line, chunk.at);
      if (ideal > position + HORIZON * rate) break;
      const earliest = Math.max(this.#earliest, Math.ceil(position + LEAD * rate));
      const place = this.#schedule.place({ at: chunk.at, frames: chunk.channels[0].length, ideal, earliest });
      if (place.isJump) {
        this.#counts.jumps += 1;
        this.#replace();
        continue;
      }
      this.#waiting.shift();
      if (place.isLate) {
        // Before the first sound, and after a jump, what is too old is left out on purpose.
        if (this.#stream.hasBegun && chunk.frame === null) this.#counts.lost += 1;
        continue;
      }
      this.#stream.hasBegun = true;
      output.play(chunk.channels.map(samples => stretch(samples, place.frames)), place.frame, place.isStart);
      this.#placed.push(Object.assign(chunk, { frame: place.frame, frames: place.frames }));
    }
    const { end } = this.#schedule;
    if (end !== null && end - position < Math.min(NEAR_END, this.#settings.buffer / 4) * rate) {
      // Nothing follows: the end is faded.
      output.cut(end);
      this.#earliest = end;
      this.#schedule.reset();
      this.#counts.underruns += 1;
    }
  }

  /** Whether the clock is known, and there is enough to go on: chunks are decoded one after the other. */
  #canBegin(now, line) {
    const end = this.#ideal(line, this.#waiting.at(-1).at) - this.#output.position;
    return !this.#isHeld && this.#clock.isSettled(now) && end >= Math.min(ENOUGH, this.#settings.buffer / 2) * this.#output.rate;
  }

  /** How much too early what sounds now is, and what has sounded is forgotten. */
  #measure(line, position) {
    const heard = position - this.#output.delay * this.#output.rate;
    while (this.#placed.length > 0 && this.#placed[0].frame + this.#placed[0].frames <= heard) this.#placed.shift();
    const [chunk] = this.#placed;
    this.#error = chunk && chunk.frame <= position ? (this.#ideal(line, chunk.at) - chunk.frame) / this.#output.rate : null;
  }

  /** Ends the run as soon as possible; what had not begun waits again. */
  #cut() {
    const output = this.#output;
    if (!output || !this.#schedule || this.#schedule.end === null) return;
    this.#earliest = Math.ceil(output.position + LEAD * output.rate);
    output.cut(this.#earliest);
    this.#schedule.reset();
  }

  /** Places everything anew, after a change of the clock or of the settings. */
  #replace() {
    this.#cut();
    this.#waiting = [...this.#placed.splice(0), ...this.#waiting];
    // What is too old now is left out on purpose.
    for (const chunk of this.#waiting) chunk.frame ??= 0;
  }

  #report(now) {
    const micros = value => value === null ? undefined : Math.round(value * 1e6);
    const line = this.#clock.line(now), { underruns, jumps, lost } = this.#counts;
    this.#socket.send(clientInfo(now, { report: {
      sync_error_us: micros(this.#error), clock_error_us: micros(line?.error ?? null), device_delay_us: micros(this.#output?.delay ?? null),
      drift_ppb: Math.round(((this.#output?.drift ?? 0) - (line?.drift ?? 0)) * 1e9),
      cuts: jumps, underruns, device_underruns: this.#output?.underruns ?? 0, lost,
    } }));
    this.#reportAt = now + this.#settings.reportInterval;
  }

  #tell() {
    this.#toldAt = seconds();
    const { format } = this.#stream ?? {};
    this.#onState({
      connection: this.#connection, problem: this.#problem, settings: this.#settings, ...this.#counts,
      underruns: this.#counts.underruns + (this.#output?.underruns ?? 0),
      isBlocked: Boolean(this.#output && !this.#output.isRunning), isPlaying: Boolean(this.#schedule && this.#schedule.end !== null),
      error: this.#error, clockError: this.#clock.line(this.#toldAt)?.error ?? null,
      format: format && { codec: format.codec, rate: format.rate, channels: format.channels, bits: format.bits },
    });
  }
}
