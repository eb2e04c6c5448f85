// The estimate of the server's clock in virtual time. Gets the module, throws at the first fault,
// and returns the errors in milliseconds of each case.
({ ServerClock, offsetAt, ownTime }) => {
  function check(condition, text) { if (!condition) throw new Error(text); }
  // The generator of Numerical Recipes: the same numbers at each run.
  let seed = 7;
  const random = () => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return (seed + 0.5) / 2 ** 32;
  };
  const exponential = mean => -mean * Math.log(random());
  const START = 1_000;

  /** A server whose clock is far ahead and drifts, and a page that reads its own in steps. */
  function run(name, { there, back, ppm = 0, step = 1e-4, jumpAt = Infinity, duration = 60, after = 10 }, limits) {
    const clock = new ServerClock(), errors = [];
    const server = at => at + 5_000 + at * ppm * 1e-6 + (at >= START + jumpAt ? 3 : 0);
    const read = at => Math.floor(at / step) * step;
    let now = START, count = 0, settledAfter = null, outside = 0;
    clock.begin(now);
    while (now < START + duration) {
      const sent = read(now), id = clock.request(sent);
      if (id !== null) {
        check(clock.request(sent) === null, "one request is open at a time");
        const arrival = now + there(), received = server(arrival);
        now = arrival + back();
        check(clock.reply(read(now), { refersTo: id, sent: received, latency: received - sent }), "a reply is taken");
        check(!clock.reply(read(now), { refersTo: id, sent: received, latency: received - sent }), "it is taken once");
        count += 1;
        if (settledAfter === null && clock.isSettled(now)) settledAfter = now - START;
        const line = clock.line(now);
        if (now > START + after) {
          const error = Math.abs(offsetAt(line, now) - (server(now) - now));
          errors.push(error);
          if (error > line.error) outside += 1;
          check(Math.abs(ownTime(line, now + offsetAt(line, now)) - now) < 1e-7, "times go both ways");
        }
      }
      // A page wakes up after some milliseconds.
      now += 0.001 + 0.004 * random();
    }
    errors.sort((a, b) => a - b);
    const at = share => errors[Math.floor((errors.length - 1) * share)] * 1e3;
    const result = { name, p50: +at(0.5).toFixed(3), p99: +at(0.99).toFixed(3), exchanges: count, settled_s: +settledAfter.toFixed(2), outside: +(outside / errors.length).toFixed(3) };
    const text = JSON.stringify(result);
    check(result.p50 <= limits.p50 && result.p99 <= limits.p99, `${text}: errors above ${JSON.stringify(limits)} ms`);
    check(settledAfter < 3.2, `${text}: settled too late`);
    return result;
  }

  const near = 0.0002, wifi = () => 0.002 + exponential(0.005);
  const results = [
    run("near", { there: () => near, back: () => near }, { p50: 0.06, p99: 0.11 }),
    run("near, clock of 1 ms", { there: () => near, back: () => near, step: 1e-3 }, { p50: 0.6, p99: 1.1 }),
    run("jitter of 5 ms", { there: wifi, back: wifi, duration: 90, after: 60 }, { p50: 0.1, p99: 0.2 }),
    run("jitter of 5 ms, first minute", { there: wifi, back: wifi, after: 3 }, { p50: 0.3, p99: 0.6 }),
    run("replies delayed by a stream", { there: () => 0.002 + exponential(0.001), back: () => 0.002 + exponential(0.02), after: 20 }, { p50: 0.3, p99: 0.8 }),
    run("drift of 100 ppm", { there: wifi, back: wifi, ppm: 100, duration: 300, after: 60 }, { p50: 0.15, p99: 0.3 }),
    run("drift of -100 ppm", { there: wifi, back: wifi, ppm: -100, duration: 300, after: 60 }, { p50: 0.15, p99: 0.3 }),
    // Half of a constant difference cannot be seen.
    run("4 ms more on the way back", { there: () => 0.002, back: () => 0.006 }, { p50: 2.1, p99: 2.2 }),
    run("the server's clock is set", { there: wifi, back: wifi, jumpAt: 30, after: 45 }, { p50: 0.1, p99: 0.3 }),
  ];

  const clock = new ServerClock();
  clock.begin(10);
  check(!clock.isSettled(10) && clock.line(10) === null, "nothing is known at first");
  const id = clock.request(10);
  check(!clock.reply(10.1, { refersTo: id + 1, sent: 0, latency: 0 }), "a reply to another request is ignored");
  check(!clock.isLost(14.9) && clock.isLost(15), "a server that does not reply is lost");
  check(clock.reply(15, { refersTo: id, sent: 115, latency: 102 }) && clock.line(74.9) !== null && clock.line(75) === null, "an old estimate is worth nothing");
  return results;
}
