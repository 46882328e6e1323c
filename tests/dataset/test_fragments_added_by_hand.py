"""Fragments that are committed by hand: with the id of a removed one, and more than once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive import FragmentMetadata, LanceFragment, LanceOperation, Transaction
from glaive.errors import CommitConflictError, OptionError

Add = Callable[[glaive.LanceDataset, FragmentMetadata], LanceOperation.BaseOperation]


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def _merge(dataset: glaive.LanceDataset, new: FragmentMetadata) -> LanceOperation.BaseOperation:
    known = [fragment.metadata for fragment in dataset.get_fragments()]
    return LanceOperation.Merge([*known, new], dataset.lance_schema)


def _rewrite(dataset: glaive.LanceDataset, new: FragmentMetadata) -> LanceOperation.BaseOperation:
    last = dataset.get_fragments()[-1].metadata
    return LanceOperation.Rewrite([LanceOperation.RewriteGroup([last], [new])], [])


ADDED: dict[str, Add] = {
    "append": lambda _, new: LanceOperation.Append([new]),
    "update": lambda _, new: LanceOperation.Update(new_fragments=[new]),
    "merge": _merge,
    "rewrite": _rewrite,
}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-12", "build-7", "build-10")
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("way", ADDED)
def test_rows_are_found_in_a_fragment_that_has_the_id_of_a_removed_one(
    tmp_path: Path, way: str, kind: str
) -> None:
    dataset = glaive.write_dataset(rows(0, 30), tmp_path, max_rows_per_file=10)
    dataset.create_scalar_index("id", kind)
    dataset.delete("id BETWEEN 10 AND 19")
    new = LanceFragment.create(tmp_path, rows(100, 110), fragment_id=1)

    made = ADDED[way](dataset, new)
    dataset = glaive.LanceDataset.commit(tmp_path, made, read_version=dataset.version)

    assert 1 in [fragment.fragment_id for fragment in dataset.get_fragments()]
    for number, found in ((103, [103]), (13, []), (5, [5])):
        assert dataset.to_table(filter=f"id = {number}")["id"].to_pylist() == found


def _overwrite(dataset: glaive.LanceDataset, new: FragmentMetadata) -> LanceOperation.BaseOperation:
    return LanceOperation.Overwrite(dataset.schema, [new])


@pytest.mark.parametrize("add", [*ADDED.values(), _overwrite], ids=[*ADDED, "overwrite"])
def test_a_fragment_is_given_no_other_id_than_its_deletions_are_found_by(
    tmp_path: Path, add: Add
) -> None:
    dataset = glaive.write_dataset(rows(0, 20), tmp_path, max_rows_per_file=10)
    dataset.delete("id = 3")
    first = dataset.get_fragments()[0].metadata
    made = LanceOperation.Delete([], [0], "true")
    dataset = glaive.LanceDataset.commit(tmp_path, made, read_version=dataset.version)

    with pytest.raises(OptionError, match="adds a fragment with the id 0 and deleted rows"):
        glaive.LanceDataset.commit(tmp_path, add(dataset, first), read_version=dataset.version)
    assert glaive.dataset(tmp_path).to_table()["id"].to_pylist() == list(range(10, 20))


@pytest.mark.spec("delete-1")
@pytest.mark.parametrize("way", ["delete", "update", "merge", "rewrite"])
def test_deleted_rows_do_not_come_back_by_a_fragment_of_an_older_version(
    tmp_path: Path, way: str
) -> None:
    dataset = glaive.write_dataset(rows(0, 10), tmp_path)
    fragment = dataset.get_fragments()[0]
    old = fragment.metadata if way == "update" else fragment.delete("id = 7")
    assert old is not None
    dataset.delete("id in (3, 4)")

    made: LanceOperation.BaseOperation = LanceOperation.Delete([old], [], "id = 7")
    if way == "update":
        made = LanceOperation.Update(updated_fragments=[old])
    if way == "merge":
        made = LanceOperation.Merge([old], dataset.lance_schema)
    if way == "rewrite":
        new = LanceFragment.create(tmp_path, rows(0, 10))
        made = LanceOperation.Rewrite([LanceOperation.RewriteGroup([old], [new])], [])
    with pytest.raises(OptionError, match=r"with [01] deleted rows, but 2 are deleted"):
        glaive.LanceDataset.commit(tmp_path, made, read_version=dataset.version)

    assert glaive.dataset(tmp_path).to_table()["id"].to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_merge_adds_a_fragment_beside_deleted_rows(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(rows(0, 10), tmp_path)
    dataset.delete("id in (3, 4)")
    made = _merge(dataset, LanceFragment.create(tmp_path, rows(10, 12)))
    dataset = glaive.LanceDataset.commit(tmp_path, made, read_version=dataset.version)
    assert dataset.to_table()["id"].to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]


def transactions(path: Path) -> list[Transaction]:
    """Three appends of a row each, for the first version."""
    parts = [LanceFragment.create(path, rows(at, at + 1)) for at in range(10, 13)]
    return [Transaction(1, LanceOperation.Append([part])) for part in parts]


@pytest.mark.spec("rel-7", "rel-9")
def test_rows_of_a_batch_are_there_once_however_it_is_made_again(tmp_path: Path) -> None:
    glaive.write_dataset(rows(0, 10), tmp_path)
    first, second, third = transactions(tmp_path)
    again = glaive.LanceDataset.commit_batch(tmp_path, [first, second])["dataset"].version

    assert glaive.LanceDataset.commit_batch(tmp_path, [first, second])["dataset"].version == again
    for batch in ([first, second, third], [second, first], [second]):
        with pytest.raises(CommitConflictError, match="which would be there twice") as caught:
            glaive.LanceDataset.commit_batch(tmp_path, batch)
        assert not caught.value.retryable
    with pytest.raises(CommitConflictError, match="which would be there twice"):
        glaive.LanceDataset.commit(tmp_path, first)
    glaive.LanceDataset.commit(tmp_path, third)

    assert glaive.dataset(tmp_path).to_table()["id"].to_pylist() == list(range(13))


Build = Callable[[glaive.LanceDataset], object]


def _segment(dataset: glaive.LanceDataset) -> glaive.LanceDataset:
    segment = dataset.create_index_uncommitted("id", "BTREE", name="id_idx")
    newest = glaive.dataset(dataset.uri)
    return newest.commit_existing_index_segments("id_idx", "id", [segment])


BUILT: dict[str, tuple[bool, Build]] = {
    "index": (False, lambda dataset: dataset.create_scalar_index("id", "BTREE")),
    "optimized": (True, lambda dataset: dataset.optimize.optimize_indices()),
    "segment": (False, _segment),
}


@pytest.mark.spec("rel-12", "conflict-5")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("way", BUILT)
def test_an_index_that_is_built_meanwhile_does_not_cover_it_either(
    tmp_path: Path, way: str, stable: bool
) -> None:
    has_index, build = BUILT[way]
    dataset = glaive.write_dataset(rows(0, 10), tmp_path, enable_stable_row_ids=stable)
    if has_index:
        dataset.create_scalar_index("id", "BTREE")
    dataset.insert(rows(10, 20))
    read = glaive.dataset(tmp_path)
    dataset.delete("id >= 10")
    new = LanceFragment.create(tmp_path, rows(100, 110), fragment_id=1)
    append = LanceOperation.Append([new])
    glaive.LanceDataset.commit(tmp_path, append, read_version=dataset.version)

    build(read)

    dataset = glaive.dataset(tmp_path)
    for number, found in ((103, [103]), (13, []), (5, [5])):
        assert dataset.to_table(filter=f"id = {number}")["id"].to_pylist() == found


@pytest.mark.spec("rel-7", "rel-9")
def test_a_batch_with_the_same_transaction_twice_adds_no_row_twice(tmp_path: Path) -> None:
    glaive.write_dataset(rows(0, 10), tmp_path)
    first, second, _ = transactions(tmp_path)
    (fragment,) = first.operation.fragments  # type: ignore[attr-defined]  # an append

    with pytest.raises(OptionError, match="twice"):
        glaive.LanceDataset.commit_batch(tmp_path, [first, second, first])
    append = Transaction(1, LanceOperation.Append([fragment, fragment]))
    with pytest.raises(OptionError, match="twice"):
        glaive.LanceDataset.commit(tmp_path, append)

    assert glaive.dataset(tmp_path).version == 1
