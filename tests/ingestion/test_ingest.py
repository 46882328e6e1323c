"""Files become rows of a dataset: once, whole, and with an error that names what is wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import glaive
from glaive.dataset.writing.plan import WriteOptions
from glaive.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    ExpectationError,
    FormatError,
    OptionError,
    SchemaError,
)
from glaive.ingestion import FORMATS, ingest
from glaive.ingestion.plan import commit_ingest, find_sources, plan_ingest
from glaive.ingestion.sources import list_sources
from glaive.table.root import open_root

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ASCII = {"encoding": "ascii"}
TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "at": pa.array([0, None, 86_400_000_000], pa.timestamp("us", "UTC")),
        "x": pa.array([0.5, None, -1.25]),
        "s": ["a", None, 'b,"c"\u00e9'],
    }
)


def rows_of(uri: Path) -> list[dict[str, Any]]:
    """The rows as pylance reads them, which must be what glaive reads."""
    theirs: list[dict[str, Any]] = lance.dataset(str(uri)).to_table().to_pylist()
    assert glaive.dataset(uri).to_table().to_pylist() == theirs
    return theirs


def written(folder: Path, name: str, table: pa.Table = TABLE) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    if name.endswith((".parquet", ".orc")):
        (pq if name.endswith(".parquet") else orc).write_table(table, path)
        return path
    if ".csv" in name:
        lines = ["id,at,x,s"]
        for row in table.to_pylist():
            text = "" if row["s"] is None else '"' + row["s"].replace('"', '""') + '"'
            at = "" if row["at"] is None else row["at"].strftime("%Y-%m-%dT%H:%M:%SZ")
            lines.append(f"{row['id']},{at},{'' if row['x'] is None else row['x']},{text}")
    else:
        lines = [
            json.dumps({**row, "at": row["at"] and row["at"].strftime("%Y-%m-%d %H:%M:%SZ")})
            for row in table.to_pylist()
        ]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.jsonl", "a.json.gz", "a.parquet", "a.orc"]
)
def test_a_file_becomes_the_same_rows(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "in", name)
    schema = None if name.endswith(("parquet", "orc")) else TABLE.schema
    result = ingest(path, tmp_path / "t.lance", schema=schema)
    assert (result.version, result.rows, result.files) == (1, 3, 1)
    assert rows_of(tmp_path / "t.lance") == TABLE.to_pylist()
    if name.endswith("parquet"):
        assert glaive.dataset(tmp_path / "t.lance").schema == TABLE.schema


def test_types_of_csv_are_inferred_although_a_value_is_wrong(tmp_path: Path) -> None:
    lines = [f"{number},2024-01-{1 + number % 28:02}" for number in range(200)]
    lines[150] = "oops,2024-01-01"
    path = tmp_path / "a.csv"
    path.write_text("id,day\n" + "\n".join(lines))

    with pytest.raises(FormatError, match=r"a\.csv, line 152: column id: int64: .*'oops'"):
        ingest(path, tmp_path / "t.lance")
    assert not (tmp_path / "t.lance" / "_versions").exists()

    result = ingest(path, tmp_path / "t.lance", bad_records=tmp_path / "bad.lance", job_id="j")
    assert (result.rows, result.bad_records) == (199, 1)
    schema = glaive.dataset(tmp_path / "t.lance").schema
    assert schema.types == [pa.int64(), pa.date32()]
    assert rows_of(tmp_path / "bad.lance") == [
        {
            "file": str(path),
            "line": 152,
            "reason": "column id: int64: invalid value 'oops'",
            "record": b"oops,2024-01-01\n",
            "job_id": "j",
        }
    ]


@pytest.mark.parametrize("texts", [["café", "tea"], ["café", "thé"]])
@pytest.mark.parametrize(("options", "reason"), [({}, "column s: .*UTF8"), (ASCII, "'ascii'")])
def test_texts_of_another_encoding_are_named_and_do_not_become_binary(
    tmp_path: Path, texts: list[str], options: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(["id,s", f"1,{texts[0]}", f"2,{texts[1]}"]).encode("latin-1"))

    with pytest.raises(FormatError, match=rf"a\.csv, line 2: .*{reason}.*'encoding': 'cp1252'"):
        ingest(path, tmp_path / "t.lance", reader_options=options)

    ingest(path, tmp_path / "t.lance", reader_options={"encoding": "latin-1"})
    assert [row["s"] for row in rows_of(tmp_path / "t.lance")] == texts


def test_a_header_of_another_encoding_says_how_encodings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id,s\n1,x\n".encode("utf-16"))

    with pytest.raises(FormatError, match=r"a\.csv, line 1: .*'encoding': 'cp1252'.*UTF-16"):
        ingest(path, tmp_path / "t.lance")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", b"a,b\n1,2\n3\n", 3),
        ("a.csv", b"a,b\n1,2\n\n3,4,5\n", 4),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', 2),
        ("a.jsonl", b'{"a": 1}\n{"a": 2, "b": 3}\n', 2),
        ("a.txt", b"fine\n\xff\xfe\n", 2),
    ],
)
def test_a_record_that_cannot_be_read_is_named_by_its_line(
    tmp_path: Path, name: str, text: bytes, line: int
) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    columns = {"a": pa.int64()} | ({"b": pa.int64()} if name.endswith("csv") else {})
    schema = None if name.endswith("txt") else pa.schema(columns)
    with pytest.raises(FormatError, match=rf"{name}, line {line}: "):
        ingest(path, tmp_path / "t.lance", schema=schema)
    result = ingest(path, tmp_path / "t.lance", schema=schema, bad_records=tmp_path / "bad.lance")
    assert (result.rows, result.bad_records) == (1, 1)
    assert [row["line"] for row in rows_of(tmp_path / "bad.lance")] == [line]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.parquet"])
def test_pieces_of_a_file_have_each_record_once(tmp_path: Path, name: str) -> None:
    count = 3000
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"n": range(count)}), path, row_group_size=100)
    else:
        lines = {
            "a.csv": [f"{n},{'x' * (n % 37)}" for n in range(count)],
            "a.jsonl": [json.dumps({"n": n, "s": "x" * (n % 37)}) for n in range(count)],
            "a.txt": [f"{n}{'x' * (n % 37)}" for n in range(count)],
        }[name]
        path.write_text("\n".join((["n,s"] if name == "a.csv" else []) + lines))
    sources = find_sources(
        list_sources([str(path)]),
        format=None,
        existing=None,
        schema=None,
        vectors=(),
        schema_drift="fail",
        reader_options={},
    )
    store = open_root(tmp_path / "t.lance")
    plan = plan_ingest(store, sources, WriteOptions(), task_bytes=path.stat().st_size // 7)
    assert len(plan.tasks) >= 6

    tasks = [pickle.loads(pickle.dumps(task)) for task in plan.tasks]  # our own
    result = commit_ingest(plan, [task.execute() for task in tasks], files=1)

    assert result.rows == count
    rows = rows_of(tmp_path / "t.lance")
    if name == "a.txt":
        assert [row["value"] for row in rows] == lines
    else:
        assert [row["n"] for row in rows] == list(range(count))


def test_values_with_line_ends_are_read_with_an_option(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"two\nlines, ""quoted"""\nx,3\n2,z\n')
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    options = {"multiline": True}
    with pytest.raises(FormatError, match="line 4: column a"):
        ingest(path, tmp_path / "t.lance", schema=schema, reader_options=options)
    ingest(
        path,
        tmp_path / "t.lance",
        schema=schema,
        reader_options=options,
        bad_records=tmp_path / "bad.lance",
    )
    assert [row["b"] for row in rows_of(tmp_path / "t.lance")] == ['two\nlines, "quoted"', "z"]


