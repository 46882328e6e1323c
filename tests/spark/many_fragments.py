"""Versions with many fragments, whose files need not be there: for plans, which read no data."""

from __future__ import annotations

import pyarrow as pa

import glaive
from glaive.dataset.version import OpenedVersion
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2


def many_fragments(uri: str, count: int, *, own_names: bool = False) -> OpenedVersion:
    """A version with fragments of a thousand rows; not committed.

    All have the same file, or with ``own_names`` each a file of its own, which is not there.
    """
    dataset = glaive.write_dataset(pa.table({"id": range(1000)}), uri)
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(dataset.manifest.complete_wire)
    (fragment,) = wire.fragments
    (file,) = dataset.manifest.fragment(0).files
    name, size = file.path.encode(), len(file.path) - len(".lance")

    def numbered(number: int) -> bytes:
        renamed = fragment.replace(name, file_name(number, size)) if own_names else fragment
        return b"\x08" + _varint(number) + renamed

    del wire.fragments[:]
    wire.fragments.extend([numbered(number) for number in range(count)])
    wire.max_fragment_id = count - 1
    manifest = Manifest(wire, where=dataset.manifest.where, scheme=dataset.manifest.scheme)
    return dataset.opened.at(manifest)


def file_name(number: int, size: int = 50) -> bytes:
    """A name of so many digits that look random, and a suffix."""
    digits = pow(3, number + 1000, 2**256 - 189)  # the order of 3 is large
    return f"{digits:064x}"[:size].encode() + b".lance"


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
