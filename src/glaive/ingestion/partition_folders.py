"""Columns whose values are in the names of folders, as Spark writes them: ``day=3/a.csv``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glaive.errors import SchemaError

__all__ = ["refuse_partition_folders"]


def refuse_partition_folders(paths: Iterable[str], columns: Sequence[str], folder: str) -> None:
    """Refuse files below a folder if names of folders have columns that the files lack.

    They would be lost without a word.

    Parameters
    ----------
    paths
        Of the files, relative to the folder.
    columns
        Of the rows in the files.

    Raises
    ------
    SchemaError
        There is such a column.
    """
    known = {name.lower() for name in columns}
    for path in paths:
        for part in path.split("/")[:-1]:
            key, equals, _ = part.partition("=")
            if key and equals and key.lower() not in known:
                raise SchemaError(
                    f"{folder}: values of the column {key!r} are only in names of folders, such as "
                    f"{part!r}, and would be lost. Keep them: glaive.write_dataset(pyarrow.dataset"
                    ".dataset(folder, partitioning='hive'), uri), or on Spark glaive.spark.write("
                    "spark.read.parquet(folder), uri). To leave them out, name the files for "
                    "glaive.ingest by a pattern, folder/**/*.parquet, or give glaive convert "
                    "--columns"
                )
