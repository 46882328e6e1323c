"""What a scan can be told."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.bitmap import Bitmap
from glaive.query import MultiMatchQuery

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment import LanceFragment
from glaive.errors import GlaiveError, OptionError, UnsupportedFeatureError
from glaive.scan.options import FragmentScanKeywords, HeadKeywords, ScanKeywords, ScanOptions
from glaive.scan.run.compare import ColumnOrdering


def test_none_means_the_default() -> None:
    assert ScanOptions.of(limit=None, batch_size=None, filter=None, nearest=None) == ScanOptions()
    assert ScanOptions().batch_size == 8192


@pytest.mark.parametrize(
    ("said", "rows"),
    [("30", [30, 30, 30, 10]), ("60", [60, 40]), *((text, [100]) for text in ("", "0", "-5", "x"))],
)
def test_rows_per_batch_that_nobody_gave_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, rows: list[int]
) -> None:
    dataset = glaive.write_dataset(pa.table({"k": range(100)}), tmp_path / "d")
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", said)
    calls: list[int] = []

    @glaive.batch_udf(output_schema=pa.schema([("new", pa.int64())]))
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return pa.record_batch({"new": batch["k"]})

    fragment = dataset.get_fragment(0)
    assert fragment is not None
    for batches in (
        dataset.to_batches(),
        dataset.scanner(strict_batch_size=True, batch_size=None).to_reader(),
        dataset.to_batches(filter="k >= 0"),
        fragment.to_batches(),
    ):
        assert [batch.num_rows for batch in batches] == rows
    assert [batch.num_rows for batch in dataset.to_batches(batch_size=50)] == [50, 50]
    dataset.add_columns(doubled, read_columns=["k"])
    assert calls == rows


def test_whole_numbers_of_any_kind_are_taken() -> None:
    assert ScanOptions.of(limit=np.int64(5), offset=np.uint8(2)).limit == 5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("limit", -1),
        ("limit", 2.5),
        ("limit", "3"),
        ("limit", True),
        ("offset", -1),
        ("batch_size", 0),
        ("batch_size_bytes", 0),
        ("batch_readahead", 0),
        ("with_row_id", 1),
        ("scan_in_order", "yes"),
        ("fragments", 3),
        ("fragments", ["a"]),
        ("columns", {"a": 1}),
        ("order_by", 3),
        ("order_by", [3]),
        ("late_materialization", "a"),
        ("use_stats", 1),
        ("prefilter", "yes"),
        ("io_buffer_size", -1),
        ("scan_stats_callback", 3),
    ],
)
def test_a_value_that_cannot_be_names_the_option(option: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{option}: expected"):
        ScanOptions.of(**{option: value})


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), np.array([[1]]), np.array([9], np.uint64), pa.array([1]), [1]]
)
def test_arrays_are_no_integers(tmp_path: Path, value: Any) -> None:
    data = pa.table({"a": ["x"], "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
    dataset = glaive.write_dataset(data, tmp_path / "d")
    calls: list[Callable[[], object]] = [
        lambda: dataset.scanner(limit=value),
        lambda: dataset.scanner(fragments=[value]),
        lambda: dataset.scanner(late_materialization=value).to_table(),
        lambda: dataset.to_table(nearest={"column": "v", "q": [1, 2], "k": value}),
        lambda: dataset.to_table(full_text_query=MultiMatchQuery("x", value)),
        lambda: dataset.get_fragment(value),
        lambda: dataset.checkout_version(value),
        lambda: dataset.optimize.optimize_indices(num_indices_to_merge=value),
        lambda: dataset.cleanup_old_versions(delete_rate_limit=value),
        lambda: Bitmap([value]),
    ]
    for call in calls:
        with pytest.raises(GlaiveError):
            call()


def test_an_unknown_option_suggests_a_known_one() -> None:
    with pytest.raises(OptionError, match=r"'bach_size'; did you mean 'batch_size'"):
        ScanOptions.of(bach_size=10)


@pytest.mark.parametrize(("option", "value"), [("index_segments", ["0"]), ("aggregate", b"plan")])
def test_options_that_have_no_effect_here_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{option}.*is not supported"):
        ScanOptions.of(**{option: value})


def test_a_search_beside_a_filter_is_refused_and_the_filter_alone_is_taken() -> None:
    assert ScanOptions.of(filter={"expr_filter": "a > 1"}).filter == "a > 1"
    with pytest.raises(UnsupportedFeatureError, match="search_filter"):
        ScanOptions.of(filter={"expr_filter": "a > 1", "search_filter": object()})
    with pytest.raises(OptionError, match="expected the keys"):
        ScanOptions.of(filter={"a": 1})


def test_tuning_of_what_is_not_there_has_no_effect() -> None:
    tuned = ScanOptions.of(prefilter=False, fast_search=False, use_scalar_index=None)
    assert tuned == ScanOptions()


def test_options_that_exclude_each_other_say_so() -> None:
    with pytest.raises(OptionError, match="strict_batch_size and batch_size_bytes"):
        ScanOptions.of(strict_batch_size=True, batch_size_bytes=100)
    with pytest.raises(OptionError, match=r"include_deleted_rows.*Set with_row_id"):
        ScanOptions.of(include_deleted_rows=True)
    with pytest.raises(OptionError, match="filter and substrait_filter"):
        ScanOptions.of(filter="a", substrait_filter=b"a")


def test_an_order_is_given_by_names_or_orderings() -> None:
    given = ScanOptions.of(order_by=["a", ColumnOrdering("b", ascending=False)])
    assert given.order_by == (ColumnOrdering("a"), ColumnOrdering("b", False, False))


@pytest.mark.parametrize("method", ["scanner", "to_table", "to_batches", "to_pandas"])
@pytest.mark.parametrize("kind", [LanceDataset, LanceFragment])
def test_signatures_show_every_option(kind: type, method: str) -> None:
    shown = inspect.signature(getattr(kind, method)).parameters
    named = {field.name for field in dataclasses.fields(ScanOptions)}
    assert named | {"nearest", "full_text_query", "prefilter"} <= shown.keys()
    assert shown["batch_size"].default is None
    assert shown["scan_in_order"].default is True


def test_keywords_of_scans_are_the_options_there_are() -> None:
    named = {field.name for field in dataclasses.fields(ScanOptions)}
    keywords = ScanKeywords.__annotations__.keys() | HeadKeywords.__annotations__.keys()
    assert named <= keywords | FragmentScanKeywords.__annotations__.keys()
    assert ScanOptions.of(**dict.fromkeys(keywords)) == ScanOptions()
