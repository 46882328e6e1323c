"""Scans with a filter or an order: the right rows, no more reads than they need, clean ends."""

from __future__ import annotations

import time
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import (
    ColumnNotFoundError,
    DataFileMissingError,
    FilterError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.file.protocol import BoundField
from glaive.io.access import open_store
from glaive.scan.options import ScanStatistics
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS = 6000


def make(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "few": rng.integers(0, 20, rows).astype(np.int32),
            "score": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "name": [f"name {i % 97}" for i in range(rows)],
            "meta": [{"x": i, "y": None if i % 3 else str(i)} for i in range(rows)],
        }
    )


TABLE = make(ROWS)

TESTS = {
    "few = 7": pc.field("few") == 7,
    "few in (1, 3) and score < 0.5": pc.field("few").isin([1, 3]) & (pc.field("score") < 0.5),
    "score is null or id < 9": pc.field("score").is_null() | (pc.field("id") < 9),
    "name = 'name 3' and meta.x > 2000": (pc.field("name") == "name 3")
    & (pc.field("meta", "x") > 2000),
    "id >= 1000 and id < 4500": (pc.field("id") >= 1000) & (pc.field("id") < 4500),
    "id % 2 = 0": pc.field("id").isin(list(range(0, ROWS, 2))),
    "id < 0": pc.field("id") < 0,
}
"""Filters as texts, and the same for pyarrow."""


@pytest.fixture(scope="module", params=["mapped", "fetched", "small fragments"])
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LanceDataset:
    place: Any = tmp_path_factory.mktemp("filtered") / "t.lance"
    if request.param == "fetched":
        place = f"memory://{place.parent.name}/t"
    rows = 60 if request.param == "small fragments" else 1700
    return glaive.write_dataset(TABLE, place, max_rows_per_file=rows)


@pytest.mark.sampled(every=3)
@given(
    text=st.sampled_from(sorted(TESTS)),
    columns=st.sampled_from([None, ["name"], ["meta.x", "id"], []]),
    limit=st.none() | st.integers(0, 3000),
    offset=st.integers(0, 400),
    late=st.sampled_from([None, True, False]),
    in_order=st.booleans(),
)
def test_rows_that_pass_come_with_their_columns(
    dataset: LanceDataset,
    text: str,
    columns: list[str] | None,
    limit: int | None,
    offset: int,
    late: bool | None,
    in_order: bool,
) -> None:
    expected = TABLE.filter(TESTS[text]).slice(offset, limit)
    scanner = dataset.scanner(
        columns,
        text,
        limit,
        offset,
        late_materialization=late,
        scan_in_order=in_order or limit is not None or offset > 0,
        batch_size=500,
    )
    found = scanner.to_table()
    assert scanner.count_rows() == expected.num_rows == found.num_rows
    if columns is None:
        assert found.sort_by("id").equals(expected)
    elif "id" in columns:
        assert sorted(found["id"].to_pylist()) == expected["id"].to_pylist()
    batches = list(scanner.to_batches())
    assert sum(batch.num_rows for batch in batches) == expected.num_rows
    assert all(batch.num_rows <= 500 for batch in batches)


@pytest.mark.sampled(every=2)
@given(
    keys=st.lists(st.sampled_from(["few", "score", "name", "meta.x"]), min_size=1, max_size=2),
    ascending=st.booleans(),
    limit=st.none() | st.integers(0, 700),
    offset=st.integers(0, 20),
)
def test_orders_are_those_of_arrow(
    dataset: LanceDataset, keys: list[str], ascending: bool, limit: int | None, offset: int
) -> None:
    order = [glaive.ColumnOrdering(key, ascending) for key in dict.fromkeys(keys)]
    flat = TABLE.append_column("meta.x", pc.struct_field(TABLE["meta"], "x"))
    way: Any = "ascending" if ascending else "descending"
    indices = pc.sort_indices(flat, sort_keys=[(one.column_name, way) for one in order])
    expected = TABLE["id"].take(indices).slice(offset, limit)
    found = dataset.scanner(["id"], order_by=order, limit=limit, offset=offset).to_table()
    assert found["id"].to_pylist() == expected.to_pylist()


