// Records what the player sends to the loudspeakers, as `tap`: run in the page before the player
// begins. An AudioWorklet says the exact frame of each block; where there is none (no secure
// origin), a ScriptProcessor gives the samples alone.
(async () => {
  const KEPT_SECONDS = 30;
  const tap = window.tap = { blocks: [], times: [], context: null };
  const connect = AudioNode.prototype.connect;
  let isOurs = false;
  tap.keep = (frame, left, right) => {
    tap.blocks.push({ frame, left, right });
    if (tap.blocks.length * left.length > KEPT_SECONDS * tap.context.sampleRate) tap.blocks.shift();
  };
  async function record(node, context, destination) {
    tap.context = context;
    tap.blocks.length = 0;
    if (!context.audioWorklet) {
      const processor = context.createScriptProcessor(4096, 2, 1);
      processor.onaudioprocess = ({ inputBuffer }) => tap.keep(null, inputBuffer.getChannelData(0).slice(), inputBuffer.getChannelData(1).slice());
      connect.call(node, processor);
      connect.call(processor, destination);
      return;
    }
    const source = `registerProcessor("tap", class extends AudioWorkletProcessor {
      filled = 0; blocks = [new Float32Array(4096), new Float32Array(4096)];
      process([input]) {
        if (this.filled === 0) this.begin = currentFrame;
        for (const channel of [0, 1]) this.blocks[channel].set(input[channel] ?? input[0] ?? new Float32Array(128), this.filled);
        this.filled += 128;
        if (this.filled === 4096) {
          this.port.postMessage([this.begin, ...this.blocks.map(block => block.slice())]);
          this.filled = 0;
        }
        return true;
      }
    })`;
    await context.audioWorklet.addModule(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    const worklet = new AudioWorkletNode(context, "tap", { numberOfOutputs: 0, channelCount: 2, channelCountMode: "explicit" });
    worklet.port.onmessage = ({ data }) => tap.keep(...data);
    connect.call(node, worklet);
  }
  AudioNode.prototype.connect = function (to, ...more) {
    if (to instanceof AudioDestinationNode && !isOurs) record(this, this.context, to);
    return connect.call(this, to, ...more);
  };

  /** Level and frequency of what is heard in the next seconds. */
  tap.measure = async seconds => {
    tap.blocks.length = 0;
    await new Promise(done => setTimeout(done, seconds * 1_000));
    const samples = tap.blocks.flatMap(({ left }) => [...left]), rate = tap.context.sampleRate;
    let sum = 0, peak = 0, first = null, last = null, periods = 0, bend = 0;
    samples.forEach((sample, at) => {
      sum += sample * sample;
      peak = Math.max(peak, Math.abs(sample));
      const before = samples[at - 1];
      if (before < 0 && sample >= 0) {
        last = at - sample / (sample - before);
        first === null ? first = last : periods += 1;
      }
      if (at > 1) bend = Math.max(bend, Math.abs(sample - 2 * before + samples[at - 2]));
    });
    const seconds_heard = samples.length / rate;
    return { seconds: seconds_heard, db: 10 * Math.log10(sum / samples.length), peak, bend, hz: periods / (last - first) * rate, rate };
  };

  /** Pairs of frame number and page time at which it sounds, as the browser says. */
  tap.watch = () => setInterval(() => {
    const { contextTime, performanceTime } = tap.context.getOutputTimestamp();
    if (contextTime > 0) tap.times.push([contextTime * tap.context.sampleRate, performanceTime]);
  }, 50);

  /** The recorded blocks as 16-bit integers, in base64: a text is passed faster than a list. */
  tap.sound = () => {
    const { blocks } = tap, text = [];
    for (const { left, right } of blocks) {
      const samples = new Int16Array(2 * left.length);
      left.forEach((sample, at) => { samples[2 * at] = Math.round(sample * 32_768); });
      right.forEach((sample, at) => { samples[2 * at + 1] = Math.round(sample * 32_768); });
      const bytes = new Uint8Array(samples.buffer);
      for (let at = 0; at < bytes.length; at += 8_192) text.push(String.fromCharCode(...bytes.subarray(at, at + 8_192)));
    }
    return { first: blocks[0].frame, frames: blocks.map(({ frame }) => frame), sound: btoa(text.join("")), times: tap.times, rate: tap.context.sampleRate };
  };
})()
