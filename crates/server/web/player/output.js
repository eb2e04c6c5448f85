// The browser's audio: a context of the stream's rate, so that samples reach it unchanged, and the
// relation of its time to the page's clock. Times are seconds, positions frames of the context.

/** Fade at the begin and the end of sound, and of a change of the volume. */
const FADE = 0.005, VOLUME_FADE = 0.02;
/** Pairs of times of which the median counts: 3 s. */
const SAMPLES = 32, SAMPLE_INTERVAL = 0.1, FIRST_INTERVAL = 0.02;
/** So many pairs in a row that agree with each other, and not with the median, are a step: the device had nothing to play. */
const STEPS = 5, MIN_STEP = 0.004, AGREEMENT = 0.002;
/** Seconds after which the browser does not say what sounds when. */
const UNKNOWN_FOR = 1;
/** A drift is told once it has had so long to show. */
const DRIFT_SPAN = 20;

const median = values => [...values].sort((a, b) => a - b)[values.length >> 1];

export class Output {
  #context; #volume; #lane = null; #offsets = []; #offset = null; #sampledAt = -Infinity; #steps = []; #first = null;

  /** `onState` is called when the browser suspends or resumes the audio. */
  constructor(rate, onState) {
    this.rate = rate;
    this.#context = new AudioContext({ sampleRate: rate, latencyHint: "playback" });
    this.#volume = this.#context.createGain();
    this.#volume.connect(this.#context.destination);
    this.#context.addEventListener("statechange", () => {
      this.#forget();
      onState();
    });
    this.resume();
  }

  /** Asks the browser to play; it may refuse until the reader presses something. */
  resume() { this.#context.resume().catch(() => {}); }

  get isRunning() { return this.#context.state === "running"; }

  /** The next frame that can be rendered. */
  get position() { return this.#context.currentTime * this.rate; }

  /** Interruptions that the browser has counted, where it counts them. */
  get underruns() { return this.#context.playbackStats?.underrunEvents ?? 0; }

  /** From the rendering of a frame until it sounds, as the browser knows it. */
  get delay() { return this.#context.outputLatency ?? this.#context.baseLatency ?? 0; }

  /** How much faster than the page's clock the device runs; 0 until enough is known. */
  get drift() {
    const span = this.#first ? this.#sampledAt - this.#first.at : 0;
    return span > DRIFT_SPAN ? (this.#offset - this.#first.offset) / span : 0;
  }

  /**
   * Compares the device's time with the page's clock; to be called often. `now` is the page's time.
   * Returns true when the device has stood still, so that what is scheduled sounds later.
   */
  sample(now) {
    if (!this.isRunning || now - this.#sampledAt < (this.#offsets.length < STEPS ? FIRST_INTERVAL : SAMPLE_INTERVAL)) return false;
    this.#sampledAt = now;
    const { contextTime, performanceTime } = this.#context.getOutputTimestamp?.() ?? {};
    // Where the browser does not say it, the rendering and the delay do; at the start it is not known yet.
    if (!(contextTime > 0) && this.#context.currentTime < UNKNOWN_FOR) return false;
    const offset = contextTime > 0 ? contextTime - performanceTime / 1_000 : this.#context.currentTime - this.delay - now;
    const isStep = this.#offset !== null && Math.abs(offset - this.#offset) > MIN_STEP;
    if (!isStep || Math.abs(offset - this.#steps[0]) > AGREEMENT) this.#steps = [];
    if (isStep && this.#steps.push(offset) < STEPS) return false;
    if (isStep) {
      this.#offsets = this.#steps.splice(0);
      this.#first = null;
    } else this.#offsets.push(offset);
    if (this.#offsets.length > SAMPLES) this.#offsets.shift();
    this.#offset = median(this.#offsets);
    if (this.#offsets.length === SAMPLES) this.#first ??= { at: now, offset: this.#offset };
    return isStep;
  }

  /** Whether the relation of both clocks is known. */
  get isReady() { return this.isRunning && this.#offsets.length >= STEPS; }

  /** The position, a fraction of a frame too, that sounds at the page's time `at`. */
  positionAt(at) { return (at + this.#offset) * this.rate; }

  /**
   * Plays a chunk from the whole frame `frame` on. The first one of a run is faded in. The end of
   * each is faded out until another one follows, because a page that is not run cannot do it then.
   */
  play(channels, frame, isStart) {
    const context = this.#context, at = frame / this.rate;
    if (isStart || !this.#lane) {
      const gain = context.createGain();
      gain.gain.setValueAtTime(0, at);
      gain.gain.linearRampToValueAtTime(1, at + FADE);
      gain.connect(this.#volume);
      this.#lane = { gain: gain.gain, node: gain, begin: at + FADE, fadeAt: Infinity, sources: new Set() };
    }
    const { gain, node, begin, fadeAt, sources } = this.#lane, source = context.createBufferSource();
    source.buffer = context.createBuffer(channels.length, channels[0].length, this.rate);
    channels.forEach((samples, channel) => source.buffer.copyToChannel(samples, channel));
    source.connect(node);
    source.onended = () => {
      source.disconnect();
      sources.delete(source);
    };
    sources.add(source);
    source.start(at);
    const end = at + channels[0].length / this.rate;
    if (fadeAt < Infinity) gain.cancelScheduledValues(fadeAt);
    this.#lane.fadeAt = Math.max(begin, end - FADE);
    gain.setValueAtTime(1, this.#lane.fadeAt);
    gain.linearRampToValueAtTime(0, end);
  }

  /** Ends the run at a frame, faded out. */
  cut(frame) {
    if (!this.#lane) return;
    const { gain, begin, fadeAt, sources } = this.#lane, at = frame / this.rate;
    this.#lane = null;
    // What has not begun does not begin.
    for (const source of sources) source.stop(at);
    if (at - FADE < begin || at - FADE >= fadeAt) return;
    gain.cancelScheduledValues(at - FADE);
    gain.setValueAtTime(1, at - FADE);
    gain.linearRampToValueAtTime(0, at);
  }

  /** The gain of everything, reached without a click. */
  setGain(gain) {
    this.#volume.gain.setTargetAtTime(gain, this.#context.currentTime, VOLUME_FADE / 4);
  }

  /** Fades out and releases the device. */
  close() {
    this.cut(this.position + (FADE + 0.01) * this.rate);
    setTimeout(() => this.#context.close().catch(() => {}), 100);
  }

  /** A device that has stood still has another relation to the clock. */
  #forget() {
    this.#offsets = [];
    this.#steps = [];
    this.#offset = this.#first = null;
  }
}
