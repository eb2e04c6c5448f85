"""Exact and fast loudness (ITU-R BS.1770, EBU R 128) of arrays.

>>> import aulos, numpy
>>> tone = numpy.sin(numpy.arange(96_000) * 0.13).astype("float32") * 0.1
>>> round(aulos.measure(tone, 48_000).integrated, 1)
-23.0

`measure` takes a whole array, a `Meter` hears sound piece by piece, `merge` makes an album of
tracks. Figures are in LUFS, LU, dBTP and dBFS, and None where there is no value.
"""

from ._aulos import Loudness, Meter, measure, merge

__all__ = ["Loudness", "Meter", "measure", "merge"]
