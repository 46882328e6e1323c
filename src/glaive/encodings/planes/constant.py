"""Constant values: one value of fixed width, in the message, for all slots.

No buffers. With dense structure there is neither a null nor a list.

Specification: "Constant values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.pages.constant import MAX_INLINE, ConstantPage
from glaive.encodings.plane_protocol import SlotValues, ValuePlane, wrong_structure
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import value_plane
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s

__all__ = ["ConstantValues"]


@value_plane
class ConstantValues(ValuePlane):
    """One value for all slots."""

    wire_name: ClassVar[str] = "constant"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent constant page: a scalar without levels."""
        if any(layer is not Layer.ALL_VALID_ITEM for layer in layers):
            named = ", ".join(layer.name.lower() for layer in layers)
            raise wrong_structure("constant", "valid items only, since it is dense", named, page)
        layout = pb.ConstantLayout(
            layers=[pb.RepDefLayer.ValueType(layer) for layer in layers],
            inline_value=_scalar(message, page),
        )
        return ConstantPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """The value for every slot, null or not."""
        scalar = _scalar(message, page)
        return _OneValue(FixedWidth(pa.py_buffer(scalar), 8 * len(scalar), 1)), 0


def _scalar(message: Any, page: PageBytes) -> bytes:
    scalar: bytes = message.scalar
    if not 1 <= len(scalar) <= MAX_INLINE:
        raise CorruptFileError(
            "scalar of constant values",
            expected=f"1 to {MAX_INLINE} bytes",
            found=str(len(scalar)),
            where=page.where,
        )
    return scalar


class _OneValue(SlotValues):
    """Repeats the value; nothing is read."""

    __slots__ = ("_value",)

    def __init__(self, value: Block) -> None:
        self._value = value

    def read(self, start: int, stop: int, valid: Validity) -> Block:
        """The repeated value."""
        return blocks.Constant(self._value, stop - start)

    def take(self, slots: Int64s, valid: Validity) -> Block:
        """The repeated value."""
        return blocks.Constant(self._value, len(slots))
