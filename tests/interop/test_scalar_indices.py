"""Scalar indices both ways: each library finds the rows of a scan by what the other one built."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64
from tests.index.scalar.built import answers, build, check, opened, segments
from tests.index.scalar.values import TYPES, conditions, values_of

from glaive.arrow.conditions import HasText, IsNull
from glaive.errors import UnsupportedFeatureError
from glaive.index.protocol import HasLabels
from glaive.index.row_sets import row_set_of
from glaive.index.scalar.ordering import is_hashed

lance = pytest.importorskip("lance", reason="install the 'interop' group")
IndexConfig: Any = pytest.importorskip("lance.indices").IndexConfig

pytestmark = pytest.mark.interop

EVERY_TYPE = pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])


def write(path: Path, *parts: Any, stable: bool = False) -> Path:
    """A dataset with a fragment for each part of its column ``x``."""
    for part in parts:
        lance.write_dataset(
            pa.table({"x": part}), path, mode="append", enable_stable_row_ids=stable
        )
    return path


def files(path: Path, name: str) -> pa.Table:
    """Rows of a file of the only segment, with its metadata."""
    (segment,) = segments(path)
    return segment.open(name).read()


def questions(kind: Any) -> list[str]:
    """Filters on ``x`` in SQL."""
    types = pa.types
    literals = {
        "true": types.is_boolean(kind),
        "'ä42'": types.is_string(kind) or types.is_large_string(kind),
        "42": types.is_integer(kind),
        "10.5": types.is_floating(kind),
        "date '1970-02-12'": types.is_date32(kind),
        "timestamp '1970-01-01 00:00:42'": kind == pa.timestamp("s"),
    }
    found = ["x IS NULL"]
    for literal in (text for text, fits in literals.items() if fits):
        found += [f"x = {literal}", f"x > {literal}", f"x <= {literal}", f"x != {literal}"]
        found += [f"x IN ({literal}, {literal})", f"NOT (x IS NULL) AND x < {literal}"]
    return found


def check_theirs(path: Path, filters: list[str]) -> None:
    """Pylance uses the index for some filters, and finds with it what it finds without."""
    dataset = lance.dataset(path)
    for text in filters:
        options: dict[str, Any] = {"filter": text, "columns": [], "with_row_id": True}
        scanner = dataset.scanner(**options)
        assert "ScalarIndexQuery" in scanner.explain_plan(), text
        found = sorted(scanner.to_table()["_rowid"].to_pylist())
        plain = dataset.scanner(**options, use_scalar_index=False).to_table()
        assert found == sorted(plain["_rowid"].to_pylist()), text


@pytest.mark.sampled(every=64)
@pytest.mark.spec("btree-4", "kind-3")
@pytest.mark.spec("btree-1")
@pytest.mark.spec("btree-2")
@STABLE
@EVERY_TYPE
def test_b_trees_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    parts = [values_of(kind, 3000, 1), values_of(kind, 2500, 2)]
    theirs = write(tmp_path / "theirs", *parts, stable=stable)
    ours = tmp_path / "ours"
    shutil.copytree(theirs, ours)
    lance.dataset(theirs).create_scalar_index("x", "BTREE")
    build(ours, "x", "btree")
    (their_entry,), (our_entry,) = (
        [one.entry for one in segments(path)] for path in (theirs, ours)
    )
    assert our_entry.index_version == their_entry.index_version
    assert our_entry.index_details == their_entry.index_details
    lookups = [files(path, "page_lookup.lance") for path in (theirs, ours)]
    assert lookups[0].schema.equals(lookups[1].schema, check_metadata=True)
    assert repr(lookups[0].to_pydict()) == repr(lookups[1].to_pydict())
    pages = [files(path, "page_data.lance") for path in (theirs, ours)]
    assert pages[0].schema.equals(pages[1].schema, check_metadata=True)
    assert repr(pages[0]["values"].to_pylist()) == repr(pages[1]["values"].to_pylist())
    assert sorted(pages[0]["ids"].to_pylist()) == sorted(pages[1]["ids"].to_pylist())
    for condition in conditions(parts[0]):
        check(theirs, "x", condition)
    check_theirs(ours, questions(kind))


@pytest.mark.sampled(every=63)
@pytest.mark.spec("bitmap-1")
@STABLE
@EVERY_TYPE
def test_bitmaps_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    parts = [values_of(kind, 1500, 1), values_of(kind, 1000, 2)]
    theirs, ours = both_ways(tmp_path, parts, "BITMAP", "bitmap", stable=stable)
    for condition in conditions(parts[0]):
        check(theirs, "x", condition)
    check_theirs(ours, questions(kind))


@pytest.mark.spec("labels-1")
@STABLE
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.string())], ids=str)
def test_label_lists_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    lists: list[Any] = [None, [], [1, None], [1, 2], [None], [2, 2], [3]] * 30
    if pa.types.is_string(kind.value_type):
        lists = [one and [None if item is None else str(item) for item in one] for one in lists]
    parts = [pa.array(lists, kind), pa.array(lists[::-1], kind)]
    theirs, ours = both_ways(tmp_path, parts, "LABEL_LIST", "labellist", stable=stable)
    first, second = (pa.scalar(lists[3][at], kind.value_type) for at in (0, 1))
    for values, every in (([first], False), ([first, second], True), ([first, second], False)):
        query = HasLabels(pa.array([one.as_py() for one in values], kind.value_type), every)
        found = [answers(path, query, nulls=True) for path in (theirs, ours)]
        assert found[0].rows.rows().tolist() == found[1].rows.rows().tolist()
        unknown = [one.nulls.rows().tolist() for one in found if one.nulls is not None]
        assert unknown[0] == unknown[1]
    literal = "'1'" if pa.types.is_string(kind.value_type) else "1"
    check_theirs(ours, [f"array_has(x, {literal})", f"NOT array_has(x, {literal})"])


def both_ways(
    path: Path, parts: list[Any], theirs: Any, ours: str, *, stable: bool = False, **options: Any
) -> tuple[Path, Path]:
    """A dataset indexed by pylance, and a copy indexed by glaive, which say and hold the same."""
    paths = write(path / "theirs", *parts, stable=stable), path / "ours"
    shutil.copytree(*paths)
    lance.dataset(paths[0]).create_scalar_index("x", theirs)
    build(paths[1], "x", ours, **options)
    entries = [segments(one)[0].entry for one in paths]
    assert entries[0].index_version == entries[1].index_version
    assert entries[0].index_details == entries[1].index_details
    names = [{file.path for file in entry.files} for entry in entries]
    assert names[0] == names[1]
    for name in names[0]:
        stored = [segments(one)[0].open(name) for one in paths]
        assert stored[0].schema.equals(stored[1].schema, check_metadata=True)
        assert stored[0].metadata == stored[1].metadata
        tables = [file.read() for file in stored]
        for column in tables[0].column_names:
            if theirs_has_no(tables[0], column):
                continue
            assert readable(tables[0], column) == readable(tables[1], column)
        for key in ("null_bitmap", "lance:label_list_nulls"):
            if key in stored[0].metadata:
                rows = [rows_of(file.buffer(file.number(key)).to_pybytes()) for file in stored]
                assert rows[0] == rows[1]
    return paths


def theirs_has_no(table: pa.Table, column: str) -> bool:
    """Whether these are bounds of zones of a type for which pylance writes none."""
    return pa.types.is_fixed_size_binary(table[column].type) and column in ("min", "max")


def readable(table: pa.Table, column: str) -> Any:
    """Values of a column, sets of rows as such; NaN equals NaN."""
    values = table[column].to_pylist()
    if column == "bitmaps":
        return [rows_of(one) for one in values]
    if column == "posting_list":
        return [list(BitMap64.deserialize(one)) for one in values]
    return repr(values)


def rows_of(data: bytes) -> list[int]:
    return row_set_of(pa.array([data], pa.binary()), "here", 99).rows().tolist()


SEEDED = {
    pa.int64(): False, pa.float32(): False, pa.date32(): False, pa.binary(4): False,
    pa.string(): True, pa.large_string(): True, pa.binary(): True, pa.decimal256(40, 2): True,
}  # fmt: skip


@pytest.mark.sampled(every=2)
@pytest.mark.spec("zonemap-2")
@pytest.mark.parametrize("kind", SEEDED, ids=str)
def test_details_of_zone_maps_are_those_of_pylance(tmp_path: Path, kind: Any) -> None:
    paths = [write(tmp_path / name, values_of(kind, 5)) for name in ("theirs", "ours")]
    lance.dataset(paths[0]).create_scalar_index("x", IndexConfig("zonemap", {}))
    build(paths[1], "x", "zonemap")
    details = [segments(path)[0].entry.index_details.value for path in paths]
    # Fields 1 to 3; 8192 is a number of two bytes.
    assert details == [bytes([8, 0x80, 0x40, 16, SEEDED[kind], 24, 1])] * 2


@pytest.mark.sampled(every=64)
@pytest.mark.spec("zonemap-1")
@STABLE
@EVERY_TYPE
def test_zone_maps_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    nothing: Any = pa.nulls(250, kind)
    parts = [values_of(kind, 1500, 1), pa.concat_arrays([values_of(kind, 500, 2), nothing])]
    parameters = {"rows_per_zone": 100}
    config = IndexConfig("zonemap", parameters)
    theirs, ours = both_ways(
        tmp_path, parts, config, "zonemap", stable=stable, parameters=parameters
    )
    for condition in conditions(parts[0]):
        check(theirs, "x", condition, exact=isinstance(condition, IsNull))
    check_theirs(ours, [text for text in questions(kind) if "!=" not in text])


@pytest.mark.sampled(every=96)
@pytest.mark.spec("bloom-3")
@pytest.mark.spec("bloom-1")
@pytest.mark.spec("bloom-2")
@STABLE
@pytest.mark.parametrize("kind", [one for one in TYPES.values() if is_hashed(one)], ids=str)
@pytest.mark.parametrize("items", [20, 1000])
def test_bloom_filters_are_those_of_pylance(
    tmp_path: Path, kind: Any, stable: bool, items: int
) -> None:
    parts = [values_of(kind, 1500, 1), values_of(kind, 500, 2)]
    parameters = {"number_of_items": items, "probability": 0.01}
    config = IndexConfig("bloomfilter", parameters)
    theirs, ours = both_ways(
        tmp_path, parts, config, "bloomfilter", stable=stable, parameters=parameters
    )
    for condition in conditions(parts[0]):
        if all(one.answers(condition) for one in opened(theirs)):
            check(theirs, "x", condition, exact=isinstance(condition, IsNull))
    check_theirs(ours, questions(kind)[:2])


@pytest.mark.spec("bloom-3")
def test_types_without_filters_are_those_of_pylance(tmp_path: Path) -> None:
    for name, kind in TYPES.items():
        path = write(tmp_path / name.replace("/", ""), values_of(kind, 20))
        try:
            lance.dataset(path).create_scalar_index("x", IndexConfig("bloomfilter", {}))
        except ValueError:
            assert not is_hashed(kind), name
            with pytest.raises(UnsupportedFeatureError, match="column 'x' of type"):
                build(path, "x", "bloomfilter")
        else:
            assert is_hashed(kind), name


TEXTS = [
    *("Hello World", "", "ab", None, "Straße 99", "ÆSIR", "Ünïcödé", "naïve café", "日本語 abc"),
    *("nul\0l", "hello-world", "x" * 40, "ΣΙΓΜΑ abc", "İstanbul", "ﬁne", "K elvin K"),
]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("ngram-1")
@pytest.mark.spec("ngram-3")
@STABLE
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_trigrams_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    parts = [pa.array(TEXTS * 5, kind), pa.array(TEXTS[::-1] * 3, kind)]
    theirs, ours = both_ways(tmp_path, parts, "NGRAM", "ngram", stable=stable)
    for word in ("hello", "Hello", "World", "raße", "Ünï", "xxx", "café", "zzz", "abc"):
        certain = word not in ("raße", "Ünï")
        assert all(one.answers(HasText(word=word)) for one in opened(theirs)) == certain
        if certain:
            check(theirs, "x", HasText(word=word), exact=False)
    if kind == pa.string():
        check_theirs(ours, ["contains(x, 'hello')", "contains(x, 'café')", "contains(x, 'zzz')"])


@pytest.mark.sampled(every=3)
@STABLE
@pytest.mark.parametrize("kind", ["btree", "bitmap", "zonemap", "bloomfilter", "ngram"])
def test_pylance_optimizes_what_glaive_built(tmp_path: Path, kind: str, stable: bool) -> None:
    path = write(tmp_path / "d", values_of(pa.string(), 800, 1), stable=stable)
    build(path, "x", kind)
    write(path, values_of(pa.string(), 600, 2), stable=stable)
    lance.dataset(path).optimize.optimize_indices()
    covered = [one for old in segments(path) for one in BitMap.deserialize(fragments_of(old))]
    assert sorted(covered) == [0, 1]
    for condition in (IsNull(), HasText(word="ä42", begins=True, ends=True)):
        if all(one.answers(condition) for one in opened(path)):
            check(path, "x", condition, exact=False)
    check_theirs(path, ["contains(x, 'abc')" if kind == "ngram" else "x = 'ä42'"])


def fragments_of(segment: Any) -> bytes:
    covered: bytes = segment.entry.fragment_bitmap
    return covered
