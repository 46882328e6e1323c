"""Which operations go together: the table cell by cell, and what it leaves open."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glaive.errors import CommitConflictError, CorruptFileError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.operations.update import key_filter, may_share_keys
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import Conflict, TableOperation, read_operation
from glaive.table.protocol import operations as all_operations

from .conflict_table import ALL_THEIRS, EXPECTED, NAMES, STRICTER, THEIRS_ONLY
from .native import SCHEMA, as_read, fragment, moved, operations, theirs_only

OURS = operations()
THEIRS = {name: as_read(one) for name, one in OURS.items()} | theirs_only()


def conflict(ours: TableOperation, theirs: Any) -> Conflict | None:
    """That of the pair, after which a version is left that has no remapping table."""
    found = ours.conflict(theirs)
    if found is None and isinstance(ours, CreateIndex) and theirs.wire_name == "rewrite":
        base = Manifest(table_pb2.ManifestOutline(version=2), where="here", scheme="V2")
        rebased = ours.rebase([theirs], base, {})
        found = rebased if isinstance(rebased, Conflict) else None
    return found


def decided(ours: TableOperation, theirs: Any) -> str:
    found = conflict(ours, theirs)
    return "ok" if found is None else "retry" if found.retryable else "never"


@pytest.mark.sampled(every=8)
@pytest.mark.spec("conflict-1", "conflict-6")
@pytest.mark.parametrize("theirs", ALL_THEIRS)
@pytest.mark.parametrize("ours", NAMES)
def test_a_cell_of_the_table(ours: str, theirs: str) -> None:
    expected = STRICTER.get((ours, theirs), EXPECTED[ours, theirs])
    assert decided(OURS[ours], THEIRS[theirs]) == expected


def test_the_table_has_all_operations() -> None:
    # A clone is the first commit of a dataset: nothing comes before it.
    named = {one.wire_name for one in OURS.values()} | {"clone"}
    assert named == set(all_operations())
    assert set(EXPECTED) == {(ours, theirs) for ours in NAMES for theirs in ALL_THEIRS}
    assert set(THEIRS_ONLY) == set(theirs_only())


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_comes_back_from_the_wire(name: str) -> None:
    again = read_operation(THEIRS[name])
    assert again == OURS[name]
    assert again.to_wire() == OURS[name].to_wire()


@pytest.mark.spec("conflict-2")
@pytest.mark.parametrize(
    ("ours", "theirs", "fragments"),
    [
        ("delete 0", "remove 0", {0}),
        ("rewrite 1", "columns 1 b", {1}),
        ("index b", "rewrite 0", {0}),
    ],
)
def test_a_conflict_names_the_fragments(ours: str, theirs: str, fragments: set[int]) -> None:
    found = conflict(OURS[ours], THEIRS[theirs])
    assert found is not None
    assert found.fragments == fragments
    assert str(min(fragments)) in found.reason or "index" in found.reason


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ("mem wal", "update_mem_wal_state is not compatible with it"),
        ("unknown", "its operation is unknown to this version of glaive"),
    ],
)
def test_a_conflict_with_what_only_others_commit_says_what_it_is(theirs: str, reason: str) -> None:
    found = OURS["append"].conflict(THEIRS[theirs])
    assert found is not None
    assert found.reason == reason


def test_a_configuration_that_both_set() -> None:
    ours = Overwrite(fragments=(), schema=SCHEMA, config={"x": "2"})
    assert decided(ours, THEIRS["config x"]) == "never"
    assert decided(ours, THEIRS["config y"]) == "ok"
    assert decided(OURS["config x"], as_read(ours)) == "never"
    assert decided(OURS["config y"], as_read(ours)) == "ok"
    all_others = UpdateConfig.of(config={"z": "1"}, replace=True)
    assert decided(all_others, THEIRS["config x"]) == "never"
    assert decided(OURS["config x"], as_read(all_others)) == "never"
    assert decided(OURS["table x"], as_read(all_others)) == "ok"


def test_the_older_form_of_a_configuration_counts_as_well() -> None:
    message = table_pb2.Transaction.UpdateConfig(upsert_values={"x": "1"}, delete_keys=["q"])
    old = UpdateConfig(message)
    assert decided(OURS["config x"], as_read(old)) == "never"
    assert decided(OURS["config y"], as_read(old)) == "ok"
    message.schema_metadata["m"] = "1"
    assert decided(OURS["merge"], as_read(old)) == "retry"


# ---------------------------------------------------------- keys inserted by both


def hashes(*numbers: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    # Spread over all 64 bits, as hashes are.
    return np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@pytest.mark.spec("conflict-4")
def test_inserts_of_one_key_conflict() -> None:
    ours = replace(moved(0), inserted_rows=key_filter([0], hashes(1, 2)))
    same = replace(moved(1), inserted_rows=key_filter([0], hashes(2, 3)))
    other = replace(moved(1), inserted_rows=key_filter([0], hashes(4, 5)))
    assert decided(ours, as_read(same)) == "retry"
    assert decided(ours, as_read(other)) == "ok"
    assert decided(ours, as_read(moved(1))) == "retry"
    assert decided(ours, as_read(Append((fragment(),)))) == "retry"
    assert decided(moved(0), as_read(same)) == "ok"


def exact(*numbers: int) -> Any:
    made = table_pb2.Transaction.Update.KeyExistenceFilter(field_ids=[0])
    made.exact.key_hashes.extend(hashes(*numbers).tolist())
    return made


def test_filters_of_any_two_kinds_are_compared() -> None:
    assert may_share_keys(exact(1, 2), exact(2))
    assert not may_share_keys(exact(1, 2), exact(3))
    assert may_share_keys(exact(1, 2), key_filter([0], hashes(2, 9)))
    assert not may_share_keys(key_filter([0], hashes(2, 9)), exact(1, 3))
    assert not may_share_keys(key_filter([0], hashes()), key_filter([0], hashes(1)))
    assert may_share_keys(key_filter([0], hashes(1)), key_filter([1], hashes(2)))
    small = key_filter([0], hashes(1))
    small.bloom.bitmap = small.bloom.bitmap[:64]
    assert may_share_keys(small, key_filter([0], hashes(2)))


def test_a_damaged_filter_is_reported() -> None:
    broken = key_filter([0], hashes(1))
    broken.bloom.bitmap = b"1234567"
    with pytest.raises(CorruptFileError, match="blocks of 32 bytes, found 7 bytes"):
        may_share_keys(broken, key_filter([0], hashes(1)))


def test_a_filter_is_as_the_other_library_makes_it() -> None:
    made = key_filter([3], np.array([0xFFFFFFFF_00000001], np.uint64))
    assert (made.bloom.num_bits, made.bloom.number_of_items) == (262144, 8192)
    words = np.frombuffer(made.bloom.bitmap, "<u4").reshape(-1, 8)
    assert np.flatnonzero(words.any(axis=1)).tolist() == [1023]
    salt = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D]
    assert words[1023, :4].tolist() == [1 << (one >> 27) for one in salt]


def test_a_conflict_error_keeps_its_facts_when_pickled() -> None:
    error = CommitConflictError(
        "no", retryable=False, version=3, operation="delete", fragments={4, 1}
    )
    again = pickle.loads(pickle.dumps(error))  # made here
    facts = (again.retryable, again.version, again.operation, again.fragments, str(again))
    assert facts == (False, 3, "delete", (1, 4), "no")
