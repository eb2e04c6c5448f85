"""Tables of file measurements, and the peak meter: what needs no compiled code."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, Union, final

from ._aulos import Loudness, Meter, read as _read, scan_columns

if TYPE_CHECKING:
    from typing_extensions import Buffer

StrPath: TypeAlias = str | os.PathLike[str]
# `array` has no parameters at run time before Python 3.12.
Column: TypeAlias = Union[list[str], list[str | None], list[Loudness | None], "array[float]"]

_TEXT = ("path", "error", "loudness")


@final
class Scan(Mapping[str, Column]):
    """The measurements of files: a column for each name, a row for each file, in order.

    `path` and `error` are lists of text; `error` is None where the whole file was measured.
    `loudness`, with `keep=True`, is a list of `Loudness` for `merge`. All others are
    `array.array("d")`, which NumPy reads in place, with NaN where a value is undefined:
    `sample_rate` (Hz), `channels`, `seconds`, `integrated`, `max_momentary`, `max_short_term`,
    `relative_threshold` (LUFS), `loudness_range` (LU), `true_peak` (dBTP), `sample_peak` (dBFS).
    """

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self._columns: dict[str, Column] = {
            name: values if name in _TEXT else array("d", values)
            for name, values in columns.items()
        }

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        failed = sum(error is not None for error in self._columns["error"])
        return f"Scan({len(self._columns['path'])} files, {failed} with errors)"

    def rows(self) -> Iterator[dict[str, Any]]:
        """A dictionary for each file, with None where a value is undefined."""
        for values in zip(*self._columns.values(), strict=True):
            yield {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in zip(self._columns, values, strict=True)
            }

    def to_numpy(self) -> dict[str, Any]:
        """NumPy arrays; those of numbers share the memory of the columns."""
        numpy: Any = import_module("numpy")
        return {
            name: numpy.asarray(values, dtype=object if name in _TEXT else None)
            for name, values in self._columns.items()
        }

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, with nulls where a value is undefined; without `loudness`."""
        pyarrow: Any = import_module("pyarrow")
        columns = {
            name: pyarrow.array(values, type=pyarrow.string())
            if name in _TEXT
            else pyarrow.array(values, type=pyarrow.float64(), from_pandas=True)
            for name, values in self._columns.items()
            if name != "loudness"
        }
        return pyarrow.table(columns)


def scan_paths(
    paths: Iterable[StrPath],
    jobs: int | None = None,
    *,
    true_peak: bool = True,
    dual_mono: bool = False,
    lra_hop: float = 1.0,
    keep: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Scan:
    """Measures audio files, and those in and below directories, on several threads.

    `jobs`: number of threads; None for all processors. A long file is measured by several.
    `keep`: a column `loudness` with what `merge` needs, 88 bytes per second of audio.
    `progress`: called with the number of measured files and of all, on the caller's thread.
    Other parameters as in `Meter`.

    A file that cannot be measured is a row with its reason in `error`. The GIL is released, and
    Ctrl-C ends the scan after the files that have begun.

    Raises ValueError for a parameter out of range.
    """
    if isinstance(paths, str | os.PathLike):
        raise TypeError("paths must be a sequence of paths, not one path; write [path]")
    names = [os.fspath(path) for path in paths]
    return Scan(scan_columns(names, jobs, true_peak, dual_mono, lra_hop, keep, progress))


class Audio(NamedTuple):
    """The samples of a file."""

    samples: memoryview[float]
    """float32 with a full scale of 1.0, of shape (frames, channels); of shape (0,) if empty."""
    rate: int
    """Frames per second."""


def read(path: StrPath) -> Audio:
    """Decodes a whole audio file. `numpy.asarray(read(path).samples)` is an array without a copy.

    Raises OSError if the file cannot be read (FileNotFoundError, PermissionError), and ValueError
    if it is no audio, is damaged, or changes its format within; the message has the reason.
    """
    return Audio(*_read(os.fspath(path)))


@final
class TruePeak:
    """Measures the true peak (ITU-R BS.1770, Annex 2) block by block. Can be pickled.

    `rate`: sample rate, 16 to 2,822,400 Hz. `channels`: 1 to 64.
    """

    def __init__(self, rate: int, channels: int = 2) -> None:
        self._meter = Meter(rate, channels, mode="true_peak")

    def add(self, sound: Buffer) -> Self:
        """Measures an array as `Meter.add` does."""
        self._meter.add(sound)
        return self

    @property
    def peak(self) -> float | None:
        """The greatest true peak of all channels in dBTP; None for silence."""
        return self._meter.true_peak

    @property
    def peaks(self) -> list[float | None]:
        """The true peak of each channel in dBTP since the meter was made or unpickled."""
        return self._meter.true_peaks or []
