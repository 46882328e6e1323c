"""No values: every leaf is null, or no list has an item.

No buffers. With dense structure every row of the column is null.

Specification: "No values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from glaive.encodings.leaf import Layer
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.pages.constant import ConstantPage
from glaive.encodings.plane_protocol import SlotValues, ValuePlane, wrong_structure
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import value_plane
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s

__all__ = ["NoValues"]


@value_plane
class NoValues(ValuePlane):
    """Only nulls."""

    wire_name: ClassVar[str] = "no_values"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent constant page of nulls."""
        if layers != (Layer.NULLABLE_ITEM,):
            named = ", ".join(layer.name.lower() for layer in layers)
            expected = "one nullable item, since it is dense"
            raise wrong_structure("no", expected, named, page)
        layout = pb.ConstantLayout(layers=[pb.RepDefLayer.REPDEF_NULLABLE_ITEM])
        return ConstantPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """No value for any slot."""
        return _NoSlotValues(), 0


class _NoSlotValues(SlotValues):
    """No value for any slot."""

    __slots__ = ()

    def read(self, start: int, stop: int, valid: Validity) -> None:
        """No value."""

    def take(self, slots: Int64s, valid: Validity) -> None:
        """No value."""
