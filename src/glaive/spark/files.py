"""Frames from CSV, JSON and Parquet files, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from glaive.errors import OptionError, SchemaError
from glaive.spark.api import is_connect
from glaive.spark.failures import as_glaive_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FORMATS = ("csv", "json", "parquet")

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSED = (".gz", ".bz2", ".deflate")

_OF_PYTHON: Final = ": pythonuserdefined"
"""What Spark calls types that a class of Python defines, after the name of a column."""


def read_files(
    spark: SparkSession,
    sources: Sequence[str],
    *,
    format: str | None = None,  # Spark's own word for it
    schema: str | None = None,
    infer: bool = True,
    null: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return one frame over files or directories of one format.

    Parameters
    ----------
    sources
        Paths, directories, patterns or URIs, as for Spark.
    format
        ``csv``, ``json`` or ``parquet``; default: from the file names.
    schema
        Columns and types in Spark's syntax, ``"id bigint, at timestamp"``. Reads the files once;
        rows that do not match are an error.
    infer
        Without a schema: infer the types of CSV columns by reading the files; otherwise all are
        strings.
    null
        CSV: the string for null, such as ``NA``; the empty string always means null.
    options
        Further options of Spark's reader, which have precedence. By default a CSV record with too
        many or too few fields, or a JSON record that cannot be parsed, is an error when it is read;
        ``{"mode": "DROPMALFORMED"}`` leaves such records out.

    Raises
    ------
    OptionError
        There are no sources, or the format is ambiguous.
    SchemaError
        A Parquet file has a column whose type is a class of Python that the file names.
    """
    if not sources:
        raise OptionError("no sources given")
    format_name = format or format_of(sources)
    if format_name not in FORMATS:
        raise OptionError(f"format: expected one of {', '.join(FORMATS)}, found {format_name!r}")
    settings: dict[str, str] = {}
    if format_name == "csv":
        settings = {"header": "true", "inferSchema": str(infer and schema is None).lower()}
        if all(".tsv" in source for source in sources):
            settings["sep"] = "\t"
        if null is not None:
            settings["nullValue"] = null
    if format_name != "parquet":
        settings["mode"] = "FAILFAST"  # else Spark fills and cuts records that have other columns
    reader = spark.read.format(format_name).options(**(settings | dict(options or {})))
    if schema is not None:
        reader = reader.schema(schema)
    with as_glaive_errors():
        frame = reader.load(list(sources))
        if format_name == "parquet" and schema is None and _OF_PYTHON in _tree(spark, frame):
            raise SchemaError(
                f"{', '.join(sources)}: a column has a type that a class of Python defines, which "
                "the file names, and which Python would import and call. Name columns and types "
                "in a schema, or use spark.read.parquet if the file is to be trusted"
            )
        return frame


def _tree(spark: SparkSession, frame: DataFrame) -> str:
    """The columns of a frame as Spark prints them: to name them, Python would make their types."""
    plan: Any = frame
    if not is_connect(spark):
        return str(plan._jdf.schema().treeString())  # noqa: SLF001  # no public way
    client = plan._session.client  # noqa: SLF001  # as above
    asked = plan._plan.to_proto(client)  # noqa: SLF001  # as above
    return str(client._analyze(method="tree_string", plan=asked).tree_string)  # noqa: SLF001  # as above


def format_of(sources: Sequence[str]) -> str:
    """The common format of the sources, from their names."""
    formats = {source: SUFFIXES.get(_suffix(source)) for source in sources}
    distinct = set(formats.values())
    if len(distinct) == 1 and (common := distinct.pop()) is not None:
        return common
    listed = ", ".join(f"{source} ({name or 'unknown'})" for source, name in formats.items())
    raise OptionError(
        f"the names have no common format: {listed}. Specify it: format='csv', 'json' or 'parquet'"
    )


def _suffix(source: str) -> str:
    path = PurePosixPath(source.rstrip("/").rstrip("*").rstrip("/"))
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()
