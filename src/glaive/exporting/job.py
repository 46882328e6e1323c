"""An export: files that tasks write, each whole or not at all, and a mark when all are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import DatasetExistsError, ObjectNotFoundError, OptionError
from glaive.exporting.formats import FileFormat, format_named
from glaive.io.store import ObjectStore, Sink
from glaive.io.temporary import final_name
from glaive.io.uri import open_store

__all__ = ["ExportMode", "ExportTask", "export_files"]

ExportMode: TypeAlias = Literal["errorifexists", "ignore", "append", "overwrite"]

DONE: Final = "_SUCCESS"
"""Written last, as Spark does; holds what the export did."""

BATCH_BYTES: Final = 8 << 20

_EXPORTED: Final = re.compile(r"part-[^/]*|_SUCCESS|\.[^/]*\.crc")
"""Files that exports write, glaive's and Spark's."""

_COUNTS: Final = ("num_files", "num_rows", "bytes")


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Write the rows of some fragments to a file; can be pickled.

    It may run again, or twice at a time: the same rows then take the place of the file.

    Parameters
    ----------
    fragments
        Of which version.
    folder
        Where to write.
    name
        Of the file.
    file_format
        How.
    scan
        Options of the scan: columns, filter, what becomes of blobs.
    """

    fragments: FragmentRange
    folder: ObjectStore = field(repr=False)
    name: str
    file_format: FileFormat = field(repr=False)
    scan: Mapping[str, Any]

    def execute(self, dataset: OpenDataset) -> tuple[int, int]:
        """Write the file; returns its rows and bytes. Memory: some batches, a row group."""
        opened = self.fragments.opened(dataset)
        ids = self.fragments.ids(opened)
        scanner = Scanner.of(opened.views, fragments=ids, batch_size_bytes=BATCH_BYTES, **self.scan)
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in scanner.to_batches():
                rows += batch.num_rows
                yield batch

        sink = self.folder.create(self.name)
        try:
            target: Any = _Writable(sink)  # as much of a file as Arrow needs
            with pa.PythonFile(target, "w") as out:
                self.file_format.write(out, scanner.projected_schema, counted())
            return rows, sink.finish()
        except BaseException:
            sink.abort()
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
        ``overwrite`` removes those of other exports, once the new ones are there.
    columns, filter
        As for scans; default: all.
    options
        Of the format; see the classes in ``glaive.exporting.formats``.
    storage_options
        Of the store of the folder.
    job_id
        Names this export: run again with the same name, it goes on, removes what killed processes
        left of its files, or returns what it did.
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

    Notes
    -----
    One listing of the folder. Readers of the folder see files as they are finished; the file
    ``_SUCCESS`` is written when all are there.
    """
    if mode not in get_args(ExportMode):
        raise OptionError(
            f"mode: expected one of {', '.join(get_args(ExportMode))}, found {mode!r}"
        )
    file_format = format_named(format, options or {})
    scan = {"columns": columns, "filter": filter, "blob_handling": "all_binary"}
    file_format.check(Scanner.of(opened.views, **scan).projected_schema)
    folder = open_store(path, storage_options)
    job = f"{uuid4()}" if job_id is None else _checked(job_id)
    done = None if job_id is None else _done(folder, job)
    if done is not None:
        return done
    own = re.compile(rf"part-\d+-{re.escape(job)}\.\w+")
    begun = _EXPORTED if mode == "overwrite" else re.compile(rf"{own.pattern}|{DONE}")
    found = [meta.path for meta in folder.walk("") if not own.fullmatch(meta.path)]
    if found and mode == "ignore":
        return dict.fromkeys(_COUNTS, 0)
    if found and mode == "errorifexists":
        raise DatasetExistsError(
            f"{folder.uri} has files, such as {found[0]}. Pass mode='append' or 'overwrite', or "
            "choose another folder"
        )
    if mode == "overwrite":
        _refuse_others(folder, found)
    folder.delete([DONE])
    tasks = [
        ExportTask(part, folder, f"part-{number:05}-{job}{file_format.suffix}", file_format, scan)
        for number, part in enumerate(
            runner.parts(opened) or [FragmentRange(opened.manifest.version)]
        )
    ]
    names = {task.name for task in tasks}
    try:
        written = runner.run(opened, tasks)
    except BaseException:
        folder.delete(sorted(names))
        raise
    before = found if mode == "overwrite" else []
    stale = [meta.path for meta in folder.walk("") if own.fullmatch(meta.path)]
    stale = [name for name in stale if name not in names]
    folder.delete([*before, *stale, *_unfinished(folder, begun)])
    counts = dict(
        zip(
            _COUNTS,
            (len(written), sum(rows for rows, _ in written), sum(size for _, size in written)),
            strict=True,
        )
    )
    facts = {"job": job, "version": opened.manifest.version, **counts}
    folder.put(DONE, [json.dumps(facts).encode()])
    return counts


def _unfinished(folder: ObjectStore, wanted: re.Pattern[str]) -> Iterator[str]:
    """What killed processes left of such files, where a store shows it."""
    for meta in folder.unfinished(""):
        final = final_name(meta.path)
        if final is not None and wanted.fullmatch(final):
            yield meta.path


def _checked(job_id: str) -> str:
    given: object = job_id
    if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", given):
        raise OptionError(
            f"job_id: expected up to 128 letters, digits, '.', '_' or '-', found {given!r}"
        )
    return given


def _done(folder: ObjectStore, job: str) -> dict[str, int] | None:
    """What an earlier run of the job did, if it came to its end."""
    try:
        facts = json.loads(folder.get(DONE).to_pybytes())
    except (ObjectNotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or facts.get("job") != job:
        return None
    counts = {name: facts.get(name) for name in _COUNTS}
    if not all(isinstance(count, int) for count in counts.values()):
        return None
    return {name: int(count) for name, count in counts.items() if count is not None}


def _refuse_others(folder: ObjectStore, paths: Sequence[str]) -> None:
    """Refuse to remove files that no export wrote."""
    for path in paths:
        if not _EXPORTED.fullmatch(path):
            raise OptionError(
                f"mode 'overwrite': {folder.full(path)} is no file of an export. Remove it, or "
                "choose another folder"
            )
