"""The content of a version, for comparing versions that two libraries made of one change."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from pyroaring import BitMap

from glaive.format.manifest import Manifest
from glaive.format.rowids import decode_row_ids, decode_versions

_CHANGING = ("timestamp", "writerVersion", "transactionFile", "transactionSection", "indexSection")


def content(manifest: Manifest) -> dict[str, Any]:
    """All that two versions of one content agree on, sequences of row ids taken apart."""
    found = MessageToDict(manifest.wire)
    for name in _CHANGING:
        found.pop(name, None)
    found["fragments"] = [_fragment(manifest, at) for at in range(manifest.num_fragments)]
    found["indices"] = [_index(one) for one in manifest.indices]
    found["basePaths"] = sorted(found.get("basePaths", ()), key=str)
    return found


def _fragment(manifest: Manifest, position: int) -> dict[str, Any]:
    wire = manifest.fragment_wire(position)
    found: dict[str, Any] = MessageToDict(wire)
    rows = wire.physical_rows
    if wire.inline_row_ids:
        ids = decode_row_ids(wire.inline_row_ids, rows, where="test").tolist()
        found["inlineRowIds"] = ids
    for name, data in (
        ("inlineLastUpdatedAtVersions", wire.inline_last_updated_at_versions),
        ("inlineCreatedAtVersions", wire.inline_created_at_versions),
    ):
        if data:
            found[name] = decode_versions(data, rows, where="test").tolist()
    return found


def _index(entry: Any) -> dict[str, Any]:
    known = type(entry)()
    known.CopyFrom(entry)
    known.ClearField("index_details")
    found: dict[str, Any] = MessageToDict(known)
    found.pop("createdAt", None)
    found["details"] = (entry.index_details.type_url, entry.index_details.value)
    if entry.fragment_bitmap:
        found["fragmentBitmap"] = list(BitMap.deserialize(entry.fragment_bitmap))
    return found
