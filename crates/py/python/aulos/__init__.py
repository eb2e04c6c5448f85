"""Exact and fast loudness (ITU-R BS.1770, EBU R 128) of arrays.

>>> import aulos, numpy
>>> tone = numpy.sin(numpy.arange(96_000) * 0.13).astype("float32") * 0.1
>>> round(aulos.measure(tone, 48_000).integrated, 1)
-23.0

`measure` measures a whole array, a `Meter` measures audio block by block, and `merge` combines
tracks into an album. Values are in LUFS, LU, dBTP and dBFS; a missing value is None.
"""

from ._aulos import Loudness, Meter, measure, merge

__all__ = ["Loudness", "Meter", "measure", "merge"]
