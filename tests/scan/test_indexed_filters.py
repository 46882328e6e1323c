"""Filters answered by indices: the rows that a look at all values finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.trials import trials

import glaive
from glaive.scan.indexed import choose
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.views import Views

ROWS = 600
LETTERS = "abcdefgh"


def rows(start: int, count: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(start)
    number = pa.array(rng.integers(0, 50, count), mask=rng.random(count) < 0.1)
    word = pa.array(rng.choice(list(LETTERS), count), mask=rng.random(count) < 0.1)
    real = rng.choice([-1.5, -0.0, 0.0, 2.5, np.inf, np.nan], count)
    plain = rng.integers(0, 5, count)
    return pa.table(
        {"id": np.arange(start, start + count), "n": number, "w": word, "f": real, "p": plain}
    )


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable ids"])
def dataset(request: Any, tmp_path_factory: Any) -> glaive.LanceDataset:
    """Several fragments, with deletions, updates, compaction and rows that are in no index."""
    place = tmp_path_factory.mktemp("indexed") / "t"
    made = glaive.write_dataset(
        rows(0), place, max_rows_per_file=150, enable_stable_row_ids=request.param
    )
    for column in ("n", "w", "f", "id"):
        made.create_scalar_index(column, "BTREE")
    made.delete("id % 17 = 3")
    made.update({"n": "n + 1"}, where="id >= 200 and id < 230")
    made.optimize.compact_files(target_rows_per_fragment=300)
    made = glaive.write_dataset(rows(ROWS, 200), made, mode="append")
    made.optimize.optimize_indices(index_names=["n_idx"], num_indices_to_merge=0)
    return glaive.write_dataset(rows(ROWS + 200, 100), made, mode="append")


NUMBERS = st.integers(-1, 52)
TESTS = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS),
    st.builds("n between {} and {}".format, NUMBERS, NUMBERS),
    st.builds("w in ('{}', '{}')".format, st.sampled_from(LETTERS), st.sampled_from(LETTERS)),
    st.builds("w like '{}%'".format, st.sampled_from(LETTERS)),
    st.builds("f {} {}".format, st.sampled_from(["<", ">=", "="]), st.sampled_from([0.0, 2.5])),
    st.builds("id {} {}".format, st.sampled_from(["<", ">"]), st.integers(0, ROWS + 300)),
    st.sampled_from(["n is null", "w is not null", "p = 2", "p + n > 20", "n not in (3, 4)"]),
)


def combined(parts: Any) -> Any:
    return st.one_of(
        st.builds("({} and {})".format, parts, parts),
        st.builds("({} or {})".format, parts, parts),
        st.builds("(not {})".format, parts),
    )


@pytest.mark.sampled(every=2)
@settings(
    max_examples=trials(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(condition=st.recursive(TESTS, combined, max_leaves=5))
def test_the_rows_are_those_that_a_scan_finds(dataset: glaive.LanceDataset, condition: str) -> None:
    scanned = dataset.to_table(["id", "w"], condition, use_scalar_index=False)
    searched = dataset.to_table(["id", "w"], condition, use_scalar_index=True)
    assert searched.equals(scanned)
    assert dataset.count_rows(condition) == scanned.num_rows


@pytest.fixture(scope="module")
def counted(tmp_path_factory: Any) -> glaive.LanceDataset:
    """Two segments of small pages that cover all rows; the data files are gone."""
    made = glaive.write_dataset(rows(0), tmp_path_factory.mktemp("counted") / "t")
    for column in ("n", "w", "f", "id"):
        made.create_scalar_index(column, "BTREE", zone_size=16)
    made = glaive.write_dataset(rows(ROWS, 200), made, mode="append")
    made.optimize.optimize_indices(num_indices_to_merge=0)
    for path in Path(made.uri).glob("data/*"):
        path.unlink()
    return made


RANGES = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(["<", "<=", ">", ">="]), NUMBERS),
    st.builds("n >= {} and n < {}".format, NUMBERS, NUMBERS),
    st.builds("w {} '{}'".format, st.sampled_from(["<", ">="]), st.sampled_from(LETTERS)),
    st.builds("f {} {}".format, st.sampled_from(["<", ">="]), st.sampled_from([0.0, 2.5])),
    st.builds("id between {} and {}".format, *[st.integers(-2, ROWS + 210)] * 2),
)


@settings(max_examples=trials(100), deadline=None)
@given(condition=RANGES, offset=st.sampled_from([0, 7]), limit=st.sampled_from([None, 20]))
def test_a_range_is_counted_by_the_index_alone(
    counted: glaive.LanceDataset, condition: str, offset: int, limit: int | None
) -> None:
    passing = pa.concat_tables([rows(0), rows(ROWS, 200)])
    numbers = glaive.write_dataset(passing, "memory://").count_rows(condition)
    expected = max(0, numbers - offset)
    scanner = counted.scanner(filter=condition, offset=offset, limit=limit)
    assert scanner.count_rows() == (expected if limit is None else min(limit, expected))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("changes", ["d", "dc", "dr", "dra", "a", "dca", "uc", "uca", "f"])
def test_rows_are_counted_one_by_one_if_the_index_has_other_rows(
    tmp_path: Path, stable: bool, changes: str
) -> None:
    made = glaive.write_dataset(
        {"n": range(500)}, tmp_path / "t", max_rows_per_file=250, enable_stable_row_ids=stable
    )
    made.create_scalar_index("n", "BTREE", zone_size=16)
    expected, fragments = 400, None
    for change in changes:
        if change == "d":
            made.delete("n >= 300")
            expected -= 200
        elif change in "cr":
            made.optimize.compact_files(defer_index_remap=change == "r")
        elif change == "a":
            made = glaive.write_dataset({"n": range(200)}, made, mode="append")
            expected += 100
        elif change == "u":
            made.update({"n": "n - 450"}, where="n >= 480")
            expected -= 20
        else:
            expected, fragments = 150, made.get_fragments()[:1]
    assert made.scanner(filter="n >= 100", fragments=fragments).count_rows() == expected


def chosen(dataset: glaive.LanceDataset, condition: str, **options: Any) -> list[tuple[str, ...]]:
    """Names of the indices that are searched for each term."""
    views = Views(dataset.snapshot)
    terms = views.filter(condition).terms
    given_options = ScanOptions.of(**options)
    return [term.names for term in choose(dataset.snapshot, given_options, terms, Meter())]


def test_an_index_is_searched_where_few_rows_are_found(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(300_000)
    made = glaive.write_dataset({"n": numbers, "p": numbers % 7}, tmp_path / "t")
    made.create_scalar_index("n", "BTREE")
    assert chosen(made, "n = 5") == [("n_idx",)]
    assert chosen(made, "n = 5 and p = 3") == [("n_idx",)]
    assert chosen(made, "n < 250000") == []
    assert chosen(made, "n < 250000", use_scalar_index=True) == [("n_idx",)]
    assert chosen(made, "n = 5", use_scalar_index=False) == []
    assert chosen(made, "n = 5 or p = 3") == []


def test_an_operand_that_finds_many_rows_is_tested_on_the_others(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(300_000)
    made = glaive.write_dataset({"n": numbers, "m": numbers}, tmp_path / "t")
    for column in ("n", "m"):
        made.create_scalar_index(column, "BTREE")
    assert chosen(made, "n = 5 and m < 200000") == [("n_idx",)]
    assert chosen(made, "(n = 5 and m < 200000) or n = 7") == [("n_idx",)]
    assert made.to_table(filter="(n = 5 and m < 200000) or n = 7").num_rows == 2


def test_the_plan_names_indices_and_what_is_scanned(dataset: glaive.LanceDataset) -> None:
    scanner = dataset.scanner(filter="n = 5 and p = 2", use_scalar_index=True)
    (line,) = [line.strip() for line in scanner.explain_plan().splitlines() if "by index" in line]
    assert line.startswith("ScalarIndexQuery: query=[n = 5]@n_idx(BTree), by index n_idx: about ")
    assert line.endswith("fragments; 1 fragments scanned")
    analyzed = scanner.analyze_plan()
    assert "index rows found: " in analyzed
    assert "search indices: " in analyzed


def test_deletes_updates_and_merges_find_rows_by_index(dataset: glaive.LanceDataset) -> None:
    before = dataset.count_rows("n = 7")
    assert before
    copy = glaive.dataset(dataset.uri)
    try:
        copy.delete("n = 7")
        assert copy.count_rows("n = 7") == 0
        assert copy.count_rows() == dataset.count_rows() - before
    finally:
        copy.checkout_version(dataset.version).restore()


@pytest.fixture(scope="module")
def many(tmp_path_factory: Any) -> glaive.LanceDataset:
    """Values that are there once, 50 times, and 10,000 times; the last in both kinds of index."""
    numbers = np.random.default_rng(0).permutation(100_000)
    few = pa.array([f"k{number % 10}" for number in numbers.tolist()])
    columns = {"once": numbers, "rare": numbers // 50, "few": few, "sorted": few}
    made = glaive.write_dataset(columns, tmp_path_factory.mktemp("many") / "t")
    for column, kind in (
        ("once", "BTREE"), ("rare", "BITMAP"), ("few", "BITMAP"), ("sorted", "BTREE"),
    ):  # fmt: skip
        made.create_scalar_index(column, kind)
    return made


@pytest.mark.parametrize(
    "condition",
    [
        "once = 77",
        "once in (1, 5000, 90000)",
        "once between 500 and 2499",
        "sorted = 'k3'",
        "few = 'k3'",
        "few in ('k1', 'k2')",
        "rare = 700",
    ],
)
def test_estimates_are_near_the_rows_that_an_index_finds(
    many: glaive.LanceDataset, condition: str
) -> None:
    terms = Views(many.snapshot).filter(condition).terms
    (term,) = choose(many.snapshot, ScanOptions(use_scalar_index=True), terms, Meter())
    found = many.count_rows(condition)
    assert found / 2 <= term.estimate <= 2 * found + 1


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("limit", [None, 2])
def test_few_rows_are_found_in_the_order_of_the_dataset(
    dataset: glaive.LanceDataset, limit: int | None
) -> None:
    """Deleted rows are left out, rows that no index knows are searched, columns may be left out.

    Terms without an index are tested on the rows that were found.
    """
    ids = "id in (3, 20, 210, 599, 650, 850)"
    for condition in (
        "n = 7", ids, "w = 'a' and n = 5", "n = 7 and p = 2", f"{ids} and p + n > 20 and p < 4",
        f"{ids} and _rowid > 200", f"{ids} and p > 4",
    ):  # fmt: skip
        options: dict[str, Any] = {"filter": condition, "limit": limit, "offset": limit and 1}
        scanned = dataset.to_table(["p", "_rowid"], **options, use_scalar_index=False)
        searched = dataset.scanner(["p", "_rowid"], **options, use_scalar_index=True)
        assert searched.to_table().equals(scanned)
        assert pa.Table.from_batches(searched.to_batches(), scanned.schema).equals(scanned)
        assert searched.count_rows() == scanned.num_rows


def test_terms_without_an_index_look_at_the_rows_that_passed_the_terms_before_them_alone(
    tmp_path: Path,
) -> None:
    """The first three rows of 20,000 have a divisor of 0."""
    rows = {"id": range(20_000), "b": [0, 0, 0, *[2] * 19_997], "s": [{"a": 2}] * 20_000}
    made = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=5_000)
    made.create_scalar_index("id", "BTREE")
    seen: list[Any] = []
    condition = "id in (1, 2, 7, 6000, 19999) and b != 0 and s.a / b = 1 and _rowid != 7"
    found = made.to_table(["id"], condition, scan_stats_callback=seen.append)
    assert found["id"].to_pylist() == [6000, 19999]
    assert seen[0].all_counts["rows_scanned"] == 5


def test_rows_that_an_index_only_supposes_are_tested(tmp_path: Path) -> None:
    texts = ["an apple a day", "apples", "pear, apple", "ap ple"] * 50
    made = glaive.write_dataset({"id": range(200), "text": texts}, tmp_path / "t")
    made.create_scalar_index("text", "NGRAM")
    seen: list[Any] = []
    condition = "contains(text, 'n apple a') and id < 9"
    found = made.to_table(["id"], condition, scan_stats_callback=seen.append)
    assert found["id"].to_pylist() == [0, 4, 8]
    assert seen[0].all_counts["rows_scanned"] == 150  # with all of its trigrams


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_rows_that_an_index_found_are_tested_by_the_values_of_blobs_where_these_are_asked_for(
    tmp_path: Path, version: str
) -> None:
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), field])
    rows = pa.table([range(40), [None, b"ab", b"abcd", b"abcde"] * 10], schema=schema)
    made = glaive.write_dataset(rows, tmp_path / "t", data_storage_version=version)
    made.create_scalar_index("id", "BTREE")
    for condition, expected in (("length(blob) > 3", [2, 3]), ("blob is null", [0, 4])):
        for indexed in (True, False):
            asked: dict[str, Any] = {"use_scalar_index": indexed, "blob_handling": "all_binary"}
            found = made.scanner(["id"], filter=f"id < 6 and {condition}", **asked).to_table()
            assert found["id"].to_pylist() == expected
