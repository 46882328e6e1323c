"""Computed columns have the types and values that pylance gives, or both refuse them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.interop.type_matrix import COLUMNS, beside_columns, beside_constants, table

from glaive.errors import FilterError
from glaive.expr.filters import bind_value
from glaive.format.fields import LanceSchema

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ACCEPTED_HERE = {
    "a dictionary stands for its texts": r"dic \|\| .*|.* \|\| dic",
    "bytes and NULL": r"coalesce\((y, NULL|NULL, y)\)",
    "texts are bytes, too": r"coalesce\((\w*y, ('\w+'|l?s)|('\w+'|l?s), \w*y)\)",
    "values that are not needed are not converted": r"coalesce\((\w+, dic|dic, \w+)\)",
    "dates beyond those that pylance computes with": r"d(64)? [-+] i32|i32 \+ d(64)?",
}
"""What pylance refuses, and why it is computed here."""

REFUSED_HERE = {"intervals are no values of columns": r"(t|NULL) [-+] (t|NULL)"}
"""What pylance computes, and why it is refused here."""


def named(text: str, reasons: dict[str, str]) -> bool:
    return any(re.fullmatch(pattern, text) for pattern in reasons.values())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place: Path = tmp_path_factory.mktemp("types")
    return lance.write_dataset(table(), place / "all", data_storage_version="2.2")


def shown(array: Any) -> tuple[str, list[str]]:
    """Type and values; floats with all their digits, one NaN, and the sign of zero."""
    try:
        return str(array.type), [repr(value) for value in array.to_pylist()]
    except (OverflowError, ValueError):  # beyond the years that Python knows
        return str(array.type), [str(value) for value in array.view(f"int{array.type.bit_width}")]


def theirs(dataset: Any, text: str) -> tuple[str, list[str]] | None:
    try:
        found = dataset.to_table(columns={"value": text, "row": "row"})
    except BaseException as error:  # its panics are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    return shown(found["value"].combine_chunks())


def differing(dataset: Any, texts: Iterable[str]) -> list[str]:
    """Expressions that differ and are not named above."""
    schema = LanceSchema.from_arrow(dataset.schema)
    batch = dataset.to_table().combine_chunks().to_batches()[0]
    found = []
    for text in texts:
        expected = theirs(dataset, text)
        try:
            ours = shown(bind_value(text, schema).evaluate(batch))
        except FilterError as error:
            if expected is not None and not named(text, REFUSED_HERE):
                found.append(f"{text}: {expected}, here {error}")
            continue
        if expected is None and not named(text, ACCEPTED_HERE):
            found.append(f"{text}: refused, here {ours}")
        elif expected is not None and ours != expected:
            found.append(f"{text}: {expected}, here {ours}")
    return found


@pytest.mark.sampled(every=15)
@pytest.mark.parametrize("column", COLUMNS)
def test_constants_beside_a_column_give_the_types_of_pylance(dataset: Any, column: str) -> None:
    assert differing(dataset, beside_constants(column)) == []


@pytest.mark.sampled(every=30)
@pytest.mark.parametrize("column", COLUMNS)
def test_two_columns_give_the_types_of_pylance(dataset: Any, column: str) -> None:
    assert differing(dataset, beside_columns(column)) == []


def test_a_difference_that_is_named_is_there(dataset: Any) -> None:
    schema = LanceSchema.from_arrow(dataset.schema)
    for text in ("dic || b", "coalesce(y, NULL)", "d64 + i32"):
        assert named(text, ACCEPTED_HERE)
        assert theirs(dataset, text) is None
        bind_value(text, schema)
    assert theirs(dataset, "t - t") is not None
    with pytest.raises(FilterError, match="is not defined for"):
        bind_value("t - t", schema)
