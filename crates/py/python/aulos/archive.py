"""The loudness of an archive as a table: what `aulos.ray` and recipes for other engines share.

A table is a directory of Parquet files. A row is one audio file, known by its path, size and
modification time; a file that could not be measured is a row with its reason in `error`. Nothing
that is written is ever changed, so any number of programs may add to a table at the same time.

    files = archive.unmeasured(archive.find(["music"]), "loudness")
    for group in archive.groups(files):
        archive.write("loudness", archive.measure(group))
    archive.read("loudness")

Paths are local, or URIs of an object store such as `s3://bucket/music` (`pyarrow.fs` lists what it
supports, and where it takes the credentials from). Needs pyarrow.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow
import pyarrow.parquet
from pyarrow import fs

from ._aulos import find_audio, has_audio_name, join_segments, measure_segment, scan_columns
from ._scan import Scan, StrPath

__all__ = [
    "File",
    "Options",
    "find",
    "groups",
    "join",
    "measure",
    "measure_part",
    "read",
    "unmeasured",
    "write",
]

Segment: TypeAlias = tuple[int, int, Any]

GROUP_FILES = 32
"""Files per group: enough to make the cost of a task small, few enough to lose little with it."""
GROUP_BYTES = 64 << 20
"""Bytes per group; a larger file is a group of its own."""
_COPY_BYTES = 4 << 20
_OPTIONS_KEY = b"aulos.options"


class File(NamedTuple):
    """An audio file to measure, or a path without one."""

    path: str
    """The local path as the system has it, or the URI."""
    size: int | None = None
    """In bytes; None if it cannot be read."""
    mtime_ns: int | None = None
    """The modification time in nanoseconds since 1970."""
    error: str | None = None
    """The reason why it cannot be measured, if that is known in advance."""
    filesystem: Any = None
    """The `pyarrow.fs.FileSystem` that has it; None for the local one."""
    key: str | None = None
    """Its path in `filesystem`."""


@dataclass(frozen=True)
class Options:
    """What to measure, as in `aulos.scan_paths`. Tables are resumed by rows of the same options."""

    true_peak: bool = True
    dual_mono: bool = False
    lra_hop: float = 1.0
    keep: bool = False
    """A column `loudness` with `Loudness.to_bytes()`, for albums: 88 bytes per second of audio."""


def find(paths: Iterable[StrPath], filesystem: Any = None) -> list[File]:
    """The audio files that `paths` select, as `aulos scan` finds them, with size and time.

    A directory stands for the audio files in it and below. `filesystem`: a filesystem of
    `pyarrow.fs` or fsspec to which the paths belong; by default they are local paths and URIs.
    """
    if isinstance(paths, str | os.PathLike):
        raise TypeError("paths must be a sequence of paths, not one path; write [path]")
    if filesystem is not None and not isinstance(filesystem, fs.FileSystem):
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    found: list[File] = []
    for path in [os.fspath(path) for path in paths]:
        if filesystem is not None:
            found += _find_remote(filesystem, path, "")
        elif "://" in path:
            store, key = fs.FileSystem.from_uri(path)
            found += _find_remote(store, key, path.split("://")[0] + "://")
        else:
            found += [_local(name, error) for name, error in find_audio([path])]
    return found


def _local(path: str, error: str | None) -> File:
    try:
        stat = os.stat(path)
    except OSError:
        # The measurement names the reason.
        return File(path, error=error)
    return File(path, stat.st_size, stat.st_mtime_ns, error)


def _find_remote(store: fs.FileSystem, root: str, scheme: str) -> Iterator[File]:
    def file(info: fs.FileInfo) -> File:
        return File(scheme + info.path, info.size, info.mtime_ns, None, store, info.path)

    info = store.get_file_info(root)
    if info.type == fs.FileType.File:
        yield file(info)
    elif info.type == fs.FileType.NotFound:
        yield File(scheme + root, error="no such file", filesystem=store, key=root)
    else:
        below = store.get_file_info(fs.FileSelector(root, recursive=True))
        audio = [
            info
            for info in below
            if info.type == fs.FileType.File
            and has_audio_name(info.path)
            and not any(part.startswith(".") for part in info.path[len(root) :].split("/"))
        ]
        yield from map(file, sorted(audio, key=lambda info: info.path))
        if not audio:
            yield File(scheme + root, error="no audio file in the folder", filesystem=store, key=root)


def unmeasured(
    files: Iterable[File],
    table: StrPath,
    options: Options = Options(),
    *,
    retry_errors: bool = False,
) -> list[File]:
    """The files without a row of the same path, size, time and options, the largest first.

    A large file that is begun last would keep one processor busy while all others wait. Rows with
    an error count too, unless `retry_errors`.
    """
    known = set()
    for part in _parts(table, options):
        columns = ["path", "size", "mtime_ns", "error"]
        for row in zip(*(part[name].to_pylist() for name in columns), strict=True):
            if row[3] is None or not retry_errors:
                known.add(row[:3])
    new = {_identity(file): file for file in files}
    rest = [file for identity, file in new.items() if None in identity or identity not in known]
    return sorted(rest, key=lambda file: -(file.size or 0))


def groups(files: Sequence[File]) -> list[list[File]]:
    """Splits files, the largest first, into tasks of similar size; a large file is alone."""
    made: list[list[File]] = []
    size = GROUP_BYTES
    for file in files:
        if size >= GROUP_BYTES or len(made[-1]) == GROUP_FILES:
            made.append([])
            size = 0
        made[-1].append(file)
        size += file.size or 0
    return made


def measure(files: Sequence[File], options: Options = Options(), jobs: int = 1) -> Any:
    """Measures files on `jobs` threads; a `pyarrow.Table` with one row for each.

    An object of a store is copied into the directory for temporary files first.
    """
    local = [file for file in files if file.filesystem is None and file.error is None]
    rows = scan_columns([file.path for file in local], jobs, *_arguments(options), None)
    tables = [_table(rows, local, options)]
    for file in files:
        if file.error is not None:
            tables.append(failed(file, file.error, options))
        elif file.filesystem is not None:
            tables.append(_measure_object(file, options, jobs))
    return pyarrow.concat_tables(tables)


def _measure_object(file: File, options: Options, jobs: int) -> Any:
    # The decoder may look at the extension.
    suffix = os.path.splitext(file.path)[1]
    with tempfile.NamedTemporaryFile(prefix="aulos-", suffix=suffix) as copy:
        try:
            with file.filesystem.open_input_stream(file.key) as stream:
                shutil.copyfileobj(stream, copy, _COPY_BYTES)
            copy.flush()
        except OSError as error:
            return failed(file, f"cannot be read: {error}", options)
        rows = scan_columns([copy.name], jobs, *_arguments(options), None)
    return _table({**rows, "path": [file.path]}, [file], options)


def measure_part(file: File, index: int, count: int, options: Options = Options()) -> Segment | None:
    """Measures segment `index`, from 0, of `count` of a local file, for `join`.

    None if it has to be measured as a whole: only WAVE and formats with exact seeking, such as FLAC,
    can be split, if they are undamaged and longer than six minutes. A segment is preceded by enough
    audio for the filters and windows, and begins where `aulos scan` splits the file too.
    """
    return measure_segment(file.path, index, count, *_arguments(options)[:3])


def join(file: File, segments: Sequence[Segment], options: Options = Options()) -> Any:
    """The row of a file whose segments were measured, in order: bit by bit that of `measure`.

    None if the file changed meanwhile and has to be measured again.
    """
    rows = join_segments(file.path, segments, *_arguments(options))
    return None if rows is None else _table(rows, [file], options)


def failed(file: File, error: str, options: Options = Options()) -> Any:
    """The row of a file that could not be measured."""
    rows: dict[str, list[Any]] = {name: [math.nan] for name in _COLUMNS}
    return _table({**rows, "path": [file.path], "error": [error], "loudness": [None]}, [file], options)


def write(table: StrPath, rows: Any, options: Options = Options()) -> None:
    """Adds rows to a table, all of them or, if the program is killed, none."""
    if rows.num_rows == 0:
        return
    store, root = _resolve(table)
    store.create_dir(root, recursive=True)
    name = f"part-{time.time_ns():020}-{uuid.uuid4().hex[:8]}.parquet"
    described = rows.replace_schema_metadata({_OPTIONS_KEY: json.dumps(asdict(options))})
    if not isinstance(store, fs.LocalFileSystem):
        # An object appears when it is complete.
        pyarrow.parquet.write_table(described, f"{root}/{name}", filesystem=store)
        return
    unfinished = os.path.join(root, f".{name}")
    pyarrow.parquet.write_table(described, unfinished)
    os.replace(unfinished, os.path.join(root, name))


def read(table: StrPath) -> Any:
    """The rows of a table as a `pyarrow.Table`: for each path the one that was written last."""
    parts = list(_parts(table, None))
    if not parts:
        return failed(File(""), "").slice(0, 0)
    rows = pyarrow.concat_tables(part.replace_schema_metadata(None) for part in parts)
    last = {path: at for at, path in enumerate(rows["path"].to_pylist())}
    return rows.take(sorted(last.values()))


def _parts(table: StrPath, options: Options | None) -> Iterator[Any]:
    """The Parquet files of a table, the oldest first; with `options`, those that have the same."""
    store, root = _resolve(table)
    found = store.get_file_info(fs.FileSelector(root, allow_not_found=True))
    names = [info.path for info in found if os.path.basename(info.path).startswith("part-")]
    wanted = options and json.dumps(asdict(options)).encode()
    for path in sorted(names, key=os.path.basename):
        try:
            part = pyarrow.parquet.ParquetFile(path, filesystem=store).read()
        except pyarrow.ArrowInvalid as error:
            advice = "delete it, and its files are measured again"
            raise ValueError(f"{path}: not a complete Parquet file ({error}); {advice}") from error
        if wanted is None or (part.schema.metadata or {}).get(_OPTIONS_KEY) == wanted:
            yield part


def _resolve(table: StrPath) -> tuple[fs.FileSystem, str]:
    path = os.fspath(table)
    if "://" in path:
        store, root = fs.FileSystem.from_uri(path)
        return store, root
    return fs.LocalFileSystem(), os.path.abspath(path)


def _table(rows: dict[str, list[Any]], files: Sequence[File], options: Options) -> Any:
    known = {file.path: file for file in files}
    found = [known.get(path, File(path)) for path in rows["path"]]
    kept = rows.get("loudness") or [None] * len(found)
    kept_bytes = [one and one.to_bytes() for one in kept]
    numbers = {name: values for name, values in rows.items() if name != "loudness"}
    table = Scan({**numbers, "path": [_text(file.path) for file in found]}).to_arrow()
    for name, values, kind in [
        ("size", [file.size for file in found], pyarrow.int64()),
        ("mtime_ns", [file.mtime_ns for file in found], pyarrow.int64()),
        ("loudness", kept_bytes, pyarrow.binary()),
    ]:
        table = table.append_column(name, pyarrow.array(values, type=kind))
    return table


def _identity(file: File) -> tuple[str, int | None, int | None]:
    return _text(file.path), file.size, file.mtime_ns


def _text(path: str) -> str:
    """The path in the table, where a byte that is not UTF-8 is written as `\\\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _arguments(options: Options) -> tuple[bool, bool, float, bool]:
    return options.true_peak, options.dual_mono, options.lra_hop, options.keep


_COLUMNS = tuple(scan_columns([], 1, *_arguments(Options()), None))
