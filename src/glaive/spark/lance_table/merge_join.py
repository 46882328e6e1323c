"""The join of a merge: source rows with keys and addresses of the table, and what becomes of each.

Spark evaluates conditions and expressions, so that they mean what they mean in its SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, Self

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.versions.references import branch_of
from glaive.errors import OptionError
from glaive.format.column_path import quoted_name
from glaive.format.flags import Feature
from glaive.spark.api import read
from glaive.spark.frame import frame_schema
from glaive.spark.jobs.match_rows import MatchTask
from glaive.spark.jobs.merge_rows import (
    ADDRESS,
    CLAUSE,
    ROW_ID,
    VALUE,
    RowClause,
    refuse_reserved,
)
from glaive.spark.jobs.runner import SparkRunner
from glaive.spark.options import Options
from glaive.spark.types import spark_arrow_schema, to_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.version import OpenedVersion

__all__ = ["Clause", "JoinedRows", "columns_in", "matching_frame", "target_frame"]

_SOURCE = "__glaive_source"
"""Column of the source that is null where no row of it matched."""

_NUMBER = "__glaive_number"

_BROADCAST_KEYS = 1 << 16
"""Keys of a source up to which matching rows go to all workers, instead of being shuffled."""

_ALL_COLUMNS = re.compile(r"[(,]\s*\*\s*(?:[),]|except\b)")
"""A star that is no operator: nothing is before it that could be multiplied."""

Rows = Literal["matched", "not matched", "not matched by source"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a merge.

    Parameters
    ----------
    rows
        The rows it is for.
    action
        What it does with them.
    condition
        Which of them, in Spark SQL or as a column; ``None`` for all.
    values
        Expressions by column; ``None`` for all columns of the source.
    """

    rows: Rows
    action: RowClause
    condition: str | Column | None
    values: Mapping[str, str | Column] | None


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The rows that a merge changes, as a frame; :meth:`of` makes it."""

    opened: OpenedVersion
    target: DataFrame
    source: DataFrame
    name: str | None
    condition: str | Column
    clauses: tuple[Clause, ...]

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        opened: OpenedVersion,
        name: str | None,
        source: DataFrame,
        condition: str | Column,
        clauses: tuple[Clause, ...],
        keys: pa.Table | None = None,
    ) -> Self:
        """Join a source with a version; only the columns that the merge names are read.

        ``keys`` are those of the source: only rows that have one are joined.
        """
        used = _columns_named(opened, name, condition, clauses)
        if keys is None:
            target = target_frame(spark, opened, used, name)
        else:
            used = [*used, *(column for column in keys.column_names if column not in used)]
            target = matching_frame(spark, opened, used, name, keys)
        return cls(opened, target, source, name, condition, clauses)

    def frame(self) -> tuple[DataFrame, tuple[RowClause, ...]]:
        """One row for each change: number of the clause, address, id, and values.

        Returns
        -------
        DataFrame
            The rows.
        tuple
            What each clause does with its rows, and in which columns its values are.
        """
        from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

        source = self.source.withColumn(_SOURCE, F.lit(True))
        joined = self.target.join(source, _column(self.condition), self._kind())
        has_target = F.col(ADDRESS).isNotNull()
        has_source = F.col(_SOURCE).isNotNull()
        rows = {
            "matched": has_target & has_source,
            "not matched": ~has_target,
            "not matched by source": ~has_source,
        }
        number = _first_true(
            (rows[clause.rows] & _holds(clause.condition), F.lit(at))
            for at, clause in enumerate(self.clauses)
        )
        values, actions = self._values(joined)
        numbered = joined.withColumn(_NUMBER, number).where(F.col(_NUMBER).isNotNull())
        system = [F.col(_NUMBER).cast("int").alias(CLAUSE), F.col(ADDRESS)]
        if self.opened.manifest.uses(Feature.STABLE_ROW_IDS):
            system.append(F.col(ROW_ID))
        columns = [
            _first_true((F.col(_NUMBER) == at, value) for at, value in cases).alias(name)
            for name, cases in values.items()
        ]
        return numbered.select(*system, *columns), actions

    def _values(
        self, joined: DataFrame
    ) -> tuple[dict[str, list[tuple[int, Column]]], tuple[RowClause, ...]]:
        """Values by the columns that they are sent in, with the numbers of their clauses.

        One column for each that clauses set. Spark gives all values of a column one type, by which
        numbers lose digits: those of other types get columns of their own.
        """
        found = [
            (name, at, _column(clause.values[name]))
            for name in self.opened.manifest.schema.names
            for at, clause in enumerate(self.clauses)
            if clause.values and name in clause.values
        ]
        values: dict[str, list[tuple[int, Column]]] = {}
        sent: list[dict[str, str]] = [{} for _ in self.clauses]
        for (name, at, value), kind in zip(found, _kinds(joined, found), strict=True):
            column = name if kind == 0 else f"{VALUE}{kind}_{name}"
            values.setdefault(column, []).append((at, value))
            sent[at][name] = column
        actions = tuple(
            replace(clause.action, sent=tuple(by[name] for name in clause.action.columns))
            for clause, by in zip(self.clauses, sent, strict=True)
        )
        return values, actions

    def _kind(self) -> str:
        needed = {clause.rows for clause in self.clauses}
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
    """Some columns of a version with :data:`ADDRESS`, and :data:`ROW_ID` if ids are stable.

    Raises
    ------
    SchemaError
        One has a name like these.
    """
    columns = list(columns)
    refuse_reserved(columns, opened.uri)
    stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
    storage = opened.storage_options
    frame = read(
        spark,
        opened.uri,
        columns=columns,
        version=opened.manifest.version,
        branch=branch_of(opened.manifest),
        with_row_address=True,
        with_row_id=stable,
        blobs=blobs,
        storage_options=None if storage is None else dict(storage),
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
    """The rows of :func:`target_frame` with one of these keys, which tasks look for.

    Parameters
    ----------
    keys
        In columns with the names and types of those of the table.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
    from pyspark.sql.types import LongType

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
    """Columns of the table that are named: at least those that are used."""
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


