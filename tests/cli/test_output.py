"""What commands print of a stranger's dataset: a terminal obeys none of it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli
from glaive.cli.output import human_bytes, json_line, print_rows

EVIL = "\x1b]0;owned\x07\x9b2J\u202egpj exe"
COMMANDS = [
    ["head", "PLACE"],
    ["head", "PLACE", "--json"],
    ["schema", "PLACE"],
    ["show", "PLACE"],
    ["history", "PLACE"],
    ["inspect", "PLACE"],
    ["inspect", "PLACE", "--json"],
    ["scan", "PLACE", "--columns", f"no such {EVIL}"],
    ["tag", "PLACE"],
    ["verify", "PLACE"],
    ["versions", "PLACE"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("cli") / "t")
    rows = pa.table({f"name {EVIL}": [f"value {EVIL}"], "[red]n": [1]})
    glaive.write_dataset(rows, place, commit_message=f"message {EVIL}")
    return place


@pytest.mark.spec("rel-36")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: f"{words[0]} {words[-1][:6]}")
def test_control_characters_of_names_and_values_are_written_out(
    place: str, command: list[str]
) -> None:
    result = CliRunner().invoke(cli, [place if word == "PLACE" else word for word in command])
    assert result.output
    hidden = [mark for mark in result.output if not mark.isprintable() and mark != "\n"]
    assert hidden == []
    if command[0] in ("head", "inspect", "scan"):
        assert "\\x1b" in result.output or "\\u001b" in result.output


def test_names_with_brackets_are_no_markup(place: str) -> None:
    assert "[red]n" in CliRunner().invoke(cli, ["head", place]).output


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 B"), (1000, "1.0 kB"), (1_000_000, "1.0 MB"), (10**12, "1.0 TB")],
)
def test_a_thousand_bytes_are_the_next_unit(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert json_line({"a": [float("nan"), 1.5, float("-inf")]}) == '{"a": [null, 1.5, null]}'


def test_long_cells_and_lists_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["x" * 60, "y" * 61]
    lists = [[1, 2, 3], [1, 2, 3, 4]]
    print_rows(pa.table({"text": texts, "list": lists}), as_json=False)
    printed = capsys.readouterr().out
    assert "x" * 60 in printed
    assert "y" * 59 + "…" in printed
    assert "y" * 60 not in printed
    assert printed.count("items") == 1
    assert "[1, 2, 3, … 4 items]" in printed
