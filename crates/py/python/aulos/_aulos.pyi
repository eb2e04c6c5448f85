"""The compiled module; `aulos` exports its public names."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "Loudness",
    "Meter",
    "Normalizer",
    "find_audio",
    "has_audio_name",
    "join_segments",
    "measure",
    "measure_segment",
    "merge",
    "read",
    "scan_columns",
]

_Mode: TypeAlias = Literal[
    "momentary",
    "short_term",
    "integrated",
    "loudness_range",
    "sample_peak",
    "true_peak",
    "maxima",
    "all",
]
_Position: TypeAlias = (
    Literal["L", "R", "C", "LFE", "Ls", "Rs", "unused"] | int | tuple[int, int]
)

@final
class Loudness:
    """The loudness values of a programme; a missing value is None, never infinite or NaN.

    Immutable. Can be pickled and converted to bytes.
    """

    @property
    def seconds(self) -> float:
        """Duration of the programme."""
    @property
    def integrated(self) -> float | None:
        """Integrated loudness in LUFS; None if no block passes the gates or below 400 ms."""
    @property
    def relative_threshold(self) -> float | None:
        """Relative gate in LUFS; None without integrated loudness, and after a merge."""
    @property
    def loudness_range(self) -> float | None:
        """Loudness range in LU; None for silence and below 3 s."""
    @property
    def max_momentary(self) -> float | None:
        """Maximum momentary loudness (400 ms) in LUFS; None below 400 ms."""
    @property
    def max_short_term(self) -> float | None:
        """Maximum short-term loudness (3 s) in LUFS; None below 3 s."""
    @property
    def true_peak(self) -> float | None:
        """Maximum true peak of all channels in dBTP; None for silence."""
    @property
    def sample_peak(self) -> float | None:
        """Maximum sample peak of all channels in dBFS; None for silence."""
    @property
    def rejected(self) -> int:
        """Number of NaN and infinite samples, which count as silence."""
    def to_bytes(self) -> bytes:
        """The measurement as bytes, for `from_bytes`."""
    @staticmethod
    def from_bytes(data: bytes) -> Loudness:
        """Reads the output of `to_bytes`; raises ValueError for anything else."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[object, tuple[bytes]]: ...