def columns_in(text: str, names: Iterable[str], reader: str) -> list[str]:
    """Names that occur in a text in lower case, as they are or as they are within backticks.

    Raises
    ------
    OptionError
        The text means all columns by ``*``, also those that are not read.
    """
    if _ALL_COLUMNS.search(text):
        raise OptionError(f"{reader} reads the columns that are named only: name those meant by *")
    spelled = ((name, name.lower()) for name in names)
    return [name for name, low in spelled if low in text or quoted_name(low)[1:-1] in text]


def _kinds(joined: DataFrame, values: Sequence[tuple[str, int, Column]]) -> list[int]:
    """Numbers that differ for values of a column that Spark should not give a common type."""
    from pyspark.sql.types import ArrayType, MapType, NullType, NumericType, StringType, StructType

    if len({name for name, _, _ in values}) == len(values):
        return [0] * len(values)
    named = [value.alias(str(at)) for at, (_, _, value) in enumerate(values)]
    types = [field.dataType for field in joined.select(*named).schema]
    lossy = (NumericType, ArrayType, MapType, StructType)
    by_name: dict[str, list[Any]] = {}
    kinds = []
    for (name, _, _), data_type in zip(values, types, strict=True):
        known = by_name.setdefault(name, [])
        if not isinstance(data_type, NullType) and data_type not in known:
            known.append(data_type)
    for (name, _, _), data_type in zip(values, types, strict=True):
        known = by_name[name]
        of_collations = all(isinstance(one, StringType) for one in known)
        apart = data_type in known and (
            of_collations or any(isinstance(one, lossy) for one in known)
        )
        kinds.append(known.index(data_type) if apart else 0)
    return kinds


def _column(given: str | Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    return F.expr(given) if isinstance(given, str) else given


def _holds(condition: str | Column | None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    return F.lit(True) if condition is None else _column(condition)


def _first_true(cases: Iterable[tuple[Column, Column]]) -> Column:
    """The value of the first case that holds, else null."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    first, *others = cases
    chain: Any = reduce(lambda made, case: made.when(*case), others, F.when(*first))
    value: Column = chain.otherwise(None)
    return value
