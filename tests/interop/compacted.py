"""Two copies of an indexed dataset, one compacted by pylance and one by glaive."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")
LanceFileReader: Any = pytest.importorskip("lance.file").LanceFileReader

__all__ = ["Copies", "compacted", "entries", "file_of", "segment_of", "vectors_of"]

WORDS = [*(f"word{at}" for at in range(40)), "running", "cats", "foxes"]


class Copies(NamedTuple):
    """The dataset before, and after both compactions."""

    before: Path
    theirs: Path
    ours: Path

    def segments(self, name: str) -> list[Path]:
        """Folder of the segment of this name in each."""
        return [segment_of(one, name) for one in self]


def vectors_of(count: int, dimension: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Vectors around a few centres."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(6, dimension)) * 3
    at = centres[random.integers(0, 6, count)]
    return (at + random.normal(size=(count, dimension))).astype(np.float32)


def rows(start: int, count: int, kind: pa.DataType | None = None, dimension: int = 16) -> pa.Table:
    """Rows with vectors and texts, some of them null."""
    random = np.random.default_rng(start + 1)
    kind = kind or pa.float32()
    vectors = vectors_of(count, dimension, start)
    if kind == pa.uint8():
        flat = pa.array(random.integers(0, 256, count * dimension).astype(np.uint8))
    else:
        flat = pa.array(vectors.ravel()).cast(kind)
    null = pa.array(random.random(count) < 0.05)
    often = 1 / np.arange(1, len(WORDS) + 1)
    texts = [
        None if at % 19 == 3 else " ".join(random.choice(WORDS, at % 13, p=often / often.sum()))
        for at in range(count)
    ]
    columns = {
        "id": pa.array(np.arange(start, start + count)),
        "v": pa.FixedSizeListArray.from_arrays(flat, dimension, mask=null),
        "t": pa.array(texts, pa.string()),
    }
    return pa.table(columns)


def compacted(
    path: Path,
    index: Callable[[Any], Any],
    *,
    sizes: tuple[int, ...] = (200, 200, 200),
    deleted: str | Callable[[Path], str] = "id % 7 = 0 AND id < 500",
    version: str = "2.2",
    stable: bool = False,
    passes: int = 1,
    **types: Any,
) -> Copies:
    """Make, index, delete, append, and compact with both; glaive goes on until nothing is left."""
    copies = Copies(path / "before", path / "theirs", path / "ours")
    start = 0
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    for size in sizes:
        lance.write_dataset(rows(start, size, **types), copies.before, mode="append", **options)
        start += size
    index(lance.dataset(copies.before))
    condition = deleted if isinstance(deleted, str) else deleted(copies.before)
    if condition:
        lance.dataset(copies.before).delete(condition)
    lance.dataset(copies.before).insert(rows(5000, 50, **types))
    for one in copies[1:]:
        shutil.copytree(copies.before, one)
    for _ in range(passes):
        lance.dataset(copies.theirs).optimize.compact_files()
    glaive.dataset(str(copies.ours)).optimize.compact_files()
    tables = [lance.dataset(one).to_table(with_row_address=True) for one in copies[1:]]
    assert tables[0] == tables[1]
    theirs, ours = ([_told(one) for one in entries(path)] for path in copies[1:])
    assert theirs == ours
    return copies


def entries(path: Path) -> list[Any]:
    """Entries of the index section."""
    return sorted(glaive.dataset(str(path)).manifest.indices, key=lambda one: one.name)


def _told(entry: Any) -> tuple[Any, ...]:
    """What an entry says, but for the name of the folder, and times and sizes."""
    covered = sorted(BitMap.deserialize(entry.fragment_bitmap))
    names = sorted(one.path for one in entry.files)
    said = (entry.name, list(entry.fields), entry.index_version, entry.dataset_version)
    return *said, entry.index_details.SerializeToString(), covered, names


def segment_of(path: Path, name: str) -> Path:
    """Folder of the only segment of this name."""
    found = [one for one in entries(path) if one.name == name]
    assert len(found) == 1
    return path / "_indices" / str(UUID(bytes=found[0].uuid.uuid))


def file_of(path: Path) -> pa.Table:
    """Rows of an index file, with the metadata of its schema."""
    return LanceFileReader(str(path)).read_all().to_table()
