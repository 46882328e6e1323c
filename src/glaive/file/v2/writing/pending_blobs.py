"""Pages of blobs to be written: values first, then the page of descriptors.

Specification: "Pages" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import validity_flags
from glaive.dataclass import dataclass
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.repdef import Levels
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.values.flat import Flat
from glaive.errors import GlaiveError
from glaive.file.v2.writing.blob_values import BlobValues
from glaive.format.pb import encodings21_pb2 as pb
from glaive.memory import as_buffer
from glaive.types import Int64s

__all__ = ["PendingBlobs", "pending_page"]

_PAIR = [64, 64]
_LEVEL_SHIFT = np.uint64(16)


@dataclass(slots=True)
class PendingBlobs(EncodedPage):
    """A page of blobs whose positions are known only when they are written.

    ``values`` has one per row, empty ones included; ``describe`` builds the page from the positions
    of the written values, and their sizes.
    """

    values: BlobValues
    describe: Callable[[Int64s, Int64s], EncodedPage]


def pending_page(array: Any, levels: Levels, rows: int, *, large_chunks: bool) -> PendingBlobs:
    """A page of blobs with levels; without lists."""
    valid = validity_flags(array)
    if levels.definition is not None:
        valid = levels.definition == 0
    layout: Any = None
    describe = partial(_describe, levels, rows, large_chunks=large_chunks)
    return PendingBlobs(layout, [], rows, BlobValues.of(array, valid), describe)


def _describe(
    levels: Levels, rows: int, positions: Int64s, sizes: Int64s, *, large_chunks: bool
) -> EncodedPage:
    from glaive.encodings.miniblock.writer import encode_mini_page

    pairs = np.stack((np.where(sizes > 0, positions, 0), sizes), axis=1).astype(np.uint64)
    if levels.definition is not None:
        # Valid values have level 0, and null values are not written.
        pairs[:, 0] |= levels.definition.astype(np.uint64) << _LEVEL_SHIFT
    page = encode_mini_page(
        FixedWidth(as_buffer(pairs.reshape(-1)), sum(_PAIR), rows),
        Flat(sum(_PAIR)),
        None,
        None,
        (Layer.ALL_VALID_ITEM,),
        rows,
        large_chunks=large_chunks,
        level_runs=False,
    )
    if page is None:
        raise GlaiveError(f"a page of {rows} blob descriptors does not fit its chunks")
    layout: Any = page.layout
    encoding = layout.mini_block_layout.value_compression
    packed = pb.CompressiveEncoding()
    packed.packed_struct.bits_per_value.extend(_PAIR)
    packed.packed_struct.values.CopyFrom(encoding)
    encoding.CopyFrom(packed)
    layers = [pb.RepDefLayer.ValueType(layer) for layer in levels.layers]
    blob = pb.BlobLayout(inner_layout=layout, layers=layers)
    return EncodedPage(pb.PageLayout(blob_layout=blob), page.buffers, rows)
