"""One commit, alone or after others: what the next version holds and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import (
    CommitConflictError,
    CommitContentionError,
    CommitError,
    DatasetExistsError,
    DatasetNotFoundError,
    ObjectExistsError,
    UnsupportedFeatureError,
)
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature, Manifest, encode_manifest
from glaive.format.paths import HINT, data_file_path, manifest_path
from glaive.format.pb import table_pb2
from glaive.format.rowids import decode_row_ids, decode_versions
from glaive.format.transaction import Transaction, WireOperation, decode_transaction
from glaive.io.store import BytesLike, ObjectStore, PutMode
from glaive.table.commit import commit_transaction
from glaive.table.load import find_transaction, open_latest, open_version, read_transaction
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import CommitOptions
from glaive.testing import CountingStore
from glaive.types import FormatVersion

from .places import (
    KINDS,
    SCHEMA,
    StaleListing,
    append,
    create,
    fragment,
    make_store,
    names,
    overwrite,
)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return make_store(request.param, tmp_path)


def row_ids(manifest: Manifest) -> list[list[int]]:
    return [
        decode_row_ids(one.row_ids or b"", one.physical_rows, where="test").tolist()
        for one in manifest.fragments()
    ]


def created_at(manifest: Manifest) -> list[list[int]]:
    return [
        np.unique(decode_versions(one.created_at or b"", one.physical_rows, where="t")).tolist()
        for one in manifest.fragments()
    ]


@pytest.mark.spec("overwrite-1")
def test_the_first_version_creates_the_dataset(store: ObjectStore) -> None:
    made = create(store, rows=7)
    found = open_latest(store)
    assert made.wire == found.wire
    assert found.version == 1
    assert found.schema == SCHEMA
    assert found.count_rows() == 7
    assert found.max_fragment_id == 0
    assert found.data_format == FormatVersion(2, 2)
    assert found.wire.writer_version.library == "glaive"


@pytest.mark.spec("append-1", "build-1", "build-3")
def test_an_append_adds_fragments_behind_the_others(store: ObjectStore) -> None:
    base = create(store)
    made = commit_transaction(store, append(base, 5), base=base)
    assert open_latest(store).wire == made.wire
    assert made.fragment_ids.tolist() == [0, 1]
    assert made.physical_rows.tolist() == [10, 5]
    assert open_version(store, 1).num_fragments == 1


@pytest.mark.spec("build-2", "build-4", "build-5")
def test_an_overwrite_replaces_rows_and_columns_but_not_counters(store: ObjectStore) -> None:
    base = create(store)
    schema = LanceSchema.from_arrow(pa.schema([("other", pa.int8())], {"a": "b"}))
    operation = Overwrite(fragments=(fragment(3),), schema=schema, config={"key": "value"})
    made = commit_transaction(store, Transaction(read_version=1, operation=operation), base=base)
    assert made.schema == schema
    assert made.fragment_ids.tolist() == [1]
    assert made.config == {"key": "value"}
    assert made.uses(Feature.TABLE_CONFIG)
    again = commit_transaction(store, overwrite(made), base=made)
    assert again.config == {"key": "value"}
    assert again.schema == SCHEMA
    assert again.fragment_ids.tolist() == [2]


@pytest.mark.spec("txn-1")
def test_the_transaction_is_in_the_manifest_and_in_its_file(store: ObjectStore) -> None:
    base = create(store)
    mine = replace(append(base), properties={"job": "5"})
    made = commit_transaction(store, mine, base=base)
    inline = read_transaction(store, open_latest(store))
    assert inline is not None
    file = store.get(f"_transactions/{made.wire.transaction_file}").to_pybytes()
    assert decode_transaction(file, where="t") == inline
    assert inline.uuid == mine.uuid
    assert inline.properties == {"job": "5"}
    assert made.wire.transaction_file == f"1-{mine.uuid}.txn"


def test_a_commit_alone_costs_four_requests(store: ObjectStore) -> None:
    base = create(store)
    counting = CountingStore(store)
    commit_transaction(counting, append(base), base=base)
    assert [(one.method, one.path.partition("/")[0]) for one in counting.log] == [
        ("get", "_versions"),
        ("put", "_transactions"),
        ("put", "_versions"),
        ("put", "_versions"),
    ]


def test_nothing_but_files_of_the_format_is_left(store: ObjectStore) -> None:
    base = create(store)
    commit_transaction(store, append(base), base=base)
    assert len(list(names(store, "_transactions"))) == 2
    assert len(list(names(store, "_versions"))) == 3


@pytest.mark.spec("name-3")
def test_naming_and_version_of_a_new_dataset_can_be_chosen(store: ObjectStore) -> None:
    options = CommitOptions(enable_v2_manifest_paths=False, storage_version=FormatVersion(2, 1))
    operation = Overwrite(fragments=(), schema=SCHEMA)
    base = commit_transaction(
        store, Transaction(read_version=0, operation=operation), options=options
    )
    assert base.data_format == FormatVersion(2, 1)
    assert not base.wire.HasField("max_fragment_id")
    rows = Append((fragment(version=FormatVersion(2, 1)),))
    made = commit_transaction(store, Transaction(read_version=1, operation=rows))
    assert not made.uses(Feature.MIXED_FILE_VERSIONS)
    assert sorted(names(store, "_versions"))[:2] == ["1.manifest", "2.manifest"]


def test_files_of_another_version_are_flagged(store: ObjectStore) -> None:
    base = create(store)
    rows = Append((fragment(version=FormatVersion(2, 1)),))
    made = commit_transaction(store, Transaction(read_version=1, operation=rows), base=base)
    assert made.data_format == FormatVersion(2, 2)
    assert made.wire.reader_feature_flags == Feature.MIXED_FILE_VERSIONS
    after = commit_transaction(store, append(made), base=made)
    assert after.wire.reader_feature_flags == Feature.MIXED_FILE_VERSIONS
    old = Append((fragment(version=FormatVersion(0, 1)),))
    with pytest.raises(UnsupportedFeatureError, match=r"0\.1 and 2\.x cannot be mixed"):
        commit_transaction(store, Transaction(read_version=3, operation=old), base=after)


# ------------------------------------------------------------- stable row ids


@pytest.mark.spec("rowid-4", "build-6")
def test_stable_row_ids_go_on_and_are_never_given_twice(store: ObjectStore) -> None:
    base = create(store, rows=3, options=CommitOptions(enable_stable_row_ids=True))
    more = commit_transaction(store, append(base, 2), base=base)
    assert row_ids(more) == [[0, 1, 2], [3, 4]]
    assert created_at(more) == [[1], [2]]
    replaced = commit_transaction(store, overwrite(more, 2), base=more)
    assert row_ids(replaced) == [[5, 6]]
    assert created_at(replaced) == [[3]]
    assert replaced.wire.next_row_id == 7
    assert replaced.uses(Feature.STABLE_ROW_IDS)


@pytest.mark.spec("txn-3", "build-2", "build-6")
def test_a_rebased_append_gets_ids_after_those_of_the_others(store: ObjectStore) -> None:
    base = create(store, rows=3, options=CommitOptions(enable_stable_row_ids=True))
    late = append(base, 2)
    commit_transaction(store, append(base, 4), base=base)
    made = commit_transaction(store, late, base=base)
    assert made.version == 3
    assert made.fragment_ids.tolist() == [0, 1, 2]
    assert row_ids(made) == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]
    assert created_at(made) == [[1], [2], [3]]


# ------------------------------------------------------------------ conflicts


def test_appends_go_together_whatever_version_they_started_from(store: ObjectStore) -> None:
    base = create(store)
    late = [append(base) for _ in range(4)]
    for one in late:
        newest = commit_transaction(store, one, base=base)
    assert newest.version == 5
    assert newest.fragment_ids.tolist() == [0, 1, 2, 3, 4]
    transaction = read_transaction(store, newest)
    assert transaction is not None
    assert transaction.read_version == 1


@pytest.mark.spec("commit-1")
def test_an_append_does_not_follow_an_overwrite(store: ObjectStore) -> None:
    base = create(store)
    late = append(base)
    commit_transaction(store, overwrite(base), base=base)
    with pytest.raises(CommitConflictError, match=r"Append transaction .* Overwrite at version 2"):
        commit_transaction(store, late, base=base)
    assert open_latest(store).version == 2


def test_an_overwrite_follows_an_append_but_not_an_overwrite(store: ObjectStore) -> None:
    base = create(store)
    late, later = overwrite(base, 1), overwrite(base, 2)
    commit_transaction(store, append(base), base=base)
    made = commit_transaction(store, late, base=base)
    assert made.physical_rows.tolist() == [1]
    with pytest.raises(CommitConflictError, match="another overwrite replaced the dataset"):
        commit_transaction(store, later, base=base)


@pytest.mark.parametrize("hint", [2, 1], ids=["as it is", "late"])
def test_versions_between_reading_and_a_newer_manifest_are_checked(
    store: ObjectStore, hint: int
) -> None:
    base = create(store)
    late = append(base)
    newest = commit_transaction(store, overwrite(base), base=base)
    store.put(HINT, [b'{"version":%d}' % hint])
    with pytest.raises(CommitConflictError):
        commit_transaction(store, late, base=newest)


def test_a_manifest_older_than_the_version_read_is_not_built_upon(store: ObjectStore) -> None:
    base = create(store)
    newer = commit_transaction(store, append(base), base=base)
    made = commit_transaction(store, append(newer), base=base)
    assert made.num_fragments == 3


def test_a_version_that_was_cleaned_up_is_a_conflict_without_the_files(store: ObjectStore) -> None:
    """A clean-up may have removed the files after the same commit was made."""
    base = create(store)
    late = append(base)
    newest = base
    for _ in range(3):
        newest = commit_transaction(store, append(newest), base=newest)
    store.delete([manifest_path(2), manifest_path(3)])
    for known in (base, newest, None):
        with pytest.raises(CommitConflictError, match="cleaned up"):
            commit_transaction(store, late, base=known)
    assert open_latest(store).version == 4
    (file,) = late.operation.fragments[0].files  # type: ignore[attr-defined]  # an append
    store.put(data_file_path(file.path), [b"rows"])
    made = commit_transaction(store, late, base=newest)
    assert (made.version, made.num_fragments) == (5, 5)
    commit_transaction(store, append(made), base=made)
    store.delete([manifest_path(5)])
    assert commit_transaction(store, late, base=base).version == 6  # once


@pytest.mark.spec("rel-2")
def test_a_stale_listing_does_not_give_a_commit_the_place_of_one_that_was_cleaned_up(
    store: ObjectStore,
) -> None:
    base = create(store)
    late, newest, stale = append(base), base, StaleListing(store, newest=1)
    for _ in range(3):
        newest = commit_transaction(store, append(newest), base=newest)
    store.delete([manifest_path(2), manifest_path(3)])
    with pytest.raises(CommitConflictError, match="cleaned up"):
        commit_transaction(stale, late, base=base)
    assert open_latest(store).version == 4


@pytest.mark.spec("rel-2")
def test_neither_does_one_whose_hint_is_of_a_version_that_was_cleaned_up_as_well(
    store: ObjectStore,
) -> None:
    """A writer's hint that came late: nothing but the version read says that it was overtaken."""
    base = create(store)
    late, newest, stale = append(base), base, StaleListing(store, newest=1)
    for _ in range(3):
        newest = commit_transaction(store, append(newest), base=newest)
    store.delete([manifest_path(version) for version in (1, 2, 3)])
    store.put(HINT, [b'{"version":3}'])
    with pytest.raises(CommitConflictError, match="cleaned up"):
        commit_transaction(stale, late, base=base)
    assert open_latest(store).version == 4


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-19")
def test_a_version_that_a_power_failure_emptied_is_made_again_though_the_hint_names_it(
    store: ObjectStore,
) -> None:
    base = create(store)
    commit_transaction(store, append(base), base=base)
    store.put(manifest_path(2), [b""])
    assert commit_transaction(store, append(base), base=base).version == 2


