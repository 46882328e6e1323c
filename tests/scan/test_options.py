"""What a scan can be told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.scan.options import DEFAULT_BATCH_SIZE, ScanOptions


def test_none_means_the_default() -> None:
    assert ScanOptions.of(limit=None, batch_size=None, filter=None, nearest=None) == ScanOptions()
    assert ScanOptions().batch_size == DEFAULT_BATCH_SIZE == 8192


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
    ],
)
def test_a_value_that_cannot_be_names_the_option(option: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{option}: expected"):
        ScanOptions.of(**{option: value})


def test_an_unknown_option_suggests_a_known_one() -> None:
    with pytest.raises(OptionError, match=r"'bach_size'; did you mean 'batch_size'"):
        ScanOptions.of(bach_size=10)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("filter", "a > 1"),
        ("nearest", {"column": "v", "q": [1.0]}),
        ("full_text_query", "hello"),
        ("order_by", ["a"]),
        ("include_deleted_rows", True),
    ],
)
def test_what_is_not_served_yet_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{option}.*not supported yet"):
        ScanOptions.of(**{option: value})


def test_tuning_of_what_is_not_there_has_no_effect() -> None:
    tuned = ScanOptions.of(
        prefilter=True, use_stats=False, io_buffer_size=1 << 20, late_materialization=True
    )
    assert tuned == ScanOptions()
