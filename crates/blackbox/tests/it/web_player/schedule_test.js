// The positions of chunks in virtual time. Gets the module, throws at the first fault, and returns
// figures of each case.
({ Schedule, JUMP, stretch }) => {
  function check(condition, text) { if (!condition) throw new Error(text); }
  const RATE = 48_000, CHUNK = 960;

  /**
   * Plays chunks of 20 ms; `off` is by how many seconds the ideal time is later than at the start,
   * as a function of the time. Positions join, and the error is that of each chunk.
   */
  function play(off, duration) {
    const schedule = new Schedule(RATE), errors = [];
    let end = null, stretched = 0, starts = 0, jumps = 0, most = 0;
    for (let number = 0; number < duration * 50; number += 1) {
      const at = 7 + number / 50, ideal = 1_000.3 + number * CHUNK + off(number / 50) * RATE;
      const place = schedule.place({ at, frames: CHUNK, ideal, earliest: 0 });
      if (place.isJump) {
        jumps += 1;
        schedule.reset();
        number -= 1;
        continue;
      }
      if (place.isLate) continue;
      check(Number.isInteger(place.frame) && Number.isInteger(place.frames), "whole frames");
      if (place.isStart) starts += 1;
      else check(place.frame === end, "a chunk begins where the last one ends");
      end = place.frame + place.frames;
      check(schedule.end === end, "it knows its end");
      stretched += place.frames === CHUNK ? 0 : 1;
      most = Math.max(most, Math.abs(place.frames - CHUNK));
      errors.push(Math.abs(place.error) * 1e3);
    }
    const settled = errors.slice(errors.length >> 1).sort((a, b) => a - b);
    return { starts, jumps, stretched, most, last: +errors.at(-1).toFixed(3), worst: +settled.at(-1).toFixed(3) };
  }
  const is = (found, expected, text) => {
    for (const [key, value] of Object.entries(expected)) check(found[key] === value, `${text}: ${key} ${JSON.stringify(found)}`);
    return found;
  };
  const below = (found, limits, text) => {
    for (const [key, value] of Object.entries(limits)) check(found[key] <= value, `${text}: ${key} ${JSON.stringify(found)}`);
    return found;
  };

  const figures = {};
  // Nothing is changed within the dead band, so samples pass as they are.
  figures.steady = is(play(() => 0, 60), { starts: 1, jumps: 0, stretched: 0 }, "no error");
  figures.noise = is(play(at => 0.0009 * Math.sin(at * 9), 60), { starts: 1, jumps: 0, stretched: 0 }, "within the dead band");
  for (const ppm of [-100, 100]) figures[`drift ${ppm}`] = is(below(play(at => at * ppm * 1e-6, 600), { worst: 1.03 }, "drift"), { starts: 1, jumps: 0, most: 1 }, "drift");
  // 5 ms by single frames: 1 ms in a second. 100 ms by 0.3 %.
  for (const sign of [-1, 1]) {
    const step = (size, duration) => play(at => at < 1 ? 0 : sign * size, duration);
    figures[`step ${sign * 5}`] = is(below(step(0.005, 20), { worst: 0.11 }, "step of 5 ms"), { starts: 1, jumps: 0, most: 1 }, "step of 5 ms");
    figures[`step ${sign * 100}`] = is(below(step(0.1, 120), { worst: 0.11 }, "step of 100 ms"), { starts: 1, jumps: 0, most: 3 }, "step of 100 ms");
    figures[`step ${sign * 300}`] = is(below(step(0.3, 20), { worst: 0.02 }, "step of 300 ms"), { jumps: 1, stretched: 0, starts: 2 }, "step of 300 ms");
  }

  const schedule = new Schedule(RATE);
  check(schedule.place({ at: 0, frames: CHUNK, ideal: 99.4, earliest: 100 }).isLate, "what is past its time is late");
  check(schedule.place({ at: 0.02, frames: CHUNK, ideal: 1_059.4, earliest: 100 }).frame === 1_059, "the nearest frame");
  check(schedule.place({ at: 0.04, frames: CHUNK, ideal: 2_019, earliest: 100 }).frame === 2_019, "it goes on");
  // Chunks are missing: no sound until the time of the next one.
  const gap = schedule.place({ at: 0.16, frames: CHUNK, ideal: 7_779, earliest: 100 });
  check(gap.isStart && gap.frame === 7_779, "a gap of the timestamps is silent");
  check(schedule.place({ at: 0.12, frames: CHUNK, ideal: 5_859, earliest: 100 }).isLate, "sound never overlaps");
  // The page was busy and what was there has ended.
  const later = schedule.place({ at: 0.18, frames: CHUNK, ideal: 8_739, earliest: 8_740 });
  check(later.isLate, "no chunk begins before what can be rendered");
  check(schedule.place({ at: 0.2, frames: CHUNK, ideal: 9_699, earliest: 8_740 }).isStart, "it begins again");
  check(JUMP === 0.2, "errors above 200 ms are jumps");

  // A stretched tone: the same tone at another pitch, joined without a step.
  const tone = Float32Array.from({ length: 2 * CHUNK }, (_, index) => Math.sin(2 * Math.PI * 440 * index / RATE));
  check(stretch(tone, tone.length) === tone, "samples pass as they are");
  for (const change of [-3, -1, 1, 3]) {
    const first = stretch(tone.slice(0, CHUNK), CHUNK + change), second = stretch(tone.slice(CHUNK), CHUNK + change);
    let worst = 0;
    [...first, ...second].forEach((sample, index) => {
      worst = Math.max(worst, Math.abs(sample - Math.sin(2 * Math.PI * 440 * index * CHUNK / (CHUNK + change) / RATE)));
    });
    check(worst < 1e-3, `stretched by ${change}: off by ${worst}`);
    figures[`stretch ${change}`] = worst;
  }
  return figures;
}