def test_versions_that_the_writer_has_read_are_not_read_again(store: ObjectStore) -> None:
    base = create(store)
    late = append(base)
    newer = commit_transaction(store, append(base), base=base)
    counting = CountingStore(store)
    assert commit_transaction(counting, late, base=newer).version == 3
    read = [request.path for request in counting.log if request.method == "get"]
    assert read == [HINT]


@pytest.mark.spec("latest-2", "rel-55")
@pytest.mark.parametrize("content", [b'{"version":90}', b'{"version":1}', b"garbage", None])
def test_a_wrong_hint_does_no_harm(store: ObjectStore, content: bytes | None) -> None:
    base = create(store)
    late = append(base)
    commit_transaction(store, append(base), base=base)
    if content is None:
        store.delete([HINT])
    else:
        store.put(HINT, [content])
    assert commit_transaction(store, late, base=base).version == 3


@pytest.mark.spec("txn-2")
def test_a_version_without_a_transaction_is_compared(store: ObjectStore) -> None:
    base = create(store)
    late = append(base)
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    wire.version = 2
    wire.transaction_file = "1-gone.txn"
    pieces = encode_manifest(wire, transaction=b"", index_section=None)
    wire.ClearField("transaction_section")
    body = wire.SerializeToString()
    store.put(manifest_path(2), [len(body).to_bytes(4, "little"), body, bytes(8), pieces[-1][8:]])
    (file,) = late.operation.fragments[0].files  # type: ignore[attr-defined]  # an append
    store.put(data_file_path(file.path), [b"rows"])
    assert commit_transaction(store, late, base=base).version == 3


