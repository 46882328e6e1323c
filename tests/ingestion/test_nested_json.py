"""JSON that is nested more deeply than Arrow's inference of types can take."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli
from glaive.errors import FormatError
from glaive.ingestion.formats.json import refuse_deep

DEPTH = 100_000
ARRAYS = '{"a": ' + "[" * DEPTH + "1" + "]" * DEPTH + "}\n"
OBJECTS = '{"a": ' * DEPTH + "1" + "}" * DEPTH + "\n"


@pytest.mark.spec("rel-23", "rel-25")
@pytest.mark.parametrize("text", [ARRAYS, OBJECTS], ids=["arrays", "objects"])
def test_a_file_of_brackets_is_refused_and_ends_no_process(tmp_path: Path, text: str) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(text)
    with pytest.raises(FormatError, match="at most 64 levels"):
        glaive.ingest(source, tmp_path / "t.lance")
    result = CliRunner().invoke(cli, ["convert", str(source), str(tmp_path / "u.lance")])
    assert result.exit_code == 1
    assert "nested deeper than 64 levels" in result.output


@pytest.mark.spec("rel-23")
def test_a_file_behind_a_link_is_looked_through_like_others(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    (source / "a.json").write_text('{"a": 1}\n')
    (elsewhere / "deep.json").write_text(ARRAYS)
    (source / "b.json").symlink_to(elsewhere / "deep.json")
    target = f"{tmp_path / 't.lance'}"
    result = CliRunner().invoke(cli, ["convert", f"{source}", target, "--from", "json"])
    assert result.exit_code == 1
    assert "b.json: JSON is nested deeper than 64 levels" in result.output


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("suffix", ["gz", "gzip", "zstd", "brotli", "bz2", "lz4"])
def test_compressed_files_are_looked_through_under_all_names(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"a.json.{suffix}"
    codec = {"gz": "gzip"}.get(suffix, suffix)
    with pa.CompressedOutputStream(f"{source}", codec) as out:
        out.write(ARRAYS.encode())
    target = f"{tmp_path / 't.lance'}"
    result = CliRunner().invoke(cli, ["convert", f"{source}", target, "--from", "json"])
    assert result.exit_code == 1
    assert "nested deeper than 64 levels" in result.output


@pytest.mark.parametrize("suffix", ["gz", "zstd", "bz2", "lz4"])
def test_compressed_files_that_are_damaged_are_named(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"a.json.{suffix}"
    codec = {"gz": "gzip"}.get(suffix, suffix)
    with pa.CompressedOutputStream(f"{source}", codec) as out:
        out.write(b"".join(b'{"a": %d}\n' % (number * 7919) for number in range(5000)))
    source.write_bytes(source.read_bytes()[:-20])
    target = f"{tmp_path / 't.lance'}"
    result = CliRunner().invoke(cli, ["convert", f"{source}", target, "--from", "json"])
    assert result.exit_code == 1
    assert f"{source}: " in result.output


@pytest.mark.spec("rel-24")
def test_a_line_of_brackets_takes_a_few_times_its_bytes() -> None:
    text = b"{}" * (8 << 20)
    tracemalloc.start()
    try:
        refuse_deep(text)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(text)  # 40 times before
    finally:
        tracemalloc.stop()


def test_levels_are_counted_across_a_long_line() -> None:
    refuse_deep(b"[" * 60 + b"{}" * (1 << 20) + b"]" * 60)
    with pytest.raises(pa.ArrowInvalid, match="nested deeper than 64"):
        refuse_deep(b"]" * 9 + b"[" * 60 + b"{}" * (1 << 20) + b"[" * 5)


@pytest.mark.spec("rel-23")
def test_a_record_of_brackets_is_a_bad_one_among_others(tmp_path: Path) -> None:
    source, bad = tmp_path / "a.jsonl", tmp_path / "bad.lance"
    source.write_text('{"a": 1}\n' + ARRAYS + '{"a": 2}\n')
    result = glaive.ingest(source, tmp_path / "t.lance", bad_records=bad)
    assert (result.rows, result.bad_records) == (2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 65,
        "]" * 500 + "\n" + "[" * 65,
        '{"a": "\n{"b":' + "[" * 65 + '"',
        '{"a": "\\\n{"b":' + "[" * 65 + '"',
        "{[" * 33,
    ],
)
def test_lines_that_are_no_json_hide_no_brackets_of_the_next(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="nested deeper than 64"):
        refuse_deep(text.encode())


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"' * 500_001, "\\" * 500_000])
def test_texts_without_an_end_are_looked_through_once(text: str) -> None:
    started = process_time()
    refuse_deep(text.encode())  # each mark began a search for the end: half an hour for these
    assert process_time() - started < 20


@pytest.mark.parametrize(
    "text",
    ["", "[" * 64, "[]" * 500, '{"a": "' + "[" * 500 + '"}', '{"a\\"' + "{" * 500 + '": []}'],
)
def test_brackets_in_texts_and_beside_each_other_are_not_deep(text: str) -> None:
    refuse_deep(text.encode())
