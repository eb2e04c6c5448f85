"""`aulos.ray` on a cluster of two workers: the rows of `aulos scan`, workers and drivers that are
killed, and scans that continue."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import ray
from conftest import write_wave

import aulos.ray
from aulos import archive
from aulos.ray import ScanSummary

FILES = 2_000
SPLIT_BYTES = 2 << 20


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Workers cannot import this file.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    # The paths of Unix sockets are short.
    folder = tempfile.mkdtemp(prefix="aulos-ray-", dir="/tmp")
    context = ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
        log_to_driver=False,
    )
    yield context.address_info["address"]
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def music(tmp_path_factory):
    """2,000 files; some are damaged, no audio or too short, and two are measured in segments."""
    folder = tmp_path_factory.mktemp("music")
    for number in range(40):
        (folder / f"{number:02}").mkdir()
    for number in range(FILES - 6):
        name = folder / f"{number % 40:02}" / f"{number}.wav"
        write_wave(name, 0.5 + number % 17 / 8, level=0.01 + number % 13 / 30, seed=number)
    write_wave(folder / "long.wav", 1_000)
    flac = ["ffmpeg", "-nostdin", "-v", "error", "-i", str(folder / "long.wav")]
    subprocess.run([*flac, str(folder / "long.flac")], check=True)
    write_wave(folder / "short.wav", 0.2)
    write_wave(folder / "silent.wav", 1, level=0)
    os.truncate(write_wave(folder / "cut.wav", 500), SPLIT_BYTES + 1_000_000)
    (folder / "text.flac").write_text("no sound")
    return folder


@pytest.fixture(scope="module")
def expected(music, aulos_program):
    """The rows of `aulos scan`, by path."""
    command = [aulos_program, "scan", "--json", "--true-peak", str(music)]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    rows = {row["path"]: row for row in map(json.loads, lines)}
    assert len(rows) == len(lines) == FILES
    return rows


def rounded(value):
    """As `aulos scan` prints figures."""
    return math.copysign(math.floor(abs(value) * 1e6 + 0.5) / 1e6, value)


def assert_same(table, expected):
    rows = archive.read(table).to_pylist()
    assert len(rows) == len(expected)
    columns = {
        "sample_rate": "sample_rate",
        "channels": "channels",
        "seconds": "seconds",
        "integrated": "integrated_lufs",
        "loudness_range": "loudness_range_lu",
        "max_momentary": "max_momentary_lufs",
        "max_short_term": "max_short_term_lufs",
        "true_peak": "true_peak_dbtp",
        "sample_peak": "sample_peak_dbfs",
        "relative_threshold": "relative_threshold_lufs",
    }
    for row in rows:
        same = expected[row["path"]]
        assert row["error"] == same["error"], row
        for ours, theirs in columns.items():
            value = row[ours]
            assert (value is None) == (same[theirs] is None), (row, same)
            assert value is None or rounded(value) == same[theirs], (row, same)


def halting_measure(files, segment, options, threads):
    """`_measure` in a worker that halts at one file, until it is killed."""
    mark = next((f"{file.path}.pid" for file in files if file.path.endswith("/1000.wav")), None)
    if mark and not os.path.exists(mark):
        with open(f"{mark}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{mark}.new", mark)
        time.sleep(60)
    return archive.measure(files, options, threads) if segment is None else (
        archive.measure_part(files[0], *segment, options)
    )


def test_the_rows_are_those_of_the_program_though_a_worker_is_killed(
    cluster, music, expected, tmp_path, monkeypatch
):
    mark, told = music / "00" / "1000.wav.pid", []

    def kill():
        while not mark.exists():
            time.sleep(0.05)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    table = tmp_path / "loudness"
    monkeypatch.setattr(aulos.ray, "_measure", halting_measure)
    summary = aulos.ray.scan(
        [music],
        table,
        split_bytes=SPLIT_BYTES,
        progress=lambda done, of: told.append((done, of)),
    )
    monkeypatch.undo()
    killer.join()
    failed = sum(row["error"] is not None for row in expected.values())
    assert summary == ScanSummary(FILES, 0, FILES - failed, failed, retried=1)
    assert told == sorted(told) and told[-1] == (FILES, FILES)
    assert_same(table, expected)
    again = aulos.ray.scan([music], table, split_bytes=SPLIT_BYTES)
    assert again == ScanSummary(FILES, FILES, 0, 0, 0)
    retried = aulos.ray.scan([music], table, split_bytes=SPLIT_BYTES, retry_errors=True)
    assert retried == ScanSummary(FILES, FILES - failed, 0, failed, 0)


DRIVER = """
import os, signal, sys
import ray
import aulos.ray
ray.init(address=sys.argv[1], log_to_driver=False)
aulos.ray._PART_ROWS = 100
def progress(done, of):
    if done > of // 2:
        os.kill(os.getpid(), signal.SIGKILL)