def test_an_order_leaves_equal_rows_in_theirs(dataset: LanceDataset) -> None:
    found = dataset.scanner(["few", "id"], order_by=["few"], limit=900).to_table()
    expected = TABLE.select(["few", "id"]).sort_by([("few", "ascending"), ("id", "ascending")])
    assert found.equals(expected.slice(0, 900))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_numbers_of_every_width_pass_with_their_nulls(tmp_path: Path, share: float) -> None:
    rng = np.random.default_rng(3)
    rows = 70_000
    words = rng.integers(0, 100, rows)
    kinds: list[Any] = [pa.int8(), pa.uint16(), pa.float32(), pa.timestamp("us"), pa.bool_()]
    columns: dict[str, Any] = {str(kind): pa.array(words).cast(kind) for kind in kinds}
    columns["nulls"] = pa.array(words, mask=words < 20)
    columns["plain"] = rng.standard_normal(rows)
    columns["decimal"] = pa.array(words).cast(pa.decimal128(20))
    columns["fixed"] = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(words, 2)), 2)
    columns["chance"] = rng.random(rows)
    table = pa.table(columns)
    made = glaive.write_dataset(table, tmp_path / "t")
    for text in (f"chance < {share}", f"chance + 1 < {1 + share}"):
        found = made.to_table(filter=text)
        found.validate(full=True)
        assert found.equals(table.filter(pc.field("chance") < share))


def test_the_first_of_many_rows_are_found_in_all_windows(tmp_path: Path) -> None:
    keys = np.random.default_rng(4).permutation(300_000)
    made = glaive.write_dataset({"key": keys, "row": np.arange(300_000)}, tmp_path / "t")
    first = made.scanner(["row"], order_by=["key"], limit=50).to_table()
    assert first["row"].to_pylist() == np.argsort(keys)[:50].tolist()


def test_an_order_by_lists_is_refused_with_the_column(tmp_path: Path) -> None:
    opened = glaive.write_dataset(pa.table({"tags": [[2], [1]]}), tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="order_by: column 'tags'"):
        opened.scanner(order_by=["tags"]).to_table()


def test_computed_columns(dataset: LanceDataset) -> None:
    found = dataset.to_table({"double": "id * 2", "x": "meta.x", "one": "1"}, "few = 7", limit=9)
    rows = TABLE.filter(TESTS["few = 7"]).slice(0, 9)
    ids: list[Any] = rows["id"].to_pylist()
    assert found.to_pydict() == {"double": [2 * i for i in ids], "x": ids, "one": [1] * 9}
    every = dataset.to_table({"double": "id * 2"})
    assert every["double"].to_pylist() == list(range(0, 2 * ROWS, 2))
    taken = dataset.take([5, 0, 5], columns={"double": "id * 2", "name": "name"})
    assert taken.to_pydict() == {"double": [10, 0, 10], "name": ["name 5", "name 0", "name 5"]}
    assert dataset.sample(3, {"n": "id + 1"}, randomize_order=False).num_rows == 3


def test_positions_among_all_rows_are_columns(dataset: LanceDataset) -> None:
    found = dataset.to_table(["_rowoffset", "id"], "few = 7")
    assert found["_rowoffset"].cast(pa.int64()).equals(found["id"])


def test_a_row_id_is_found_without_looking_at_others(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path / "t", max_rows_per_file=100)
    store = CountingStore(open_store(tmp_path / "t"))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    found = opened.to_table(["id"], "_rowid in (4294967299, 12884901889, 77777777777777)")
    assert found["id"].to_pylist() == [103, 301]
    assert len({request.path for request in store.log}) == 2


def test_stable_row_ids_are_found(tmp_path: Path) -> None:
    opened = glaive.write_dataset(
        TABLE, tmp_path, max_rows_per_file=500, enable_stable_row_ids=True
    )
    assert opened.to_table(["id"], "_rowid in (3, 1234, 99999)")["id"].to_pylist() == [3, 1234]
    assert opened.to_table(["id"], "_rowid >= 5995")["id"].to_pylist() == [*range(5995, 6000)]


def test_an_empty_dataset_has_no_rows_whatever_is_asked(tmp_path: Path) -> None:
    opened = glaive.write_dataset(TABLE.slice(0, 0), tmp_path)
    for text in ("id > 3", "_rowid = 3", "_rowaddr > 5 and few = 1"):
        assert opened.to_table(filter=text).equals(TABLE.slice(0, 0))
        assert opened.count_rows(text) == 0
        assert list(opened.to_batches(filter=text)) == []
    assert opened.scanner(["id"], order_by=["id"], limit=3).to_table().num_rows == 0
    assert opened.scanner(["id"], order_by=["id"]).to_table().num_rows == 0
    assert opened.to_table({"a": "id + 1"}).schema.names == ["a"]