@final
class Meter:
    """Measures audio block by block; the result does not depend on the block sizes.

    `rate`: sample rate, 16 to 2,822,400 Hz. `channels`: 1 to 64. `mode`: the values to measure, one
    name or several; the others cost nothing and are None. Default: all.

    `positions`: one position per channel: "L", "R", "C", "LFE", "Ls", "Rs", "unused", the azimuth in
    degrees to the left, or a pair of azimuth and elevation. Default: L R C LFE Ls Rs, as in WAVE.
    `dual_mono`: measures one channel as played by two loudspeakers (+3.01 LU).
    `lra_hop`: interval of the loudness range's values, 1.0 s (as libebur128) or 0.1 s (as FFmpeg).

    Can be pickled: what it has measured counts as an earlier programme then, as after `merge`.

    Raises ValueError for a value out of range, and RuntimeError when another thread uses the same
    meter at the same time.
    """

    def __new__(
        cls,
        rate: int,
        channels: int = 2,
        *,
        mode: _Mode | Iterable[_Mode] | None = None,
        positions: Sequence[_Position] | None = None,
        dual_mono: bool = False,
        lra_hop: float = 1.0,
    ) -> Self: ...
    def add(self, sound: Buffer) -> None:
        """Measures an array of int16, int32 (full scale of the type), float32 or float64 (1.0).

        The shape is (frames, channels), or (frames,) for one channel. An array that is contiguous in
        C or Fortran order is read in place, so `x.T` of an array of channels costs nothing; other
        arrays are copied. The GIL is released; the array must not be written to meanwhile.
        Raises TypeError for another type, and ValueError for another shape.
        """
    def reset(self) -> None:
        """Clears the measurement."""
    def loudness(self) -> Loudness:
        """A snapshot of the values so far, merged programmes included."""
    def merge(self, other: Meter | Loudness) -> None:
        """Counts the programme of `other` as measured before.

        Momentary and short-term loudness, `frames`, `rejected` and the peaks of single channels
        remain those of this meter's own audio. Raises ValueError for another mode.
        """
    def __reduce__(self) -> tuple[object, tuple[int, int, dict[str, Any], Loudness | None]]: ...
    @property
    def rate(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def frames(self) -> int:
        """Number of measured frames."""
    @property
    def rejected(self) -> int:
        """Number of NaN and infinite samples, which count as silence."""
    @property
    def momentary(self) -> float | None:
        """Momentary loudness (the last 400 ms) in LUFS; preceded by silence at the start."""
    @property
    def short_term(self) -> float | None:
        """Short-term loudness (the last 3 s) in LUFS; preceded by silence at the start."""
    @property
    def integrated(self) -> float | None:
        """Integrated loudness so far in LUFS; None if no block passes the gates."""
    @property
    def relative_threshold(self) -> float | None:
        """Relative gate in LUFS; None without integrated loudness."""
    @property
    def loudness_range(self) -> float | None:
        """Loudness range in LU; None for silence and below 3 s. Its mode includes `integrated`."""
    @property
    def max_momentary(self) -> float | None:
        """Maximum momentary loudness in LUFS, exact at every frame."""
    @property
    def max_short_term(self) -> float | None:
        """Maximum short-term loudness in LUFS, exact at every frame."""
    @property
    def true_peak(self) -> float | None:
        """Maximum true peak of all channels in dBTP; None for silence."""
    @property
    def sample_peak(self) -> float | None:
        """Maximum sample peak of all channels in dBFS; None for silence."""
    @property
    def true_peaks(self) -> list[float | None] | None:
        """True peak of each channel in dBTP; None for silence."""
    @property
    def sample_peaks(self) -> list[float | None] | None:
        """Sample peak of each channel in dBFS; None for silence."""

@final
class Normalizer:
    """Keeps audio at a loudness target, block by block, with a true-peak limiter.

    `mode`: the look-ahead: "full" (3 s), "mid" (400 ms), "low" (5 ms) or "gain-only" (none, and no
    limiter). `preset`: "r128", "a85", "stream-14", "stream-16", "podcast" or "replaygain"; `target`
    (LUFS), `ceiling` (dBTP) and `range` (LU) replace its values. `dual_mono`: one channel is played
    by two loudspeakers.

    Raises ValueError for a value out of range.
    """

    def __new__(
        cls,
        rate: int,
        channels: int = 2,
        *,
        mode: Literal["full", "mid", "low", "gain-only"] = "full",
        preset: str = "r128",
        target: float | None = None,
        ceiling: float | None = None,
        range: float | None = None,
        dual_mono: bool = False,
    ) -> Self: ...
    def process(self, sound: Buffer) -> memoryview[float]:
        """The next frames, as many as are given: float32 of shape (frames, channels).

        Takes arrays as `Meter.add` does. The output is `latency` frames behind the input and begins
        with so many frames of silence.
        """
    def drain(self) -> memoryview[float]:
        """The frames that are still in the look-ahead; of shape (0,) if there are none."""
    @property
    def rate(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def latency(self) -> int:
        """Exact delay in frames."""
    @property
    def gain(self) -> float:
        """The current gain in dB, without the limiter's reduction."""
    @property
    def input_integrated(self) -> float | None:
        """Integrated loudness of all input in LUFS."""
    @property
    def output_integrated(self) -> float | None:
        """Integrated loudness of all output in LUFS."""

def read(path: str) -> tuple[memoryview[float], int]:
    """`aulos.read` makes an `Audio` of it."""

def scan_columns(
    paths: Sequence[str],
    jobs: int | None,
    true_peak: bool,
    dual_mono: bool,
    lra_hop: float,
    keep: bool,
    progress: Callable[[int, int], object] | None,
) -> dict[str, list[Any]]:
    """`aulos.scan_paths` makes a `Scan` of it."""

def find_audio(paths: Sequence[str]) -> list[tuple[str, str | None]]:
    """The files that paths select, each with the reason if it is none."""

def has_audio_name(path: str) -> bool:
    """Whether the extension is one of those that a directory stands for."""

def measure_segment(
    path: str, index: int, count: int, true_peak: bool, dual_mono: bool, lra_hop: float
) -> tuple[int, int, Loudness | None] | None:
    """`aulos.archive.measure_part` describes it."""

def join_segments(
    path: str,
    segments: Sequence[tuple[int, int, Loudness | None]],
    true_peak: bool,
    dual_mono: bool,
    lra_hop: float,
    keep: bool,
) -> dict[str, list[Any]] | None:
    """`aulos.archive.join` makes a table of it."""

def _restore_meter(
    rate: int, channels: int, keywords: dict[str, Any], heard: Loudness | None
) -> Meter:
    """Makes a pickled meter again."""

def measure(
    sound: Buffer,
    rate: int,
    *,
    mode: _Mode | Iterable[_Mode] | None = None,
    positions: Sequence[_Position] | None = None,
    dual_mono: bool = False,
    lra_hop: float = 1.0,
) -> Loudness:
    """Measures a whole array of shape (frames,) or (frames, channels); parameters as in `Meter`."""

def merge(parts: Sequence[Loudness]) -> Loudness:
    """Combines the values of several programmes as if they followed each other, as in an album.

    Raises ValueError if `parts` is empty or the programmes were measured with different modes.
    """
