"""Prints PESQ-WB (ITU-T P.862.2) of two files of mono float32 at 48 kHz: what was sent, what was heard."""

import sys

import numpy
from pesq import pesq
from scipy.signal import resample_poly

sent, heard = (resample_poly(numpy.fromfile(path, "<f4"), 1, 3) for path in sys.argv[1:3])
length = min(len(sent), len(heard))
print(pesq(16_000, sent[:length], heard[:length], "wb"))
