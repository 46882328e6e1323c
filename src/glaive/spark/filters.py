"""Translate filters that Spark pushes down to glaive's filter language.

Spark offers a conjunction of tests on single columns, and evaluates the rejected ones itself. A
filter is accepted only if it selects exactly the rows that Spark would:

* For Spark all NaNs are equal and greater than other values; glaive orders them by their bits.
  Ranges of floats are rewritten to select the same rows.
* Columns that are converted for Spark are compared by their stored values; see
  :mod:`glaive.spark.shown_values`.
* Columns whose type the user's schema changed, collated strings, extension types and computed
  columns are only tested for nulls.

Nulls never pass a test that is not about nulls, negated or not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal, getcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DecimalType, LongType

from glaive.dataclass import dataclass
from glaive.errors import ColumnNotFoundError, FilterError, SchemaError
from glaive.expr import tree
from glaive.expr.filters import bind_filter
from glaive.expr.render import render
from glaive.expr.tree import Node
from glaive.format.blobs import is_blob
from glaive.scan.system_columns import SYSTEM_COLUMNS
from glaive.spark.column_tests import ALWAYS, NEVER, Column, Compared
from glaive.spark.types import to_spark
from glaive.spark.versions import EqualNullSafe, Filter, In, IsNotNull, IsNull, Not

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from glaive.format.fields import LanceSchema

__all__ = ["Frame", "Pushed", "may_be_rounded", "push"]

MAX_TEXT = 400_000
"""Maximum total characters of filters, which every task parses again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pushed:
    """Accepted and rejected filters.

    Parameters
    ----------
    filters
        Accepted filters in glaive's language; rows must pass all.
    rest
        Filters that Spark must evaluate itself: the same objects.
    complete
        Whether all were accepted.
    """

    filters: tuple[str, ...]
    rest: list[Filter]
    complete: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame and its dataset.

    Parameters
    ----------
    columns
        The Spark schema of the frame.
    paths
        Paths in the dataset of the columns of the frame that are not computed.
    schema, scanned
        The schema of the dataset for filters, and that of scans.
    """

    columns: StructType
    paths: Mapping[str, tuple[str, ...]]
    schema: LanceSchema
    scanned: pa.Schema


def push(filters: Sequence[Filter | Compared], frame: Frame, budget: int = MAX_TEXT) -> Pushed:
    """Accept filters that can be translated, up to ``budget`` characters in total."""
    accepted: dict[str, None] = {}
    taken: set[int] = set()
    implied: list[tuple[str, ...]] = []
    # Spark adds "not null" to every comparison, which is redundant here.
    for pushed in sorted(filters, key=lambda pushed: isinstance(pushed, IsNotNull)):
        if isinstance(pushed, IsNotNull) and any(
            path[: len(pushed.attribute)] == pushed.attribute for path in implied
        ):
            taken.add(id(pushed))
            continue
        text = _text(pushed, frame)
        if text is None or sum(map(len, accepted)) + len(text) > budget:
            continue
        taken.add(id(pushed))
        accepted[text] = None
        implied += _not_null(pushed)
    rest = [test for test in filters if isinstance(test, Filter) and id(test) not in taken]
    return Pushed(tuple(accepted), rest, all(id(test) in taken for test in filters))


def may_be_rounded(pushed: Filter) -> bool:
    """Whether a decimal of a filter may be another one than that of the query.

    Spark's worker multiplies the digits that it gets by a power of ten, and Python leaves as many
    of the product as its context says: 28, where Spark's decimals have up to 38.
    """
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    value: Any = getattr(leaf, "value", None)
    values = value if isinstance(leaf, In) else (value,)
    most = getcontext().prec
    return any(isinstance(one, Decimal) and len(one.as_tuple().digits) >= most for one in values)


def _not_null(pushed: Filter | Compared) -> list[tuple[str, ...]]:
    """The column that is not null in all rows that pass a filter."""
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    if isinstance(leaf, IsNull | IsNotNull):
        return [leaf.attribute] if isinstance(leaf, IsNotNull) != isinstance(pushed, Not) else []
    if isinstance(leaf, EqualNullSafe) and (isinstance(pushed, Not) or leaf.value is None):
        return []
    return [leaf.attribute]  # all of them except Not have it


def _text(pushed: Filter | Compared, frame: Frame) -> str | None:
    node = _node(pushed, frame)
    if node is None:
        return None
    text = render(node)
    try:
        bind_filter(text, frame.schema, system=SYSTEM_COLUMNS)
    except (FilterError, ColumnNotFoundError) as error:
        _log.debug("%r is not pushed down: %s", pushed, error)
        return None
    return text


def _node(pushed: Filter | Compared, frame: Frame) -> Node | None:
    if isinstance(pushed, Compared):
        first, second = _column(pushed.attribute, frame), _column(pushed.other, frame)
        return None if first is None or second is None else first.compared(pushed.kind, second)
    negated = isinstance(pushed, Not)
    leaf: Any = pushed.child if isinstance(pushed, Not) else pushed
    column = _column(leaf.attribute, frame)
    if column is None:
        return None
    if isinstance(leaf, IsNull | IsNotNull):
        return tree.IsNull(column.operand, isinstance(leaf, IsNotNull) != negated)
    if isinstance(leaf, EqualNullSafe) and leaf.value is None:
        return tree.IsNull(column.operand, negated)
    if leaf.value is None or (negated and isinstance(leaf, In) and None in leaf.value):
        return NEVER  # unknown for all rows
    test = column.passing(leaf)
    if test is None:
        return None
    if not negated:
        return column.not_null if test == ALWAYS else test
    if test in (ALWAYS, NEVER):
        test = NEVER if test == ALWAYS else column.not_null
    else:
        test = tree.Not(test)
    if isinstance(leaf, EqualNullSafe):  # null differs from all values
        return tree.either(tree.IsNull(column.operand), test)
    return test


def _column(path: tuple[str, ...], frame: Frame) -> Column | None:
    """The column at a Spark path; None if filters cannot refer to it."""
    top = frame.paths.get(path[0])
    if top is None or path[0] not in frame.columns.names:
        return None
    names = top + path[1:]
    if any("`" in name for name in names):
        return None
    operand = tree.Name(names, exact=True)
    seen: Any = frame.columns[path[0]].dataType
    for name in path[1:]:
        seen = seen[name].dataType
    if names[0] in SYSTEM_COLUMNS and names[0] not in frame.schema.names:
        data_type = SYSTEM_COLUMNS[names[0]]
        return Column(operand, data_type if isinstance(seen, LongType) else None)
    among = frame.schema.fields
    for name in names:
        stored = next(field for field in among if field.name == name)
        if is_blob(stored) or stored.is_blob_v2:
            return None  # a descriptor in Spark
        among = stored.children
    field = frame.scanned.field(names[0])
    for name in names[1:]:
        if not pa.types.is_struct(field.type):
            return None
        field = field.type.field(name)
    return Column(operand, _comparable(field, seen))


def _comparable(field: Any, seen: DataType) -> Any:
    """The stored type of a column if Spark sees its values unconverted; else None."""
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        return None
    try:
        expected = to_spark(pa.schema([field]))[0].dataType
    except SchemaError:
        return None
    if expected != seen:  # the user's schema has another type
        return None
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_decimal(data_type) and not isinstance(seen, DecimalType):
        return None  # too many digits: a string in Spark
    return data_type
