"""Transactions: what one commit changed, on the wire.

Every version carries the transaction that made it, in its manifest and as a file of its own.
Writers read those of others to find out whether their own change still holds.

The operations themselves, what they do to a manifest and what they conflict with, are in
``glaive.table.operations``, one file each; here an operation is its name and its message.

Specification: "Transaction" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from google.protobuf.message import DecodeError

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

__all__ = [
    "LANCE_COMMIT_MESSAGE_KEY",
    "Operation",
    "Transaction",
    "WireOperation",
    "decode_transaction",
]

LANCE_COMMIT_MESSAGE_KEY = "__lance_commit_message"
"""Property of a transaction that is shown as the commit's message."""


class Operation(Protocol):
    """What a transaction does."""

    @property
    def wire_name(self) -> str | None:
        """Name in the transaction message; ``None`` for one that this version does not know."""

    def to_wire(self) -> Any:
        """Message of the operation, such as ``Transaction.Append``."""


@dataclass(frozen=True, slots=True)
class WireOperation:
    """An operation as it was read: a name, ``None`` if it is not known, and a message."""

    wire_name: str | None
    message: Any = None

    def to_wire(self) -> Any:
        """The message that was read."""
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One commit.

    Parameters
    ----------
    read_version
        Version the operation was made for; 0 when it creates the dataset.
    operation
        What is done.
    uuid
        Identity of the commit, with hyphens.
    properties
        Free text entries; ``__lance_commit_message`` is shown as the commit's message.
    """

    read_version: int
    operation: Operation
    uuid: str = field(default_factory=lambda: str(uuid4()))
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def file_name(self) -> str:
        """Name of the transaction's file."""
        return f"{self.read_version}-{self.uuid}.txn"

    def encode(self) -> bytes:
        """Wire form, without length or footer."""
        name = self.operation.wire_name
        if name is None:
            raise ValueError(f"transaction {self.uuid}: its operation cannot be written")
        parts: dict[str, Any] = {name: self.operation.to_wire()}
        if self.properties:
            parts["transaction_properties"] = self.properties
        wire = table_pb2.Transaction(read_version=self.read_version, uuid=self.uuid, **parts)
        return wire.SerializeToString()


def decode_transaction(data: bytes, *, where: object) -> Transaction:
    """Read the wire form; an operation that is not known is kept as such, without a name."""
    try:
        wire = table_pb2.Transaction.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(
            "transaction",
            expected="a protobuf message",
            found=f"{len(data)} bytes that are none",
            where=where,
        ) from error
    name = wire.WhichOneof("operation")
    return Transaction(
        read_version=wire.read_version,
        operation=WireOperation(name, getattr(wire, name) if name else None),
        uuid=wire.uuid,
        properties=dict(wire.transaction_properties),
    )