def test_no_columns_leave_the_number_of_rows(dataset: LanceDataset) -> None:
    expected = TABLE.filter(TESTS["few = 7"]).num_rows
    assert dataset.to_table([], "few = 7").num_rows == expected
    batches = dataset.to_batches([], "few = 7", strict_batch_size=True, batch_size=50)
    assert sum(batch.num_rows for batch in batches) == expected
    assert dataset.scanner([], order_by=["id"], limit=7).to_table().num_rows == 7


def test_a_data_file_that_vanished_is_named(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path, max_rows_per_file=1000)
    gone = sorted((tmp_path / "data").iterdir())[3]
    opened = glaive.dataset(tmp_path)
    gone.unlink()
    with pytest.raises(DataFileMissingError, match=gone.name):
        opened.to_table(filter="few = 7")
    with pytest.raises(DataFileMissingError, match=gone.name):
        list(opened.to_batches(filter="name like '%3'"))
    with pytest.raises(DataFileMissingError, match=gone.name):
        opened.scanner(order_by=["id"], limit=2).to_table()


# ------------------------------------------------------------------------ reads


@pytest.fixture
def counted(tmp_path: Path) -> tuple[LanceDataset, CountingStore]:
    rng = np.random.default_rng(0)
    rows = 200_000
    columns = {"id": np.arange(rows), "wide": rng.random(rows), "other": rng.random(rows)}
    glaive.write_dataset(pa.table(columns), tmp_path, max_rows_per_file=50_000)
    store = CountingStore(open_store(tmp_path))
    opened = LanceDataset.of(store, open_latest(store))
    opened.to_table(["id", "wide", "other"], limit=0)
    opened.count_rows("id < 0 and wide < 0 and other < 0")  # footers and tables are read
    store.reset()
    return opened, store


def test_counting_reads_the_columns_of_the_filter_only(
    counted: tuple[LanceDataset, CountingStore],
) -> None:
    opened, store = counted
    assert opened.count_rows("wide < 2") == 200_000
    assert 1_500_000 < store.bytes_read < 1_800_000


def test_columns_of_few_rows_are_not_read_whole(
    counted: tuple[LanceDataset, CountingStore],
) -> None:
    opened, store = counted
    found = opened.to_table(["wide", "other"], "id in (5, 150000)")
    assert found.num_rows == 2
    assert store.bytes_read < 1_000_000  # ids are a quarter of all


TAGS = [[f"tag number {(at + i) % 7}" for i in range(at % 9)] for at in range(6000)]
LABELS = [[f"label {at} {i}" for i in range(at % 3)] for at in range(6000)]


@pytest.mark.parametrize(
    ("version", "values", "one_of", "way"),
    [
        ("2.2", TAGS, 2, "read"),
        ("2.2", TAGS, 3, "take"),  # items of a dictionary
        ("2.2", LABELS, 5, "read"),
        ("2.2", LABELS, 12, "take"),
        ("2.0", TAGS, 12, "read"),
        ("2.0", TAGS, 150, "take"),
        ("2.2", range(6000), 12, "read"),
        ("2.2", range(6000), 150, "take"),
    ],
)
def test_rows_of_a_filter_are_taken_or_read_by_their_share_and_the_pages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    values: list[Any],
    one_of: int,
    way: str,
) -> None:
    table = pa.table({"id": range(len(values)), "value": pa.array(values)})
    dataset = glaive.write_dataset(table, tmp_path / "t", data_storage_version=version)
    ways = []
    for name in ("take", "read"):

        def work(column: BoundField, *rows: Any, name: str = name, real: Any = None) -> Any:
            if column.field.name == "value":
                ways.append(name)
            return real(column, *rows)

        real = getattr(BoundField, name)
        monkeypatch.setattr(BoundField, name, partialmethod(work, name=name, real=real))
    found = dataset.to_table(columns=["value"], filter=f"id % {one_of} = 0")
    assert ways == [way]
    assert found["value"].to_pylist() == list(values[::one_of])


def test_a_limit_ends_the_scan(counted: tuple[LanceDataset, CountingStore]) -> None:
    opened, store = counted
    assert opened.to_table(["wide"], "id >= 10", limit=5, batch_readahead=1).num_rows == 5
    assert len({request.path for request in store.log}) <= 2


def test_the_first_of_an_order_read_the_other_columns_of_these_rows_only(
    counted: tuple[LanceDataset, CountingStore],
) -> None:
    opened, store = counted
    found = opened.scanner(["other", "id"], order_by=["wide"], limit=3).to_table()
    assert found.num_rows == 3
    assert store.bytes_read < 2_500_000  # one column of 1.6 MB, and single values


