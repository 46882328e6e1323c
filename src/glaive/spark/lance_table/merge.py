"""``table.merge(source, condition)``: update, delete and insert by a join, with Delta's clauses."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from glaive.dataclass import dataclass
from glaive.dataset.merging.clauses import primary_key
from glaive.dataset.merging.merge_insert import refuse_blob_keys
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.column_path import quoted_name, unquoted_name
from glaive.spark.api import CASE_SENSITIVE, is_set
from glaive.spark.assignable import matching, refuse_same_without_case, two_values, without_case
from glaive.spark.failures import naming_columns
from glaive.spark.jobs.job import SparkJob
from glaive.spark.jobs.merge_commit import commit_merge, written_rows
from glaive.spark.jobs.merge_rows import MergedRows, MergeRows, RowClause, refuse_reserved
from glaive.spark.jobs.small_merge import SmallMerge
from glaive.spark.lance_table.merge_join import Clause, JoinedRows
from glaive.spark.lance_table.merge_keys import (
    equalities,
    evaluated_once,
    key_columns,
    may_be_lost,
    one_row_per_key,
    same_keys,
    source_keys,
)
from glaive.spark.lance_table.merge_small import (
    is_for_one_task,
    source_in_one_part,
    takes_whole_rows,
)
from glaive.spark.types import stored_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["MergeBuilder"]

_ROWS_PER_TASK = 1 << 16
"""Rows of a source that a task writes, where their number is known."""

Values = Mapping[str, "str | Column"]


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """Collects the clauses of a merge; made by ``LanceTable.merge``.

    Of the clauses for a kind of row, the first one whose condition holds applies. Each method
    returns a new builder.
    """

    spark: SparkSession
    dataset: LanceDataset
    name: str | None
    source: DataFrame
    condition: str | Column
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False
    duplicates: tuple[Literal["first", "last"], str] | None = None

    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> MergeBuilder:
        """Update matched rows: expressions over both sides, in Spark SQL, by column.

        Parameters
        ----------
        condition
            Over both sides; default: all matched rows.
        set
            ``{"price": "s.price", "seen": "t.seen + 1"}``, or ``"t.price"`` for the column; other
            columns stay as they are.
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
        """Insert rows of the source that match none; columns without a value are null."""
        return self._with("not matched", "insert", condition, _given(values, "values"))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> MergeBuilder:
        """Insert rows of the source that match none, with all its columns."""
        return self._with("not matched", "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> MergeBuilder:
        """Update rows of the table that no row of the source matches; over the table's columns."""
        return self._with("not matched by source", "update", condition, _given(set, "set"))

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> MergeBuilder:
        """Delete rows of the table that no row of the source matches."""
        return self._with("not matched by source", "delete", condition, {})

    def withSchemaEvolution(self) -> MergeBuilder:
        """Add columns that only the source has, if a clause takes all its columns.

        They are added as a version of their own, with nulls, before the merge.
        """
        return replace(self, evolves=True)

    def onDuplicateSource(self, keep: Literal["first", "last"], by: str) -> MergeBuilder:
        """Of several source rows with the same keys, use the first or last by a column.

        Without it, several source rows that change the same row are an error. Rows that have a
        null in their keys match none, and are all used.

        Raises
        ------
        OptionError
            ``keep`` is neither "first" nor "last".
        """
        given: object = keep
        if given not in ("first", "last"):
            raise OptionError(f'onDuplicateSource: expected "first" or "last", found {given!r}')
        return replace(self, duplicates=(keep, by))

    def execute(
        self, *, job_id: str | None = None, txn: tuple[str, int] | None = None
    ) -> dict[str, int]:
        """Run the merge as one job and commit it as one version.

        Parameters
        ----------
        job_id
            Names this job: running it again with the same id returns what it did.
        txn
            An application and the number of its transaction, such as ``("my stream", 7)``: if the
            table has this number of the application or a higher one, nothing is done.

        Returns
        -------
        dict
            ``num_inserted_rows``, ``num_updated_rows``, ``num_deleted_rows``, ``version``; of a
            transaction that was applied before, ``version`` alone.

        Raises
        ------
        OptionError
            There is no clause, or one gives no values; a text means all columns by ``*``; or
            ``txn`` is no transaction.
        ColumnNotFoundError, SchemaError
            A column does not exist, a value does not fit its column; or several rows of the
            source change the same row: the message names it. Nothing was changed.
        UnsupportedFeatureError
            The condition compares a blob column.
        CommitContentionError
            Other writers changed the same rows at every attempt; nothing was changed.

        Notes
        -----
        If the condition is a text that requires nothing but equal columns, all clauses take whole
        rows of the source without a condition, and source and table are small (16 MiB in the plan
        of Spark, 32 million rows), one task gets the source and does all of it. With Spark Connect,
        which tells no sizes, it is as for other merges: if the condition requires columns of both
        sides to be equal, and the source has up to a million keys, tasks look for rows with these
        keys, by statistics and indices, and Spark joins the source with what they find. Otherwise,
        and for rows that no source row matches, Spark reads and joins all rows, of the columns that
        the condition and the clauses
        name. Tasks read the other columns of updated rows by address, and write updated and
        inserted rows to new files. The source is evaluated once per attempt; where executors are
        lost with its rows, and it gives others then, once more, with all rows of the table.
        """
        if not self.clauses:
            raise OptionError("the merge has no clauses: add some, such as whenMatchedUpdateAll()")
        self.dataset.checkout_latest()
        job = SparkJob.of(self.spark, job_id, txn)
        if self.evolves and job.made(self.dataset) is None:
            self._add_columns()

        return job.change(self.dataset, self._merge)

    def _merge(self, opened: OpenedVersion, commit: Job) -> tuple[Manifest, Any]:
        """Write what changes, and commit it."""
        refuse_reserved(self.source.columns, "the source")
        refuse_reserved(opened.manifest.schema.names, opened.uri)
        pairs, _ = equalities(self.condition, self.name)
        refuse_blob_keys([pair.column for pair in pairs], opened.manifest.schema)
        clauses = self._resolved(opened)
        parts = self._by_one_task(opened, clauses, commit)
        if parts is None:
            parts = self._by_a_join(opened, clauses, commit)
        return commit_merge(opened, parts, [clause.action for clause in clauses], commit)

    def _by_one_task(
        self, opened: OpenedVersion, clauses: tuple[Clause, ...], commit: Job
    ) -> list[MergedRows] | None:
        """What one task writes; ``None`` if the merge is not for one."""
        pairs, complete = equalities(self.condition, self.name)
        plain = complete and all(map(takes_whole_rows, self.clauses))
        if not plain or not is_for_one_task(opened, self.source):
            return None
        keys = key_columns(self.source, pairs, opened.manifest.schema)
        if keys is None:
            return None
        frame = source_in_one_part(self._ranked(), clauses, [column for _, column in keys])
        first = {clause.rows: at for at, clause in reversed([*enumerate(clauses)])}
        task = SmallMerge(
            opened.manifest.version,
            tuple(field for field, _ in keys),
            tuple(clause.action for clause in clauses),
            matched=first.get("matched"),
            unmatched=first.get("not matched"),
            primary_key=self._primary_key(opened),
        )
        parts = written_rows(opened, frame, task, commit)
        return None if None in parts else parts

    def _by_a_join(
        self, opened: OpenedVersion, clauses: tuple[Clause, ...], commit: Job
    ) -> list[MergedRows]:
        """What tasks write of a join; of the rows with keys of the source, where that is enough."""
        pairs, _ = equalities(self.condition, self.name)
        if not pairs or any(clause.rows == "not matched by source" for clause in clauses):
            return self._joined(opened, clauses, commit, None)
        with evaluated_once(self.source):
            keys = source_keys(self.source, pairs, opened.manifest.schema)
            parts = self._joined(opened, clauses, commit, keys)
            if keys is None or not may_be_lost(self.spark):
                return parts
            again = source_keys(self.source, pairs, opened.manifest.schema)
        if same_keys(keys, again):
            return parts
        # An executor was lost, and with it rows whose keys were looked for: others were joined.
        return self._joined(opened, clauses, commit, None)

    def _joined(
        self,
        opened: OpenedVersion,
        clauses: tuple[Clause, ...],
        commit: Job,
        keys: pa.Table | None,
    ) -> list[MergedRows]:
        with naming_columns(self._known(opened), f"{opened.uri} or the source"):
            joined = JoinedRows.of(
                self.spark, opened, self.name, self._ranked(), self.condition, clauses, keys
            )
            frame, actions = joined.frame()
        if keys is not None:  # few rows: as many files as are worth their cost
            frame = frame.coalesce(1 + keys.num_rows // _ROWS_PER_TASK)
        task = MergeRows(opened.manifest.version, actions, self._primary_key(opened))
        return written_rows(opened, frame, task, commit)

    def _known(self, opened: OpenedVersion) -> list[str]:
        """The columns that conditions and values may name."""
        pairs, _ = equalities(self.condition, self.name)
        mine = "" if self.name is None else f"{self.name}."
        others = f"{pairs[0].alias}." if pairs else ""
        columns = [mine + name for name in opened.manifest.schema.names]
        return list(dict.fromkeys([*columns, *(others + name for name in self.source.columns)]))

    def _ranked(self) -> DataFrame:
        """The source, with one row for each of its keys if it is said which."""
        if self.duplicates is None:
            return self.source
        return one_row_per_key(self.source, self.condition, self.name, *self.duplicates)

    def _primary_key(self, opened: OpenedVersion) -> tuple[str, ...]:
        """The columns of the primary key, if these are the keys of the merge."""
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
        """The clauses with the names of columns as the table spells them."""
        names = opened.manifest.schema.names
        there, spelled = set(names), without_case(names)
        where = opened.uri
        resolved = []
        for clause in self.clauses:
            given = clause.values
            if given is None:
                given = self._all_of_source(names, clause, where)
            values = {}
            for name, value in given.items():
                column = self._column_named(name, there, spelled)
                if column is None:
                    raise ColumnNotFoundError.among(name, names, where=where)
                if column in values:
                    raise two_values(column, name)
                values[column] = value
            action = replace(clause.action, columns=tuple(values))
            resolved.append(replace(clause, action=action, values=values))
        return tuple(resolved)

    def _column_named(
        self, name: str, names: Container[str], spelled: Mapping[str, str]
    ) -> str | None:
        """The column that a value is for: by its name, perhaps in quotes or with the table's."""
        table, dot, column = name.partition(".")
        ways = [name, unquoted_name(name)]
        if dot and self.name is not None and unquoted_name(table).lower() == self.name.lower():
            ways.append(unquoted_name(column))
        found = (way if way in names else spelled.get(way.lower()) for way in ways)
        return next((one for one in found if one is not None), None)

    def _all_of_source(self, names: Sequence[str], clause: Clause, where: str) -> dict[str, Column]:
        given = matching(self.source.columns, names)
        missing = [name for name in names if name not in given]
        if missing and not self.evolves:
            method = f"when…{clause.action.action.title()}All"
            raise ColumnNotFoundError(
                f"{method}: the source lacks columns of {where}: {', '.join(missing)}. Name the "
                "columns to set, or use withSchemaEvolution()"
            )
        return {name: self.source[quoted_name(given[name])] for name in names if name in given}

    def _add_columns(self) -> None:
        import pyarrow as pa

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
