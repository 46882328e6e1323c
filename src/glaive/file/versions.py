"""The format versions, by name and by footer.

``PROFILES`` holds one value per version that glaive reads and writes; the modules
``glaive.file.versions.v2_*`` and ``glaive.file.versions`` define them.
"""

from __future__ import annotations

from dataclasses import replace

from glaive.dataclass import dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.file.protocol import FormatProfile, VersionProfile
from glaive.types import FormatVersion

# --- Format 0.1, also called legacy: how it is identified, and the size of its pages ----


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyProfile(VersionProfile):
    """The 0.1 format.

    Parameters
    ----------
    rows_per_batch
        Rows of a page at most, and of one entry of the statistics.
    """

    rows_per_batch: int


V0_1 = LegacyProfile(
    version=FormatVersion(0, 1),
    footer=(0, 2),
    on_disk=((0, 2), (0, 1), (0, 0)),
    rows_per_batch=1024,
    leaf_columns=False,
)


# --- Format 2.0: pages are trees of array encodings, structs and lists own columns ------

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


# --- Format 2.1: page layouts with repetition and definition levels, 16-bit chunk words -

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


# --- Format 2.2: format 2.1 and what it additionally permits ----------------------------

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
    grows_structs=True,
    blob_type=True,
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


# --- Format 2.3: pages of a structural plane and a value plane; supports more types than 2.2

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


Profile = FormatProfile | LegacyProfile

_ALL: tuple[Profile, ...] = (V0_1, V2_0, V2_1, V2_2, V2_3)
PROFILES: dict[str, Profile] = {str(p.version): p for p in _ALL}

DEFAULT = str(V2_2.version)
"""The version of new datasets."""

_ALIASES = {"stable": "2.2", "next": "2.3", "legacy": "0.1", "0.3": "2.0"}


def resolve_version(name: str | None) -> str:
    """Version by name, aliases resolved: ``None``, ``"stable"``, ``"2.1"``, … → ``"2.2"``.

    Raises
    ------
    OptionError
        There is no such version.
    """
    text = DEFAULT if name is None else str(name).strip().lower()
    version = _ALIASES.get(text, text)
    if version in PROFILES:
        return version
    choices = ", ".join([*PROFILES, *_ALIASES])
    raise OptionError(
        f"data_storage_version: Unknown Lance storage version: {name!r:.60}; "
        f"expected one of {choices}"
    )


def stable_version() -> str:
    """The newest version whose files later releases will read, such as ``"2.2"``."""
    return resolve_version("stable")


def profile_of(version: FormatVersion) -> Profile:
    """The profile of a format version.

    Raises
    ------
    OptionError
        There is no such version.
    """
    return PROFILES[resolve_version(str(version))]


def profile_of_footer(major: int, minor: int, path: str) -> Profile:
    """The profile of a file by the version in its footer.

    Raises
    ------
    UnsupportedFeatureError
        The version is not one that this reader knows.
    """
    for profile in PROFILES.values():
        if (major, minor) in profile.on_disk:
            return profile
    known = ", ".join(PROFILES)
    raise UnsupportedFeatureError(
        f"{path} is a Lance file of unknown format version {major}.{minor} (footer "
        f"{major}.{minor}); this reader knows {known}. Upgrade glaive to read it."
    )
