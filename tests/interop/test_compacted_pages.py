"""Many small fragments become one with the pages that its rows have when written at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.file.files import LanceFileReader
from glaive.io.local import LocalStore
from glaive.scan import small
from glaive.testing import open_on

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

FILES = 12
_ITEMS = re.compile(r"'num_dictionary_items': [1-9]\d*, ")


@cache
def part(number: int, rows: int = 1_500) -> pa.Table:
    rng = np.random.default_rng(number)
    letters = list("abcdefghijklmnop"[number % 5 :])
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(300)]
    kinds = [f"kind-{one}" for one in range(number % 3, 40)]
    first = np.arange(number * rows, (number + 1) * rows)
    return pa.table(
        {
            "i": first,
            "x": rng.random(rows),
            "flag": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.1),
            "kind": rng.choice(kinds, rows),
            "some": pa.array(rng.choice(kinds, rows), mask=rng.random(rows) < 0.2),
            "bytes": pa.array([b"%d" % one for one in rng.integers(0, 50, rows)], pa.binary()),
            "text": [" ".join(row) for row in rng.choice(words, (rows, 6)).tolist()],
            # Of some parts only it is worth a dictionary.
            "often": [f"{one % (7 if number % 2 else rows)} of all of them" for one in first],
            # Each item comes a few times, in one part only.
            "seldom": [f"{one // 3} is seldom, {number}" for one in first],
            "tags": [list(range(one % 3)) for one in first],
        }
    )


def parts(count: int = FILES) -> list[pa.Table]:
    return [part(number) for number in range(count)]


def written(path: Path, tables: list[pa.Table], writer: Any, **options: Any) -> LanceDataset:
    for table in tables:
        writer.write_dataset(table, str(path), mode="append", **options)
        options = {}
    return glaive.dataset(path)


def pages(dataset: LanceDataset) -> list[tuple[str, int, list[tuple[int, str]]]]:
    """Of each column of each file: its name, its bytes, and the rows and encodings of its pages."""
    found = []
    for fragment in dataset.get_fragments():
        (file,) = fragment.data_files()
        layout = LanceFileReader(f"{dataset.uri}/data/{file.path}").layout()
        for column in layout.columns:
            # Nulls may be an item of their own.
            kinds = [(page.rows, _ITEMS.sub("", str(page.encoding))) for page in column.pages]
            found.append((column.path, column.size, kinds))
    return found


def check_pages(compacted: LanceDataset, rows: pa.Table, path: Path, **options: Any) -> None:
    fresh = glaive.write_dataset(rows, path, **options)
    mine, theirs = pages(compacted), pages(fresh)
    assert [(name, kinds) for name, _, kinds in mine] == [
        (name, kinds) for name, _, kinds in theirs
    ]
    for (name, size, _), (_, other, _) in zip(mine, theirs, strict=True):
        assert size <= 1.01 * other + 64, name


class NotingStore(LocalStore):
    """A local store that notes the objects that are read, or mapped, in bulk."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.in_bulk: list[str] = []
        map_many = small.map_many

        def noted(store: Any, paths: Sequence[str], sizes: Sequence[int]) -> Any:
            self.in_bulk += paths
            return map_many(store, paths, sizes)

        monkeypatch.setattr(small, "map_many", noted)

    def get_into(self, path: str, target: memoryview) -> int:
        """Note and copy."""
        self.in_bulk.append(path)
        return super().get_into(path, target)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
def test_pages_are_those_of_rows_written_at_once(
    tmp_path: Path, version: str, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = parts()
    written(tmp_path / "t", tables, writer, data_storage_version=version)
    store = NotingStore(tmp_path / "t", monkeypatch)
    opened = open_on(store)
    stored = [f"data/{part.data_files()[0].path}" for part in opened.get_fragments()]
    opened.optimize.compact_files()
    assert store.in_bulk == stored
    assert len(stored) == FILES
    dataset = glaive.dataset(tmp_path / "t")
    expected = pa.concat_tables(tables)
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(expected)
    assert dataset.to_table().equals(expected)
    check_pages(dataset, expected, tmp_path / "fresh", data_storage_version=version)


def test_items_of_deleted_rows_are_not_written(tmp_path: Path) -> None:
    tables = parts()
    dataset = written(tmp_path / "t", tables, lance)
    dataset.delete("kind = 'kind-7' or i % 5 = 3 or (i > 3000 and i < 4600)")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    rows = pa.concat_tables(tables).to_pylist()
    kept = [
        one
        for one in rows
        if one["kind"] != "kind-7" and one["i"] % 5 != 3 and not 3000 < one["i"] < 4600
    ]
    assert lance.dataset(str(tmp_path / "t")).to_table().to_pylist() == kept
    table = pa.Table.from_pylist(kept, tables[0].schema)
    check_pages(dataset, table, tmp_path / "fresh")


def test_one_item_that_is_left_is_said_once(tmp_path: Path) -> None:
    tables = parts()
    dataset = written(tmp_path / "t", tables, lance)
    dataset.delete("kind != 'kind-9'")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    table = pa.concat_tables(tables)
    table = table.filter(pa.compute.equal(table["kind"], "kind-9"))
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(table)
    check_pages(dataset, table, tmp_path / "fresh")


def test_a_larger_fragment_among_small_ones_joins_their_pages(tmp_path: Path) -> None:
    tables = [*parts(9), part(20, 30_000), *parts(9)]
    dataset = written(tmp_path / "t", tables, lance)
    dataset.optimize.compact_files()
    expected = pa.concat_tables(tables)
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(expected)
    check_pages(dataset, expected, tmp_path / "fresh")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("wish", "value"),
    [("compression", "fsst"), ("structural-encoding", "fullzip"), ("dict-divisor", "1000")],
)
def test_what_is_asked_of_a_column_is_done(tmp_path: Path, wish: str, value: str) -> None:
    asked = {f"lance-encoding:{wish}".encode(): value.encode()}
    tables = parts(9)
    names = {"kind", "text"}
    fields = [one.with_metadata(asked) if one.name in names else one for one in tables[0].schema]
    tables = [table.cast(pa.schema(fields)) for table in tables]
    dataset = written(tmp_path / "t", tables, lance)
    dataset.optimize.compact_files()
    expected = pa.concat_tables(tables)
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(expected)
    check_pages(dataset, expected, tmp_path / "fresh")


@pytest.mark.parametrize("version", ["2.0", "2.3"])
def test_small_fragments_are_rewritten_in_other_formats(tmp_path: Path, version: str) -> None:
    tables = parts(9)
    dataset = written(tmp_path / "t", tables, lance, data_storage_version="2.1")
    dataset.optimize.compact_files(data_storage_version=version)
    assert dataset.to_table().equals(pa.concat_tables(tables))


def test_files_are_cut_where_they_are_full(tmp_path: Path) -> None:
    tables = parts()
    dataset = written(tmp_path / "t", tables, lance)
    dataset.optimize.compact_files(target_rows_per_fragment=5_000)
    expected = pa.concat_tables(tables)
    counts = [one.count_rows() for one in dataset.get_fragments()]
    assert sum(counts) == len(expected)
    assert max(counts) - min(counts) <= 1
    assert lance.dataset(str(tmp_path / "t")).to_table().equals(expected)
