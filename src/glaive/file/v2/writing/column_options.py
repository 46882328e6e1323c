"""The encoding options of each column of a file: from field metadata, and from the caller.

A key in the metadata of a field applies to that field's own column. One key is inherited:
``structural-encoding`` of a struct or list applies to all columns below that do not override
it. Options of the caller apply to all columns at or below their path; a longer path takes
precedence over a shorter one, and the caller over the metadata.

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

__all__ = ["EVERY", "GivenOptions", "column_options"]

GivenOptions = Mapping[str, Mapping[str, object]]
"""Path of a column → options without prefix."""

EVERY = "*"
"""Path that stands for all columns, unless there is one of this name."""

_INHERITED = "structural_encoding"
_MAX_CHUNK = 32_768
"""Bytes of a chunk before 2.2 are below this."""


def column_options(
    schema: LanceSchema, given: GivenOptions | None, profile: FormatProfile
) -> Mapping[int, EncodingOptions]:
    """Options by field id, for each field that owns a column.

    Raises
    ------
    OptionError
        A key or value does not exist, or the format version does not support it.
    ColumnNotFoundError
        The caller names a column that does not exist.
    """
    if not given:
        return _metadata_options(schema, profile)
    given_by_id: dict[int, dict[str, Any]] = {}
    every: dict[str, Any] = {}
    for path, options in given.items():
        if not isinstance(options, Mapping):
            raise OptionError(
                f"encoding_options: expected a mapping of options for column {path!r}, "
                f"found {options!r}"
            )
        if path == EVERY and path not in schema.names:
            every = read_options(options, path)
            continue
        field = schema.find(path)[-1]
        given_by_id.setdefault(field.id, {}).update(read_options(options, path))
    return _collect(schema, given_by_id, profile, every)


@lru_cache(maxsize=64)  # appends have the same schema again and again
def _metadata_options(schema: LanceSchema, profile: FormatProfile) -> Mapping[int, EncodingOptions]:
    return _collect(schema, {}, profile, {})


def _collect(
    schema: LanceSchema,
    given_by_id: Mapping[int, dict[str, Any]],
    profile: FormatProfile,
    every: dict[str, Any],
) -> dict[int, EncodingOptions]:
    return {
        field.id: _checked(EncodingOptions(**(every | values)), path, profile)
        for top in schema.fields
        for field, path, values in _columns(top, top.name, {}, {}, given_by_id)
    }


def _columns(
    field: Field,
    path: str,
    inherited: dict[str, Any],
    from_caller: dict[str, Any],
    given_by_id: Mapping[int, dict[str, Any]],
) -> Iterator[tuple[Field, str, dict[str, Any]]]:
    own = {**inherited, **read_metadata(field.metadata, path)}
    from_caller = {**from_caller, **given_by_id.get(field.id, {})}
    if field.is_packed:
        # One column for all members, but each is encoded by its own keys.
        members = _members(field, path, from_caller, given_by_id)
        yield field, path, {**own, **from_caller, "members": members}
        return
    if not field.children:
        yield field, path, {**own, **from_caller}
    passed = {_INHERITED: own[_INHERITED]} if _INHERITED in own else {}
    for child in field.children:
        yield from _columns(child, f"{path}.{child.name}", passed, from_caller, given_by_id)


def _members(
    field: Field, path: str, from_caller: dict[str, Any], given_by_id: Mapping[int, dict[str, Any]]
) -> tuple[EncodingOptions, ...]:
    """Options of the members of a packed struct, and of nested structs."""
    members = []
    for child in field.children:
        below = f"{path}.{child.name}"
        own = {**from_caller, **given_by_id.get(child.id, {})}
        values = {**read_metadata(child.metadata, below), **own}
        if child.children:
            values["members"] = _members(child, below, own, given_by_id)
        members.append(EncodingOptions(**values))
    return tuple(members)


def _checked(options: EncodingOptions, path: str, profile: FormatProfile) -> EncodingOptions:
    version = profile.version
    if options.structural_encoding == "sparse" and profile.pages != "planes":
        raise OptionError(
            f"column {path!r}: structural-encoding: format {version} has miniblock and fullzip, "
            "found 'sparse'; use format 2.3"
        )
    size = options.minichunk_size
    if size is not None and size >= _MAX_CHUNK and not profile.large_chunks:
        raise OptionError(
            f"column {path!r}: minichunk-size: chunks of format {version} have less than "
            f"{_MAX_CHUNK} bytes, found {size}; use a smaller number, or format 2.2"
        )
    return options
