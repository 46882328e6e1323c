"""``dataset.merge_insert``: update, insert and delete rows by matching keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final, Self, get_args

import pyarrow as pa

from glaive.config import memory_size, settings
from glaive.dataset.merging.rows import (
    bind_condition,
    is_complete,
    kept_columns,
    merge,
    merged_numbers,
)
from glaive.dataset.merging.source import (
    MergeClauses,
    MergeSource,
    WriteMode,
    check_source,
    is_word_type,
    primary_key,
    read_rows,
)
from glaive.dataset.monitoring import showing
from glaive.dataset.rows import RETRY_TIMEOUT, check_retries, with_retries
from glaive.dataset.tasks import JOB, commit_operation
from glaive.errors import ColumnNotFoundError, OptionError, UnsupportedFeatureError
from glaive.expr.filters import bind_filter
from glaive.file.versions import resolve_version
from glaive.format.blobs import has_blobs
from glaive.format.fields import LanceSchema
from glaive.options import SWITCH, one_of
from glaive.scan.explain import time_of, times_of
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.plan import plan_searched
from glaive.table.configuration import string_map
from glaive.table.named_jobs import AppTransaction

if TYPE_CHECKING:
    from glaive.dataset.transactions import Transaction
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Reports: the plan of a merge, and its measured run ---------------------------------

_STEPS: Final = {
    "match": "read and match keys",
    "find": "of that: find keys in encoded columns",
    "decode": "of that: decode key columns",
    "filter": "of that: look decoded keys up",
    "columns": "of that: read keys of matching rows",
    "look up": "of that: look up their rows of the source",
    "condition": "evaluate the condition",
    "write": "write rows",
    "delete": "write deletions",
}
"""Labels of the times of a meter, in order of execution."""


def explain(
    dataset: OpenedVersion, clauses: MergeClauses, source: pa.Schema | None, *, verbose: bool
) -> str:
    """Describe the steps of a merge as a tree, the last step first."""
    schema = dataset.manifest.schema
    given = schema.to_arrow() if source is None else source
    fits = check_source(schema, given, clauses, where=dataset.uri)
    lines = [f"MergeInsert: {clauses.describe()}"]
    names = [name for name in fits.names if name not in clauses.on]
    if clauses.mode == "rewrite_columns":
        lines.append(f"write: columns in place: {', '.join(names)}")
    elif clauses.update or clauses.insert:
        kept = kept_columns(fits, schema)
        old = f", old values of {', '.join(kept)}" if clauses.update and kept else ""
        whole = "" if is_complete(fits, schema) else " nulls for what it lacks,"
        lines.append(f"write: rows of the source,{whole} in new fragments{old}")
    if clauses.by_source_condition is not None:
        bound = bind_filter(clauses.by_source_condition, schema)
        lines.append(f"scan for rows to delete: {bound.text}")
    if clauses.update and clauses.update_condition is not None:
        bound = bind_condition(schema, given, clauses.update_condition)
        lines.append(f"condition on matched rows: {bound.text}, columns {', '.join(bound.columns)}")
    arrow = schema.to_arrow()
    encoded = [name for name in clauses.on if is_word_type(arrow.field(name).type)]
    decoded = [name for name in clauses.on if name not in encoded]
    if encoded:
        lines.append(f"find keys in encoded pages: {', '.join(encoded)} [HashJoinExec]")
    if decoded:
        lines.append(f"look keys up by their values: {', '.join(decoded)} [HashJoinExec]")
    ranges = plan_searched(dataset.snapshot, ScanOptions())
    rows = dataset.snapshot.num_rows
    on = ", ".join(clauses.on)
    lines.append(f"scan: {rows} rows of {len(ranges)} fragments, columns {on} [LanceRead]")
    lines = [f"{'  ' * depth}{line}" for depth, line in enumerate(lines)]
    if verbose:
        ids, indent = dataset.manifest.fragment_ids, "  " * len(lines)
        lines += [f"{indent}fragment {ids[at]}: rows {start}..{stop}" for at, start, stop in ranges]
    return "\n".join(lines)


def analyze(dataset: OpenedVersion, clauses: MergeClauses, source: MergeSource) -> str:
    """Run a merge up to its commit, and report rows, bytes, requests and time per step.

    Times of steps are sums over threads, so they may exceed the total.
    """
    plan = explain(dataset, clauses, source.rows.schema, verbose=False)
    meter, counters = Meter(), dataset.store.counters
    before, wall, cpu = counters.snapshot(), perf_counter(), process_time()
    _, counts = merge(dataset, clauses, source, meter)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    after = counters.snapshot()
    lines = [
        (
            f"total: {time_of(wall)}, {time_of(cpu)} of processor time; nothing was committed "
            "[AnalyzeExec verbose=true]"
        ),
        *(f"{name}={count}" for name, count in counts.items()),
        f"bytes_read={after.read_bytes - before.read_bytes}",
        f"iops={after.read_iops - before.read_iops}",
        f"requests={after.read_iops - before.read_iops}",
        f"bytes_written={after.written_bytes - before.written_bytes}",
        f"num_files_written={meter.counts['files_written']}",
        f"fragments_scanned={meter.counts['fragments_scanned']}",
        f"rows_scanned={meter.counts['rows_scanned']}",
        f"rows_matched={meter.counts['rows_matched']}",
        f"source_on_disk: {'yes' if source.on_disk else 'no'}",
        *times_of(_STEPS, meter.times),
    ]
    return "\n".join([plan, "", *lines])


_COUNTS = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")


class MergeInsertBuilder:
    """The clauses of a merge; :meth:`execute` runs it. Returned by ``dataset.merge_insert``."""

    def __init__(self, dataset: OpenDataset, on: str | Iterable[str] | None = None) -> None:
        self._dataset = dataset
        self._clauses = MergeClauses(on=key_names(dataset.opened.manifest.schema, on))
        self._memory_limit = settings.memory_limit
        self._retries = 10
        self._timeout = RETRY_TIMEOUT
        self._properties: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"MergeInsertBuilder({self._clauses!r})"

    def _set(self, **changes: Any) -> Self:
        self._clauses = replace(self._clauses, **changes)
        return self

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Update matched rows with the values of the source.

        Rows for which the SQL expression ``condition`` is false or null stay unchanged:
        ``"source.ts > target.ts"``. Columns that the source lacks keep their values.
        """
        _check_condition("condition", condition)
        return self._set(update=True, update_condition=condition, delete=False, fail=False)

    def when_matched_delete(self) -> Self:
        """Delete matched rows."""
        return self._set(delete=True, update=False, fail=False)

    def when_matched_fail(self) -> Self:
        """Raise if any row matches."""
        return self._set(fail=True, update=False, delete=False)

    def when_not_matched_insert_all(self) -> Self:
        """Insert unmatched rows of the source. Columns that the source lacks become null."""
        return self._set(insert=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete unmatched rows of the dataset, or only rows for which ``expr`` is true."""
        _check_condition("expr", expr)
        return self._set(delete_by_source=True, by_source_condition=expr)

    def conflict_retries(self, max_retries: int) -> Self:
        """Set how often to retry after another writer changed the same rows.

        Parameters
        ----------
        max_retries
            Number of retries; default: 10.
        """
        check_retries(max_retries, self._timeout)
        self._retries = max_retries
        return self

    def retry_timeout(self, timeout: timedelta) -> Self:
        """Set how long to retry.

        Parameters
        ----------
        timeout
            Time from the first attempt; default: 30 seconds.
        """
        check_retries(self._retries, timeout)
        self._timeout = timeout
        return self

    def memory_limit(self, limit: int | str) -> Self:
        """Set how much of the source to hold in memory: bytes, or a string such as ``"512MB"``.

        Half of it is for rows. A larger stream goes to a temporary file (in ``TMPDIR``) until the
        merge ends. The other half is for keys. glaive matches keys in as many blocks as needed, and
        reads the key columns of the dataset once per block. A table given as source stays in
        memory. Default: ``GLAIVE_MEMORY_LIMIT``.

        Raises
        ------
        OptionError
            The limit is not a number of bytes ≥ 1.
        """
        self._memory_limit = memory_size("memory_limit", limit)
        return self

    def use_index(self, use_index: bool) -> Self:
        """Choose whether to search scalar indices of the key columns.

        Parameters
        ----------
        use_index
            ``True`` (the default) searches an index for few keys, if glaive estimates that a scan
            of the columns is slower. ``False`` always scans.
        """
        return self._set(use_index=SWITCH.check("use_index", use_index))

    def write_mode(self, mode: WriteMode) -> Self:
        """Choose to rewrite updated rows or columns.

        Parameters
        ----------
        mode
            ``rewrite_rows`` rewrites updated rows, as ``auto`` does. ``rewrite_columns`` rewrites
            the source's columns in place, for every fragment with matched rows. The source must
            lack some column, and the only clause must be an update.
        """
        return self._set(mode=one_of(*get_args(WriteMode)).check("Invalid write_mode", mode))

    def data_storage_version(self, version: str) -> Self:
        """Set the format of the new files.

        Parameters
        ----------
        version
            A version such as ``"2.1"``; default: the format of the dataset.
        """
        return self._set(data_storage_version=resolve_version(version))

    def target_bases(self, bases: Iterable[str]) -> Self:
        """Write new files to these base paths in turn.

        Deletion files and files that replace columns go to the dataset's root.

        Parameters
        ----------
        bases
            Names or paths of base paths, or the dataset's URI.
        """
        return self._set(target_bases=tuple(bases))

    def target_all_bases(self, include_primary: bool = True) -> Self:
        """Write new files to all base paths in turn.

        Parameters
        ----------
        include_primary
            Write to the dataset's own root as well, first.
        """
        return self._set(target_bases=None, primary_base=include_primary)

    def transaction_properties(self, properties: Mapping[str, str]) -> Self:
        """Set entries to record with the commit, as for ``write_dataset``.

        Parameters
        ----------
        properties
            Strings by key. ``glaive.txn.app`` names an application, and ``glaive.txn.version`` is a
            number. The merge is skipped if the dataset has recorded this number of the application,
            or a higher number.
        """
        self._properties = string_map("transaction_properties", properties)
        return self

    def mark_sstables_as_compacted(self, sstables: object) -> Self:
        """Raise an error: glaive lacks MemWAL.

        Raises
        ------
        UnsupportedFeatureError
            Always.
        """
        raise UnsupportedFeatureError(
            f"mark_sstables_as_compacted: MemWAL is not supported, found {sstables!r}. Merge the "
            "rows without it."
        )

    def execute(
        self, data_obj: object, *, schema: pa.Schema | None = None, progress: bool | None = None
    ) -> dict[str, int]:
        """Run the merge and move the dataset to the new version.

        Parameters
        ----------
        data_obj
            The source: anything that ``write_dataset`` accepts. Streams are read once.
        schema
            Schema of ``data_obj``, for rows that lack one.
        progress
            Show the number of written rows on a line of the terminal.

        Returns
        -------
        dict
            ``num_inserted_rows``, ``num_updated_rows``, ``num_deleted_rows``.

        Raises
        ------
        OptionError
            The merge has no clause.
        SchemaError
            The source does not match the schema. Or several of its rows match the same row of the
            dataset. Or a row matches and ``when_matched_fail`` was called.
        StoreError
            The temporary folder lacks space for the source.
        CommitConflictError, CommitContentionError
            Another writer changed the same rows, or every retry lost the race. The dataset is
            unchanged.

        Notes
        -----
        Reads the key columns. For matched rows it also reads columns that conditions use or the
        source lacks. Memory: about :meth:`memory_limit` for the source and its keys, plus a few
        windows of rows. ``write_mode("rewrite_columns")`` adds 16 bytes per match and the new
        values of a fragment.
        """
        transaction = AppTransaction.of(self._properties)
        with showing(progress, "merge"), self._read(data_obj, schema) as source:

            def change(at: OpenedVersion) -> tuple[Any, dict[str, int]]:
                if transaction is not None and transaction.is_applied(at.manifest):
                    return at.manifest, dict.fromkeys(_COUNTS, 0)
                operation, counts = merge(at, self._clauses, source)
                properties = {**self._properties, **merged_numbers(at, counts)}
                made = commit_operation(at, operation, properties=properties, once=JOB)
                return made, counts

            return with_retries(
                self._dataset, change, conflict_retries=self._retries, retry_timeout=self._timeout
            )

    def _read(self, data: object, schema: pa.Schema | None) -> MergeSource:

        given = self._dataset.opened, self._clauses, self._memory_limit
        return read_rows(data, schema, *given)

    def execute_uncommitted(
        self, data_obj: object, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, dict[str, int]]:
        """Write the files without a commit.

        Parameters
        ----------
        data_obj
            Source rows, as for :meth:`execute`.
        schema
            Schema of the source, if ``data_obj`` has none.

        Returns
        -------
        tuple
            The transaction for ``LanceDataset.commit``, and the counts.
        """
        from glaive.dataset.lance_operation import public_operation
        from glaive.dataset.transactions import Transaction

        opened = self._dataset.opened
        with self._read(data_obj, schema) as source:
            operation, counts = merge(opened, self._clauses, source)
        made = Transaction(opened.manifest.version, public_operation(operation))
        made.transaction_properties = merged_numbers(opened, counts)
        return made, counts

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """Describe the steps of the merge, the last step first.

        Parameters
        ----------
        schema
            Schema of the source; default: the schema of the dataset.
        verbose
            Also list the rows of each fragment.

        Raises
        ------
        OptionError, ColumnNotFoundError, SchemaError, FilterError
            See :meth:`execute`.
        """
        return explain(self._dataset.opened, self._clauses, schema, verbose=verbose)

    def analyze_plan(self, data_obj: object, *, schema: pa.Schema | None = None) -> str:
        """Run the merge up to its commit and report its steps with rows, bytes and times.

        ``cleanup_old_versions`` removes the files it writes.

        Parameters
        ----------
        data_obj
            Source rows, as for :meth:`execute`.
        schema
            Schema of the source, if ``data_obj`` has none.
        """
        with self._read(data_obj, schema) as source:
            return analyze(self._dataset.opened, self._clauses, source)

    def execute_batches(self, new_data: object) -> dict[str, int]:
        """Call :meth:`execute`."""
        return self.execute(new_data)

    def execute_uncommitted_batches(self, new_data: object) -> tuple[Transaction, dict[str, int]]:
        """Call :meth:`execute_uncommitted`."""
        return self.execute_uncommitted(new_data)

    def analyze_plan_batches(self, new_data: object) -> str:
        """Call :meth:`analyze_plan`."""
        return self.analyze_plan(new_data)


def _check_condition(name: str, condition: object) -> None:
    if condition is not None and not isinstance(condition, str):
        raise OptionError(f"{name}: expected an expression as text, found {condition!r:.60}")


def key_names(schema: LanceSchema, on: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the key columns, as spelled in the dataset; default: its primary key.

    Raises
    ------
    OptionError, ColumnNotFoundError, UnsupportedFeatureError
        The key is missing. Or a key is given twice, is unknown, or holds blobs.
    """
    if on is not None and not isinstance(on, Iterable):
        raise OptionError(
            "The `on` argument to merge_insert must be a str or iterable of str: key columns; "
            f"found {on!r}"
        )
    given = [on] if isinstance(on, str) else list(on or ())
    if not given:
        declared = primary_key(schema)
        if not declared:
            raise OptionError(
                "A merge insert operation requires join keys: specify `on` columns; the dataset "
                "declares no primary key"
            )
        return declared
    columns = []
    for name in given:
        similar = [column for column in schema.names if column.lower() == str(name).lower()]
        if name not in schema.names and len(similar) != 1:
            raise ColumnNotFoundError.among(str(name), schema.names, where="the dataset")
        columns.append(name if name in schema.names else similar[0])
    if len(set(columns)) < len(columns):
        raise OptionError(f"on: a column is given twice: {', '.join(columns)}")
    refuse_blob_keys(columns, schema)
    return tuple(columns)


def refuse_blob_keys(keys: Iterable[str], stored: LanceSchema) -> None:
    """Refuse blob columns as keys: scans read their positions, which different blobs may share.

    Raises
    ------
    UnsupportedFeatureError
        A key is a blob column; case is ignored.
    """
    blobs = {field.name.lower() for field in stored.fields if has_blobs(field)}
    for name in keys:
        if name.lower() in blobs:
            raise UnsupportedFeatureError(
                f"column {name!r}: rows cannot be matched by values of a blob column. Add a column "
                "with a hash of them, and match rows by it"
            )
