"""Quicker ways are taken where they should be; where they give up, that is counted."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.scan.options import Meter, ScanStatistics
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.take import take
from glaive.scan.views import Views

from .cold_files import forget

FILES, ROWS = 10, 9
BULK = "fragments_read_in_bulk"
DAY = dt.date(2020, 1, 1)
MOMENT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])

Maker = Callable[[int], Any]


def pair(number: int) -> dict[str, object]:
    return {"x": number, "y": None if number % 3 else str(number)}


COLUMNS: dict[str, tuple[pa.DataType, Maker]] = {
    "int8": (pa.int8(), lambda n: n % 100),
    "uint32": (pa.uint32(), lambda n: n),
    "float16": (pa.float16(), np.float16),
    "float64": (pa.float64(), lambda n: n / 2),
    "flag": (pa.bool_(), lambda n: n % 3 == 0),
    "decimal": (pa.decimal128(10, 2), Decimal),
    "wide_decimal": (pa.decimal256(40, 2), Decimal),
    "date": (pa.date32(), lambda n: DAY + dt.timedelta(n)),
    "time": (pa.time64("us"), lambda n: dt.time(1, 2, n % 60)),
    "moment": (pa.timestamp("us", "UTC"), lambda n: MOMENT + dt.timedelta(n)),
    "duration": (pa.duration("s"), dt.timedelta),
    "string": (pa.string(), str),
    "large_string": (pa.large_string(), str),
    "binary": (pa.binary(), lambda n: b"b%d" % n),
    "digest": (pa.binary(5), lambda n: bytes([n]) * 5),
    "vector": (pa.list_(pa.float32(), 3), lambda n: [n, n + 0.5, None]),
    "matrix": (pa.list_(pa.list_(pa.int8(), 2), 2), lambda n: [[n % 9, 1], [2, 3]]),
    "list": (pa.list_(pa.int16()), lambda n: list(range(n % 4))),
    "strings": (pa.large_list(pa.string()), lambda n: [str(n)] * (n % 3)),
    "lists": (pa.list_(pa.list_(pa.int8())), lambda n: [[1, 2], []] * (n % 3)),
    "nothing": (pa.null(), lambda _: None),
}
SINCE_2_0: dict[str, tuple[pa.DataType, Maker]] = {
    "word": (pa.dictionary(pa.int8(), pa.string()), lambda n: f"w{n % 3}")
}
SINCE_2_1: dict[str, tuple[pa.DataType, Maker]] = {
    "struct": (PAIR, pair),
    "nested": (pa.struct([("a", PAIR), ("l", pa.list_(PAIR))]), lambda n: {"a": pair(n), "l": []}),
    "structs": (pa.list_(PAIR), lambda n: [pair(n), None] * (n % 2)),
}
SINCE_2_2: dict[str, tuple[pa.DataType, Maker]] = {
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [(f"k{n}", n)]),
    "fixed_structs": (pa.list_(PAIR, 2), lambda n: [pair(n), pair(n + 1)]),
}
BULK_VERSIONS = {"2.0", "2.1", "2.2", "2.3"}
OF_VERSION = {
    "0.1": COLUMNS,
    "2.0": COLUMNS | SINCE_2_0,
    "2.1": COLUMNS | SINCE_2_0 | SINCE_2_1,
    "2.2": COLUMNS | SINCE_2_0 | SINCE_2_1 | SINCE_2_2,
    "2.3": COLUMNS | SINCE_2_0 | SINCE_2_1 | SINCE_2_2,
}


def make(first: int, version: str) -> pa.Table:
    numbers = range(first, first + ROWS)
    columns: dict[str, Any] = {"id": pa.array(numbers, pa.int64())}
    for name, (kind, value) in OF_VERSION[version].items():
        values = [None if number % 7 == 3 else value(number) for number in numbers]
        if pa.types.is_dictionary(kind):
            columns[name] = pa.array(values, pa.string()).dictionary_encode().cast(kind)
        else:
            columns[name] = pa.array(values, kind)
    return pa.table(columns)


def store(place: Any, version: str) -> LanceDataset:
    for at in range(FILES):
        table = make(at * ROWS, version)
        dataset = glaive.write_dataset(table, place, mode="append", data_storage_version=version)
    return dataset


def counts(dataset: LanceDataset, **options: Any) -> dict[str, int]:
    """Fragments read in bulk, and given-up ways, of a scan as a table and in batches."""
    reported: list[ScanStatistics] = []
    dataset.to_table(**options, scan_stats_callback=reported.append)
    list(dataset.to_batches(**options, scan_stats_callback=reported.append))
    assert len(reported) == 2
    assert reported[0].all_counts.get(BULK) == reported[1].all_counts.get(BULK)
    found = reported[0].all_counts | reported[1].all_counts
    return {name: found[name] for name in found if name == BULK or name.startswith("fallback")}


def take_rows(
    dataset: LanceDataset, rows: Any, columns: list[str] | None, meter: Meter
) -> pa.Table:
    """A take that meets all fragments for the first time."""
    snapshot = Snapshot(dataset.store, dataset.manifest, Session())
    return take(Views(snapshot).take(columns and tuple(columns)), rows, meter)


@pytest.mark.sampled(every=18)
@pytest.mark.parametrize("place", ["mapped", "cold", "memory"])
@pytest.mark.parametrize("version", OF_VERSION)
def test_no_quicker_way_is_given_up_for_any_type_of_a_version(
    tmp_path: Path, version: str, place: str
) -> None:
    if place == "cold" and not hasattr(os, "posix_fadvise"):
        pytest.skip("no way to drop files from memory")
    local = tmp_path / "t"
    dataset = store(f"memory://{tmp_path.name}/t" if place == "memory" else local, version)
    if place == "cold":
        forget(local)
    bulk = {BULK: FILES} if version in BULK_VERSIONS and place != "memory" else {}
    names = dataset.schema.names
    assert counts(dataset, columns=names) == bulk
    for name in names:
        assert counts(dataset, columns=["id"], filter=f"{name} is not null") == bulk
    assert counts(dataset, columns=["string"], filter="id >= 20 and float64 < 30") == bulk
    assert counts(dataset, columns=["id"], order_by=["float64"], limit=7) == {}
    if place == "cold":
        forget(local)
    meter = Meter()
    rows = np.random.default_rng(0).permutation(FILES * ROWS)[:60]
    assert take_rows(dataset, rows, names, meter)["id"].to_pylist() == rows.tolist()
    assert dict(meter.counts) == bulk


def test_deleted_rows_are_no_reason_to_give_up(tmp_path: Path) -> None:
    dataset = store(tmp_path / "t", "2.1")
    dataset.delete("id % 5 = 0")
    assert counts(dataset) == {BULK: FILES}
    assert counts(dataset, filter="id > 12") == {BULK: FILES}
    meter = Meter()
    assert take_rows(dataset, [0, 9, 20, 30, 41, 50, 60], None, meter).num_rows == 7
    assert meter.counts["fallbacks"] == 0


def test_a_filter_that_fails_at_a_deleted_row_is_evaluated_on_the_others(tmp_path: Path) -> None:
    dataset = store(tmp_path / "t", "2.1")
    dataset.delete("id = 0")
    query = "100 / id > 2"
    assert dataset.to_table(["id"], query)["id"].to_pylist() == list(range(1, 34))
    reason = "filtered scan of small fragments: the filter failed at some row"
    assert counts(dataset, filter=query) == {"fallbacks": 1, f"fallbacks, {reason}": 1}


def outcome(read: Callable[[], pa.Table]) -> object:
    try:
        return read().to_pylist()
    except GlaiveError as error:
        return type(error), str(error)


def damage(dataset: LanceDataset, path: Path, number: int) -> str:
    """Cut the footer off a fragment's file; its name."""
    file = dataset.get_fragments()[number].data_files()[0].path
    victim = path / "data" / file
    victim.write_bytes(victim.read_bytes()[:-60] + bytes(60))
    return file


