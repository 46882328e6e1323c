"""Format 2.3: pages of a structural plane and a value plane; supports more types than 2.2."""

from __future__ import annotations

from dataclasses import replace

from glaive.file.v2.profiles.v2_2 import V2_2
from glaive.types import FormatVersion

__all__ = ["V2_3"]

V2_3 = replace(
    V2_2,
    version=FormatVersion(2, 3),
    footer=(2, 3),
    on_disk=((2, 3),),
    pages="planes",
    packed_runs=True,
    types=(
        V2_2.types - {"binary of 0 bytes", "large binary with lance-encoding:blob"}
        | {
            "lists of fixed-size lists of structs",
            "empty structs in fixed-size lists",
            "packed structs with structs of fixed width as members",
            "structs in lists with fixed-size lists of structs next to other members",
            "fixed-size lists of structs with lists as first members",
        }
    ),
    stable=False,
)
