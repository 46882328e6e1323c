"""Zone maps and bloom filters: built, merged, searched."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.arrow.conditions import HasText, InRange, IsNull, IsOneOf
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.bitmaps import filter_bytes
from glaive.index.scalar.ordering import is_hashed

from .built import answers, build, check, merge, opened, segments
from .test_btree import EVERY_TYPE, write
from .values import conditions, values_of

SMALL: dict[str, dict[str, Any]] = {
    "zonemap": {"rows_per_zone": 100},
    "bloomfilter": {"number_of_items": 100, "probability": 0.01},
}


@pytest.mark.sampled(every=32)
@pytest.mark.spec("zonemap-1")
@EVERY_TYPE
def test_no_row_is_missed_by_bounds(tmp_path: Path, kind: Any) -> None:
    nothing: Any = pa.nulls(250, kind)
    parts = [values_of(kind, 2500, 2), pa.concat_arrays([values_of(kind, 1000, 1), nothing])]
    path = write(tmp_path / "d", parts)
    build(path, "x", "zonemap", SMALL["zonemap"])
    for condition in conditions(parts[0]):
        check(path, "x", condition, exact=isinstance(condition, IsNull))


@pytest.mark.sampled(every=16)
@pytest.mark.spec("bloom-1")
@EVERY_TYPE
def test_no_row_is_missed_by_filters(tmp_path: Path, kind: Any) -> None:
    path = write(tmp_path / "d", [values_of(kind, 2500, 2)])
    if not is_hashed(kind):
        with pytest.raises(UnsupportedFeatureError, match="column 'x' of type"):
            build(path, "x", "bloomfilter", SMALL["bloomfilter"])
        return
    build(path, "x", "bloomfilter", SMALL["bloomfilter"])
    asked = 0
    for condition in conditions(values_of(kind, 2500, 2)):
        if all(one.answers(condition) for one in opened(path)):
            check(path, "x", condition, exact=isinstance(condition, IsNull))
            asked += 1
    assert asked > 4


@pytest.mark.spec("zone-1")
@pytest.mark.spec("zone-2")
@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", SMALL)
def test_zones_do_not_depend_on_how_rows_are_read(
    tmp_path: Path, batch_rows: int, kind: str
) -> None:
    parts = [pa.array([*range(100), None] * 5), pa.array([7] * 33)]
    path = write(tmp_path / "d", parts)
    glaive.dataset(str(path)).delete("x % 10 = 3")
    parameters = {"zonemap": {"rows_per_zone": 64}, "bloomfilter": {"number_of_items": 64}}[kind]
    build(path, "x", kind, parameters, batch_rows=batch_rows)
    (segment,) = segments(path)
    rows = segment.open(f"{kind}.lance").read().to_pydict()
    live = [at for at in range(505) if at % 101 == 100 or at % 101 % 10 != 3]
    zones = [live[at : at + 64] for at in range(0, len(live), 64)]
    assert rows["fragment_id"] == [0] * len(zones) + [1]
    assert rows["zone_start"] == [*(zone[0] for zone in zones), 0]
    assert rows["zone_length"] == [*(zone[-1] - zone[0] + 1 for zone in zones), 33]
    if kind == "zonemap":
        values = [*range(100), None] * 5
        present = [[values[at] for at in zone if values[at] is not None] for zone in zones]
        assert rows["min"] == [*map(min, present), 7]
        assert rows["max"] == [*map(max, present), 7]
        assert rows["null_count"] == [
            len(a) - len(b) for a, b in zip(zones, present, strict=True)
        ] + [0]
    assert answers(path, IsNull()).rows.rows().tolist() == [100, 201, 302, 403, 504]


@pytest.mark.parametrize("kind", SMALL)
def test_merged_segments_have_the_zones_of_all(tmp_path: Path, kind: str) -> None:
    parts = [values_of(pa.int32(), 1000, seed) for seed in range(4)]
    path = write(tmp_path / "d", parts)
    build(path, "x", kind, SMALL[kind], fragments=[0, 1])
    build(path, "x", kind, SMALL[kind], fragments=[2])
    merge(path, "x", kind, new=[3])
    (segment,) = segments(path)
    file = segment.open(f"{kind}.lance")
    assert file.num_rows == 40
    for condition in (IsNull(), IsOneOf(parts[3][:2].drop_null())):
        assert check(path, "x", condition, exact=isinstance(condition, IsNull))


def test_segments_with_other_zones_are_not_merged(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([1, 2]), pa.array([3])])
    for fragment, rows in enumerate((10, 20)):
        build(path, "x", "zonemap", {"rows_per_zone": rows}, fragments=[fragment])
    with pytest.raises(UnsupportedFeatureError, match=r"rows_per_zone \(10, 20\)"):
        merge(path, "x", "zonemap")


def test_few_zones_are_left_where_values_are_sorted(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(range(10_000))])
    build(path, "x", "zonemap", SMALL["zonemap"])
    (one,) = opened(path)
    for query, zones in (
        (IsOneOf(pa.array([5, 50, 777])), 2),
        (InRange(low=pa.scalar(150), high=pa.scalar(450)), 4),
        (InRange(low=pa.scalar(100), low_included=False, high=pa.scalar(101)), 1),
        (InRange(high=pa.scalar(-1)), 0),
    ):
        assert one.search(query).rows.count == zones * 100
        assert one.estimate(query) == zones * 100


@pytest.mark.spec("zonemap-3")
def test_zones_with_nan_may_pass_any_range(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([1.0, -math.nan, 2.0, 3.0, 4.0, 5.0])])
    build(path, "x", "zonemap", {"rows_per_zone": 2})
    (one,) = opened(path)
    assert one.search(InRange(high=pa.scalar(0.0))).rows.rows().tolist() == [0, 1]
    assert one.search(InRange(low=pa.scalar(5.0))).rows.rows().tolist() == [0, 1, 4, 5]


def test_texts_are_found_by_how_they_begin(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(["apple", "apt", "bear", "bee", "zoo", "\U0010ffff"])])
    build(path, "x", "zonemap", {"rows_per_zone": 2})
    (one,) = opened(path)
    for word, wanted in (("ap", [0, 1]), ("be", [2, 3]), ("\U0010ffff", [4, 5]), ("c", [])):
        found = one.search(HasText(word=word, begins=True)).rows.rows().tolist()
        assert found == wanted


@pytest.mark.spec("rel-12")
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_both_zeros_are_found_between_zero_and_zero(tmp_path: Path, kind: Any) -> None:
    zeros = pa.array([0.0, -0.0, 1.0, None, -0.0, 0.0], kind)
    dataset = glaive.write_dataset(pa.table({"x": zeros}), tmp_path / "d", max_rows_per_file=1)
    dataset.create_scalar_index("x", "BLOOMFILTER")
    for text in ("x between 0 and 0", "x between 0.0 and -0.0", "x >= 0 and x <= -0.0", "x = 0"):
        assert dataset.count_rows(text) == 4, text


@pytest.mark.spec("bloom-2")
@pytest.mark.parametrize(
    ("items", "probability", "size"),
    [
        (8192, 0.00057, 32_768),
        (4096, 0.00057, 16_384),
        (1000, 0.01, 2048),
        (1000, 0.001, 4096),
        (100, 0.1, 128),
        (100, 0.01, 256),
        (50, 0.01, 128),
        (10, 0.5, 32),
        (1, 1e-300, 1024),
        (8192, 1e-300, 8_388_608),
    ],
)
def test_filters_have_the_size_for_their_probability(
    items: int, probability: float, size: int
) -> None:
    assert filter_bytes(items, probability) == size


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("zonemap", {"rows_per_zone": 0}, "rows_per_zone: expected an integer from 1"),
        ("zonemap", {"rows_per_zone": 2.5}, "rows_per_zone: expected an integer from 1"),
        ("zonemap", {"row_per_zone": 1}, "unknown; did you mean 'rows_per_zone'"),
        ("bloomfilter", {"probability": 1.0}, "probability: expected a number between 0 and 1"),
        ("bloomfilter", {"number_of_items": True}, "number_of_items: expected an integer"),
        ("btree", {"a": 1}, "parameter 'a' is unknown. Parameters of BTREE: zone_size"),
        ("bitmap", {"a": 1}, "parameter 'a' is unknown. Parameters of BITMAP: none"),
    ],
)
def test_parameters_that_no_kind_has_and_wrong_ones_are_named(
    tmp_path: Path, kind: str, parameters: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "d", [pa.array([1])])
    with pytest.raises(OptionError, match=message):
        build(path, "x", kind, parameters)


def test_parameters_of_other_kinds_of_indices_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([1])])
    for kind in ("zonemap", "bloomfilter", "btree", "bitmap"):
        build(path, "x", kind, {"num_partitions": 0, "num_bands": "x"}, name=kind)
