"""Changes of string maps: configuration, table metadata, metadata of schema and fields.

An update lists keys with new values, and keys to remove. It may also remove all unlisted keys.
Older transactions have plain maps instead.

Specification: "Update config" in ``docs/format``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Self

from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError, SchemaError
from glaive.format.field import Field, check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.checksums import checksum_function, writes_checksums
from glaive.io.store import BytesLike, ObjectStore
from glaive.process import random_bytes

UpdateMap = table_pb2.Transaction.UpdateMap
UpdateConfig = table_pb2.Transaction.UpdateConfig

EVERYTHING: Final = frozenset({"\0"})
"""Represents all keys, even unlisted ones."""


def fill_map(updates: UpdateMap, given: Mapping[str, str | None], *, replace: bool) -> None:
    """Add entries to an empty update; entries whose value is ``None`` remove their key."""
    updates.SetInParent()
    updates.replace = replace
    with refuse_half_characters("keys and values"):
        for key, value in given.items():
            entry = updates.update_entries.add()
            entry.key = key
            if value is not None:
                entry.value = value


def string_map(what: str, given: object, *, removes: bool = False) -> dict[str, Any]:
    """Check that a value of the caller maps strings to strings; ``removes`` also allows ``None``.

    Raises
    ------
    OptionError
        The value is of another type, or has other keys or values.
    """
    entries: Any = given
    try:
        entries = dict(entries)
    except (TypeError, ValueError):
        raise OptionError(f"{what}: expected a mapping of strings, found {given!r:.80}") from None
    values = str | None if removes else str
    wrong = {
        key: value
        for key, value in entries.items()
        if not isinstance(key, str) or not isinstance(value, values)
    }
    if wrong:
        raise OptionError(
            f"{what}: expected string keys and values, found {wrong!r:.80}. Pass str(value)."
        )
    return entries  # type: ignore[no-any-return]  # its keys are texts


def set_entries(
    entries: MutableMapping[str, Any],
    updates: UpdateMap,
    *,
    raw: bool,
    spared: Callable[[str], bool] | None = None,
) -> None:
    """Apply updates to ``entries``; values are bytes if ``raw``.

    Unlisted keys that are ``spared`` stay.
    """
    if updates.replace:
        listed = {entry.key for entry in updates.update_entries}
        for key in [key for key in entries if key not in listed]:
            if spared is None or not spared(key):
                del entries[key]
    for entry in updates.update_entries:
        if entry.HasField("value"):
            entries[entry.key] = entry.value.encode() if raw else entry.value
        elif entry.key in entries:
            del entries[entry.key]


def with_field_metadata(schema: LanceSchema, message: UpdateConfig) -> LanceSchema:
    """Return a schema after the changes of the metadata of its fields; ignore unknown fields."""

    def change(field: Field) -> Field:
        metadata = dict(field.metadata)
        if field.id in message.field_metadata:
            old = message.field_metadata[field.id].metadata
            metadata = {key: text.encode() for key, text in old.items()}
        if field.id in message.field_metadata_updates:
            set_entries(metadata, message.field_metadata_updates[field.id], raw=True)
        return replace(field, metadata=metadata, children=tuple(map(change, field.children)))

    if not (message.field_metadata or message.field_metadata_updates):
        return schema
    return replace(schema, fields=tuple(map(change, schema.fields)))


def changed_config(message: UpdateConfig) -> frozenset[str]:
    """Return keys of the table's configuration that are set or removed."""
    old = set(message.upsert_values) | set(message.delete_keys)
    return _changed_keys(message.config_updates) | old


def _changed_keys(updates: UpdateMap) -> frozenset[str]:
    """Return keys that are set or removed, with :data:`EVERYTHING` if unlisted keys are removed."""
    listed = frozenset(entry.key for entry in updates.update_entries)
    return listed | EVERYTHING if updates.replace else listed


def same_keys(mine: UpdateConfig, theirs: UpdateConfig) -> str | None:
    """Describe the entries that both changes set; ``None`` if they are compatible."""
    for name, my_keys, their_keys in (
        ("configuration", changed_config(mine), changed_config(theirs)),
        (
            "table metadata",
            _changed_keys(mine.table_metadata_updates),
            _changed_keys(theirs.table_metadata_updates),
        ),
    ):
        both = sorted(my_keys & their_keys) or (
            my_keys and their_keys and my_keys | their_keys >= EVERYTHING
        )
        if both:
            keys = ", ".join(both) if isinstance(both, list) else "all keys"
            return f"{name} of {keys}".replace("\0", "all keys")
    both_fields = _fields(mine) & _fields(theirs)
    if both_fields:
        return f"metadata of field {', '.join(map(str, sorted(both_fields)))}"
    return "metadata of the schema" if _schema(mine) and _schema(theirs) else None


