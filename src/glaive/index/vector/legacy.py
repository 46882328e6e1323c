"""Vector indices of old writers: one file that is not a Lance file of 2.x.

Specification: "Old indices" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.address_map import AddressMap
from glaive.index.protocol import RebuiltSegment
from glaive.index.segment import Segment, SegmentWriter
from glaive.kernels.distances import METRICS
from glaive.memory import as_array
from glaive.types import UInt8s

__all__ = ["legacy_description", "legacy_options", "remap_legacy"]

_TAIL = struct.Struct("<qHH4s")
_VERSION = (0, 1)
_LENGTH = struct.Struct("<I")


def remap_legacy(
    segment: Segment, name: str, address_map: AddressMap, out: SegmentWriter
) -> RebuiltSegment | None:
    """Remove deleted rows from the partitions of an IVF-PQ index; ``None`` for other indices."""
    data = segment.get(name)
    path = segment.store.full(f"{segment.folder}/{name}")
    index, begin = legacy_description(data, path)
    if index is None:
        return None
    ivf, pq = index.vector_index.stages[0].ivf, index.vector_index.stages[1].pq
    width = pq.num_sub_vectors * pq.num_bits // 8
    lengths = np.array(ivf.lengths, np.int64)
    offsets = np.array(ivf.offsets, np.uint64)
    good = width > 0 and len(offsets) == len(lengths) and (offsets <= begin).all()
    good = good and (lengths <= begin // (width + 8)).all()
    sizes = lengths * (width + 8 if good else 0)
    # Also together: the same bytes as many partitions would be any number of rows.
    if not good or (offsets.astype(np.int64) + sizes > begin).any() or sizes.sum() > begin:
        found = f"{len(offsets)} with codes of {width} bytes"
        if good:
            end = int((offsets.astype(np.int64) + sizes).max(initial=0))
            found = f"{len(offsets)} of {int(sizes.sum())} bytes, up to byte {end}"
        raise CorruptFileError(
            "partitions of an index",
            expected=f"{len(lengths)} before byte {begin}",
            found=found,
            where=path,
        )
    content = as_array(data)
    parts: list[UInt8s] = []
    for at, rows in enumerate(lengths.tolist()):
        start = int(offsets[at])
        codes = content[start : start + rows * width].reshape(rows, width)
        stored = content[start + rows * width :][: rows * 8].copy().view("<u8")
        new_addresses, kept = address_map.apply(stored.astype(np.uint64, copy=False))
        parts += [codes[kept].reshape(-1), new_addresses[kept].view(np.uint8)]
        lengths[at] = kept.sum()
    del ivf.offsets[:], ivf.lengths[:]
    ends = np.cumsum(lengths * (width + 8))
    ivf.offsets.extend((ends - lengths * (width + 8)).tolist())
    ivf.lengths.extend(lengths.tolist())
    message = index.SerializeToString()
    position = int(ends[-1]) if len(ends) else 0
    tail = _TAIL.pack(position, *_VERSION, b"LANC")
    body = np.concatenate(parts).tobytes() if parts else b""
    out.put(name, [body, _LENGTH.pack(len(message)), message, tail])
    return RebuiltSegment()


def legacy_options(segment: Segment, name: str) -> dict[str, Any]:
    """Parameters to build an index like one of one file, by the names of ``create_index``.

    Raises
    ------
    UnsupportedFeatureError
        It is not one of product codes.
    """
    index, _ = legacy_description(segment.get(name), segment.where)
    if index is None or index.vector_index.metric_type >= len(METRICS) - 1:
        raise UnsupportedFeatureError(
            f"{segment.where}: an index of this kind is not read: create it again"
        )
    pq = index.vector_index.stages[1].pq
    return {
        "index_type": "IVF_PQ",
        "metric": METRICS[index.vector_index.metric_type],
        "num_sub_vectors": pq.num_sub_vectors,
        "num_bits": pq.num_bits,
    }


def legacy_description(data: pa.Buffer, path: str) -> tuple[index_pb2.Index | None, int]:
    """The description of an IVF-PQ index (None: of another one), and where it begins."""
    if data.size < _TAIL.size:
        raise CorruptFileError(
            "size of an index", expected=f"{_TAIL.size} bytes", found=f"{data.size}", where=path
        )
    position, major, minor, magic = _TAIL.unpack(data[data.size - _TAIL.size :])
    if magic != b"LANC" or (major, minor) != _VERSION:
        return None, 0
    if not 0 <= position <= data.size - _TAIL.size - _LENGTH.size:
        raise CorruptFileError(
            "description of an index",
            expected=f"a position below {data.size}",
            found=f"{position}",
            where=path,
        )
    (size,) = _LENGTH.unpack(data[position : position + _LENGTH.size])
    start = position + _LENGTH.size
    if start + size > data.size - _TAIL.size:
        raise CorruptFileError(
            "description of an index",
            expected=f"at most {data.size - _TAIL.size - start} bytes",
            found=f"{size}",
            where=path,
        )
    index = parse(index_pb2.Index(), data[start : start + size], "description", path)
    stages = [stage.WhichOneof("stage") for stage in index.vector_index.stages]
    return (index if stages == ["ivf", "pq"] else None), position
