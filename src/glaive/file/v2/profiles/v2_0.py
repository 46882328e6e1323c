"""Format 2.0: pages are trees of array encodings, structs and lists own columns."""

from __future__ import annotations

from glaive.file.profile import FormatProfile
from glaive.types import FormatVersion

__all__ = ["V2_0"]

V2_0 = FormatProfile(
    version=FormatVersion(2, 0),
    footer=(0, 3),
    on_disk=((0, 3), (2, 0)),
    pages="arrays",
    leaf_columns=False,
    large_chunks=False,
    scalar_constants=False,
    compressed_constant_levels=False,
    dictionary_bits=frozenset(),
    level_runs=False,
    dictionary_compression=None,
    types=frozenset(
        {
            "large binary with lance-encoding:blob",
            "lists of large binary with lance-encoding:blob",
            "dictionaries of nulls",
            "empty structs in lists, or as the first leaf of structs with several",
            "packed structs with fixed-size lists as members",
        }
    ),
)
