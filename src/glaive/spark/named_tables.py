"""Tables that SQL names: given ones, tables of given catalogues, and ``lance.`path```."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from glaive.dataset.open import dataset as open_lance
from glaive.errors import DatasetNotFoundError, OptionError, RefNotFoundError
from glaive.spark.api import SparkCatalogue, TableHandle, located
from glaive.spark.failures import as_glaive_errors
from glaive.spark.grammar import Table, Version
from glaive.spark.lance_table.table import LanceTable
from glaive.table.manifest_registers import find_table
from glaive.table.refs import branch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.dataset import LanceDataset

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CHOOSING = ("version", "tag", "branch", "asof")
"""Options of :func:`glaive.spark.read` that choose a version."""


class NamedTables:
    """The tables that statements may name.

    Parameters
    ----------
    spark
        The session.
    given
        For each name a path, a mapping of options, a :class:`LanceTable` or a catalogue.
    """

    def __init__(self, spark: SparkSession, given: Mapping[str, Any]) -> None:
        self.spark = spark
        self.given: dict[str, dict[str, Any]] = {}
        self.catalogues: dict[str, SparkCatalogue] = {}
        for name, table in given.items():
            if isinstance(table, SparkCatalogue):
                self.catalogues[name.lower()] = table
            elif hasattr(table, "describe_table"):
                self.catalogues[name.lower()] = SparkCatalogue(spark, table)
            else:
                self.given[name.lower()] = _read_options(name, table)
        if len(self.given) + len(self.catalogues) < len(given):
            raise OptionError(
                "tables: names that differ in nothing but case are one name in Spark's SQL, found "
                f"{', '.join(sorted(given))}. Give each dataset a name of its own"
            )

    def catalogue_of(self, table: Table) -> tuple[SparkCatalogue, list[str]] | None:
        """Return the catalogue of a table and the path of the table in it."""
        found = self.catalogues.get(table.parts[0].lower())
        if found is None or len(table.parts) == 1:
            return None
        return found, [*found.namespace, *table.parts[1:]]

    def knows(self, table: Table) -> bool:
        """Return whether the name means a dataset, which may be missing."""
        first = table.parts[0].lower()
        if len(table.parts) == 1:
            return first in self.given
        return first in self.catalogues or (first == "lance" and len(table.parts) == 2)

    def options(self, table: Table, *, create: bool = False) -> dict[str, Any]:
        """Return the options of :func:`glaive.spark.read` for a known table.

        Parameters
        ----------
        create
            Whether to declare a table that its catalogue lacks.

        Raises
        ------
        DatasetNotFoundError, RefNotFoundError
            The table, or the version after its name, is missing.
        """
        if len(table.parts) == 1:
            found = dict(self.given[table.parts[0].lower()])
        elif (place := self.catalogue_of(table)) is not None:
            answer = find_table(place[0].namespace_client, place[1], None, None, create=create)
            found = {"uri": answer.uri, "storage_options": answer.portable_options}
        else:
            found = {"uri": table.parts[1]}
        return found if table.version is None else self._at(found, table.version)

    def place(self, table: Table) -> tuple[dict[str, Any], bool]:
        """Return where a table is or will be, as arguments of a write, and whether it exists."""
        try:
            at = self.options(table)
        except DatasetNotFoundError:
            return self.options(table, create=True), False
        storage = at.get("storage_options") or {}
        return at, LanceTable.isLanceTable(self.spark, at["uri"], **storage)

    def _at(self, options: dict[str, Any], version: Version) -> dict[str, Any]:
        """Return options that choose a version."""
        rest = {name: value for name, value in options.items() if name not in _CHOOSING}
        branch = {name: options[name] for name in ("branch",) if name in options}
        if version.kind == "TIMESTAMP":
            return rest | branch | {"asof": self.moment(version.value).isoformat()}
        text = version.value.strip("'\"")
        if text.isdecimal():
            return rest | branch | {"version": int(text)}
        if text == "main":
            return rest
        opened = open_lance(located(options["uri"]), storage_options=options.get("storage_options"))
        if text in opened.tags.list():
            return rest | {"tag": text}
        if text in opened.branches.list():
            return rest | {"branch": text}
        names = ", ".join([*opened.tags.list(), *opened.branches.list()]) or "none"
        raise RefNotFoundError(
            f"{opened.uri}: no tag or branch {text!r:.80} exists. Name a version or one of: {names}"
        )

    def moment(self, expression: str) -> datetime:
        """Return the point in time that an expression of Spark means."""
        with as_glaive_errors():
            micros = self.value(f"unix_micros(cast({expression} as timestamp))")
        if micros is None:
            raise OptionError(
                f"TIMESTAMP AS OF: {expression} is null. Write a time such as '2026-05-01 12:00:00'"
            )
        return _EPOCH + timedelta(microseconds=micros)

    def value(self, expression: str) -> Any:
        """Return the value of a constant expression of Spark."""
        row = self.spark.sql(f"SELECT {expression}").first()
        return None if row is None else row[0]

    def lance_table(self, table: Table) -> LanceTable:
        """Return the table to change or describe, on the branch that the statement names.

        Raises
        ------
        OptionError
            The name means an older version, or a part of a table.
        """
        options = self.options(table)
        others = sorted(options.keys() - {"uri", "branch", "storage_options"})
        if others:
            raise OptionError(
                f"{'.'.join(table.parts)}: the statement needs the newest version, found the "
                f"option {others[0]}. Name a branch, or leave the option out"
            )
        storage = dict(options.get("storage_options") or {})
        return LanceTable.forPath(self.spark, options["uri"], options.get("branch"), **storage)

    def rows(self, schema: str, *rows: Sequence[Any]) -> DataFrame:
        """Return the result of a statement."""
        return self.spark.createDataFrame([tuple(row) for row in rows], schema)

    def frame_of(self, result: Any) -> DataFrame:
        """Return the result of a statement as a frame: a version, counts, a path, or nothing."""
        if isinstance(result, TableHandle):
            return self.rows("path string", [latest(result).uri])
        if result is None:  # as in Databricks
            return self.spark.createDataFrame([], StructType())
        counts = {"version": result} if isinstance(result, int) else result
        if not isinstance(counts, Mapping):
            frame: DataFrame = counts
            return frame
        schema = ", ".join(f"{name} bigint" for name in counts)
        return self.rows(schema, list(counts.values()))


def latest(table: Any) -> LanceDataset:
    """Return the newest version of a table."""
    dataset: LanceDataset = table._latest()  # noqa: SLF001  # of this package
    return dataset


def _read_options(name: str, table: Any) -> dict[str, Any]:
    """Return the arguments of :func:`glaive.spark.read` for one table."""
    if isinstance(table, str | os.PathLike):
        return {"uri": table}
    if isinstance(table, TableHandle):
        dataset = table._dataset  # noqa: SLF001  # of this package
        storage, branch = dataset.storage_options, branch_of(dataset.manifest)
        uri = dataset.uri.removesuffix(f"/tree/{branch}")
        options = {"uri": uri, "storage_options": storage, "branch": branch}
        return {key: value for key, value in options.items() if value is not None}
    if not isinstance(table, Mapping) or "uri" not in table:
        raise OptionError(
            f"table {name!r}: expected a path, a URI, a LanceTable, a catalogue, or a mapping with "
            f"'uri' and options of glaive.spark.read, found {table!r:.80}"
        )
    return dict(table)
