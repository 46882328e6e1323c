"""Write sparse structure: levels into positions and counts, in the fewest bytes.

Specification: "Sparse structure" and "Number sequences" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.buffers import as_buffer, flags_of
from glaive.encodings.levels import LayerStep, Levels, layer_steps
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.constant import Constant
from glaive.encodings.values.delta import Delta
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.range import Range
from glaive.format.pb import encodings21_pb2 as pb21
from glaive.format.pb import encodings23_pb2 as pb
from glaive.kernels._tier import as_array
from glaive.kernels.bitpack import out_of_line_sizes
from glaive.kernels.levels import resolve_lists, validity_from_levels

__all__ = ["choose_numbers", "write_structure"]

BITS = 64
_BYTES = BITS // 8

Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]


class _Layer(NamedTuple):
    """One layer: which slots are valid (None: all), lengths of lists, size of fixed ones."""

    flags: Flags | None
    lengths: NDArray[np.int64] | None = None
    size: int | None = None


class _Writer:
    """Collects the payloads of sequences in the order they are written in."""

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer | NDArray[np.uint8] | bytes] = []

    def sequence(self, numbers: NDArray[np.int64]) -> pb21.CompressiveEncoding:
        words = np.ascontiguousarray(numbers).view(np.uint64)
        encoding = choose_numbers(words)
        if encoding.has_payload:
            block = FixedWidth(as_buffer(words), BITS, len(words))
            self.buffers.append(encoding.encode_blocks(block, np.array([len(words)])).data)
        return encoding.to_wire()

    def validity(self, flags: Flags | None) -> pb.SparseValiditySet:
        """Name the nulls or the valid slots, whichever are fewer."""
        null, valid = pb.SPARSE_VALIDITY_NULL_POSITIONS, pb.SPARSE_VALIDITY_VALID_POSITIONS
        meaning, positions = null, np.empty(0, np.int64)
        if flags is not None:
            positions = np.flatnonzero(~flags)
            if 2 * len(positions) > len(flags):
                meaning, positions = valid, np.flatnonzero(flags)
        return pb.SparseValiditySet(
            meaning=meaning, positions=self.sequence(positions), num_positions=len(positions)
        )

    def layer(self, layer: _Layer) -> pb.SparseStructuralLayer:
        """A layer of items, or of lists: positions, counts, then validity."""
        if layer.size is not None:
            fixed = pb.SparseFixedSizeListLayer(
                dimension=layer.size, validity=self.validity(layer.flags)
            )
            return pb.SparseStructuralLayer(fixed_size_list=fixed)
        if layer.lengths is None:
            return pb.SparseStructuralLayer(validity=self.validity(layer.flags))
        positions = np.flatnonzero(layer.lengths)
        counts = layer.lengths[positions]
        lists = pb.SparseListLayer(
            num_child_slots=int(counts.sum()),
            non_empty_positions=self.sequence(positions),
            num_non_empty_positions=len(positions),
            counts=self.sequence(counts),
            validity=self.validity(layer.flags),
        )
        return pb.SparseStructuralLayer(list=lists)


def write_structure(
    levels: Levels, rows: int, sizes: Sequence[int | None] = ()
) -> tuple[pb.SparseStructure, list[pa.Buffer | NDArray[np.uint8] | bytes]]:
    """Write the structure that the levels of ``rows`` rows say, and its payloads.

    ``sizes`` are those of the layers that are fixed-size lists of structs, None for others,
    inner-most first; nothing when there are none.
    """
    writer = _Writer()
    sizes = sizes or [None] * len(levels.layers)
    layers = [writer.layer(layer) for layer in reversed(_layers(levels, rows, sizes))]
    return pb.SparseStructure(layers=layers), writer.buffers


def _layers(levels: Levels, rows: int, sizes: Sequence[int | None]) -> list[_Layer]:
    """Resolve the levels; inner-most first."""
    found = []
    rep, definition = levels.rep, levels.definition
    for step, size in zip(layer_steps(levels.layers), sizes, strict=True):
        if not step.is_list or rep is None:
            if size is not None and definition is not None:
                # What is null outside is so in all entries of a list.
                definition = definition[::size]
            found.append(_Layer(_item_flags(definition, step), size=size))
            continue
        lists = resolve_lists(
            rep,
            definition,
            visible_max=step.visible_max,
            resolved_max=step.resolved_max,
            slot_max=step.slot_max,
            null_level=step.null_level,
            offset_bits=64,
            outer=step.outer,
        )
        if lists is None or (not step.list_outside and lists.slots != rows):
            raise ValueError(f"levels of other than {rows} rows")
        offsets = as_array(lists.offsets, "<i8")[: lists.slots + 1]
        flags = None if lists.validity is None else flags_of(lists.validity, lists.slots)
        found.append(_Layer(flags, np.diff(offsets)))
        rep, definition = lists.rep, lists.definition
    return found


def _item_flags(definition: NDArray[np.uint16] | None, step: LayerStep) -> Flags | None:
    if definition is None or not step.null_level:
        return None
    bitmap, _, slots = validity_from_levels(
        definition, slot_max=step.slot_max, null_level=step.null_level
    )
    return None if bitmap is None else flags_of(bitmap, slots)


def choose_numbers(words: Words) -> ValueEncoding:
    """The encoding with the fewest bytes, and of none if the message can say it all."""
    count = len(words)
    if not count:
        return Constant(b"")
    if (words == words[0]).all():
        return Constant(int(words[0]).to_bytes(_BYTES, "little"))
    best: tuple[int, ValueEncoding] = (count * _BYTES, Flat(BITS))
    best = min(best, _packed(words), key=lambda one: one[0])
    steps = np.diff(words)
    if (words[1:] > words[:-1]).all():
        if (steps == steps[0]).all():
            return Range(BITS, int(words[0]), int(steps[0]))
        size, inner = _packed(steps)
        best = min(best, (size, Delta(BITS, int(words[0]), inner)), key=lambda one: one[0])
    return best[1]


def _packed(words: Words) -> tuple[int, ValueEncoding]:
    """All words as wide as the widest."""
    width = max(int(words.max()).bit_length(), 1)
    if width == BITS:
        return len(words) * _BYTES, Flat(BITS)
    size = int(out_of_line_sizes(np.array([len(words)]), BITS, width).sum())
    return size, OutOfLineBitpacking(BITS, width)
