"""Filters that Spark offers, in the language of glaive's own.

Spark offers tests on single columns, all of which must pass, and tests rows again by those that
are handed back. A filter is taken over only where it keeps exactly the rows that Spark would:

* Spark takes all NaN for equal and greater than anything, glaive orders them by their bits.
  Ranges of floats are written so that either gives the same rows.
* A column that Spark sees converted is compared as it is stored; see
  :mod:`glaive.spark.shown_values`.
* A column whose type the user's schema changed, a collated text, an extension type and a value
  computed by the read itself are only tested for nulls.

Nulls: a test that is not about nulls never lets one pass, whether negated or not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import EqualNullSafe, Filter, In, IsNotNull, IsNull, Not
from pyspark.sql.types import DecimalType, LongType

from glaive.errors import ColumnNotFoundError, FilterError, SchemaError
from glaive.expr import tree
from glaive.expr.filters import bind_filter
from glaive.expr.render import render
from glaive.expr.tree import Node
from glaive.format.blobs import is_blob
from glaive.scan.system_columns import SYSTEM_COLUMNS
from glaive.spark.column_tests import ALWAYS, NEVER, Column
from glaive.spark.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from glaive.format.fields import LanceSchema

__all__ = ["Frame", "Pushed", "push"]

MOST_TEXT = 400_000
"""Characters that all filters may have together: every task reads them again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What was taken over and what was not.

    Parameters
    ----------
    texts
        Filters in the language of glaive; rows must pass them all.
    rest
        Filters that Spark must test itself: the very objects it gave.
    """

    texts: tuple[str, ...]
    rest: list[Filter]


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame and the dataset it shows.

    Parameters
    ----------
    shown
        The frame, as Spark sees it.
    places
        Columns of the frame that are columns of the dataset, and where they are there: names
        from the top down.
    schema, present
        The dataset as filters see it, and as scans return it.
    """

    shown: StructType
    places: Mapping[str, tuple[str, ...]]
    schema: LanceSchema
    present: pa.Schema


def push(filters: Sequence[Filter], frame: Frame, room: int = MOST_TEXT) -> Pushed:
    """Take over the filters that can be; ``room`` is what characters their texts may have."""
    texts: dict[str, None] = {}
    taken: set[int] = set()
    implied: list[tuple[str, ...]] = []
    # Spark asks for "not null" beside every comparison, which needs no test of its own then.
    for one in sorted(filters, key=lambda one: isinstance(one, IsNotNull)):
        if isinstance(one, IsNotNull) and any(
            path[: len(one.attribute)] == one.attribute for path in implied
        ):
            taken.add(id(one))
            continue
        text = _text(one, frame)
        if text is None or sum(map(len, texts)) + len(text) > room:
            continue
        taken.add(id(one))
        texts[text] = None
        implied += _not_null(one)
    return Pushed(tuple(texts), [predicate for predicate in filters if id(predicate) not in taken])


def _not_null(one: Filter) -> list[tuple[str, ...]]:
    """The column that is not null wherever a filter passes."""
    leaf = one.child if isinstance(one, Not) else one
    if isinstance(leaf, IsNull | IsNotNull):
        return [leaf.attribute] if isinstance(leaf, IsNotNull) != isinstance(one, Not) else []
    if isinstance(leaf, EqualNullSafe) and (isinstance(one, Not) or leaf.value is None):
        return []
    return [leaf.attribute]  # type: ignore[attr-defined]  # all filters of Spark but Not have it


def _text(one: Filter, frame: Frame) -> str | None:
    node = _node(one, frame)
    if node is None:
        return None
    text = render(node)
    try:
        bind_filter(text, frame.schema, system=SYSTEM_COLUMNS)
    except (FilterError, ColumnNotFoundError) as error:
        _log.debug("%r is left to Spark: %s", one, error)
        return None
    return text


def _node(one: Filter, frame: Frame) -> Node | None:
    negated = isinstance(one, Not)
    leaf: Any = one.child if isinstance(one, Not) else one
    column = _column(leaf.attribute, frame)
    if column is None:
        return None
    if isinstance(leaf, IsNull | IsNotNull):
        return tree.IsNull(column.operand, isinstance(leaf, IsNotNull) != negated)
    if isinstance(leaf, EqualNullSafe) and leaf.value is None:
        return tree.IsNull(column.operand, negated)
    if leaf.value is None or (negated and isinstance(leaf, In) and None in leaf.value):
        return NEVER  # unknown for all rows
    found = column.passing(leaf)
    if found is None:
        return None
    if not negated:
        return column.not_null if found == ALWAYS else found
    if found in (ALWAYS, NEVER):
        found = NEVER if found == ALWAYS else column.not_null
    else:
        found = tree.Not(found)
    if isinstance(leaf, EqualNullSafe):  # null is another value, then
        return tree.either(tree.IsNull(column.operand), found)
    return found


def _column(path: tuple[str, ...], frame: Frame) -> Column | None:
    """The column that Spark names; None where it is none that filters can name."""
    place = frame.places.get(path[0])
    if place is None or path[0] not in frame.shown.names:
        return None
    names = place + path[1:]
    if any("`" in name for name in names):
        return None
    operand = tree.Name(names, exact=True)
    seen: Any = frame.shown[path[0]].dataType
    for name in path[1:]:
        seen = seen[name].dataType
    if names[0] in SYSTEM_COLUMNS and names[0] not in frame.schema.names:
        kind = SYSTEM_COLUMNS[names[0]]
        return Column(operand, kind if isinstance(seen, LongType) else None)
    among = frame.schema.fields
    for name in names:
        stored = next(one for one in among if one.name == name)
        if is_blob(stored) or stored.is_blob_v2:
            return None  # shown as where its values are
        among = stored.children
    field = frame.present.field(names[0])
    for name in names[1:]:
        if not pa.types.is_struct(field.type):
            return None
        field = field.type.field(name)
    return Column(operand, _comparable(field, seen))


def _comparable(field: Any, seen: DataType) -> Any:
    """The stored type of a column if Spark sees it as it is; else None."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return None
    try:
        expected = to_spark(pa.schema([field]))[0].dataType
    except SchemaError:
        return None
    if expected != seen:  # the user's schema has another type
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_decimal(kind) and not isinstance(seen, DecimalType):
        return None  # too many digits: shown as text
    return kind
