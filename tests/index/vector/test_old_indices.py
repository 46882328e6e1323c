"""Vector indices of one file, of old writers: what their descriptions say is compared."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import uuid4

import pytest

from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2, table_pb2
from glaive.index.row_sets import AddressMap
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector.opened import remap_legacy
from glaive.io.access import open_store
from glaive.types import FormatVersion


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(
    ("lengths", "offsets"), [([1, 2], [0, 1, 2]), ([1, 2, 3], [0]), ([1], []), ([2**32 - 1], [0])]
)
def test_partitions_of_other_numbers_than_offsets_are_damage(
    tmp_path: Path, lengths: list[int], offsets: list[int]
) -> None:
    index = index_pb2.Index()
    ivf, pq = index.vector_index.stages.add().ivf, index.vector_index.stages.add().pq
    ivf.lengths.extend(lengths)
    ivf.offsets.extend(offsets)
    pq.num_sub_vectors, pq.num_bits, pq.dimension = 2, 8, 4
    message = index.SerializeToString()
    raw = bytes(100) + struct.pack("<I", len(message)) + message
    raw += struct.pack("<qHH4s", 100, 0, 1, b"LANC")
    store, entry = open_store(str(tmp_path)), table_pb2.IndexMetadata(name="i")
    entry.uuid.uuid = uuid4().bytes
    segment = Segment(store, entry)
    store.put(f"{segment.folder}/index.idx", [raw])
    out = SegmentWriter(store, FormatVersion(2, 1))
    with pytest.raises(CorruptFileError, match="partitions of an index"):
        remap_legacy(segment, AddressMap({}), out)
