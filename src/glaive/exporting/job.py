"""An export: files that tasks write, each whole or not at all, and a mark when all are there."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from glaive.exporting.formats import FileFormat, format_named
from glaive.io.local_sink import final_name
from glaive.io.store import ObjectStore, Sink
from glaive.io.uri import open_store
from glaive.process import random_bytes

# --- The folder: which run may write to it, and what becomes of the files of others -------
# Names of files have the job and the run, so that no run replaces what another one wrote. A run
# that goes on has a claim, the file ``_started-…``. A run that takes its place removes the claim.
# Tasks look for it before they make a file visible, and the driver before it removes files of
# others. Files of others are removed when all of the run are there. The mark ``_SUCCESS`` comes
# last, and names the files that belong together.

DONE: Final = "_SUCCESS"
"""The mark, named as Spark's."""

_JOB: Final = r"[A-Za-z0-9._-]+"
"""Never a path: what lies in a folder below is of somebody else."""

_ROWS: Final = r"part-(?:[mr]-)?[0-9]{5,}(?:[-_.][-A-Za-z0-9_.]*)?"
_EXPORTED: Final = re.compile(
    rf"{_ROWS}|_SUCCESS|_started-{_JOB}-[0-9a-f]{{16}}|\.(?:{_ROWS}|_SUCCESS)\.crc"
)
_CLAIM: Final = re.compile(rf"_started-({_JOB})-([0-9a-f]{{16}})")
_PART: Final = re.compile(rf"part-\d+-({_JOB})-([0-9a-f]{{16}})\.\w+")
"""A file with rows: the job and the run that wrote it."""

ExportMode: TypeAlias = Literal["errorifexists", "ignore", "append", "overwrite"]


@dataclass(frozen=True, slots=True)
class ExportRun:
    """One run of an export; can be pickled.

    Parameters
    ----------
    folder
        Where it writes.
    job, id
        The job, and a random name of this run of it.
    """

    folder: ObjectStore
    job: str
    id: str

    @property
    def claim(self) -> str:
        """The file that says that the run goes on."""
        return f"_started-{self.job}-{self.id}"

    def name(self, number: int, suffix: str) -> str:
        """Return the name of a file with rows."""
        return f"part-{number:05}-{self.job}-{self.id}{suffix}"

    def check(self) -> None:
        """Check that the run has its claim. One request.

        Raises
        ------
        CommitConflictError
            Another run took its place, or it has ended.
        """
        try:
            self.folder.head(self.claim)
        except ObjectNotFoundError:
            raise CommitConflictError(
                f"another export to {self.folder.uri} began while this one ran ({self.job}), and "
                "took its place: no file of this one stays there. Run it again when the other one "
                "has ended, if its rows are to be there instead",
                retryable=False,
            ) from None

    def withdraw(self, names: Iterable[str]) -> None:
        """End the run, and remove its files; failures of the store are ignored."""
        with suppress(StoreError):
            self.folder.delete([self.claim, *sorted(names)])


def check_mode(mode: object) -> None:
    """Refuse what is no mode; Spark would take others for some, in any case of letters.

    Raises
    ------
    OptionError
        It is none.
    """
    known = get_args(ExportMode)
    if mode not in known:
        raise OptionError(f"mode: expected one of {', '.join(known)}, found {mode!r}")


def _job_of(path: str) -> str | None:
    """Return the job that wrote a file; ``None`` if glaive's exports did not."""
    match = _PART.fullmatch(path) or _CLAIM.fullmatch(path)
    return None if match is None else match[1]


def _begin(run: ExportRun, mode: ExportMode) -> list[str] | None:
    """Claim the folder and return the files to be replaced; ``None`` if there is nothing to do.

    Raises
    ------
    DatasetExistsError
        There are files, and ``mode`` is ``errorifexists``.
    OptionError
        ``overwrite`` would remove files that no export wrote.
    """
    folder, listed = run.folder, _listed(run.folder)
    others = [path for path in listed if _job_of(path) != run.job]
    if others and mode == "errorifexists":
        raise DatasetExistsError(
            f"{folder.uri} has files, such as {others[0]}. Pass mode='append' or 'overwrite', or "
            "choose another folder"
        )
    if mode == "overwrite":
        refuse_others(folder, others)
    if others and mode == "ignore":
        return None

    def replaces(path: str) -> bool:
        return _job_of(path) == run.job or (mode == "overwrite" and bool(_EXPORTED.fullmatch(path)))

    replaced = [path for path in listed if replaces(path)]
    replaced += [path for path, final in _unfinished(folder) if replaces(final) or final == DONE]
    # Runs that were stopped when they had written a mark leave claims.
    files = read_mark(folder).get("files", ()) if DONE in listed else ()
    ended = {match[2] for path in files if (match := _PART.fullmatch(path))}
    claims = {path: match[2] for path in listed if (match := _CLAIM.fullmatch(path))}
    removed = {path for path, of in claims.items() if of in ended or path in replaced}
    folder.delete(sorted(removed))
    folder.delete([DONE] if DONE in listed else [])
    folder.put(run.claim, [json.dumps({"mode": mode}).encode()], mode="create")
    return [path for path in replaced if path != DONE and path not in removed]


