// The one connection of the page: calls and notifications of JSON-RPC as text, meters as binary
// frames. docs/reference/page.md describes both.

/** How long a call may take, and how long a subscribed connection may be silent. */
const CALL_TIMEOUT_MS = 15_000, SILENCE_MS = 5_000;
/** The pause before the next attempt doubles between these. */
const FIRST_PAUSE_MS = 500, LONGEST_PAUSE_MS = 10_000;
/** A value that is absent, or a level of silence. */
const NONE = -32_768;
const FRAME_OF_METERS = 1, HEAD = 16, WORDS_BEFORE_LEVELS = 14;
const FIGURES = ["momentary", "shortTerm", "integrated", "range", "peak", "maxPeak", "gain", "reduction", "input", "maxMomentary", "maxShortTerm"];
const STATES = ["stopped", "silent", "playing"];

/** An error of a call, with the reason for readers. */
export class CallError extends Error {}

export class Feed {
  #url; #on; #socket = null; #pending = new Map(); #nextId = 1; #pause = FIRST_PAUSE_MS;
  #timer = 0; #watchdog = 0; #layout = null; #wanted = { status: true }; #heardAt = 0;

  /** `on` has the functions `open`, `lost`, `notification` and `meters`. */
  constructor(url, on) {
    this.#url = url;
    this.#on = on;
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.#hurry(); });
    this.#watchdog = setInterval(() => this.#checkSilence(), 1_000);
    this.#connect();
  }

  /** Calls a method; rejects with the server's reason. */
  call(method, params = {}) {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return Promise.reject(new CallError("no connection to the server"));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#settle(id, () => reject(new CallError("no answer from the server"))), CALL_TIMEOUT_MS);
      this.#pending.set(id, { resolve, reject, timer });
      socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** Sets what the server sends, now and after each reconnection. */
  subscribe(wanted) {
    if (JSON.stringify(wanted) === JSON.stringify(this.#wanted)) return;
    this.#wanted = wanted;
    this.#heardAt = performance.now();
    this.call("Aulos.Subscribe", wanted).catch(() => {});
  }

  #connect() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#layout = null;
    this.#heardAt = performance.now();
    socket.onopen = () => {
      this.call("Aulos.Subscribe", this.#wanted).then(() => { this.#pause = FIRST_PAUSE_MS; }, error => this.#on.refused(error));
      this.#on.open();
    };
    socket.onmessage = event => {
      this.#heardAt = performance.now();
      if (typeof event.data === "string") this.#text(JSON.parse(event.data));
      else this.#binary(new DataView(event.data));
    };
    socket.onclose = () => { if (socket === this.#socket) this.#lost(); };
  }

  #lost() {
    this.#socket = null;
    for (const id of [...this.#pending.keys()]) this.#settle(id, call => call.reject(new CallError("connection lost")));
    this.#on.lost();
    // Jitter, so that all pages of a server that restarts do not come at once.
    this.#timer = setTimeout(() => this.#connect(), this.#pause * (0.7 + 0.6 * Math.random()));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  /** Ends the pause before the next attempt. */
  #hurry() {
    if (this.#socket === null) this.#connect();
  }

  /** A network that vanishes closes no socket; meters are its heartbeat. */
  #checkSilence() {
    const expected = this.#wanted.meters || this.#socket?.readyState === WebSocket.CONNECTING;
    if (document.hidden || !this.#socket || !expected || performance.now() - this.#heardAt < SILENCE_MS) return;
    const socket = this.#socket;
    socket.onclose = null;
    socket.close();
    this.#lost();
  }

  #settle(id, end) {
    const call = this.#pending.get(id);
    if (!call) return;
    this.#pending.delete(id);
    clearTimeout(call.timer);
    end(call);
  }

  #text(message) {
    if (message.method === "Aulos.OnMeterLayout") this.#layout = message.params;
    else if (message.method) this.#on.notification(message.method, message.params);
    else this.#settle(message.id, call => {
      if (message.error) call.reject(new CallError(message.error.data || message.error.message));
      else call.resolve(message.result);
    });
  }

  #binary(frame) {
    if (frame.getUint8(0) !== FRAME_OF_METERS || frame.getUint32(4, true) !== this.#layout?.revision) return;
    const size = frame.getUint16(2, true), readings = new Map();
    this.#layout.stations.forEach(({ name, channels }, index) => {
      const at = HEAD + index * size;
      if (at + size > frame.byteLength) return;
      const word = number => {
        const value = frame.getInt16(at + 2 * number, true);
        return value === NONE ? null : value / 100;
      };
      const flags = frame.getUint16(at + 2 * FIGURES.length, true), reading = { levels: [] };
      FIGURES.forEach((figure, number) => { reading[figure] = word(number); });
      for (let channel = 0; channel < channels; channel += 1) reading.levels.push(word(WORDS_BEFORE_LEVELS + channel));
      reading.state = STATES[flags & 3];
      reading.lastResort = Boolean(flags & 4);
      reading.bypassed = Boolean(flags & 8);
      readings.set(name, reading);
    });
    this.#on.meters(readings);
  }
}
