"""Format 2.1: page layouts with repetition and definition levels, 16-bit chunk words."""

from __future__ import annotations

from glaive.file.profile import FormatProfile
from glaive.types import FormatVersion

__all__ = ["V2_1"]

V2_1 = FormatProfile(
    version=FormatVersion(2, 1),
    footer=(2, 1),
    on_disk=((2, 1),),
    large_chunks=False,
    scalar_constants=False,
    compressed_constant_levels=False,
    dictionary_bits=frozenset({128}),
    level_runs=False,
    dictionary_compression=None,
    types=frozenset({"large binary with lance-encoding:blob"}),
)
