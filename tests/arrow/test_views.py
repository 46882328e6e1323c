"""Rows with views, which may share their bytes: cut into parts of few bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.damaged_views import equal_views

from glaive.arrow.chunked import check_views, cut_views, has_views
from glaive.errors import CapacityError

TEXTS = equal_views(pa.string_view(), 20, 2**26)
LISTS = pa.ListArray.from_arrays([0, 3, 3, 20], TEXTS)


@pytest.mark.parametrize(
    "column",
    [TEXTS, TEXTS.slice(1), LISTS, pa.StructArray.from_arrays([LISTS], ["t"])],
    ids=["texts", "slice", "lists", "structs"],
)
def test_rows_are_cut_where_their_views_have_many_bytes(column: Any) -> None:
    table = pa.table({"n": range(len(column)), "t": column})
    for rows in (table, table.to_batches()[0]):
        parts = list(cut_views(rows))
        assert len(parts) > 1
        assert all(len(part) for part in parts)
        numbers = [number for part in parts for number in part["n"].to_pylist()]
        assert numbers == list(range(len(column)))


def test_each_part_has_as_many_rows_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glaive.arrow.chunked._PART_BYTES", 80)
    texts = pa.array(["a" * 20] * 5 + ["b" * 100] + ["c" * 20] * 3, pa.string_view())
    parts = [part["t"].to_pylist() for part in cut_views(pa.table({"t": texts}))]
    assert [len(part) for part in parts] == [2, 2, 1, 1, 2, 1]
    assert [text for part in parts for text in part] == texts.to_pylist()


def test_other_rows_are_not_cut() -> None:
    for rows in (pa.table({"a": [1, 2]}), pa.table({"a": pa.array([], pa.string_view())})):
        assert list(cut_views(rows)) == [rows]


def test_views_are_found_at_any_depth() -> None:
    dictionary = pa.dictionary(pa.int8(), pa.binary_view())
    for kind in (pa.string_view(), pa.list_(pa.struct({"a": dictionary})), LISTS.type):
        assert has_views(kind)
    assert not has_views(pa.list_(pa.string()))


def test_more_bytes_than_offsets_count_are_refused() -> None:
    check_views(TEXTS, "here")
    check_views(pa.array(["a"]), "here")
    twice = equal_views(pa.string_view(), 40, 2**26)
    with pytest.raises(CapacityError, match="2684355200 bytes of string_view") as refused:
        check_views(twice, "here")
    assert refused.value.parts == 2
