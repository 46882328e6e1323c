"""Whatever request of an operation goes wrong: the old version or the new one, and once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from glaive.fragment import write_fragments
from tests.kit.model import made_rows, sorted_rows

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitError
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.testing import KINDS, CountingStore, Fault, Kind, each_request, open_on

from .changes import CHANGES, Change

OPERATIONS: dict[str, Change] = {
    **CHANGES,
    "delete a fragment": lambda at: at.delete("id < 15"),
    "truncate": lambda at: at.truncate_table(),
    "config": lambda at: at.update_config({"key": "value"}),
}


def copied(source: ObjectStore) -> ObjectStore:
    """The same objects in a place in memory of their own."""
    target = open_store(f"memory://{uuid4().hex}/table")
    for one in source.walk(""):
        target.put(one.path, [source.get(one.path)])
    return target


@pytest.fixture(scope="module")
def base() -> ObjectStore:
    """Three versions: rows in four fragments, more rows, some of them deleted."""
    place = f"memory://{uuid4().hex}/table"
    dataset = glaive.write_dataset(made_rows(range(30), 1), place, max_rows_per_file=10)
    dataset.insert(made_rows(range(30, 40), 1))
    dataset.delete("id % 10 = 1")
    return dataset.store


def seen(store: ObjectStore) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and settings of the newest version."""
    newest = open_on(store)
    return sorted_rows(newest.to_table()), newest.config()


@pytest.mark.sampled(every=8)
@pytest.mark.spec("rel-6", "rel-8")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_old_version_or_the_new_one(
    base: ObjectStore, name: str, kind: Kind, record_property: Callable[[str, object], None]
) -> None:
    operation, points = OPERATIONS[name], 0
    before, clean = seen(base), copied(base)
    operation(open_on(clean))
    after, last = seen(clean), open_on(clean).version
    for outcome in each_request(lambda: copied(base), operation, kind):
        points += 1
        told = f"request {outcome.at}: {outcome.error}"
        found, version = seen(outcome.store), open_on(outcome.store).version
        if outcome.error is None:
            assert found == after, told
            assert version == last, told
        else:
            assert kind in ("fail", "lie"), told
            assert found == before, told
            assert outcome.dataset.version == 3
        # What was there before is there still, and all versions between can be read.
        counts = [
            open_on(outcome.store, number).to_table().num_rows for number in range(1, version + 1)
        ]
        assert counts[:3] == [30, 40, 36], told
        assert sorted_rows(open_on(outcome.store, 3).to_table()) == before[0], told
        if outcome.error is not None:
            operation(outcome.dataset)
            assert seen(outcome.store) == after, told
    record_property("fault points", points)


@pytest.mark.spec("rel-8")
def test_new_columns_keep_their_files_while_nobody_knows_whether_they_were_committed(
    base: ObjectStore,
) -> None:
    store = copied(base)
    failing = CountingStore(store)
    failing.inject(Fault(at=1, kind="lie", method="put", path=".manifest"))
    failing.inject(Fault(at=1, kind="fail", method="get", path=".manifest", forever=True))
    with pytest.raises(CommitError, match="may or may not have been committed"):
        LanceDataset.of(failing, open_on(store).manifest).add_columns({"more": "id + 1"})

    assert open_on(store).version == 4
    rows = open_on(store).to_table().to_pylist()
    assert [row["more"] for row in rows] == [row["id"] + 1 for row in rows]


@pytest.mark.spec("rel-7")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["append", "overwrite"])
def test_a_commit_is_made_once_however_often_it_is_repeated(
    base: ObjectStore, what: str, kind: Kind
) -> None:
    rows = made_rows(range(100, 110), 2)
    ready = copied(base)

    def make() -> ObjectStore:
        return copied(ready)

    transaction = write_fragments(rows, open_on(ready), mode=what, return_transaction=True)

    def commit(dataset: LanceDataset) -> object:
        return LanceDataset.commit(dataset, transaction)

    expected = {row["id"] for row in rows.to_pylist()}
    if what == "append":
        expected |= {row["id"] for row in seen(base)[0]}
    for outcome in each_request(make, commit, kind):
        for _ in range(2):
            commit(outcome.dataset)
            assert open_on(outcome.store).version == 4
            found = [row["id"] for row in seen(outcome.store)[0]]
            assert found == sorted(expected)


@pytest.mark.sampled(every=4)
@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("kind", KINDS)
def test_cleaning_up_never_takes_what_is_needed(base: ObjectStore, kind: Kind) -> None:
    before = seen(base)

    def clean(dataset: LanceDataset) -> object:
        return dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)

    for outcome in each_request(lambda: copied(base), clean, kind):
        assert seen(outcome.store) == before
        for one in open_on(outcome.store).versions():
            opened = open_on(outcome.store, one["version"])
            assert opened.to_table().num_rows == opened.count_rows()
        clean(outcome.dataset)
        assert seen(outcome.store) == before
        assert [one["version"] for one in open_on(outcome.store).versions()] == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_made_or_not(base: ObjectStore, kind: Kind) -> None:
    for outcome in each_request(lambda: copied(base), lambda at: at.tags.create("t", 2), kind):
        tags = open_on(outcome.store).tags
        if outcome.error is None:
            assert tags.get_version("t") == 2
        elif "t" not in tags.list():
            outcome.dataset.tags.create("t", 2)
        assert open_on(outcome.store).tags.get_version("t") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_branch_is_whole_or_can_be_made_again(base: ObjectStore, kind: Kind) -> None:
    before = seen(base)
    for outcome in each_request(lambda: copied(base), lambda at: at.create_branch("b"), kind):
        assert seen(outcome.store) == before
        listed = open_on(outcome.store).branches.list()
        if outcome.error is None:
            assert "b" in listed, outcome.at
        if "b" not in listed:
            outcome.dataset.create_branch("b")
        found = open_on(outcome.store).checkout_version(("b", None))
        assert sorted_rows(found.to_table()) == before[0]
