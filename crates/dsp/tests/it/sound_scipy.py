"""Prints the greatest difference in dBFS between scipy's output and ours, for a chain of filters.

Arguments: the rate, our stereo float32 output, and the input in the same format. The filters come from
standard input, a line each: channel, type, frequency, gain in dB, Q. The designs are those of the Audio EQ
Cookbook, written down from its formulas and evaluated by scipy in double precision.
"""

import sys

import numpy
from scipy.signal import sosfilt

rate = float(sys.argv[1])
ours, sound = (numpy.fromfile(path, "<f4").reshape(-1, 2).astype(float) for path in sys.argv[2:4])


def section(kind, hz, gain, q):
    a, w = 10 ** (gain / 40), 2 * numpy.pi * hz / rate
    c, alpha = numpy.cos(w), numpy.sin(w) / (2 * q)
    root = 2 * numpy.sqrt(a) * alpha
    match kind:
        case "peaking":
            b, d = [1 + alpha * a, -2 * c, 1 - alpha * a], [1 + alpha / a, -2 * c, 1 - alpha / a]
        case "low-pass":
            b, d = [(1 - c) / 2, 1 - c, (1 - c) / 2], [1 + alpha, -2 * c, 1 - alpha]
        case "high-pass":
            b, d = [(1 + c) / 2, -1 - c, (1 + c) / 2], [1 + alpha, -2 * c, 1 - alpha]
        case "notch":
            b, d = [1, -2 * c, 1], [1 + alpha, -2 * c, 1 - alpha]
        case "all-pass":
            b, d = [1 - alpha, -2 * c, 1 + alpha], [1 + alpha, -2 * c, 1 - alpha]
        case "low-shelf":
            b = [a * (a + 1 - (a - 1) * c + root), 2 * a * (a - 1 - (a + 1) * c), a * (a + 1 - (a - 1) * c - root)]
            d = [a + 1 + (a - 1) * c + root, -2 * (a - 1 + (a + 1) * c), a + 1 + (a - 1) * c - root]
        case "high-shelf":
            b = [a * (a + 1 + (a - 1) * c + root), -2 * a * (a - 1 + (a + 1) * c), a * (a + 1 + (a - 1) * c - root)]
            d = [a + 1 - (a - 1) * c + root, 2 * (a - 1 - (a + 1) * c), a + 1 - (a - 1) * c - root]
    return numpy.array(b + d) / d[0]


for line in sys.stdin:
    channel, kind, hz, gain, q = line.split()
    sound[:, int(channel)] = sosfilt([section(kind, float(hz), float(gain), float(q))], sound[:, int(channel)])
print(20 * numpy.log10(max(numpy.abs(ours - sound).max(), 1e-20)))
