"""Damage for the metadata of tables: every field of every message, set to what it may not be.

:func:`changes` walks a message and gives each field, item and part of it extreme values, leaves
it out and doubles it, also in messages that are kept as bytes in other messages. :func:`trials`
does so for the metadata files of a dataset: manifest, index section, transaction, deletion files,
tags, branches and the version hint. For data files see :mod:`tests.damage`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor as Kind

from glaive.format.pb import table_pb2

__all__ = ["Trial", "changes", "trials", "with_indices"]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")

_SMALL = [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1]
_LARGE = [2**32, 2**32 + 1, 2**48, 2**63 - 1, 2**63, 2**64 - 1]
_SIGNED = [0, 1, -1, -2, -3, 2**31 - 1, -(2**31)]
_NUMBERS: dict[int, list[int]] = {
    Kind.TYPE_INT32: _SIGNED,
    Kind.TYPE_INT64: [*_SIGNED, 2**32, 2**48, 2**63 - 1, -(2**63)],
    Kind.TYPE_UINT32: _SMALL,
    Kind.TYPE_UINT64: [*_SMALL, *_LARGE],
    Kind.TYPE_FIXED64: [*_SMALL, *_LARGE],
    Kind.TYPE_ENUM: [0, 1, 2, 7, 2**31 - 1],
}
_TEXTS = [
    "",
    "\0",
    "a\nb",
    "../x",
    "/x",
    "a/../../x",
    "\N{SNOWMAN}" * 300,
    "struct",
    "list",
    "null",
]
_EMPTY: dict[int, Any] = {Kind.TYPE_STRING: "", Kind.TYPE_BYTES: b""}
_INSIDE: dict[str, Any] = {
    "inline_row_ids": table_pb2.RowIdSequence,
    "inline_last_updated_at_versions": table_pb2.RowDatasetVersionSequence,
    "inline_created_at_versions": table_pb2.RowDatasetVersionSequence,
}
_DETAILS = "FragmentReuseIndexDetails"

Change = Callable[[Any], None]


class Trial(NamedTuple):
    """A file with one thing wrong: what is wrong, the file, and what it holds instead."""

    label: str
    path: str
    content: Callable[[], bytes]

    @property
    def part(self) -> str:
        """What the thing belongs to: a part of a manifest, or a file beside it."""
        return re.split(r"[.\[ ]", self.label, maxsplit=1)[0]


# ------------------------------------------------------------------ messages


def changes(message: Any, name: str = "") -> Iterator[tuple[str, Change]]:
    """What is done to a message, in words, and what does it to a copy of the message."""
    for field in message.DESCRIPTOR.fields:
        here = f"{name}.{field.name}" if name else field.name
        if field.is_repeated:
            if field.message_type and field.message_type.GetOptions().map_entry:
                yield from _of_map(message, field, here)
            else:
                yield from _of_list(message, field, here)
        elif field.type == Kind.TYPE_MESSAGE:
            if message.HasField(field.name):
                yield f"{here} removed", partial(_clear, field=field)
                yield from _inside(getattr(message, field.name), here, _getter(field.name))
            else:
                yield f"{here} added", partial(_add, field=field)
        else:
            value = getattr(message, field.name)
            yield from _of_value(value, field, here, partial(_set, field=field))
            if field.name in _INSIDE and value:
                yield from _packed(_INSIDE[field.name], field.name, here, value)
    if message.DESCRIPTOR.full_name == "google.protobuf.Any" and message.type_url.endswith(
        _DETAILS
    ):
        kind = table_pb2.FragmentReuseIndexDetails
        yield from _packed(kind, "value", f"{name}.value", message.value)


def _of_list(message: Any, field: Any, here: str) -> Iterator[tuple[str, Change]]:
    values = getattr(message, field.name)
    yield f"{here} removed", partial(_clear, field=field)
    for at, value in enumerate(values):
        yield f"{here}[{at}] twice", partial(_twice, field=field, at=at)
        yield f"{here}[{at}] removed", partial(_remove, field=field, at=at)
        if field.type == Kind.TYPE_MESSAGE:
            yield from _inside(value, f"{here}[{at}]", _getter(field.name, at))
        else:
            yield from _of_value(value, field, f"{here}[{at}]", partial(_put, field=field, at=at))
    if not values:
        yield f"{here} added", partial(_append, field=field)


def _of_map(message: Any, field: Any, here: str) -> Iterator[tuple[str, Change]]:
    yield f"{here} removed", partial(_clear, field=field)
    values = field.message_type.fields_by_name["value"]
    for key in sorted(getattr(message, field.name)):
        found = getattr(message, field.name)[key]
        put = partial(_put, field=field, at=key)
        yield from _of_value(found, values, f"{here}[{key}]", put)


def _of_value(
    value: Any, field: Any, here: str, put: Callable[..., None]
) -> Iterator[tuple[str, Change]]:
    if field.type in _NUMBERS:
        others: list[Any] = _NUMBERS[field.type]
        if isinstance(value, int) and field.type != Kind.TYPE_ENUM:
            near = [value - 1, value + 1]
            low, high = others[-1] if min(others) < 0 else 0, max(others)
            others = [*others, *(one for one in near if low <= one <= high)]
    elif field.type == Kind.TYPE_BOOL:
        others = [not value]
    elif field.type == Kind.TYPE_STRING:
        others = [*_TEXTS, value * 2, value[:-1]]
    else:
        others = [b"", value[:-1], value + b"\0", value * 2, b"\xff" * len(value), b"\0" * 8]
    for other in dict.fromkeys(others):
        if other != value:
            yield f"{here} = {other!r:.60}", partial(put, value=other)


def _inside(part: Any, here: str, get: Callable[[Any], Any]) -> Iterator[tuple[str, Change]]:
    for label, change in changes(part, here):
        yield label, partial(_within, get=get, change=change)


def _packed(kind: Any, name: str, here: str, value: bytes) -> Iterator[tuple[str, Change]]:
    for label, change in changes(kind.FromString(value), here):
        yield label, partial(_repack, kind=kind, name=name, change=change)


def _getter(name: str, at: int | None = None) -> Callable[[Any], Any]:
    def get(message: Any) -> Any:
        found = getattr(message, name)
        return found if at is None else found[at]

    return get


def _within(message: Any, *, get: Callable[[Any], Any], change: Change) -> None:
    change(get(message))


def _repack(message: Any, *, kind: Any, name: str, change: Change) -> None:
    part = kind.FromString(getattr(message, name))
    change(part)
    setattr(message, name, part.SerializeToString())


def _clear(message: Any, *, field: Any) -> None:
    message.ClearField(field.name)


def _add(message: Any, *, field: Any) -> None:
    getattr(message, field.name).SetInParent()


def _set(message: Any, *, field: Any, value: Any) -> None:
    setattr(message, field.name, value)


def _put(message: Any, *, field: Any, at: Any, value: Any) -> None:
    getattr(message, field.name)[at] = value


def _append(message: Any, *, field: Any) -> None:
    values = getattr(message, field.name)
    if field.type == Kind.TYPE_MESSAGE:
        values.add()
    else:
        values.append(
            "" if field.type == Kind.TYPE_STRING else b"" if field.type == Kind.TYPE_BYTES else 0
        )


def _twice(message: Any, *, field: Any, at: int) -> None:
    values = getattr(message, field.name)
    values.extend([values[at]])


def _remove(message: Any, *, field: Any, at: int) -> None:
    del getattr(message, field.name)[at]


# ------------------------------------------------------------------ files


def trials(folder: Path) -> Iterator[Trial]:
    """Each metadata file of a dataset with one thing wrong, one after the other."""
    (newest, *_) = sorted((folder / "_versions").glob("*.manifest"))
    yield from _of_manifest(newest, str(newest.relative_to(folder)))
    for path in sorted((folder / "_deletions").glob("*")):
        yield from _of_numbers(
            path, str(path.relative_to(folder)), 2 if path.suffix == ".bin" else 4
        )
    for path in sorted(folder.glob("_refs/**/*.json")):
        yield from _of_json(path, str(path.relative_to(folder)))
    hint = folder / "_versions" / "latest_version_hint.json"
    yield from _of_json(hint, str(hint.relative_to(folder)))


def _of_manifest(file: Path, path: str) -> Iterator[Trial]:
    raw = file.read_bytes()
    (position, *_) = _FOOTER.unpack(raw[-_FOOTER.size :])
    manifest = table_pb2.Manifest.FromString(_section(raw, position))
    for label, change in changes(manifest, "manifest"):
        yield Trial(label, path, partial(_with_message, raw, position, change))
    sections: list[tuple[str, Any]] = [
        ("index_section", table_pb2.IndexSection),
        ("transaction_section", table_pb2.Transaction),
    ]
    for name, kind in sections:
        if manifest.HasField(name):
            part = kind.FromString(_section(raw, getattr(manifest, name)))
            for label, change in changes(part, name.removesuffix("_section")):
                yield Trial(label, path, partial(_with_part, raw, position, name, part, change))


def _section(raw: bytes, at: int) -> bytes:
    (size,) = _LENGTH.unpack_from(raw, at)
    return raw[at + _LENGTH.size : at + _LENGTH.size + size]


def _with_message(raw: bytes, position: int, change: Change) -> bytes:
    manifest = table_pb2.Manifest.FromString(_section(raw, position))
    change(manifest)
    return _joined(raw[:position], manifest)


def _with_part(raw: bytes, position: int, name: str, part: Any, change: Change) -> bytes:
    manifest = table_pb2.Manifest.FromString(_section(raw, position))
    changed = type(part)()
    changed.CopyFrom(part)
    change(changed)
    setattr(manifest, name, position)
    return _joined(raw[:position] + _sized(changed), manifest)


def _joined(before: bytes, manifest: Any) -> bytes:
    return before + _sized(manifest) + _FOOTER.pack(len(before), 0, 2, b"LANC")


def _sized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return _LENGTH.pack(len(data)) + data


def _of_numbers(file: Path, path: str, width: int) -> Iterator[Trial]:
    """A file each of whose numbers of so many bytes is another; its ends are cut off."""
    raw = file.read_bytes()
    others = [0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1]
    for at in range(0, len(raw) - width + 1, width):
        for other in others:
            label = f"{path} [{at}] = {other}"
            yield Trial(label, path, partial(_with_number, raw, at, width, other))
        if width == 4 and at % 8 == 0 and at + 8 <= len(raw):
            for other in (2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1):
                label = f"{path} [{at}:8] = {other}"
                yield Trial(label, path, partial(_with_number, raw, at, 8, other))
    for size in sorted({0, 1, 8, len(raw) // 2, len(raw) - 1}):
        yield Trial(f"{path} cut at {size}", path, partial(bytes, raw[:size]))


def _with_number(raw: bytes, at: int, width: int, number: int) -> bytes:
    return raw[:at] + number.to_bytes(width, "little") + raw[at + width :]


_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**400,
    1.5,
    "",
    "../x",
    "\0",
    [],
    {},
]


def _of_json(file: Path, path: str) -> Iterator[Trial]:
    content = json.loads(file.read_text())
    for value in _VALUES:
        yield Trial(f"{path} = {value!r:.60}", path, partial(_dumped, value))
    for key in content:
        yield Trial(
            f"{path}[{key}] removed",
            path,
            partial(_dumped, {k: content[k] for k in content if k != key}),
        )
        for value in _VALUES:
            yield Trial(
                f"{path}[{key}] = {value!r:.60}", path, partial(_dumped, {**content, key: value})
            )
    for raw in (b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000, b"NaN", b'{"version":1e999}'):
        yield Trial(f"{path} = {raw[:20]!r}", path, partial(bytes, raw))


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def with_indices(raw: bytes, entries: Sequence[table_pb2.IndexMetadata]) -> bytes:
    """A manifest file with these entries as its index section."""
    (position, *_) = _FOOTER.unpack(raw[-_FOOTER.size :])
    manifest = table_pb2.Manifest.FromString(_section(raw, position))
    manifest.index_section = position
    return _joined(raw[:position] + _sized(table_pb2.IndexSection(indices=entries)), manifest)
