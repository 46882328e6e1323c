"""The kinds of steps of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from glaive.dataclass import dataclass
from glaive.dataset.cleanup import age_of
from glaive.dataset.dataset import LanceDataset
from glaive.errors import ExpectationError, OptionError
from glaive.format.field import quoted_name
from glaive.ingestion import FORMATS, DriftRule, IngestMode
from glaive.ingestion.task import Expectations
from glaive.options import one_of
from glaive.pipeline.run import ExpectingStep
from glaive.pipeline.runs import (
    DatasetName,
    Step,
    StepContext,
    TableStep,
    TargetStep,
    check_function,
    datasets_of,
    function_named,
    query_frame,
)
from glaive.table.load import open_newest


@dataclass(frozen=True, kw_only=True)
class IngestStep(ExpectingStep):
    """Write the rows of files; see :func:`glaive.spark.ingest`.

    Parameters
    ----------
    source
        Files, folders or patterns.
    target
        The dataset.
    mode, format, schema, vectors, schema_drift, merge_keys, once
        As for :func:`glaive.ingest`.
    options
        Options of the format.
    write_options
        Options of the write, such as ``max_rows_per_file``.
    """

    source: tuple[str, ...] = field(repr=False)  # URLs may have passwords
    mode: IngestMode = "create"
    format: str | None = None
    schema: str | None = None
    vectors: tuple[str, ...] = ()
    schema_drift: DriftRule = "fail"
    merge_keys: tuple[str, ...] = ()
    once: bool = False
    options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords
    write_options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def check(self) -> None:
        """Refuse an unknown format, and keys of another mode."""
        super().check()
        if self.format is not None:
            one_of(*FORMATS).check("format", self.format)
        if (self.mode == "merge") != bool(self.merge_keys):
            raise OptionError("merge_keys: name key columns for mode = 'merge', and only for it.")

    def summary(self) -> str:
        """Return a description of the work."""
        return f"{self.mode} {self.target} from {', '.join(self.source)}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Ingest with the workers."""
        from glaive.spark import ingest

        quarantine = None if self.quarantine is None else context.datasets[self.quarantine]
        same = ("format", "mode", "schema", "vectors", "schema_drift", "once", "expect")
        options: Any = {name: getattr(self, name) for name in same}
        done = ingest(
            context.spark,
            [
                source if "catalog" in (self.options or {}) else _located(context.folder, source)
                for source in self.source
            ],
            context.datasets[self.target],
            merge_keys=self.merge_keys or None,
            job_id=context.job_id,
            bad_records=quarantine,
            reader_options=dict(self.options or {}),
            write_options=dict(self.write_options or {}),
            storage_options=context.storage or None,
            on_violation=self.on_violation,
            **options,
        )
        if done.repeated:
            return {"repeated": 1}
        names = ("rows", "files", "bad_records", "dropped")
        return {name: getattr(done, name) for name in names}


def _located(folder: str, source: str) -> str:
    return source if "://" in source else str(Path(folder) / Path(source).expanduser())


_MODES = {"create": "errorifexists", "append": "append", "overwrite": "overwrite"}


@dataclass(frozen=True, kw_only=True)
class SqlStep(ExpectingStep):
    """Write the rows of a query; see :func:`glaive.spark.sql` and :func:`glaive.spark.write`.

    Parameters
    ----------
    query
        A query in Spark's SQL, which refers to datasets by their names.
    target
        The dataset to write.
    mode
        ``create``, ``append`` or ``overwrite``.
    branch
        The branch to write to. The step starts a missing branch.
    cluster_by
        Columns for sorting and dividing the rows.
    vectors
        Arrays to store as vectors: ``"features:32"``.
    write_options
        Further options of :func:`glaive.spark.write`.
    """

    query: str = field(repr=False)  # paths in it may have passwords
    mode: Literal["create", "append", "overwrite"] = "create"
    branch: str | None = None
    cluster_by: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    write_options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def check(self) -> None:
        """Check that the statement is a query."""
        super().check()
        datasets_of(self.query, {})

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the datasets of the query, and the dataset of the branch."""
        on_branch = () if self.branch is None else (self.target,)
        return tuple(dict.fromkeys((*datasets_of(self.query, datasets), *on_branch)))

    def summary(self) -> str:
        """Return a description of the work."""
        branch = "" if self.branch is None else f" (branch {self.branch})"
        return f"{self.mode} {self.target}{branch}: {' '.join(self.query.split())}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Run the query and write its rows."""
        from glaive.spark import write

        if self.branch is not None:
            context.ensure_branch(self.target, self.branch)
        options: dict[str, Any] = dict(self.write_options or {})
        with self.expected(query_frame(context, self.query), context) as rows:
            version = write(
                rows.frame,
                context.datasets[self.target],
                _MODES[self.mode],  # type: ignore[arg-type]  # one of the names
                branch=self.branch,
                cluster_by=self.cluster_by or None,
                vector_columns=self.vectors or None,
                job_id=context.job_id,
                storage_options=context.storage or None,
                **options,
            )
        return {"version": version, **rows.counts}