aulos.ray.scan([sys.argv[2]], sys.argv[3], progress=progress)
"""


def test_a_killed_scan_continues_where_it_was(cluster, music, expected, tmp_path):
    table = tmp_path / "loudness"
    command = [sys.executable, "-c", DRIVER, cluster, str(music), str(table)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    before = archive.read(table).num_rows
    assert FILES // 3 < before < FILES
    summary = aulos.ray.scan([music], table)
    assert (summary.known, summary.measured + summary.failed) == (before, FILES - before)
    parts = [archive.pyarrow.parquet.read_table(table / name) for name in os.listdir(table)]
    assert sum(part.num_rows for part in parts) == FILES, "no file is measured twice"
    assert_same(table, expected)


def deadly_measure(files, segment, options, threads):
    """`_measure` in a worker that some files kill."""
    for file in files:
        name = os.path.basename(file.path)
        mark = f"{file.path}.died"
        if name.startswith("always") or (name.startswith("once") and not os.path.exists(mark)):
            if segment is None or segment[0] == 1:
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
    if segment is None:
        return archive.measure(files, options, threads)
    return archive.measure_part(files[0], *segment, options)


def test_a_file_that_kills_its_worker_costs_no_other(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(aulos.ray, "_measure", deadly_measure)
    music = tmp_path / "music"
    music.mkdir()
    for name in ["always", "once", *"abcdefgh"]:
        write_wave(music / f"{name}.wav", 1)
        if name in ("always", "once", "a"):
            write_wave(music / f"{name}-long.wav", 600)
    table = tmp_path / "loudness"
    summary = aulos.ray.scan([music], table, split_bytes=SPLIT_BYTES)
    rows = archive.read(table).to_pylist()
    failed = {os.path.basename(row["path"]): row["error"] for row in rows if row["error"]}
    assert failed.keys() == {"always.wav", "always-long.wav"}
    assert all("worker died 2 times" in error for error in failed.values())
    assert len(rows) == 13 and (summary.measured, summary.failed) == (11, 2)
    monkeypatch.undo()
    again = aulos.ray.scan([music], table, split_bytes=SPLIT_BYTES, retry_errors=True)
    assert (again.known, again.measured, again.failed) == (11, 2, 0)
    whole = {row["path"]: row for row in archive.measure(archive.find([music])).to_pylist()}
    assert {row["path"]: row for row in archive.read(table).to_pylist()} == whole


def test_an_exception_ends_the_scan_and_keeps_what_was_measured(cluster, music, tmp_path):
    def fail(done, of):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        aulos.ray.scan([music / "00", music / "01"], tmp_path, progress=fail)
    assert 0 < archive.read(tmp_path).num_rows < 100


def test_an_object_store_and_a_dataset(cluster, s3_folder, tmp_path):
    address, bucket = s3_folder
    for number in range(5):
        write_wave(bucket / f"ray-{number}.wav", 1 + number)
    query = f"scheme=http&endpoint_override={address}&region=us-east-1"
    uris = [f"s3://key:secret@music/ray-{number}.wav?{query}" for number in range(5)]

    class Dataset:
        def iter_rows(self):
            return ({"path": uri, "size": 1} for uri in uris)

    (bucket.parent / "ray-tables").mkdir()
    table = f"s3://key:secret@ray-tables/loudness?{query}"
    summary = aulos.ray.scan(Dataset(), table, task_options={"num_cpus": 2})
    assert summary == ScanSummary(5, 0, 5, 0, 0)
    assert aulos.ray.scan(uris, table) == ScanSummary(5, 5, 0, 0, 0)
    here = archive.measure(archive.find([bucket / f"ray-{number}.wav" for number in range(5)]))
    there = sorted(archive.read(table).to_pylist(), key=lambda row: row["path"])
    assert [row["integrated"] for row in there] == here["integrated"].to_pylist()
