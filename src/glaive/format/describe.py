"""Encoding messages as a tree of plain values, for display and JSON.

Wrapper messages that only select one of several messages are omitted. Bytes are represented by
their length, short ones in hexadecimal.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings20_pb2, encodings21_pb2, encodings23_pb2
from glaive.format.wire import DecodeError, unseal

_ROOTS: dict[str, Any] = {
    "lance.encodings.ArrayEncoding": encodings20_pb2.ArrayEncoding,
    "lance.encodings.ColumnEncoding": encodings20_pb2.ColumnEncoding,
    "lance.encodings21.PageLayout": encodings21_pb2.PageLayout,
    "lance.encodings23.PlanarLayout": encodings23_pb2.PlanarLayout,
}

_SHOWN_BYTES = 32

_VALUE_ROLES = ("value_compression", "values", "inner_layout", "binary", "inner")
"""Roles of the encodings that encode values, from the page down."""


@dataclass(frozen=True, slots=True)
class EncodingNode:
    """One encoding: its name, its settings, and the encodings inside it by role."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    children: tuple[tuple[str, EncodingNode], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        children = [{"role": role, **node.to_dict()} for role, node in self.children]
        return {"encoding": self.name, **self.settings, "inside": children}

    @property
    def brief(self) -> str:
        """The layout and the value encodings, without levels."""
        names, node = [self.name.removesuffix("_layout")], self
        dictionary = False
        while True:
            dictionary = dictionary or any(role == "dictionary" for role, _ in node.children)
            inner = [child for role, child in node.children if role in _VALUE_ROLES]
            if not inner:
                break
            node = inner[0]
            names.append(node.name)
        if names[0] == "PlanarLayout":
            names.pop(0)
        return " > ".join(names) + (" + dictionary" if dictionary else "")

    def __str__(self) -> str:
        inside = ", ".join(f"{role}: {node}" for role, node in self.children)
        return f"{self.name}({inside})" if inside else self.name


def describe_encoding(raw: bytes, where: object) -> EncodingNode:
    """Describe the encoding of a page from its envelope.

    An encoding that this version does not know is described by its name alone.
    """
    try:
        name, message = unseal(raw)
        root = _ROOTS.get(name)
        if root is None:
            return EncodingNode(name.rsplit(".", 1)[-1])
        return _node(root.FromString(message), name.rsplit(".", 1)[-1])
    except DecodeError as error:
        raise CorruptFileError(
            "page encoding", expected="a protobuf message", found=str(error), where=where
        ) from None


def _node(message: Any, name: str) -> EncodingNode:
    descriptor = message.DESCRIPTOR
    if len(descriptor.oneofs) == 1 and len(descriptor.fields) == len(descriptor.oneofs[0].fields):
        chosen = message.WhichOneof(descriptor.oneofs[0].name)
        if chosen is None:
            return EncodingNode("none")
        inner = getattr(message, chosen)
        if hasattr(inner, "DESCRIPTOR"):
            return _node(inner, chosen)
        return EncodingNode(chosen, {chosen: _plain(inner)})
    settings: dict[str, Any] = {}
    children: list[tuple[str, EncodingNode]] = []
    for entry, value in message.ListFields():
        if entry.type == FieldDescriptor.TYPE_MESSAGE:
            many = list(value) if entry.is_repeated else [value]
            children.extend((entry.name, _node(child, entry.name)) for child in many)
        elif entry.type == FieldDescriptor.TYPE_ENUM:
            names = entry.enum_type.values_by_number
            many = list(value) if entry.is_repeated else [value]
            displayed = [
                _short(names[number].name) if number in names else str(number) for number in many
            ]
            settings[entry.name] = displayed if entry.is_repeated else displayed[0]
        else:
            settings[entry.name] = (
                [_plain(item) for item in value] if entry.is_repeated else _plain(value)
            )
    return EncodingNode(name, settings, tuple(children))


def _short(name: str) -> str:
    """``REPDEF_NULLABLE_ITEM`` → ``nullable_item``."""
    return name.removeprefix("REPDEF_").removeprefix("COMPRESSION_ALGORITHM_").lower()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= _SHOWN_BYTES else f"{len(value)} bytes"
    return value