@dataclass(frozen=True, kw_only=True)
class MergeStep(ExpectingStep):
    """Merge rows into a dataset; see :meth:`glaive.spark.LanceTable.merge`.

    Parameters
    ----------
    query
        A query in Spark's SQL that gives the rows. Excludes ``source``.
    source
        A dataset with the rows. Excludes ``query``.
    target, branch
        The dataset to change, and its branch.
    on
        Columns that must be equal for rows to match.
    when_matched, when_not_matched, when_not_matched_by_source
        The action for the rows of each kind.
    latest_by
        A column. Of several rows with the same key, the step uses the row with its largest value.
    add_columns
        Add columns that only the rows have.
    """

    on: tuple[str, ...]
    query: str | None = field(default=None, repr=False)  # paths in it may have passwords
    source: DatasetName | None = None
    branch: str | None = None
    when_matched: Literal["update", "delete", "ignore"] = "update"
    when_not_matched: Literal["insert", "ignore"] = "insert"
    when_not_matched_by_source: Literal["ignore", "delete"] = "ignore"
    latest_by: str | None = None
    add_columns: bool = False

    def check(self) -> None:
        """Refuse a step unless it has either a query or a dataset."""
        super().check()
        if (self.query is None) == (self.source is None):
            raise OptionError("source: give either the key source or the key query")
        if not self.on:
            raise OptionError("on: name the columns that identify a row")
        if self.query is not None:
            datasets_of(self.query, {})

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the dataset, and the datasets of the rows."""
        rows = () if self.query is None else datasets_of(self.query, datasets)
        rows += () if self.source is None else (self.source,)
        return tuple(dict.fromkeys((*rows, self.target)))

    def summary(self) -> str:
        """Return a description of the work."""
        rows = self.source or " ".join((self.query or "").split())
        return f"merge into {self.target} on {', '.join(self.on)}: {rows}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Merge as one job."""
        query = self.query or f"SELECT * FROM {quoted_name(self.source or '')}"  # noqa: S608  # quoted
        keys = list(map(quoted_name, self.on))
        condition = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        with self.expected(query_frame(context, query), context) as rows:
            table = context.table(self.target, self.branch).alias("t")
            merge: Any = table.merge(rows.frame.alias("s"), condition)
            if self.when_matched == "update":
                merge = merge.whenMatchedUpdateAll()
            elif self.when_matched == "delete":
                merge = merge.whenMatchedDelete()
            if self.when_not_matched == "insert":
                merge = merge.whenNotMatchedInsertAll()
            if self.when_not_matched_by_source == "delete":
                merge = merge.whenNotMatchedBySourceDelete()
            if self.add_columns:
                merge = merge.withSchemaEvolution()
            if self.latest_by is not None:
                merge = merge.onDuplicateSource("last", by=self.latest_by)
            return {**merge.execute(job_id=context.job_id), **rows.counts}


@dataclass(frozen=True, kw_only=True)
class AddColumnsStep(TableStep):
    """Add columns; see :meth:`glaive.spark.LanceTable.addColumns`.

    Parameters
    ----------
    columns
        Expressions by name, in the filter language. Excludes ``function``.
    function
        ``module:function`` of record batches. The step records finished fragments, so a continued
        run computes only the others.
    read_columns, batch_size
        Columns that the function gets, and the maximum number of rows in a call.
    """

    columns: Mapping[str, str] | None = None
    function: str | None = None
    read_columns: tuple[str, ...] = ()
    batch_size: int | None = None

    def check(self) -> None:
        """Refuse a step unless it has either expressions or a function."""
        if (self.columns is None) == (self.function is None):
            raise OptionError("columns: give either the key columns or the key function")
        if self.function is not None:
            check_function(self.function)
        elif self.read_columns or self.batch_size is not None:
            raise OptionError("read_columns: only with the key function, as batch_size is")

    def summary(self) -> str:
        """Return a description of the work."""
        if self.function is not None:
            return f"add columns to {self.target} by {self.function}"
        return f"add {', '.join(self.columns or ())} to {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Compute the columns in tasks."""
        table = context.table(self.target, self.branch)
        if self.function is None:
            return table.addColumns(self.columns or {}, job_id=context.job_id)
        return table.addColumns(
            function_named(self.function),
            read_columns=self.read_columns or None,
            batch_size=self.batch_size,
            checkpoint=context.scratch,
            job_id=context.job_id,
        )


