"""Transactions come back, known or not."""

from __future__ import annotations

import pytest

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction, WireOperation, decode_transaction


def test_a_transaction_comes_back() -> None:
    delete = WireOperation("delete", table_pb2.Transaction.Delete(predicate="a > 1"))
    mine = Transaction(read_version=4, operation=delete, properties={"job": "7"})
    back = decode_transaction(mine.encode(), where="t")
    assert back == mine
    assert back.file_name == f"4-{mine.uuid}.txn"


def test_an_empty_operation_is_still_one() -> None:
    restore = WireOperation("restore", table_pb2.Transaction.Restore())
    data = Transaction(read_version=1, operation=restore).encode()
    assert decode_transaction(data, where="t").operation.wire_name == "restore"


def test_an_unknown_operation_has_no_name() -> None:
    # Field 900, length-delimited, empty.
    data = table_pb2.Transaction(read_version=1, uuid="u").SerializeToString() + b"\xa2\x38\x00"
    assert decode_transaction(data, where="t").operation == WireOperation(None)


def test_bytes_that_are_no_message_are_reported() -> None:
    with pytest.raises(CorruptFileError, match=r"transaction: .*in x/1-u\.txn"):
        decode_transaction(b"\xff\xff\xff", where="x/1-u.txn")
