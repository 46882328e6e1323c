"""What the metadata of a full-text index say of how its postings are written.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import NamedTuple

from glaive.index.segment import IndexFile

__all__ = ["Form", "read_form"]

_SIZES = (128, 256)


class Form(NamedTuple):
    """How postings are written.

    Parameters
    ----------
    block
        Documents of a full block: 128 or 256.
    fixed_tail
        Whether numbers of the rest have 32 bits each.
    """

    block: int
    fixed_tail: bool

    @property
    def lanes(self) -> int:
        """Lanes of a block of documents."""
        return self.block // 32

    @property
    def scored(self) -> bool:
        """Whether a block begins with its best score."""
        return self.block == _SIZES[0]


def read_form(file: IndexFile) -> Form | None:
    """The form that a file says its postings have; ``None`` if it is not known here.

    Raises
    ------
    CorruptFileError
        The block size is no number.
    """
    block = file.number("posting_block_size", _SIZES[0])
    tail = file.metadata.get("posting_tail_codec", "")
    version = file.number("format_version", 1)
    fixed = tail == "fixed32_v1" or (not tail and version == 1)
    known = fixed or tail == "varint_delta_v1"
    layout = file.metadata.get("positions_layout", "shared_stream_v2")
    codec = file.metadata.get("positions_codec", "packed_delta_v1")
    positions = (layout, codec) == ("shared_stream_v2", "packed_delta_v1")
    if block not in _SIZES or not known or version > 3 or not positions:
        return None
    return Form(block, fixed)
