"""The format versions, by name and by footer.

``PROFILES`` holds one value per version that glaive reads and writes; the modules
``glaive.file.versions.v2_*`` and ``glaive.file.versions`` define them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError, SchemaError, UnsupportedFeatureError
from glaive.file.protocol import FormatProfile, VersionProfile
from glaive.format.blobs import is_blob
from glaive.format.field import BLOB, Field
from glaive.format.fields import LanceSchema
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
    """Return a version by name, aliases resolved: ``None``, ``"stable"``, ``"2.1"``, … → ``"2.2"``.

    Raises
    ------
    OptionError
        The version does not exist.
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
    """Return the newest version whose files later releases will read, such as ``"2.2"``."""
    return resolve_version("stable")


def profile_of(version: FormatVersion) -> Profile:
    """Return the profile of a format version.

    Raises
    ------
    OptionError
        The version does not exist.
    """
    return PROFILES[resolve_version(str(version))]


def profile_of_footer(major: int, minor: int, path: str) -> Profile:
    """Return the profile of a file by the version in its footer.

    Raises
    ------
    UnsupportedFeatureError
        The version is unknown.
    """
    for profile in PROFILES.values():
        if (major, minor) in profile.on_disk:
            return profile
    known = ", ".join(PROFILES)
    raise UnsupportedFeatureError(
        f"{path} is a Lance file of unknown format version {major}.{minor} (footer "
        f"{major}.{minor}); this reader knows {known}. Upgrade glaive to read it."
    )


# --- Which types a format version can hold ----------------------------------------------
#
# Most types are common to all versions. The others are *features* with a name; each version's
# profile lists its own. A feature is a property of a field and the fields around it.
#
# Specification: "Types by version" in ``docs/format/schema.md``.

_FIXED_STRUCTS = "fixed_size_list:struct:"
_LISTS = ("list", "large_list", "map")


class _Context(NamedTuple):
    """A field and the fields around it, outer-most first."""

    field: Field
    outside: tuple[Field, ...]


def _is_fixed_structs(at: _Context) -> bool:
    return at.field.logical_type.startswith(_FIXED_STRUCTS)


def _is_list(field: Field) -> bool:
    return field.logical_type.startswith(_LISTS)


def _in_lists(at: _Context) -> bool:
    return any(map(_is_list, at.outside))


def _lists_inside(at: _Context) -> bool:
    return any(_is_list(field) for child in at.field.children for field in child.walk())


def _lists_first(at: _Context) -> bool:
    field = at.field
    while field.children and not field.is_packed:
        field = field.children[0]
        if _is_list(field):
            return True
    return False


def _is_uneven(at: _Context) -> bool:
    """Return whether fixed-size lists multiply members of a struct differently."""
    if at.field.logical_type != "struct" or at.field.is_packed:
        return False
    return len({_multiple(child) for child in at.field.children}) > 1


def _in_fixed_structs(at: _Context) -> bool:
    return any(field.logical_type.startswith(_FIXED_STRUCTS) for field in at.outside)


def _multiple(field: Field) -> int:
    """Return entries per row of the first column below a field."""
    size = 1
    while field.children and not field.is_packed:
        if field.logical_type.startswith(_FIXED_STRUCTS):
            size *= field.arrow_type.list_size  # type: ignore[attr-defined]  # a fixed-size list
        field = field.children[0]
    return size


def _is_packed_member(at: _Context) -> bool:
    return any(field.is_packed for field in at.outside)


def _varies(field: Field) -> bool:
    """Return whether pylance treats a struct in a packed struct as being of variable width."""
    kinds = [child.arrow_type for child in field.children]
    return any(
        child.children or offset_bits(kind) or pa.types.is_fixed_size_list(kind)
        for child, kind in zip(field.children, kinds, strict=True)
    )


def _is_nested_member(at: _Context) -> bool:
    """Return whether it is a nested member of a packed struct, which rows of bytes lack."""
    if not _is_packed_member(at) or (at.field.children and at.field.logical_type == "struct"):
        return False
    kind = at.field.arrow_type
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    plain = not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind))
    return not plain or not _fills_bytes(at.field.arrow_type)


def _fills_bytes(kind: pa.DataType) -> bool:
    bits = 1
    while pa.types.is_fixed_size_list(kind):
        bits *= kind.list_size
        kind = kind.value_type
    return not pa.types.is_boolean(kind) or bits % 8 == 0


def _is_empty(at: _Context) -> bool:
    return at.field.logical_type == "struct" and not at.field.children and bool(at.outside)


