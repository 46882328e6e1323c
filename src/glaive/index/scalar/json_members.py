"""The values of one member of JSON documents, as a build of an index reads them.

Specification: "JSON" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.jsonb import encode_jsonb
from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.expr.functions.json import (
    FALSE,
    NULL,
    NUMBER,
    STRING,
    TRUE,
    JsonItems,
    items_of,
    numbers_of,
    strings_of,
)
from glaive.index.protocol import FragmentExtent, IndexSource, ValueBatch

_FLOAT = 0x60
"""Type of a number that is not an integer, in the first byte of its payload."""


_STORED = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)
"""Types that documents may have: text of JSON, or JSONB."""


@dataclass(frozen=True, eq=False)
class MemberSource:
    """Live rows of a JSON column, with the values of a member (an ``IndexSource``).

    Parameters
    ----------
    documents
        The column.
    path
        Name of the member.
    field
        The member, with the type that its values have: integers, floats, strings or booleans.
    """

    documents: IndexSource
    path: str
    field: pa.Field[Any]

    @classmethod
    def of(cls, documents: IndexSource, path: str, otherwise: pa.DataType | None = None) -> Self:
        """Read documents until one has the member, whose type is that of all.

        If none has it, it is of the type ``otherwise``, by default a string.
        """
        field, stored = documents.field, documents.field.type
        if not any(test(stored) for test in _STORED):
            raise UnsupportedFeatureError(
                f"column {field.name!r} of type {stored} cannot have a JSON index"
            )
        for values, _ in documents.batches():
            items = _present(values, path)
            if len(items):
                return cls(documents, path, pa.field(field.name, _type_of(items, field.name, path)))
        return cls(documents, path, pa.field(field.name, otherwise or pa.string()))

    @property
    def dictionary_type(self) -> pa.DataType | None:
        """None: members are plain values."""
        return None

    @property
    def fragments(self) -> Sequence[FragmentExtent]:
        """The fragments, in the order in which they are read."""
        return self.documents.fragments

    @property
    def num_rows(self) -> int:
        """Live rows."""
        return self.documents.num_rows

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows have ids that are not their addresses."""
        return self.documents.stable_row_ids

    @property
    def memory_limit(self) -> int:
        """Bytes that a build may hold."""
        return self.documents.memory_limit

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows."""
        for values, rows in self.documents.batches():
            yield ValueBatch(self._values(values), rows)

    def sample(self, rows: int, seed: int = 0) -> pa.Array:
        """Values of so many random rows, or of all."""
        return self._values(self.documents.sample(rows, seed))

    def _values(self, documents: Any) -> pa.Array:
        items = _present(documents, self.path)
        if len(items):
            found = _type_of(items, self.field.name, self.path)
            if found != self.field.type:
                raise _mixed(self.field.name, self.path, f"{self.field.type} and {found}")
        if self.field.type == pa.bool_():
            values: Any = pa.array(items.kinds == TRUE)
        elif self.field.type == pa.string():
            values = strings_of(items)
        else:
            values = numbers_of(items, self.field.type, f"member {self.path!r}")
        positions = np.full(len(documents), -1)
        positions[items.rows] = np.arange(len(items))
        rows: pa.Array = values.take(pa.array(positions, mask=positions < 0))
        return rows


def _present(documents: Any, path: str) -> JsonItems:
    """The member of each document that has it, and in which it is not null."""
    kind = documents.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        documents = encode_jsonb(documents)
    items = items_of(documents.cast(pa.large_binary())).members(path)
    return items.keep(items.kinds != NULL)


def _type_of(items: JsonItems, column: str, path: str) -> Any:
    """The type that all of some items have."""
    is_number = items.kinds == NUMBER
    fractional = np.zeros(len(items), np.bool_)
    tagged = np.flatnonzero(is_number & (items.end > items.begin))
    fractional[tagged] = items.raw[items.begin[tagged]] & 0xF0 == _FLOAT
    groups: dict[Any, Any] = {
        pa.int64(): is_number & ~fractional,
        pa.float64(): fractional,
        pa.string(): items.kinds == STRING,
        pa.bool_(): (items.kinds == TRUE) | (items.kinds == FALSE),
    }
    found = [kind for kind, flags in groups.items() if flags.any()]
    if len(found) != 1 or not groups[found[0]].all():
        others = [] if np.logical_or.reduce(list(groups.values())).all() else ["others"]
        raise _mixed(column, path, " and ".join([*map(str, found), *others]))
    return found[0]


def _mixed(column: str, path: str, types: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"column {column!r}: member {path!r} has values of type {types}; a JSON index takes "
        "integers, floats, strings or booleans, and one type only"
    )
