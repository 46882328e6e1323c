"""``table.merge(source, condition)``: update, delete and insert by a join, with Delta's clauses."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from pyspark.sql.types import LongType

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.merging.merge_insert import refuse_blob_keys
from glaive.dataset.merging.rows import merged_numbers
from glaive.dataset.merging.source import MergeClauses, primary_key
from glaive.dataset.tasks import commit_operation
from glaive.dataset.writing.rules import refuse_given
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.field import quoted_name, unquoted_name
from glaive.format.manifest import Feature
from glaive.options import one_of
from glaive.spark.api import CASE_SENSITIVE, is_set, version_frame
from glaive.spark.failures import naming_columns
from glaive.spark.filters import ordered
from glaive.spark.frame import frame_schema
from glaive.spark.frame_writing import planned_bytes
from glaive.spark.merging import (
    ADDRESS,
    CLAUSE,
    MAX_SOURCE_BYTES,
    ROW_ID,
    VALUE,
    MatchTask,
    MergedRows,
    MergeRows,
    RowClause,
    SmallMerge,
    commit_merge,
    refuse_reserved,
    written_rows,
)
from glaive.spark.options import Options
from glaive.spark.runner import SparkJob, SparkRunner
from glaive.spark.types import (
    columns_in,
    matching,
    refuse_same_without_case,
    refuse_unassignable,
    repeated_column,
    spark_arrow_schema,
    stored_schema,
    stored_types,
    to_spark,
    without_case,
)
from glaive.table.configuration import has_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.fields import LanceSchema
    from glaive.format.manifest import Manifest


# --- The keys of a merge: equalities in its condition, and their values in the source ----
# Only clauses for unmatched rows of the table need rows that lack a key of the source. For other
# clauses, tasks look for the source's keys, and Spark joins the found rows.

MAX_KEYS: Final = 1 << 20
"""Keys of a source that this process holds; with more, Spark joins all rows of the table."""

_RANK: Final = "__glaive_rank"

_OPAQUE: Final = ("--", "/*", "${", "\\", '"')
"""Signs of comments, variables, escapes and quotes, which settings of Spark may change."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns that must be equal: one of the table, one of the source with its alias."""

    column: str
    alias: str
    other: str


def equalities(condition: str | Column, name: str | None) -> tuple[list[Equality], bool]:
    """Return columns that a condition requires to be equal, and whether it only requires this.

    Parameters
    ----------
    condition
        The condition of a merge. glaive finds the columns only in a string; a Spark column hides
        them.
    name
        The alias of the table. With ``None``, the owner of a named column is unknown.
    """
    if not isinstance(condition, str) or name is None or any(map(condition.__contains__, _OPAQUE)):
        return [], False
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        parsed: Any = parse_one(condition, dialect="spark")
    except (SqlglotError, RecursionError):  # Spark says what is wrong, or knows better
        return [], False
    terms = parsed.flatten() if isinstance(parsed, exp.And) else [parsed]
    found = [_equality(term, name) for term in terms]
    return [one for one in found if one is not None], None not in found


def _equality(term: Any, name: str) -> Equality | None:
    from sqlglot import exp

    sides = [term.this, term.expression] if isinstance(term, exp.EQ) else []
    if not sides or not all(isinstance(one, exp.Column) and len(one.parts) == 2 for one in sides):
        return None
    first, second = sides
    if (first.table.lower() == name.lower()) == (second.table.lower() == name.lower()):
        return None
    mine, other = sides if first.table.lower() == name.lower() else (second, first)
    return Equality(mine.name, other.table, other.name)


