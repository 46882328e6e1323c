"""Tables of catalogues in Spark: ``option("table", "sales.orders")``, and views of a namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError
from glaive.spark.option_text import STORAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkCatalogue", "catalog", "with_location"]

_TABLE = "table"
_PREFIX = "namespace."
_PAGE = 1000
_MOST = 100_000
"""Tables that a listing names at most."""


def with_location(options: Mapping[str, str], *, create: bool = False) -> Mapping[str, str]:
    """Options with the path and store options of the table that ``table`` names, if it is there.

    Parameters
    ----------
    options
        ``table``, names with dots between them or a JSON list of names; ``namespace.impl``
        (``dir`` or ``rest``; by default ``dir``) and the properties of the catalogue as
        ``namespace.root``, ``namespace.uri`` and so on.
    create
        The table is written: declare it if it is not there.

    Raises
    ------
    OptionError
        Both a table and a path are given, or the catalogue has none of these properties.
    DatasetNotFoundError
        There is no such table.
    UnsupportedFeatureError
        It is written, and the catalogue manages its versions.
    """
    lowered = {key.lower(): text for key, text in options.items()}
    if _TABLE not in lowered:
        return options
    if "path" in lowered or "paths" in lowered:
        raise OptionError("options path and table: give only one")
    from glaive.dataset.namespaces import find_table
    from glaive.namespace import connect

    properties = {
        key.removeprefix(_PREFIX): text for key, text in lowered.items() if key.startswith(_PREFIX)
    }
    client = connect(properties.pop("impl", "dir"), properties)
    path = _path_of(lowered[_TABLE])
    storage = {
        key.removeprefix(STORAGE): text for key, text in lowered.items() if key.startswith(STORAGE)
    }
    try:
        found = find_table(client, path, None, storage or None)
    except DatasetNotFoundError:
        if not create:
            raise
        found = find_table(client, path, None, storage or None, create=True)
    if create and found.manifest_store is not None:
        raise UnsupportedFeatureError(
            f"table {lowered[_TABLE]}: its catalogue manages the versions, which Spark does not "
            "write. Write with glaive.write_dataset(namespace_client=…, table_id=…)"
        )
    others = {
        key: text
        for key, text in options.items()
        if key.lower() != _TABLE and not key.lower().startswith((_PREFIX, STORAGE))
    }
    vended = {f"{STORAGE}{key}": text for key, text in (found.storage_options or {}).items()}
    return {**others, "path": found.uri, **vended}


def _path_of(text: str) -> list[str]:
    if not text.startswith("["):
        return text.split(".")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option table: not JSON ({error})") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"option table: expected names, found {text!r:.100}")
    return names


def catalog(
    spark: SparkSession, namespace_client: Any, namespace: Sequence[str] = ()
) -> SparkCatalogue:
    """The tables of a namespace in a session.

    Parameters
    ----------
    namespace_client
        A catalogue, such as ``glaive.namespace.connect("dir", {"root": "shop"})``.
    namespace
        Names of the namespace; by default the root.

    Examples
    --------
    >>> shop = glaive.spark.catalog(spark, connect("dir", {"root": "shop"}), ["sales"])
    >>> shop.register_views()
    ['orders']
    >>> spark.sql("SELECT count(*) FROM orders").show()
    """
    return SparkCatalogue(spark, namespace_client, tuple(namespace))


@dataclass(frozen=True, slots=True)
class SparkCatalogue:
    """The tables of one namespace in a session; made by :func:`catalog`."""

    spark: SparkSession
    namespace_client: Any
    namespace: tuple[str, ...] = ()

    def list_tables(self) -> list[str]:
        """Names of the tables, in order. One request per thousand."""
        return sorted(self._pages("list_tables", "ListTablesRequest", "tables"))

    def list_namespaces(self) -> list[str]:
        """Names of the namespaces below this one, in order. One request per thousand."""
        return sorted(self._pages("list_namespaces", "ListNamespacesRequest", "namespaces"))

    def read(self, table: str, **options: Any) -> DataFrame:
        """A frame over a table; options as for :func:`glaive.spark.read`.

        Raises
        ------
        DatasetNotFoundError
            There is no such table.
        """
        from glaive.spark.api import read

        uri, storage = self._find(table)
        return read(self.spark, uri, storage_options=storage, **options)

    def register_views(self, tables: Sequence[str] | None = None, prefix: str = "") -> list[str]:
        """Register tables as temporary views of the session; returns the names of the views.

        Parameters
        ----------
        tables
            By default all that have rows: tables that are only declared are left out.
        prefix
            Before the name of each view.

        Notes
        -----
        Each table is opened once. Views keep the version and the credentials of this call.
        """
        from glaive.spark.api import register_view

        views = []
        for table in self.list_tables() if tables is None else tables:
            uri, storage = self._find(table)
            try:
                register_view(self.spark, f"{prefix}{table}", uri, storage_options=storage)
            except DatasetNotFoundError:
                if tables is not None:
                    raise
                continue
            views.append(f"{prefix}{table}")
        return views

    def _find(self, table: str) -> tuple[str, Mapping[str, str] | None]:
        from glaive.dataset.namespaces import find_table

        path = (*self.namespace, table)
        found = find_table(self.namespace_client, path, None, None)
        return found.uri, found.storage_options

    def _pages(self, method: str, kind: str, field: str) -> Iterator[str]:
        import lance_namespace as interface

        token, count = None, 0
        while True:
            request = getattr(interface, kind)(
                id=list(self.namespace), page_token=token, limit=_PAGE
            )
            answer = getattr(self.namespace_client, method)(request)
            names = getattr(answer, field)
            yield from names
            count += len(names)
            before, token = token, answer.page_token
            if not token or not names or token == before:
                return
            if count > _MOST:
                raise UnsupportedFeatureError(
                    f"{method}: more than {_MOST} names are not listed. Name the tables"
                )
