// The server's clock, from exchanges of Time messages: the rules of the native player
// (docs/decisions/clock-filter.md). A message that arrives late gives a bound of the offset, and
// the line with the widest margin to all bounds is chosen. A busy page reads its messages late,
// which is a delay like that of a network. Times are seconds; no function here reads a clock.

/** Clocks deviate by less; one that NTP is setting, by up to 500 ppm. */
const MAX_DRIFT = 600e-6;
/** What clocks of computers usually differ by. */
const USUAL_DRIFT = 30e-6;
const SEARCH_STEPS = 40, GOLDEN = 0.6180339887498949;
/** Browsers round their clock to 0.1 ms, some to 1 ms, so a stamp may be too early by as much. */
const RESOLUTION = 100e-6, MAX_OVERLAP = 1.2e-3;
const MIN_KNOWN = 20, MAX_CONTRADICTION = 2e-3;
/** Error in units of mean excess delay per bound, which one in twenty exceeds. */
const ERROR_OF_MEAN = 15;

/** Bounds of one kind; `sign` is 1 for upper bounds and -1 for lower ones. */
class Cloud {
  points = []; hull = []; mean = { at: 0, offset: 0 };

  constructor(sign, window) {
    Object.assign(this, { sign, window });
  }

  push(at, offset) {
    if (this.points.length === this.window) this.points.shift();
    // The hull needs the order of time.
    this.points.push({ at: Math.max(at, this.points.at(-1)?.at ?? at), offset });
  }

  /** The hull on the side of the line, by A. M. Andrew's monotone chain (1979). */
  findHull() {
    const { hull } = this, sum = { at: 0, offset: 0 };
    hull.length = 0;
    for (const point of this.points) {
      sum.at += point.at;
      sum.offset += point.offset;
      while (hull.length > 1) {
        const a = hull.at(-2), b = hull.at(-1);
        const turn = (b.at - a.at) * (point.offset - a.offset) - (b.offset - a.offset) * (point.at - a.at);
        if (turn * this.sign > 0) break;
        hull.pop();
      }
      hull.push(point);
    }
    const count = Math.max(1, this.points.length);
    this.mean = { at: sum.at / count, offset: sum.offset / count };
  }

  /** The line of this slope that touches the cloud: its height at time zero, and the mean distance to it. */
  edge(slope) {
    let nearest = Infinity;
    for (const point of this.hull) nearest = Math.min(nearest, (point.offset - slope * point.at) * this.sign);
    nearest *= this.sign;
    return { nearest, excess: (this.mean.offset - slope * this.mean.at - nearest) * this.sign };
  }

  drop(count) {
    this.points.splice(0, Math.min(count, this.points.length - 1));
  }
}

export const offsetAt = (line, at) => line.offset + line.drift * (at - line.at);
/** The own time at the peer's time. One step is exact to drift squared. */
export const ownTime = (line, peer) => peer - offsetAt(line, peer - offsetAt(line, peer - line.offset));

/** Bounds of the offset between a peer's clock and the own one (peer minus own). */
export class ClockBounds {
  line = null; restarts = 0;
  #upper; #lower; #origin = 0; #base = 0;

  /** Keeps at most `window` bounds of each kind. */
  constructor(window) {
    this.#upper = new Cloud(1, window);
    this.#lower = new Cloud(-1, window);
  }

