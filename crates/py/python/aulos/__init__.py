"""Exact and fast loudness (ITU-R BS.1770, EBU R 128) of arrays, files and archives.

>>> import aulos, numpy
>>> tone = numpy.sin(numpy.arange(96_000) * 0.13).astype("float32") * 0.1
>>> round(aulos.measure(tone, 48_000).integrated, 1)
-23.0

`measure` measures a whole array, a `Meter` measures audio block by block, and `merge` combines
tracks into an album. `scan_paths` measures files on all processors, `read` decodes one, and a
`Normalizer` keeps audio at a steady loudness. Values are in LUFS, LU, dBTP and dBFS; a missing
value is None.

The module `aulos.archive` keeps the loudness of archives in tables of Parquet files (it needs
pyarrow), and `aulos.ray` measures them on a Ray cluster (`pip install aulos[ray]`).
"""

from ._aulos import Loudness, Meter, Normalizer, measure, merge
from ._scan import Audio, Scan, TruePeak, read, scan_paths

__all__ = [
    "Audio",
    "Loudness",
    "Meter",
    "Normalizer",
    "Scan",
    "TruePeak",
    "measure",
    "merge",
    "read",
    "scan_paths",
]
