"""What the meter says, beside pyloudnorm, libebur128 and ffmpeg."""

import array
import ctypes
import math
import pickle
import re
import subprocess
import threading

import numpy as np
import pyloudnorm
import pytest

import aulos

RATE = 48_000


def programme(seconds=8.0, channels=2, rate=RATE, seed=1):
    """Noise that speaks and pauses."""
    random = np.random.default_rng(seed)
    frames = int(seconds * rate)
    levels = np.repeat(10 ** random.uniform(-2, -0.3, frames // 7_000 + 1), 7_000)[:frames]
    return random.uniform(-1, 1, (frames, channels)) * levels[:, None]


def tone(dbfs, seconds=5.0, rate=RATE, hz=1_000):
    frames = np.arange(int(seconds * rate))
    return 10 ** (dbfs / 20) * np.sin(2 * np.pi * hz * frames / rate)


def test_tech_3341_tones():
    for dbfs in (-23.0, -33.0):
        stereo = np.stack([tone(dbfs, 20.0)] * 2, axis=1)
        meter = aulos.Meter(RATE)
        meter.add(stereo)
        for value in (meter.momentary, meter.short_term, meter.integrated):
            assert value == pytest.approx(dbfs, abs=0.1)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("rate", [44_100, 48_000, 96_000])
def test_pyloudnorm_within_a_tenth(channels, rate):
    # A whole number of blocks: it counts an incomplete one at the end, which BS.1770 drops.
    sound = programme(10.0, channels, rate)
    theirs = pyloudnorm.Meter(rate).integrated_loudness(sound)
    assert aulos.measure(sound, rate).integrated == pytest.approx(theirs, abs=0.1)


def test_libebur128_to_a_billionth():
    library = ctypes.CDLL("libebur128.so.1")
    library.ebur128_init.restype = ctypes.c_void_p
    library.ebur128_init.argtypes = [ctypes.c_uint, ctypes.c_ulong, ctypes.c_int]
    state = ctypes.c_void_p(library.ebur128_init(2, RATE, 63))
    sound = programme(12.0)
    pointer = sound.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    assert library.ebur128_add_frames_double(state, pointer, ctypes.c_size_t(len(sound))) == 0

    def read(name):
        out = ctypes.c_double()
        assert getattr(library, f"ebur128_{name}")(state, ctypes.byref(out)) == 0
        return out.value

    meter = aulos.Meter(RATE)
    meter.add(sound)
    assert meter.integrated == pytest.approx(read("loudness_global"), abs=1e-9)
    assert meter.momentary == pytest.approx(read("loudness_momentary"), abs=1e-9)
    assert meter.short_term == pytest.approx(read("loudness_shortterm"), abs=1e-9)
    assert meter.loudness_range == pytest.approx(read("loudness_range"), abs=1e-9)
    assert meter.relative_threshold == pytest.approx(read("relative_threshold"), abs=1e-9)
    library.ebur128_destroy(ctypes.byref(state))


def test_ffmpeg():
    # Interpolators differ at the edge of the band, so nothing is there.
    smooth = [np.convolve(plane, np.hanning(9) / 4, "same") for plane in programme(20.0).T]
    sound = np.stack(smooth, axis=1).astype("float32")
    said = subprocess.run(
        "ffmpeg -hide_banner -nostats -f f32le -ar 48000 -ac 2 -i - "
        "-af ebur128=peak=true -f null -".split(),
        input=sound.tobytes(), capture_output=True, check=True,
    ).stderr.decode()
    summary = said[said.rindex("Summary:"):]
    theirs = {k: float(v) for k, v in re.findall(r"(I|LRA|Peak): +(-?[\d.]+)", summary)}
    ours = aulos.measure(sound, RATE, lra_hop=0.1)
    assert ours.integrated == pytest.approx(theirs["I"], abs=0.1)
    assert ours.loudness_range == pytest.approx(theirs["LRA"], abs=0.2)
    assert ours.true_peak == pytest.approx(theirs["Peak"], abs=0.2)


def test_every_type_layout_and_cut_reads_the_same():
    short = (programme(4.0) * 30_000).astype("int16")
    whole = aulos.measure(short, RATE)
    floats = short.astype("float64") / 32_768
    planes = np.ascontiguousarray(floats.T)
    spaced = np.zeros((len(floats), 5))
    spaced[:, ::3] = floats
    forms = [
        short.astype("int32") << 16, floats.astype("float32"), floats, planes.T,
        planes.T.astype("float32", order="F"), spaced[:, ::3], memoryview(floats),
        np.flip(np.flip(floats, 0).copy(), 0),
    ]
    for form in forms:
        other = aulos.measure(form, RATE)
        assert other.integrated == pytest.approx(whole.integrated, abs=1e-10)
        assert other.loudness_range == pytest.approx(whole.loudness_range, abs=1e-10)
        assert other.max_momentary == pytest.approx(whole.max_momentary, abs=1e-10)
        assert (other.true_peak, other.sample_peak) == (whole.true_peak, whole.sample_peak)
        meter = aulos.Meter(RATE)
        at = 0
        for size in (1, 7, 480, 9_999, 10**6):
            meter.add(np.asarray(form)[at:at + size])
            at += size
        assert meter.integrated == pytest.approx(whole.integrated, abs=1e-10)
    mono = array.array("f", floats[:, 0])
    assert aulos.measure(mono, RATE).integrated == pytest.approx(
        aulos.measure(floats[:, 0], RATE).integrated, abs=1e-6)


def test_what_has_no_value_is_none():
    silence = aulos.measure(np.zeros((5 * RATE, 2)), RATE)
    figures = "integrated loudness_range max_momentary max_short_term true_peak sample_peak " \
        "relative_threshold"
    assert all(getattr(silence, name) is None for name in figures.split())
    assert aulos.measure(np.zeros(0, "f4"), RATE).seconds == 0
    short = aulos.measure(tone(-20, 0.3), RATE)
    assert (short.integrated, short.max_momentary) == (None, None)
    assert short.sample_peak == pytest.approx(-20, abs=0.01)
    second = aulos.measure(tone(-20, 1.0), RATE)
    assert (second.loudness_range, second.max_short_term) == (None, None)
    assert second.integrated is not None
    steady = aulos.measure(tone(-20, 5.0), RATE, mode="loudness_range")
    assert steady.loudness_range == pytest.approx(0, abs=0.01)
    assert (steady.true_peak, steady.max_momentary) == (None, None)
    only = aulos.Meter(RATE, 2, mode="true_peak")
    only.add(np.full((100, 2), [0.5, 0.0]))
    assert (only.momentary, only.integrated, only.max_momentary) == (None, None, None)
    assert only.sample_peaks == [pytest.approx(-6.02, abs=0.01), None]


def test_what_is_no_number_is_silence_and_counted():
    sound = programme(4.0)
    clean = sound.copy()
    sound[1_000, 0], sound[2_000, 1] = math.nan, math.inf
    clean[1_000, 0] = clean[2_000, 1] = 0
    ours, theirs = aulos.measure(sound, RATE), aulos.measure(clean, RATE)
    assert (ours.rejected, theirs.rejected) == (2, 0)
    assert (ours.integrated, ours.true_peak) == (theirs.integrated, theirs.true_peak)


def test_positions_dual_mono_and_range_hop():
    mono = tone(-20)
    once = aulos.measure(mono, RATE).integrated
    assert aulos.measure(mono, RATE, dual_mono=True).integrated == pytest.approx(once + 3.0103)
    side = aulos.measure(mono[:, None], RATE, positions=["Ls"]).integrated
    assert side == pytest.approx(once + 10 * math.log10(1.41))
    assert aulos.measure(mono, RATE, positions=[90]).integrated == side
    assert aulos.measure(mono, RATE, positions=[(90, 45)]).integrated == once
    assert aulos.measure(mono, RATE, positions=["LFE"]).integrated is None
    sound = programme(20.0)
    fine = aulos.measure(sound, RATE, lra_hop=0.1).loudness_range
    assert fine == pytest.approx(aulos.measure(sound, RATE).loudness_range, abs=2)


def test_album_pickle_bytes_and_equality():
    tracks = [programme(6.0, seed=seed) for seed in (1, 2, 3)]
    parts = [aulos.measure(track, RATE) for track in tracks]
    album = aulos.merge(pickle.loads(pickle.dumps(parts)))
    assert album.seconds == 18
    # Blocks that lie on a cut are in the whole, and not in the album.
    whole = aulos.measure(np.concatenate(tracks), RATE)
    assert album.integrated == pytest.approx(whole.integrated, abs=0.2)
    assert album.true_peak == max(part.true_peak for part in parts)
    assert album.max_momentary == max(part.max_momentary for part in parts)
    assert aulos.merge(parts[::-1]).integrated == pytest.approx(album.integrated, abs=1e-10)
    assert parts[0] == aulos.Loudness.from_bytes(parts[0].to_bytes())
    assert parts[0] != parts[1]
    assert repr(parts[0]).startswith("Loudness(seconds=6.000, integrated=-")
    for data in (b"", b"\1", parts[0].to_bytes()[:-1], b"\0" * 500):
        with pytest.raises(ValueError, match="to_bytes"):
            aulos.Loudness.from_bytes(data)
    with pytest.raises(ValueError, match="nothing"):
        aulos.merge([])
    with pytest.raises(ValueError, match="same mode"):
        aulos.merge([parts[0], aulos.measure(tracks[0], RATE, mode="integrated")])


def test_reset_forgets():
    meter = aulos.Meter(RATE)
    meter.add(programme(4.0))
    meter.reset()
    assert (meter.integrated, meter.sample_peak, meter.frames) == (None, None, 0)
    meter.add(programme(4.0, seed=2))
    assert meter.loudness() == aulos.measure(programme(4.0, seed=2), RATE)


@pytest.mark.parametrize("error, words, call", [
    (TypeError, "not list; convert it with numpy", lambda m: m.add([0.1, 0.2])),
    (TypeError, "float32", lambda m: m.add(np.zeros((9, 2), "float16"))),
    (TypeError, "format", lambda m: m.add(b"bytes")),
    (TypeError, "native byte order", lambda m: m.add(np.zeros((9, 2), ">f4"))),
    (TypeError, "float32", lambda m: m.add(np.zeros((9, 2), "int64"))),
    (ValueError, r"must be \(frames, 2\)", lambda m: m.add(np.zeros((2, 900)))),
    (ValueError, r"must be \(frames, 2\)", lambda m: m.add(np.zeros(900))),
    (ValueError, r"shape \[2, 3, 4\]", lambda m: m.add(np.zeros((2, 3, 4)))),
    (TypeError, "not float32", lambda m: m.add(np.float32(1.0))),
    (ValueError, "1 to 64", lambda m: aulos.measure(np.zeros((2, 900)), RATE)),
    (ValueError, "0 channels", lambda m: aulos.Meter(RATE, 0)),
    (ValueError, "16 to 2822400 Hz", lambda m: aulos.Meter(15)),
    (OverflowError, None, lambda m: aulos.Meter(-1)),
    (ValueError, "one of momentary", lambda m: aulos.Meter(RATE, mode="loud")),
    (ValueError, "mode is empty", lambda m: aulos.Meter(RATE, mode=[])),
    (ValueError, "one of L", lambda m: aulos.Meter(RATE, 1, positions=["X"])),
    (ValueError, "1 positions for 2", lambda m: aulos.Meter(RATE, 2, positions=["L"])),
    (ValueError, "1 positions for 2", lambda m: aulos.Meter(RATE, 2, dual_mono=True)),
    (ValueError, "exclude", lambda m: aulos.Meter(RATE, 1, positions=["L"], dual_mono=True)),
    (ValueError, "1.0 or 0.1", lambda m: aulos.Meter(RATE, lra_hop=0.5)),
    (AttributeError, None, lambda m: setattr(m, "integrated", 1.0)),
])
def test_errors_name_the_remedy(error, words, call):
    meter = aulos.Meter(RATE)
    with pytest.raises(error, match=words):
        call(meter)
    meter.add(programme(1.0))
    assert meter.integrated is not None


def test_arrays_are_not_copied():
    sound = programme(20.0).astype("float32")
    for form in (sound, np.asfortranarray(sound)):
        open("/proc/self/clear_refs", "w").write("5")
        aulos.measure(form, RATE, mode="momentary")
        status = open("/proc/self/status").read()
        peak, now = (int(re.search(rf"{key}:\s+(\d+)", status)[1]) for key in ("VmHWM", "VmRSS"))
        # The sound is 7,500 kB, the meter's windows are some hundred.
        assert peak - now < 3_000, (peak, now)


def test_the_gil_is_released():
    sound = programme(60.0)
    meter = aulos.Meter(RATE)
    started, refused = threading.Event(), []

    def measure():
        started.set()
        meter.add(sound)

    # Whoever asks while the meter hears is refused, which can only be seen without the GIL.
    for _ in range(50):
        worker = threading.Thread(target=measure)
        started.clear()
        worker.start()
        started.wait()
        while worker.is_alive() and not refused:
            try:
                meter.frames
            except RuntimeError as error:
                refused.append(error)
        worker.join()
        if refused:
            break
    assert "borrow" in str(refused[0])
