"""JSON: a BTREE or another scalar index over the values of one member of JSON documents.

Specification: "JSON" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.format.pb import json_details_pb2, table_pb2
from glaive.format.wire import parse
from glaive.index.address_map import AddressMap
from glaive.index.protocol import (
    BuiltSegment,
    IndexKind,
    IndexSource,
    OpenedIndex,
    RebuiltSegment,
    index_kind,
    index_kinds,
    kind_by_files,
)
from glaive.index.scalar.bloomfilter import OpenedBloomFilter
from glaive.index.scalar.json_members import MemberSource
from glaive.index.segment import Segment, SegmentWriter

_TARGET, _PATH = "target_index_type", "path"
_TARGETS = ("btree", "bitmap", "zonemap", "bloomfilter", "ngram")
_MEMBER = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Paths that mean the same to the index and to functions such as ``json_get_int``."""


@index_kind
class JsonPath(IndexKind):
    """Delegates to the kind of index that its files belong to."""

    name: ClassVar[str] = "json"
    newest: ClassVar[int] = 0

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment as the other kind does."""
        return _kind_of(segment).remap(segment, address_map, out)

    def json_path(self, entry: table_pb2.IndexMetadata) -> str | None:
        """Where the indexed values are within the documents."""
        return _details_of(entry)[0]

    def details(self, entry: table_pb2.IndexMetadata) -> dict[str, Any]:
        """The path; the details of the other kind have nothing in them."""
        return {"path": _details_of(entry)[0], "target_details": {}}

    def open(self, segment: Segment) -> OpenedIndex:
        """Open the segment as the other kind does."""
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
        """Build another kind of index over the values of a member.

        Parameters are ``path``, the name of the member, ``target_index_type``, the kind of
        index, and those of that kind. Values have to be of one type, nulls aside.
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
        built = index_kinds()[name].build(MemberSource.of(source, path), rest, out)
        return _wrapped(path, built)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The path, the kind, and the parameters of that kind."""
        kind = _kind_of(segment)
        own = kind.parameters(segment)
        return {**own, _PATH: _details_of(segment.entry)[0], _TARGET: kind.name}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Those of the other kind."""
        return _kind_of(segment).statistics(segment)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Merge the segments as the other kind does."""
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
        new = MemberSource.of(source, path, stored[0])
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
    """The path, and the details of the other kind."""
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
