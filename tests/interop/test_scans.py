"""Scans and takes give what pylance gives: filters, orders, limits, system columns, deletions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.interop.cases import COLUMNS, same_bits

import glaive
from glaive.dataset.dataset import LanceDataset

lance = pytest.importorskip("lance", reason="install the 'interop' group")
ColumnOrdering: Any = pytest.importorskip("lance.dataset").ColumnOrdering

ROWS = 2500
VERSIONS = ("legacy", "2.0", "2.1", "2.2")
SYSTEM = [
    "id",
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
]

NULL_STRUCTS = ("list_struct", "list_struct_list", "struct_struct")
"""Columns with null structs, which files of 2.0 cannot hold."""

Both = tuple[Any, LanceDataset]


def make(version: str) -> pa.Table:
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(ROWS)),
        "f": pa.array(rng.normal(size=ROWS), mask=rng.random(ROWS) < 0.1),
        "s": pa.array([{"x": i, "y": str(i)} for i in range(ROWS)]),
        "name": pa.array([f"n{i % 40}" if i % 5 else None for i in range(ROWS)]),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 4), pa.float32()), 4),
        "b": pa.array(rng.random(ROWS) < 0.5, mask=rng.random(ROWS) < 0.1),
        "t": pa.array(np.arange(ROWS) * 10**9, pa.timestamp("us")),
    }
    if version not in ("legacy", "2.0"):
        columns["s"] = pa.array([{"x": i, "y": str(i)} if i % 3 else None for i in range(ROWS)])
    if version != "legacy":
        columns["d"] = pa.array([f"k{i % 7}" for i in range(ROWS)]).dictionary_encode()
    schema = pa.table(columns).schema.with_metadata({"made": "here"})
    return pa.table(columns, schema)


@pytest.fixture(scope="module", params=[*VERSIONS, "stable"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """One dataset, opened by pylance and by glaive; with deletions and rows that moved."""
    place = str(tmp_path_factory.mktemp("scans") / "t")
    stable = request.param == "stable"
    version = "2.1" if stable else request.param
    theirs = lance.write_dataset(
        make(version),
        place,
        max_rows_per_file=700,
        max_rows_per_group=128,
        data_storage_version=version,
        enable_stable_row_ids=stable,
    )
    theirs.delete("id % 31 = 4 or (id > 1410 and id < 1500)")
    if stable:
        theirs.update({"f": "1.5"}, where="id in (3, 900, 2400)")
    return lance.dataset(place), glaive.dataset(place)


def same(both: Both, ask: Callable[[Any], Any]) -> None:
    """Both give the same. Of files of 0.1, pylance refuses some questions about row ids."""
    theirs, ours = both
    found = ask(ours)
    try:
        expected = ask(theirs)
    except (OSError, ValueError):
        if ours.data_storage_version == "0.1":
            return
        raise
    if isinstance(expected, pa.Table):
        assert found.schema.equals(expected.schema, check_metadata=True)
        if found.num_rows == expected.num_rows and all(map(same_bits, found, expected)):
            return
        found, expected = found.to_pylist(), expected.to_pylist()
    assert repr(found) == repr(expected)  # NaN equals itself


def scan(**options: Any) -> Callable[[Any], pa.Table]:
    return lambda dataset: dataset.scanner(**options).to_table()


FILTERS = [
    "id = 77",
    "id = 4",
    "id > 2300",
    "id >= 0",
    "id > 9999",
    "true",
    "false",
    "id between 100 and 1450 and name = 'n3'",
    "id in (1, 2, 3, 1411, 1600)",
    "not (id > 100)",
    "id % 3 = 0",
    "f < 0.0",
    "f is null",
    "f > 0 or name is null",
    "name like 'n1%'",
    "name != 'n3'",
    "s.x > 2000 and s.y like '%7'",
    "b",
    "b is not true",
    "t < timestamp '1970-01-01 01:00:00'",
    "v is not null and id < 9",
    "_rowid > 1000",
    "_rowid in (3, 4, 900, 2400, 99999999999)",
    "_rowid = 900 and f > 0",
    "_rowaddr >= 4294967300 and _rowaddr < 4294967400",
    "_rowaddr > 2000 and id < 2000",
    "_row_last_updated_at_version = 1 and id < 10",
]
"""Terms with a way of their own, terms without, both together, system columns, nothing, all."""

PROJECTIONS: list[Any] = [
    None,
    [],
    ["name", "_rowid"],
    ["s.x", "f", "_rowoffset"],
    {"a": "id * 2", "b": "upper(name)", "c": "s.x", "k": "1", "r": "_rowid", "id": "id"},
]

CUTS: list[dict[str, Any]] = [
    {},
    {"limit": 10},
    {"limit": 900, "offset": 3},
    {"offset": 2200, "with_row_id": True},
    {"late_materialization": True, "use_stats": False},
    {"late_materialization": False, "with_row_address": True},
    {"late_materialization": ["s"]},
]


@pytest.mark.sampled(every=46)
@pytest.mark.parametrize("text", FILTERS)
def test_filtered_scans(both: Both, text: str) -> None:
    for at, columns in enumerate(PROJECTIONS):
        same(both, scan(columns=columns, filter=text))
        same(both, scan(columns=columns, filter=text, **CUTS[1 + at % (len(CUTS) - 1)]))
    same(both, lambda dataset: dataset.count_rows(text))
    same(both, lambda dataset: dataset.get_fragments()[2].to_table(["id"], filter=text))
    same(both, lambda dataset: dataset.get_fragments()[2].count_rows(text))


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("options", CUTS)
def test_options_of_filtered_scans(both: Both, options: dict[str, Any]) -> None:
    for text in FILTERS[::4]:
        same(both, scan(filter=text, **options))


def test_dictionaries_in_filters(both: Both) -> None:
    if "d" not in both[1].schema.names:
        pytest.skip("the format has no dictionaries of this kind")
    same(both, scan(filter="d = 'k3'", columns=["id", "d"]))
    same(both, scan(filter="d in ('k1', 'k2') and f > 0", columns=["id"]))
    same(both, scan(filter="d like '%5'", columns=["id"]))


def test_expressions_of_pyarrow(both: Both) -> None:
    same(both, scan(filter=(pc.field("id") > 100) & (pc.field("name") == "n3")))
    same(both, lambda one: one.count_rows(pc.field("f") < 0.5))


def test_system_columns(both: Both) -> None:
    same(both, scan(columns=SYSTEM))
    same(both, scan(columns=SYSTEM[::-1], limit=100, offset=650))
    same(both, lambda dataset: dataset.get_fragments()[1].to_table(SYSTEM))
    fragments = scan_fragments_backwards
    same(both, fragments)


def scan_fragments_backwards(dataset: Any) -> pa.Table:
    chosen = dataset.get_fragments()[::-1]
    found: pa.Table = dataset.scanner(["id", "_rowoffset"], fragments=chosen).to_table()
    return found


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": SYSTEM},
        {"columns": ["id"], "limit": 100, "offset": 1400},
        {"columns": ["t"], "order_by": [ColumnOrdering("t", False)], "filter": "f != 1.5"},
        {"columns": ["t"], "order_by": [ColumnOrdering("t", False)], "limit": 2000, "offset": 9},
    ],
)
def test_deleted_rows_are_returned_without_ids(both: Both, options: dict[str, Any]) -> None:
    if "order_by" in options and both[1].has_stable_row_ids:
        pytest.skip("rows that moved are there twice: which comes first is not said")
    if "filter" in options and both[1].data_storage_version == "0.1":
        pytest.skip("pylance leaves them out in files of 0.1 when there is a filter")
    same(both, scan(with_row_id=True, include_deleted_rows=True, **options))


def test_deleted_rows_pass_filters(both: Both) -> None:
    if both[1].data_storage_version == "0.1":
        pytest.skip("pylance leaves them out in files of 0.1 when there is a filter")
    options = {"columns": ["id"], "filter": "id > 1400", "include_deleted_rows": True}
    same(both, scan(**options, with_row_id=True))


@pytest.mark.sampled(every=28)
@pytest.mark.parametrize("column", ["f", "name", "s.x", "v", "s", "b", "t"])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("nulls_first", [True, False])
def test_orders(both: Both, column: str, ascending: bool, nulls_first: bool) -> None:
    order = [ColumnOrdering(column, ascending, nulls_first), ColumnOrdering("id")]
    for limit in (None, 7, 2000):
        same(both, scan(columns=[column, "id"], order_by=order, limit=limit, with_row_id=True))
        same(both, scan(columns=[column, "id"], order_by=order, limit=limit, offset=5))
    same(both, scan(columns=[column, "id"], order_by=order, limit=20, filter="id > 900"))


def test_floats_are_ordered_by_their_bits(tmp_path: Path) -> None:
    words = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64)
    values = [1.0, None, words[0], -0.0, 0.0, words[1], np.inf, -np.inf, 2.0, None]
    theirs = lance.write_dataset(pa.table({"id": range(10), "f": values}), str(tmp_path / "t"))
    opened = (theirs, glaive.dataset(tmp_path / "t"))
    for ascending in (True, False):
        for limit in (None, 3, 9):
            order = [ColumnOrdering("f", ascending)]
            same(opened, scan(order_by=order, limit=limit))


def by_id(*given: Any, **options: Any) -> Callable[[Any], Any]:
    return methodcaller("_take_rows", *given, **options)


def test_takes(both: Both) -> None:
    rows = [5, 2000, 5, 700, 699]

    def bare(table: pa.Table) -> pa.Table:
        return table.replace_schema_metadata(None)  # pylance keeps it in some takes only

    same(both, lambda one: bare(one.take(rows, columns=["id", "s.x", "name"])))
    same(both, lambda one: bare(one.take(rows, columns={"a": "id + 1", "b": "s.x", "r": "_rowid"})))
    same(both, lambda one: bare(one.take(rows, columns=["id", "_rowid", "_rowaddr", "_rowoffset"])))
    same(both, lambda one: bare(by_id([5, 35, 4, 5, 35], ["id", "_rowid"])(one)))
    same(both, lambda one: bare(by_id([5, 3], {"a": "id * 2"})(one)))
    if not both[1].has_stable_row_ids:  # pylance is free to return deleted rows or not
        same(both, lambda one: bare(by_id([5, 35, 4], ["id"], ignore_deletions=True)(one)))


def test_heads_and_counts(both: Both) -> None:
    same(both, lambda one: one.head(3, filter="id > 5", columns={"a": "id"}))
    same(both, lambda one: one.scanner(filter="f > 0").count_rows())
    same(
        both,
        lambda one: one.scanner(
            columns=["id"], include_deleted_rows=True, with_row_id=True
        ).count_rows(),
    )


def test_batches_join_to_the_table(both: Both) -> None:
    _, ours = both
    for options in ({"batch_size": 50}, {"batch_size": 70, "strict_batch_size": True}):
        batches = list(ours.to_batches(filter="f > 0", **options))
        whole = ours.to_table(filter="f > 0").to_pylist()
        assert pa.Table.from_batches(batches).to_pylist() == whole
        assert max(batch.num_rows for batch in batches) <= options["batch_size"]
    assert {one.num_rows for one in batches[:-1]} == {70}


@lru_cache(maxsize=4)
def beside_ids(name: str) -> pa.Table:
    """Three thousand rows of a column and their numbers; fewer of long lists."""
    rows = 3000 if name != "list_long" else 400
    made = COLUMNS[name](np.random.default_rng(1), rows)
    return pa.table({"id": np.arange(rows), "c": made})


@pytest.mark.parametrize("name", NULL_STRUCTS)
def test_format_2_0_has_no_null_structs_in_pylance_either(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="does not encode struct validity"):
        lance.write_dataset(beside_ids(name), tmp_path / "t", data_storage_version="2.0")


@pytest.mark.sampled(every=30)
@pytest.mark.parametrize(
    ("version", "name"),
    [
        (version, name)
        for name in sorted(COLUMNS)
        for version in ("2.0", "2.1", "2.2")
        if version != "2.0" or name not in NULL_STRUCTS
    ],
)
def test_columns_of_every_type_beside_a_filter(tmp_path: Path, version: str, name: str) -> None:
    place = tmp_path / "t"
    theirs = lance.write_dataset(beside_ids(name), place, data_storage_version=version)
    theirs.delete("id % 10 = 3")
    opened = (lance.dataset(place), glaive.dataset(place))
    for text in ("id < 50", "id > 100 and id % 2 = 0", "c is null", "c is not null"):
        same(opened, scan(filter=text))
        same(opened, methodcaller("count_rows", text))
