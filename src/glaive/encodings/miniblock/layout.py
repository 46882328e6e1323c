"""What the layout message of a mini-block page says, checked and ready for use."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any

from glaive.dataclass import dataclass
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.layers import LevelLimits, level_limits, read_layers
from glaive.encodings.protocol import PageBytes, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.fsst import Fsst
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.kernels.chunks import header_size
from glaive.types import Where

__all__ = ["MiniBlockLayout"]

MAX_BUFFERS = 64
"""Value buffers per chunk at most; nothing that exists needs more than a handful."""

MAX_ITEMS = 2**31 - 1
"""Items of a dictionary at most."""

MAX_IMPLIED_ITEMS = 65_536
"""Items of a dictionary whose encoding has no payload: no bytes bound their number."""

MAX_LAYOUTS = 256
"""Layouts to remember; text pages have one each, as it includes their symbol table."""

MAX_ENTRIES = 2**48
"""Visible entries that a page may claim: the sums of thousands of pages do not wrap around."""


@lru_cache(maxsize=64)
def _header(level_buffers: int, value_buffers: int, value_width: int) -> Struct:
    sizes = "H" * value_buffers if value_width == 2 else "I" * value_buffers
    return Struct("<H" + "H" * level_buffers + sizes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MiniBlockLayout:
    """The encodings and shape of a mini-block page.

    Parameters
    ----------
    value, rep, definition, dictionary
        Encodings of values, levels and dictionary items; None where the page has none.
    limits
        What the layers allow levels to be.
    nullable_item
        Whether the only layer is a nullable leaf: then validity is a bitmap.
    value_width
        Bytes of a chunk word, and of a value buffer's size in chunk headers: 2 or 4.
    header, header_room
        The chunk header, and its bytes with fill.
    level_buffers, pieces
        Buffers per chunk: of levels, and in all.
    signature
        Equal for pages that can be read as one. Without lists each may have FSST symbols of its
        own; with lists these are part of it, so that single values stay cheap to take.
    """

    value: ValueEncoding
    rep: ValueEncoding | None
    definition: ValueEncoding | None
    dictionary: ValueEncoding | None
    layers: tuple[Layer, ...]
    limits: LevelLimits
    nullable_item: bool
    value_width: int
    header: Struct
    header_room: int
    level_buffers: int
    pieces: int
    signature: bytes

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> MiniBlockLayout:
        """Read a ``MiniBlockLayout``; its parts must not contradict each other.

        Pages that differ in their numbers of items only share one layout.
        """
        shared = type(message)()
        shared.CopyFrom(message)
        shared.num_items = shared.num_dictionary_items = 0
        key = shared.SerializeToString(deterministic=True)
        layout = _LAYOUTS.get(key)
        if layout is None:
            layout = cls._parse(shared, key, where)
            if len(_LAYOUTS) >= MAX_LAYOUTS:
                _LAYOUTS.clear()
            _LAYOUTS[key] = layout
        return layout

    @classmethod
    def _parse(cls, message: Any, key: bytes, where: Where) -> MiniBlockLayout:
        layers = read_layers(message.layers, where)
        limits = level_limits(layers)
        value = read_encoding(message.value_compression, where)
        num_buffers = message.num_buffers
        if num_buffers != value.num_buffers or num_buffers > MAX_BUFFERS:
            raise CorruptFileError(
                "num_buffers of a mini-block page",
                expected=f"{value.num_buffers} for value encoding {value.wire_name!r}",
                found=f"{num_buffers}",
                where=where,
            )
        parts: dict[str, ValueEncoding | None] = {}
        for name, field in (
            ("rep", "rep_compression"),
            ("definition", "def_compression"),
            ("dictionary", "dictionary"),
        ):
            given = message.HasField(field)
            parts[name] = read_encoding(getattr(message, field), where) if given else None
        _check_repetition(limits.max_rep, parts["rep"], message.repetition_index_depth, where)
        level_buffers = (parts["rep"] is not None) + (parts["definition"] is not None)
        width = 4 if message.has_large_chunk else 2
        if isinstance(value, Fsst) and value.joins and not (parts["rep"] or parts["dictionary"]):
            message.value_compression.fsst.symbol_table = b""
            key = message.SerializeToString(deterministic=True)
        return cls(
            value=value,
            rep=parts["rep"],
            definition=parts["definition"],
            dictionary=parts["dictionary"],
            layers=layers,
            limits=limits,
            nullable_item=layers == (Layer.NULLABLE_ITEM,),
            value_width=width,
            header=_header(level_buffers, num_buffers, width),
            header_room=(header_size(level_buffers, num_buffers, width) + 7) & ~7,
            level_buffers=level_buffers,
            pieces=level_buffers + num_buffers,
            signature=key,
        )

    def check_page(self, page: PageBytes, num_items: int, num_dictionary_items: int) -> None:
        """Check the number of the page's buffers, rows, entries and items against the layout."""
        _check_items(self.dictionary, num_dictionary_items, page.where)
        buffers = 2 + (self.dictionary is not None) + (self.rep is not None)
        if len(page.ranges) != buffers:
            raise CorruptFileError(
                "buffers of a mini-block page",
                expected=f"{buffers}",
                found=f"{len(page.ranges)}",
                where=page.where,
            )
        if num_items > MAX_ENTRIES:
            raise CorruptFileError(
                "num_items of a mini-block page",
                expected=f"at most {MAX_ENTRIES}",
                found=f"{num_items}",
                where=page.where,
            )
        if self.rep is None and num_items != page.rows:
            raise CorruptFileError(
                "num_items of a mini-block page without lists",
                expected=f"{page.rows}, one per row",
                found=f"{num_items}",
                where=page.where,
            )


_LAYOUTS: dict[bytes, MiniBlockLayout] = {}


def _check_items(dictionary: ValueEncoding | None, count: int, where: Where) -> None:
    most = MAX_ITEMS if dictionary is None or dictionary.has_payload else MAX_IMPLIED_ITEMS
    if count > most:
        raise CorruptFileError(
            "dictionary items", expected=f"at most {most}", found=str(count), where=where
        )


def _check_repetition(max_rep: int, rep: ValueEncoding | None, depth: int, where: Where) -> None:
    if (rep is not None) != (max_rep > 0):
        raise CorruptFileError(
            "repetition levels of a mini-block page",
            expected=f"levels for {max_rep} list layers",
            found="none" if rep is None else "levels",
            where=where,
        )
    if depth > 1:
        raise UnsupportedFeatureError(
            f"repetition index of depth {depth} (in {where}); this reader knows depth 1. "
            "The file was probably written by a newer Lance: upgrade glaive."
        )
    if depth != (max_rep > 0):
        raise CorruptFileError(
            "repetition index of a mini-block page",
            expected=f"depth {int(max_rep > 0)} for {max_rep} list layers",
            found=f"depth {depth}",
            where=where,
        )
