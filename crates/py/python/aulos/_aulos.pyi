"""What the compiled half holds; `aulos` exports all of it."""

from collections.abc import Iterable, Sequence
from typing import Literal, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = ["Loudness", "Meter", "measure", "merge"]

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
_Place: TypeAlias = (
    Literal["L", "R", "C", "LFE", "Ls", "Rs", "unused"] | int | tuple[int, int]
)

@final
class Loudness:
    """The figures of a programme; None where there is no value, never an infinity or NaN.

    It can be pickled, and sent as bytes.
    """

    @property
    def seconds(self) -> float:
        """How long the programme was."""
    @property
    def integrated(self) -> float | None:
        """LUFS; None when nothing passes the gates, below 400 ms for one."""
    @property
    def relative_threshold(self) -> float | None:
        """LUFS; None where there is no integrated loudness, and after a merge."""
    @property
    def loudness_range(self) -> float | None:
        """LU; None for silence and below 3 s."""
    @property
    def max_momentary(self) -> float | None:
        """LUFS, the greatest of any 400 ms; None below 400 ms."""
    @property
    def max_short_term(self) -> float | None:
        """LUFS, the greatest of any 3 s; None below 3 s."""
    @property
    def true_peak(self) -> float | None:
        """dBTP, the greatest of all channels; None for silence."""
    @property
    def sample_peak(self) -> float | None:
        """dBFS, the greatest of all channels; None for silence."""
    @property
    def rejected(self) -> int:
        """Samples that were NaN or infinite, and were heard as silence."""
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(data: bytes) -> Loudness:
        """What `to_bytes` wrote; ValueError for anything else."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[object, tuple[bytes]]: ...

@final
class Meter:
    """Hears sound piece by piece; figures do not depend on how it was cut.

    `rate` is 16 to 2,822,400 Hz, `channels` 1 to 64. `mode` names what is measured, one name or
    several; what is not asked for costs nothing and reads None. Default: all.

    `positions` has one place for each channel: "L", "R", "C", "LFE", "Ls", "Rs", "unused", degrees
    to the left, or a pair of these and degrees up. Default: L R C LFE Ls Rs, as in WAVE files.
    `dual_mono`: the one channel is going to be heard from two loudspeakers (+3.01 LU).
    `lra_hop`: a value of the loudness range each 1.0 s (as libebur128) or 0.1 s (as FFmpeg).

    One thread at a time: using it from another while it hears raises RuntimeError.
    """

    def __new__(
        cls,
        rate: int,
        channels: int = 2,
        *,
        mode: _Mode | Iterable[_Mode] | None = None,
        positions: Sequence[_Place] | None = None,
        dual_mono: bool = False,
        lra_hop: float = 1.0,
    ) -> Self: ...
    def add(self, sound: Buffer) -> None:
        """Hears an array of int16, int32 (full scale is the type's), float32 or float64 (1.0).

        Its shape is (frames, channels), or (frames,) for one channel. It is read in place when it
        is contiguous in C or in Fortran order, so `x.T` of an array of channels costs nothing;
        otherwise a copy is made. The GIL is released; nobody must write to it meanwhile.
        TypeError: no such array. ValueError: another shape.
        """
    def reset(self) -> None:
        """Forgets everything that it heard."""
    def loudness(self) -> Loudness:
        """The figures so far, to be kept."""
    @property
    def rate(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def frames(self) -> int:
        """Frames heard."""
    @property
    def rejected(self) -> int:
        """Samples that were NaN or infinite, and were heard as silence."""
    @property
    def momentary(self) -> float | None:
        """LUFS of the last 400 ms; before they are over, silence is assumed before them."""
    @property
    def short_term(self) -> float | None:
        """LUFS of the last 3 s; before they are over, silence is assumed before them."""
    @property
    def integrated(self) -> float | None:
        """LUFS of all so far; None when nothing passes the gates."""
    @property
    def relative_threshold(self) -> float | None:
        """LUFS; None where there is no integrated loudness."""
    @property
    def loudness_range(self) -> float | None:
        """LU; None for silence and below 3 s. It includes `integrated`."""
    @property
    def max_momentary(self) -> float | None:
        """LUFS, the greatest of any 400 ms, exact at every frame."""
    @property
    def max_short_term(self) -> float | None:
        """LUFS, the greatest of any 3 s, exact at every frame."""
    @property
    def true_peak(self) -> float | None:
        """dBTP, the greatest of all channels; None for silence."""
    @property
    def sample_peak(self) -> float | None:
        """dBFS, the greatest of all channels; None for silence."""
    @property
    def true_peaks(self) -> list[float | None] | None:
        """dBTP of each channel."""
    @property
    def sample_peaks(self) -> list[float | None] | None:
        """dBFS of each channel."""

def measure(
    sound: Buffer,
    rate: int,
    *,
    mode: _Mode | Iterable[_Mode] | None = None,
    positions: Sequence[_Place] | None = None,
    dual_mono: bool = False,
    lra_hop: float = 1.0,
) -> Loudness:
    """Measures a whole array of shape (frames,) or (frames, channels); see `Meter`."""

def merge(parts: Sequence[Loudness]) -> Loudness:
    """The figures of several programmes, in any order, as if one had followed the other: an album.

    All must have been measured in the same mode.
    """
