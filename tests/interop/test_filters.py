"""Filters keep the rows that pylance keeps, and are refused where pylance refuses them."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.interop.filter_cases import ROWS, expressions, table
from tests.trials import trials

import glaive
from glaive.errors import FilterError
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

AT_RUN_TIME = (
    "Error applying filter expression to batch",
    "Divide by zero",
    "Cast error",
    "Arithmetic overflow",
    "Overflow happened",
    "Parser error",
    "likely caused by a bug in DataFusion",
)
"""Errors of pylance that depend on which rows it looks at, in which order of the operands, or on
how it estimates the share of rows (``i8 NOT BETWEEN i8 AND i8 * u``)."""

ZERO_TEST = re.compile(r"(?:=|<>) -?0(?:\.0+)?(?![\d.])")


class Pair:
    """One table on both sides."""

    def __init__(self, place: Path, seed: int) -> None:
        made = table(Random(seed).choice)
        self.theirs = lance.write_dataset(made, place / f"{seed}")
        self.batch = self.theirs.to_table().combine_chunks().to_batches()[0]
        self.schema = LanceSchema.from_arrow(self.theirs.schema)

    def ours(self, text: str) -> list[int] | FilterError:
        try:
            found = bind_filter(text, self.schema)
            rows = kept(found.mask(self.batch))
        except FilterError as error:
            return error
        assert self.by_terms(found) in {None, tuple(rows)}, text
        return rows

    def by_terms(self, found: Any) -> tuple[int, ...] | None:
        """Each term on the rows that the ones before it kept; None when that goes wrong."""
        rows = pa.array(range(ROWS))
        try:
            for term in found.terms:
                rows = rows.filter(term.mask(self.batch.take(rows)))
        except FilterError:
            return None  # a later term keeps those rows from it
        return tuple(rows.to_pylist())

    def pylance(self, text: str) -> list[int] | str:
        try:
            scan = self.theirs.scanner(filter=text, with_row_id=True, columns=[])
            return scan.to_table()["_rowid"].to_pylist()
        except Exception as error:  # of many kinds; its text is looked at
            return str(error)


def kept(mask: pa.BooleanArray) -> list[int]:
    return [row for row, passes in enumerate(mask.to_pylist()) if passes]


def joins_lists(text: str) -> bool:
    """Whether pylance may join two lists into one, where it loses nulls.

    ``x NOT IN (1) OR x NOT IN (2)`` is true to it, for nulls too, and so is ``x NOT IN (1) OR x NOT
    IN (NULL)``. A test against zero is a list of two zeros.
    """
    lists = text.count("IN (") + text.count("0") > 1 and "IN (" in text
    return lists or len(ZERO_TEST.findall(text)) > 1


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    place = tmp_path_factory.mktemp("filters")
    return [Pair(place, seed) for seed in range(8)]


@settings(max_examples=trials(300), suppress_health_check=list(HealthCheck))
@given(text=expressions(), which=st.integers(0, 7))
def test_rows_are_those_of_pylance(pairs: list[Pair], text: str, which: int) -> None:
    pair = pairs[which]
    theirs = pair.pylance(text)
    if isinstance(theirs, str) and any(one in theirs for one in AT_RUN_TIME):
        pair.ours(text)  # rows, or an error of our own kind
        return
    ours = pair.ours(text)
    if isinstance(theirs, str):
        assert isinstance(ours, FilterError), theirs
    elif isinstance(ours, FilterError):
        # pylance may find by rules of its own that a part need not be computed.
        assert (
            "cannot be computed" in str(ours)
            or "a value of type" in str(ours)
            or ("division by zero" in str(ours))
        ), ours
    elif not joins_lists(text):
        assert ours == theirs


@pytest.mark.parametrize("zone", [None, "UTC", "+02:00", "America/New_York"])
def test_a_date_and_a_moment_around_a_column_of_a_zone_are_those_of_pylance(
    tmp_path: Path, zone: str | None
) -> None:
    hours = pa.array(range(438_000, 438_060)).cast(pa.int64())
    moments = pa.compute.multiply(hours, 3600).cast(pa.timestamp("s", zone))
    dataset = lance.write_dataset(pa.table({"h": hours, "t": moments}), tmp_path / "d")
    bounds = ["date '2019-12-20'", "date '2019-12-21'", "timestamp '2019-12-20 09:00:00'"]
    ours = glaive.dataset(tmp_path / "d")
    for low in bounds:
        for high in bounds:
            for word in ("", "not "):
                text = f"t {word}between {low} and {high}"
                wanted = dataset.to_table(columns=["h"], filter=text)["h"].to_pylist()
                assert ours.to_table(["h"], text)["h"].to_pylist() == wanted, text
