"""Damaged files of scalar indices end in errors that name them; searches ask for few ranges."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow.conditions import HasText, InRange, IsNull, IsOneOf
from glaive.errors import CorruptFileError, GlaiveError, UnsupportedFeatureError
from glaive.index.protocol import HasLabels, index_kinds
from glaive.index.segment import Segment, SegmentWriter
from glaive.testing import CountingStore

from .built import build, merge, opened, segments
from .test_btree import write
from .values import values_of

KINDS = ["btree", "bitmap", "labellist", "zonemap", "bloomfilter", "ngram"]


def make(path: Path, kind: str) -> Path:
    """A small dataset with an index."""
    values: Any = values_of(pa.string(), 500, 1)
    if kind == "labellist":
        values = pa.array([[one, "z"] if one else None for one in values.to_pylist()])
    write(path, [values])
    parameters = {"zonemap": {"rows_per_zone": 50}, "bloomfilter": {"number_of_items": 50}}
    build(path, "x", kind, parameters.get(kind))
    return path


def search_everything(path: Path) -> None:
    some = pa.array(["ä42", "ä4", "q"])
    queries: list[Any] = [
        *(IsNull(), IsNull(negated=True), IsOneOf(some), IsOneOf(some, negated=True)),
        *(InRange(low=some[1], high=some[0]), HasText(word="ä4", begins=True)),
        *(HasText(word="abc"), HasLabels(some[:2]), HasLabels(some, every=True)),
    ]
    for one in opened(path):
        for query in queries:
            if one.answers(query):
                one.estimate(query)
                found = one.search(query, nulls=True)
                assert bool((found.rows.starts < found.rows.stops).all())


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_give_an_answer_or_an_error_that_is_ours(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path / "d", kind)
    random = np.random.default_rng(7)
    for file in sorted((path / "_indices").rglob("*.lance")):
        sound = file.read_bytes()
        refused = 0
        for at in random.integers(0, len(sound), 80).tolist():
            damaged = bytearray(sound)
            damaged[at] ^= 1 << int(random.integers(0, 8))
            file.write_bytes(damaged)
            try:
                search_everything(path)
            except GlaiveError:
                refused += 1
        assert refused
        for size in (0, 1, len(sound) // 2, len(sound) - 1):
            file.write_bytes(sound[:size])
            with pytest.raises(GlaiveError, match=file.name):
                search_everything(path)
        file.write_bytes(sound)
    search_everything(path)


def replaced(
    path: Path, name: str, change: Callable[[pa.Table], pa.Table], **metadata: str
) -> Segment:
    """The segment with other rows, and further metadata, in one of its files; buffers stay."""
    (segment,) = segments(path)
    before = segment.open(name)
    rows = change(before.read())
    target = Path(path) / segment.folder / name
    target.unlink()
    made = SegmentWriter(segment.store, glaive.dataset(str(path)).manifest.data_format)
    said = {**before.metadata, **metadata}
    named = [key for key in said if key.endswith(("_buffer", "null_bitmap"))]
    buffers = {key: before.buffer(int(said.pop(key))).to_pybytes() for key in named}
    made.write(name, rows, metadata=said, buffers=buffers)
    (Path(path) / made.folder / name).rename(target)
    return segment


def column(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)
        made = pa.array(values(rows[name].to_pylist()), field.type)
        return rows.set_column(at, field.with_nullable(nullable=True), made)

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("page_lookup.lance", lambda rows: rows[:1], "page_idx from 0 to 2, for 9000 rows"),
        ("page_lookup.lance", column("page_idx", lambda old: old[::-1]), "page_idx from 0 to 2"),
        ("page_lookup.lance", column("max", lambda old: [*old[:-1], -1]), "bounds in ascending"),
        ("page_lookup.lance", column("min", lambda old: old[::-1]), "bounds in ascending order"),
        (
            "page_lookup.lance",
            column("null_count", lambda old: [1, *old[1:]]),
            "bounds in ascending",
        ),
        (
            "page_lookup.lance",
            column("null_count", lambda old: [None, *old[1:]]),
            "a value for each",
        ),
        ("page_data.lance", lambda rows: rows[:5000], "page_idx from 0 to 1, for 5000 rows"),
        ("page_data.lance", column("ids", lambda old: [None, *old[1:]]), "a value for each"),
        ("page_data.lance", column("ids", lambda old: [2**64 - 1] * len(old)), "below 2.64 - 1"),
    ],
    ids=[
        *("fewer pages", "pages in disorder", "max below min", "min in disorder", "nulls later"),
        *("no count", "fewer rows", "a null row", "rows that no dataset has"),
    ],
)
def test_damaged_pages_are_named(
    tmp_path: Path, file: str, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = write(tmp_path / "d", [pa.array(range(9000))])
    build(path, "x", "btree")
    replaced(path, file, change)
    # Where the files differ, the bounds are named.
    named = "page_lookup.lance" if "page_idx" in message else file
    with pytest.raises(CorruptFileError, match=rf"(?s){message}.*{named}"):
        [one.search(IsOneOf(pa.array([5]))) for one in opened(path)]


@pytest.mark.spec("btree-1", "rel-25")
@pytest.mark.parametrize("value", [pa.int64(), pa.string(), pa.decimal128(9, -2)], ids=str)
@pytest.mark.parametrize("last", [3, None], ids=["lower", "null"])
def test_values_in_disorder_do_not_keep_a_merge_of_b_trees_from_its_end(
    tmp_path: Path, value: Any, last: int | None
) -> None:
    shown = "{:04}".format if value == pa.string() else Decimal if "dec" in str(value) else int
    numbers: list[Any] = [shown(100 * one) for one in range(2000)]
    path = write(tmp_path / "d", [pa.array(numbers, value), pa.array(numbers[:9], value)])
    build(path, "x", "btree", fragments=[0])
    # The last of those that are read first is below those before it.
    disorder = [*numbers[:1], *numbers[700:954], last and numbers[last], *numbers[256:]]
    replaced(path, "page_data.lance", column("values", lambda _: disorder))
    with pytest.raises(CorruptFileError, match=r"values in ascending order.*page_data\.lance"):
        merge(path, "x", "btree", new=[1])


@pytest.mark.parametrize("number", ["", "x", "-1", "9" * 5000, str(2**62)])
@pytest.mark.parametrize(
    ("kind", "setting"), [("zonemap", "rows_per_zone"), ("bloomfilter", "bloomfilter_item")]
)
def test_zones_of_a_size_that_cannot_be_are_not_merged(
    tmp_path: Path, kind: str, setting: str, number: str
) -> None:
    path = write(tmp_path / "d", [pa.array([1, None]), pa.array([3, None])])
    build(path, "x", kind, fragments=[0])
    replaced(path, f"{kind}.lance", lambda rows: rows, **{setting: number})
    with pytest.raises(CorruptFileError, match=rf"{setting}|number_of_items"):
        merge(path, "x", kind, new=[1])


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("name", ["min", "max", "nan_count"])
def test_zones_without_bounds_are_neither_searched_nor_merged(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / "d", "zonemap")
    segment = replaced(path, "zonemap.lance", lambda rows: rows.drop([name]))
    zonemap = index_kinds()["zonemap"]
    version = glaive.dataset(str(path)).manifest.data_format
    with pytest.raises(CorruptFileError, match=f"column '{name}' of an index"):
        zonemap.open(segment)
    with pytest.raises(CorruptFileError, match=f"column '{name}' of an index"):
        zonemap.merge([segment], None, SegmentWriter(segment.store, version))


@pytest.mark.spec("fm-1", "rel-42")
@pytest.mark.parametrize(
    "starts",
    [[0, 3, 3, 6], [1, 3, 6, 9], [0, 3, 6, 11], [0, 3, 1 - 2**63, -1]],
    ids=["equal", "from 1 on", "behind the end", "overflowing"],
)
def test_texts_that_do_not_follow_each_other_are_damage(tmp_path: Path, starts: list[int]) -> None:
    path = write(tmp_path / "d", [pa.array(["ab", "cd", "ef", "g"])])
    build(path, "x", "fm")
    said = np.array(starts, np.int64).tobytes().hex()
    segment = replaced(path, "part_0_fm.lance", lambda rows: rows, doc_start_positions=said)
    out = SegmentWriter(segment.store, glaive.dataset(str(path)).manifest.data_format)
    with pytest.raises(CorruptFileError, match=r"one after the other.*part_0_fm\.lance"):
        index_kinds()["fm"].merge([segment, segment], None, out)


@pytest.mark.spec("btree-4")
def test_partitioned_b_trees_are_not_searched(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(range(10))])
    build(path, "x", "btree")

    replaced(path, "page_lookup.lance", lambda rows: rows, range_partitioned="true")
    with pytest.raises(UnsupportedFeatureError, match="range-partitioned"):
        opened(path)


@pytest.mark.spec("btree-2")
def test_a_value_is_found_with_at_most_three_requests(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(np.random.default_rng(1).permutation(200_000))])
    build(path, "x", "btree")
    (segment,) = segments(path)
    store = CountingStore(segment.store)
    one: Any = index_kinds()["btree"].open(Segment(store, segment.entry))
    assert store.requests <= 5  # both footers, the bounds, where chunks of values and rows are
    for query, most, rows in (
        (IsOneOf(pa.array([17])), 2, 1),
        (IsOneOf(pa.array([4711])), 3, 1),
        (IsOneOf(pa.array([5, 100_000, 199_999])), 6, 3),
        (InRange(low=pa.scalar(50_000), high=pa.scalar(99_999)), 4, 50_000),
        (IsNull(), 1, 0),
    ):
        store.reset()
        assert one.search(query).rows.count == rows
        assert store.requests <= most
        assert store.bytes_read < 1 << 20
