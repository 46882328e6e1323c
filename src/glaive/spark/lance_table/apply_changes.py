"""``table.applyChanges(source, keys, sequence_by=…)``: apply a feed of changes in any order.

Spark joins the changes with the table. :class:`ChangeRules` says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

from glaive.dataset.dataset import LanceDataset
from glaive.errors import ColumnNotFoundError
from glaive.format.field import quoted_name
from glaive.spark.api import version_frame
from glaive.spark.change_rules import (
    HISTORY,
    IS_CURRENT,
    NULL,
    SEQUENCE,
    VALID_FROM,
    VALID_TO,
    ChangeRules,
    Deletes,
)
from glaive.spark.failures import naming_columns
from glaive.spark.lance_table.merge import MergeBuilder, evaluated_once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_DELETED: Final = "__change_deleted"
_RESET: Final = "__change_reset"
_NEW: Final = "__change_new"
_UNTIL: Final = "__change_until"


class FrameChanges(ChangeRules):
    """Rules for the changes of a frame."""

    __slots__ = ()

    def apply(self, dataset: LanceDataset, source: DataFrame, job_id: str | None) -> dict[str, int]:
        """Apply the changes of a frame, and return the counts of the merge."""
        dataset.checkout_latest()
        changes = self._changes(source, self.columns_set(dataset, source.columns))
        with evaluated_once(changes):
            deleted = changes.where(F.col(_DELETED)).select(*self._names(), SEQUENCE)
            deletes = Deletes(dataset, self)
            if not deleted.isEmpty():
                _add_deletes(deletes, deleted)
            merge, known = self._newest if self.scd == 1 else self._history, deletes.opened()
            ends = deleted.limit(0) if known is None else version_frame(source.sparkSession, known)
            return merge(dataset, changes, ends).execute(job_id=job_id)

    def writer(self, dataset: LanceDataset, source: DataFrame) -> DataStreamWriter:
        """Return a writer that applies each batch of a stream."""

        def apply(batch: DataFrame, _number: int) -> None:
            self.apply(dataset, batch, None)

        # Spark repeats a batch after a crash: changes that were applied have no effect.
        return source.writeStream.foreachBatch(apply)

    def _names(self) -> list[str]:
        return [quoted_name(name) for name in self.keys]

    def _changes(self, source: DataFrame, columns: Iterable[str]) -> DataFrame:
        """Return the changes with their sequence and whether they delete; keys must be valid."""
        spelled = {name.lower(): name for name in source.columns}

        def required(name: str, alias: str) -> Column:
            found = spelled.get(name.lower())
            if found is None:
                raise ColumnNotFoundError.among(name, source.columns, where="the source")
            column = F.col(quoted_name(found))
            return F.coalesce(column, F.raise_error(F.lit(NULL.format(name)))).alias(alias)

        given = self.delete_where
        deletes: Any = F.expr(given) if isinstance(given, str) else given
        with naming_columns(source.columns, "the source"):
            return source.select(
                *(required(name, name) for name in self.keys),
                required(self.sequence_by, SEQUENCE),
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
        self, dataset: LanceDataset, changes: DataFrame, deletes: DataFrame
    ) -> MergeBuilder:
        """Return a merge that keeps the newest values of each row (``scd=1``)."""
        keys, order = self._names(), f"t.{quoted_name(self.sequence_by)}"
        own = (*self.keys, self.sequence_by, SEQUENCE, _DELETED)
        values = [name for name in changes.columns if name not in own]
        last = deletes.groupBy(*keys).agg(F.max(SEQUENCE).alias(_RESET))
        changes = changes.join(last, list(self.keys), "left")
        sequence, reset = F.col(SEQUENCE), F.col(_RESET)
        live = reset.isNull() | (sequence > reset)
        rows = changes.groupBy(*keys).agg(
            F.max(sequence).alias(SEQUENCE),
            F.max(reset).alias(_RESET),
            (~F.max(live)).alias(_DELETED),
            *(self._last(name, live) for name in values),
        )
        updates: dict[str, str | Column] = {self.sequence_by: f"s.{SEQUENCE}"}
        for name in values:
            column = quoted_name(name)
            updates[name] = f"s.{column}"
            if self.ignore_null_updates:
                kept = f"(s.{_RESET} is null or s.{_RESET} < {order})"
                updates[name] = f"coalesce(s.{column}, if({kept}, t.{column}, null))"
        inserts = {name: f"s.{quoted_name(name)}" for name in (*self.keys, *values)}
        inserts[self.sequence_by] = f"s.{SEQUENCE}"
        merge = self._merge(dataset, rows)
        merge = merge.whenMatchedDelete(
            f"s.{_DELETED} and ({order} <= s.{_RESET} or {order} is null)"
        )
        newer = f"{order} < s.{SEQUENCE} or {order} is null"
        merge = merge.whenMatchedUpdate(f"not s.{_DELETED} and ({newer})", updates)
        return merge.whenNotMatchedInsert(f"not s.{_DELETED}", inserts)

    def _last(self, name: str, live: Column) -> Column:
        """Return the last value of a column in the live changes of a row."""
        column = F.col(quoted_name(name))
        counts = live & column.isNotNull() if self.ignore_null_updates else live
        return F.max_by(column, F.when(counts, F.col(SEQUENCE))).alias(name)

    def _merge(self, dataset: LanceDataset, rows: DataFrame, also: str = "") -> MergeBuilder:
        """Return a merge of rows with the keys, and further conditions."""
        condition = " and ".join(f"t.{name} = s.{name}" for name in self._names()) + also
        return MergeBuilder(rows.sparkSession, dataset, "t", rows.alias("s"), condition)

    def _history(
        self, dataset: LanceDataset, changes: DataFrame, deletes: DataFrame
    ) -> MergeBuilder:
        """Return a merge that keeps all values of each row with their sequences (``scd=2``)."""
        keys = self._names()
        values = [n for n in changes.columns if n not in (*self.keys, SEQUENCE, _DELETED)]
        changed = changes.select(*keys).distinct()
        spark = changes.sparkSession
        there = version_frame(spark, dataset, columns=[*self.keys, VALID_FROM, VALID_TO])
        there = (
            there.join(changed, list(self.keys), "left_semi")
            .select(
                *keys,
                F.col(VALID_FROM).alias(SEQUENCE),
                F.lit(False).alias(_DELETED),
                F.lit(False).alias(_NEW),
                F.col(VALID_TO).alias(_UNTIL),
            )
            .where(F.col(SEQUENCE).isNotNull())
        )
        new = changes.where(~F.col(_DELETED)).dropDuplicates([*self.keys, SEQUENCE])
        new = new.join(there.select(*keys, SEQUENCE), [*self.keys, SEQUENCE], "left_anti")
        events = new.withColumn(_NEW, F.lit(True)).unionByName(there, allowMissingColumns=True)
        ends = deletes.join(changed, list(self.keys), "left_semi")
        ends = ends.withColumn(_DELETED, F.lit(True)).withColumn(_NEW, F.lit(False))
        events = events.unionByName(ends, allowMissingColumns=True)
        order = Window.partitionBy(*keys).orderBy(SEQUENCE, _DELETED)
        following = F.lead(SEQUENCE).over(order)
        rows = events.select("*", following.alias(VALID_TO)).where(
            ~F.col(_DELETED) & (F.col(_NEW) | ~F.col(VALID_TO).eqNullSafe(F.col(_UNTIL)))
        )
        ended = {VALID_TO: f"s.{VALID_TO}", IS_CURRENT: f"s.{VALID_TO} is null"}
        named = {name: f"s.{quoted_name(name)}" for name in (*self.keys, *values)}
        merge = self._merge(dataset, rows, f" and t.{VALID_FROM} = s.{SEQUENCE}")
        merge = merge.whenMatchedUpdate(None, ended)
        return merge.whenNotMatchedInsert(None, {**named, VALID_FROM: f"s.{SEQUENCE}", **ended})


def _add_deletes(deletes: Deletes, deleted: DataFrame) -> None:
    """Commit deletes; deletes that are known stay as they are."""
    columns = deletes.schema.names
    condition = " and ".join(f"t.{quoted_name(n)} = s.{quoted_name(n)}" for n in columns)
    rows = deleted.dropDuplicates().alias("s")
    merge = MergeBuilder(deleted.sparkSession, deletes.made(), "t", rows, condition)
    merge.whenNotMatchedInsertAll().execute()