def _fields(message: UpdateConfig) -> frozenset[int]:
    fields: Mapping[int, Any] = message.field_metadata_updates
    return frozenset(fields) | frozenset(message.field_metadata)


def _schema(message: UpdateConfig) -> bool:
    return message.HasField("schema_metadata_updates") or bool(message.schema_metadata)


# --- Whether the files of a table get checksums, by its configuration -------------------

CHECKSUMS: Final = "glaive.checksums"
"""Key of the table's configuration: whether its files get checksums."""


def wants_checksums(wire: table_pb2.ManifestOutline) -> bool | None:
    """Return whether the configuration of a version enables checksums; ``None`` if it is unset."""
    return {"true": True, "false": False}.get(wire.config.get(CHECKSUMS, "").lower())


def checksum_of_metadata(
    store: ObjectStore, wire: table_pb2.ManifestOutline
) -> Callable[[BytesLike], int] | None:
    """Return the checksum function for manifests and deletion files, if enabled.

    Raises
    ------
    OptionError
        See :func:`glaive.io.checksums.writes_checksums`.
    """
    function = checksum_function()
    if function is None:  # data files report the missing package
        return None
    return function if writes_checksums(store, wanted=wants_checksums(wire)) else None


# --- Rules of a table: constraints in its configuration, values in metadata of fields ----

CONSTRAINT: Final = "glaive.constraints."
"""Prefix of keys of the configuration: the expression of the ``CHECK`` constraint of this name."""

DEFAULT: Final = "glaive.default"
"""Key of a field's metadata: the expression for rows that lack the column."""

GENERATED: Final = "glaive.generated"
"""Key of a field's metadata: the expression that computes the column from others."""


IDENTITY: Final = "glaive.identity"
"""Key of a field's metadata: JSON with the values of :class:`IdentityGenerator`."""

NEXT_NUMBER: Final = "glaive.identity.next:"
"""Prefix of keys of the table metadata, before the id of an :class:`IdentityGenerator`."""


