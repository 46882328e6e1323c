"""Scalar functions give what pylance gives: the same values in the same types, or both refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate
from tests.interop.function_cases import CASES, edges
from tests.interop.function_names import LEFT_OUT, NAMES

from glaive.errors import FilterError
from glaive.expr.functions.registry import functions

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place: Path = tmp_path_factory.mktemp("functions") / "edges.lance"
    return lance.write_dataset(edges(), place, data_storage_version="2.2")


def ask(dataset: Any, text: str) -> Any:
    """What pylance gives; None when it refuses."""
    # Between backticks a name is a function's, whatever the grammar makes of it by itself.
    quoted = re.sub(r"\b([a-z_0-9]+)\(", r"`\1`(", text)
    quoted = re.sub(r"`interval`\(('[^']*')\)", r"interval \1", quoted)
    try:
        table = dataset.to_table(columns={"r": quoted, "n": "n"})
    except BaseException as error:  # Its panics are no Exception.
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    return table["r"].combine_chunks()


def shown(values: Any) -> list[str]:
    try:
        # The text of floats has all their digits, one NaN, and the sign of zero.
        return [repr(value) for value in values.to_pylist()]
    except (OverflowError, ValueError):  # Beyond the years that Python knows.
        return [repr(value) for value in values.cast(pa.int64()).to_pylist()]


def plain(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


@pytest.mark.sampled(every=237)
@pytest.mark.parametrize("text", CASES)
def test_values_and_types_are_those_of_pylance(dataset: Any, text: str) -> None:
    expected = ask(dataset, text)
    if expected is None:
        with pytest.raises((FilterError, pa.ArrowInvalid)):
            evaluate(text, edges())
        return
    found = evaluate(text, edges())
    assert shown(found) == shown(expected)
    assert plain(found.type) == plain(expected.type)


def test_every_function_of_pylance_is_there() -> None:
    assert set(NAMES) - set(functions()) == set()


def test_there_is_no_function_that_pylance_has_not(dataset: Any) -> None:
    unknown = []
    for name in (*functions(), *LEFT_OUT):
        try:
            dataset.scanner(columns={"r": f"`{name}`(n)"})
        except BaseException as error:  # Its panics are no Exception.
            if "Invalid function" in str(error):
                unknown.append(name)
    assert unknown == []


def test_every_function_has_a_case() -> None:
    called = {name for text in CASES for name in re.findall(r"([a-z_0-9]+)\(", text)}
    first = {function.name for name, function in functions().items() if name in called}
    named = {function.name for function in functions().values()}
    # Pylance is asked about these in test_geometries.py.
    geometries = {name for name in named if name.startswith("st_")}
    assert named - first - geometries <= {
        # These give other values each time.
        "now",
        "current_date",
        "current_time",
        "random",
        "uuid",
        "version",
    }
