"""Formats by name, and the format that names of files suggest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from glaive.errors import OptionError
from glaive.ingestion.formats.avro import Avro
from glaive.ingestion.formats.csv import Csv
from glaive.ingestion.formats.json import Json
from glaive.ingestion.formats.orc import Orc
from glaive.ingestion.formats.parquet import Parquet
from glaive.ingestion.formats.text import Binary, Images, Text
from glaive.ingestion.sources import SourceFile, SourceFormat

FORMATS: dict[str, type[SourceFormat]] = {
    kind.name: kind for kind in (Csv, Json, Parquet, Orc, Avro, Text, Images, Binary)
}


def format_named(name: str, options: Mapping[str, object]) -> SourceFormat:
    """The format of this name.

    Raises
    ------
    OptionError
        There is no such format, or an option is wrong.
    """
    kind = FORMATS.get(name)
    if kind is None:
        raise OptionError(f"format: expected one of {', '.join(FORMATS)}, found {name!r}")
    return kind(options)


def format_of(files: Iterable[SourceFile]) -> str:
    """The common format of files, from their names.

    Raises
    ------
    OptionError
        They have none.
    """
    by_suffix = {suffix: kind.name for kind in FORMATS.values() for suffix in kind.suffixes}
    found: dict[str | None, str] = {}
    for file in files:
        found.setdefault(by_suffix.get(file.suffix), file.named[1])
    if len(found) == 1 and (name := next(iter(found))) is not None:
        return name
    listed = ", ".join(f"{path} ({name or 'unknown'})" for name, path in found.items())
    raise OptionError(
        f"the names of the files have no common format: {listed}. Pass format=, one of "
        f"{', '.join(FORMATS)}"
    )
