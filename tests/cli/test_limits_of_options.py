"""Numbers that no option can have are an error in one line, which names the option."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]
FAR = str(2**64)
DIGITS = "9" * 5000
"""More than Python makes a number of."""


@pytest.mark.parametrize("days", ["NaN", "inf", "1e308", "1e9", FAR, DIGITS])
def test_ages_that_are_too_long_are_refused(call: Call, things: str, days: str) -> None:
    for more in ([], ["--dry-run"]):
        result = call("cleanup", things, "--older-than-days", days, *more)
        assert result.exit_code == 1
        assert "--older-than-days: expected a number from 0 to 999999999" in result.stderr
    assert call("cleanup", things, "--older-than-days", "999999999").exit_code == 0


@pytest.mark.parametrize("version", [DIGITS, f"main:{DIGITS}"])
def test_versions_of_too_many_digits_are_refused(call: Call, things: str, version: str) -> None:
    for words in (["head", things, "--version", version], ["restore", things, version]):
        result = call(*words)
        assert result.exit_code == 2
        assert "no version has 5000 digits" in result.stderr


def test_the_number_of_files_to_inspect_has_no_limit(call: Call, things: str) -> None:
    assert call("inspect", things, "--files", FAR).exit_code == 0


@pytest.mark.parametrize("items", ["0", str(2**31), FAR, DIGITS])
def test_vectors_of_more_items_than_arrow_counts_are_refused(
    call: Call, tmp_path: Path, items: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "e": [1, 2]}))
    words = ("ingest", f"{tmp_path}/a.json", f"{tmp_path}/t.lance", "--vector", f"e:{items}")
    result = call(*words)
    assert result.exit_code == 1
    assert "expected 'column:dimension'" in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("head", "-n", "-1"), "an integer ≥ 0"),
        (("scan", "--limit", "x"), "an integer ≥ 0"),
        (("cleanup", "--keep", "0"), "an integer ≥ 1"),
        (("compact", "--rows-per-fragment", "0"), "an integer ≥ 1"),
    ],
)
def test_options_have_the_bounds_of_their_sets(
    call: Call, things: str, words: tuple[str, ...], expected: str
) -> None:
    name, flag, value = words
    result = call(name, things, flag, value)
    assert result.exit_code == 2
    assert f"{flag}'" in result.stderr
    assert f"expected {expected}, found '{value}'" in result.stderr


def test_columns_are_names_or_expressions(call: Call, things: str) -> None:
    for columns in ("id, name", '["id", "name"]'):
        row = json.loads(call("head", things, "-n", "1", "--columns", columns, "--json").stdout)
        assert list(row) == ["id", "name"]
    computed = call("head", things, "-n", "1", "--columns", '{"two": "id * 2"}', "--json")
    assert json.loads(computed.stdout) == {"two": 2}


def test_a_flag_that_an_error_asks_for_is_one_of_the_command(call: Call, things: str) -> None:
    words = ("index", things, "--column", "id", "--kind", "btree")
    assert call(*words).exit_code == 0
    assert call(*words).stderr.endswith("or set --replace\n")
