"""Transactions in wire format: what one commit changed.

Every version has its transaction in its manifest and in a separate file. Writers read the
transactions of others to detect conflicts.

The implementations of operations are in ``glaive.table.operations``; here an operation is its name
and its message.

Specification: "Transaction" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.format.pb import table_pb2
from glaive.format.wire import delimited, parse
from glaive.process import new_uuid

LANCE_COMMIT_MESSAGE_KEY = "__lance_commit_message"
"""Property of a transaction with the commit message."""


class Operation(Protocol):
    """The operation of a transaction."""

    @property
    def wire_name(self) -> str | None:
        """Name in the transaction message; ``None`` if unknown to this version."""

    def to_wire(self) -> Any:
        """Return the message of the operation, such as ``Transaction.Append``."""

    def encode(self) -> list[bytes]:
        """Return the parts of that message in wire format."""


@dataclass(frozen=True, slots=True)
class WireOperation:
    """An operation that was read: its name, ``None`` if unknown, its message and its file."""

    wire_name: str | None
    message: Any = None
    where: str | None = field(default=None, compare=False, repr=False)

    def to_wire(self) -> Any:
        """Return the message that was read."""
        return self.message

    def encode(self) -> list[bytes]:
        """Return the same in wire format."""
        return [self.message.SerializeToString()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One commit.

    Parameters
    ----------
    read_version
        Version the operation was made for; 0 when it creates the dataset.
    operation
        The operation.
    uuid
        Identity of the commit, with hyphens.
    properties
        String entries; ``__lance_commit_message`` is the commit message.
    """

    read_version: int
    operation: Operation
    uuid: str = field(default_factory=lambda: str(new_uuid()))
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def file_name(self) -> str:
        """Name of the transaction's file."""
        return f"{self.read_version}-{self.uuid}.txn"

    def encode(self) -> bytes:
        """Encode the message alone in wire format.

        Raises
        ------
        OptionError
            A given value has a wrong type, is a number out of range, or is a text with half of a
            surrogate pair.
        """
        name = self.operation.wire_name
        if name is None:
            raise ValueError(f"transaction {self.uuid}: its operation cannot be written")
        try:
            wire = table_pb2.Transaction(
                read_version=self.read_version,
                uuid=self.uuid,
                transaction_properties=self.properties,
            )
            parts = self.operation.encode()
        except GlaiveError:
            raise
        except (TypeError, ValueError) as error:  # also of numbers, and of invalid UTF-8
            raise OptionError(
                f"transaction {self.uuid!r}: a value of it cannot be stored: {error}. Check its "
                "uuid, its properties, and the fields of its operation."
            ) from error
        number = wire.DESCRIPTOR.fields_by_name[name].number
        head = delimited(number, sum(map(len, parts)))
        return b"".join([wire.SerializeToString(), head, *parts])


def decode_transaction(data: bytes, *, where: object) -> Transaction:
    """Decode the wire format; the name of an unknown operation is ``None``."""
    wire = parse(table_pb2.Transaction(), data, "transaction", where)
    name = wire.WhichOneof("operation")
    return Transaction(
        read_version=wire.read_version,
        operation=WireOperation(name, getattr(wire, name) if name else None, str(where)),
        uuid=wire.uuid,
        properties=dict(wire.transaction_properties),
    )
