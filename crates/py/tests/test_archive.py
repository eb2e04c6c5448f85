"""Archives as tables: what is found, measured in segments, written and resumed; object stores."""

import os
import shutil

import fsspec
import pyarrow
import pytest
from conftest import write_wave
from pyarrow import fs

import aulos
from aulos import archive

KEYS = ["integrated", "loudness_range", "max_momentary", "max_short_term", "true_peak"]


@pytest.fixture(scope="module")
def music(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    (folder / "sub").mkdir()
    for number in range(6):
        write_wave(folder / f"{number}.wav", 1 + number, seed=number)
    write_wave(folder / "sub" / "stereo.wav", 3, rate=48_000, channels=2)
    (folder / "sub" / "text.flac").write_text("no sound")
    (folder / "notes.txt").write_text("no sound")
    (folder / ".hidden.wav").write_text("no sound")
    return folder


def by_path(table):
    return {row["path"]: row for row in table.to_pylist()}


def test_the_rows_are_those_of_scan_paths(music):
    files = archive.find([music, music / "missing.wav"])
    rows = by_path(archive.measure(files))
    expected = {row["path"]: row for row in aulos.scan_paths([music, music / "missing.wav"]).rows()}
    assert rows.keys() == expected.keys() and len(rows) == 9
    for path, row in rows.items():
        size, mtime_ns = row.pop("size"), row.pop("mtime_ns")
        assert row.pop("loudness") is None
        assert row == expected[path]
        if os.path.exists(path):
            assert (size, mtime_ns) == (os.stat(path).st_size, os.stat(path).st_mtime_ns)
        else:
            assert (size, mtime_ns, row["error"]) == (None, None, "no such file")


def test_a_name_that_is_not_utf8_is_a_row(tmp_path):
    write_wave(tmp_path / "a.wav", 1)
    name = os.fsencode(tmp_path) + b"/\xff.wav"
    os.rename(tmp_path / "a.wav", name)
    archive.write(tmp_path / "table", archive.measure(archive.find([tmp_path])))
    (row,) = archive.read(tmp_path / "table").to_pylist()
    assert row["path"] == f"{tmp_path}/\\xff.wav" and row["error"] is None
    assert not archive.unmeasured(archive.find([tmp_path]), tmp_path / "table")


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100])
def test_segments_are_the_whole_to_the_last_bit(tmp_path, rate):
    (file,) = archive.find([write_wave(tmp_path / "long.wav", 1_100, rate=rate)])
    options = archive.Options(keep=True)
    whole = archive.measure([file], options)
    for count in (1, 2, 3, 5, 9):
        segments = [archive.measure_part(file, at, count, options) for at in range(count)]
        joined = archive.join(file, segments, options)
        assert joined.equals(whole), (count, joined.to_pylist(), whole.to_pylist())
    # Beside one meter that hears all without a seam.
    samples, _ = aulos.read(file.path)
    once = aulos.measure(samples, rate)
    for key in KEYS:
        assert whole[key][0].as_py() == pytest.approx(getattr(once, key), abs=1e-9), key


def test_what_cannot_be_split_has_no_segments(music, tmp_path):
    short, text = (archive.find([music / name])[0] for name in ("0.wav", "sub/text.flac"))
    assert archive.measure_part(short, 0, 2) is None and archive.measure_part(text, 0, 2) is None
    (damaged,) = archive.find([write_wave(tmp_path / "cut.wav", 600)])
    os.truncate(damaged.path, damaged.size - 1_000_000)
    assert archive.measure_part(damaged, 0, 2) is None
    with pytest.raises((OverflowError, ValueError)):
        archive.measure_part(short, 0, 0)
    (long,) = archive.find([write_wave(tmp_path / "long.wav", 600)])
    assert archive.measure_part(long, 2, 2) is None
    one = archive.measure_part(long, 0, 2)
    (other,) = archive.find([write_wave(tmp_path / "other.wav", 600, rate=16_000)])
    assert archive.join(long, [one, archive.measure_part(other, 1, 2)]) is None
    assert archive.join(long, []) is None


