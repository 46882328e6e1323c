"""How the postings of a full-text index are encoded, from the metadata of its files.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from glaive.index.segment import IndexFile
from glaive.named_tuple import NamedTuple

__all__ = ["PostingLayout", "read_posting_layout"]

_SIZES = (128, 256)


class PostingLayout(NamedTuple):
    """How postings are encoded.

    Parameters
    ----------
    block
        Documents of a full block: 128 or 256.
    fixed_tail
        Whether the last, shorter block has 32 bits per integer (instead of varints).
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


def read_posting_layout(file: IndexFile) -> PostingLayout | None:
    """The layout of the postings; ``None`` if it is not supported.

    Raises
    ------
    CorruptFileError
        The block size or the format version is not an integer.
    """
    block = file.number("posting_block_size", _SIZES[0])
    tail = file.metadata.get("posting_tail_codec", "")
    version = file.number("format_version", 1)
    fixed = tail == "fixed32_v1" or (not tail and version == 1)
    known = fixed or tail == "varint_delta_v1"
    positions = (
        file.metadata.get("positions_layout", "shared_stream_v2") == "shared_stream_v2"
        and file.metadata.get("positions_codec", "packed_delta_v1") == "packed_delta_v1"
    )
    if block not in _SIZES or not known or version > 3 or not positions:
        return None
    return PostingLayout(block, fixed)