def test_a_filter_that_is_never_true_reads_nothing(
    counted: tuple[LanceDataset, CountingStore],
) -> None:
    opened, store = counted
    assert opened.to_table(filter="id > 3 and false").num_rows == 0
    assert opened.count_rows("null = 3") == 0
    assert store.requests == 0


def test_a_scan_tells_what_it_did(counted: tuple[LanceDataset, CountingStore]) -> None:
    opened, _ = counted
    told: list[ScanStatistics] = []
    opened.to_table(["wide"], "id < 10", scan_stats_callback=told.append)
    sum(batch.num_rows for batch in opened.to_batches(["id"], scan_stats_callback=told.append))
    assert [one.all_counts["output_rows"] for one in told] == [10, 200_000]
    assert told[0].all_counts["rows_scanned"] == 200_000
    assert told[0].all_times["find"] > 0


def test_errors_of_the_callback_do_not_end_the_scan(
    dataset: LanceDataset, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: ScanStatistics) -> None:
        raise RuntimeError("no")

    assert dataset.to_table(["id"], "id < 3", scan_stats_callback=fail).num_rows == 3
    assert "scan_stats_callback failed" in caplog.text


def test_plans_are_explained_and_measured(dataset: LanceDataset) -> None:
    scanner = dataset.scanner(["name"], "few = 7 and id % 2 = 0", 5, order_by=["score"])
    plan = scanner.explain_plan(verbose=True)
    assert "SortExec: TopK(fetch=5), expr=[score@1 ASC NULLS LAST]" in plan
    assert "projection=[name, score], num_fragments=" in plan
    assert "full_filter=few = 7 AND id % 2 = 0, refine_filter=few" in plan
    assert "encoded form: few" in plan
    assert "decoded and evaluated: id" in plan
    assert "fragment 0: rows 0.." in plan
    measured = scanner.analyze_plan()
    assert "total: 5 rows in" in measured
    assert f"rows scanned: {ROWS}" in measured
    assert "requests" in measured
    assert "total: 12 rows" not in scanner.analyze_plan(count_rows=True)


# ----------------------------------------------------------------------- ends


def test_stopping_early_leaves_no_work_running(tmp_path: Path) -> None:
    rows = 400_000
    glaive.write_dataset(
        pa.table({"id": np.arange(rows), "text": [f"text {i}" for i in range(rows)]}),
        tmp_path,
        max_rows_per_file=5_000,
    )
    store = CountingStore(open_store(tmp_path))
    opened = LanceDataset.of(store, open_latest(store))
    reader = opened.scanner(filter="text like '%1%'", batch_size=100).to_reader()
    assert reader.read_next_batch().num_rows == 100
    reader.close()
    del reader
    before = -1
    while store.requests != before:  # until what had begun has ended
        before = store.requests
        time.sleep(0.5)
    assert len({request.path for request in store.log}) < 60  # of 80


def test_a_value_of_a_deleted_row_cannot_fail_a_filter(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(pa.table({"a": [6, 6, 6], "b": [1, 0, 2]}), str(tmp_path)).delete("b = 0")
    opened = glaive.dataset(tmp_path)
    assert opened.to_table(filter="a / b > 3")["b"].to_pylist() == [1]


def test_a_value_that_a_term_before_rules_out_cannot_fail_a_filter(tmp_path: Path) -> None:
    """Few rows pass the first term, so that the others are evaluated on these alone."""
    rows = {"id": [*range(40)] * 50, "b": [0, 2, 3, 0, 1] * 400, "a": [6] * 2000}
    made = glaive.write_dataset(rows, tmp_path / "t")
    assert made.count_rows("id < 2 and b != 0 and a / b = 3") == 50
    with pytest.raises(FilterError, match="division by zero"):
        made.count_rows("id < 2 and a / b = 3")


# --------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"filter": "idd > 3"}, FilterError, "id"),
        ({"columns": ["idd"]}, ColumnNotFoundError, "did you mean 'id'"),
        ({"columns": {"a": "idd + 1"}}, FilterError, "id"),
        ({"order_by": ["scor"]}, ColumnNotFoundError, "did you mean 'score'"),
        ({"late_materialization": ["nme"]}, ColumnNotFoundError, "did you mean 'name'"),
        ({"filter": 3}, OptionError, "filter"),
    ],
)
def test_wrong_names_are_told_before_anything_is_read(
    dataset: LanceDataset, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        dataset.scanner(**options)