def test_folders_and_patterns_find_files(tmp_path: Path) -> None:
    source = tmp_path / "in"
    for name in ("a.csv", "b.csv", "_hidden.csv", ".dot.csv", "c.txt"):
        written(source, name) if name.endswith("csv") else (source / name).write_text("no")
    (source / "deep" / "er").mkdir(parents=True)
    written(source / "deep" / "er", "d.csv")
    for number, (pattern, files) in enumerate(
        [("*.csv", 2), ("**/*.csv", 3), ("[ab].csv", 2), ("?.csv", 2), ("deep", 1), ("a.csv", 1)]
    ):
        result = ingest(str(source / pattern), tmp_path / f"{number}.lance", schema=TABLE.schema)
        assert (result.files, result.rows) == (files, 3 * files), pattern
    with pytest.raises(OptionError, match=r"nothing\.csv: no such file"):
        ingest(str(source / "nothing.csv"), tmp_path / "t.lance")
    with pytest.raises(OptionError, match=r"no common format.*c\.txt"):
        ingest([str(source / "a.csv"), str(source / "c.txt")], tmp_path / "t.lance")


def test_columns_that_differ_follow_the_rule(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), source / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([2.5]), "b": ["x"]}), source / "2.parquet")
    uri = tmp_path / "t.lance"

    with pytest.raises(SchemaError, match=r"2\.parquet and .*1\.parquet.*schema_drift='widen'"):
        ingest(source, uri)
    with pytest.raises(SchemaError, match=r"2\.parquet: column b is not in .*schema_drift='add'"):
        ingest(source, uri, schema_drift="widen")
    ingest(source, uri, schema_drift="add")
    assert rows_of(uri) == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]


