"""Rows for scan.rs: case, ours, peer (seconds of CPU time, smallest of N), target or 0; tabs between.

The array is a minute of noise that speaks and pauses, stereo, contiguous float32, 48 kHz.
"""

import sys
import time

import aulos
import numpy as np
import pyloudnorm

RATE = 48_000


def main(reps):
    random = np.random.default_rng(1)
    levels = np.repeat(10 ** random.uniform(-2, -0.3, 60 * RATE // 7_000 + 1), 7_000)[: 60 * RATE]
    sound = (random.uniform(-1, 1, (60 * RATE, 2)) * levels[:, None]).astype("float32")
    planes = np.ascontiguousarray(sound.T)
    theirs = pyloudnorm.Meter(RATE)
    contestants = {
        "pyloudnorm": lambda: theirs.integrated_loudness(sound),
        "I": lambda: aulos.measure(sound, RATE, mode="integrated"),
        "I, planes as x.T": lambda: aulos.measure(planes.T, RATE, mode="integrated"),
        "everything": lambda: aulos.measure(sound, RATE),
    }
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(reps):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    for name, target in [("I", 20), ("I, planes as x.T", 0), ("everything", 0)]:
        print(f"{name}, s / pyloudnorm I", best[name], best["pyloudnorm"], target, sep="\t")


main(int(sys.argv[1]))
