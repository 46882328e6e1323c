"""Rows of many small fragments are taken together, and are what they are one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.scan import small
from glaive.scan.options import Meter
from glaive.scan.projection import project
from glaive.scan.small import take_small
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import BoundProjection

FILES = 30
META = pa.struct([("x", pa.int64()), ("y", pa.string())])


def make(first: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(first)
    numbers = range(first, first + rows)
    words = [f"word {i % 7} of {first % 5}" for i in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "some": pa.array([None if rng.random() < 0.1 else i for i in numbers], pa.int32()),
            "flag": pa.array([i % 3 == 0 for i in numbers], pa.bool_()),
            "text": pa.array([None if i % 11 == 0 else f"text {i}" for i in numbers], pa.string()),
            "few": pa.array(words, pa.string()),
            "none": pa.array([None if first % 3 else i for i in numbers], pa.float64()),
            "word": pa.array([f"w{i % 2}" for i in numbers]).dictionary_encode(),
            "vector": pa.array([[i, i + 1.5] for i in numbers], pa.list_(pa.float32(), 2)),
            "meta": pa.array([{"x": i, "y": None if i % 3 else str(i)} for i in numbers], META),
            "tags": pa.array([list(range(i % 4)) for i in numbers], pa.list_(pa.int16())),
        }
    )


def store(path: Path, tables: list[pa.Table], **options: Any) -> LanceDataset:
    for table in tables:
        made = glaive.write_dataset(table, path, mode="append", **options)
    return made


def alone(dataset: LanceDataset, rows: list[int]) -> pa.Table:
    """The rows, each taken by itself."""
    return pa.concat_tables([dataset.take([row]) for row in rows]).unify_dictionaries()


def together(dataset: LanceDataset, rows: int, columns: list[str] | None = None) -> int:
    """How many of the first rows of all fragments are taken together."""
    source = BoundProjection(
        Snapshot(dataset.store, dataset.manifest, Session()),
        project(dataset.manifest.schema, columns),
    )
    fragments = np.repeat(np.arange(dataset.manifest.num_fragments), rows)
    taken = take_small(
        source, np.unique(fragments), fragments, np.arange(len(fragments)) % rows, Meter()
    )
    return sum(len(numbers) for numbers, _ in taken)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_rows_come_in_the_order_asked_for(tmp_path: Path, version: str) -> None:
    sizes = [1 + 61 * at % 900 for at in range(FILES)]
    tables = [make(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    assert together(dataset, 1) == FILES
    rows = np.random.default_rng(1).integers(0, sum(sizes), 200).tolist()
    found = dataset.take(rows)
    assert found["id"].to_pylist() == rows
    whole = pa.concat_tables(tables).unify_dictionaries()
    assert found.to_pylist() == whole.take(rows).to_pylist()
    # Files that were met before are opened; the rows are the same.
    assert dataset.take(rows).to_pylist() == found.to_pylist()
    assert dataset.take(rows, columns=["text", "id"]).to_pylist() == (
        whole.take(rows).select(["text", "id"]).to_pylist()
    )


def test_dictionaries_of_files_with_several_chunks_are_kept_apart(tmp_path: Path) -> None:
    words = [[f"word {i * 7919 % 50} of {file}" for i in range(9000)] for file in range(8)]
    dataset = store(tmp_path / "t", [pa.table({"few": part}) for part in words])
    assert together(dataset, 1) == 8
    rng = np.random.default_rng(3)
    rows = [9000 * file + row for file, row in enumerate(rng.integers(0, 9000, 8).tolist())]
    expected = [words[row // 9000][row % 9000] for row in rows]
    assert dataset.take(rows)["few"].to_pylist() == expected


def test_small_files_stand_beside_large_and_changed_ones(tmp_path: Path) -> None:
    tables = [make(100 * at, 100) for at in range(12)]
    tables[5] = make(500, 100).slice(0, 60)
    path = tmp_path / "t"
    dataset = store(path, tables)
    wide = pa.concat_tables([make(10_000, 6000)])
    dataset = glaive.write_dataset(wide, path, mode="append")
    dataset.delete("id = 130 or id = 703")
    dataset = glaive.dataset(path)
    assert together(dataset, 50) == 50 * 12  # one is large
    live = pa.concat_tables([*tables, wide]).unify_dictionaries()
    keep = ~np.isin(live["id"].to_numpy(), [130, 703])
    live = live.filter(pa.array(keep))
    rows = np.random.default_rng(2).permutation(live.num_rows)[:400].tolist()
    assert dataset.take(rows).to_pylist() == live.take(rows).to_pylist()


def test_rows_are_taken_by_stable_id(tmp_path: Path) -> None:
    tables = [make(50 * at, 50) for at in range(FILES)]
    dataset = store(tmp_path / "t", tables, enable_stable_row_ids=True)
    ids = np.random.default_rng(3).integers(0, 50 * FILES, 80).tolist()
    found = dataset._take_rows(ids, columns=["id", "meta"])  # noqa: SLF001  # pylance's name
    assert found["id"].to_pylist() == ids
    again = glaive.dataset(tmp_path / "t")
    assert again.take(ids, columns=["_rowid", "id"])["_rowid"].to_pylist() == ids


def test_damage_is_told_of_the_file_it_is_in(tmp_path: Path) -> None:
    dataset = store(tmp_path / "t", [make(100 * at, 100) for at in range(8)])
    file = next(iter(dataset.get_fragments()[3].data_files())).path
    place = tmp_path / "t" / "data" / file
    place.write_bytes(place.read_bytes()[:-60] + bytes(60))
    with pytest.raises(GlaiveError, match=file):
        glaive.dataset(tmp_path / "t").take([5, 105, 205, 305, 405, 505])
    place.unlink()
    with pytest.raises(GlaiveError, match=file):
        glaive.dataset(tmp_path / "t").take([5, 105, 205, 305, 405, 505])


def outcome(dataset: LanceDataset, rows: list[int]) -> object:
    try:
        return dataset.take(rows).to_pylist()
    except GlaiveError as error:
        return type(error), str(error)


def test_damaged_bytes_are_told_as_by_the_reader_of_single_files(tmp_path: Path) -> None:
    columns = ["id", "some", "few", "text"]
    tables = [make(100 * at, 100).select(columns) for at in range(6)]
    # Damaged text may not be text any more, which is not looked at.
    for at, name in ((2, "few"), (3, "text")):
        tables = [one.set_column(at, name, one[name].cast(pa.binary())) for one in tables]
    dataset = store(tmp_path / "t", tables)
    file = dataset.get_fragments()[2].data_files()[0].path
    victim = tmp_path / "t" / "data" / file
    sound = victim.read_bytes()
    rng = np.random.default_rng(0)
    rows = [17, 117, 217, 299, 317, 417]
    told = 0
    for at in rng.integers(0, len(sound), 200).tolist():
        broken = bytearray(sound)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        victim.write_bytes(broken)
        fresh = glaive.dataset(dataset.uri)
        single = outcome(glaive.dataset(dataset.uri), rows[2:4])
        found = outcome(fresh, rows)
        if isinstance(single, tuple):
            told += 1
            assert found == single
        else:
            assert isinstance(found, list)
            assert found[2:4] == single
    assert told > 10


def test_takes_from_a_quarter_of_the_files_keep_the_rows_of_all(tmp_path: Path) -> None:
    tables = [make(10 * at, 10).select(["id", "text", "vector"]) for at in range(FILES)]
    dataset = store(tmp_path / "t", tables, data_storage_version="2.0")
    for at in range(0, 12, 4):
        dataset.take([10 * (at + one) for one in range(4)])
    for path in (tmp_path / "t" / "data").iterdir():
        path.unlink()
    rows = list(range(205, 300, 10))
    assert dataset.take(rows)["id"].to_pylist() == rows


@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize(("kind", "is_kept"), [("dictionary", True), ("string", False)])
def test_equal_dictionaries_of_larger_files_are_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kind: str, is_kept: bool
) -> None:
    words = pa.array([f"{i} word" * 5 for i in range(300)])
    indices = pa.array(range(10), pa.int32())
    column: Any = pa.DictionaryArray.from_arrays(indices, words)
    if kind == "string":  # 300 words in each file as well
        column = pa.array(["".join(words.to_pylist())] * 10, pa.string())
    tables = [pa.table({"id": range(10 * at, 10 * at + 10), "w": column}) for at in range(FILES)]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    size = sum(path.stat().st_size for path in (tmp_path / "t" / "data").iterdir())
    monkeypatch.setattr(small, "_KEPT_BYTES", size // 2)
    monkeypatch.setattr(small, "_DICTIONARY_BYTES", 2 * size)
    for at in range(0, 24, 4):
        dataset.take([10 * (at + one) for one in range(4)])
    for path in (tmp_path / "t" / "data").iterdir():
        path.unlink()
    rows = list(range(205, 300, 10))
    if is_kept:
        taken = dataset.take(rows)
        assert taken["id"].to_pylist() == rows
        assert set(taken["w"].to_pylist()) == {words[5].as_py()}
    else:
        with pytest.raises(GlaiveError):
            dataset.take(rows)


def test_files_that_are_kept_later_are_read_together_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [make(10 * at, 10).select(["id", "word"]) for at in range(FILES)]
    dataset = store(tmp_path / "t", tables)
    size = sum(path.stat().st_size for path in (tmp_path / "t" / "data").iterdir())
    monkeypatch.setattr(small, "_KEPT_BYTES", size // 2)
    monkeypatch.setattr(small, "_DICTIONARY_BYTES", 2 * size)
    monkeypatch.setattr(small, "_DECODED_PER_READ", size // 20)  # after 20 reads
    read: list[int] = []
    bind = small.bind_files

    def counted(source: Any, files: Any) -> Any:
        read.append(len(files))
        return bind(source, files)

    monkeypatch.setattr(small, "bind_files", counted)
    for take in range(12):
        rows = [10 * at + take % 10 for at in range(2, 8)]
        assert dataset.take(rows)["id"].to_pylist() == rows
    assert read == [6] * 4


def test_files_are_opened_after_several_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store(
        tmp_path / "t", [make(10 * at, 10).select(["id", "text"]) for at in range(FILES)]
    )
    monkeypatch.setattr(small, "_KEPT_BYTES", 1)
    read: list[int] = []
    bind = small.bind_files

    def counted(source: Any, files: Any) -> Any:
        read.append(len(files))
        return bind(source, files)

    monkeypatch.setattr(small, "bind_files", counted)
    for take in range(9):
        rows = [10 * at + take for at in range(2, 8)]
        assert dataset.take(rows)["id"].to_pylist() == rows
    assert read == [6, 6, 6, 6, 5]


def test_opened_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = store(tmp_path / "t", [make(10 * at, 10).select(["id"]) for at in range(FILES)])
    monkeypatch.setattr(small, "_KEPT_BYTES", 1)
    rows = [10 * at + 3 for at in range(2, 8)]
    for row in rows:  # opens the file of each row
        assert dataset.take([row])["id"].to_pylist() == [row]
    before = dataset.io_stats_snapshot().read_iops
    assert dataset.take(rows)["id"].to_pylist() == rows
    assert dataset.io_stats_snapshot().read_iops == before


def test_a_cache_without_room_for_all_files_makes_no_take_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "t", [make(10 * at, 10).select(["id"]) for at in range(FILES)])
    read: list[int] = []
    bind = small.bind_files

    def counted(source: Any, files: Any) -> Any:
        read.append(len(files))
        return bind(source, files)

    monkeypatch.setattr(small, "bind_files", counted)
    for budget, expected in ((1_000_000, [6, 6, 6, 6]), (100_000_000, [6, FILES])):
        dataset = glaive.dataset(tmp_path / "t", metadata_cache_size_bytes=budget)
        read.clear()
        for first in range(4):
            dataset.take([10 * (first + 5 * at) for at in range(6)])
        assert read == expected
