"""Frames from CSV, JSON and Parquet files, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from glaive.errors import OptionError
from glaive.spark.failures import as_glaive_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "format_of", "read_files"]

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
        Paths, directories, patterns or URIs, as Spark takes them.
    format
        ``csv``, ``json`` or ``parquet``; told from the names when omitted.
    schema
        Columns and types in Spark's words, ``"id bigint, at timestamp"``. Reads the files once;
        rows that do not fit are an error.
    infer
        Without a schema: find the types of CSV columns by reading the files; all texts otherwise.
    null
        CSV: the text that stands for null, such as ``NA``; the empty text always does.
    options
        Further options of Spark's reader; they win.

    Raises
    ------
    OptionError
        No sources, or names that do not tell the format.
    """
    if not sources:
        raise OptionError("no sources given")
    kind = format or format_of(sources)
    if kind not in FORMATS:
        raise OptionError(f"format: expected one of {', '.join(FORMATS)}, found {kind!r}")
    settings: dict[str, str] = {}
    if kind == "csv":
        settings = {"header": "true", "inferSchema": str(infer and schema is None).lower()}
        if all(".tsv" in source for source in sources):
            settings["sep"] = "\t"
        if null is not None:
            settings["nullValue"] = null
    if kind != "parquet" and schema is not None:
        settings["mode"] = "FAILFAST"
    reader = spark.read.format(kind).options(**(settings | dict(options or {})))
    if schema is not None:
        reader = reader.schema(schema)
    with as_glaive_errors():
        return reader.load(list(sources))


def format_of(sources: Sequence[str]) -> str:
    """Return the format the names of the sources agree on."""
    found = {source: SUFFIXES.get(_suffix(source)) for source in sources}
    kinds = set(found.values())
    if len(kinds) == 1 and (kind := kinds.pop()) is not None:
        return kind
    told = ", ".join(f"{source} ({kind or 'unknown'})" for source, kind in found.items())
    raise OptionError(
        f"the names do not tell one format: {told}. Name it: format='csv', 'json' or 'parquet'"
    )


def _suffix(source: str) -> str:
    path = PurePosixPath(source.rstrip("/").rstrip("*").rstrip("/"))
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()