def test_operations_that_are_not_carried_out_are_refused(store: ObjectStore) -> None:
    base = create(store)
    operation = WireOperation("update_mem_wal_state", table_pb2.Transaction.UpdateMemWalState())
    unknown = Transaction(read_version=1, operation=operation)
    with pytest.raises(UnsupportedFeatureError, match="'update_mem_wal_state'; it supports append"):
        commit_transaction(store, unknown, base=base)


def test_creating_twice_is_refused(store: ObjectStore) -> None:
    create(store)
    before = list(names(store, "_transactions"))
    with pytest.raises(DatasetExistsError, match=r"cannot create .*version 1 exists"):
        create(store)
    assert list(names(store, "_transactions")) == before


def test_appending_to_nothing_is_refused(store: ObjectStore) -> None:
    with pytest.raises(DatasetNotFoundError):
        commit_transaction(store, Transaction(read_version=3, operation=Append(())))
    with pytest.raises(DatasetNotFoundError):
        commit_transaction(store, Transaction(read_version=0, operation=Append(())))


def test_a_dataset_that_needs_unknown_features_is_not_written_to(store: ObjectStore) -> None:
    base = create(store)
    base.wire.writer_feature_flags = 1 << 20
    with pytest.raises(UnsupportedFeatureError, match=r"writing .* flag 20"):
        commit_transaction(store, append(base), base=base)
    assert open_latest(store).version == 1


