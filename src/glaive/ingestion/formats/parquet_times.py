"""Times of Parquet files that Spark wrote, which are microseconds.

Unless it is set otherwise, Spark writes them as INT96, which Arrow reads as nanoseconds: those
before 1677 and after 2262, such as the last day of 9999, would become others without a word. Files
of other writers keep their nanoseconds.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["open_parquet"]

_OF_SPARK: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Entry of the metadata of all files that Spark wrote."""


def open_parquet(source: Any, **options: Any) -> Any:
    """A ``pyarrow.parquet.ParquetFile``; its footer is read once.

    Parameters
    ----------
    source
        The file.
    **options
        Of ``ParquetFile``.
    """
    from pyarrow import parquet

    opened = parquet.ParquetFile(source, **options)
    if _OF_SPARK not in (opened.schema_arrow.metadata or {}):
        return opened
    known = {**options, "metadata": opened.metadata}
    return parquet.ParquetFile(source, **known, coerce_int96_timestamp_unit="us")
