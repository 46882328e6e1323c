"""``table.applyChanges(source, keys, sequence_by=…)``: apply a feed of changes in any order.

A sequence orders the changes of a row, so that late and repeated changes have no effect. The keys
and sequences of deletes are rows of a second dataset inside the directory of the table. So a late
change of a deleted row has no effect, either. The deletes are committed first. If the process ends
between both commits, applying the same changes again has the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

from glaive.dataclass import dataclass
from glaive.dataset.write import write_dataset
from glaive.errors import ColumnNotFoundError, DatasetNotFoundError, SchemaError
from glaive.format.field import quoted_name
from glaive.spark.api import version_frame
from glaive.spark.failures import naming_columns
from glaive.spark.lance_table.merge import MergeBuilder, columns_in, evaluated_once
from glaive.spark.types import matching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from glaive.dataset.dataset import LanceDataset

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
IS_CURRENT: Final = "is_current"
HISTORY: Final = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns of a history (``scd=2``): first and end sequence of a row, and whether it is the last."""

DELETED_KEYS: Final = "_deleted_keys"
"""Dataset of the deletes inside the directory of a table or branch."""

_SEQUENCE: Final = "__change_sequence"
_DELETED: Final = "__change_deleted"
_RESET: Final = "__change_reset"
_NEW: Final = "__change_new"
_UNTIL: Final = "__change_until"


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """How to apply changes; ``LanceTable.applyChanges`` explains the parameters."""

    keys: tuple[str, ...]
    sequence_by: str
    delete_where: str | Column | None
    ignore_null_updates: bool
    scd: Literal[1, 2]
    columns: tuple[str, ...] | None

    def apply(
        self, spark: SparkSession, dataset: LanceDataset, source: DataFrame, job_id: str | None
    ) -> dict[str, int]:
        """Apply the changes of a frame, and return the counts of the merge."""
        dataset.checkout_latest()
        changes = self._changes(source, self._columns(dataset, source))
        with evaluated_once(changes):
            deleted = changes.where(F.col(_DELETED)).select(*self._names(), _SEQUENCE)
            deletes = _Deletes(spark, dataset, self)
            if not deleted.isEmpty():
                deletes.add(deleted)
            merge = self._newest if self.scd == 1 else self._history
            return merge(spark, dataset, changes, deletes.frame()).execute(job_id=job_id)

    def writer(self, dataset: LanceDataset, source: DataFrame) -> DataStreamWriter:
        """Return a writer that applies each batch of a stream."""

        def apply(batch: DataFrame, _number: int) -> None:
            self.apply(batch.sparkSession, dataset, batch, None)

        # Spark repeats a batch after a crash: changes that were applied have no effect.
        return source.writeStream.foreachBatch(apply)

    def _names(self) -> list[str]:
        return [quoted_name(name) for name in self.keys]

    def order_column(self) -> str:
        """Return the column of the table that orders its rows."""
        return VALID_FROM if self.scd == 2 else self.sequence_by

    def _columns(self, dataset: LanceDataset, source: DataFrame) -> list[str]:
        """Return the columns that the changes set, as the table spells them.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            The table lacks a column.
        """
        names = dataset.lance_schema.names
        own = HISTORY if self.scd == 2 else (self.sequence_by,)
        for name in own:
            if name not in names:
                kind = "boolean" if name == IS_CURRENT else "the type of the sequence"
                raise SchemaError(
                    f"applyChanges with scd={self.scd}: {dataset.uri} lacks the column {name!r}. "
                    f"Add it, with {kind}: it keeps the order of the changes"
                )
        for name in (*self.keys, *(self.columns or ())):
            if name not in names:
                raise ColumnNotFoundError.among(name, names, where=dataset.uri)
        if self.columns is not None:
            return list(dict.fromkeys([*self.keys, *self.columns, *own]))
        given = source.columns
        only = columns_in(str(self.delete_where).lower(), given, "delete_where")
        known = matching(given, names)
        unknown = [
            name
            for name in given
            if name not in known.values() and name not in only and name != self.sequence_by
        ]
        if unknown:
            raise ColumnNotFoundError(
                f"applyChanges: {dataset.uri} lacks the columns {', '.join(unknown)} of the "
                "source. Add them, or name the columns to set in columns"
            )
        return list(dict.fromkeys([*known, *own]))

    def _changes(self, source: DataFrame, columns: Iterable[str]) -> DataFrame:
        """Return the changes with their sequence and whether they delete; keys must be valid."""
        spelled = {name.lower(): name for name in source.columns}

        def required(name: str, alias: str) -> Column:
            found = spelled.get(name.lower())
            if found is None:
                raise ColumnNotFoundError.among(name, source.columns, where="the source")
            message = f"applyChanges: a change has a null in {name}, which identifies or orders it"
            column = F.col(quoted_name(found))
            return F.coalesce(column, F.raise_error(F.lit(message))).alias(alias)

        given = self.delete_where
        deletes: Any = F.expr(given) if isinstance(given, str) else given
        with naming_columns(source.columns, "the source"):
            return source.select(
                *(required(name, name) for name in self.keys),
                required(self.sequence_by, _SEQUENCE),
                F.lit(False).alias(_DELETED)
                if deletes is None
                else F.coalesce(deletes, F.lit(False)).alias(_DELETED),
                *(
                    F.col(quoted_name(spelled[name.lower()])).alias(name)
                    for name in columns
                    if name not in self.keys and name.lower() in spelled and name not in HISTORY
                ),
            )

    def _newest(
        self,
        spark: SparkSession,
        dataset: LanceDataset,
        changes: DataFrame,
        deletes: DataFrame | None,
    ) -> MergeBuilder:
        """Return a merge that keeps the newest values of each row (``scd=1``)."""
        keys, order = self._names(), f"t.{quoted_name(self.sequence_by)}"
        own = (*self.keys, self.sequence_by, _SEQUENCE, _DELETED)
        values = [name for name in changes.columns if name not in own]
        if deletes is None:
            changes = changes.withColumn(
                _RESET, F.lit(None).cast(changes.schema[_SEQUENCE].dataType)
            )
        else:
            last = deletes.groupBy(*keys).agg(F.max(_SEQUENCE).alias(_RESET))
            changes = changes.join(last, list(self.keys), "left")
        sequence, reset = F.col(_SEQUENCE), F.col(_RESET)
        live = reset.isNull() | (sequence > reset)
        rows = changes.groupBy(*keys).agg(
            F.max(sequence).alias(_SEQUENCE),
            F.max(reset).alias(_RESET),
            (~F.max(live)).alias(_DELETED),
            *(self._last(name, live) for name in values),
        )
        updates: dict[str, str | Column] = {self.sequence_by: f"s.{_SEQUENCE}"}
        for name in values:
            column = quoted_name(name)
            updates[name] = f"s.{column}"
            if self.ignore_null_updates:
                kept = f"(s.{_RESET} is null or s.{_RESET} < {order})"
                updates[name] = f"coalesce(s.{column}, if({kept}, t.{column}, null))"
        inserts = {name: f"s.{quoted_name(name)}" for name in (*self.keys, *values)}
        inserts[self.sequence_by] = f"s.{_SEQUENCE}"
        merge = MergeBuilder(spark, dataset, "t", rows.alias("s"), self._condition())
        merge = merge.whenMatchedDelete(
            f"s.{_DELETED} and ({order} <= s.{_RESET} or {order} is null)"
        )
        newer = f"{order} < s.{_SEQUENCE} or {order} is null"
        merge = merge.whenMatchedUpdate(f"not s.{_DELETED} and ({newer})", updates)
        return merge.whenNotMatchedInsert(f"not s.{_DELETED}", inserts)

    def _last(self, name: str, live: Column) -> Column:
        """Return the last value of a column in the live changes of a row."""
        column = F.col(quoted_name(name))
        counts = live & column.isNotNull() if self.ignore_null_updates else live
        return F.max_by(column, F.when(counts, F.col(_SEQUENCE))).alias(name)

    def _condition(self) -> str:
        return " and ".join(f"t.{name} = s.{name}" for name in self._names())

    def _history(
        self,
        spark: SparkSession,
        dataset: LanceDataset,
        changes: DataFrame,
        deletes: DataFrame | None,
    ) -> MergeBuilder:
        """Return a merge that keeps all values of each row with their sequences (``scd=2``)."""
        keys = self._names()
        values = [n for n in changes.columns if n not in (*self.keys, _SEQUENCE, _DELETED)]
        changed = changes.select(*keys).distinct()
        there = version_frame(spark, dataset, columns=[*self.keys, VALID_FROM, VALID_TO])
        there = (
            there.join(changed, list(self.keys), "left_semi")
            .select(
                *keys,
                F.col(VALID_FROM).alias(_SEQUENCE),
                F.lit(False).alias(_DELETED),
                F.lit(False).alias(_NEW),
                F.col(VALID_TO).alias(_UNTIL),
            )
            .where(F.col(_SEQUENCE).isNotNull())
        )
        new = changes.where(~F.col(_DELETED)).dropDuplicates([*self.keys, _SEQUENCE])
        new = new.join(there.select(*keys, _SEQUENCE), [*self.keys, _SEQUENCE], "left_anti")
        events = new.withColumn(_NEW, F.lit(True)).unionByName(there, allowMissingColumns=True)
        if deletes is not None:
            ends = deletes.join(changed, list(self.keys), "left_semi")
            ends = ends.withColumn(_DELETED, F.lit(True)).withColumn(_NEW, F.lit(False))
            events = events.unionByName(ends, allowMissingColumns=True)
        order = Window.partitionBy(*keys).orderBy(_SEQUENCE, _DELETED)
        following = F.lead(_SEQUENCE).over(order)
        rows = events.select("*", following.alias(VALID_TO)).where(
            ~F.col(_DELETED) & (F.col(_NEW) | ~F.col(VALID_TO).eqNullSafe(F.col(_UNTIL)))
        )
        ended = {VALID_TO: f"s.{VALID_TO}", IS_CURRENT: f"s.{VALID_TO} is null"}
        named = {name: f"s.{quoted_name(name)}" for name in (*self.keys, *values)}
        condition = f"{self._condition()} and t.{VALID_FROM} = s.{_SEQUENCE}"
        merge = MergeBuilder(spark, dataset, "t", rows.alias("s"), condition)
        merge = merge.whenMatchedUpdate(None, ended)
        return merge.whenNotMatchedInsert(None, {**named, VALID_FROM: f"s.{_SEQUENCE}", **ended})


