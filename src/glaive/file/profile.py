"""What one version of the 2.x file format allows a writer, as plain data.

Only writers use profiles; readers accept every encoding they know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glaive.types import FormatVersion

__all__ = ["FormatProfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatProfile:
    """The permissions of one format version.

    Parameters
    ----------
    version
        The version by name, as in ``data_storage_version`` and manifests.
    footer
        ``(major, minor)`` written to the footer of a file.
    on_disk
        All ``(major, minor)`` pairs in footers that identify this version.
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
    types
        Names of the types that this version supports and others do not; see
        ``glaive.file.types.FEATURES``.
    leaf_columns
        Each leaf of a struct is a column, so that the members may be in different files.
    grows_structs
        Structs may get new members: readers add nulls for files that lack them.
    blob_type
        New blob columns are of type ``lance.blob.v2``, else binary with metadata.
    pages
        The page grammar: ``layouts`` with levels, ``arrays`` as in 2.0, or ``planes`` of
        structure and of values as in 2.3.
    stable
        Whether all later releases will read files of this version.
    """

    version: FormatVersion
    footer: tuple[int, int]
    on_disk: tuple[tuple[int, int], ...]
    large_chunks: bool
    scalar_constants: bool
    compressed_constant_levels: bool
    dictionary_bits: frozenset[int]
    level_runs: bool
    dictionary_compression: Literal["lz4", "zstd"] | None
    packed_runs: bool = False
    types: frozenset[str] = frozenset()
    leaf_columns: bool = True
    grows_structs: bool = False
    blob_type: bool = False
    pages: Literal["layouts", "arrays", "planes"] = "layouts"
    stable: bool = True
