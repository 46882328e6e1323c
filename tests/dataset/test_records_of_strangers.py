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
from tests.damaged_views import views
from tests.namespace.calls import ipc
from tests.proof.wire_mutations import section_of, with_section

import glaive
from glaive.arrow.images import ImageArray
from glaive.dataset.columns.udf import Checkpoint
from glaive.dataset.writing.plan import DataLocation
from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    IndexKindError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.extension import extended
from glaive.format.fragment import packed_fragments
from glaive.format.pb import table_pb2
from glaive.hf import HuggingFaceConverter
from glaive.indices import IndexConfig
from glaive.ingestion.task import JOBS, IngestedPieces, Journal
from glaive.io.uri import open_store
from glaive.pipeline.runs import RunRecord
from glaive.table.publishing import PUBLISHED, Published

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


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(
    ("name", "storage", "said"),
    [
        ("pandas.period", pa.int64(), "{"),
        ("pandas.interval", pa.struct([("left", pa.int8()), ("right", pa.int8())]), "{}"),
        ("pandas.interval", pa.int32(), '{"subtype": "int64", "closed": "left"}'),
        ("lance.arrow.fixed_shape_image_tensor", pa.list_(pa.uint8(), 12), DEEP),
        ("lance.arrow.fixed_shape_image_tensor", pa.int32(), '{"shape": [2, 6]}'),
        ("arrow.fixed_shape_tensor", pa.list_(pa.uint8(), 12), '{"shape": [-2, -6]}'),
        ("arrow.uuid", pa.list_(pa.float32(), 2), ""),
        ("arrow.bool8", pa.struct([("a", pa.int8())]), ""),
        ("arrow.opaque", pa.struct([("a", pa.int8())]), of_duckdb("hugeint")),
        ("arrow.opaque", pa.list_(pa.float32(), 2), of_duckdb("uhugeint")),
        ("arrow.opaque", pa.bool_(), of_duckdb("time_tz")),
        ("arrow.opaque", pa.binary(), of_duckdb("bit")),
    ],
)
def test_a_column_whose_type_does_not_fit_its_name_keeps_its_storage_type(
    tmp_path: Path, name: str, storage: Any, said: str
) -> None:
    pa.array(pd.period_range("2020", periods=1, freq="D"))  # registers the types of pandas
    right = extension("right", pa.binary(16), "arrow.uuid", "")
    schema = pa.schema([extension("wrong", storage, name, said), right])
    rows = pa.table([pa.nulls(2, storage), pa.nulls(2, pa.binary(16))], schema=schema)
    glaive.write_dataset(rows, tmp_path / "t")
    found = glaive.dataset(tmp_path / "t").to_table()
    assert found.schema.types == [storage, pa.uuid()]
    assert found.column("wrong").null_count == 2
    # DuckDB would believe the name, and read other memory, or end the process.
    assert NAME not in (found.schema.field("wrong").metadata or {})
    pytest.importorskip("duckdb")
    assert (
        glaive.sql("SELECT count(wrong) AS c FROM t", t=tmp_path / "t").read_all()["c"][0].as_py()
        == 0
    )


def test_types_in_types_keep_what_fits() -> None:
    inner = extension("right", pa.binary(16), "arrow.uuid", "")
    wrong = extension("wrong", pa.int64(), "pandas.period", "{")
    schema = pa.schema([
        pa.field("a", pa.list_(inner)),
        pa.field("b", pa.struct([inner, wrong])),
        pa.field("c", pa.map_(pa.string(), inner)),
    ])  # fmt: skip
    found = extended(schema)
    assert found.field("a").type.value_type == pa.uuid()
    assert found.field("b").type == schema.field("b").type
    assert not any(NAME in (member.metadata or {}) for member in found.field("b").type)
    assert found.field("c").type.item_type == pa.uuid()


def test_types_of_duckdb_are_kept_at_any_depth_where_they_fit(tmp_path: Path) -> None:
    right = extension("right", pa.binary(16), "arrow.opaque", of_duckdb("hugeint"))
    wrong = extension("wrong", pa.bool_(), "arrow.opaque", of_duckdb("hugeint"))
    other = extension("other", pa.bool_(), "arrow.opaque", '{"type_name":"x","vendor_name":"y"}')
    schema = pa.schema([pa.field(one.name, pa.list_(one)) for one in (right, wrong, other)])
    rows = pa.table([pa.nulls(2, field.type) for field in schema], schema=schema)
    found = glaive.write_dataset(rows, tmp_path / "t").to_table().schema
    assert found.field("right").type.value_type == pa.opaque(pa.binary(16), "hugeint", "DuckDB")
    assert found.field("wrong").type.value_type == pa.bool_()
    assert not found.field("wrong").type.value_field.metadata
    assert found.field("other").type.value_type == pa.opaque(pa.bool_(), "x", "y")


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
    with sqlite3.connect(checkpoint.path) as connection:
        connection.execute("UPDATE files SET file = ?", (text,))
    with pytest.raises(OptionError, match=r"done: no description|expected a path below"):
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


def batch_with_a_wild_view() -> bytes:
    """A batch with a view that is null and has a length below 0, which validating passes over."""
    return ipc(pa.table({"x": views(pa.string_view(), -(2**31))}))