class _Deletes:
    """The dataset with keys and sequences of deletes."""

    def __init__(self, spark: SparkSession, dataset: LanceDataset, rules: ChangeRules) -> None:
        self._spark = spark
        self._rules = rules
        self._storage = dict(dataset.storage_options or {})
        self._uri = f"{dataset.uri.rstrip('/')}/{DELETED_KEYS}"
        schema = dataset.schema
        order = schema.field(rules.order_column())
        kept = [schema.field(name) for name in rules.keys]
        self._schema = pa.schema([*kept, order.with_name(_SEQUENCE)])

    def _opened(self) -> LanceDataset | None:
        from glaive.dataset.open import dataset

        try:
            return dataset(self._uri, storage_options=self._storage or None)
        except DatasetNotFoundError:
            return None

    def add(self, deleted: DataFrame) -> None:
        """Commit deletes; deletes that are known stay as they are."""
        opened = self._opened()
        if opened is None:
            opened = write_dataset(
                self._schema.empty_table(), self._uri, storage_options=self._storage or None
            )
        columns = [*self._rules.keys, _SEQUENCE]
        condition = " and ".join(f"t.{quoted_name(n)} = s.{quoted_name(n)}" for n in columns)
        rows = deleted.dropDuplicates().alias("s")
        merge = MergeBuilder(self._spark, opened, "t", rows, condition)
        merge.whenNotMatchedInsertAll().execute()

    def frame(self) -> DataFrame | None:
        """Return all deletes; ``None`` before the first."""
        opened = self._opened()
        return None if opened is None else version_frame(self._spark, opened)
