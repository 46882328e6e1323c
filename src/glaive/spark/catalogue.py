"""The tables of a catalogue in a session: listed, read, registered as views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glaive.dataclass import dataclass
from glaive.errors import DatasetNotFoundError, OptionError, StoreError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PAGE = 1000
_MOST = 100_000
"""Tables that a listing names at most."""

_MOST_EMPTY = 100
"""Pages without a name that follow each other, at most."""


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

    def register_views(
        self, tables: Sequence[str] | None = None, prefix: str = "", **options: object
    ) -> list[str]:
        """Register tables as temporary views of the session; returns the names of the views.

        Parameters
        ----------
        tables
            By default all that have rows: tables that are only declared are left out.
        prefix
            Before the name of each view.
        **options
            Of each view, as for :func:`glaive.spark.read`, such as ``allow_external_blobs``.

        Raises
        ------
        OptionError
            Spark would take the names of two tables for one.
        DatasetNotFoundError
            One of ``tables`` does not exist.

        Notes
        -----
        Each table is opened once. Views keep the version and the credentials of this call. They
        replace temporary views of the same names: where somebody else names the tables of the
        catalogue, give a ``prefix``, or ``tables``.
        """
        from glaive.spark.api import register_view

        views: list[str] = []
        names = self.list_tables() if tables is None else tables
        self._refuse_equal(names)
        for table in names:
            uri, storage = self._find(table)
            try:
                view = f"{prefix}{table}"
                register_view(self.spark, view, uri, storage_options=storage, **options)
            except DatasetNotFoundError:
                if tables is not None:
                    raise
                continue
            views.append(f"{prefix}{table}")
        return views

    def _refuse_equal(self, tables: Sequence[str]) -> None:
        """Refuse names that are one view, of which the last table would have all queries."""
        from glaive.spark.api import is_set

        if is_set(self.spark, "spark.sql.caseSensitive"):
            return
        first: dict[str, str] = {}
        for table in tables:
            other = first.setdefault(table.lower(), table)
            if other != table:
                raise OptionError(
                    f"tables: {other!r} and {table!r} differ in nothing but case, and are one view "
                    "for Spark. Name those to register, and register the others with a prefix"
                )

    def _find(self, table: str) -> tuple[str, Mapping[str, str] | None]:
        from glaive.table.manifest_store.registers import find_table

        path = (*self.namespace, table)
        found = find_table(self.namespace_client, path, None, None)
        return found.uri, found.storage_options

    def _pages(self, method: str, kind: str, field: str) -> Iterator[str]:
        import lance_namespace as interface

        token, count, empty = None, 0, 0
        seen: set[int] = set()  # hashes, as tokens may be long
        while True:
            request = getattr(interface, kind)(
                id=list(self.namespace), page_token=token, limit=_PAGE
            )
            answer = getattr(self.namespace_client, method)(request)
            names = getattr(answer, field)
            yield from names
            count += len(names)
            empty = 0 if names else empty + 1  # as where a catalogue hides them
            token = answer.page_token
            if not token:
                return
            if count > _MOST:
                raise UnsupportedFeatureError(
                    f"{method}: more than {_MOST} names are not listed. Name the tables"
                )
            if hash(token) in seen or empty > _MOST_EMPTY:
                raise StoreError(
                    f"{method}: the pages of the catalogue do not end; the last one has "
                    f"{len(names)} names. Name the tables"
                )
            seen.add(hash(token))
