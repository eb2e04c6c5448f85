// A page in virtual time: its clocks, timers, animation frames, connection and feed are replaced
// before its modules run, so that hours of messages pass in seconds. What the server says is taken
// from a real one (`TEMPLATES`) and changed as hours of operation change it: levels, clients that
// come and go, titles, events. Layout, canvas and memory are the browser's own.

globalThis.world = (templates => {
  /** A display of 10 Hz: each frame of meters is painted once. */
  const FRAME_MS = 100;
  const STATUS_MS = 2_000, EVENT_MS = 2_000, CLIENTS = 6, MOST_EVENTS = 1_000;
  const RealDate = Date, realFrame = requestAnimationFrame.bind(window), started = RealDate.now();
  const timers = new Map();
  let now = 1_000, nextTimer = 1, socket = null, wanted = {}, meterTimer = 0, events = [], eventId = 0, turns = 0;
  const counts = { frames: 0, statuses: 0, events: 0, paints: 0, connections: 0, calls: 0 };

  globalThis.Date = class extends RealDate {
    constructor(...parts) { if (parts.length > 0) super(...parts); else super(started + now); }
    static now() { return started + now; }
  };
  performance.now = () => now;
  const add = (run, wait, every) => {
    const id = nextTimer++;
    timers.set(id, { id, run, at: now + Math.max(1, Number(wait) || 0), every });
    return id;
  };
  globalThis.setTimeout = (run, wait, ...values) => add(() => run(...values), wait, 0);
  globalThis.setInterval = (run, wait, ...values) => add(() => run(...values), wait, Math.max(1, wait));
  globalThis.clearTimeout = globalThis.clearInterval = id => { timers.delete(id); };
  globalThis.requestAnimationFrame = run => add(() => { counts.paints += 1; run(now); }, FRAME_MS - now % FRAME_MS, 0);
  globalThis.cancelAnimationFrame = clearTimeout;

  /** Numbers that look like measurements, the same in every run. */
  const wave = (offset, low, high) => low + (high - low) * (0.5 + 0.25 * (Math.sin(turns / 7 + offset) + Math.sin(turns / 131 + 2 * offset)));
  const base = templates.status, client = base.stations.flatMap(one => one.clients)[0];

  /** Clients come and go: each has an id of its own, and the oldest leaves. */
  const clientsNow = () => Array.from({ length: CLIENTS }, (_, place) => {
    const number = Math.floor(turns / 5) + place, id = `client-${number}`;
    return { ...structuredClone(client), id, group: `group-${number}`, host: { ...client.host, name: `room ${number}` } };
  });
  function statusNow() {
    turns += 1;
    const status = structuredClone(base);
    status.stations.forEach((station, index) => {
      station.clients = index === 0 ? clientsNow() : [];
      station.listeners = turns % 3;
      station.state = turns % 11 === 0 ? "silent" : "playing";
      station.playing = { title: `Title ${turns}`, artist: ["Somebody"] };
      station.announcements = turns % 13 === 0 ? [{ id: turns, uri: `file:///sounds/${turns}.wav`, state: "playing" }] : [];
    });
    return status;
  }
  function eventNow() {
    eventId += 1;
    const [severity, kind] = eventId % 10 === 0 ? ["warning", "source"] : ["info", "client"];
    const event = { id: eventId, time: new Date().toISOString(), station: base.stations[0].name, kind, severity, subject: `client-${eventId}`, text: `what happened as number ${eventId}`, acknowledged: severity === "info" };
    events = [event, ...events].slice(0, MOST_EVENTS);
    return event;
  }
  // The history of events is full from the start, as it is for the rest of a server's time.
  for (let number = 0; number < MOST_EVENTS; number += 1) eventNow();
  const open = () => events.filter(event => !event.acknowledged).length;

  const channels = station => station.levels_dbfs.length || 2;
  function meterFrame(names) {
    const shown = base.stations.filter(station => !names || names.includes(station.name));
    const frame = new DataView(new ArrayBuffer(16 + 32 * shown.length));
    frame.setUint8(0, 1);
    frame.setUint8(1, 1);
    frame.setUint16(2, 32, true);
    frame.setUint32(4, 1, true);
    shown.forEach((station, index) => {
      const at = 16 + 32 * index;
      for (let word = 0; word < 16; word += 1) frame.setInt16(at + 2 * word, 100 * wave(now / 900 + index + word, -45, -3), true);
      frame.setUint16(at + 22, 2, true);
    });
    return frame.buffer;
  }

  globalThis.WebSocket = class {
    static CONNECTING = 0; static OPEN = 1; static CLOSED = 3;
    readyState = 0;
    constructor() {
      socket = this;
      wanted = {};
      counts.connections += 1;
      setTimeout(() => { this.readyState = 1; this.onopen?.(); }, 5);
    }
    send(text) {
      const { id, method, params } = JSON.parse(text);
      counts.calls += 1;
      setTimeout(() => this.answer(id, method, params), 2);
    }
    close() { this.drop(); }
    answer(id, method, params) {
      let result = templates.answers[method] ?? null;
      if (method === "Aulos.GetEvents") result = { events: events.slice(0, params.limit), newest: eventId, unacknowledged: open() };
      if (method === "Aulos.GetStatus") result = statusNow();
      this.text({ jsonrpc: "2.0", id, result: structuredClone(result) });
      if (method === "Aulos.Subscribe") subscribe(this, params);
    }
    text(message) { if (this.readyState === 1) this.onmessage?.({ data: JSON.stringify(message) }); }
    binary(data) { if (this.readyState === 1) this.onmessage?.({ data }); }
    drop() {
      if (this.readyState === 3) return;
      this.readyState = 3;
      clearInterval(meterTimer);
      if (socket === this) socket = null;
      this.onclose?.();
    }
  };

  const notify = (method, params) => socket?.text({ jsonrpc: "2.0", method, params });
  function subscribe(connection, params) {
    wanted = params;
    clearInterval(meterTimer);
    notify("Aulos.OnStatus", statusNow());
    if (!params.meters) return;
    const names = params.meters.stations, shown = base.stations.filter(station => !names || names.includes(station.name));
    notify("Aulos.OnMeterLayout", { revision: 1, stations: shown.map(station => ({ name: station.name, channels: channels(station) })) });
    meterTimer = setInterval(() => { counts.frames += 1; connection.binary(meterFrame(names)); }, 1_000 / params.meters.hz);
  }
  setInterval(() => { if (wanted.status) { counts.statuses += 1; notify("Aulos.OnStatus", statusNow()); } }, STATUS_MS);
  setInterval(() => {
    const event = eventNow();
    if (wanted.events) { counts.events += 1; notify("Aulos.OnEvents", { events: [event], unacknowledged: open() }); }
  }, EVENT_MS);

  /** The history of a station, with as many points as the real one and the times of now. */
  globalThis.fetch = async address => {
    if (!/\/history\?/.test(address)) return { ok: false, status: 404, text: async () => "not found", json: async () => ({}) };
    const to = Math.floor(Date.now() / 1000), { columns } = templates.history, points = 400;
    const made = Object.keys(columns).map(name => [name, Array.from({ length: points }, (_, at) => name === "flags" ? Number(at % 97 === 0) : name === "measured" ? 9 : wave(at, -40, -10))]);
    const answer = JSON.stringify({ ...templates.history, now: to, from: to - 3_600, to, start: to - 3_600, step_s: 9, columns: Object.fromEntries(made) });
    return { ok: true, status: 200, text: async () => answer, json: async () => JSON.parse(answer) };
  };

  /** Promises of the page have their turn between two timers, as they have in real time. */
  async function pass(ms) {
    const end = now + ms;
    for (;;) {
      let next = null;
      for (const timer of timers.values()) if (timer.at <= end && (next === null || timer.at < next.at)) next = timer;
      if (next === null) break;
      now = Math.max(now, next.at);
      if (next.every) next.at += next.every; else timers.delete(next.id);
      next.run();
      for (let turn = 0; turn < 4; turn += 1) await null;
    }
    now = end;
  }
  /** What the browser does itself (layout, observers, events of the address) needs real frames. */
  const settle = () => new Promise(done => realFrame(() => realFrame(done)));

  const kept = [];
  return {
    counts,
    async pass(seconds) { await pass(seconds * 1_000); await settle(); },
    async show(hash) { location.hash = hash; await settle(); },
    loseConnection() { socket?.drop(); },
    timers: () => timers.size,
    /** A fault as pages have it: each status leaves a node, a listener and its data behind. */
    leak(count) {
      for (let number = 0; number < count; number += 1) {
        const node = document.createElement("p");
        node.addEventListener("click", () => kept.length);
        kept.push(node, statusNow());
      }
    },
  };
})(TEMPLATES);
