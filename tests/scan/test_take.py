"""Rows by position, against Arrow's own take."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.encodings.pages.miniblock import MiniBlockReader
from glaive.errors import ColumnNotFoundError, OptionError, RowIndexError
from glaive.io.access import open_store
from glaive.scan.take import take_ids
from glaive.scan.views import Views
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS = 3000
TABLE = pa.table(
    {
        "id": pa.array(np.arange(ROWS)),
        "half": pa.array([None if i % 2 else i for i in range(ROWS)], pa.int32()),
        "name": [None if i % 11 == 0 else f"name {i}" for i in range(ROWS)],
        "meta": [{"x": i, "y": str(i)} for i in range(ROWS)],
        "tags": [list(range(i % 4)) for i in range(ROWS)],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4, dtype="f4")), 4),
    }
)


@pytest.fixture(scope="module", params=["mapped", "fetched"])
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LanceDataset:
    place: Any = tmp_path_factory.mktemp("take") / "t.lance"
    if request.param == "fetched":
        place = f"memory://{place.parent.name}/t"
    return glaive.write_dataset(TABLE, place, max_rows_per_file=1100)


@given(st.lists(st.integers(0, ROWS - 1), max_size=50))
def test_rows_come_in_the_order_asked_for(dataset: LanceDataset, rows: list[int]) -> None:
    taken = dataset.take(rows)
    assert taken.equals(TABLE.take(pa.array(rows, pa.int64())))
    assert taken.schema.equals(TABLE.schema)


def test_every_row_alone(dataset: LanceDataset) -> None:
    for row in (0, 1, 1023, 1024, 1099, 1100, 2199, 2200, 2999):
        assert dataset.take([row]).equals(TABLE.slice(row, 1))


def some(values: Any, kind: pa.DataType | None = None, *, nulls: bool = False) -> pa.Array:
    mask = np.arange(ROWS) % 7 == 3 if nulls else None
    return pa.array(list(values), kind, mask=mask)


NUMBERS = [at % 97 for at in range(ROWS)]
FLAT = pa.table(
    {
        f"{name}{' with nulls' * nulls}": some(values, kind, nulls=nulls)
        for nulls in (False, True)
        for name, values, kind in (
            ("runs", [at // 40 for at in range(ROWS)], pa.int32()),
            ("runs of words", [f"word {at // 300}" for at in range(ROWS)], None),
            ("decimal", [Decimal(at) / 8 for at in range(ROWS)], pa.decimal128(20, 3)),
            ("few decimals", [Decimal(at) * 10**15 / 8 for at in NUMBERS], pa.decimal128(30, 3)),
            ("few numbers", [at * 1e100 for at in NUMBERS], None),
            ("vector", [[at, at / 3] for at in range(ROWS)], pa.list_(pa.float32(), 2)),
            ("bytes", [[at % 256, 1, 2] for at in range(ROWS)], pa.list_(pa.uint8(), 3)),
            ("word", NUMBERS, None),
            ("number", range(ROWS), None),
        )
    }
)
WORDS = pa.array([f"item {at}" for at in range(97)])


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("writer", ["glaive", "lance"])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_few_rows_of_all_flat_columns_take_no_step_for_each_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, writer: str
) -> None:
    library = pytest.importorskip(writer, reason="install the 'interop' group")
    # Items of null vectors are null, too. glaive compresses decimals. In 2.3, nulls make sparse
    # pages.
    table = FLAT.drop_columns(["vector with nulls", "bytes with nulls"])
    if version == "2.3":
        table = FLAT.select([name for name in FLAT.column_names if "nulls" not in name])
    if writer == "glaive":
        table = table.select([name for name in table.column_names if "decimal " not in f"{name} "])
    for name in {"word", "word with nulls"} & {*table.column_names}:
        words = pa.DictionaryArray.from_arrays(table[name].chunk(0).cast(pa.int32()), WORDS)
        table = table.set_column(table.column_names.index(name), name, words)
    path = str(tmp_path / "t")
    library.write_dataset(table, path, data_storage_version=version)
    dataset = glaive.dataset(path)
    alone: list[str] = []

    def take(page: MiniBlockReader, rows: Any) -> Any:
        alone.append(str(page.page.where))
        return real(page, rows)

    real = MiniBlockReader.take
    monkeypatch.setattr(MiniBlockReader, "take", take)
    for rows in ([5], [2999, 5, 5, 1700], list(range(40, 140))):
        assert dataset.take(rows).to_pylist() == table.take(rows).to_pylist()
    assert alone == []


@pytest.mark.parametrize("rows", [[], [7], [7, 7, 3], [2999, 5, 1100]])
def test_rows_without_columns_are_counted(dataset: LanceDataset, rows: list[int]) -> None:
    assert dataset.take(rows, columns=[]).shape == (len(rows), 0)


def test_a_column_named_twice_comes_once(dataset: LanceDataset) -> None:
    expected = TABLE.select(["id", "meta"]).slice(9, 1)
    assert dataset.take([9], columns=["id", "meta.x", "id", "meta"]).equals(expected)


def test_many_rows_of_one_fragment_and_of_all(dataset: LanceDataset) -> None:
    rng = np.random.default_rng(3)
    for high in (1100, ROWS):
        rows = rng.integers(0, high, 4000)
        assert dataset.take(rows).equals(TABLE.take(pa.array(rows)))


@pytest.mark.parametrize(
    "rows",
    [
        [7, 2999],
        (7, 2999),
        range(7, 2999, 2992),
        np.array([7, 2999], np.uint16),
        pa.array([7, 2999], pa.int32()),
        pa.chunked_array([[7], [2999]]),
        [np.int64(7), np.uint8(5)],
    ],
    ids=["list", "tuple", "range", "numpy", "arrow", "chunks", "mixed"],
)
def test_positions_of_any_kind(dataset: LanceDataset, rows: object) -> None:
    wanted = [int(row) for row in np.asarray(rows)]
    assert dataset.take(rows, ["id"])["id"].to_pylist() == wanted


@pytest.mark.parametrize("deleted", ["id < 0", "id % 3 = 1 OR id BETWEEN 1000 AND 1200"])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_scans_with_a_limit_return_a_slice_of_the_rows(
    tmp_path: Path, version: str, deleted: str
) -> None:
    made = glaive.write_dataset(
        TABLE, tmp_path / "t", max_rows_per_file=1100, data_storage_version=version
    )
    made.delete(deleted)
    options: Any = {"columns": ["id", "half", "name", "meta", "tags", "vector"]}
    whole = made.to_table(with_row_id=True, **options)
    for offset, limit in [(0, 1), (0, 10), (995, 300), (0, ROWS), (whole.num_rows - 2, 9), (5, 0)]:
        found = made.to_table(offset=offset, limit=limit, with_row_id=True, **options)
        assert found.equals(whole.slice(offset, limit))
        assert found.schema.equals(whole.schema)
        batches = made.to_batches(offset=offset, limit=limit, with_row_id=True, **options)
        assert pa.Table.from_batches(batches, whole.schema).equals(found)


def test_a_scan_with_a_limit_takes_few_rows_at_once(tmp_path: Path) -> None:
    made = glaive.write_dataset(TABLE, tmp_path / "t", max_rows_per_file=1100)
    read = []
    for _ in range(12):
        before = made.io_stats_snapshot().read_bytes
        assert made.to_table(["tags"], offset=900, limit=200).equals(
            TABLE.select(["tags"]).slice(900, 200)
        )
        read.append(made.io_stats_snapshot().read_bytes - before)
    assert read[2] < read[3]  # the first take maps whole pages
    assert sorted(read[4:])[:7] == [0] * 7  # and one of the next reads their tables
    many = made.to_table(offset=10, limit=1030)
    assert many["vector"].combine_chunks().equals(TABLE["vector"].slice(10, 1030).combine_chunks())
    for _ in range(12):
        part = made.scanner(limit=3, offset=1098, fragments=made.get_fragments()[1:]).to_table()
        assert part["id"].to_pylist() == [2198, 2199, 2200]


def test_no_positions_give_no_rows(dataset: LanceDataset) -> None:
    assert dataset.take([]).equals(TABLE.slice(0, 0))


def test_columns_may_be_picked_with_members_in_place(dataset: LanceDataset) -> None:
    taken = dataset.take([5, 3], ["meta.y", "id"])
    assert taken.to_pydict() == {"meta": [{"y": "5"}, {"y": "3"}], "id": [5, 3]}


def test_row_ids_may_be_taken(dataset: LanceDataset) -> None:
    taken = dataset.take([1100, 0], ["_rowid", "id", "_rowaddr"])
    assert taken.to_pydict() == {"_rowid": [1 << 32, 0], "id": [1100, 0], "_rowaddr": [1 << 32, 0]}


@pytest.mark.parametrize("rows", [[ROWS], [-1], [0, ROWS + 5], [5, -2, 7]])
def test_a_position_beyond_the_rows_is_named(dataset: LanceDataset, rows: list[int]) -> None:
    wrong = next(row for row in rows if not 0 <= row < ROWS)
    with pytest.raises(RowIndexError, match=rf"position {wrong} is out of range: .* 3000 rows"):
        dataset.take(rows)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (range(10**12), 10**12 - 1),
        (range(2990, 10**15, 7), 2990 + (10**15 - 2990 - 1) // 7 * 7),
        (range(10, -(10**12), -1), 1 - 10**12),
        (range(10**30), 10**30 - 1),
    ],
    ids=str,
)
def test_a_range_beyond_the_rows_is_refused_without_its_numbers(
    dataset: LanceDataset, rows: range, wrong: int
) -> None:
    first = dataset.get_fragments()[0]
    ways: list[Callable[[], object]] = [
        lambda: dataset.take(rows), lambda: first.take(rows), lambda: first.delete_rows(rows),
        lambda: dataset.read_blobs("id", indices=rows),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(RowIndexError, match=rf"{wrong}\b.* is out of range"):
            way()
    assert dataset.take(range(3, 0, -1)).column("id").to_pylist() == [3, 2, 1]
    assert dataset.take(range(0)).num_rows == 0


@pytest.mark.parametrize(
    "rows", [[1.5], ["a"], [[1]], [None], pa.array([1, None]), 5, [True], [2**70]], ids=str
)
def test_positions_must_be_whole_numbers(dataset: LanceDataset, rows: object) -> None:
    with pytest.raises((OptionError, RowIndexError)):
        dataset.take(rows)


def test_an_unknown_column_is_named(dataset: LanceDataset) -> None:
    with pytest.raises(ColumnNotFoundError, match="did you mean 'id'"):
        dataset.take([0], ["ids"])


def test_a_dataset_without_rows_has_no_position(tmp_path: Path) -> None:
    written = glaive.write_dataset(TABLE.slice(0, 0), tmp_path / "t")
    with pytest.raises(RowIndexError, match="has 0 rows"):
        written.take([0])
    assert written.take([]).num_rows == 0


def test_many_rows_of_many_fragments(dataset: LanceDataset) -> None:
    rows = np.random.default_rng(4).integers(0, ROWS, 40_000)
    assert dataset.take(rows).equals(TABLE.take(pa.array(rows)))
    assert dataset.take(np.sort(rows)).equals(TABLE.take(pa.array(np.sort(rows))))
    inside = rows % 1100
    assert dataset.take(inside, ["id", "meta"]).equals(
        TABLE.select(["id", "meta"]).take(pa.array(inside))
    )


@pytest.mark.parametrize("stable", [False, True])
def test_rows_by_id_in_any_order_repeats_allowed(tmp_path: Path, stable: bool) -> None:
    opened = glaive.write_dataset(
        TABLE, tmp_path, max_rows_per_file=1100, enable_stable_row_ids=stable
    )
    view = Views(opened.snapshot).take(("id", "meta.x"))
    wanted = [2999, 5, 5, 1100, 0]
    ids = opened.to_table(["_rowid"])["_rowid"].to_numpy()[wanted]
    assert take_ids(view, ids)["id"].to_pylist() == wanted
    nowhere = np.append(ids, np.uint64(7 << 40))
    assert take_ids(view, nowhere).num_rows == len(wanted)
    assert take_ids(view, []).schema == view.schema


def test_an_address_behind_the_rows_of_a_fragment_is_named(tmp_path: Path) -> None:
    opened = glaive.write_dataset(TABLE, tmp_path)
    with pytest.raises(RowIndexError, match="address 5000: its fragment has 3000 rows"):
        take_ids(Views(opened.snapshot).take(None), [5000])


def test_expressions_cost_no_more_requests_than_their_columns(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path)
    store = CountingStore(open_store(tmp_path))
    opened = LanceDataset.of(store, open_latest(store))
    rows = [7, 2000, 7]
    for columns in (["id", "half"], {"a": "id + half", "b": "id * 2", "c": "half"}):
        opened.take(rows, columns)
        store.reset()
        found = opened.take(rows, columns)
        assert found.num_rows == 3
        assert store.requests <= 2
    assert found["b"].to_pylist() == [14, 4000, 14]


def test_a_column_kept_alone_does_not_keep_the_long_texts_beside_it(tmp_path: Path) -> None:
    texts = [f"{n % 4}" * 40_000 for n in range(500)]  # a dictionary
    rows = pa.table({"id": range(500), "text": texts})
    dataset = glaive.write_dataset(rows, tmp_path / "a.lance")
    before = pa.total_allocated_bytes()
    ids = dataset.take(range(0, 500, 2))["id"]
    kept = pa.total_allocated_bytes() - before
    assert ids.to_pylist() == list(range(0, 500, 2))
    assert kept < 1 << 20


def test_no_rows_have_extension_types_within_others(tmp_path: Path) -> None:
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2"]))
    rows = pa.table({"id": [1, 2], "s": pa.StructArray.from_arrays([texts], ["j"])})
    dataset = glaive.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    for none in (dataset.take([]), dataset.to_table(filter="id > 2")):
        assert none.num_rows == 0
        assert none.schema == dataset.schema
    merged = dataset.merge_insert("id").when_not_matched_insert_all().execute(rows)
    assert merged["num_inserted_rows"] == 0