def test_a_dataset_grows_columns_and_wider_types_where_allowed(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"a": pa.array([1], pa.int32())}), uri)
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"a": pa.array([2**40]), "b": [True]}), path)

    for rule in ("fail", "widen"):
        with pytest.raises(SchemaError):
            ingest(path, uri, mode="append", schema_drift=rule)  # type: ignore[arg-type]  # one of the names
    assert glaive.dataset(uri).version == 1

    result = ingest(path, uri, mode="append", schema_drift="add")
    assert rows_of(uri) == [{"a": 1, "b": None}, {"a": 2**40, "b": True}]
    assert result.version == glaive.dataset(uri).version


def test_a_merge_updates_and_inserts(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    glaive.write_dataset(TABLE, uri)
    changed = TABLE.set_column(0, "id", pa.array([3, 4, 5]))
    path = written(tmp_path / "in", "a.parquet", changed)

    result = ingest(path, uri, mode="merge", merge_keys="id", job_id="merge-1")

    assert result.rows == 3
    by_id = {row["id"]: row for row in rows_of(uri)}
    expected = TABLE.slice(0, 2).to_pylist() + changed.to_pylist()
    assert by_id == {row["id"]: row for row in expected}
    version = glaive.dataset(uri).version
    again = ingest(path, uri, mode="merge", merge_keys="id", job_id="merge-1")
    assert again.repeated
    assert glaive.dataset(uri).version == version


def test_a_merge_that_fails_makes_no_rows_and_is_made_again(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text("id,price\n1,2\n3,-4\n")
    with pytest.raises(ExpectationError, match="violates"):
        ingest(path, uri, mode="merge", merge_keys="id", expect="price > 0")
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(uri)
    path.write_text("id,price\n1,2\n3,4\n")
    assert ingest(path, uri, mode="merge", merge_keys="id", expect="price > 0").rows == 2
    assert rows_of(uri) == [{"id": 1, "price": 2}, {"id": 3, "price": 4}]


def test_files_become_blobs_with_their_facts(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    contents = {"a.bin": b"abc", "deep/b.bin": bytes(200_000)}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    uri = tmp_path / "t.lance"

    ingest(source, uri, format="binary")

    dataset = glaive.dataset(uri)
    facts = dataset.to_table(columns=["path", "size", "sha256"]).to_pylist()
    assert facts == [
        {"path": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    ]
    blobs = dataset.take_blobs("content", indices=[0, 1])
    assert [blob.readall() for blob in blobs] == list(contents.values())
    theirs = lance.dataset(str(uri)).take_blobs("content", indices=[0, 1])
    assert [blob.readall() for blob in theirs] == list(contents.values())


def test_columns_of_extension_types_are_appended(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"abc")
    rows = {
        "uuid": pa.array([bytes(16), None], pa.uuid()),
        "json": pa.array(['{"a":1}', None], pa.json_()),
    }
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    bare = {"uuid": rows["uuid"].cast(pa.binary(16)), "json": rows["json"]}
    pq.write_table(pa.table(bare), tmp_path / "bare.parquet")
    pq.write_table(pa.table({**rows, "json": ["{}", None]}), tmp_path / "texts.parquet")
    for name, kind in (("x.bin", "binary"), ("x.parquet", "parquet")):
        uri = tmp_path / f"{kind}.lance"
        for _ in range(2):
            ingest(tmp_path / name, uri, format=kind, mode="append")
    assert glaive.dataset(tmp_path / "binary.lance").count_rows() == 2
    ingest(tmp_path / "bare.parquet", uri, mode="append")
    found = lance.dataset(str(uri)).to_table()
    assert found.to_pylist() == 3 * pa.table(rows).to_pylist()
    assert found.schema.field("uuid").type == pa.uuid()
    with pytest.raises(SchemaError, match="column json: string"):
        ingest(tmp_path / "texts.parquet", uri, mode="append")


def test_images_have_width_height_and_format(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    source = tmp_path / "in"
    source.mkdir()
    images.new("RGB", (30, 20)).save(source / "a.png")
    (source / "b.png").write_bytes(b"no image")
    uri, bad = tmp_path / "t.lance", tmp_path / "bad.lance"
    with pytest.raises(FormatError, match=r"b\.png: not an image"):
        ingest(source, uri)
    result = ingest(source, uri, bad_records=bad)
    assert (result.rows, result.bad_records) == (1, 1)
    table = glaive.dataset(uri).to_table(columns=["path", "width", "height", "format"])
    assert table.to_pylist() == [{"path": "a.png", "width": 30, "height": 20, "format": "PNG"}]


@pytest.mark.spec("rel-42")
def test_an_image_for_which_pillow_has_an_error_of_its_own_is_a_bad_record(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    source = tmp_path / "in"
    source.mkdir()
    out = io.BytesIO()
    images.new("RGB", (4, 4)).save(out, format="DDS")
    unknown = bytearray(out.getvalue())
    unknown[80:84] = bytes(4)  # what kind of pixels there are
    (source / "a.png").write_bytes(unknown)
    with pytest.raises(FormatError, match=r"a\.png: not an image: Unknown pixel format"):
        ingest(source, tmp_path / "t.lance", format="images")
    result = ingest(source, tmp_path / "u.lance", format="images", bad_records=tmp_path / "bad")
    assert (result.rows, result.bad_records) == (0, 1)


def test_lists_become_vectors(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "v": [1.0, 2.5]}\n')
    uri = tmp_path / "t.lance"
    ingest(path, uri, vectors=["v:2:float16"])
    assert glaive.dataset(uri).schema.field("v").type == pa.list_(pa.float16(), 2)
    ingest(path, uri, mode="append")
    assert [row["v"] for row in rows_of(uri)] == [[1.0, 2.5]] * 2
    with pytest.raises(OptionError, match="vector 'w:2'"):
        ingest(path, tmp_path / "u.lance", vectors=["w:2"])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mode": "upsert"}, "mode: expected one of 'create'"),
        ({"mode": "merge"}, "merge_keys: name key columns"),
        ({"merge_keys": "id"}, "merge_keys: name key columns"),
        ({"format": "xls"}, "format: expected one of csv, json"),
        ({"format": "avro"}, "is not an Avro file"),
        ({"schema_drift": "merge"}, "schema_drift: expected one of"),
        ({"reader_options": {"seperator": ";"}}, "csv: no option 'seperator'"),
        ({"reader_options": {"encoding": "utf-16"}}, "encoding: expected .*, found 'utf-16'"),
        ({"reader_options": {"encoding": "undefined"}}, "encoding: expected .*, found 'undefined'"),
        ({"reader_options": {"sep": "§"}}, "sep: expected one character of ASCII"),
        ({"reader_options": {"decimal": ""}}, "decimal: expected one character of ASCII"),
        ({"reader_options": {"null": "\udcff"}}, "null: expected a string"),
        ({"job_id": "../x"}, "job_id: expected up to 128 letters"),
        ({"schema": "id bignum"}, "column id: no type 'bignum'"),
        ({"schema": f"id {'array<' * 2000}int{'>' * 2000}"}, "id: nested deeper than 64"),
        ({"schema": "id bigint, at array<array<int>>, x double, s string"}, "CSV cannot be read"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    tmp_path: Path, keywords: dict[str, Any], message: str
) -> None:
    path = written(tmp_path / "in", "a.csv")
    with pytest.raises((OptionError, SchemaError, FormatError), match=message):
        ingest(path, tmp_path / "t.lance", **keywords)
    assert not (tmp_path / "t.lance").exists()


def test_a_dataset_that_exists_is_not_created_again(tmp_path: Path) -> None:
    path = written(tmp_path / "in", "a.parquet")
    glaive.write_dataset(TABLE, tmp_path / "t.lance")
    with pytest.raises(DatasetExistsError):
        ingest(path, tmp_path / "t.lance")
    ingest(path, tmp_path / "t.lance", mode="overwrite", schema_drift="fail")
    assert glaive.dataset(tmp_path / "t.lance").version == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.orc"])
def test_files_that_are_damaged_are_errors_that_name_them(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "in", name)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FormatError, match=rf"{name} is not a"):
        ingest(path, tmp_path / "t.lance")


def test_every_format_has_a_name_of_its_own() -> None:
    assert {kind.name for kind in FORMATS.values()} == set(FORMATS)
    suffixes = [suffix for kind in FORMATS.values() for suffix in kind.suffixes]
    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b"{\n", "line 1: .*: it has no record to infer types from"),
        ("a.csv", b"\xff\xfea\n1\n", "line 1: 'utf-8' codec"),
        ("a.csv", b"a,b,a\n1,2,3\n", "several columns are called 'a'"),
    ],
)
def test_a_file_without_records_or_names_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=message):
        ingest(tmp_path / name, tmp_path / "t")


@pytest.mark.parametrize("name", ["max_rows_per_fil", "mode"])
def test_an_option_of_the_write_that_there_is_not_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "in.csv").write_text("n\n7\n")
    with pytest.raises(OptionError, match=rf"write_options: no option '{name}'"):
        ingest(tmp_path / "in.csv", tmp_path / "t.lance", write_options={name: 1})
    assert not (tmp_path / "t.lance").exists()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (None, {}, "source: expected a path or a URI, or several, found None"),
        (5, {}, "source: expected a path or a URI, or several, found 5"),
        (b"a.csv", {}, "source: expected a path or a URI"),
        ([5], {}, "source: expected a path or a URI"),
        ([], {}, "source: expected a path or a URI"),
        ("a.csv", {"schema": 5}, "schema: expected a pyarrow.Schema"),
        ("a.csv", {"schema": "a bigint, a string"}, "schema: several columns are called 'a'"),
        ("a.json", {"schema": "a bigint, a string"}, "schema: several columns are called 'a'"),
        ("a.csv", {"task_bytes": 0}, "task_bytes: expected an integer"),
        ("a.csv", {"task_bytes": "1"}, "task_bytes: expected an integer"),
        ("a.csv", {"job_id": 5}, "job_id: expected up to 128 letters"),
        ("a.csv", {"reader_options": {5: 5}}, "no option 5"),
    ],
)
def test_arguments_of_other_types_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, options: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    with pytest.raises(OptionError, match=message):
        ingest(source, tmp_path / "t.lance", **options)
    assert not (tmp_path / "t.lance").exists()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_bad_records_among_many_cost_few_calls_of_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    from pyarrow import csv

    lines, bad, good = ["id,amount,day,name"], [], []
    for n in range(3000):
        line = f"{n},{n / 7},2020-01-{n % 28 + 1:02},name {n}"
        if n % 100 == 7:
            line = line.replace(f"{n},", "NA,", 1)
        elif n % 100 == 40:
            line += ",more"
        elif n % 100 == 70:
            line = line.replace("2020-01", "2020-13")
        elif n % 100 == 80:
            lines.append("")
            good.append(n)
        else:
            good.append(n)
        if n % 100 in (7, 40, 70):
            bad.append((len(lines) + 1, line))
        lines.append(line)
    (tmp_path / "a.csv").write_text(end.join(lines) + end, newline="")
    calls = 0
    read_csv = csv.read_csv

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return read_csv(*args, **options)

    monkeypatch.setattr(csv, "read_csv", counted)
    aside = tmp_path / "bad.lance"
    schema = pa.schema(
        [("id", pa.int64()), ("amount", pa.float64()), ("day", pa.date32()), ("name", pa.string())]
    )
    report = ingest(tmp_path / "a.csv", tmp_path / "t", bad_records=aside, schema=schema)
    assert report.bad_records == len(bad) == 90
    assert glaive.dataset(tmp_path / "t").to_table()["id"].to_pylist() == good
    rejected = glaive.dataset(aside).to_table()
    found = zip(rejected["line"].to_pylist(), rejected["record"].to_pylist(), strict=True)
    assert [(line, text.decode().strip()) for line, text in found] == bad
    assert calls < 5 * len(bad)
