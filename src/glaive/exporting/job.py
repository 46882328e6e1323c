"""An export: files that tasks write, each whole or not at all, and a mark when all are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import CommitConflictError, OptionError, SchemaError, StoreError
from glaive.exporting.folder import (
    ExportMode,
    ExportRun,
    begin,
    check_mode,
    clear,
    complete_mark,
    finish,
    read_mark,
)
from glaive.exporting.formats import FileFormat, format_named
from glaive.io.store import ObjectStore, Sink
from glaive.io.uri import open_store

__all__ = ["ExportMode", "ExportTask", "export_files"]

BATCH_BYTES: Final = 8 << 20

_COUNTS: Final = ("num_files", "num_rows", "bytes")


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Write the rows of some fragments to a file; can be pickled.

    It may run again, or twice at a time: the same rows then take the place of the file. It makes no
    file visible once another run has taken the place of its own, or its own has ended.

    Parameters
    ----------
    fragments
        Of which version.
    run
        For which run of the export.
    number
        Of the file.
    file_format
        How.
    scan
        Options of the scan: columns, filter, what becomes of blobs.
    """

    fragments: FragmentRange
    run: ExportRun = field(repr=False)
    number: int
    file_format: FileFormat = field(repr=False)
    scan: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.run.name(self.number, self.file_format.suffix)

    def execute(self, dataset: OpenDataset) -> tuple[int, int]:
        """Write the file; returns its rows and bytes. Memory: some batches, a row group.

        Raises
        ------
        CommitConflictError
            The run was ended; there is no file.
        SchemaError
            The format does not have a value; there is no file.
        """
        opened = self.fragments.opened(dataset)
        ids = self.fragments.ids(opened)
        scanner = Scanner.of(opened.views, fragments=ids, batch_size_bytes=BATCH_BYTES, **self.scan)
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in scanner.to_batches():
                rows += batch.num_rows
                yield batch

        sink = self.run.folder.create(self.name)
        try:
            target: Any = _Writable(sink)  # as much of a file as Arrow needs
            with pa.PythonFile(target, "w") as out:
                self._write(out, scanner.projected_schema, counted())
            self.run.check()
            return rows, self._finished(sink)
        except BaseException:
            sink.abort()
            raise

    def _write(self, out: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            self.file_format.write(out, schema, batches)
        except pa.ArrowException as error:
            raise SchemaError(
                f"export: a value does not fit {self.file_format.name}: {error}. Leave the column "
                "out, cast it, or export as arrow"
            ) from error

    def _finished(self, sink: Sink) -> int:
        try:
            return sink.finish()
        except StoreError:
            self.run.check()  # the run that took its place removes unfinished files, too
            raise


class _Writable:
    """A sink as Arrow writes to it; closing it does not make it visible."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.write([data])
        return len(data)

    def tell(self) -> int:
        return self._sink.position

    def flush(self) -> None:
        """Nothing to do: the sink decides when to write."""

    def close(self) -> None:
        """Nothing to do: the task finishes the sink."""


def export_files(  # noqa: PLR0913  # one keyword for each option
    opened: OpenedVersion,
    path: str,
    format: str,  # the public name
    mode: ExportMode = "errorifexists",
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | None = None,  # the name that scans have for it
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    job_id: str | None = None,
    runner: TaskRunner = LOCAL.runner,
) -> dict[str, int]:
    """Write rows of a version to files of a folder.

    Parameters
    ----------
    path
        The folder; local or a URI.
    format
        One of :data:`glaive.exporting.FORMATS`.
    mode
        If there are files: ``errorifexists``; ``ignore`` does nothing; ``append`` adds more;
        ``overwrite`` removes those of other exports, once the new ones are there, and takes the
        place of those that still run.
    columns, filter
        As for scans; default: all.
    options
        Of the format; see the classes in ``glaive.exporting.formats``.
    storage_options
        Of the store of the folder.
    job_id
        Names this export: run again with the same name, it takes the place of earlier runs and
        removes their files, or returns what the one did that came to its end.
    runner
        Runs the tasks.

    Returns
    -------
    dict
        ``num_files``, ``num_rows``, ``bytes``.

    Raises
    ------
    DatasetExistsError
        There are files, and ``mode`` is ``errorifexists``.
    OptionError
        The format, the mode or an option is wrong; or ``overwrite`` would remove files that no
        export wrote.
    SchemaError
        The format has no values for a column; names it. No task ran.
    CommitConflictError
        Another export to the folder took the place of this one; no file of this one is there.

    Notes
    -----
    Three listings of the folder, and one request for each task besides its file. Readers of the
    folder see files as they are finished. The file ``_SUCCESS`` is written last, and removed when
    another export begins: its ``files`` are those that belong together.
    """
    check_mode(mode)
    file_format = format_named(format, options or {})
    scan = {"columns": columns, "filter": filter, "blob_handling": "all_binary"}
    file_format.check(Scanner.of(opened.views, **scan).projected_schema)
    folder = open_store(path, storage_options)
    job = f"{uuid4()}" if job_id is None else _checked(job_id)
    done = None if job_id is None else _done(folder, job)
    if done is not None:
        return done
    run = ExportRun.new(folder, job)
    replaced = begin(run, mode)
    if replaced is None:
        return dict.fromkeys(_COUNTS, 0)
    parts = runner.parts(opened) or [FragmentRange(opened.manifest.version)]
    tasks = [ExportTask(part, run, at, file_format, scan) for at, part in enumerate(parts)]
    names = frozenset(task.name for task in tasks)
    try:
        written = runner.run(opened, tasks)
    except BaseException as error:
        run.withdraw(names)
        return _done_elsewhere(run, error, named=job_id is not None)
    rows, size = sum(rows for rows, _ in written), sum(size for _, size in written)
    counts = dict(zip(_COUNTS, (len(written), rows, size), strict=True))
    try:
        finish(run, names, replaced, {"version": opened.manifest.version, **counts})
    except CommitConflictError as error:
        return _done_elsewhere(run, error, named=job_id is not None)
    try:
        complete_mark(folder, names)
    except StoreError as error:
        if job_id is None:  # else the next run finds the mark
            error.add_note(
                f"All {len(names)} files of the export are in {folder.public_uri}, and stay: to "
                "append the rows again would have them there twice"
            )
        raise
    return counts


def _done_elsewhere(run: ExportRun, error: BaseException, *, named: bool) -> dict[str, int]:
    """What the run of a job did that took the place of another; else the error is raised."""
    conflict = named and isinstance(error, CommitConflictError)
    done = _done(run.folder, run.job) if conflict else None
    if done is None:
        raise error
    return done


def _checked(job_id: str) -> str:
    given: object = job_id
    if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", given):
        raise OptionError(
            f"job_id: expected up to 128 letters, digits, '.', '_' or '-', found {given!r}"
        )
    return given


def _done(folder: ObjectStore, job: str) -> dict[str, int] | None:
    """What an earlier run of the job did, if it came to its end."""
    facts = read_mark(folder)
    if facts.get("job") != job:
        return None
    counts = {name: facts.get(name) for name in _COUNTS}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        return None
    clear(folder, job)
    return {name: int(count) for name, count in counts.items() if count is not None}
