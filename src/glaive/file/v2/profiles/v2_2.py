"""Format 2.2: format 2.1 and what it additionally permits."""

from __future__ import annotations

from dataclasses import replace

from glaive.file.v2.profiles.v2_1 import V2_1
from glaive.types import FormatVersion

__all__ = ["V2_2"]

V2_2 = replace(
    V2_1,
    version=FormatVersion(2, 2),
    footer=(2, 2),
    on_disk=((2, 2),),
    large_chunks=True,
    scalar_constants=True,
    compressed_constant_levels=True,
    dictionary_bits=frozenset({64, 128}),
    level_runs=True,
    dictionary_compression="lz4",
    types=frozenset(
        {
            "large binary with lance-encoding:blob",
            "columns of type lance.blob.v2",
            "maps",
            "fixed-size lists of structs",
            "fixed-size lists of structs with lists as members",
            "structs in fixed-size lists with such lists of structs next to other members",
            "packed structs with members of variable width",
            "packed structs with structs of variable width as members",
            "packed structs with fixed-size lists as members",
            "binary of 0 bytes",
        }
    ),
)
