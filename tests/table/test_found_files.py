"""Files that a clean-up found, on their way between processes."""

from __future__ import annotations

import pickle

import pytest

from glaive.format.paths import new_data_file_name
from glaive.table.cleanup.parts import CleanupFile, FoundFiles, PlannedFiles, in_batches

FILES = [
    CleanupFile("_versions/7.manifest", "manifest", 0, unverified=True, unfinished=True),
    CleanupFile("data/a\nb.lance", "data", 1 << 40, unverified=False),
    CleanupFile("data/ü.lance", "data", 3, unverified=True),
    CleanupFile("_indices/x/page.lance", "index", 12, unverified=False),
]


def travelled(found: FoundFiles) -> FoundFiles:
    """As it arrives in another process."""
    arrived: FoundFiles = pickle.loads(pickle.dumps(found))
    return arrived


def test_files_arrive_as_they_were() -> None:
    for found in (FoundFiles.of(FILES, drawn=True), FoundFiles.of([], drawn=False)):
        again = travelled(travelled(found))
        assert list(again.files) == list(found.files)
        assert (again.drawn, again.counts, again.size) == (found.drawn, found.counts, found.size)


def test_what_they_count_needs_no_unpacking() -> None:
    found = travelled(FoundFiles.of(FILES, drawn=True))
    damaged = FoundFiles(b"", found.drawn, found.counts, found.size)
    plan = PlannedFiles([damaged, FoundFiles.of(FILES[:2], drawn=False)])
    assert (len(plan), plan.size) == (6, 2 * (1 << 40) + 15)
    kinds = ("manifest", "data", "deletion", "transaction", "index")
    assert [plan.count_of(kind) for kind in kinds] == [2, 3, 0, 0, 1]


def test_random_names_take_few_bytes_where_they_wait() -> None:
    names = [f"data/{new_data_file_name()}" for _ in range(4000)]
    files = [CleanupFile(name, "data", 1 << 20, unverified=False) for name in names]
    assert len(pickle.dumps(FoundFiles.of(files, drawn=True))) < 30 * len(files)


def test_a_plan_is_a_sequence_of_files() -> None:
    plan = PlannedFiles([travelled(FoundFiles.of(FILES[:3], drawn=True))] * 2)
    files = [*FILES[:3], *FILES[:3]]
    assert list(plan) == files
    assert [plan[at] for at in range(-6, 6)] == files + files
    for some in (slice(2), slice(1, 5, 2), slice(None, None, -1), slice(4, None)):
        assert plan[some] == tuple(files[some])
    with pytest.raises(IndexError):
        plan[6]


def test_files_that_are_used_again_are_taken_out() -> None:
    plan = PlannedFiles([travelled(FoundFiles.of(FILES, drawn=True))])
    left = plan.without({FILES[1].path, "data/other.lance"})
    assert list(left) == [FILES[0], *FILES[2:]]
    assert (left.count_of("data"), left.size) == (1, 15)


def test_batches_have_so_many_files_and_the_last_one_the_others() -> None:
    assert [len(batch) for batch in in_batches(iter(FILES), 3)] == [3, 1]
    assert list(in_batches([], 3)) == []
