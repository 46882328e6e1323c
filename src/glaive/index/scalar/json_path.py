"""JSON: a scalar index, such as BTREE, over one member of JSON documents.

Specification: "JSON" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.jsonb import encode_jsonb
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
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
from glaive.format.pb import json_details_pb2, table_pb2
from glaive.format.wire import parse
from glaive.index.protocol import (
    BuiltSegment,
    IndexKind,
    IndexSource,
    OpenedIndex,
    RebuiltSegment,
    ValueBatch,
    index_kind,
    kind_by_files,
    known_kind,
)
from glaive.index.row_sets import AddressMap
from glaive.index.scalar.zones import MEMBER, OpenedBloomFilter
from glaive.index.segment import Segment, SegmentWriter

# --- Read the values of one member of JSON documents to build an index ------------------
# Specification: "JSON" in ``docs/format/scalar-indices.md``.

_FLOAT = 0x60
"""JSONB type of a floating-point number, in the first byte of its payload."""


_STORED = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)
"""Types of columns of documents: JSON text, or JSONB."""


@dataclass(frozen=True, eq=False)
class MemberSource:
    """Live rows of a JSON column, with the values of a member (an ``IndexSource``).

    Parameters
    ----------
    documents
        Source of the column.
    path
        Name of the member.
    field
        The member, with the type of its values: integer, float, string or boolean.
    """

    documents: IndexSource
    path: str
    field: pa.Field[Any]

    @classmethod
    def of(cls, documents: IndexSource, path: str, otherwise: pa.DataType | None = None) -> Self:
        """Read documents until one has the member; its type must be the type of all.

        If all documents lack the member, its type is ``otherwise``, by default string.
        """
        field, stored = documents.field, documents.field.type
        if not any(test(stored) for test in _STORED):
            raise UnsupportedFeatureError(
                f"column {field.name!r} of type {stored} cannot have a JSON index"
            )
        for values, _ in documents.batches():
            items = _present(values, path)
            if len(items):
                return cls(documents, path, _member(field.name, _type_of(items, field.name, path)))
        return cls(documents, path, _member(field.name, otherwise or pa.string()))

    dictionary_type = None  # members are not dictionaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self.documents, name)

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows."""
        for values, rows in self.documents.batches():
            yield ValueBatch(self._values(values), rows)

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


def _member(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, metadata={MEMBER: b""})


def _present(documents: Any, path: str) -> JsonItems:
    """Return the member of the documents that have it, except nulls."""
    kind = documents.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        documents = encode_jsonb(documents)
    items = items_of(documents.cast(pa.large_binary())).members(path)
    return items.keep(items.kinds != NULL)


def _type_of(items: JsonItems, column: str, path: str) -> Any:
    """Return the common type of some items; raise if types differ."""
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


