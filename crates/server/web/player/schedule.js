// Which frames of the audio context a chunk takes. It has no clock and no audio: the caller says
// where the chunk ought to begin.
//
// Positions are whole frames, because a source that begins between two frames is interpolated by
// the browser and does not join the one before it.

/** Errors in seconds: nothing is done below `REST` until `LEAVE` is exceeded; above `QUICK` the rate changes more. */
const REST = 0.1e-3, LEAVE = 1e-3, QUICK = 8e-3;
/** An error above this is corrected at once. */
export const JUMP = 0.2;
/** Change of the rate: one frame in 20 ms, or 0.3 %, which is 5 cents. */
const SLOW_RATE = 0.001, QUICK_RATE = 0.003;
/** Chunks whose timestamps are farther apart do not follow each other. */
const MAX_GAP = 2e-3;

/** The positions of the chunks of one stream. */
export class Schedule {
  #rate; #end = null; #next = 0; #corrects = false;

  constructor(rate) { this.#rate = rate; }

  /** The frame behind the last chunk, or null while nothing plays. */
  get end() { return this.#end; }

  /** The next chunk begins anew. */
  reset() {
    this.#end = null;
    this.#corrects = false;
  }

  /**
   * Places a chunk of `frames` frames, of the server's time `at`, that ought to begin at the frame
   * `ideal` (a fraction), not before the whole frame `earliest`. Returns one of
   * - `{ frame, frames, isStart, error }`: it begins at `frame` and is stretched to `frames`;
   *   `isStart` if it does not follow the chunk before it; `error` is how late it is in seconds,
   * - `{ isLate: true }`: its time has passed,
   * - `{ isJump: true }`: what is scheduled is too far off its time to be corrected by the rate.
   */
  place({ at, frames, ideal, earliest }) {
    const follows = this.#end !== null && Math.abs(at - this.#next) <= MAX_GAP;
    if (!follows || this.#end < earliest) {
      const frame = Math.round(ideal);
      // A start never overlaps what is scheduled.
      if (frame < Math.max(earliest, this.#end ?? 0)) return { isLate: true };
      this.#corrects = false;
      return this.#take(at, frames, { frame, frames, isStart: true, error: (frame - ideal) / this.#rate });
    }
    const error = (this.#end - ideal) / this.#rate, size = Math.abs(error);
    if (size > JUMP) return { isJump: true };
    this.#corrects = size > (this.#corrects ? REST : LEAVE);
    const most = Math.max(1, Math.round(frames * (size > QUICK ? QUICK_RATE : SLOW_RATE)));
    const change = this.#corrects ? Math.min(most, Math.round(size * this.#rate)) : 0;
    return this.#take(at, frames, { frame: this.#end, frames: frames - Math.sign(error) * change, isStart: false, error });
  }

  #take(at, frames, place) {
    this.#end = place.frame + place.frames;
    this.#next = at + frames / this.#rate;
    return place;
  }
}

/** Samples of one channel stretched to `length` by cubic interpolation; the same if that is their length. */
export function stretch(samples, length) {
  const count = samples.length;
  if (length === count) return samples;
  const out = new Float32Array(length), step = count / length;
  for (let index = 0; index < length; index += 1) {
    const position = index * step, whole = Math.floor(position), x = position - whole;
    const b = samples[whole], a = samples[whole - 1] ?? b, c = samples[whole + 1] ?? b + (b - a), d = samples[whole + 2] ?? c;
    out[index] = b + 0.5 * x * (c - a + x * (2 * a - 5 * b + 4 * c - d + x * (3 * (b - c) + d - a)));
  }
  return out;
}
