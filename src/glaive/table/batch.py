"""Several transactions in one commit.

Specification: "Commit" in ``docs/format/transactions.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.fragment import Fragment
from glaive.format.transaction import Transaction
from glaive.table.operations.append import Append
from glaive.table.registry import read_operation

__all__ = ["merge_transactions"]


def merge_transactions(transactions: Sequence[Transaction]) -> Transaction:
    """One transaction that does what all of these do, made for the oldest of their versions.

    Properties are those of all; of one that several have, the last.

    Raises
    ------
    OptionError
        There are no transactions.
    UnsupportedFeatureError
        One of them is no append.
    """
    if not transactions:
        raise OptionError("no transactions to commit: give at least one")
    fragments: list[Fragment] = []
    properties: dict[str, str] = {}
    for number, one in enumerate(transactions):
        operation = read_operation(one.operation)
        if not isinstance(operation, Append):
            raise UnsupportedFeatureError(
                f"transaction {number} of the batch is a {operation.wire_name}: only appends are "
                "committed together. Commit it by itself."
            )
        fragments += operation.fragments
        properties.update(one.properties)
    return Transaction(
        read_version=min(transaction.read_version for transaction in transactions),
        operation=Append(tuple(fragments)),
        properties=properties,
    )
