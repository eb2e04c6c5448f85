// The microphone of this browser, in frames of Opus or PCM.

const VOICE = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
const RATE = 48_000, BITRATE = 48_000, FRAME_US = 20_000;
/** How long a browser may take to run its audio. */
const START_MS = 3_000;

/** Why there is no microphone, in words. */
const REASONS = {
  NotAllowedError: "the browser does not permit the microphone to this page",
  NotFoundError: "there is no microphone",
  NotReadableError: "the microphone is in use or does not answer",
};

/** Why this page cannot have a microphone; empty if it can. */
export function obstacle() {
  if (!isSecureContext) return "A browser gives its microphone only to pages over HTTPS, and to those of its own machine.";
  return navigator.mediaDevices?.getUserMedia && "AudioWorkletNode" in globalThis ? "" : "This browser gives no microphone to pages.";
}

async function context(stream) {
  // Some browsers connect a microphone to a context of its own rate only.
  for (const options of [{ sampleRate: RATE, latencyHint: "interactive" }, { latencyHint: "interactive" }]) {
    const made = new AudioContext(options);
    try {
      const source = made.createMediaStreamSource(stream);
      await made.audioWorklet.addModule(new URL("./capture.js", import.meta.url));
      return { made, source };
    } catch (error) {
      await made.close();
      if (!options.sampleRate) throw error;
    }
  }
}

async function opus(sampleRate, onFrame, onError) {
  const config = { codec: "opus", sampleRate, numberOfChannels: 1, bitrate: BITRATE, opus: { frameDuration: FRAME_US, application: "voip", signal: "voice" } };
  const support = await globalThis.AudioEncoder?.isConfigSupported(config).catch(() => null);
  if (!support?.supported) return null;
  const output = chunk => {
    const packet = new Uint8Array(chunk.byteLength);
    chunk.copyTo(packet);
    onFrame(packet);
  };
  const encoder = new AudioEncoder({ output, error: onError });
  encoder.configure(config);
  return encoder;
}

function pcm(samples) {
  const frame = new DataView(new ArrayBuffer(2 * samples.length));
  samples.forEach((sample, at) => frame.setInt16(2 * at, Math.max(-1, Math.min(1, sample)) * 32_767, true));
  return frame;
}

export class Microphone {
  #stream; #context; #node; #encoder; #frames = 0; #on;

  /**
   * Opens the microphone. `on.frame` is called with each frame, `on.level` with its peak, and
   * `on.error` when it ends by itself. Rejects with the reason.
   */
  static async open(on) {
    const microphone = new Microphone();
    try {
      await microphone.#open(on);
      return microphone;
    } catch (error) {
      microphone.close();
      throw new Error(REASONS[error.name] ?? error.message, { cause: error });
    }
  }

  async #open(on) {
    this.#on = on;
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio: VOICE });
    this.#stream.getAudioTracks()[0].onended = () => this.#on.error("the microphone was taken away");
    const { made, source } = await context(this.#stream);
    this.#context = made;
    const running = made.resume(), late = new Promise((_, reject) => { setTimeout(() => reject(new Error("the browser does not start its audio; press again")), START_MS); });
    await Promise.race([running, late]);
    const rate = made.sampleRate;
    this.#encoder = await opus(rate, on.frame, () => this.#on.error("the browser cannot encode the sound"));
    this.format = this.#encoder ? { format: "opus" } : { format: "pcm", rate };
    this.#node = new AudioWorkletNode(made, "talk-capture", { channelCount: 1, channelCountMode: "explicit" });
    this.#node.port.onmessage = ({ data }) => this.#take(data, rate);
    // What is not connected to an output is not run; it puts out silence.
    source.connect(this.#node).connect(made.destination);
  }

  #take(samples, sampleRate) {
    this.#on.level(samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0));
    if (!this.#encoder) return this.#on.frame(pcm(samples));
    const timestamp = Math.round(this.#frames * 1e6 / sampleRate), numberOfFrames = samples.length;
    this.#frames += numberOfFrames;
    const data = new AudioData({ format: "f32-planar", sampleRate, numberOfFrames, numberOfChannels: 1, timestamp, data: samples });
    if (this.#encoder.state === "configured") this.#encoder.encode(data);
    data.close();
  }

  /** Releases the microphone; resolves when the last frame has been passed on. */
  async close() {
    this.#stream?.getTracks().forEach(track => track.stop());
    this.#node?.disconnect();
    if (this.#node) this.#node.port.onmessage = null;
    this.#context?.close().catch(() => {});
    if (this.#encoder?.state !== "configured") return;
    await this.#encoder.flush().catch(() => {});
    this.#encoder.close();
  }
}
