"""Files whose records are longer, or worse, than their bytes tell."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

import glaive
from glaive.errors import FormatError
from glaive.ingestion.lines import byte_pieces
from glaive.ingestion.sources import SourceFile


@pytest.mark.spec("rel-25")
def test_types_are_not_looked_for_in_any_number_of_records_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x\n" * 500_000)
    began = process_time()
    with pytest.raises(FormatError, match=r"a\.json, line 1: .*: it has no record to infer types"):
        glaive.ingest(path, tmp_path / "t.lance")
    assert process_time() - began < 10

    path.write_bytes(b'{"a": 1, "b": "c"}\n' * 10 + b"x\n" * 20)
    done = glaive.ingest(path, tmp_path / "t.lance", bad_records=tmp_path / "bad.lance")
    assert (done.rows, done.bad_records) == (10, 20)


def test_a_name_that_a_record_has_twice_is_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "a": 2}\n')
    with pytest.raises(FormatError, match=r"a\.json, line 1: .*twice"):
        glaive.ingest(tmp_path / "a.json", tmp_path / "t.lance")


@pytest.mark.spec("rel-25")
def test_types_that_do_not_go_together_are_noticed_before_each_record_is_parsed(
    tmp_path: Path,
) -> None:
    (source := tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": "x"}\n' * 100_000)
    began = process_time()
    with pytest.raises(FormatError, match=r"a\.jsonl: types cannot be inferred: .* Field a"):
        glaive.ingest(source, tmp_path / "t.lance")
    assert process_time() - began < 10  # a call of the parser for each record: a minute


@pytest.mark.spec("rel-24")
def test_a_size_that_a_server_states_makes_a_limited_number_of_ranges() -> None:
    file = SourceFile("https://host/", "a.csv", 1 << 62, None)
    pieces = byte_pieces(file, 128 << 20)
    assert len(pieces) == 10_000
    assert sum(piece.size for piece in pieces) == 1 << 62
