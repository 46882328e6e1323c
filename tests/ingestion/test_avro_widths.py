"""Values of Avro files that take a byte each there, and many in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import glaive
from glaive.errors import FormatError, UnsupportedFeatureError
from glaive.ingestion.formats.avro import Avro
from glaive.ingestion.sources import Piece, Rejects, list_sources

pytestmark = pytest.mark.spec("rel-24")

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Wide",
    "fields": [{"name": f"n{number}", "type": "long"} for number in range(5_000)],
}


def written(folder: Path, kind: Any, values: list[Any]) -> Path:
    """A file with one column."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    with (folder / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"a": value} for value in values])
    return folder / "a.avro"


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


@pytest.mark.parametrize(("size", "kind"), [(1024, pa.binary(1024)), (1 << 20, pa.binary())])
def test_nulls_of_large_values_take_no_room_for_these(tmp_path: Path, size: int, kind: Any) -> None:
    path = written(tmp_path, ["null", fixed(size)], [None, bytes(size), *[None] * 3_000])

    glaive.ingest(path, tmp_path / "t.lance")

    found = glaive.dataset(tmp_path / "t.lance").to_table()
    assert found.schema.types == [kind]
    assert found["a"].slice(0, 3).to_pylist() == [None, bytes(size), None]
    assert found.nbytes < 8 << 20


@pytest.mark.parametrize("kind", [fixed(1024), RECORD])
def test_batches_of_wide_rows_have_fewer(tmp_path: Path, kind: Any) -> None:
    (file,) = list_sources([str(written(tmp_path, ["null", kind], [None] * 70_000))])
    schema = Avro({}).schema(file)

    batches = Avro({}).read(Piece(file, 0, None, file.size), schema, Rejects(keep=False))

    assert next(batches).nbytes < 65 << 20


@pytest.mark.nightly(reason="parses many nulls")
@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("kind", [fixed(1024), RECORD])
@pytest.mark.parametrize("around", ["array", "map", "record"])
def test_nulls_in_lists_are_counted_before_room_is_made_for_them(
    tmp_path: Path, kind: Any, around: str
) -> None:
    array = {"type": "array", "items": ["null", kind]}
    kinds: dict[str, Any] = {
        "array": array,
        "map": {"type": "map", "values": array},
        "record": {"type": "record", "name": "O", "fields": [{"name": "o", "type": array}]},
    }

    def value(count: int) -> Any:
        items = [None] * count
        return {"array": items, "map": {"k": items}, "record": {"o": items}}[around]

    few = written(tmp_path, kinds[around], [value(3), value(0)])
    glaive.ingest(few, tmp_path / "few.lance")
    assert glaive.dataset(tmp_path / "few.lance").count_rows() == 2
    many = written(tmp_path, kinds[around], [value(300_000)])
    with pytest.raises(FormatError, match=r"nulls in lists of column 'a' take \d+ bytes"):
        glaive.ingest(many, tmp_path / "many.lance")


def test_symbols_of_enums_may_not_be_long(tmp_path: Path) -> None:
    kind = {"type": "enum", "name": "E", "symbols": ["A" * 257, "B"]}
    path = written(tmp_path, kind, ["A" * 257] * 10)

    with pytest.raises(UnsupportedFeatureError, match="enum 'E' has a symbol of more than 256"):
        glaive.ingest(path, tmp_path / "t.lance")
