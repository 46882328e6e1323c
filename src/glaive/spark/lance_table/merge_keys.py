"""The keys of a merge: equalities in its condition, and the values that the source has there.

Rows of the table without a key of the source take part in no clause but those for rows that no
source row matches. So where there is no such clause, tasks look for the source's keys, and Spark
joins what they find.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.column_path import quoted_name, unquoted_name
from glaive.spark.jobs.small_merge import possible_keys
from glaive.spark.types import spark_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.format.fields import LanceSchema

__all__ = [
    "MAX_KEYS",
    "Equality",
    "equalities",
    "evaluated_once",
    "key_columns",
    "may_be_lost",
    "one_row_per_key",
    "same_keys",
    "source_keys",
]

MAX_KEYS: Final = 1 << 20
"""Keys of a source that this process holds; with more, Spark joins all rows of the table."""

_RANK: Final = "__glaive_rank"

_TOKEN: Final = re.compile(
    r"""'[^'\\]*' | "[^"\\]*" | `(?:[^`]|``)*` | [^\W\d]\w* | \S""", re.VERBOSE | re.DOTALL
)
_OPEN: Final = frozenset("'\"`")
"""Tokens where a text does not end, or has a backslash: whether it may hide a quote depends on the
kind of the text and on settings of Spark.
"""
_SPLITTING: Final = frozenset({"or", "xor", "case", "between"})
"""Words after which ``and`` may not separate two conditions that both have to hold."""

_UNREAD: Final = ("--", "/*", "${")
"""Where comments and variables begin, which only Spark reads."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns that have to be equal: of the table, and of the source with its alias."""

    column: str
    alias: str
    other: str


def equalities(condition: str | Column, name: str | None) -> tuple[list[Equality], bool]:
    """Columns that a condition requires to be equal, and whether it requires nothing else.

    Parameters
    ----------
    condition
        Of a merge. None are found in a column, only in a text.
    name
        The alias of the table; without one it is not known whose columns are named.
    """
    if not isinstance(condition, str) or name is None or any(map(condition.__contains__, _UNREAD)):
        return [], False
    terms: list[list[str]] = [[]]
    depth = 0
    for part in _TOKEN.findall(condition):
        word = part.lower()
        depth += part in ("(", "[")
        depth -= part in (")", "]")
        if part in _OPEN or (depth == 0 and word in _SPLITTING):
            return [], False
        if depth == 0 and word == "and":
            terms.append([])
        else:
            terms[-1].append(part)
    found = [_equality(term, name) for term in terms]
    return [one for one in found if one is not None], None not in found


def _equality(term: Sequence[str], name: str) -> Equality | None:
    match [*term]:
        case [first, ".", left, "=", second, ".", right]:
            pass
        case [first, ".", left, "=", "=", second, ".", right]:
            pass
        case _:
            return None
    first, left, second, right = (unquoted_name(part) for part in (first, left, second, right))
    mine, others = first.lower() == name.lower(), second.lower() == name.lower()
    if mine == others:
        return None
    return Equality(left, second, right) if mine else Equality(right, first, left)


def source_keys(
    source: DataFrame, pairs: Iterable[Equality], stored: LanceSchema
) -> pa.Table | None:
    """The keys that a source has, with the names and types of the table's columns.

    Returns
    -------
    pyarrow.Table or None
        At most :data:`MAX_KEYS` keys, none with a null; ``None`` if there are more, or columns do
        not have the same values on both sides.

    Notes
    -----
    Runs the source once. Keys that no value of the column can equal are left out.
    """
    known = _columns(stored)
    found = key_columns(source, [pair for pair in pairs if pair.column.lower() in known], stored)
    if found is None:
        return None
    values: Any = [column.alias(field.name) for field, column in found]
    keys = source.select(*values).limit(MAX_KEYS + 1).toArrow()
    if keys.num_rows > MAX_KEYS:
        return None
    fields = [field for field, _ in found]
    _, columns = possible_keys(keys.columns, fields)
    schema = pa.schema([field.with_nullable(True) for field in fields])
    return pa.Table.from_arrays(columns, schema=schema)