def _finish(
    run: ExportRun, names: frozenset[str], replaced: Sequence[str], facts: Mapping[str, object]
) -> None:
    """Remove the files that the run replaces, write the mark, and end the run.

    Raises
    ------
    CommitConflictError
        Another run took the place of this one, or somebody removed its files.
    StoreError
        The store failed. If there certainly is no mark, the files of the run are removed, unless
        others were removed for them.
    """
    folder = run.folder
    try:
        run.check()
        listed = [path for path in _listed(folder) if path not in replaced]
        if lost := names.difference(listed):
            raise CommitConflictError(
                f"{len(lost)} files of the export {run.job} to {folder.uri} are not there any "
                f"more, such as {min(lost)}: somebody removed them. Run it again",
                retryable=False,
            )
    except CommitConflictError:
        run.withdraw(names)
        raise
    folder.delete(sorted(replaced))
    going = {match[2] for path in listed if (match := _CLAIM.fullmatch(path))} - {run.id}
    files = [
        path
        for path in listed
        if not any(part.startswith(("_", ".")) for part in path.split("/"))
        and not ((part := _PART.fullmatch(path)) and part[2] in going)
    ]
    mark = {"job": run.job, "run": run.id, **facts, "files": files}
    try:
        folder.put(DONE, [json.dumps(mark).encode()])
    except StoreError as error:
        if read_mark(folder).get("run") != run.id:
            if not replaced and not error.is_unanswered:
                run.withdraw(names)
            raise
    # From here on the files stay: there may be a mark.
    with suppress(StoreError):  # the next run removes it
        folder.delete([run.claim])


def read_mark(folder: ObjectStore) -> dict[str, Any]:
    """Return what the mark of the last export says; nothing if there is none. One request."""
    try:
        facts = json.loads(folder.get(DONE).to_pybytes())
    except (ObjectNotFoundError, ValueError):
        return {}
    if not isinstance(facts, dict):  # of another tool
        return {}
    files = facts.get("files")
    texts = files if isinstance(files, list) else []
    return {**facts, "files": [path for path in texts if isinstance(path, str)]}


def refuse_others(folder: ObjectStore, listed: Iterable[str] | None = None) -> None:
    """Refuse to remove files of a folder that no export wrote; default: all that are there.

    Raises
    ------
    OptionError
        Names the first one.
    """
    for path in _listed(folder) if listed is None else listed:
        if not _EXPORTED.fullmatch(path):
            raise OptionError(
                f"mode 'overwrite': {path!r} in {folder.uri} is no file of an export. Remove it, "
                "or choose another folder"
            )


def _listed(folder: ObjectStore) -> list[str]:
    return [meta.path for meta in folder.walk("")]


def _unfinished(folder: ObjectStore) -> Iterator[tuple[str, str]]:
    """Yield files that are being written, or whose writers were killed, with their final names."""
    for meta in folder.unfinished(""):
        final = final_name(meta.path)
        if final is not None:
            yield meta.path, final


# --- Tasks and the export ----------------------------------------------------------------

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
    run: ExportRun = dataclasses.field(repr=False)
    number: int
    file_format: FileFormat = dataclasses.field(repr=False)
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
    run = ExportRun(folder, job, random_bytes(8).hex())
    replaced = _begin(run, mode)
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
        _finish(run, names, replaced, {"version": opened.manifest.version, **counts})
    except CommitConflictError as error:
        return _done_elsewhere(run, error, named=job_id is not None)
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
    # The last run of the job may have been stopped when it had written the mark.
    marks = [path for path, final in _unfinished(folder) if final == DONE]
    claim = ExportRun(folder, job, f"{facts.get('run')}").claim
    folder.delete([*marks, *([claim] if _CLAIM.fullmatch(claim) else [])])
    return {name: int(count) for name, count in counts.items() if count is not None}
