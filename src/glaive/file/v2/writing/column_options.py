"""The encoding options of each column of a file: from field metadata, and from the caller.

A key in the metadata of a field is about that field's own column. One of them is inherited:
``structural-encoding`` of a struct or list goes for all columns below, unless they say
something else. Options of the caller go for all columns at or below the path they are given
for; a longer path wins over a shorter one, and the caller over the metadata.

Specification: "Encoding keys" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from glaive.encodings.options import EncodingOptions, read_metadata, read_options
from glaive.errors import OptionError
from glaive.file.profile import FormatProfile
from glaive.format.fields import Field, LanceSchema

__all__ = ["GivenOptions", "column_options"]

GivenOptions = Mapping[str, Mapping[str, object]]
"""Path of a column → options without prefix."""

_INHERITED = "structural_encoding"
_SMALL_CHUNK = 32_768


def column_options(
    schema: LanceSchema, given: GivenOptions | None, profile: FormatProfile
) -> Mapping[int, EncodingOptions]:
    """Options by field id, for each field that owns a column.

    Raises
    ------
    OptionError
        A key or value does not exist, or the format version does not have it.
    ColumnNotFoundError
        The caller names a column that does not exist.
    """
    if not given:
        return _unasked(schema, profile)
    wished: dict[int, dict[str, Any]] = {}
    for path, options in given.items():
        if not isinstance(options, Mapping):
            raise OptionError(
                f"encoding_options: expected a mapping of options for column {path!r}, "
                f"found {options!r}"
            )
        field = schema.find(path)[-1]
        wished.setdefault(field.id, {}).update(read_options(options, path))
    return _collect(schema, wished, profile)


@lru_cache(maxsize=64)  # appends have the same schema again and again
def _unasked(schema: LanceSchema, profile: FormatProfile) -> Mapping[int, EncodingOptions]:
    return _collect(schema, {}, profile)


def _collect(
    schema: LanceSchema, wished: Mapping[int, dict[str, Any]], profile: FormatProfile
) -> dict[int, EncodingOptions]:
    return {
        field.id: _checked(EncodingOptions(**values), path, profile)
        for top in schema.fields
        for field, path, values in _columns(top, top.name, {}, {}, wished)
    }


def _columns(
    field: Field,
    path: str,
    inherited: dict[str, Any],
    asked: dict[str, Any],
    wished: Mapping[int, dict[str, Any]],
) -> Iterator[tuple[Field, str, dict[str, Any]]]:
    own = {**inherited, **read_metadata(field.metadata, path)}
    asked = {**asked, **wished.get(field.id, {})}
    if field.is_packed:
        # One column for all members, but each is encoded by its own keys.
        yield field, path, {**own, **asked, "members": _members(field, path, asked, wished)}
        return
    if not field.children:
        yield field, path, {**own, **asked}
    passed = {_INHERITED: own[_INHERITED]} if _INHERITED in own else {}
    for child in field.children:
        yield from _columns(child, f"{path}.{child.name}", passed, asked, wished)


def _members(
    field: Field, path: str, asked: dict[str, Any], wished: Mapping[int, dict[str, Any]]
) -> tuple[EncodingOptions, ...]:
    """What the members of a packed struct ask for; structs among them have members, too."""
    found = []
    for child in field.children:
        below = f"{path}.{child.name}"
        wish = {**asked, **wished.get(child.id, {})}
        values = {**read_metadata(child.metadata, below), **wish}
        if child.children:
            values["members"] = _members(child, below, wish, wished)
        found.append(EncodingOptions(**values))
    return tuple(found)


def _checked(options: EncodingOptions, path: str, profile: FormatProfile) -> EncodingOptions:
    version = profile.version
    if options.structural_encoding == "sparse" and (version.major, version.minor) < (2, 3):
        raise OptionError(
            f"column {path!r}: structural-encoding: format {version} has miniblock and fullzip, "
            "found 'sparse', which format 2.3 has"
        )
    size = options.minichunk_size
    if size is not None and size >= _SMALL_CHUNK and not profile.large_chunks:
        raise OptionError(
            f"column {path!r}: minichunk-size: chunks of format {version} have less than "
            f"{_SMALL_CHUNK} bytes, found {size}; use a smaller number, or format 2.2"
        )
    return options