@pytest.mark.spec("commit-3")
def test_retries_end(store: ObjectStore) -> None:
    base = create(store)
    racing = Racing(store, base)
    with pytest.raises(CommitContentionError, match="were first 3 times"):
        commit_transaction(racing, append(base), base=base, options=CommitOptions(max_retries=2))
    assert open_latest(store).version == 4


class Asking(CountingStore):
    """Asks for each manifest twice, for the first answer got lost: it is there already."""

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        super().put(path, data, mode=mode)
        if mode == "create":
            super().put(path, data, mode=mode)


@pytest.mark.parametrize(
    "options", [CommitOptions(timeout=0), CommitOptions(max_retries=0)], ids=["late", "once"]
)
def test_a_commit_that_was_made_does_not_fail_for_lack_of_time(
    store: ObjectStore, options: CommitOptions
) -> None:
    base = create(store)
    made = commit_transaction(Asking(store), append(base), base=base, options=options)
    assert (made.version, open_latest(store).version) == (2, 2)


def test_a_commit_whose_version_was_cleaned_up_before_it_was_read_is_recognised(
    store: ObjectStore,
) -> None:
    """The request was repeated, so its second answer says that the version exists."""
    base = create(store)

    class Cleaned(CountingStore):
        number = 2

        def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
            super().put(path, data, mode=mode)
            if mode == "create" and path == manifest_path(self.number):
                made = open_latest(self.inner)
                commit_transaction(self.inner, append(made), base=made)
                self.inner.delete([path])
                raise ObjectExistsError(path)

    assert commit_transaction(Cleaned(store), append(base), base=base).version == 3
    assert len(open_latest(store).fragment_ids) == 3
    base = open_latest(store)
    change = Transaction(read_version=3, operation=UpdateConfig.of(config={"a": "b"}))

    class Changed(Cleaned):
        number = 4

    with pytest.raises(CommitError, match="may or may not have been committed") as caught:
        commit_transaction(Changed(store), change, base=base)
    assert not isinstance(caught.value, CommitConflictError)


