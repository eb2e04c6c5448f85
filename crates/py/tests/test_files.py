"""Files, tables, the normalizer and the pickled meter, beside ffmpeg and NumPy."""

import json
import math
import os
import pickle
import signal
import subprocess
import threading
import wave

import numpy as np
import pytest

import aulos

RATE = 48_000


def noise(seconds, seed=1, level=0.1):
    return np.random.default_rng(seed).normal(0, level, (int(seconds * RATE), 2)).clip(-1, 1)


def write_wave(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return path


def ffmpeg_integrated(path):
    command = ["ffmpeg", "-nostdin", "-i", str(path), "-af", "ebur128", "-f", "null", "-"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return float(report.rsplit("I:", 1)[1].split()[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("music")
    for number in range(4):
        write_wave(folder / f"{number}.wav", noise(4, number, 0.03 * (number + 1)))
    flac = ["ffmpeg", "-nostdin", "-v", "error", "-i", str(folder / "3.wav"), str(folder / "4.flac")]
    subprocess.run(flac, check=True)
    write_wave(folder / "5-short.wav", noise(0.1))
    (folder / "6-text.flac").write_text("no sound")
    (folder / "7-half.flac").write_bytes((folder / "4.flac").read_bytes()[:200_000])
    return folder


def test_a_folder_is_a_table_in_order_with_reasons(folder):
    scan = aulos.scan_paths([folder, folder / "missing.wav"], keep=True)
    assert [os.path.basename(path) for path in scan["path"]] == [
        *(f"{number}.wav" for number in range(4)),
        "4.flac",
        "5-short.wav",
        "6-text.flac",
        "7-half.flac",
        "missing.wav",
    ]
    assert scan["error"][:5] == [None] * 5
    assert "400 ms" in scan["error"][5] and "not an audio file" in scan["error"][6]
    assert "damaged or truncated" in scan["error"][7] and scan["error"][8] == "no such file"
    for at in range(5):
        expected = ffmpeg_integrated(scan["path"][at])
        assert scan["integrated"][at] == pytest.approx(expected, abs=0.06)
    assert all(math.isnan(value) for value in scan["integrated"][5:7])
    # Half of the file is measured too.
    assert 0 < scan["seconds"][7] < 4 and scan["integrated"][7] < 0
    assert scan["loudness"][6] is None
    album = aulos.merge(scan["loudness"][:4])
    whole = np.concatenate([aulos.read(path).samples for path in scan["path"][:4]])
    assert album.integrated == pytest.approx(aulos.measure(whole, RATE).integrated, abs=0.05)


def test_every_number_of_jobs_gives_the_same(folder):
    columns = [name for name in aulos.scan_paths([folder]) if name not in ("path", "error")]
    one, four = (aulos.scan_paths([folder], jobs=jobs).to_numpy() for jobs in (1, 4))
    for name in columns:
        np.testing.assert_array_equal(one[name], four[name])


def test_rows_and_numpy_agree(folder):
    scan = aulos.scan_paths([folder], true_peak=False)
    rows, arrays = list(scan.rows()), scan.to_numpy()
    assert len(rows) == len(arrays["path"]) == 8
    assert all(row["true_peak"] is None for row in rows)
    assert rows[6]["integrated"] is None and rows[0]["sample_rate"] == RATE
    assert np.shares_memory(arrays["integrated"], np.asarray(scan["integrated"]))
    table = scan.to_arrow()
    assert table.num_rows == 8 and table["integrated"].null_count == 2
    assert table["integrated"].to_pylist() == [row["integrated"] for row in rows]
    assert table["error"].to_pylist() == scan["error"]
    assert repr(scan) == "Scan(8 files, 3 with errors)"
    assert pickle.loads(pickle.dumps(scan))["path"] == scan["path"]


def test_progress_and_its_exception(folder):
    told = []
    aulos.scan_paths([folder], progress=lambda done, of: told.append((done, of)))
    assert told == [(done, 8) for done in range(1, 9)]

    def fail(done, of):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        aulos.scan_paths([folder], progress=fail)


def test_an_interrupt_ends_a_scan(folder):
    many = [folder] * 2_000
    # A shell in the background ignores the signal for its programs.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        aulos.scan_paths(many, jobs=2)
    timer.join()
    signal.signal(signal.SIGINT, before)


def test_wrong_parameters():
    with pytest.raises(ValueError, match="jobs"):
        aulos.scan_paths([], jobs=0)
    with pytest.raises(ValueError, match="lra_hop"):
        aulos.scan_paths([], lra_hop=0.5)
    with pytest.raises(TypeError, match="sequence"):
        aulos.scan_paths("music")
    assert list(aulos.scan_paths([]).rows()) == []


def test_read_is_the_file(folder):
    samples, rate = aulos.read(folder / "0.wav")
    expected = (noise(4, 0, 0.03) * 32_767).astype("<i2").astype("float32") / 32_768
    np.testing.assert_array_equal(np.asarray(samples), expected)
    assert rate == RATE and np.asarray(samples).dtype == np.float32


def test_read_says_why_not(folder):
    with pytest.raises(FileNotFoundError, match="missing.wav: no such file"):
        aulos.read(folder / "missing.wav")
    with pytest.raises(ValueError, match="6-text.flac: not an audio file"):
        aulos.read(folder / "6-text.flac")
    with pytest.raises(OSError, match="not a regular file"):
        aulos.read(folder)
    empty = folder.parent / "empty.wav"
    write_wave(empty, np.zeros((0, 2)))
    try:
        assert np.asarray(aulos.read(empty).samples).size == 0
    except ValueError as error:
        assert "empty.wav" in str(error)


@pytest.mark.parametrize("mode", ["full", "mid", "low"])
@pytest.mark.parametrize("kind", ["float32", "float64", "int16", "fortran"])
def test_the_normalizer_reaches_the_target(mode, kind):
    sound = noise(20, 5, 0.02)
    if kind == "int16":
        sound = (sound * 32_767).astype("int16")
    elif kind == "fortran":
        sound = np.asfortranarray(sound)
    else:
        sound = sound.astype(kind)
    normalizer = aulos.Normalizer(RATE, 2, mode=mode, target=-20.0)
    out = [np.asarray(normalizer.process(sound[at : at + 4_321])) for at in range(0, len(sound), 4_321)]
    assert sum(map(len, out)) == len(sound)
    rest = np.asarray(normalizer.drain())
    steady = np.concatenate([*out, rest.reshape(-1, 2)])[normalizer.latency :]
    assert len(steady) == len(sound)
    end = aulos.measure(steady[-5 * RATE :], RATE)
    assert end.integrated == pytest.approx(-20.0, abs=0.5) and end.true_peak < -0.9
    assert normalizer.gain > 0 and normalizer.input_integrated == pytest.approx(-27.8, abs=0.5)
    assert np.asarray(normalizer.drain()).size == 0


def test_the_normalizer_refuses():
    with pytest.raises(ValueError, match="target: 3 LUFS is not between"):
        aulos.Normalizer(RATE, target=3)
    with pytest.raises(ValueError, match="mode"):
        aulos.Normalizer(RATE, mode="loud")
    with pytest.raises(ValueError, match="unknown preset"):
        aulos.Normalizer(RATE, preset="loud")
    with pytest.raises(ValueError, match="1 channels, but the normalizer has 2"):
        aulos.Normalizer(RATE).process(np.zeros(10, "float32"))


def test_a_meter_is_pickled_and_merged():
    first, second = noise(6, 1), noise(6, 2, 0.3)
    keywords = {"mode": ["integrated", "loudness_range", "maxima", "true_peak"], "lra_hop": 0.1}
    meter = aulos.Meter(RATE, 2, positions=["L", 60], **keywords)
    meter.add(first)
    again = pickle.loads(pickle.dumps(meter))
    for name in ("integrated", "loudness_range", "max_momentary", "true_peak"):
        assert getattr(again, name) == pytest.approx(getattr(meter, name), abs=1e-9)
    again.add(second)
    other = aulos.Meter(RATE, 2, positions=["L", 60], **keywords)
    other.add(second)
    meter.merge(other)
    assert again.integrated == pytest.approx(meter.integrated, abs=1e-9)
    assert meter.loudness().seconds == pytest.approx(12)
    whole = aulos.measure(np.concatenate([first, second]), RATE, positions=["L", 60], **keywords)
    assert meter.integrated == pytest.approx(whole.integrated, abs=0.05)
    assert meter.max_momentary == pytest.approx(whole.max_momentary, abs=1e-9)
    meter.reset()
    assert meter.integrated is None
    with pytest.raises(ValueError, match="same mode"):
        meter.merge(aulos.measure(first, RATE, mode="integrated"))
    fresh = pickle.loads(pickle.dumps(aulos.Meter(RATE, 1, dual_mono=True)))
    fresh.add(first[:, 0])
    alone = aulos.measure(first[:, 0], RATE, dual_mono=True)
    assert fresh.loudness() == alone


def test_the_true_peak_between_the_samples():
    # A sine at a quarter of the rate, sampled 45 degrees off its peaks: 3.01 dB above the samples.
    fade = np.minimum(1, np.arange(RATE) / 1_000)
    sound = (np.sin(np.arange(RATE) * np.pi / 2 + np.pi / 4) / 2 * fade * fade[::-1]).astype("float32")
    meter = aulos.TruePeak(RATE, 1)
    assert meter.peak is None
    assert meter.add(sound).peak == pytest.approx(-6.02, abs=0.1)
    again = pickle.loads(pickle.dumps(meter))
    assert again.peak == meter.peak and len(meter.peaks) == 1
    assert json.dumps(again.peak)