@dataclass(frozen=True, slots=True)
class IdentityGenerator:
    """Tells how commits number rows that lack a value: row ``n`` gets ``start + n * step``.

    Parameters
    ----------
    start, step
        The first value, and the difference to the next one.
    always
        Whether to refuse values that users give.
    id
        Names the next row to number in the table metadata.
    """

    start: int = 1
    step: int = 1
    always: bool = True
    id: str = ""

    @classmethod
    def of(cls, field: Field) -> Self | None:
        """Return how a column is numbered, if it is.

        Raises
        ------
        SchemaError
            The metadata is invalid, or the type of the column is not ``int64``.
        """
        text = field.metadata.get(IDENTITY)
        if text is None:
            return None
        try:
            made = cls(**json.loads(text))
            kinds = (int, int, bool, str)
            given = (made.start, made.step, made.always, made.id)
            valid = tuple(map(type, given)) == kinds and made.step != 0
        except (TypeError, ValueError):
            valid = False
        if not valid or field.logical_type != "int64":
            raise SchemaError(
                f"column {field.name!r}: its {IDENTITY} {text!r:.80} is invalid for the type "
                f"{field.logical_type}. Use int64, and text such as "
                '{"start": 1, "step": 1, "always": true}.'
            )
        return made

    @property
    def text(self) -> str:
        """The metadata of the field."""
        values = {"start": self.start, "step": self.step, "always": self.always, "id": self.id}
        return json.dumps(values)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a table; can be pickled.

    Parameters
    ----------
    schema
        All columns of the table.
    checks
        Names and expressions of constraints.
    numbers
        For each identity column the number of the next row; empty for rows that have values.
    task
        The task of a job that numbers its rows among others; ``None`` for a writer alone.
    moved
        Whether rows that have the column keep their numbers, as moved rows do.
    """

    schema: LanceSchema
    checks: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()
    task: int | None = None
    moved: bool = False

    @classmethod
    def of_version(cls, version: Manifest) -> Rules | None:
        """Return the rules of a version, if it has any."""
        return cls.of(version.schema, version.wire.config, version.wire.table_metadata)

    @classmethod
    def of(
        cls, schema: LanceSchema, config: Mapping[str, str], metadata: Mapping[str, str]
    ) -> Rules | None:
        """Return the rules of a table with this schema, configuration and metadata, if any."""
        checks = tuple(
            (key.removeprefix(CONSTRAINT), text)
            for key, text in config.items()
            if key.startswith(CONSTRAINT)
        )
        if not checks and not _has_values(schema):
            return None
        found = ((field.name, IdentityGenerator.of(field)) for field in schema.fields)
        numbers = tuple(
            (name, next_number(metadata, identity.id))
            for name, identity in found
            if identity is not None
        )
        return cls(schema, checks, numbers)


def with_identity(field: Field) -> Field:
    """Return a column of a new schema; if it is numbered, with an id of its numbers."""
    identity = IdentityGenerator.of(field)
    if identity is None or identity.id:
        return field
    text = replace(identity, id=random_bytes(8).hex()).text
    return replace(field, metadata={**field.metadata, IDENTITY: text.encode()})


def next_number(metadata: Mapping[str, str], identity: str) -> int:
    """Return the number of the next row of an identity column, from the table metadata.

    Raises
    ------
    CorruptFileError
        The entry is invalid.
    """
    text = metadata.get(NEXT_NUMBER + identity, "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise CorruptFileError(
            "number of the next row in the table metadata",
            expected="a number",
            found=f"{text!r:.60}",
            where=f"the entry {NEXT_NUMBER}{identity}",
        )
    return int(text)


@lru_cache(maxsize=64)  # repeated appends have the same schema
def _has_values(schema: LanceSchema) -> bool:
    return any(map(has_value, schema.fields))


def has_value(field: Field) -> bool:
    """Return whether rows may lack a column because a rule gives its values."""
    return not field.metadata.keys().isdisjoint((DEFAULT, GENERATED, IDENTITY))


# --- Set the schema of a manifest -------------------------------------------------------
# Specification: "Building the manifest" in ``docs/format``.


def set_columns(wire: table_pb2.ManifestOutline, schema: LanceSchema, *, metadata: bool) -> None:
    """Replace the fields, and the metadata of the schema if ``metadata``.

    If field ids must stay unique, it also raises the highest assigned id.

    Raises
    ------
    SchemaError
        A column of the primary key may be null.
    """
    check_primary_key(schema.fields)
    del wire.fields[:]
    wire.fields.extend(schema.to_wire())
    if metadata:
        wire.schema_metadata.clear()
        for key, value in schema.metadata.items():
            wire.schema_metadata[key] = value
    if wire.HasField("max_allocated_field_id"):
        wire.max_allocated_field_id = max(wire.max_allocated_field_id, schema.max_field_id)


# --- Upkeep after appends: the keys of the configuration that turn it on --------------

AUTO_COMPACT: Final = "glaive.auto_compact"
AUTO_INDEX: Final = "glaive.auto_index"

CLUSTER_KEYS: Final = "glaive.cluster_by"
"""The key whose entry has the columns of ``CLUSTER BY``, as a JSON list."""

# --- Automatic clean-up: keys of the configuration, and time spans as strings -----------

INTERVAL: Final = "lance.auto_cleanup.interval"
OLDER_THAN: Final = "lance.auto_cleanup.older_than"

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)\s*")
_DAY: Final = 86_400.0
_SECONDS: Final = {
    **dict.fromkeys(("nsec", "ns", "nanos"), 1e-9),
    **dict.fromkeys(("usec", "us", "µs", "micros"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("M", "month", "months"), 30.44 * _DAY),
    **dict.fromkeys(("y", "year", "years"), 365.25 * _DAY),
}


_UNITS: Final = (
    ("year", "years", 31_557_600), ("month", "months", 2_630_016), ("day", "days", 86_400),
    ("h", "h", 3_600), ("m", "m", 60), ("s", "s", 1),
)  # fmt: skip


def duration(text: str) -> timedelta:
    """Parse a time span such as ``14d`` or ``1h 30m``; a number alone means seconds.

    Raises
    ------
    OptionError
        The text is invalid.
    """
    at, seconds = 0, 0.0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _SECONDS:
            raise OptionError(f"expected a time span such as 14d or 1h 30m, found {text!r:.80}")
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    if not text.strip():
        raise OptionError("expected a time span such as 14d or 1h 30m, found an empty string")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise OptionError(f"the time span {text!r:.80} is too long") from None


def span_text(seconds: int) -> str:
    """Format a time span as pylance does: whole units, largest first, such as ``1h 30m``."""
    parts = []
    for name, plural, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{plural if count > 1 else name}")
    return " ".join(parts) or "0s"