  /** A message to the peer: sent at the own time `at`, and `offset` more on the peer's clock at its arrival. */
  pushUpper(at, offset) { this.#push(this.#upper, at, offset); }

  /** A message from the peer: it arrived at the own time `at`, and was sent at `offset` more on the peer's clock. */
  pushLower(at, offset) { this.#push(this.#lower, at, offset); }

  get count() { return Math.max(this.#upper.points.length, this.#lower.points.length); }

  clear() {
    this.#upper.points.length = this.#lower.points.length = 0;
    this.line = null;
  }

  /**
   * The line `{ at, offset, drift, error, delay }` through all bounds. Bounds that contradict each
   * other are dropped: the older half first, then all but the newest.
   */
  update() {
    if (this.count >= MIN_KNOWN && this.line && this.#contradicts(this.line)) this.#dropOlderHalf();
    let fit = this.#fit();
    for (let attempt = 0; attempt < 2 && fit.overlap > MAX_OVERLAP && this.count > 1; attempt += 1) {
      if (this.line) this.#dropOlderHalf();
      else this.#drop(cloud => cloud.points.length - 1);
      this.line = null;
      fit = this.#fit();
    }
    const at = Math.max(this.#upper.points.at(-1).at, this.#lower.points.at(-1).at);
    this.line = {
      at: this.#origin + at, offset: this.#base + fit.height + fit.slope * at, drift: fit.slope,
      error: RESOLUTION + ERROR_OF_MEAN * fit.excess / this.count, delay: Math.max(0, -fit.overlap),
    };
    return this.line;
  }

  #push(cloud, at, offset) {
    if (this.count === 0) [this.#origin, this.#base] = [at, offset];
    cloud.push(at - this.#origin, offset - this.#base);
  }

  #contradicts(line) {
    const limit = MAX_CONTRADICTION + 4 * line.error;
    return [this.#upper, this.#lower].some(cloud => {
      const { at, offset } = cloud.points.at(-1);
      return (offset - (offsetAt(line, this.#origin + at) - this.#base)) * cloud.sign < -limit;
    });
  }

  #dropOlderHalf() { this.#drop(cloud => Math.ceil(cloud.points.length / 2)); }

  #drop(count) {
    this.restarts += 1;
    for (const cloud of [this.#upper, this.#lower]) cloud.drop(count(cloud));
  }

  #edges(slope) {
    const above = this.#upper.edge(slope), below = this.#lower.edge(slope);
    return {
      slope, height: (above.nearest + below.nearest) / 2, overlap: (below.nearest - above.nearest) / 2,
      excess: (above.excess + below.excess) / 2,
    };
  }

  /** The margin is a concave function of the slope: a search by the golden section finds its maximum. */
  #fit() {
    this.#upper.findHull();
    this.#lower.findHull();
    // Over a short time any slope fits: it stays near to zero, as clocks do.
    const weight = Math.max(RESOLUTION, this.#edges(0).excess) / (2 * this.count * USUAL_DRIFT);
    const value = slope => -this.#edges(slope).overlap - weight * Math.abs(slope);
    let low = -MAX_DRIFT, high = MAX_DRIFT;
    let left = high - GOLDEN * (high - low), right = low + GOLDEN * (high - low);
    let atLeft = value(left), atRight = value(right);
    for (let step = 0; step < SEARCH_STEPS; step += 1) {
      if (atLeft >= atRight) {
        [high, right, atRight] = [right, left, atLeft];
        left = high - GOLDEN * (high - low);
        atLeft = value(left);
      } else {
        [low, left, atLeft] = [left, right, atRight];
        right = low + GOLDEN * (high - low);
        atRight = value(right);
      }
    }
    const slope = (low + high) / 2;
    return this.#edges(value(0) >= value(slope) ? 0 : slope);
  }
}

/** Exchanges at the beginning of a connection that follow each other immediately. */
export const QUICK_EXCHANGES = 50;
/** Between two exchanges afterwards, and while jitter leaves an error of more than `COARSE_ERROR`. */
const INTERVAL = 0.25, COARSE_INTERVAL = 0.05, COARSE_ERROR = 0.5e-3;
/** Bounds of five minutes. */
const WINDOW = 1_200;
/** Without a reply the server is gone; without one for longer the estimate is worth nothing. */
const REPLY_TIMEOUT = 5, STALE_AFTER = 60;
/** A server that answers slowly does not delay the start for longer. */
const MAX_SETTLING = 3, MIN_EXCHANGES = 8;
/** The Hello has id 1. */
const FIRST_ID = 2, LAST_ID = 9_999;

/** The exchanges with a server, and the estimate of its clock. It outlives a connection. */
export class ServerClock {
  #bounds = new ClockBounds(WINDOW); #asked = null; #nextAt = 0; #nextId = FIRST_ID; #quickLeft = QUICK_EXCHANGES;
  #answeredAt = -Infinity; #begunAt = 0; #exchanges = 0; #nearest = null; #nextUpdate = 0;

  /** Begins the exchanges of another connection. */
  begin(now) {
    this.#asked = null;
    this.#nextAt = this.#begunAt = now;
    this.#quickLeft = QUICK_EXCHANGES;
    this.#exchanges = 0;
  }

  /** The id of the Time request to send now, or null. `now` has to be the time in the message. */
  request(now) {
    if (this.#asked || now < this.#nextAt) return null;
    this.#asked = { id: this.#nextId, at: now };
    this.#nextId = this.#nextId >= LAST_ID ? FIRST_ID : this.#nextId + 1;
    return this.#asked.id;
  }

  /** Whether a reply is overdue. */
  isLost(now) { return this.#asked !== null && now - this.#asked.at >= REPLY_TIMEOUT; }

  /** Processes a Time reply that was received at `now`; false for one that was not asked for. */
  reply(now, { refersTo, sent, latency }) {
    if (this.#asked?.id !== refersTo) return false;
    const asked = this.#asked.at, isCoarse = this.line(now)?.error > COARSE_ERROR;
    this.#asked = null;
    this.#quickLeft = Math.max(0, this.#quickLeft - 1);
    this.#nextAt = this.#quickLeft > 0 ? now : asked + (isCoarse ? COARSE_INTERVAL : INTERVAL);
    if (now - this.#answeredAt >= STALE_AFTER) {
      this.#bounds.clear();
      this.#nearest = null;
    }
    this.#answeredAt = now;
    this.#exchanges += 1;
    this.#push({ at: asked, by: latency }, { at: now, by: now - sent });
    return true;
  }

  /** The estimate; null before the first reply, and when the last one is old. */
  line(now) { return now - this.#answeredAt < STALE_AFTER ? this.#bounds.line : null; }

  /** Whether the clock is known well enough to begin. */
  isSettled(now) {
    return this.line(now) !== null && (this.#quickLeft === 0 || (now - this.#begunAt >= MAX_SETTLING && this.#exchanges >= MIN_EXCHANGES));
  }

  /** Only the nearest bounds of each interval are kept: a line does not change much in so short a time. */
  #push(there, back) {
    const now = back.at, nearer = (one, other) => one && one.by <= other.by ? one : other;
    there = nearer(this.#nearest?.there, there);
    back = nearer(this.#nearest?.back, back);
    if (this.#quickLeft === 0 && now < this.#nextUpdate && this.#bounds.line) {
      this.#nearest = { there, back };
      return;
    }
    this.#nearest = null;
    this.#nextUpdate = now + INTERVAL - COARSE_INTERVAL;
    this.#bounds.pushUpper(there.at, there.by);
    this.#bounds.pushLower(back.at, -back.by);
    this.#bounds.update();
  }
}