def test_a_damaged_file_is_read_by_itself_and_that_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = store(tmp_path / "t", "2.1")
    file = damage(dataset, tmp_path / "t", 3)
    damaged = glaive.dataset(tmp_path / "t")
    single = outcome(damaged.get_fragments()[3].to_table)
    assert isinstance(single, tuple)
    assert file in single[1]
    caplog.set_level("DEBUG", "glaive.scan")
    assert outcome(glaive.dataset(tmp_path / "t").to_table) == single
    assert "scan of small fragments: a footer is damaged" in caplog.text
    meter = Meter()
    with pytest.raises(GlaiveError, match=file):
        take_rows(damaged, list(range(0, FILES * ROWS, 9)), None, meter)
    assert meter.counts["fallbacks"] == 1
    sound = [fragment for fragment in damaged.get_fragments() if fragment.fragment_id != 3]
    assert counts(damaged, fragments=sound) == {BULK: FILES - 1}


def test_a_file_that_must_be_read_by_itself_gives_its_rows_and_is_counted(tmp_path: Path) -> None:
    words = [letter * 4000 for letter in "abc"]
    table = pa.table({"id": range(600), "t": [words[at % 3] for at in range(600)]})
    for _ in range(120):  # values far larger than their dictionaries
        dataset = glaive.write_dataset(table, tmp_path / "t", mode="append")
    reason = "scan of small fragments: values are far larger than their dictionaries"
    assert counts(dataset) == {"fallbacks": 1, f"fallbacks, {reason}": 1}
    assert f"fallbacks, filtered {reason}: 1" in (dataset.scanner(["id"], "t = 'x'").analyze_plan())
    assert dataset.count_rows("t is not null") == 120 * 600