def test_a_table_is_resumed_by_path_size_time_and_options(music, tmp_path):
    table = tmp_path / "loudness"
    files = archive.find([music])
    assert archive.read(table).num_rows == 0
    todo = archive.unmeasured(files, table)
    assert [file.size for file in todo] == sorted((file.size for file in files), reverse=True)
    archive.write(table, archive.measure(todo[:3]))
    assert archive.unmeasured(files, table) == todo[3:]
    archive.write(table, archive.measure(todo[3:]))
    assert archive.unmeasured(files, table) == []
    assert archive.read(table).num_rows == len(files)
    failed = archive.unmeasured(files, table, retry_errors=True)
    assert [os.path.basename(file.path) for file in failed] == ["text.flac"]
    assert archive.unmeasured(files, table, archive.Options(true_peak=False)) == todo
    # Another size, then another time.
    changed = next(file for file in files if file.path.endswith("1.wav"))
    for new in (changed._replace(size=1), changed._replace(mtime_ns=1)):
        assert archive.unmeasured([new], table) == [new]
    archive.write(table, archive.measure([changed._replace(mtime_ns=1)]))
    assert by_path(archive.read(table))[changed.path]["mtime_ns"] == 1
    assert archive.read(table).num_rows == len(files)


def test_an_unfinished_part_is_ignored_and_a_damaged_one_is_named(music, tmp_path):
    table = tmp_path / "loudness"
    rows = archive.measure(archive.find([music / "0.wav"]))
    archive.write(table, rows)
    archive.write(table, rows.slice(0, 0))
    (part,) = os.listdir(table)
    (table / f".{part}").write_bytes(b"PAR1")
    assert archive.read(table).num_rows == 1
    (table / "part-9.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"part-9\.parquet: not a complete Parquet file"):
        archive.read(table)


def test_groups_are_of_similar_size():
    sizes = [200 << 20, 40 << 20, 30 << 20, *[1 << 10] * 100]
    files = [archive.File(str(at), size) for at, size in enumerate(sizes)]
    groups = archive.groups(files)
    assert [len(group) for group in groups] == [1, 2, 32, 32, 32, 4]
    assert [file for group in groups for file in group] == files
    assert archive.groups([]) == []


def test_albums_are_merged_from_a_table(music, tmp_path):
    archive.write(tmp_path, archive.measure(archive.find([music]), archive.Options(keep=True)))
    kept = [data for data in archive.read(tmp_path)["loudness"].to_pylist() if data]
    assert len(kept) == 7
    album = aulos.merge([aulos.Loudness.from_bytes(data) for data in kept])
    assert album.seconds == pytest.approx(24) and -40 < album.integrated < -10


def test_an_object_store_has_the_same_rows(music, s3_folder):
    address, bucket = s3_folder
    shutil.copytree(music, bucket, dirs_exist_ok=True)
    (bucket.parent / "tables").mkdir()
    query = f"scheme=http&endpoint_override={address}&region=us-east-1"
    missing = "s3://music/missing.wav"
    files = archive.find([f"s3://key:secret@music?{query}", f"s3://key:secret@music/missing.wav?{query}"])
    local = archive.find([music])
    names = [file.path.replace(str(music), "s3://music") for file in local]
    assert [file.path for file in files] == [*names, missing]
    rows, here = by_path(archive.measure(files)), by_path(archive.measure(local))
    assert rows.pop(missing)["error"] == "no such file" and len(rows) == len(here)
    for path, row in rows.items():
        same = here[path.replace("s3://music", str(music))]
        assert {**row, "path": 0, "mtime_ns": 0} == {**same, "path": 0, "mtime_ns": 0}
    # A table in the store, resumed.
    table = f"s3://key:secret@tables/loudness?{query}"
    archive.write(table, archive.measure(files))
    assert [file.path for file in archive.unmeasured(files, table)] == [missing]
    assert archive.read(table).num_rows == len(files)
    # The store as an object.
    again = archive.find(["music"], fs.FileSystem.from_uri(table)[0])
    assert [file.path for file in again] == [file.key for file in files[:-1]]
    # An object that is gone by the time it is read.
    (bucket / "0.wav").unlink()
    gone = archive.measure(files[:1]).to_pylist()[0]
    assert gone["error"].startswith("cannot be read: ") and gone["integrated"] is None


def test_a_filesystem_of_fsspec(music):
    memory = fsspec.filesystem("memory")
    memory.pipe("/music/0.wav", (music / "0.wav").read_bytes())
    (row,) = archive.measure(archive.find(["/music"], memory)).to_pylist()
    (same,) = archive.measure(archive.find([music / "0.wav"])).to_pylist()
    assert all(row[key] == same[key] for key in KEYS)


def test_wrong_parameters(tmp_path):
    with pytest.raises(TypeError, match="sequence"):
        archive.find("music")
    with pytest.raises(pyarrow.ArrowInvalid):
        archive.find(["nothing://music"])
    with pytest.raises(ValueError, match="lra_hop"):
        archive.measure([], archive.Options(lra_hop=0.5))
