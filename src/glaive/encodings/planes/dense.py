"""Dense structure: repetition and definition levels, stored with the values.

Specification: "Dense structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from glaive.encodings.levels.layers import read_layers
from glaive.encodings.plane_protocol import StructuralPlane, ValuePlane
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import structural_plane

__all__ = ["Dense"]


@structural_plane
class Dense(StructuralPlane):
    """The structure of pages before 2.3."""

    wire_name: ClassVar[str] = "dense"

    @classmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """Let the value plane open the page: it has the levels."""
        return plane.open_dense(values, read_layers(message.layers, page.where), page)