_TARGET, _PATH = "target_index_type", "path"
_TARGETS = ("btree", "bitmap", "zonemap", "bloomfilter", "ngram")
_MEMBER = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Paths that mean the same to the index and to functions such as ``json_get_int``."""


@index_kind
class JsonPath(IndexKind):
    """Delegates to the target kind: the kind of index that its files belong to."""

    name: ClassVar[str] = "json"
    newest: ClassVar[int] = 0

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment with the target kind."""
        return _kind_of(segment).remap(segment, address_map, out)

    def json_path(self, entry: table_pb2.IndexMetadata) -> str | None:
        """Return the path of the indexed values within the documents."""
        return _details_of(entry)[0]

    def details(self, entry: table_pb2.IndexMetadata) -> dict[str, Any]:
        """Return the path; the details of the target kind are always empty."""
        return {"path": _details_of(entry)[0], "target_details": {}}

    def open(self, segment: Segment) -> OpenedIndex:
        """Open the segment with the target kind."""
        path, _ = _details_of(segment.entry)
        if _MEMBER.fullmatch(path) is None:
            raise UnsupportedFeatureError(
                f"{segment.where}: path {path!r} is not the name of a member: functions such as "
                "json_get_int would read it differently"
            )
        kind = _kind_of(segment)
        opened = kind.open(segment)
        if isinstance(opened, OpenedBloomFilter):
            return opened.of_members(kind.value_type(segment))
        return opened

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Build an index of the target kind over the values of a member.

        Parameters are ``path`` (name of the member), ``target_index_type`` (the target kind), and
        the parameters of that kind. All valid values must have one type.
        """
        path, target = parameters.get(_PATH), parameters.get(_TARGET, "btree")
        if not isinstance(path, str) or _MEMBER.fullmatch(path) is None:
            raise OptionError(
                f"path: expected the name of a member of the documents, found {path!r}. Only "
                "letters, digits and _ can be indexed, and no paths within members"
            )
        name = target.lower().replace("_", "") if isinstance(target, str) else target
        if name not in _TARGETS:
            expected = ", ".join(_TARGETS)
            raise OptionError(f"target_index_type: expected one of {expected}, found {target!r}")
        if source.stable_row_ids:
            raise UnsupportedFeatureError(
                f"column {source.field.name!r}: datasets with stable row ids cannot have a JSON "
                "index, as its rows could be read as addresses and as ids"
            )
        rest = {key: value for key, value in parameters.items() if key not in (_PATH, _TARGET)}
        members: Any = MemberSource.of(source, path)
        built = known_kind(name).build(members, rest, out)
        return _wrapped(path, built)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the path, the target kind, and its parameters."""
        kind = _kind_of(segment)
        own = kind.parameters(segment)
        return {**own, _PATH: _details_of(segment.entry)[0], _TARGET: kind.name}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the statistics of the target kind."""
        return _kind_of(segment).statistics(segment)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Merge the segments with the target kind."""
        paths = {_details_of(segment.entry)[0] for segment in segments}
        kinds = {_kind_of(segment).name for segment in segments}
        if len(paths) > 1 or len(kinds) > 1:
            raise UnsupportedFeatureError(
                f"{segments[0].where}: segments of different paths or kinds are not merged: build "
                "the index again"
            )
        path, kind = paths.pop(), _kind_of(segments[0])
        stored = [kind.value_type(segment) for segment in segments]
        if len(set(stored)) > 1:
            raise _several_types(segments[0], stored)
        if source is None:
            return _wrapped(path, kind.merge(segments, None, out))
        new: Any = MemberSource.of(source, path, stored[0])
        if stored[0] != new.field.type:
            raise _several_types(segments[0], (stored[0], new.field.type))
        return _wrapped(path, kind.merge(segments, new, out))


def _several_types(
    segment: Segment, types: Sequence[pa.DataType | None]
) -> UnsupportedFeatureError:
    found = " and ".join(sorted({"unknown type" if one is None else str(one) for one in types}))
    return UnsupportedFeatureError(
        f"{segment.where}: values of {found} are not merged: build the index again"
    )


def _kind_of(segment: Segment) -> IndexKind:
    kind = kind_by_files(segment.sizes())
    if kind is None:
        raise CorruptFileError(
            "JSON index",
            expected="the files of a scalar index",
            found=f"{sorted(segment.sizes())}",
            where=segment.where,
        )
    return kind


def _details_of(entry: table_pb2.IndexMetadata) -> tuple[str, bytes]:
    """Return the path, and the details of the target kind."""
    where = f"details of index {entry.name!r}"
    message = parse(
        json_details_pb2.JsonIndexDetails(), entry.index_details.value, "details", where
    )
    return message.path, message.target_details.value


def _wrapped(path: str, built: BuiltSegment) -> BuiltSegment:
    message = json_details_pb2.JsonIndexDetails(path=path)
    message.target_details.type_url = built.type_url
    message.target_details.value = built.details
    details: bytes = message.SerializeToString()
    return BuiltSegment("/lance.index.pb.JsonIndexDetails", details, built.version)
