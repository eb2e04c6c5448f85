// The audio thread's part of a talk: samples of the microphone in frames of 20 ms.

const FRAME_S = 0.02;

registerProcessor("talk-capture", class extends AudioWorkletProcessor {
  #frame = new Float32Array(Math.round(sampleRate * FRAME_S)); #filled = 0;

  process([[samples]]) {
    // Without a microphone there is no channel.
    for (let at = 0; at < (samples?.length ?? 0);) {
      const count = Math.min(samples.length - at, this.#frame.length - this.#filled);
      this.#frame.set(samples.subarray(at, at + count), this.#filled);
      this.#filled += count;
      at += count;
      if (this.#filled < this.#frame.length) continue;
      const full = this.#frame;
      this.#frame = new Float32Array(full.length);
      this.#filled = 0;
      this.port.postMessage(full, [full.buffer]);
    }
    return true;
  }
});
