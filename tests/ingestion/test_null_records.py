"""JSON with records that are null, which end the process where Arrow's parser meets one first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli

ROWS = [{"a": None}, {"a": 1}, {"a": None}]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("schema", [None, "a bigint"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n \t"])
def test_null_records_are_rows_of_nulls_wherever_they_come(
    tmp_path: Path, start: str, schema: str | None
) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(f'{start}null\n{{"a": 1}}\nnull\n')
    glaive.ingest(source, tmp_path / "t.lance", schema=schema)
    assert glaive.dataset(tmp_path / "t.lance").to_table().to_pylist() == ROWS


@pytest.mark.spec("rel-23")
def test_null_records_beside_one_that_cannot_be_parsed_are_rows(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('null\n{"a": 1}\nno JSON\nnull\n')  # the block is halved around it
    bad = tmp_path / "bad.lance"
    glaive.ingest(source, tmp_path / "t.lance", bad_records=bad)
    assert glaive.dataset(tmp_path / "t.lance").to_table().to_pylist() == ROWS
    assert glaive.dataset(bad).count_rows() == 1


def test_lists_of_nulls_have_all_of_these(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"a": [None], "b": {"c": [[None, None], [], None]}},
        {"a": [], "b": None, "d": [None, 0, 0]},
        {"a": [None, None, None], "b": {"c": [[None] * 5]}},
        {"a": None, "b": {"c": None}},
    ]
    rows = [{"d": None} | row for row in rows]
    source, converted = tmp_path / "a.jsonl", tmp_path / "c.lance"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    glaive.ingest(source, tmp_path / "t.lance")
    assert glaive.dataset(tmp_path / "t.lance").to_table().to_pylist() == rows
    assert CliRunner().invoke(cli, ["convert", f"{source}", f"{converted}"]).exit_code == 0
    assert glaive.dataset(converted).to_table().to_pylist() == rows


def test_convert_takes_nulls_within_records(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"a": [\n null,\n 1], "b": "} null", "c": {}, "d": null}\n')
    target = tmp_path / "t.lance"
    assert CliRunner().invoke(cli, ["convert", str(source), str(target)]).exit_code == 0
    (row,) = glaive.dataset(target).to_table(["a", "b", "d"]).to_pylist()
    assert row == {"a": [None, 1], "b": "} null", "d": None}