def source_keys(
    source: DataFrame, pairs: Iterable[Equality], stored: LanceSchema
) -> pa.Table | None:
    """Return the keys of a source, with the names and types of the table's columns.

    Returns
    -------
    pyarrow.Table or None
        At most :data:`MAX_KEYS` keys, all valid. ``None`` if there are more keys, or columns have
        different values on both sides.

    Notes
    -----
    This runs the source once. Keys that no value of the column can equal are left out.
    """
    known = _columns(stored)
    found = key_columns(source, [pair for pair in pairs if pair.column.lower() in known], stored)
    if found is None:
        return None
    values: Any = [column.alias(field.name) for field, column in found]
    possible = reduce(and_, (_possible(field, column) for field, column in found))
    keys = source.where(possible).select(*values).limit(MAX_KEYS + 1).toArrow()
    if keys.num_rows > MAX_KEYS:
        return None
    return keys.cast(pa.schema([field.with_nullable(True) for field, _ in found]))


def _possible(field: Any, column: Column) -> Column:
    """Return whether the column may contain a value of the source."""
    bounds = ordered(field.type) if pa.types.is_integer(field.type) else None
    if bounds is None:
        return column.isNotNull()
    return column.between(bounds.minimum, bounds.maximum)


def key_columns(
    source: DataFrame, pairs: Sequence[Equality], stored: LanceSchema
) -> list[tuple[pa.Field[Any], Column]] | None:
    """Return the columns of the table for which a source has keys, with the source columns.

    Returns
    -------
    list or None
        ``None`` if such columns are missing, or have different values on both sides.
    """
    columns = _columns(stored)
    if not pairs or any(pair.column.lower() not in columns for pair in pairs):
        return None
    named = [columns[pair.column.lower()] for pair in pairs]
    if len({field.name for field in named}) < len(named):
        return None
    keys = _source_keys(pairs)
    values: Any = [key.alias(field.name) for key, field in zip(keys, named, strict=True)]
    try:
        selected = source.select(*values)
        sent = spark_arrow_schema(selected.schema)
    except AnalysisException:  # the source lacks the columns: Spark reports it, or knows better
        return None
    if not all(_is_same(field, sent.field(field.name).type, selected.schema) for field in named):
        return None
    return list(zip(named, keys, strict=True))


def one_row_per_key(
    source: DataFrame,
    condition: str | Column,
    name: str | None,
    keep: Literal["first", "last"],
    by: str,
) -> DataFrame:
    """Return a source with the first or last row of each key by a column.

    Rows with a null in their key are unequal to all others, and are kept.

    Raises
    ------
    OptionError
        The condition requires more than equal columns.
    """
    pairs, complete = equalities(condition, name)
    if not complete:
        raise OptionError(
            "onDuplicateSource: the condition of the merge must be a string of equalities between "
            "columns of the table and of the source, such as 't.id = s.id and "
            f"t.day = s.day', found {condition!r}"
        )
    column = F.col(quoted_name(by) if by in source.columns else by)
    order = column.asc() if keep == "first" else column.desc()
    keys = _source_keys(pairs)
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(order))
    no_key = reduce(or_, (key.isNull() for key in keys))
    return source.withColumn(_RANK, rank).where((F.col(_RANK) == 1) | no_key).drop(_RANK)


@contextmanager
def evaluated_once(source: DataFrame) -> Iterator[None]:
    """Keep the rows of a source in the cluster, so that two reads give the same rows."""
    level = source.storageLevel
    if level.useMemory or level.useDisk:  # its user keeps it
        yield
        return
    source.persist()
    try:
        yield
    finally:
        source.unpersist()


def can_lose_rows(spark: SparkSession) -> bool:
    """Return whether kept rows may be lost; rows in the driver's process are safe.

    Spark computes lost rows again, and a source that varies then gives other rows.
    """
    master = spark.conf.get("spark.master", None) or ""
    return re.fullmatch(r"local(?:\[.*\])?", master) is None


def same_keys(first: pa.Table, second: pa.Table | None) -> bool:
    """Return whether the keys of a source are the same, in any order."""
    if second is None or first.num_rows != second.num_rows:
        return False
    by: Any = [(name, "ascending") for name in first.column_names]
    return bool(first.equals(second) or first.sort_by(by).equals(second.sort_by(by)))


