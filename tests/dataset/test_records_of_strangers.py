"""Small records beside data: metadata, checkpoints, journals and notes may say anything."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from glaive.indices import IndexConfig
from tests.proof.wire_mutations import section_of, with_section

import glaive
from glaive.dataset.columns.udf import Checkpoint
from glaive.dataset.writing.plan import DataLocation
from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    IndexKindError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.fragment import packed_fragments
from glaive.format.pb import table_pb2
from glaive.hf import HuggingFaceConverter
from glaive.ingestion.task import JOBS, IngestedPieces, Journal
from glaive.io.access import open_store
from glaive.table.operations.overwrite import PUBLISHED, Published

pd = pytest.importorskip("pandas")

DEEP = "[" * 100_000
ROWS = pa.table({"id": [1, 2]})
NAME = b"ARROW:extension:name"


def extension(column: str, storage: Any, name: str, said: str) -> Any:
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": said}
    return pa.field(column, storage, metadata=metadata)


def of_duckdb(name: str) -> str:
    """What describes a type of DuckDB that Arrow lacks."""
    return json.dumps({"type_name": name, "vendor_name": "DuckDB"})


@pytest.mark.parametrize(
    "said", ["", "null", "[]", DEEP, '["b", "i", []]', '["b", "i", [[1e999, 2]]]',
    '["b", "i", [[1, 2, 3]]]', '["b", "i", [[true, 2]]]', '["b", "i", [["1", "2"]]]',
    '["b", "i", [[1, 18446744073709551616]]]', '["b", "i", [[-1, 2]]]', '["b", "i", 7]'],
)  # fmt: skip
def test_a_note_of_what_was_published_that_is_none_is_as_if_there_were_none(said: str) -> None:
    transaction: Any = SimpleNamespace(properties={PUBLISHED: said})
    assert Published.of(transaction) is None


def test_a_note_of_what_was_published_is_read_as_it_was_written() -> None:
    published = Published("b", "i", ((3, 3), (5, 4)))
    transaction: Any = SimpleNamespace(properties={PUBLISHED: published.text()})
    assert Published.of(transaction) == published


@pytest.mark.parametrize("text", [DEEP, "{", '{"version": true}', '{"version": -4}', "7"])
def test_a_journal_that_says_anything_says_nothing(tmp_path: Path, text: str) -> None:
    journal = Journal(open_store(str(tmp_path)), "job")
    folder = tmp_path / JOBS / "job"
    folder.mkdir(parents=True)
    for name in ("committed", "1"):
        (folder / f"{name}.json").write_text(text)
    assert journal.committed() is None
    assert journal.finished("1", rows=(), bad_records=()) is None


@pytest.mark.spec("rel-16")
@pytest.mark.parametrize("path", ["mine/thesis.lance", "thesis.odt", "thesis.lance"])
def test_a_journal_names_no_files_but_those_that_tasks_write(tmp_path: Path, path: str) -> None:
    """What a job read from such a file goes with it, and a folder on the way may be a link."""
    fragment = glaive.write_dataset(ROWS, tmp_path).manifest.fragment(0)
    file = tmp_path / "data" / path
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")
    journal = Journal(open_store(str(tmp_path)), "job")
    for number, known in enumerate((fragment.files[0].path, path)):
        renamed = replace(fragment, files=(replace(fragment.files[0], path=known),))
        pieces = IngestedPieces(packed_fragments([renamed]), (), 0, 0)
        journal.finish("1", pieces)
        places = (DataLocation(journal.store),)
        found = journal.finished("1", rows=places, bad_records=())
        assert found == (None if number else pieces)


@pytest.mark.parametrize("text", [DEEP, "{", "[]", '{"path": "../x", "fields": [0]}', "null"])
def test_a_checkpoint_with_something_else_than_a_file_is_refused(tmp_path: Path, text: str) -> None:
    fragment = glaive.write_dataset(ROWS, tmp_path / "t").manifest.fragment(0)
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    checkpoint.keep_file(fragment, fragment.files[0])
    with sqlite3.connect(tmp_path / "done") as connection:
        connection.execute("UPDATE files SET file = ?", (text,))
    with pytest.raises(OptionError, match=r"no description|expected a path below"):
        checkpoint.file(fragment)


def batch_with_wild_offsets() -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"t": ["one", "two"]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 3, 6))
    assert content.count(offsets) == 1
    wild = b"".join(number.to_bytes(4, "little") for number in (0, 2**30, 2**30 + 9))
    return content.replace(offsets, wild)


@pytest.mark.parametrize("data", ["text", b"", b"x", batch_with_wild_offsets()])
def test_a_checkpoint_with_something_else_than_rows_is_refused(
    tmp_path: Path, data: bytes | str
) -> None:
    fragment = glaive.write_dataset(ROWS, tmp_path / "t").manifest.fragment(0)
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    checkpoint.keep_batch(fragment, 0, ROWS.to_batches()[0])
    with sqlite3.connect(tmp_path / "done") as connection:
        connection.execute("UPDATE batches SET result = ?", (data,))
    with pytest.raises(OptionError, match="done: the result for fragment 0 cannot be read"):
        checkpoint.batch(fragment, 0)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("kind", [pa.int64(), pa.date32(), pa.timestamp("us", "No/Where")], ids=str)
def test_numbers_that_are_called_json_are_not_indexed_as_texts(tmp_path: Path, kind: Any) -> None:
    """They were made objects of Python, which not every date and time zone has."""
    wide = kind.bit_width == 64
    numbers = pa.array([1, 2**31 - 1], pa.int64() if wide else pa.int32()).view(kind)
    schema = pa.schema([extension("c", kind, "lance.json", "")])
    made = glaive.write_dataset(pa.Table.from_arrays([numbers], schema=schema), tmp_path / "t")
    with pytest.raises(OptionError, match="column c must be text, lists of text, or JSON"):
        made.create_scalar_index("c", "INVERTED")


KINDS = {"id": ["BTREE", "BITMAP", "ZONEMAP"], "t": ["BTREE", "NGRAM", "INVERTED", "FM"]}
OTHERS = [
    (column, kind, other)
    for column, kinds in {**KINDS, "l": ["LABEL_LIST", "INVERTED"]}.items()
    for kind in kinds
    for other in ("id", "t", "v")
    if other != column and (column, kind, other) != ("l", "INVERTED", "t")
] + [("id", "BLOOMFILTER", "l"), ("id", "BTREE", "l"), ("t", "BITMAP", "l")]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(("column", "kind", "other"), OTHERS)
def test_values_of_another_type_are_not_added_to_an_index(
    tmp_path: Path, column: str, kind: str, other: str
) -> None:
    rows = table_of_all_types()
    made = glaive.write_dataset(rows, tmp_path / "t")
    made.create_scalar_index(column, IndexConfig(kind, {}))
    made.insert(rows)
    hurt = with_fields(tmp_path / "t", [made.lance_schema.field(other).id()])
    with pytest.raises((CorruptFileError, IndexKindError, OptionError, UnsupportedFeatureError)):
        hurt.optimize.optimize_indices(num_indices_to_merge=1)


def table_of_all_types() -> pa.Table:
    vectors = pa.array([[float(at), 1.0] for at in range(40)], pa.list_(pa.float32(), 2))
    texts = [f"word{at}" for at in range(40)]
    lists = [[text] for text in texts]
    return pa.table({"id": range(40), "t": texts, "v": vectors, "l": lists})


def with_fields(place: Path, fields: list[int], count: int = 1) -> Any:
    """The dataset with indices that say that they are over these fields."""
    newest = min((place / "_versions").glob("*.manifest"))
    content = newest.read_bytes()
    section = table_pb2.IndexSection.FromString(section_of(content))
    assert len(section.indices) == count
    for entry in section.indices:
        entry.fields[:] = fields
    newest.write_bytes(with_section(content, section.SerializeToString()))
    return glaive.dataset(place)


def with_indices_over(place: Path, fields: list[int]) -> Any:
    """A dataset whose indices say that they are over these fields."""
    rows = table_of_all_types()
    made = glaive.write_dataset(rows, place)
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("t", "INVERTED")
    made.create_index("v", "IVF_FLAT", num_partitions=1)
    made.insert(rows)
    return with_fields(place, fields, count=3)


@pytest.mark.parametrize("fields", [[], [0, 1]])
def test_an_index_without_one_column_is_not_used_and_not_maintained(
    tmp_path: Path, fields: list[int]
) -> None:
    hurt = with_indices_over(tmp_path / "t", fields)
    assert hurt.count_rows("id = 3") == 2
    assert hurt.to_table(nearest={"column": "v", "q": [3.0, 1.0], "k": 2})["id"].to_pylist() == [
        3,
        3,
    ]
    for index in ("id_idx", "t_idx"):
        with pytest.raises(CorruptFileError, match=f"fields of index '{index}'"):
            hurt.optimize.optimize_indices(index_names=[index])
    with pytest.raises(CorruptFileError, match="fields of index 'v_idx'"):
        hurt.stats.index_stats("v_idx")
    hurt.drop_index("t_idx")
    assert len(hurt.describe_indices()) == 2


@pytest.mark.spec("rel-23")
def test_a_segment_that_indices_of_two_kinds_name_is_opened_for_each(tmp_path: Path) -> None:
    made = glaive.write_dataset(table_of_all_types(), tmp_path / "t")
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("t", "INVERTED")
    newest = min((tmp_path / "t" / "_versions").glob("*.manifest"))
    content = newest.read_bytes()
    section = table_pb2.IndexSection.FromString(section_of(content))
    numbers, texts = section.indices
    texts.uuid.CopyFrom(numbers.uuid)
    newest.write_bytes(with_section(content, section.SerializeToString()))
    hurt = glaive.dataset(tmp_path / "t")
    assert hurt.count_rows("id = 3") == 1
    with pytest.raises(DataFileMissingError, match=r"metadata\.lance does not exist"):
        hurt.to_table(full_text_query="word3")


def test_texts_are_searched_in_no_column_that_does_not_exist(tmp_path: Path) -> None:
    hurt = with_indices_over(tmp_path / "t", [999])
    with pytest.raises(OptionError, match="full-text index"):
        hurt.to_table(full_text_query="word3")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def test_texts_and_times_in_the_place_of_images_are_damage() -> None:
    described = {"info": {"features": {"x": {"_type": "Image"}}}}
    text: Any = pa.array([b"\xff"]).view(pa.string())
    for values in (text, pa.StructArray.from_arrays([pa.nulls(1), text], ["bytes", "path"])):
        with pytest.raises(CorruptFileError, match="a struct with its bytes"):
            HuggingFaceConverter(described).to_pytorch("x", values)
