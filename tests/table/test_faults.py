"""Whatever request of a commit fails, readers see the old version or the new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from glaive.errors import (
    CommitConflictError,
    CommitError,
    GlaiveError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import manifest_path
from glaive.format.transaction import Transaction
from glaive.io.store import BytesLike, ObjectStore, PutMode
from glaive.table.commit import commit_transaction
from glaive.table.load import load_numbered, open_latest, read_transaction
from glaive.testing import CountingStore, Fault

from .places import KINDS, StaleListing, append, create, make_store, overwrite

REQUESTS = 10
"""More than a commit makes, with and without another writer in between."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


def commits_of(store: ObjectStore, transaction: Transaction) -> list[int]:
    """Versions that this transaction made."""
    made = []
    for version in range(1, open_latest(store).version + 1):
        theirs = read_transaction(store, load_numbered(store, version, "V2"))
        if theirs is not None and theirs.uuid == transaction.uuid:
            made.append(version)
    return made


@pytest.mark.sampled(every=3)
@pytest.mark.spec("commit-5", "fail-1")
@pytest.mark.parametrize("kind", ["fail", "lie"])
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "after another writer"])
@pytest.mark.parametrize("at", range(1, REQUESTS + 1))
def test_a_commit_is_made_once_or_not_at_all(
    store: ObjectStore, at: int, kind: Literal["fail", "lie"], *, behind: bool
) -> None:
    base = create(store)
    mine = append(base, 7)
    expected = base.version
    if behind:
        expected = commit_transaction(store, append(base), base=base).version
    failing = CountingStore(store)
    failing.inject(Fault(at=at, kind=kind))
    made: Manifest | None = None
    try:
        made = commit_transaction(failing, mine, base=base)
    except GlaiveError as error:
        known = isinstance(error, StoreError) or type(error) is CommitError
        assert known  # other errors would be wrong
    seen = open_latest(store)
    if made is None:
        assert seen.version == expected
        assert commits_of(store, mine) == []
    else:
        assert seen.wire == made.wire
        assert commits_of(store, mine) == [expected + 1]
    # Doing it again makes the version, if it was not made, and nothing else.
    again = commit_transaction(store, mine, base=base)
    assert commits_of(store, mine) == [again.version] == [expected + 1]
    assert again.count_rows() == 10 + 7 + (10 if behind else 0)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", ["fail", "lie"])
@pytest.mark.parametrize("at", range(1, REQUESTS + 1))
def test_a_creation_is_made_or_not(
    store: ObjectStore, at: int, kind: Literal["fail", "lie"]
) -> None:
    failing = CountingStore(store)
    failing.inject(Fault(at=at, kind=kind))
    try:
        made = create(failing)
    except StoreError:
        assert list(store.list("_versions")) == []
        create(store)
    else:
        assert open_latest(store).wire == made.wire
    assert open_latest(store).version == 1


def test_a_lost_answer_is_no_failure(store: ObjectStore) -> None:
    base = create(store)
    failing = CountingStore(store)
    failing.inject(Fault(at=1, kind="lie", method="put", path=".manifest"))
    made = commit_transaction(failing, append(base), base=base)
    assert made.version == open_latest(store).version == 2


def test_a_lost_answer_of_a_commit_that_came_second_is_retried(store: ObjectStore) -> None:
    base = create(store)
    late = append(base)
    commit_transaction(store, append(base), base=base)
    store.delete(["_versions/latest_version_hint.json"])
    store.put("_versions/latest_version_hint.json", [b'{"version":1}'])
    failing = CountingStore(store)
    failing.inject(Fault(at=1, kind="fail", method="put", path=".manifest"))
    assert commit_transaction(failing, late, base=base).version == 3


def test_an_outcome_that_cannot_be_learned_is_said_so(store: ObjectStore) -> None:
    base = create(store)
    mine = overwrite(base)
    failing = CountingStore(store)
    failing.inject(Fault(at=1, kind="lie", method="put", path=".manifest"))
    failing.inject(Fault(at=1, kind="fail", method="get", path=".manifest", forever=True))
    with pytest.raises(CommitError, match=r"version 2 of .* may or may not have been committed"):
        commit_transaction(failing, mine, base=base)
    # The repeated commit is recognised: an overwrite would conflict with itself.
    assert commit_transaction(store, mine, base=base).version == 2
    with pytest.raises(ObjectNotFoundError):
        load_numbered(store, 3, "V2")


class Repeating(CountingStore):
    """Carries out each put of a manifest twice, as a proxy may that got no answer."""

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        super().put(path, data, mode=mode)
        if path.endswith(".manifest"):
            super().put(path, data, mode=mode)


@pytest.mark.spec("rel-8")
def test_a_repeated_commit_whose_version_cannot_be_read_may_have_been_made(
    store: ObjectStore,
) -> None:
    base = create(store)
    mine = overwrite(base)
    repeating = Repeating(store)
    repeating.inject(Fault(at=1, kind="fail", method="get", path=".manifest", forever=True))
    with pytest.raises(CommitError, match=r"version 2 of .* may or may not have been committed"):
        commit_transaction(repeating, mine, base=base)
    assert commit_transaction(store, mine, base=base).version == 2


@pytest.mark.spec("rel-2")
def test_where_the_hint_cannot_be_read_a_stale_listing_is_not_taken_for_all_there_is(
    store: ObjectStore,
) -> None:
    """The version after the one that was read is gone: its name is free, and its place is not."""
    base = create(store)
    late, stale = append(base), StaleListing(store, newest=1)
    newest = commit_transaction(store, append(base), base=base)
    commit_transaction(store, append(newest), base=newest)
    store.delete([manifest_path(2)])
    failing = CountingStore(stale)
    failing.inject(Fault(at=1, kind="fail", method="get", path="hint"))
    with pytest.raises(StoreError, match="hint"):
        commit_transaction(failing, late, base=base)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        commit_transaction(stale, late, base=base)
    assert failing.by_method["create"] == 0
    assert open_latest(store).version == 3
