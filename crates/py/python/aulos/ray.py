"""Measures an archive on the machines of a Ray cluster.

    import aulos.ray
    aulos.ray.scan(["/archive"], "loudness")

Tasks and not a dataset, because a worker that dies must cost one file: a task is a group of small
files, a file, or a segment of a long one. `aulos.archive` has the rest. Needs ray and pyarrow on
all machines (`pip install aulos[ray]`), and local paths must be the same files on all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow
import ray
from ray import exceptions

from . import archive
from ._scan import StrPath
from .archive import File, Options, Segment

__all__ = ["ScanSummary", "scan"]

SPLIT_BYTES = 256 << 20
"""Size from which a file is measured in segments: tens of seconds of work."""
_PART_ROWS = 10_000
_PART_SECONDS = 60.0
"""What a killed scan loses at most."""
_ATTEMPTS = 2
_PENDING_PER_CPU = 4
_WORKER_DIED = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
    exceptions.ObjectLostError,
)


class ScanSummary(NamedTuple):
    """What a scan did."""

    files: int
    """Files that were found."""
    known: int
    """Files whose rows were in the table before."""
    measured: int
    """Files that were measured without an error."""
    failed: int
    """Files with an error."""
    retried: int
    """Tasks that were repeated because their worker died."""


class _Task(NamedTuple):
    files: list[File]
    segment: tuple[int, int] | None = None
    attempt: int = 1


def scan(
    paths: Any,
    table: StrPath,
    *,
    filesystem: Any = None,
    true_peak: bool = True,
    dual_mono: bool = False,
    lra_hop: float = 1.0,
    keep: bool = False,
    retry_errors: bool = False,
    split_bytes: int = SPLIT_BYTES,
    task_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> ScanSummary:
    """Measures the audio files that `paths` select and adds their rows to `table`.

    `paths`: files, directories and URIs such as `s3://bucket/music`; or a dataset of Ray, or any
    other object with `iter_rows`, with a column `path`. `filesystem`: as in `aulos.archive.find`.
    `table`: a directory, or the URI of one; `aulos.archive.read` reads it.
    `retry_errors`: measures files again whose row has an error.
    `split_bytes`: a local file from this size on is measured in segments by several tasks, if its
    format permits; the row is the same.
    `task_options`: options of Ray's tasks, such as `{"num_cpus": 2}`; files then have two threads.
    `progress`: called with the number of finished files and of all that are measured.
    Other parameters as in `aulos.scan_paths`.

    Files with the same path, size, modification time and parameters as a row of the table are left
    out, so a scan that was ended continues. The largest files are measured first. A file whose
    worker dies is measured again, alone, and becomes a row with an error when its worker dies then.

    Raises what Ray raises when the cluster cannot run the tasks.
    """
    if not ray.is_initialized():
        # The cluster of RAY_ADDRESS or of this machine, else a new one.
        ray.init()
    options = Options(true_peak, dual_mono, lra_hop, keep)
    if hasattr(paths, "iter_rows"):
        paths = [row["path"] for row in paths.iter_rows()]
    found = {file.path: file for file in archive.find(paths, filesystem)}
    files = archive.unmeasured(found.values(), table, options, retry_errors=retry_errors)
    run = _Run(table, options, dict(task_options or {}), progress, len(files))
    run.measure(files, split_bytes)
    known = len(found) - len(files)
    return ScanSummary(len(found), known, run.done - run.failed, run.failed, run.retried)


class _Run:
    def __init__(
        self,
        table: StrPath,
        options: Options,
        task_options: dict[str, Any],
        progress: Callable[[int, int], object] | None,
        files: int,
    ) -> None:
        self._table, self._options, self._progress, self._files = table, options, progress, files
        threads = max(1, int(task_options.get("num_cpus", 1)))
        # Ray would repeat a whole group, and a group with one bad file for ever.
        remote = ray.remote(max_retries=0)(_measure)
        self._remote = remote.options(**{"num_cpus": 1, **task_options})
        self._threads = threads
        self._queue: deque[_Task] = deque()
        self._pending: dict[Any, _Task] = {}
        self._segments: dict[str, dict[int, Segment]] = {}
        self._rows: list[Any] = []
        self._written = time.monotonic()
        self.done = self.failed = self.retried = 0

    def measure(self, files: list[File], split_bytes: int) -> None:
        short = []
        for file in files:
            size = file.size or 0
            if file.filesystem is not None or size < split_bytes:
                short.append(file)
                continue
            self._segments[file.path] = {}
            count = -(-size // split_bytes)
            self._queue.extend(_Task([file], (index, count)) for index in range(count))
        self._queue.extend(_Task(group) for group in archive.groups(short))
        try:
            while self._queue or self._pending:
                self._submit()
                if not self._pending:
                    break
                ready, _ = ray.wait(list(self._pending), timeout=_PART_SECONDS)
                for reference in ready:
                    self._finish(reference, self._pending.pop(reference))
                if sum(rows.num_rows for rows in self._rows) >= _PART_ROWS or (
                    time.monotonic() - self._written > _PART_SECONDS
                ):
                    self._write()
        finally:
            for reference in self._pending:
                ray.cancel(reference, force=True)
            # Also what was measured before an error or Ctrl-C.
            self._write()

    def _submit(self) -> None:
        # More than the processors, so that none waits and a cluster that grows sees the need.
        limit = _PENDING_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while self._queue and len(self._pending) < limit:
            task = self._queue.popleft()
            if task.segment is not None and task.files[0].path not in self._segments:
                # Another segment of it has failed.
                continue
            call = self._remote.remote(task.files, task.segment, self._options, self._threads)
            self._pending[call] = task

    def _finish(self, reference: Any, task: _Task) -> None:
        try:
            result = ray.get(reference)
        except exceptions.RayTaskError:
            raise
        except _WORKER_DIED:
            self._repeat(task)
            return
        if task.segment is None:
            self._add(result)
        else:
            self._add_segment(task.files[0], task.segment, result)

    def _repeat(self, task: _Task) -> None:
        if len(task.files) > 1:
            # Which file it was is unknown, so none of them has failed yet.
            self._queue.extendleft(_Task([file]) for file in task.files)
        elif task.attempt < _ATTEMPTS:
            self._queue.appendleft(task._replace(attempt=task.attempt + 1))
        else:
            file = task.files[0]
            if task.segment is not None and self._segments.pop(file.path, None) is None:
                return
            died = f"its worker died {_ATTEMPTS} times (a crash, or not enough memory)"
            self._add(archive.failed(file, died, self._options))
            return
        self.retried += 1

    def _add_segment(self, file: File, segment: tuple[int, int], result: Segment | None) -> None:
        measured = self._segments.get(file.path)
        if measured is None:
            return
        row = None
        if result is not None:
            measured[segment[0]] = result
            if len(measured) < segment[1]:
                return
            row = archive.join(file, [measured[at] for at in range(segment[1])], self._options)
        del self._segments[file.path]
        if row is None:
            # Large, so before all others.
            self._queue.appendleft(_Task([file]))
        else:
            self._add(row)

    def _add(self, rows: Any) -> None:
        self._rows.append(rows)
        self.done += rows.num_rows
        self.failed += rows.num_rows - rows["error"].null_count
        if self._progress is not None:
            self._progress(self.done, self._files)

    def _write(self) -> None:
        if self._rows:
            archive.write(self._table, pyarrow.concat_tables(self._rows), self._options)
        self._rows = []
        self._written = time.monotonic()


def _measure(
    files: list[File], segment: tuple[int, int] | None, options: Options, threads: int
) -> Any:
    if segment is None:
        return archive.measure(files, options, threads)
    return archive.measure_part(files[0], *segment, options)
