"""Files as others send them: another separator, line ends in values, lists as texts, odd bytes."""

from __future__ import annotations

import bz2
import gzip
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

import glaive
from glaive.errors import FormatError, OptionError, SchemaError, StoreError
from glaive.ingestion import ingest
from glaive.ingestion.lines import BLOCK_BYTES
from glaive.ingestion.sources import COMPRESSIONS, list_sources

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

LONG = 'two lines,\nwith ""marks"", and\nthree'


def rows_of(uri: Path) -> list[dict[str, Any]]:
    """The rows as pylance reads them, which must be what glaive reads."""
    theirs: list[dict[str, Any]] = lance.dataset(str(uri)).to_table().to_pylist()
    assert glaive.dataset(uri).to_table().to_pylist() == theirs
    return theirs


@pytest.mark.parametrize(
    ("name", "sep"), [("a.csv", ";"), ("a.csv", "|"), ("a.csv", "\t"), ("a.tsv", ",")]
)
def test_a_file_that_another_character_separates_names_the_option(
    tmp_path: Path, name: str, sep: str
) -> None:
    path, uri = tmp_path / name, tmp_path / "t.lance"
    path.write_text(f"id{sep}s\n1{sep}x\n")
    with pytest.raises(FormatError, match=r"line 1: .*reader_options=\{'sep': ") as caught:
        ingest(path, uri, schema_drift="add", bad_records=tmp_path / "bad.lance")
    assert repr(sep) in str(caught.value)

    ingest(path, uri, reader_options={"sep": sep})
    assert rows_of(uri) == [{"id": 1, "s": "x"}]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "a,b\n1,2", 1),
        ("a.csv", "a,b\n1,2\n2.5,x", 2),
        ("a.csv", 'a,b\n1,"two\nlines"', 1),
        ("a.csv", 'a,b\n"two\nlines",1', 1),
        ("a.csv", "a,b", 0),
        ("a.json", '{"a": 1}\n{"a": 2.5, "b": {"c": "x"}}', 2),
        ("a.json.gz", '{"a": null}\n{"a": [1]}', 2),
    ],
)
def test_the_last_record_tells_as_much_without_a_line_end(
    tmp_path: Path, name: str, content: str, rows: int
) -> None:
    found = []
    for end in ("\n", ""):
        data: Any = (content + end).encode()
        path = tmp_path / f"{len(end)}{name}"
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        uri = tmp_path / f"{len(end)}.lance"
        ingest(path, uri, bad_records=tmp_path / "bad.lance")
        found.append(glaive.dataset(uri).to_table())
    assert found[0].schema == found[1].schema
    assert found[0] == found[1]
    assert found[0].num_rows == rows


def test_the_only_column_may_be_called_so_if_the_separator_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("one;name\nx\n")
    ingest(path, tmp_path / "t.lance", reader_options={"sep": ","})
    assert rows_of(tmp_path / "t.lance") == [{"one;name": "x"}]
    path.write_text("plain name\nx;y\n")
    ingest(path, tmp_path / "u.lance")
    assert rows_of(tmp_path / "u.lance") == [{"plain name": "x;y"}]