def _source_keys(pairs: Iterable[Equality]) -> list[Column]:
    """Return the source sides as the condition names them: ``s.id`` may be a member of ``s``."""
    return [F.col(f"{quoted_name(pair.alias)}.{quoted_name(pair.other)}") for pair in pairs]


def _columns(stored: LanceSchema) -> Mapping[str, Any]:
    """Return top-level columns by Spark's names; omit names that differ in case only."""
    by_name: dict[str, list[Any]] = {}
    for field in stored.to_arrow():
        by_name.setdefault(field.name.lower(), []).append(field)
    return {name: fields[0] for name, fields in by_name.items() if len(fields) == 1}


def _is_same(field: pa.Field, sent: pa.DataType, schema: Any) -> bool:
    """Return whether values that are equal in Arrow are also equal in Spark."""
    types = pa.types
    mine = field.type
    if types.is_integer(mine):
        return bool(types.is_integer(sent) and not types.is_uint64(mine))
    if types.is_string(mine) or types.is_large_string(mine):
        # Strings with a collation, and strings of fixed length, compare differently.
        return bool(schema[field.name].dataType.simpleString() == "string")
    return bool(types.is_date32(mine) and types.is_date32(sent))


# --- The join of a merge: source rows with keys and addresses of the table, and actions --
# Spark evaluates conditions and expressions, so that they mean the same as in its SQL.

_SOURCE = "__glaive_source"
"""Column of the source that is null if no row of it matched."""

_NUMBER = "__glaive_number"

_BROADCAST_KEYS = 1 << 16
"""Maximum keys of a source for which matching rows are broadcast instead of shuffled."""

