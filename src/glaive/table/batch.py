"""Merge several transactions into one commit.

Specification: "Commit" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

from glaive.arrow.utf8 import refuse_half_characters
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.fragment import Fragment
from glaive.format.transaction import Transaction
from glaive.table.operations.append import Append
from glaive.table.registry import read_operation

__all__ = ["merge_transactions"]

_BATCH: Final = UUID("5c1a6e5e-8d3f-4c63-9a83-6a3c8f0a7a51")
"""Namespace of the uuids of batches."""


def merge_transactions(transactions: Sequence[Transaction]) -> Transaction:
    """One transaction with the effect of all, made for the oldest of their read versions.

    It has all properties; the last transaction wins. Its uuid follows from theirs: committed again,
    it is recognised.

    Raises
    ------
    OptionError
        There are no transactions, or a uuid has half of a surrogate pair.
    UnsupportedFeatureError
        One of them is not an append.
    """
    if not transactions:
        raise OptionError("No transactions to commit: give at least one")
    fragments: list[Fragment] = []
    properties: dict[str, str] = {}
    for number, transaction in enumerate(transactions):
        operation = read_operation(transaction.operation)
        if not isinstance(operation, Append):
            raise UnsupportedFeatureError(
                f"Only append transactions are supported in batch commits: transaction {number} of "
                f"the batch is a {operation.wire_name}: only appends can be committed in a batch. "
                "Commit it separately."
            )
        fragments += operation.fragments
        properties.update(transaction.properties)
    with refuse_half_characters("uuid of a transaction"):
        uuid = uuid5(_BATCH, " ".join(transaction.uuid for transaction in transactions))
    return Transaction(
        read_version=min(transaction.read_version for transaction in transactions),
        operation=Append(tuple(fragments), once=True),
        uuid=str(uuid),
        properties=properties,
    )