def test_values_with_line_ends_stay_whole_however_the_work_is_cut(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text("id,s,n\n" + "".join(f'{n},"{LONG} {n}",{n}\n' for n in range(500)))
    result = ingest(path, uri, task_bytes=2000, bad_records=tmp_path / "bad.lance")

    assert (result.rows, result.bad_records) == (500, 0)
    value = LONG.replace('""', '"')
    assert [row["s"] for row in rows_of(uri)] == [f"{value} {n}" for n in range(500)]


@pytest.mark.parametrize("task_bytes", [1 << 20, 700])
@pytest.mark.parametrize("columns", ["id bigint, s string", "s string"])
def test_line_ends_behind_an_escape_belong_to_their_value(
    tmp_path: Path, task_bytes: int, columns: str
) -> None:
    path, uri, bad = tmp_path / "a.csv", tmp_path / "t.lance", tmp_path / "bad.lance"
    one = "id" not in columns
    values = [rf"{n} of\{chr(10)}two lines and {'x' * (n % 7)} \\" for n in range(300)]
    lines = [value if one else f"{n},{value}" for n, value in enumerate(values)]
    text = "\n".join(["s" if one else "id,s", *lines, ""]).encode()
    path.write_bytes(text + b"\xff,1\n")
    reader: dict[str, object] = {"escape": "\\"}
    result = ingest(
        path, uri, schema=columns, task_bytes=task_bytes, reader_options=reader, bad_records=bad
    )
    assert (result.rows, result.bad_records) == (300, 1)
    expected = [value.replace("\\\n", "\n").replace("\\\\", "\\") for value in values]
    assert [row["s"] for row in rows_of(uri)] == expected


def test_marks_behind_an_escape_are_no_ends_of_values_of_several_lines(tmp_path: Path) -> None:
    path, uri, bad = tmp_path / "a.csv", tmp_path / "t.lance", tmp_path / "bad.lance"
    path.write_text('id,s\n1,"x\\"y"\n2,"p\nq"\n3,"r"\nbad,z\n')
    result = ingest(
        path, uri, schema="id bigint, s string", reader_options={"escape": "\\"}, bad_records=bad
    )
    assert (result.rows, result.bad_records) == (3, 1)
    assert [row["s"] for row in rows_of(uri)] == ['x"y', "p\nq", "r"]


def test_json_that_is_not_utf8_is_a_bad_record(tmp_path: Path) -> None:
    path, uri, bad = tmp_path / "a.json", tmp_path / "t.lance", tmp_path / "bad.lance"
    path.write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n{"a": "\xc3\xa4"}\n')
    with pytest.raises(FormatError, match="line 2: invalid UTF8 data"):
        ingest(path, uri)
    assert ingest(path, uri, bad_records=bad).bad_records == 1
    assert [row["a"] for row in rows_of(uri)] == ["x", "ä"]


def test_marks_within_fields_do_not_keep_a_file_whole(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text("id,s\n" + "".join(f'{n},a {n}" pipe\n\n' for n in range(501)))
    ingest(path, uri, task_bytes=2000)

    assert [row["s"] for row in rows_of(uri)] == [f'a {n}" pipe' for n in range(501)]
    assert len(glaive.dataset(uri).get_fragments()) > 3


def test_line_ends_that_the_beginning_does_not_show_name_the_option(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    filler = "x" * 4000
    early = "".join(f"{n},{filler}\n" for n in range(1100))
    path.write_text("id,s\n" + early + "".join(f'{n},"{LONG}"\n' for n in range(9000)))
    with pytest.raises(FormatError, match=r"goes on in the next line.*'multiline': True"):
        ingest(path, uri, task_bytes=100_000)

    result = ingest(path, uri, task_bytes=100_000, reader_options={"multiline": True})
    assert result.rows == 10_100


@pytest.mark.parametrize("options", [{}, {"multiline": False}])
def test_a_mark_that_is_not_closed_is_a_bad_record_and_takes_no_other_with_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text("id,s\n" + "".join(f"{n},{chr(34) * (n == 7)}x\n" for n in range(20)))
    with pytest.raises(FormatError, match=r"line 9: a quotation mark is not closed.*multiline"):
        ingest(path, uri, reader_options=options)

    bad = tmp_path / "bad.lance"
    result = ingest(path, uri, reader_options=options, bad_records=bad)
    assert (result.rows, result.bad_records) == (19, 1)
    assert [(row["line"], row["record"]) for row in rows_of(bad)] == [(9, b'7,"x\n')]


def test_a_mark_that_is_not_closed_is_told_in_the_last_line_and_behind_values_of_several_lines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    for early in ("1,x", '1,"two\nlines"'):
        path.write_text(f'id,s\n{early}\n2,"x\n')
        with pytest.raises(FormatError, match=r"line \d: a quotation mark is not closed"):
            ingest(path, tmp_path / "t.lance")
    path.write_text(f'id,s\n{early}\n2,5" pipe\n3,"x\n')
    with pytest.raises(FormatError, match=r"line 4: a quotation mark is not closed"):
        ingest(path, tmp_path / "t.lance")
    path.write_text(f'id,s\n{early}\n2,5" pipe\n')
    assert ingest(path, tmp_path / "t.lance").rows == 2


def test_a_mark_within_a_field_and_a_value_cut_by_the_end_of_a_block_are_no_pair(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    filler = f"3,x,{'y' * 4000}\n" * (BLOCK_BYTES // 4000)
    # By the count of marks, the line end within the last value ends a record.
    path.write_text(f'id,s,t\n1,x,"two\nlines"\n2,5" pipe,"y\n3,x,z"\n{filler}')
    with pytest.raises(FormatError, match=r"line \d: a quotation mark is not closed"):
        ingest(path, tmp_path / "t.lance")
    assert not (tmp_path / "t.lance" / "_versions").exists()


def test_values_of_several_lines_stay_whole_in_other_encodings(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    value = "é\n" * 40
    path.write_bytes(("s,id\n" + "".join(f'"{value}",{n}\n' for n in range(50))).encode("cp1252"))
    ingest(path, uri, reader_options={"encoding": "cp1252"})
    assert [tuple(row.values()) for row in rows_of(uri)] == [(value, n) for n in range(50)]


@pytest.mark.parametrize(("name", "column"), [("a.csv", "price; EUR"), ("a.tsv", "price, EUR")])
def test_a_name_in_quotation_marks_may_hold_other_separators(
    tmp_path: Path, name: str, column: str
) -> None:
    (tmp_path / name).write_text(f'"{column}"\n12\n')
    ingest(tmp_path / name, tmp_path / "t.lance")
    assert rows_of(tmp_path / "t.lance") == [{column: 12}]


def test_lists_of_numbers_in_texts_become_vectors(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text(
        'id,v\n1,"[0.5, -2e3]"\n2,\n3,"[1]"\n4,"[1, 2"\n5,"[1, 2], [3, 4]"\n6,"[7,8]"\n'
    )
    with pytest.raises(FormatError, match=r"line 4: column v: expected 2 numbers, found 1"):
        ingest(path, uri, vectors=["v:2"])

    bad = tmp_path / "bad.lance"
    assert ingest(path, uri, vectors=["v:2:float16"], bad_records=bad).bad_records == 3
    assert glaive.dataset(uri).schema.field("v").type == pa.list_(pa.float16(), 2)
    read = {1: [0.5, -2000.0], 2: None, 6: [7.0, 8.0]}
    assert {row["id"]: row["v"] for row in rows_of(uri)} == read
    found = glaive.dataset(bad).to_table().to_pylist()
    assert [row["line"] for row in found] == [4, 5, 6]
    assert "column v: expected a list of numbers" in found[1]["reason"]


def test_vectors_are_appended_from_files_with_new_columns(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    (tmp_path / "a.csv").write_text('id,v\n1,"[1, 2]"\n')
    (tmp_path / "b.csv").write_text('id,v,size\n2,"[3, 4]",S\n')
    (tmp_path / "c.jsonl").write_text('{"id": 3, "v": [5, 6], "weight": 7}\n')
    ingest(tmp_path / "a.csv", uri, vectors=["v:2"])
    ingest(tmp_path / "b.csv", uri, mode="append", schema_drift="add")
    ingest(tmp_path / "c.jsonl", uri, mode="append", schema_drift="add")
    assert [tuple(row.values()) for row in rows_of(uri)] == [
        (1, [1.0, 2.0], None, None),
        (2, [3.0, 4.0], "S", None),
        (3, [5.0, 6.0], None, 7),
    ]


@pytest.mark.parametrize("number", [pa.float32(), pa.float64(), pa.float16()], ids=str)
@pytest.mark.parametrize("vectors", [[], ["v:2"]], ids=["known", "named again"])
def test_lists_of_parquet_files_are_appended_as_the_vectors_of_the_table(
    tmp_path: Path, number: Any, vectors: list[str]
) -> None:
    uri = tmp_path / "t.lance"
    first = pa.table({"id": [1], "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))})
    later = pa.array([[3.0, 4.0], None], pa.list_(pa.float32())).cast(pa.list_(number))
    parquet.write_table(first, tmp_path / "1.parquet")
    parquet.write_table(pa.table({"id": [2, 3], "v": later}), tmp_path / "2.parquet")
    ingest(tmp_path / "1.parquet", uri, vectors=["v:2"])
    ingest(tmp_path / "2.parquet", uri, mode="append", vectors=vectors)
    found = lance.dataset(str(uri)).to_table()
    assert found.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert found["v"].to_pylist() == [[1.0, 2.0], [3.0, 4.0], None]


@pytest.mark.parametrize(
    "lists",
    [
        pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32())),
        pa.array([[1, 2]], pa.list_(pa.int64())),
        pa.array([["a", "b"]]),
    ],
    ids=["another length", "integers", "strings"],
)
def test_other_lists_of_parquet_files_are_not_appended_to_vectors(
    tmp_path: Path, lists: Any
) -> None:
    uri = tmp_path / "t.lance"
    vectors = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    glaive.write_dataset(pa.table({"v": vectors}), uri)
    parquet.write_table(pa.table({"v": lists}), tmp_path / "1.parquet")
    with pytest.raises(SchemaError, match=r"column '?v'?"):
        ingest(tmp_path / "1.parquet", uri, mode="append")
    assert glaive.dataset(uri).version == 1


def test_a_vector_of_json_with_another_length_is_a_bad_record(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.jsonl", tmp_path / "t.lance"
    path.write_text('{"v": [1, 2]}\n{"v": [1, 2, 3]}\n{}\n')
    result = ingest(path, uri, vectors=["v:2"], bad_records=tmp_path / "bad.lance")
    assert (result.rows, result.bad_records) == (2, 1)
    assert [row["line"] for row in rows_of(tmp_path / "bad.lance")] == [2]


def test_types_that_the_caller_names_stay_where_files_may_add_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,cheap\n2,dear\n")
    (tmp_path / "b.csv").write_text("id,price,size\n3,2,S\n")
    named = {"schema": "id int, price double", "schema_drift": "add"}
    bad = tmp_path / "bad.lance"
    assert ingest(tmp_path / "*.csv", tmp_path / "t.lance", bad_records=bad, **named).rows == 1
    assert glaive.dataset(tmp_path / "t.lance").schema.types == [
        pa.int32(),
        pa.float64(),
        pa.string(),
    ]


def test_a_record_that_cannot_be_decoded_nor_cut_is_a_bad_record(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id,s\n1,x\n2,\u00e9,4\n3,y\n".encode("latin-1"))
    bad = tmp_path / "bad.lance"
    result = ingest(path, tmp_path / "t.lance", bad_records=bad)
    assert (result.rows, result.bad_records) == (2, 1)
    assert capfd.readouterr().err == ""
    assert rows_of(bad)[0]["record"] == b"2,\xe9,4\n"


def test_numbers_and_days_are_read_as_a_country_writes_them(tmp_path: Path) -> None:
    path, uri = tmp_path / "a.csv", tmp_path / "t.lance"
    path.write_text("day;price\n31.12.2024;1,5\n01.02.2025;\n")
    options = {"sep": ";", "decimal": ",", "timestamp_format": "%d.%m.%Y"}
    ingest(path, uri, reader_options=options, schema="day date, price decimal(8, 2)")
    rows = [(str(row["day"]), str(row["price"])) for row in rows_of(uri)]
    assert rows == [("2024-12-31", "1.50"), ("2025-02-01", "None")]
    with pytest.raises(OptionError, match="decimal: expected one character"):
        ingest(path, uri, mode="append", reader_options={"decimal": ""})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("delimiter", "sep"),
        ("multiLine", "multiline"),
        ("nullValue", "null"),
        ("na_values", "null"),
        ("timestampFormat", "timestamp_format"),
        ("charset", "encoding"),
    ],
)
def test_options_of_other_readers_are_answered_with_the_name(
    tmp_path: Path, theirs: str, ours: str
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(OptionError, match=f"no option '{theirs}'; did you mean {ours}\\?"):
        ingest(tmp_path / "a.csv", tmp_path / "t.lance", reader_options={theirs: ";"})


@pytest.mark.spec("rel-25")
def test_a_pipe_in_a_folder_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n1\n")
    os.mkfifo(tmp_path / "in" / "b.csv")
    with pytest.raises(StoreError, match=r"b\.csv: it is a pipe, a socket or a device"):
        ingest(str(tmp_path / "in"), str(tmp_path / "t.lance"))


def test_a_pipe_that_the_pattern_leaves_out_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    os.mkfifo(tmp_path / "x.pipe")
    assert [file.path for file in list_sources([f"{tmp_path}/*.csv"])] == ["a.csv"]
    with pytest.raises(StoreError, match=r"x\.pipe: it is a pipe, a socket or a device"):
        list_sources([f"{tmp_path}/*.[cp]*"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"\xf4": 1}', r"a\.json: the name of a column is not UTF-8.* Rename it"),
        (b'{"a": {"\xf4": 1}}', r"the name of a column or of a member.* is not UTF-8.* Rename it"),
    ],
)
def test_names_that_are_not_utf8_are_refused(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(line + b"\n")
    with pytest.raises((FormatError, SchemaError), match=message):
        ingest(tmp_path / "a.json", tmp_path / "t.lance")
    assert not (tmp_path / "t.lance").exists()


def test_files_of_orc_without_stripes_have_no_rows(tmp_path: Path) -> None:
    orc.write_table(pa.table({"a": pa.array([], pa.int64())}), str(tmp_path / "a.orc"))
    assert ingest(tmp_path / "a.orc", tmp_path / "t.lance", task_bytes=1).rows == 0
    assert glaive.dataset(tmp_path / "t.lance").schema.names == ["a"]


@pytest.mark.parametrize("text", [b"a,b\r1,2\r3,4\r", b"a,b\r1,2\n3,4\n"])
def test_rows_behind_a_carriage_return_alone_are_not_lost_with_the_names(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    with pytest.raises(FormatError, match=r"a\.csv, line 1: it ends in a carriage return alone"):
        ingest(path, tmp_path / "t.lance")
    ingest(path, tmp_path / "t.lance", reader_options={"header": False})
    assert [row["f0"] for row in rows_of(tmp_path / "t.lance")] == ["a", "1", "3"]


@pytest.mark.parametrize("text", ["x,1", "\ufeffx,1", '"x",1'])
def test_a_file_without_names_may_be_one_line_without_an_end(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text, "utf-8")
    ingest(tmp_path / "a.csv", tmp_path / "t.lance", reader_options={"header": False})
    assert rows_of(tmp_path / "t.lance") == [{"f0": "x", "f1": 1}]


def test_texts_in_quotation_marks_are_no_nulls_in_a_file_of_one_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a\n"NA"\n1\n2\n')
    ingest(tmp_path / "a.csv", tmp_path / "t.lance")
    assert [row["a"] for row in rows_of(tmp_path / "t.lance")] == ["NA", "1", "2"]
    (tmp_path / "b.csv").write_text('b\n""\n1\n2\n')
    ingest(tmp_path / "b.csv", tmp_path / "u.lance")
    assert [row["b"] for row in rows_of(tmp_path / "u.lance")] == [None, 1, 2]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.json.gz", "a.txt.zst", "a.json.lz4"])
@pytest.mark.parametrize("cut", [0, 20])
def test_compressed_files_that_are_damaged_are_errors_that_name_them(
    tmp_path: Path, name: str, cut: int
) -> None:
    lines = b"".join(b'{"a": %d}\n' % (number * 7919) for number in range(5000))
    whole = pa.compress(lines, COMPRESSIONS[Path(name).suffix], asbytes=True) if cut else lines
    (tmp_path / name).write_bytes(whole[: len(whole) - cut])
    with pytest.raises(FormatError, match=rf"{name}"):
        ingest(tmp_path / name, tmp_path / "t.lance", bad_records=tmp_path / "bad.lance")


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["empty", "gzip"])
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_an_empty_file_among_others_has_no_rows(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    uri, folder = tmp_path / "t.lance", tmp_path / "in"
    filled = "a,b\n1,x\n" if suffix == "csv" else '{"a": 1, "b": "x"}\n'
    (folder / "k=1").mkdir(parents=True)
    (folder / "k=2").mkdir()
    (folder / "k=1" / f"a.{suffix}{'.gz' * bool(content)}").write_bytes(content)
    (folder / "k=2" / f"b.{suffix}").write_text(filled)
    assert ingest(folder, uri).rows == 1
    assert rows_of(uri) == [{"a": 1, "b": "x", "k": 2}]

    alone = [ingest(folder / "k=1", uri, mode="append", once=True) for _ in range(2)]
    assert [(result.rows, result.files) for result in alone] == [(0, bool(content)), (0, 0)]
    (folder / "k=1" / f"a.{suffix}").write_text(filled)
    assert ingest(folder / "k=1", uri, mode="append", once=True).rows == 1


def test_records_of_json_without_members_are_rows_of_nulls(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}\n{}\n")
    (tmp_path / "b.json").write_text('{"a": 1}\n')
    ingest(tmp_path / "*.json", tmp_path / "t.lance")
    assert rows_of(tmp_path / "t.lance") == [{"a": None}, {"a": None}, {"a": 1}]


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("name", ["a.csv.bz2", "a.json.bz2", "a.txt.bz2"])
def test_empty_parts_of_compressed_files_end_in_rows_or_an_error(tmp_path: Path, name: str) -> None:
    lines = b"".join(b'{"a": %d}\n' % number for number in range(50_000))
    parts = [bz2.compress(part) for part in (lines, b"", lines)]
    (tmp_path / name).write_bytes(b"".join(parts))
    with suppress(FormatError):
        assert ingest(tmp_path / name, tmp_path / "t.lance").rows == 100_000


def test_a_pattern_with_brackets_means_what_it_means_in_a_shell(tmp_path: Path) -> None:
    for name in ("a.csv", "[.csv", "&.csv", "!].csv"):
        (tmp_path / name).write_text("x\n1\n")

    def found(pattern: str) -> list[str]:
        return [file.path for file in list_sources([f"{tmp_path}/{pattern}"])]

    assert found("[[&].csv") == ["&.csv", "[.csv"]
    assert found("[a&&z].csv") == ["&.csv", "a.csv"]
    assert found("[!a].csv") == ["&.csv", "[.csv"]
    assert found("?].csv") == ["!].csv"]
    for pattern in ("[z-a].csv", "[!].csv"):
        with pytest.raises(OptionError, match="pattern"):
            found(pattern)


def test_the_name_of_a_file_that_is_a_pattern_of_others_reads_none_of_them(tmp_path: Path) -> None:
    for name in ("a1.csv", "a[1].csv", "b1.csv", "*.csv"):
        (tmp_path / name).write_text("x\n1\n")
    with pytest.raises(OptionError, match=r"a\[\[\]1\]\.csv' is the file$"):
        list_sources([f"{tmp_path}/a[1].csv"])
    assert [file.path for file in list_sources([f"{tmp_path}/a[[]1].csv"])] == ["a[1].csv"]
    assert [file.path for file in list_sources([f"{tmp_path}/b[1].csv"])] == ["b1.csv"]
    assert len(list_sources([f"{tmp_path}/*.csv"])) == 4


def test_values_over_lines_are_found_beside_carriage_returns_that_end_records(
    tmp_path: Path,
) -> None:
    source = tmp_path / "a.csv"
    record = "%d,x\r" * 9 + '%d,"' + "p" * 90 + "\nq,1" * 8 + '"\n'
    texts = (record % ((number,) * 10) for number in range(12_000))
    source.write_text("a,b\n" + "".join(texts), newline="")
    glaive.ingest(source, tmp_path / "t.lance")
    rows = glaive.dataset(tmp_path / "t.lance").to_table()
    assert rows["a"].to_pylist() == [number for number in range(12_000) for _ in range(10)]
    assert rows["b"][-1].as_py() == "p" * 90 + "\nq,1" * 8


@pytest.mark.parametrize(
    "text",
    ['a,b\n"', 'a\n\r\r\n\t\r,"1\r\n"2\na1', 'a\tb"\r\nb"c\td\n'],
    ids=["one mark", "carriage returns", "other separators"],
)
def test_marks_and_carriage_returns_that_stand_alone_are_errors_of_the_file(
    tmp_path: Path, text: str
) -> None:
    source = tmp_path / "a.csv"
    source.write_bytes(text.encode())
    with pytest.raises(FormatError, match=r"a\.csv, line \d"):
        glaive.ingest(source, tmp_path / "t.lance")


@pytest.mark.parametrize("name", ["a.parquet", "a.orc"])
@pytest.mark.parametrize("schema", [None, "a bigint, b bigint"])
def test_columns_of_one_name_are_not_taken_for_each_other(
    tmp_path: Path, name: str, schema: str | None
) -> None:
    columns: list[Any] = [pa.array([1, 2]), pa.array([10, 20]), pa.array([100, 200])]
    rows: Any = pa.table(columns, names=["a", "b", "a"])
    (parquet if name.endswith("parquet") else orc).write_table(rows, tmp_path / name)
    with pytest.raises(FormatError, match=rf"{name}: several columns are called 'a'"):
        ingest(tmp_path / name, tmp_path / "t.lance", schema=schema)


def test_a_bad_record_is_put_aside_beside_types_that_no_expression_has(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,v,b\n1,5,ab\nx,5,ab\n2,5,cd\n")
    kinds = {"id": pa.int64(), "v": pa.duration("s"), "b": pa.binary(2)}
    out, aside = tmp_path / "t.lance", tmp_path / "bad.lance"
    done = glaive.ingest(str(tmp_path / "x.csv"), out, bad_records=aside, schema=pa.schema(kinds))
    assert (done.rows, done.bad_records) == (2, 1)
    assert glaive.dataset(out).to_table(columns=["id", "b"]).to_pylist() == [
        {"id": 1, "b": b"ab"},
        {"id": 2, "b": b"cd"},
    ]