@dataclass(frozen=True, kw_only=True)
class DedupeStep(TableStep):
    """Delete duplicates; see :meth:`glaive.spark.LanceTable.dropDuplicates`.

    Parameters
    ----------
    columns
        The columns to compare; default: all.
    keep
        Keep the ``first`` or the ``last`` row in the order of ``order_by``.
    order_by
        A column or expression; default: the order of the dataset.
    """

    columns: tuple[str, ...] = ()
    keep: Literal["first", "last"] = "first"
    order_by: str | None = None

    def summary(self) -> str:
        """Return a description of the work."""
        compared = ", ".join(self.columns) or "all columns"
        return f"delete duplicates of {compared} from {self.target}, keep the {self.keep}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Find duplicates by a shuffle of the columns, and delete them."""
        return context.table(self.target, self.branch).dropDuplicates(
            self.columns or None, self.keep, self.order_by, job_id=context.job_id
        )


@dataclass(frozen=True, kw_only=True)
class IndexStep(TableStep):
    """Build an index; see :meth:`glaive.spark.LanceTable.createIndex`.

    Parameters
    ----------
    column, index_type
        The column, and the type of index: ``btree``, ``inverted``, ``ivf_pq``, …
    name
        Name of the index.
    metric
        Distance of vectors.
    update
        Add new rows to all indices, instead of building an index.
    options
        Parameters of the type, such as ``num_partitions``.
    """

    column: str | None = None
    index_type: str | None = None
    name: str | None = None
    metric: str = "L2"
    update: bool = False
    options: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse a step unless it either builds or updates."""
        if self.update and (self.column is not None or self.index_type is not None):
            raise OptionError("update: leave out column and index_type")
        if not self.update and (self.column is None or self.index_type is None):
            raise OptionError("column: give column and index_type, or update = true")

    def summary(self) -> str:
        """Return a description of the work."""
        if self.update:
            return f"bring the indices of {self.target} up to date"
        return f"index {self.column} of {self.target} ({self.index_type})"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Build a segment in each task."""
        table = context.table(self.target, self.branch)
        if self.column is None or self.index_type is None:
            return {"version": table.optimizeIndices(job_id=context.job_id)}
        options: dict[str, Any] = dict(self.options or {})
        return table.createIndex(
            self.column,
            self.index_type,
            self.name,
            metric=self.metric,
            job_id=context.job_id,
            **options,
        )


@dataclass(frozen=True, kw_only=True)
class OptimizeStep(TableStep):
    """Compact or cluster; see :meth:`glaive.spark.LanceTable.optimize`.

    Parameters
    ----------
    where
        Compact only fragments with a row that meets this condition.
    cluster_by
        Sort by these columns, along a curve if there are several.
    curve
        ``hilbert`` or ``zorder``.
    options
        Options of the compaction, such as ``target_rows_per_fragment``.
    """

    where: str | None = None
    cluster_by: tuple[str, ...] = ()
    curve: Literal["hilbert", "zorder"] = "hilbert"
    options: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse options that clustering lacks."""
        others = set(self.options or ()) - {"target_rows_per_fragment"}
        if self.cluster_by and others:
            raise OptionError(
                f"options: with cluster_by only target_rows_per_fragment, found "
                f"{', '.join(sorted(others))}"
            )

    def summary(self) -> str:
        """Return a description of the work."""
        if self.cluster_by:
            return f"cluster {self.target} by {', '.join(self.cluster_by)}"
        return f"compact {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Rewrite the files in tasks."""
        builder = context.table(self.target, self.branch).optimize()
        if self.where is not None:
            builder = builder.where(self.where)
        options: dict[str, Any] = dict(self.options or {})
        if self.cluster_by:
            return builder.executeClusterBy(
                *self.cluster_by, curve=self.curve, job_id=context.job_id, **options
            )
        return builder.executeCompaction(job_id=context.job_id, **options)


@dataclass(frozen=True, kw_only=True)
class VacuumStep(TargetStep):
    """Clean up; see :meth:`glaive.spark.LanceTable.vacuum`.

    Parameters
    ----------
    target
        The dataset.
    retention_hours
        Age of the versions to delete, in hours; default: two weeks.
    """

    retention_hours: float | None = None

    def check(self) -> None:
        """Refuse an age that is negative or too long."""
        if self.retention_hours is not None:
            age_of("retention_hours", self.retention_hours, timedelta(hours=1))

    def summary(self) -> str:
        """Return a description of the work."""
        age = "two weeks" if self.retention_hours is None else f"{self.retention_hours:g} hours"
        return f"delete versions of {self.target} older than {age}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Delete old versions and unused files."""
        return context.table(self.target).vacuum(self.retention_hours)


