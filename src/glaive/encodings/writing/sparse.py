"""Write sparse structure: the layers of a column into positions and counts.

Specification: "Sparse structure" and "Number sequences" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from glaive.encodings.levels.layers import LayerStep, layer_steps
from glaive.encodings.levels.repdef import Levels
from glaive.encodings.writing.numbers import EncodedNumbers, encode_numbers
from glaive.format.pb import encodings21_pb2 as pb21
from glaive.format.pb import encodings23_pb2 as pb
from glaive.kernels.levels import resolve_lists
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt8s, UInt16s, UInt64s

__all__ = ["SlotLayer", "layers_of", "valid_leaves", "write_structure"]

_NONE = np.empty(0, np.uint64)

_MAX_TRIED_RATIO = 8
"""A list of positions that is longer than the other by more than this factor is not tried."""


class SlotLayer(NamedTuple):
    """One layer: validity of slots (None: all valid), lengths of lists, or their fixed size.

    Null lists have the length 0.
    """

    flags: Flags | None
    lengths: Int64s | None = None
    size: int | None = None


def _positions(flags: Flags) -> UInt64s:
    return np.flatnonzero(flags).view(np.uint64)


class _Writer:
    """Collects the payloads of sequences in the order they are written in."""

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer | UInt8s | bytes] = []

    def sequence(self, numbers: Int64s) -> pb21.CompressiveEncoding:
        return self._put(encode_numbers(np.ascontiguousarray(numbers).view(np.uint64)))

    def _put(self, numbers: EncodedNumbers) -> pb21.CompressiveEncoding:
        if numbers.payload is not None:
            self.buffers.append(numbers.payload)
        return numbers.encoding.to_wire()

    def validity(self, flags: Flags | None) -> pb.SparseValiditySet:
        """List the null or the valid slots, whichever takes fewer bytes."""
        meaning, positions = pb.SPARSE_VALIDITY_NULL_POSITIONS, _NONE
        numbers = encode_numbers(positions)
        if flags is not None:
            positions = _positions(~flags)
            valid = len(flags) - len(positions)
            if len(positions) <= _MAX_TRIED_RATIO * valid:
                numbers = encode_numbers(positions)
            if valid <= _MAX_TRIED_RATIO * len(positions):
                valid_positions = _positions(flags)
                encoded = encode_numbers(valid_positions)
                if len(positions) > _MAX_TRIED_RATIO * valid or encoded.size < numbers.size:
                    meaning, positions = pb.SPARSE_VALIDITY_VALID_POSITIONS, valid_positions
                    numbers = encoded
        return pb.SparseValiditySet(
            meaning=meaning, positions=self._put(numbers), num_positions=len(positions)
        )

    def layer(self, layer: SlotLayer) -> pb.SparseStructuralLayer:
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
    layers: Sequence[SlotLayer],
) -> tuple[pb.SparseStructure, list[pa.Buffer | UInt8s | bytes]]:
    """Write the structure of layers (outer-most first), and its payloads."""
    writer = _Writer()
    messages = [writer.layer(layer) for layer in layers]
    return pb.SparseStructure(layers=messages), writer.buffers


def valid_leaves(layers: Sequence[SlotLayer]) -> Flags | None:
    """Which inner-most slots are valid in all layers; None when all are."""
    flags: Flags | None = None
    for layer in layers:
        if layer.lengths is not None:
            # Null lists have no items.
            flags = None
            continue
        if layer.flags is not None:
            flags = layer.flags if flags is None else flags & layer.flags
        if layer.size is not None and flags is not None:
            flags = flags.repeat(layer.size)
    return None if flags is None or flags.all() else flags


def layers_of(levels: Levels, rows: int, sizes: Sequence[int | None] = ()) -> list[SlotLayer]:
    """The layers (outer-most first) described by the levels of ``rows`` rows.

    ``sizes`` are the dimensions of layers that are fixed-size lists of structs, None for other
    layers, inner-most first; empty when there are none.
    """
    slot_layers = []
    rep, definition = levels.rep, levels.definition
    sizes = sizes or [None] * len(levels.layers)
    for step, size in zip(layer_steps(levels.layers), sizes, strict=True):
        if not step.is_list or rep is None:
            if size is not None and definition is not None:
                # An outer null is repeated in all entries of a list.
                definition = definition[::size]
            slot_layers.append(SlotLayer(_item_flags(definition, step), size=size))
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
        slot_layers.append(SlotLayer(_list_flags(rep, definition, step), np.diff(offsets)))
        rep, definition = lists.rep, lists.definition
    return slot_layers[::-1]


def _item_flags(definition: UInt16s | None, step: LayerStep) -> Flags | None:
    """Validity of the slots; those below a null are null as well."""
    if definition is None or not step.null_level:
        return None
    flags = definition[definition <= step.slot_max] < step.null_level
    return None if flags.all() else flags


def _list_flags(rep: UInt16s, definition: UInt16s | None, step: LayerStep) -> Flags | None:
    if definition is None or not step.null_level:
        return None
    visible = definition[(rep > 0) & (definition <= step.slot_max)]
    flags = (visible != step.null_level) & (visible <= step.resolved_max)
    return None if flags.all() else flags