Rows = Literal["matched", "not matched", "not matched by source"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a merge.

    Parameters
    ----------
    rows
        The kind of rows that the clause is for.
    action
        The action for these rows.
    condition
        A condition on these rows, in Spark SQL or as a column; ``None`` for all.
    values
        Expressions by column; ``None`` for all columns of the source.
    """

    rows: Rows
    action: RowClause
    condition: str | Column | None
    values: Mapping[str, str | Column] | None


def joined_rows(
    opened: OpenedVersion,
    target: DataFrame,
    source: DataFrame,
    condition: str | Column,
    clauses: tuple[Clause, ...],
) -> tuple[DataFrame, tuple[RowClause, ...]]:
    """Return one row for each change: number of the clause, address, id, and values.

    Returns
    -------
    DataFrame
        The rows.
    tuple
        For each clause, its action and the columns with its values.
    """
    joined = target.join(
        source.withColumn(_SOURCE, F.lit(True)), _column(condition), _kind(clauses)
    )
    has_target = F.col(ADDRESS).isNotNull()
    has_source = F.col(_SOURCE).isNotNull()
    rows = {
        "matched": has_target & has_source,
        "not matched": ~has_target,
        "not matched by source": ~has_source,
    }
    number = _first_true(
        (rows[clause.rows] & _holds(clause.condition), F.lit(at))
        for at, clause in enumerate(clauses)
    )
    values, actions = _values(opened.manifest.schema.names, clauses)
    numbered = joined.withColumn(_NUMBER, number).where(F.col(_NUMBER).isNotNull())
    system = [F.col(_NUMBER).cast("int").alias(CLAUSE), F.col(ADDRESS)]
    if opened.manifest.uses(Feature.STABLE_ROW_IDS):
        system.append(F.col(ROW_ID))
    columns = [
        F.when(F.col(_NUMBER).isin(at), _column(value)).alias(name)
        for name, (value, at) in values.items()
    ]
    return numbered.select(*system, *columns), actions


def replaced_rows(
    opened: OpenedVersion,
    target: DataFrame,
    source: DataFrame,
    condition: str | Column,
    clauses: tuple[Clause, ...],
) -> tuple[DataFrame, tuple[RowClause, ...]]:
    """Return a row for each row of the table that matches, to delete, and each row of the source.

    See :func:`joined_rows`; the clauses are a delete and an insert.
    """
    values, actions = _values(opened.manifest.schema.names, clauses)
    system = [ADDRESS, *([ROW_ID] if opened.manifest.uses(Feature.STABLE_ROW_IDS) else [])]
    new = source.select(
        F.lit(1).alias(CLAUSE),
        *(F.lit(None).cast("long").alias(name) for name in system),
        *(_column(value).alias(name) for name, (value, _) in values.items()),
    )
    nulls = [F.lit(None).cast(new.schema[name].dataType).alias(name) for name in values]
    old = target.join(source, _column(condition), "left_semi")
    return old.select(F.lit(0).alias(CLAUSE), *system, *nulls).unionByName(new), actions


def _values(
    names: Sequence[str], clauses: tuple[Clause, ...]
) -> tuple[dict[str, tuple[str | Column, list[int]]], tuple[RowClause, ...]]:
    """Return values by the columns that hold them, with the numbers of their clauses.

    Each value of a column gets a separate column: Spark would give several values one type, and
    numbers would lose digits.
    """
    values: dict[str, tuple[str | Column, list[int]]] = {}
    sent: list[dict[str, str]] = [{} for _ in clauses]
    for name in names:
        known: dict[object, str] = {}
        for at, clause in enumerate(clauses):
            if name in (given := clause.values or {}):
                key = given[name] if isinstance(given[name], str) else id(given[name])
                column = known.setdefault(key, f"{VALUE}{len(known)}_{name}" if known else name)
                values.setdefault(column, (given[name], []))[1].append(at)
                sent[at][name] = column
    actions = tuple(
        replace(clause.action, sent=tuple(by[name] for name in clause.action.columns))
        for clause, by in zip(clauses, sent, strict=True)
    )
    return values, actions


def _kind(clauses: Iterable[Clause]) -> str:
    needed = {clause.rows for clause in clauses}
    if {"not matched", "not matched by source"} <= needed:
        return "full"
    if "not matched" in needed:
        return "right"
    return "left" if "not matched by source" in needed else "inner"


def target_frame(
    spark: SparkSession,
    opened: OpenedVersion,
    columns: Iterable[str],
    name: str | None,
    *,
    blobs: Literal["descriptor", "bytes"] = "descriptor",
) -> DataFrame:
    """Return columns of a version with :data:`ADDRESS`, and :data:`ROW_ID` if ids are stable.

    Raises
    ------
    SchemaError
        A column has one of these names.
    """
    columns = list(columns)
    refuse_reserved(columns, opened.uri)
    stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
    frame = version_frame(
        spark, opened, columns=columns, with_row_address=True, with_row_id=stable, blobs=blobs
    )
    frame = frame.withColumnRenamed("_rowaddr", ADDRESS).withColumnRenamed("_rowid", ROW_ID)
    return frame if name is None else frame.alias(name)


def matching_frame(
    spark: SparkSession,
    opened: OpenedVersion,
    columns: Iterable[str],
    name: str | None,
    keys: pa.Table,
) -> DataFrame:
    """Return rows of :func:`target_frame` with one of these keys, which tasks look for.

    Parameters
    ----------
    keys
        The keys, in columns with the names and types of the table's columns.
    """
    runner = SparkRunner(spark)
    options = Options(uri=opened.uri, columns=tuple(columns))
    schema = to_spark(frame_schema(LanceDataset.holding(opened), options))
    schema = schema.add(ADDRESS, LongType())
    if opened.manifest.uses(Feature.STABLE_ROW_IDS):
        schema = schema.add(ROW_ID, LongType())
    tasks = [MatchTask(part, spark_arrow_schema(schema)) for part in runner.parts(opened)]
    if not tasks:
        return target_frame(spark, opened, columns, name)
    frame = runner.rows_of(opened, tasks, schema, keys)
    if keys.num_rows <= _BROADCAST_KEYS:
        frame = F.broadcast(frame)
    return frame if name is None else frame.alias(name)


def _columns_named(
    opened: OpenedVersion, name: str | None, condition: str | Column, clauses: Iterable[Clause]
) -> list[str]:
    """Return the columns of the table that are named, which include all used columns."""
    texts = [str(condition)]
    for clause in clauses:
        texts.append(str(clause.condition))
        texts += map(str, (clause.values or {}).values())
    text = "\n".join(texts).lower()
    if name is not None and re.search(rf"\b{re.escape(name.lower())}`?\s*\.\s*\*", text):
        raise OptionError(
            f"a merge reads the columns that are named only: name those meant by {name}.*"
        )
    names = opened.manifest.schema.names
    return columns_in(text, names, "a merge") or names[:1]


def _column(given: str | Column) -> Column:

    return F.expr(given) if isinstance(given, str) else given


def _holds(condition: str | Column | None) -> Column:

    return F.lit(True) if condition is None else _column(condition)


def _first_true(cases: Iterable[tuple[Column, Column]]) -> Column:
    """Return the value of the first case that is true, else null."""
    first, *others = cases
    chain: Any = reduce(lambda made, case: made.when(*case), others, F.when(*first))
    value: Column = chain.otherwise(None)
    return value


# --- Merges by one task: of a small source into whole rows, by equal keys ---------------

_MAX_PLANNED_BYTES: Final = MAX_SOURCE_BYTES // 4
"""Maximum of Spark's estimate of a source for one task: files are compressed."""

_MAX_ROWS: Final = 1 << 25
"""Maximum rows of a table whose keys one task searches."""


def writes_all_columns(clause: Clause) -> bool:
    """Return whether a clause, as its user gave it, takes all columns of all its source rows."""
    whole = clause.values is None or clause.action.action == "delete"
    return whole and clause.condition is None and clause.rows != "not matched by source"


def is_for_one_task(opened: OpenedVersion, source: DataFrame) -> bool:
    """Return whether table and source are small, if Spark knows sizes."""
    if opened.snapshot.num_rows > _MAX_ROWS:
        return False
    size = planned_bytes(source)
    return size is not None and size <= _MAX_PLANNED_BYTES


_ROWS_PER_TASK = 1 << 16
"""Rows of a source per task that writes, if their number is known."""

Values = Mapping[str, "str | Column"]


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """Collects the clauses of a merge; made by ``LanceTable.merge``.

    For each row glaive applies the first clause of its kind whose condition is true. Each method
    returns a new builder. With ``replaces``, matched rows are deleted, and all rows of the source
    inserted.
    """

    spark: SparkSession
    dataset: LanceDataset
    name: str | None
    source: DataFrame
    condition: str | Column
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False
    duplicates: tuple[Literal["first", "last"], str] | None = None
    replaces: bool = False

    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> MergeBuilder:
        """Update matched rows: expressions over both sides, in Spark SQL, by column.

        Parameters
        ----------
        condition
            Condition over both sides; default: all matched rows.
        set
            Expressions by column: ``{"price": "s.price", "seen": "t.seen + 1"}``. ``"t.price"`` may
            also name the column. Other columns keep their values.
        """
        return self._with("matched", "update", condition, _given(set, "set"))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> MergeBuilder:
        """Update matched rows with all columns of the source."""
        return self._with("matched", "update", condition, None)

    def whenMatchedDelete(self, condition: str | Column | None = None) -> MergeBuilder:
        """Delete matched rows."""
        return self._with("matched", "delete", condition, {})

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Values | None = None
    ) -> MergeBuilder:
        """Insert unmatched rows of the source; the other columns become null."""
        return self._with("not matched", "insert", condition, _given(values, "values"))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> MergeBuilder:
        """Insert unmatched rows of the source, with all its columns."""
        return self._with("not matched", "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> MergeBuilder:
        """Update unmatched rows of the table; use the table's columns only."""
        return self._with("not matched by source", "update", condition, _given(set, "set"))

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> MergeBuilder:
        """Delete unmatched rows of the table."""
        return self._with("not matched by source", "delete", condition, {})

    def withSchemaEvolution(self) -> MergeBuilder:
        """Add columns that only the source has, if a clause takes all its columns.

        A separate version adds them, with nulls, before the merge.
        """
        return replace(self, evolves=True)

    def onDuplicateSource(self, keep: Literal["first", "last"], by: str) -> MergeBuilder:
        """Use the first or last, by a column, of several source rows with the same keys.

        By default, several source rows that change the same row raise an error. Source rows with a
        null in their keys match nothing; the merge uses all of them.

        Raises
        ------
        OptionError
            ``keep`` differs from "first" and "last".
        """
        one_of("first", "last").check("onDuplicateSource", keep)
        return replace(self, duplicates=(keep, by))

    def execute(
        self, *, job_id: str | None = None, txn: tuple[str, int] | None = None
    ) -> dict[str, int]:
        """Run the merge as one job and commit it as one version.

        Parameters
        ----------
        job_id
            Name of this job: a second run with the same name returns the result of the first.
        txn
            An application and the number of its transaction, such as ``("my stream", 7)``. The
            merge is skipped if the table has this number of the application or a higher one.

        Returns
        -------
        dict
            ``num_inserted_rows``, ``num_updated_rows``, ``num_deleted_rows``, ``version``. For a
            transaction that was applied before, only ``version``.

        Raises
        ------
        OptionError
            The merge lacks a clause, a clause lacks values, a string has a ``*`` for all columns,
            or ``txn`` is invalid.
        ColumnNotFoundError, SchemaError
            A column is missing, or a value does not fit its column. Or several rows of the source
            change the same row; the message names it. The table is unchanged.
        UnsupportedFeatureError
            The condition compares a blob column.
        CommitContentionError
            Other writers changed the same rows at every attempt. The table is unchanged.

        Notes
        -----
        The merge runs in one of three ways:

        - One task does everything, if the merge is small. The condition is a string that only
          requires equal columns. All clauses take whole rows of the source unconditionally. The
          source has up to 16 MiB in the plan of Spark, and the table up to 32 million rows. Spark
          Connect hides sizes, so its merges run in the other ways.
        - Tasks look for rows with the keys of the source, by statistics and indices, and Spark
          joins the source with these rows. The condition requires columns of both sides to be
          equal, and the source has up to a million keys.
        - Otherwise, and for clauses on unmatched rows of the table, Spark reads and joins all rows.
          It reads only the columns that the condition and the clauses name.

        Tasks read the other columns of updated rows by address, and write updated and inserted
        rows to new files. Spark evaluates the source once per attempt. If lost executors held its
        rows, and it then gives other rows, Spark evaluates it once more, with all rows of the
        table.
        """
        if not self.clauses:
            raise OptionError("the merge has no clauses: add some, such as whenMatchedUpdateAll()")
        self.dataset.checkout_latest()
        job = SparkJob.of(self.spark, job_id, txn)
        if self.evolves and job.made(self.dataset) is None:
            self._add_columns()

        return job.change(self.dataset, self._merge)

    def _merge(self, opened: OpenedVersion, commit: Job) -> tuple[Manifest, Any]:
        """Write the changes, and commit them."""
        refuse_reserved(self.source.columns, "the source")
        refuse_reserved(opened.manifest.schema.names, opened.uri)
        pairs, _ = equalities(self.condition, self.name)
        refuse_blob_keys([pair.column for pair in pairs], opened.manifest.schema)
        clauses = self._resolved(opened)
        for clause in clauses:
            refuse_given(opened.manifest.schema, clause.values or ())
        made = self._merge_in_one_task(opened, clauses, commit)
        if made is not None:
            return made
        parts = self._merge_by_join(opened, clauses, commit)
        return commit_merge(opened, parts, [clause.action for clause in clauses], commit)

    def _merge_in_one_task(
        self, opened: OpenedVersion, clauses: tuple[Clause, ...], commit: Job
    ) -> tuple[Manifest, None] | None:
        """Run the merge in one task; return ``None`` if it is too large for one."""
        schema = opened.manifest.schema
        pairs, complete = equalities(self.condition, self.name)
        plain = complete and not self.replaces and all(map(writes_all_columns, self.clauses))
        if not plain or not is_for_one_task(opened, self.source):
            return None
        keys = key_columns(self.source, pairs, schema)
        first = {clause.rows: clause for clause in reversed(clauses)}
        values: dict[str, Any] = {}
        for clause in first.values():
            values |= clause.values or {}
        given = matching(self.source.columns, schema.names) if values else {}
        aliases = {name.lower() for name in self.source.columns}
        if keys is None or any(
            (given and (given.get(field.name, "").lower() != pair.other.lower()))
            or pair.alias.lower() in aliases
            for (field, _), pair in zip(keys, pairs, strict=True)
        ):
            return None
        values = {field.name: column for field, column in keys} | values
        action = first["matched"].action.action if "matched" in first else "ignore"
        task = SmallMerge(
            opened.manifest.version,
            tuple(values),
            MergeClauses(
                on=tuple(field.name for field, _ in keys),
                update=action == "update",
                delete=action == "delete",
                insert="not matched" in first,
                compression="balanced",
            ),
        )
        named = [value.alias(name) for name, value in values.items()]
        frame = self._ranked().select(*named).repartition(1)
        stored = stored_types(schema.project(list(values)))
        refuse_unassignable(spark_arrow_schema(frame.schema), stored, where=opened.uri)
        runner: Any = commit.runner  # runs tasks in a Spark session
        results = runner.run_on_rows(opened, frame, task)
        if len(results) != 1 or results[0] is None:
            return None
        operation, counts = results[0]
        properties = commit.recording(**counts) | merged_numbers(opened, counts)
        return commit_operation(opened, operation, properties=properties, once=commit.once), None

    def _merge_by_join(
        self, opened: OpenedVersion, clauses: tuple[Clause, ...], commit: Job
    ) -> list[MergedRows]:
        """Return what tasks wrote for a join; join only rows with source keys if that suffices."""
        pairs, _ = equalities(self.condition, self.name)
        if self.replaces and not pairs:
            with evaluated_once(self.source):
                return self._joined(opened, clauses, commit, None)
        if not pairs or any(clause.rows == "not matched by source" for clause in clauses):
            return self._joined(opened, clauses, commit, None)
        with evaluated_once(self.source):
            keys = source_keys(self.source, pairs, opened.manifest.schema)
            parts = self._joined(opened, clauses, commit, keys)
            if keys is None or not can_lose_rows(self.spark):
                return parts
            again = source_keys(self.source, pairs, opened.manifest.schema)
        if same_keys(keys, again):
            return parts
        # A lost executor held rows whose keys were searched: other rows were joined.
        return self._joined(opened, clauses, commit, None)

    def _joined(
        self, opened: OpenedVersion, clauses: tuple[Clause, ...], commit: Job, keys: pa.Table | None
    ) -> list[MergedRows]:
        with naming_columns(self._column_names(opened), f"{opened.uri} or the source"):
            used = _columns_named(opened, self.name, self.condition, clauses)
            if keys is None:
                target = target_frame(self.spark, opened, used, self.name)
            else:
                used = list(dict.fromkeys([*used, *keys.column_names]))
                target = matching_frame(self.spark, opened, used, self.name, keys)
            join = replaced_rows if self.replaces else joined_rows
            frame, actions = join(opened, target, self._ranked(), self.condition, clauses)
        if keys is not None:  # few rows: as many files as pay off
            frame = frame.coalesce(1 + keys.num_rows // _ROWS_PER_TASK)
        task = MergeRows(opened.manifest.version, actions, self._primary_key(opened))
        return written_rows(opened, frame, task, commit)

    def _column_names(self, opened: OpenedVersion) -> list[str]:
        """Return the columns that conditions and values may name."""
        pairs, _ = equalities(self.condition, self.name)
        mine = "" if self.name is None else f"{self.name}."
        others = f"{pairs[0].alias}." if pairs else ""
        columns = [mine + name for name in opened.manifest.schema.names]
        return list(dict.fromkeys([*columns, *(others + name for name in self.source.columns)]))

    def _ranked(self) -> DataFrame:
        """Return the source, with one row for each key if the user chose first or last."""
        if self.duplicates is None:
            return self.source
        return one_row_per_key(self.source, self.condition, self.name, *self.duplicates)

    def _primary_key(self, opened: OpenedVersion) -> tuple[str, ...]:
        """Return the columns of the primary key, if these are the keys of the merge."""
        declared = primary_key(opened.manifest.schema)
        pairs, _ = equalities(self.condition, self.name)
        by = {pair.column.lower() for pair in pairs}
        return declared if by == {name.lower() for name in declared} else ()

    def _with(
        self, rows: Any, action: Any, condition: str | Column | None, values: Values | None
    ) -> MergeBuilder:
        clause = Clause(rows, RowClause(action), condition, values)
        return replace(self, clauses=(*self.clauses, clause))

    def _resolved(self, opened: OpenedVersion) -> tuple[Clause, ...]:
        """Return the clauses with the names of columns as the table spells them."""
        names = opened.manifest.schema.names
        there, spelled = set(names), without_case(names)
        where = opened.uri
        resolved = []
        of_source: dict[str, Column] | None = None  # the same columns for all clauses
        for clause in self.clauses:
            given = clause.values
            if given is None:
                schema = opened.manifest.schema
                given = of_source = of_source or self._star_columns(schema, clause, where)
            values = {}
            for name, value in given.items():
                column = self._column_named(name, there, spelled)
                if column is None:
                    raise ColumnNotFoundError.among(name, names, where=where)
                if column in values:
                    raise repeated_column(column, name)
                values[column] = value
            action = replace(clause.action, columns=tuple(values))
            resolved.append(replace(clause, action=action, values=values))
        return tuple(resolved)

    def _column_named(
        self, name: str, names: Container[str], spelled: Mapping[str, str]
    ) -> str | None:
        """Return the column of a name, which may be quoted or qualified by the table's name."""
        table, dot, column = name.partition(".")
        forms = [name, unquoted_name(name)]
        if dot and self.name is not None and unquoted_name(table).lower() == self.name.lower():
            forms.append(unquoted_name(column))
        found = (form if form in names else spelled.get(form.lower()) for form in forms)
        return next((one for one in found if one is not None), None)

    def _star_columns(self, schema: LanceSchema, clause: Clause, where: str) -> dict[str, Column]:
        names = schema.names
        given = matching(self.source.columns, names)
        needed = [one.name for one in schema.fields if not has_value(one)]
        missing = [name for name in needed if name not in given]
        if missing and not self.evolves:
            method = f"when…{clause.action.action.title()}All"
            raise ColumnNotFoundError(
                f"{method}: the source lacks columns of {where}: {', '.join(missing)}. Name the "
                "columns to set, or use withSchemaEvolution()"
            )
        return {name: self.source[quoted_name(given[name])] for name in names if name in given}

    def _add_columns(self) -> None:
        if all(clause.values is not None for clause in self.clauses):
            return
        known = matching(self.source.columns, self.dataset.lance_schema.names).values()
        stored = stored_schema(self.source.schema, ())
        added = [field.with_nullable(True) for field in stored if field.name not in known]
        if not is_set(self.spark, CASE_SENSITIVE):
            names = self.dataset.lance_schema.names
            refuse_same_without_case([field.name for field in added], names, "merge")
        if added:
            self.dataset.add_columns(pa.schema(added))


def _given(values: Values | None, keyword: str) -> Values:
    if not isinstance(values, Mapping) or not values:
        raise OptionError(
            f"{keyword}: expected expressions by column, such as {{'a': 's.a'}}, found {values!r}"
        )
    return values
