"""Create a table without rows, column by column."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from glaive.arrow.chunked import empty_table
from glaive.errors import DatasetExistsError, OptionError
from glaive.spark.lance_table.handle import located
from glaive.spark.types import stored_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["TableBuilder", "arrow_type"]

T = TypeVar("T")


class TableBuilder(Generic[T]):
    """Collects location, columns and properties of a new table.

    Parameters
    ----------
    find
        Returns the table at a location, given settings of the object store.
    if_not_exists
        Whether a table that exists is used as it is.
    """

    def __init__(self, find: Callable[[str, Mapping[str, str]], T], *, if_not_exists: bool) -> None:
        self._find, self._if_not_exists = find, if_not_exists
        self._uri: str | None = None
        self._storage: dict[str, str] = {}
        self._fields: list[pa.Field[Any]] = []
        self._properties: dict[str, str] = {}
        self._options: dict[str, Any] = {}

    def location(self, uri: str | os.PathLike[str], **storage: str) -> Self:
        """Where the table is to be, and settings of the object store."""
        self._uri, self._storage = located(uri), storage
        return self

    def addColumn(
        self,
        name: str,
        dataType: str | DataType | pa.DataType,
        nullable: bool = True,
        comment: str | None = None,
    ) -> Self:
        """Add a column.

        Parameters
        ----------
        dataType
            A type of Spark, as an object or as SQL (``"array<float>"``), or of Arrow, such as
            ``pa.list_(pa.float32(), 128)`` for vectors.
        comment
            Kept in the metadata of the column.

        Raises
        ------
        OptionError
            It is no type.
        """
        metadata = {} if comment is None else {"comment": comment}
        self._fields.append(pa.field(name, arrow_type("addColumn", dataType), nullable, metadata))
        return self

    def addColumns(self, columns: Any) -> Self:
        """Add the columns of a ``StructType`` or a ``pyarrow.Schema``."""
        schema = columns if isinstance(columns, pa.Schema) else stored_schema(columns, ())
        self._fields += list(schema)
        return self

    def property(self, key: str, value: str) -> Self:
        """Set an entry of the table's configuration."""
        self._properties[key] = value
        return self

    def option(self, name: str, value: object) -> Self:
        """Set an option of :func:`glaive.write_dataset`, such as ``enable_stable_row_ids``."""
        self._options[name] = value
        return self

    def execute(self) -> T:
        """Create the table.

        Raises
        ------
        DatasetExistsError
            There is one, and it was to be created.
        SchemaError, OptionError
            There is no location or no column, or a name or an option is invalid.
        """
        from glaive.dataset.write import write_dataset

        if self._uri is None or not self._fields:
            missing = "location(uri)" if self._uri is None else "addColumn(name, type)"
            raise OptionError(f"a new table needs {missing} before execute()")
        empty = empty_table(pa.schema(self._fields))
        try:
            made = write_dataset(
                empty, self._uri, storage_options=self._storage or None, **self._options
            )
        except DatasetExistsError:
            if not self._if_not_exists:
                raise
        else:
            if self._properties:
                made.update_config(self._properties)
        return self._find(self._uri, self._storage)


def arrow_type(method: str, given: Any) -> pa.DataType:
    """The type that a method was given, of Spark (also as SQL) or of Arrow."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    if isinstance(given, pa.DataType):
        return given
    try:
        parsed = DataType.fromDDL(given) if isinstance(given, str) else given
    except PySparkException as error:
        raise OptionError(f"{method}: {given!r} is no type of Spark: {error}") from error
    if not isinstance(parsed, DataType):
        raise OptionError(f"{method}: expected a type of Spark or Arrow, found {given!r}")
    columns = stored_schema(StructType().add("column", parsed), ())
    arrow: pa.DataType = columns.field(0).type
    return arrow
