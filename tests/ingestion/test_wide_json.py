"""JSON whose objects have names of their own, of which Arrow makes a column each."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli
from glaive.errors import FormatError, SchemaError
from glaive.ingestion.formats.json import MAX_CELLS, Json, count_names, refuse_many_cells
from glaive.ingestion.sources import Piece, Rejects, list_sources

OWN_NAMES = [json.dumps({f"k{number}": 1}) for number in range(9000)]
ONE_LINE = f'{{"l": [{", ".join(OWN_NAMES)}]}}\n'


@pytest.mark.spec("rel-24", "rel-25")
def test_a_record_of_many_names_and_objects_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text(ONE_LINE)
    with pytest.raises(FormatError, match="no record to infer types from, of at most 64 levels"):
        glaive.ingest(source, tmp_path / "t.lance")


@pytest.mark.spec("rel-24", "rel-25")
@pytest.mark.parametrize("text", ["\n".join([*OWN_NAMES, ""]), ONE_LINE], ids=["records", "items"])
def test_files_of_many_names_and_objects_are_not_converted(tmp_path: Path, text: str) -> None:
    source = tmp_path / "a.json"
    source.write_text(text)
    result = CliRunner().invoke(cli, ["convert", f"{source}", f"{tmp_path / 't.lance'}"])
    assert result.exit_code == 1
    assert "a.json: 9,0" in result.output
    assert "too many values of a table" in result.output


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("text", ["\n".join([*OWN_NAMES, ""]), ONE_LINE, "7\n", "no JSON\n", ""])
def test_columns_that_are_named_are_not_looked_for_in_files(tmp_path: Path, text: str) -> None:
    source, uri, bad = tmp_path / "a.json", tmp_path / "t.lance", tmp_path / "bad.lance"
    source.write_text(text)
    result = glaive.ingest(source, uri, schema="k7 bigint", bad_records=bad)
    assert result.rows + result.bad_records == text.count("\n")
    source.write_text('{"k7": 8}\n' + text)
    result = glaive.ingest(source, uri, mode="append", bad_records=bad)
    assert result.rows + result.bad_records == text.count("\n") + 1
    assert glaive.dataset(uri).count_rows("k7 = 8") == 1


def test_members_that_no_column_has_are_left_out_of_files_with_many(tmp_path: Path) -> None:
    source, uri = tmp_path / "a.json", tmp_path / "t.lance"
    source.write_text("\n".join([*OWN_NAMES, ""]))
    options = {"ignore_unknown": True}
    result = glaive.ingest(source, uri, schema="k7 bigint", reader_options=options)
    assert result.rows == len(OWN_NAMES)
    assert glaive.dataset(uri).to_table(filter="k7 = 1").num_rows == 1


def test_a_named_column_that_may_not_be_null_has_to_be_in_each_record(tmp_path: Path) -> None:
    source, bad = tmp_path / "a.json", tmp_path / "bad.lance"
    source.write_text('{"a": 1}\n')
    with pytest.raises(SchemaError, match="b"):
        glaive.ingest(
            source, tmp_path / "t.lance", schema="a bigint, b bigint not null", bad_records=bad
        )


@pytest.mark.spec("rel-24")
def test_later_files_have_the_columns_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps(dict.fromkeys(map(str, range(9000)), 1)))
    (tmp_path / "in" / "b.json").write_text("{}\n" * 9000)
    arguments = [f"{tmp_path / 'in'}", f"{tmp_path / 't.lance'}", "--from", "json"]
    result = CliRunner().invoke(cli, ["convert", *arguments])
    assert result.exit_code == 1
    assert "b.json: 9,000 objects with 9,000 names" in result.output


@pytest.mark.nightly(reason="parses wide records")
@pytest.mark.spec("rel-24")
def test_records_of_a_wide_table_are_parsed_in_parts(tmp_path: Path) -> None:
    source, rows = tmp_path / "a.json", 40_000
    source.write_text("{}\n" * rows)
    (file,) = list_sources([str(source)])
    schema = pa.schema([(f"c{number}", pa.bool_()) for number in range(2000)])
    piece, rejects = Piece(file, 0, None, file.size), Rejects(keep=False)
    parts = [part.num_rows for part in Json({}).read(piece, schema, rejects)]
    assert len(parts) > 1
    assert sum(parts) == rows
    assert max(parts) * 2000 <= MAX_CELLS


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (r'{"a": 1, "b" :{"c":"x:y"}}', 3),
        (r'{"a\"b": 1, "c\\": 2, "d\\\"": 3}', 3),
        (r'{"a": "\"x\":1", "b": "\\"}', 2),
    ],
)
def test_names_are_counted_once_and_texts_are_none(line: str, names: int) -> None:
    text = pa.py_buffer(f"{line}\n".encode() * 30_000)
    assert count_names(text, text.size) == names


def test_ordinary_records_are_never_too_many() -> None:
    record = {f"name{number}": number for number in range(20)} | {"text": 'a "quoted": text'}
    refuse_many_cells(pa.py_buffer(f"{json.dumps(record)}\n".encode() * 40_000))


def test_colons_of_long_texts_are_no_columns_of_records_behind_them(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    texts = ["10:00:00 " * 1000] * 150 + ["short"] * 40_000
    source.write_text("".join(f"{json.dumps({'id': 1, 'text': text})}\n" for text in texts))
    result = CliRunner().invoke(cli, ["convert", f"{source}", f"{tmp_path / 't.lance'}"])
    assert result.exit_code == 0, result.output
    assert glaive.dataset(tmp_path / "t.lance").count_rows() == len(texts)
