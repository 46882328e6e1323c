"""Changes of the columns of a table."""

from __future__ import annotations

from typing import Any

from glaive.spark.lance_table.handle import TableHandle

__all__ = ["TableColumns"]


class TableColumns(TableHandle):
    """The methods of ``LanceTable`` that change columns."""

    def dropColumns(self, *names: str) -> int:
        """Drop columns, or members of structs (``"s.x"``); returns the new version.

        The values stay in the files until compaction and clean-up.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or no column would be left.
        """
        dataset = self._latest()
        dataset.drop_columns(list(names))
        return dataset.version

    def renameColumn(self, name: str, new_name: str) -> int:
        """Rename a column; returns the new version. No file is rewritten.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or the name is taken.
        """
        return self.alterColumn(name, name=new_name)

    def alterColumn(
        self, column: str, *, name: str | None = None, data_type: Any = None, nullable: Any = None
    ) -> int:
        """Change name, type or nullability of a column; returns the new version.

        Parameters
        ----------
        column
            Path of the column.
        data_type
            A ``pyarrow.DataType`` to which the values are cast; its files are written again,
            by this process.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            There is no such column, a value cannot be cast, or nothing is to be changed.
        """
        change = {"path": column, "name": name, "data_type": data_type, "nullable": nullable}
        dataset = self._latest()
        dataset.alter_columns({key: value for key, value in change.items() if value is not None})
        return dataset.version