@dataclass(frozen=True, kw_only=True)
class PublishStep(TargetStep):
    """Make a branch the newest version; see ``LanceTable.publish``.

    Parameters
    ----------
    target
        The dataset.
    branch
        The branch.
    expect
        Conditions in the filter language that all rows of the branch must meet.
    """

    branch: str
    expect: str | Mapping[str, str] | None = None

    @property
    def branch_written(self) -> str | None:
        """``None``: a publication writes to the main branch."""
        return None

    def check(self) -> None:
        """Refuse an invalid condition."""
        self._expectations()

    def summary(self) -> str:
        """Return a description of the work."""
        return f"publish branch {self.branch} of {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Check the rows of the branch, then move the main branch."""
        table: Any = context.table(self.target)
        counts: Mapping[str, int]
        if context.made_by(context.job_id, self.target) is not None:
            # The checked rows were published; the branch may have other rows now, or be deleted.
            counts = table.publish(self.branch, job_id=context.job_id)
            return counts
        store = context.dataset(self.target, self.branch).store
        staged = LanceDataset.of(store, open_newest(store))
        expectations = self._expectations()
        for name, text in () if expectations is None else expectations.conditions:
            violating = staged.count_rows() - staged.count_rows(text)
            if violating:
                raise ExpectationError(
                    f"step {context.name}: {violating:,} rows of branch {self.branch} of "
                    f"{self.target} violate the expectation {name}: {text}. Correct the branch; "
                    "nothing was published"
                )
        # Others may have written unchecked rows to the branch since then.
        version = None if expectations is None else staged.version
        counts = table.publish(self.branch, version=version, job_id=context.job_id)
        return counts

    def _expectations(self) -> Expectations | None:
        return Expectations.of(self.expect, "fail", has_quarantine=False)


@dataclass(frozen=True, kw_only=True)
class ExportStep(Step):
    """Export; see :meth:`glaive.spark.LanceTable.export`.

    Parameters
    ----------
    source, branch
        The dataset.
    path
        The folder to write.
    format
        ``parquet``, ``csv``, ``json``, ``arrow`` or ``feather``.
    mode
        How to treat existing files. By default the step replaces them.
    options
        Options of the format.
    """

    source: DatasetName
    path: str = field(repr=False)  # a URL may have a password
    branch: str | None = None
    format: str = "parquet"
    mode: Literal["errorifexists", "append", "overwrite", "ignore"] = "overwrite"
    options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the dataset."""
        return (self.source,)

    def summary(self) -> str:
        """Return a description of the work."""
        return f"export {self.source} as {self.format} to {self.path}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Write the files."""
        table = context.table(self.source, self.branch)
        folder = Path(context.folder, Path(self.path).expanduser())
        path = self.path if "://" in self.path else str(folder)
        options: dict[str, Any] = dict(self.options or {})
        counts: dict[str, int] = table.export(
            self.format, path, self.mode, job_id=context.job_id, **options
        )
        return {"rows": counts["num_rows"]}


@dataclass(frozen=True, kw_only=True)
class PythonStep(Step):
    """Call a function with the :class:`StepContext`.

    Parameters
    ----------
    function
        ``module:function``; the function returns counts by name, or ``None``. Give its jobs the
        ``job_id`` of the context, so that a continued run skips finished jobs.
    inputs, outputs
        Datasets that the function reads and writes.
    arguments
        Keyword arguments of the function.
    """

    function: str
    inputs: tuple[DatasetName, ...] = ()
    outputs: tuple[DatasetName, ...] = ()
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def check(self) -> None:
        """Check that the string names a function."""
        check_function(self.function)

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the datasets that the file names."""
        return self.inputs

    def writes(self) -> tuple[str, ...]:
        """Return the datasets that the file names."""
        return self.outputs

    def summary(self) -> str:
        """Return a description of the work."""
        return f"call {self.function}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Call the function in this process.

        Raises
        ------
        OptionError
            The function is missing, or it returned another type.
        """
        returned: Any = function_named(self.function)(context, **(self.arguments or {}))
        if returned is None:
            return {}
        if not isinstance(returned, Mapping) or not all(
            isinstance(key, str) and isinstance(value, int) for key, value in returned.items()
        ):
            raise OptionError(
                f"function {self.function}: it must return integers by name, or nothing; it "
                f"returned {returned!r:.80}"
            )
        return returned


KINDS: Final[dict[str, type[Step]]] = {
    "add_columns": AddColumnsStep,
    "dedupe": DedupeStep,
    "export": ExportStep,
    "index": IndexStep,
    "ingest": IngestStep,
    "merge": MergeStep,
    "optimize": OptimizeStep,
    "publish": PublishStep,
    "python": PythonStep,
    "sql": SqlStep,
    "vacuum": VacuumStep,
}

for _name, _made in KINDS.items():
    _made.kind = _name