class Racing(CountingStore):
    """Another writer is always faster: it commits just before each manifest of ours."""

    def __init__(self, store: ObjectStore, base: Manifest) -> None:
        super().__init__(store)
        self.newest = base

    def put(self, path: str, data, *, mode="overwrite") -> None:  # type: ignore[no-untyped-def, override]  # as in the base class
        if mode == "create":
            self.newest = commit_transaction(self.inner, append(self.newest), base=self.newest)
        super().put(path, data, mode=mode)


# ----------------------------------------------------------- repeated commits


def test_a_repeated_commit_is_recognised_by_its_uuid(store: ObjectStore) -> None:
    base = create(store)
    mine = append(base)
    made = commit_transaction(store, mine, base=base)
    newest = commit_transaction(store, append(made), base=made)
    for known in (base, made, newest, None):
        assert commit_transaction(store, mine, base=known).wire == made.wire
    assert open_latest(store).version == 3


def test_a_repeated_append_is_refused_where_a_clean_up_may_hide_the_first(
    store: ObjectStore,
) -> None:
    base = create(store)
    job = replace(append(base), properties={"glaive.job": "42"})
    (file,) = job.operation.fragments[0].files  # type: ignore[attr-defined]  # an append
    store.put(data_file_path(file.path), [b"rows"])
    made = commit_transaction(store, job, base=base, once="glaive.job")
    removed = table_pb2.Transaction.Delete(deleted_fragment_ids=[int(made.fragment_ids[-1])])
    delete = Transaction(read_version=2, operation=WireOperation("delete", removed))
    commit_transaction(store, delete, base=made)
    store.delete([manifest_path(2)])
    again = replace(append(base), operation=job.operation, properties=job.properties)
    with pytest.raises(CommitConflictError, match="unknown whether they had the new rows"):
        commit_transaction(store, again, base=base, once="glaive.job")
    other = replace(append(base), properties={})
    (file,) = other.operation.fragments[0].files  # type: ignore[attr-defined]  # an append
    store.put(data_file_path(file.path), [b"rows"])
    assert commit_transaction(store, other, base=base).version == 4


def test_a_repeated_commit_is_recognised_by_its_job(store: ObjectStore) -> None:
    base = create(store)
    first = replace(append(base), properties={"glaive.job": "42"})
    again = replace(append(base), properties={"glaive.job": "42"})
    other = replace(append(base), properties={"glaive.job": "43"})
    made = commit_transaction(store, first, base=base, once="glaive.job")
    assert commit_transaction(store, again, base=base, once="glaive.job").version == made.version
    assert commit_transaction(store, other, base=base, once="glaive.job").version == 3


def test_a_repeated_creation_is_recognised(store: ObjectStore) -> None:
    operation = Overwrite(fragments=(fragment(),), schema=SCHEMA)
    mine = Transaction(read_version=0, operation=operation)
    first = commit_transaction(store, mine)
    assert commit_transaction(store, mine).wire == first.wire


def test_a_transaction_is_found_by_a_property(store: ObjectStore) -> None:
    base = create(store)
    made = commit_transaction(store, replace(append(base), properties={"j": "1"}), base=base)
    commit_transaction(store, append(made), base=made)
    found = find_transaction(store, 1, "j", "1")
    assert found is not None
    assert found.version == 2
    assert find_transaction(store, 2, "j", "1") is None
    assert find_transaction(store, 0, "j", "2") is None