def _is_hidden_empty(at: _Context) -> bool:
    """Return whether it is an empty struct within a list, or the first leaf of structs."""
    if not _is_empty(at):
        return False
    if _in_lists(at):
        return True
    first = at.field
    for parent in reversed(at.outside):
        if parent.children[0] is not first:
            return False
        if len(parent.children) > 1:
            return True
        first = parent
    return False


def _is_text_list(at: _Context) -> bool:
    kind = at.field.arrow_type
    if at.field.children or not pa.types.is_fixed_size_list(kind):
        return False
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return offset_bits(kind) is not None or pa.types.is_dictionary(kind) or kind == pa.binary(0)


FEATURES: dict[str, Callable[[_Context], bool]] = {
    "large binary with lance-encoding:blob": lambda at: is_blob(at.field),
    "lists of large binary with lance-encoding:blob": (
        lambda at: is_blob(at.field) and _in_lists(at)
    ),
    "columns of type lance.blob.v2": lambda at: at.field.is_blob_v2,
    # Such as descriptors that were read.
    "blobs of other types than large_binary and lance.blob.v2": (
        lambda at: at.field.option(BLOB) == "true" and not is_blob(at.field)
    ),
    "maps": lambda at: at.field.logical_type == "map",
    "fixed-size lists of structs": _is_fixed_structs,
    "lists of fixed-size lists of structs": lambda at: _is_fixed_structs(at) and _in_lists(at),
    "fixed-size lists of structs with lists as members": (
        lambda at: _is_fixed_structs(at) and _lists_inside(at) and not _lists_first(at)
    ),
    "fixed-size lists of structs with lists as first members": (
        lambda at: _is_fixed_structs(at) and _lists_first(at)
    ),
    "structs with fixed-size lists of structs next to other members": (
        lambda at: _is_uneven(at) and not _in_lists(at) and not _in_fixed_structs(at)
    ),
    "structs in lists with fixed-size lists of structs next to other members": (
        lambda at: _is_uneven(at) and _in_lists(at)
    ),
    "structs in fixed-size lists with such lists of structs next to other members": (
        lambda at: _is_uneven(at) and _in_fixed_structs(at) and not _in_lists(at)
    ),
    "packed structs with members that are nested, null, booleans or dictionaries": (
        _is_nested_member
    ),
    "packed structs with structs of fixed width as members": (
        lambda at: _is_packed_member(at) and bool(at.field.children) and not _varies(at.field)
    ),
    "packed structs with structs of variable width as members": (
        lambda at: _is_packed_member(at) and bool(at.field.children) and _varies(at.field)
    ),
    "packed structs with members of variable width": (
        lambda at: _is_packed_member(at) and offset_bits(at.field.arrow_type) is not None
    ),
    "packed structs with fixed-size lists as members": (
        lambda at: _is_packed_member(at) and pa.types.is_fixed_size_list(at.field.arrow_type)
    ),
    "packed structs without members": lambda at: at.field.is_packed and not at.field.children,
    "empty structs in lists, or as the first leaf of structs with several": _is_hidden_empty,
    "empty structs in fixed-size lists": lambda at: _is_empty(at) and _in_fixed_structs(at),
    "fixed-size lists of strings, binary or dictionaries": _is_text_list,
    "dictionaries of nulls": lambda at: at.field.logical_type.startswith("dict:null:"),
    "binary of 0 bytes": lambda at: at.field.logical_type == "fixed_size_binary:0",
}
"""Tests of the types that only some versions support; profiles list the names."""


@lru_cache(maxsize=64)  # appends have the same schema again and again
def check_types(schema: LanceSchema, profile: FormatProfile) -> None:
    """Refuse a schema that the version does not support.

    Raises
    ------
    SchemaError
        Names the column, its type, the version, and the versions that support it.
    """
    needed = [
        (path, at, name)
        for path, at in _walk(schema.fields, "", ())
        for name, has_feature in FEATURES.items()
        if has_feature(at)
    ]
    for path, at, name in needed:
        if name in profile.types:
            continue
        top = path.split(".")[0]
        column = {feature for where, _, feature in needed if where.split(".")[0] == top}
        allowed: dict[str, Any] = {v: getattr(PROFILES[v], "types", set()) for v in PROFILES}
        versions = [version for version, types in allowed.items() if column <= types]
        remedy = f"use data_storage_version {' or '.join(versions)}, or " if versions else ""
        raise SchemaError(
            f"column {path!r} has type {at.field.arrow_type}, which format {profile.version} "
            f"cannot hold: it has no {name}; {remedy}cast the column"
        )


def _walk(
    fields: tuple[Field, ...], prefix: str, outside: tuple[Field, ...]
) -> Iterator[tuple[str, _Context]]:
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path, _Context(field, outside)
        yield from _walk(field.children, path + ".", (*outside, field))