def key_columns(
    source: DataFrame, pairs: Sequence[Equality], stored: LanceSchema
) -> list[tuple[pa.Field[Any], Column]] | None:
    """The columns of the table that a source has keys for, with these columns of the source.

    Returns
    -------
    list or None
        ``None`` if there are none, or columns do not have the same values on both sides.
    """
    from pyspark.errors import AnalysisException

    columns = _columns(stored)
    if not pairs or any(pair.column.lower() not in columns for pair in pairs):
        return None
    named = [columns[pair.column.lower()] for pair in pairs]
    if len({field.name for field in named}) < len(named):
        return None
    keys = _of_source(pairs)
    values: Any = [key.alias(field.name) for key, field in zip(keys, named, strict=True)]
    try:
        selected = source.select(*values)
        sent = spark_arrow_schema(selected.schema)
    except AnalysisException:  # these are no columns of the source: Spark says so, or knows better
        return None
    if not all(_is_same(field, sent.field(field.name).type, selected.schema) for field in named):
        return None
    return list(zip(named, keys, strict=True))


def one_row_per_key(
    source: DataFrame,
    condition: str | Column,
    name: str | None,
    keep: Literal["first", "last"],
    by: str,
) -> DataFrame:
    """A source with the first or last row of each key by a column.

    Rows that have a null in their key match nothing, and are all kept.

    Raises
    ------
    OptionError
        The condition requires more than equal columns.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    pairs, complete = equalities(condition, name)
    if not complete:
        raise OptionError(
            "onDuplicateSource: the condition of the merge must be a text of equalities of "
            "columns of the table's alias and the source's, such as 't.id = s.id and "
            f"t.day = s.day', found {condition!r}"
        )
    column = F.col(quoted_name(by) if by in source.columns else by)
    order = column.asc() if keep == "first" else column.desc()
    keys = _of_source(pairs)
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(order))
    no_key = reduce(or_, (key.isNull() for key in keys))
    return source.withColumn(_RANK, rank).where((F.col(_RANK) == 1) | no_key).drop(_RANK)


@contextmanager
def evaluated_once(source: DataFrame) -> Iterator[None]:
    """Keep the rows of a source in the cluster: it is read twice, and has to be the same."""
    level = source.storageLevel
    if level.useMemory or level.useDisk:  # its user keeps it
        yield
        return
    source.persist()
    try:
        yield
    finally:
        source.unpersist()


def may_be_lost(spark: SparkSession) -> bool:
    """Whether rows that are kept in the cluster may be lost: not those in the driver's process.

    Spark makes them again then, and a source that is not the same each time gives others.
    """
    master = spark.conf.get("spark.master", None) or ""
    return re.fullmatch(r"local(?:\[.*\])?", master) is None


def same_keys(first: pa.Table, second: pa.Table | None) -> bool:
    """Whether the keys of a source are the same, in any order."""
    if second is None or first.num_rows != second.num_rows:
        return False
    by: Any = [(name, "ascending") for name in first.column_names]
    return bool(first.equals(second) or first.sort_by(by).equals(second.sort_by(by)))


def _of_source(pairs: Iterable[Equality]) -> list[Column]:
    """The sides of the source, as the condition names them: ``s.id`` may be a member of ``s``."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    return [F.col(f"{quoted_name(pair.alias)}.{quoted_name(pair.other)}") for pair in pairs]


def _columns(stored: LanceSchema) -> Mapping[str, Any]:
    """Top-level columns by the names that Spark knows them by, without those it mixes up."""
    by_name: dict[str, list[Any]] = {}
    for field in stored.to_arrow():
        by_name.setdefault(field.name.lower(), []).append(field)
    return {name: fields[0] for name, fields in by_name.items() if len(fields) == 1}


def _is_same(field: pa.Field, sent: pa.DataType, schema: Any) -> bool:
    """Whether values of the column equal those of the source in Spark if they do in Arrow."""
    types = pa.types
    mine = field.type
    if types.is_integer(mine):
        return bool(types.is_integer(sent) and not types.is_uint64(mine))
    if types.is_string(mine) or types.is_large_string(mine):
        # Strings with a collation, and those of a fixed length, compare in other ways.
        return bool(schema[field.name].dataType.simpleString() == "string")
    return bool(types.is_date32(mine) and types.is_date32(sent))
