"""What a format version allows the writer of a page."""

from __future__ import annotations

from typing import Literal

from glaive.dataclass import dataclass

__all__ = ["PageOptions"]


@dataclass(frozen=True, kw_only=True)  # no slots: profiles have another base with some
class PageOptions:
    """The permissions that concern single pages.

    Parameters
    ----------
    large_chunks
        Mini-block chunk words and value buffer sizes are 32 bits wide, else 16.
    scalar_constants
        A page whose non-null values are all equal may store a single value.
    compressed_constant_levels
        Levels of constant pages go through a block codec, else they are raw 16 bits.
    dictionary_bits
        Widths in bits of fixed-width values for which a dictionary may be built.
    level_runs
        Run-length encoding may be used for levels.
    dictionary_compression
        Dictionaries are compressed with this scheme (None: never).
    packed_runs
        The values of runs may be packed.
    """

    large_chunks: bool
    scalar_constants: bool
    compressed_constant_levels: bool
    dictionary_bits: frozenset[int]
    level_runs: bool
    dictionary_compression: Literal["lz4", "zstd"] | None
    packed_runs: bool = False
