"""Files that a clean-up found, on their way between processes."""

from __future__ import annotations

import pickle

import pytest

from glaive.table.references import CleanupFile, FoundFiles

FILES = [
    CleanupFile("_versions/7.manifest", "manifest", 0, unverified=True, unfinished=True),
    CleanupFile("data/a\nb.lance", "data", 1 << 40, unverified=False),
    CleanupFile("data/ü.lance", "data", 3, unverified=True, drawn=True),
    CleanupFile("_indices/x/page.lance", "index", 12, unverified=False),
]


def test_files_arrive_as_they_were() -> None:
    for files in (FILES, []):
        arrived: FoundFiles = pickle.loads(pickle.dumps(FoundFiles.of(files)))
        assert list(arrived) == files


def test_found_files_are_a_sequence() -> None:
    found = FoundFiles.joined([FoundFiles.of(FILES[:3])] * 2)
    files = [*FILES[:3], *FILES[:3]]
    assert (list(found), len(found), found.size) == (files, 6, 2 * (1 << 40) + 6)
    assert [found[at] for at in range(-6, 6)] == files + files
    for some in (slice(2), slice(4, None), slice(1, 5)):
        assert list(found[some]) == files[some]
    with pytest.raises(IndexError):
        found[6]
    kinds = ("manifest", "data", "deletion", "transaction", "index")
    assert [found.count_of(kind) for kind in kinds] == [2, 4, 0, 0, 0]


def test_files_that_are_used_again_are_taken_out() -> None:
    left = FoundFiles.of(FILES).without({FILES[1].path, "data/other.lance"})
    assert list(left) == [FILES[0], *FILES[2:]]
    assert (left.count_of("data"), left.size) == (1, 15)
