"""JSON whose objects have names of their own, of which Arrow makes a column each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import glaive
from glaive.errors import SchemaError

OWN_NAMES = [json.dumps({f"k{number}": 1}) for number in range(9000)]
ONE_LINE = f'{{"l": [{", ".join(OWN_NAMES)}]}}\n'


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
