"""Ingest files: plan, tasks, one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.merging.merge_insert import key_names
from glaive.dataset.open import dataset as open_dataset
from glaive.dataset.tasks import LOCAL
from glaive.dataset.writing.fragments import discard_fragments
from glaive.dataset.writing.plan import WriteOptions, exists_already
from glaive.errors import (
    DatasetExistsError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    VersionNotFoundError,
)
from glaive.format.fragment import unpacked_fragments
from glaive.format.manifest import Manifest
from glaive.ingestion.formats import TableFormat, format_named
from glaive.ingestion.loads import Ledger, load_once, newest_of
from glaive.ingestion.plan import (
    DriftRule,
    IngestMode,
    IngestPlan,
    Reconciled,
    Sources,
    Staged,
    acknowledged,
    check_bad_records,
    commit_all_bad_records,
    commit_ingest,
    find_made,
    find_sources,
    parse_columns,
    plan_ingest,
    version_of,
    written_fragments,
)
from glaive.ingestion.sources import (
    SourceFile,
    SourceFormat,
    known_options,
    list_sources,
    source_names,
)
from glaive.ingestion.task import (
    Expectations,
    IngestedPieces,
    IngestResult,
    IngestTask,
    Journal,
    OnViolation,
)
from glaive.io.pool import TASK_BYTES, ordered_map, worker_count
from glaive.io.store import ObjectStore
from glaive.options import one_of
from glaive.process import Origin
from glaive.table.configuration import IDENTITY
from glaive.table.load import load_again, open_latest
from glaive.table.root import open_root

if TYPE_CHECKING:
    from glaive.dataset.tasks import TaskRunner


_WRITE_OPTIONS: Final = tuple(one.name for one in fields(WriteOptions) if one.name != "mode")

Progress: TypeAlias = Callable[[int, int], None]
Driver: TypeAlias = Callable[[Sequence[IngestTask]], Iterable[tuple[int, IngestedPieces]]]
"""Function that runs tasks, and yields the number and the result of each, in any order."""


def ingest(  # noqa: PLR0913  # one keyword for each option
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    uri: str | os.PathLike[str],
    *,
    format: str | None = None,  # the public name
    mode: IngestMode = "create",
    schema: pa.Schema | str | None = None,
    vectors: Sequence[str] = (),
    schema_drift: DriftRule = "fail",
    merge_keys: str | Sequence[str] | None = None,
    once: bool = False,
    job_id: str | None = None,
    bad_records: str | os.PathLike[str] | None = None,
    expect: str | Mapping[str, str] | None = None,
    on_violation: OnViolation = "fail",
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    reader_options: Mapping[str, object] | None = None,
    write_options: Mapping[str, Any] | None = None,
    task_bytes: int = TASK_BYTES,
    progress: Progress | None = None,
    driver: Driver | None = None,
    merge_runner: TaskRunner | None = None,
) -> IngestResult:
    """Write the rows of files as one new version of a dataset.

    Parameters
    ----------
    source
        Files, folders or patterns; local paths or URIs.
    uri
        Path or URI of the dataset.
    format
        ``csv``, ``json``, ``parquet``, ``orc``, ``avro``, ``arrow``, ``text``, ``images``,
        ``binary``, ``delta`` or ``iceberg``; default: from the names of the files.
    mode
        ``create`` fails if there is a dataset. ``append`` adds rows, ``overwrite`` replaces all
        rows. ``merge`` updates the rows whose ``merge_keys`` exist, and inserts the others.
    schema
        Columns and types of a new dataset; an Arrow schema, or a string such as
        ``"id bigint, at timestamp"``. glaive reads files without types as these types. An
        existing dataset must have the same columns and types.
    vectors
        Columns with lists that become vectors of a new dataset: ``"embedding:128:float16"``.
    schema_drift
        How columns may differ between files, and from the dataset. ``fail`` requires equal columns.
        ``widen`` makes types wide enough for both. ``add`` also adds columns, and fills missing
        columns with null.
    merge_keys
        Columns that identify a row, for ``merge``.
    once
        Read only files that no earlier ingest with ``once`` has read. The dataset remembers path,
        size, time and ETag. A file that changed since is left out, and counted in ``changed``. Of
        a Delta or Iceberg table, read what changed since the version that the dataset remembers.
    job_id
        A name of this job. If you run a stopped job again with the same name, it continues. If
        you run a finished job again, it returns the version that it made.
    bad_records
        A dataset for malformed records, with file, line, reason and bytes. By default the first
        such record raises an error.
    expect
        A condition that all rows must meet, such as ``"price > 0"``, or a mapping of several
        by name. Conditions use the filter language; null counts as a violation.
    on_violation
        How to treat the other rows: ``fail`` raises an error at the first, ``drop`` leaves them
        out, ``quarantine`` makes them bad records.
    storage_options, source_options
        Options of the store of the dataset, and options of the store of the files.
    reader_options
        Options of the format: see the classes in ``glaive.ingestion``.
    write_options
        Further options of the write, such as ``max_rows_per_file``.
    task_bytes
        Approximate number of bytes of the sources that one task reads.
    progress
        A function that glaive calls with the number of finished tasks and the number of tasks.
    driver
        A function that runs the tasks; default: threads of this process.
    merge_runner
        Runner of a merge's tasks, after ``driver`` has written the rows to files; default: this
        process.

    Raises
    ------
    FormatError
        A file or a record is malformed; the message names file, line and reason. The dataset keeps
        its rows.
    SchemaError
        Columns differ in a way that ``schema_drift`` forbids.
    ExpectationError
        A row violates ``expect``. The dataset keeps its rows.
    DatasetExistsError
        ``mode`` is ``create``, and the dataset exists.
    OptionError
        An option is wrong, or the files of a source are missing. Or rows of a table changed since
        the last load, and ``mode`` is ``append``.
    CommitConflictError
        Another writer changed data that the commit needs. For ``merge`` also: files were removed
        while tasks read them, before any run of the job made a version. Run the job again.
    VersionNotFoundError
        The version that a run of the job may have made was removed by clean-up. Or the journal of
        the job names a missing version. With ``once``: the list of files lacks a load.
    StoreError
        A store failed.

    Notes
    -----
    The driver lists each folder once and sends one or two requests for each file. By default a
    task reads about 128 MiB. ``widen`` and ``add`` change the columns of an existing dataset in
    separate commits, before the rows. After an error, these changes of columns stay.
    """
    expectations = Expectations.of(expect, on_violation, has_quarantine=bad_records is not None)
    store = open_root(uri, storage_options)
    quarantine = None if bad_records is None else open_root(bad_records, storage_options)
    check_bad_records(store, quarantine)
    names = source_names(source)
    chosen = None if format is None else format_named(format, reader_options or {})
    table = chosen if isinstance(chosen, TableFormat) else None
    if once and mode == "overwrite" and table is None:
        raise OptionError("once: found mode='overwrite'. Pass mode='append' or mode='merge'.")
    settings = dict(write_options or {})
    known_options("write_options", settings, _WRITE_OPTIONS)

    def run(base: Manifest | None, ledger: Ledger | None = None) -> IngestResult:
        journal = None if job_id is None else Journal(store, job_id)
        if journal is not None:
            done = _committed(journal, base)
            if done is not None:
                return _repeated(journal, done)
        _check_mode(store, mode, base, merge_keys)
        keeps = base is not None and mode in ("append", "merge")
        files, removed, changed = _listed(
            names, source_options or {}, chosen, ledger if table is None or keeps else None, mode
        )
        if ledger is not None and not files and not removed and (table is None or keeps):
            return ledger.nothing_new(base, job_id, changed)
        sources = find_sources(
            files or removed or ([] if table is None else [table.mark]),
            format=chosen,
            existing=base.schema.to_arrow() if base is not None and keeps else None,
            schema=parse_columns(schema) if isinstance(schema, str) else schema,
            vectors=vectors,
            schema_drift=schema_drift,
            reader_options=reader_options or {},
        )
        opened = partial(open_dataset, uri, storage_options=storage_options)
        if base is not None and keeps:
            base = _evolved(opened(), sources.columns, base)
        sources = replace(sources, files=tuple(files))
        options = _options(mode, settings, sources, ledger, keeps=keeps)
        try:
            plan = plan_ingest(
                store,
                sources,
                options,
                job_id=job_id,
                bad_records=quarantine,
                expectations=expectations,
                base=base if keeps else None,
                task_bytes=task_bytes,
            )
        except DatasetExistsError:  # perhaps another run of the job created it in the meantime
            if journal is None:
                raise
            done = _committed(journal, open_latest(store, to_follow=True))
            if done is None:
                raise
            return _repeated(journal, done)
        keys = key_names(plan.write.schema, merge_keys) if mode == "merge" else ()
        removed_keys = _staged_keys(plan, sources, removed, keys, driver or _threads, task_bytes)
        try:
            results = run_tasks(plan, driver or _threads, progress)
            if ledger is not None:
                ledger.record(files if table is None else [table.mark])
            if mode != "merge":
                result = commit_ingest(plan, results, files=len(files))
            else:
                result = _merge(plan, sources, keys, opened, results, removed_keys, merge_runner)
        finally:
            discard_fragments(removed_keys.write, removed_keys.fragments)
        return replace(result, changed=changed)

    # A dataset that is made of a table remembers the version, so that a later load can follow it.
    if not once and (table is None or mode not in ("create", "overwrite")):
        return run(newest_of(store))
    return load_once(store, uri, storage_options, run, bad_records)


def _listed(
    names: Sequence[str],
    options: Mapping[str, str],
    chosen: SourceFormat | None,
    ledger: Ledger | None,
    mode: IngestMode,
) -> tuple[list[SourceFile], list[SourceFile], int]:
    """Return the files to read, the files with removed rows, and the number of changed files."""
    if isinstance(chosen, TableFormat):
        last = (lambda _: None) if ledger is None else ledger.last
        return chosen.files(names, options, last, by_keys=mode == "merge"), chosen.removed, 0
    files = (list_sources if chosen is None else chosen.files)(names, options)
    if ledger is None:
        return files, [], 0
    # A file of zero bytes may be filled later.
    new, changed = ledger.new([file for file in files if file.size])
    return new, [], changed


def _options(
    mode: IngestMode,
    given: Mapping[str, Any],
    sources: Sources,
    ledger: Ledger | None,
    *,
    keeps: bool,
) -> WriteOptions:
    """Return the options of the write; ``keeps``: the dataset keeps its rows."""
    settings = dict(given)
    if sources.source_format.name in ("binary", "images"):
        settings.setdefault("data_storage_version", None if keeps else "2.2")
    marks = {} if ledger is None else ledger.load.properties
    settings["transaction_properties"] = {
        **(settings.get("transaction_properties") or {}),
        **sources.source_format.properties,
        **marks,
    }
    return WriteOptions(mode="append" if mode == "merge" else mode, **settings)


def _staged_keys(
    plan: IngestPlan,
    sources: Sources,
    removed: Sequence[SourceFile],
    keys: tuple[str, ...],
    driver: Driver,
    task_bytes: int,
) -> Staged:
    """Write the keys of rows that a table had before to files, which the caller removes."""
    if not removed:
        return Staged(plan.write)
    schema = plan.write.schema.logical_schema()
    # A null equals no key, so its old row would stay.
    columns = Reconciled(pa.schema([schema.field(name).with_nullable(False) for name in keys]))
    keyed = plan_ingest(
        plan.write.store,
        Sources(tuple(removed), sources.source_format, columns),
        WriteOptions(mode="overwrite"),
        task_bytes=task_bytes,
    )
    try:
        return Staged(keyed.write, written_fragments(run_tasks(keyed, driver)))
    except SchemaError as error:
        raise SchemaError(
            f"{removed[0].uri}: the old rows cannot be found by {', '.join(keys)}: "
            f"{f'{error}'.rsplit('. ', 1)[0]}. Pass mode='overwrite'"
        ) from error


def _merge(
    plan: IngestPlan,
    sources: Sources,
    keys: tuple[str, ...],
    opened: Callable[[], LanceDataset],
    results: Sequence[IngestedPieces],
    removed: Staged,
    runner: TaskRunner | None,
) -> IngestResult:
    """Merge the rows that tasks wrote to files, and delete the rows whose keys are removed."""
    from glaive.ingestion.merging import create_empty, merge_staged

    commit_all_bad_records(plan, results)
    create_empty(plan)
    dataset = opened()
    if plan.journal is not None:  # another run may have finished in the meantime
        made = find_made(plan.journal, "rows", dataset.store, dataset.manifest)
        if made is not None:
            return _repeated(plan.journal, made)
    fragments = written_fragments(results)
    merged = merge_staged(plan, dataset, fragments, removed, keys, runner or LOCAL.runner)
    version = version_of(plan, dataset.manifest)
    if merged is None and plan.journal is not None:
        return _repeated(plan.journal, version)
    return acknowledged(plan, results, version=version, rows=merged or 0, files=len(sources.files))


def run_tasks(
    plan: IngestPlan, driver: Driver, progress: Progress | None = None
) -> list[IngestedPieces]:
    """Run the tasks of a plan; if a task fails, remove the files of the others.

    For a job with an id the files stay for its next run.
    """
    results: dict[int, IngestedPieces] = {}
    origin = Origin()
    try:
        for number, result in driver(plan.tasks):
            results[number] = result
            if progress is not None:
                progress(len(results), len(plan.tasks))
    except BaseException:
        if origin.is_this_process:  # and not in a fork that ``progress`` made
            for number, result in results.items():
                _discard(plan.tasks[number], result)
        raise
    return [results[number] for number in sorted(results)]


def _discard(task: IngestTask, result: IngestedPieces) -> None:
    """Remove the files of a task, unless the next run of its job can use them."""
    if task.journal is not None:
        return
    discard_fragments(task.write, unpacked_fragments(result.fragments, "the result of a task"))
    if task.bad_records is not None:
        bad = unpacked_fragments(result.bad_fragments, "the result of a task")
        discard_fragments(task.bad_records, bad)


def _threads(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
    """Run tasks on threads of this process, a bounded number at a time."""
    left: dict[int, IngestedPieces] = {}
    origin = Origin()

    def work(number: int) -> int:
        left[number] = tasks[number].execute()
        return number

    # In a separate pool: tasks give their work to the pool with a thread for each core.
    numbers: Any = ordered_map(
        work, range(len(tasks)), workers=worker_count() + 1, in_order=False, stop=bool
    )
    try:
        for number in numbers:
            yield number, left.pop(number)
    finally:
        numbers.close()  # waits for tasks that ran when another task failed
        for number, result in left.items() if origin.is_this_process else ():
            _discard(tasks[number], result)


def _repeated(journal: Journal, version: int) -> IngestResult:
    """Return the result of a job that an earlier run has finished."""
    return IngestResult(
        version=version, rows=0, files=0, bad_records=0, job_id=journal.job_id, repeated=True
    )


def _committed(journal: Journal, base: Manifest | None) -> int | None:
    """Return the version that an earlier run of the job made.

    Raises
    ------
    VersionNotFoundError
        Clean-up has removed the version that the job may have made, or the journal names one
        after the newest.
    """
    version = journal.committed()
    if version is not None:
        if (base is None or version > base.version) and not _is_there(journal.store, version):
            newest = "there is no dataset" if base is None else f"the newest is {base.version}"
            raise VersionNotFoundError(
                f"job {journal.job_id} on {journal.store.uri}: {journal.end} says that it made "
                f"version {version}, but {newest}, so its rows are not there. Remove this file to "
                "ingest them"
            )
        journal.clear()  # the earlier run may have stopped before it did this
        return version
    found = None if base is None else find_made(journal, "rows", journal.store, base)
    if found is not None:
        journal.commit(found)  # the earlier run stopped before it did this
    return found


def _is_there(store: ObjectStore, version: int) -> bool:
    """Return whether a version exists that is missing in a listing, which may be old."""
    with suppress(ObjectNotFoundError):
        return version < 1 << 63 and load_again(store, version, None).version == version
    return False


def _check_mode(
    store: ObjectStore, mode: str, base: Manifest | None, merge_keys: str | Sequence[str] | None
) -> None:
    one_of(*get_args(IngestMode)).check("mode", mode)
    if mode == "create" and base is not None:
        raise exists_already(store.uri, base.version)
    if (mode == "merge") != bool(merge_keys):
        raise OptionError("merge_keys: name key columns for mode='merge', and only for it.")
    for field in () if mode != "merge" or base is None else base.schema.fields:
        if IDENTITY in field.metadata:
            raise OptionError(
                f"mode: a merge of files cannot number rows, and {field.name!r} is an identity "
                "column. Read the files, and call merge_insert."
            )


def _evolved(dataset: LanceDataset, columns: Reconciled, base: Manifest) -> Manifest:
    """Widen types and add columns if the rows need this; return the resulting version."""
    if columns.widened:
        dataset.alter_columns(
            *({"path": field.name, "data_type": field.type} for field in columns.widened)
        )
    if columns.added:
        dataset.add_columns(pa.schema(columns.added))
    return open_latest(dataset.store, to_follow=True) if columns.widened or columns.added else base
