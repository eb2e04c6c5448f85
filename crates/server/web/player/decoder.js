// Decoders of chunks: PCM here, FLAC and Opus by the browser. Pages of secure origins have
// WebCodecs; the others decode FLAC frame by frame as files, and have no decoder for Opus packets.
// Decoders in WebAssembly were rejected: the page's policy forbids them, and they are larger than
// the page.

/** A stream that this browser cannot decode; the message says why, and what to do. */
export class UnsupportedStream extends Error {}

const ascii = bytes => String.fromCharCode(...bytes);

/** `{ codec, rate, channels, bits, header }` of a codec header. Throws `UnsupportedStream`. */
export function parseFormat(codec, header) {
  const view = new DataView(header.buffer, header.byteOffset, header.length), magic = ascii(header.subarray(0, 4));
  let format = null;
  if (codec === "pcm" && magic === "RIFF" && header.length >= 44) {
    format = { rate: view.getUint32(24, true), channels: view.getUint16(22, true), bits: view.getUint16(34, true) };
    if (![8, 16, 24, 32].includes(format.bits)) format = null;
  } else if (codec === "flac" && magic === "fLaC" && header.length >= 42) {
    // STREAMINFO behind 8 bytes: 20 bits of rate, 3 of channels, 5 of bits (RFC 9639, 8.2).
    const word = view.getUint32(18);
    format = { rate: word >>> 12, channels: (word >>> 9 & 7) + 1, bits: (word >>> 4 & 31) + 1 };
  } else if (codec === "opus" && magic === "SUPO" && header.length >= 12) {
    format = { rate: view.getUint32(4, true), channels: view.getUint16(10, true), bits: 16 };
  } else if (!["pcm", "flac", "opus"].includes(codec)) {
    throw new UnsupportedStream(`the station sends ${codec}, which this player does not know`);
  }
  if (!format || format.channels === 0 || format.rate < 8_000 || format.rate > 384_000) {
    throw new UnsupportedStream(`the codec header of the station (${codec}) is malformed`);
  }
  return { codec, ...format, header };
}

/**
 * Opens a decoder. `onSound(timestamp, channels)` gets each decoded chunk, in their order, with an
 * array of samples for each channel; `onDamage()` is called for each chunk that has no sound.
 * Throws `UnsupportedStream`.
 */
export async function openDecoder(format, onSound, onDamage) {
  if (format.codec === "pcm") return new PcmDecoder(format, onSound);
  const config = { codec: format.codec, sampleRate: format.rate, numberOfChannels: format.channels };
  if (format.codec === "flac") config.description = format.header.slice();
  if ("AudioDecoder" in globalThis) {
    const { supported } = await AudioDecoder.isConfigSupported(config).catch(() => ({ supported: false }));
    if (supported) return new CodecDecoder(config, onSound, onDamage);
  }
  if (format.codec === "flac") return new FileDecoder(format, onSound, onDamage);
  throw new UnsupportedStream(globalThis.isSecureContext ? "this browser cannot decode Opus packets" : "a browser decodes Opus packets on pages of secure origins only (https, or localhost)");
}

/** Samples of 8, 16, 32 bits, and of 24 bits in 32. */
class PcmDecoder {
  #format; #onSound;

  constructor(format, onSound) {
    this.#format = format;
    this.#onSound = onSound;
  }

  decode(timestamp, payload) {
    const { channels, bits } = this.#format, width = bits === 24 ? 4 : bits / 8;
    const frames = Math.floor(payload.length / width / channels), scale = 1 / 2 ** (bits - 1);
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    const read = {
      8: at => view.getInt8(at), 16: at => view.getInt16(at, true),
      // The highest byte may be that of a sign or zero.
      24: at => view.getInt32(at, true) << 8 >> 8, 32: at => view.getInt32(at, true),
    }[bits];
    const out = Array.from({ length: channels }, () => new Float32Array(frames));
    for (let frame = 0, at = 0; frame < frames; frame += 1) {
      for (let channel = 0; channel < channels; channel += 1, at += width) out[channel][frame] = read(at) * scale;
    }
    if (frames > 0) this.#onSound(timestamp, out);
  }

  close() {}
}

/** WebCodecs. A chunk is one packet, and each packet has one output. */
class CodecDecoder {
  #decoder = null; #config; #onSound; #onDamage; #pending = [];

  constructor(config, onSound, onDamage) {
    this.#config = config;
    this.#onSound = onSound;
    this.#onDamage = onDamage;
    this.#open();
  }

  decode(timestamp, payload) {
    if (this.#decoder.state === "closed") this.#open();
    this.#pending.push(timestamp);
    this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: Math.round(timestamp * 1e6), data: payload }));
  }

  close() {
    this.#onSound = this.#onDamage = () => {};
    if (this.#decoder.state !== "closed") this.#decoder.close();
  }

  #open() {
    const decoder = new AudioDecoder({
      output: data => this.#output(data),
      // It is closed then, and what was given to it is gone.
      error: () => { for (const _ of this.#pending.splice(0)) this.#onDamage(); },
    });
    decoder.configure(this.#config);
    this.#decoder = decoder;
  }

  #output(data) {
    const channels = Array.from({ length: data.numberOfChannels }, (_, planeIndex) => {
      const samples = new Float32Array(data.numberOfFrames);
      data.copyTo(samples, { planeIndex, format: "f32-planar" });
      return samples;
    });
    data.close();
    if (this.#pending.length > 0) this.#onSound(this.#pending.shift(), channels);
  }
}

/** A FLAC file of the stream's header and one frame is decoded for each chunk. */
class FileDecoder {
  #context; #header; #onSound; #onDamage; #tail = Promise.resolve();

  constructor({ rate, channels, header }, onSound, onDamage) {
    // Of the stream's rate, so that nothing is resampled at the edges of a chunk.
    this.#context = new OfflineAudioContext(channels, 1, rate);
    this.#header = header.slice();
    this.#onSound = onSound;
    this.#onDamage = onDamage;
  }

  decode(timestamp, payload) {
    const file = new Uint8Array(this.#header.length + payload.length);
    file.set(this.#header);
    file.set(payload, this.#header.length);
    const decoded = this.#context.decodeAudioData(file.buffer).catch(() => null);
    // Several are decoded at once, and they end in any order.
    this.#tail = this.#tail.then(async () => {
      const buffer = await decoded;
      if (buffer) this.#onSound(timestamp, Array.from({ length: buffer.numberOfChannels }, (_, channel) => buffer.getChannelData(channel)));
      else this.#onDamage();
    });
  }

  close() { this.#onSound = this.#onDamage = () => {}; }
}