@pytest.mark.parametrize(
    "data", ["text", b"", b"x", batch_with_wild_offsets(), batch_with_a_wild_view()]
)
def test_a_checkpoint_with_something_else_than_rows_is_refused(
    tmp_path: Path, data: bytes | str
) -> None:
    fragment = glaive.write_dataset(ROWS, tmp_path / "t").manifest.fragment(0)
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    checkpoint.keep_batch(fragment, 0, ROWS.to_batches()[0])
    with sqlite3.connect(checkpoint.path) as connection:
        connection.execute("UPDATE batches SET result = ?", (data,))
    with pytest.raises(OptionError, match="done: the result for fragment 0 cannot be read"):
        checkpoint.batch(fragment, 0)


@pytest.mark.parametrize(
    "step",
    [
        {"after": "x"}, {"after": [1]}, {"seconds": "x"}, {"attempts": "2"}, {"summary": None},
        {"counts": []}, {"before": {"d": {"version": 1}}}, {"before": []}, {"sample": []},
        {"sample": {"columns": [1], "rows": []}}, {"sample": {"columns": [], "rows": [7]}},
        {"error": 5}, {"seconds": 10**400}, {"attempts": 10**400},
        {"after_it": {"d": {"version": 1, "rows": 1, "bytes": 10**400}}},
        {"counts": json.loads('{"rows": ' + "[" * 40 + "]" * 40 + "}")},
    ],
)  # fmt: skip
def test_a_record_of_a_run_that_cannot_be_shown_is_refused(step: dict[str, Any]) -> None:
    steps = {"first": {"kind": "python", **step}}
    text = json.dumps({"id": "r", "pipeline": "p", "steps": steps})
    with pytest.raises(OptionError, match="here: no record of a run"):
        RunRecord.of_json(text.encode(), "here")


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


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("data", [POSTSCRIPT, b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\xff" * 40])
def test_images_that_are_none_or_need_a_program_are_refused(data: bytes) -> None:
    pytest.importorskip("PIL")
    images = ImageArray.from_array(pa.array([data], pa.binary()))
    with pytest.raises(SchemaError, match=r"no image|cannot be decoded"):
        images.to_tensor()
    described = {"info": {"features": {"x": {"_type": "Image"}}}}
    with pytest.raises(SchemaError, match="no image"):
        HuggingFaceConverter(described).to_pytorch("x", pa.array([{"bytes": data}]))


def test_texts_and_times_in_the_place_of_images_are_damage() -> None:
    described = {"info": {"features": {"x": {"_type": "Image"}}}}
    text: Any = pa.array([b"\xff"]).view(pa.string())
    for values in (text, pa.StructArray.from_arrays([pa.nulls(1), text], ["bytes", "path"])):
        with pytest.raises(CorruptFileError, match="a struct with its bytes"):
            HuggingFaceConverter(described).to_pytorch("x", values)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("depth", [0, 1])
def test_a_query_ends_over_a_decimal_that_duckdb_has_no_room_for(
    tmp_path: Path, depth: int
) -> None:
    pytest.importorskip("duckdb")
    kind = pa.decimal128(18, 2)
    wide = [one.to_bytes(16, "little") for one in (7, 2**126)]
    column: Any = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(b"".join(wide))])
    if depth:
        column = pa.StructArray.from_arrays([column], ["amount"])
    glaive.write_dataset(pa.table({"id": [0, 1], "a": column}), tmp_path / "t")
    query = "SELECT id, a FROM t WHERE id = "
    assert glaive.sql(f"{query} 0", t=tmp_path / "t").read_all().num_rows == 1
    with pytest.raises(CorruptFileError, match=r"column 'a'.*decimals of its type"):
        glaive.sql(f"{query} 1", t=tmp_path / "t").read_all()
    with pytest.raises(CorruptFileError, match=r"column 'a'.*decimals of its type"):
        glaive.dataset(tmp_path / "t").sql("SELECT a FROM dataset").build().to_batch_records()


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("given", ["dataset", "scanner", "reader"])
def test_a_query_of_the_callers_own_ends_over_a_decimal_of_too_many_digits(
    tmp_path: Path, given: str
) -> None:
    duckdb = pytest.importorskip("duckdb")
    wide = pa.py_buffer(b"".join(one.to_bytes(16, "little") for one in (7, 2**126)))
    column: Any = pa.Array.from_buffers(pa.decimal128(9, 2), 2, [None, wide])
    dataset = glaive.write_dataset(pa.table({"id": [0, 1], "a": column}), tmp_path / "t")
    with duckdb.connect() as connection:
        scanner = dataset.scanner()
        sources = {"dataset": dataset, "scanner": scanner, "reader": scanner.to_reader()}
        connection.register("t", sources[given])
        with pytest.raises(duckdb.Error, match=r"column 'a'.*decimals of its type"):
            connection.sql("SELECT a FROM t").fetchall()
    assert dataset.scanner(["a"], "id = 0").to_reader().read_all().num_rows == 1
    with pytest.raises(CorruptFileError, match="decimals of its type"):
        dataset.scanner(["a"]).to_reader().read_all()
