"""Operations made by hand that list a fragment twice, or not at all; pylance is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS = pa.table({"a": [1, 2]})
LIBRARIES = [pytest.param(lance, id="pylance"), pytest.param(glaive, id="glaive")]
Fragments = Callable[[list[Any], Callable[[], Any]], Sequence[Any]]


def committed(
    lib: Any, place: Path, operation: Callable[[Any, Callable[[], Any]], Any], **options: Any
) -> Any:
    """The version that an operation makes of a dataset of two fragments."""
    for _ in range(2):
        dataset = lib.write_dataset(ROWS, place, mode="append", **options)
    made = operation(dataset, lambda: lib.fragment.LanceFragment.create(str(place), ROWS))
    return lib.LanceDataset.commit(str(place), made, read_version=2)


def merged(lib: Any, place: Path, listed: Fragments, **options: Any) -> Any:
    def operation(dataset: Any, new: Callable[[], Any]) -> Any:
        known = [fragment.metadata for fragment in dataset.get_fragments()]
        return lib.LanceOperation.Merge(listed(known, new), dataset.lance_schema)

    return committed(lib, place, operation, **options)


REFUSED: dict[str, Fragments] = {
    "duplicate fragment id 1": lambda known, _: [*known, known[1]],
    r"missing original fragments: \[1\]": lambda known, _: [known[0], known[0]],
    "existing fragment 1 after a new fragment": lambda known, new: [new(), *known],
}


@pytest.mark.spec("merge-2")
@pytest.mark.parametrize("lib", LIBRARIES)
@pytest.mark.parametrize("words", REFUSED)
def test_a_merge_lists_each_fragment_of_the_version_once(
    tmp_path: Path, lib: Any, words: str
) -> None:
    with pytest.raises(OSError, match=words):
        merged(lib, tmp_path, REFUSED[words])
    assert glaive.dataset(tmp_path).version == 2


@pytest.mark.spec("merge-2")
@pytest.mark.parametrize("lib", LIBRARIES)
@pytest.mark.parametrize("count", [1, 2])
def test_new_fragments_of_a_merge_get_ids_of_their_own(
    tmp_path: Path, lib: Any, count: int
) -> None:
    made = merged(lib, tmp_path, lambda known, new: [*known, *(new() for _ in range(count))])
    assert [fragment.fragment_id for fragment in made.get_fragments()] == list(range(2 + count))
    assert made.count_rows() == 2 * (2 + count)


def test_the_first_fragment_is_not_taken_for_a_new_one_where_it_is_listed_again(
    tmp_path: Path,
) -> None:
    """Pylance adds its rows once more."""
    with pytest.raises(OptionError, match="duplicate fragment id 0"):
        merged(glaive, tmp_path, lambda known, _: [*known, known[0]])


def test_a_new_fragment_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    """An index of the first fragment would be asked for the rows of the new one."""
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.create_scalar_index("a", "BTREE")
    new = glaive.fragment.LanceFragment.create(str(tmp_path), pa.table({"a": [3]}))
    known = dataset.get_fragments()[0].metadata
    operation = glaive.LanceOperation.Merge([new, known], dataset.lance_schema)
    with pytest.raises(OptionError, match=r"fragment id 0.*New fragments.*after all others"):
        glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def test_the_first_fragment_is_not_taken_for_a_new_one_where_it_is_changed_and_listed_again(
    tmp_path: Path,
) -> None:
    def listed(known: list[Any], _: Callable[[], Any]) -> Sequence[Any]:
        changed = glaive.dataset(tmp_path).get_fragments()[0].delete("a = 1")
        return [*known, changed]

    with pytest.raises(OptionError, match="duplicate fragment id 0"):
        merged(glaive, tmp_path, listed)


def test_new_fragments_of_a_merge_get_ids_after_reserved_ones(tmp_path: Path) -> None:
    def listed(known: list[Any], new: Callable[[], Any]) -> Sequence[Any]:
        reserved = new()
        reserved.id = 5
        return [*known, reserved, new()]

    made = merged(glaive, tmp_path, listed)
    assert [fragment.fragment_id for fragment in made.get_fragments()] == [0, 1, 5, 6]


def test_rows_of_new_fragments_of_a_merge_get_stable_ids(tmp_path: Path) -> None:
    made = merged(glaive, tmp_path, lambda known, new: [*known, new()], enable_stable_row_ids=True)
    assert made.to_table(with_row_id=True)["_rowid"].to_pylist() == list(range(6))


def test_new_fragments_of_a_merge_may_follow_where_the_first_was_removed(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.insert(ROWS)
    dataset.delete("_rowaddr < 2")
    known = [fragment.metadata for fragment in dataset.get_fragments()]
    new = glaive.fragment.LanceFragment.create(str(tmp_path), ROWS)
    operation = glaive.LanceOperation.Merge([*known, new, new], dataset.lance_schema)
    made = glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    assert [fragment.fragment_id for fragment in made.get_fragments()] == [1, 2, 3]


CHANGES: dict[str, Callable[[list[Any]], Any]] = {
    "delete": lambda twice: glaive.LanceOperation.Delete(twice, [], "a = 1"),
    "update": lambda twice: glaive.LanceOperation.Update(updated_fragments=twice),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fragment_that_is_changed_twice_is_refused(tmp_path: Path, change: str) -> None:
    """One of the two changes would be lost."""

    def operation(dataset: Any, _: Callable[[], Any]) -> Any:
        fragment = dataset.get_fragments()[0]
        return CHANGES[change]([fragment.delete("a = 1"), fragment.delete("a = 2")])

    with pytest.raises(OptionError, match="changes fragment 0 twice"):
        committed(glaive, tmp_path, operation)
    assert glaive.dataset(tmp_path).count_rows() == 4
