"""Exports: rows become files of other formats, whole or not at all."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.kit.crashes import left_by_kills
from tests.kit.system_errors import failing_from

import glaive
from glaive.dataset.tasks import FragmentRange, InProcess, SharingTask, Task
from glaive.dataset.version import OpenedVersion
from glaive.errors import DatasetExistsError, OptionError, SchemaError, StoreError
from glaive.ingestion.exporting import export_files, json_lines

ROWS = 30
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.uint16()),
        "text": [None if n % 7 == 3 else f'"{n}", \\ é\n' for n in range(ROWS)],
        "at": pa.array([datetime(2026, 1, 1 + n % 28, tzinfo=UTC) for n in range(ROWS)]),
        "price": pa.array([Decimal(n).scaleb(-2) for n in range(ROWS)], pa.decimal128(9, 2)),
    }
)


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))


class OneForEach(InProcess):
    """Runs a task for each fragment."""

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        manifest = dataset.manifest
        return [FragmentRange(manifest.version, n, n + 1) for n in range(manifest.num_fragments)]


class Failing(OneForEach):
    """Runs all tasks, and fails at the end."""

    def run(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[Task[Any] | SharingTask[Any]],
        shared: Any = None,
    ) -> list[Any]:
        super().run(dataset, tasks, shared)
        raise ConnectionError("the network is down")


@pytest.fixture
def opened(tmp_path: Path) -> OpenedVersion:
    dataset = glaive.write_dataset(TABLE, tmp_path / "t.lance", max_rows_per_file=10)
    dataset.delete("id = 4")
    return dataset.opened


def names(folder: Path) -> list[str]:
    """Kinds of the files that readers see; hidden ones are of writers that were killed."""
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted(path.name.partition("-")[0] + path.suffix for path in found)


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def kept() -> list[dict[str, Any]]:
    return [row for row in TABLE.to_pylist() if row["id"] != 4]


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        options = csv.ConvertOptions(
            column_types=TABLE.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        parse = csv.ParseOptions(newlines_in_values=True)
        return csv.read_csv(path, parse_options=parse, convert_options=options).to_pylist()
    if path.suffix == ".json":
        found = [
            json.loads(line, parse_float=Decimal) for line in path.read_text("utf-8").splitlines()
        ]
        return [
            {**row, "at": datetime.fromisoformat(row["at"]), "price": Decimal(row["price"])}
            for row in found
        ]
    return pa.ipc.open_file(path).read_all().to_pylist()


@pytest.mark.parametrize("name", ["parquet", "csv", "json", "arrow", "feather"])
def test_files_have_the_rows(opened: OpenedVersion, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    counts = export_files(opened, str(folder), name, runner=OneForEach())
    assert names(folder) == ["_SUCCESS", *[f"part.{name}"] * 3]
    assert [row for path in parts(folder) for row in read(path)] == kept()
    size = sum(path.stat().st_size for path in parts(folder))
    assert counts == {"num_files": 3, "num_rows": ROWS - 1, "bytes": size}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, 1, None, None, 3, None]),
        pa.array([None, "a\n\nb", "", None]),
        pa.array([None, "a", None, ""]).dictionary_encode(),
        pa.nulls(3, pa.timestamp("us")),
        pa.array([None, True, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("header", ["true", "false"])
def test_no_line_of_csv_is_empty_since_readers_pass_over_these(
    tmp_path: Path, values: Any, header: str
) -> None:
    dataset = glaive.write_dataset(pa.table({"a": values}), tmp_path / "t.lance")
    folder = tmp_path / "out"
    export_files(dataset.opened, str(folder), "csv", options={"header": header})
    (path,) = parts(folder)
    found = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=["a"], skip_rows=int(header == "true")),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={"a": dataset.to_table().column("a").combine_chunks().type},
            strings_can_be_null=True,
        ),
    )
    expected = [value or None for value in values.to_pylist()]
    assert [value or None for value in found["a"].to_pylist()] == expected
    options = {"header": header == "true", "multiline": True}
    schema = dataset.schema if options["header"] else None
    glaive.ingest(folder, tmp_path / "again.lance", schema=schema, reader_options=options)
    again = glaive.dataset(tmp_path / "again.lance").to_table().column(0)
    assert len(again) == len(values)
    if schema is not None:
        assert [value or None for value in again.to_pylist()] == expected


def test_columns_and_rows_are_chosen(opened: OpenedVersion, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    options = {"header": "false", "sep": ";"}
    columns = {"id": "id", "twice": "id * 2"}
    export_files(opened, folder, "csv", columns=columns, filter="id < 3", options=options)
    assert parts(Path(folder))[0].read_text() == "0;0\n1;2\n2;4\n"


def test_a_dataset_without_rows_becomes_a_file_with_columns(tmp_path: Path) -> None:
    opened = glaive.write_dataset(TABLE.slice(0, 0), tmp_path / "t.lance").opened
    export_files(opened, str(tmp_path / "out"), "parquet")
    (path,) = parts(tmp_path / "out")
    assert pq.read_schema(path).names == TABLE.column_names


@pytest.mark.parametrize("name", ["arrow", "feather", "parquet"])
def test_a_file_has_the_rows_of_fragments_with_dictionaries_of_their_own(
    tmp_path: Path, name: str
) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    for items in (["a", "b", None], ["c", "b"], ["b", "a", "d"], ["a"]):
        values: Any = pa.array(items).dictionary_encode().cast(kind)
        rows = pa.table(
            {
                "x": values,
                "s": pa.StructArray.from_arrays([values], ["m"]),
                "l": pa.ListArray.from_arrays(
                    [0, len(values)] + [len(values)] * (len(values) - 1), values
                ),
            }
        )
        dataset = glaive.write_dataset(rows, tmp_path / "t.lance", mode="append")
    folder = tmp_path / "out"
    export_files(dataset.opened, str(folder), name)
    (path,) = parts(folder)
    found = pq.read_table(path) if name == "parquet" else pa.ipc.open_file(path).read_all()
    found.validate(full=True)
    assert found.to_pylist() == dataset.to_table().to_pylist()


def test_nested_values_become_json(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "s": {"a": 1, "b": [1.5, None]},
            "l": [["x", None], []],
            "f": 1e300,
            "d": date(2026, 1, 2),
        },
        {"s": None, "l": None, "f": float("nan"), "d": None},
        {"s": {"a": None, "b": None}, "l": [None, ["\x01\t"]], "f": float("-inf"), "d": None},
    ]
    schema = pa.schema(
        {
            "s": pa.struct({"a": pa.int8(), "b": pa.list_(pa.float32())}),
            "l": pa.list_(pa.list_(pa.string())),
            "f": pa.float64(),
            "d": pa.date32(),
        }
    )
    table = pa.Table.from_pylist(rows, schema)
    vectors = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float16(), 2))
    table = table.append_column("v", vectors).append_column(
        'a "name"', pa.array(["y", "y", None]).dictionary_encode()
    )
    opened = glaive.write_dataset(table, tmp_path / "t.lance").opened

    export_files(opened, str(tmp_path / "out"), "json")

    (path,) = parts(tmp_path / "out")
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    rows[0]["d"] = "2026-01-02"
    rows[1]["f"], rows[2]["f"] = "NaN", "-Infinity"
    assert found == [
        {**rows[0], "v": [1, 2], 'a "name"': "y"},
        {**rows[1], "v": None, 'a "name"': "y"},
        {**rows[2], "v": [3, 4], 'a "name"': None},
    ]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("csv", pa.array([[1]]), "column x: CSV has no list"),
        ("csv", pa.array([b"x"]), "column x: CSV has no binary"),
        ("json", pa.array([{"b": b"x"}]), "column x: JSON has no bytes"),
        ("json", UUIDS, "column x: JSON has no bytes"),
        ("csv", UUIDS, r"column x: CSV has no extension<arrow\.uuid>"),
        ("parquet", pa.array([{}], pa.struct([])), "column x: Parquet has no struct<>"),
        (
            "parquet",
            pa.array([[Decimal(100)]], pa.list_(pa.decimal128(5, -2))),
            r"column x: Parquet has no list<.*decimal128\(5, -2\)>: Scale",
        ),
    ],
)
def test_types_that_a_format_lacks_are_refused(
    tmp_path: Path, name: str, column: Any, message: str
) -> None:
    opened = glaive.write_dataset(pa.table({"x": column}), tmp_path / "t.lance").opened
    with pytest.raises(SchemaError, match=message):
        export_files(opened, str(tmp_path / "out"), name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("parquet", pa.array([2**62], pa.timestamp("s"))),
        ("csv", pa.array([0], pa.timestamp("us", "Nowhere/Land"))),
        ("json", pa.array([0], pa.timestamp("us", "Nowhere/Land"))),
    ],
)
def test_values_that_do_not_fit_a_format_leave_no_file(
    tmp_path: Path, name: str, column: pa.Array
) -> None:
    opened = glaive.write_dataset(pa.table({"x": column}), tmp_path / "t.lance").opened
    with pytest.raises(SchemaError, match=f"a value does not fit {name}: .*export as arrow"):
        export_files(opened, str(tmp_path / "out"), name)
    assert not parts(tmp_path / "out")


def test_times_that_no_calendar_has_are_json_as_arrow_shows_them() -> None:
    times = pa.array([0, 2**62, None], pa.timestamp("us"))
    text = json_lines(pa.record_batch([times], ["at"])).to_pybytes()
    rows = [json.loads(line) for line in text.splitlines()]
    shown = ["1970-01-01T00:00:00.000000", "<value out of range: 4611686018427387904>", None]
    assert [row["at"] for row in rows] == shown


def test_maps_become_objects_of_json(tmp_path: Path) -> None:
    rows = [
        {"m": [("a", 1), ("b", None)], "n": [[(1, "x")], []]},
        {"m": None, "n": None},
        {"m": [], "n": [[(2, "y"), (3, "z")]]},
    ]
    texts, numbers = pa.map_(pa.string(), pa.int32()), pa.map_(pa.int8(), pa.string())
    schema = pa.schema({"m": texts, "n": pa.list_(numbers)})
    table = pa.Table.from_pylist(rows, schema)
    opened = glaive.write_dataset(table, tmp_path / "t.lance", data_storage_version="2.2").opened

    export_files(opened, str(tmp_path / "out"), "json")

    (path,) = parts(tmp_path / "out")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"m": {"a": 1, "b": None}, "n": [{"1": "x"}, {}]},
        {"m": None, "n": None},
        {"m": {}, "n": [{"2": "y", "3": "z"}]},
    ]


def test_keys_of_maps_are_texts_of_json_whatever_they_are() -> None:
    members = pa.struct([("q", pa.string())])
    quoted = pa.array(['a"\\\n']).dictionary_encode()
    maps = {
        "struct": pa.array([[({"q": '"\\'}, 1)]], pa.map_(members, pa.int8())),
        "list": pa.array([[(["a"], 1)]], pa.map_(pa.list_(pa.string()), pa.int8())),
        "dictionary": pa.MapArray.from_arrays([0, 1], quoted, pa.array([1])),
        "float": pa.array([[(float("nan"), 1)]], pa.map_(pa.float64(), pa.int8())),
        "date": pa.array([[(date(2026, 1, 2), 1)]], pa.map_(pa.date32(), pa.int8())),
    }
    batch = pa.RecordBatch.from_arrays(list(maps.values()), names=list(maps))
    row = json.loads(json_lines(batch).to_pybytes())
    assert json.loads(next(iter(row["struct"]))) == {"q": '"\\'}
    assert row["list"] == {'["a"]': 1}
    assert row["dictionary"] == {'a"\\\n': 1}
    assert (row["float"], row["date"]) == ({"NaN": 1}, {"2026-01-02": 1})


def test_extension_types_are_csv_of_what_they_store(tmp_path: Path) -> None:
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None]))
    table = pa.table({"f": flags, "j": texts})
    opened = glaive.write_dataset(table, tmp_path / "t.lance", data_storage_version="2.2").opened
    export_files(opened, str(tmp_path / "out"), "csv")
    (path,) = parts(tmp_path / "out")
    assert path.read_text() == '"f","j"\n1,"{""a"":1}"\n,\n'


def test_the_mode_says_what_becomes_of_other_files(opened: OpenedVersion, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    path = str(folder)
    export_files(opened, path, "parquet", "ignore")
    with pytest.raises(DatasetExistsError, match=r"out has files, such as _SUCCESS"):
        export_files(opened, path, "parquet")
    assert export_files(opened, path, "parquet", "ignore")["num_files"] == 0
    export_files(opened, path, "csv", "append")
    assert names(folder) == ["_SUCCESS", "part.csv", "part.parquet"]
    export_files(opened, path, "arrow", "overwrite")
    assert names(folder) == ["_SUCCESS", "part.arrow"]


@pytest.mark.parametrize(
    "name",
    [
        "mine.txt",
        "part-time staff.xlsx",
        "part-2.csv",
        "part-00001 b\n",
        ".mine.crc",
        "_started-x",
        f"_started-mine/a-{'0' * 16}",
        f"_started-mine a-{'0' * 16}",
    ],
)
def test_no_file_is_overwritten_that_no_export_wrote(
    opened: OpenedVersion, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "out"
    export_files(opened, str(folder), "csv")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    with pytest.raises(OptionError, match="out is not a file of an export"):
        export_files(opened, str(folder), "csv", "overwrite")
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("run", ["x/../../mine", "x\0", "\ud800", "x" * 5000, ["x"], None])
def test_a_mark_that_names_no_run_is_that_of_an_ended_export(
    opened: OpenedVersion, tmp_path: Path, run: object
) -> None:
    folder = tmp_path / "out"
    counts = export_files(opened, str(folder), "csv", job_id="nightly")
    mark = json.loads((folder / "_SUCCESS").read_text())
    (folder / "_SUCCESS").write_text(json.dumps({**mark, "run": run}))
    assert export_files(opened, str(folder), "csv", job_id="nightly") == counts


@pytest.mark.parametrize("wrong", [{"num_rows": -1}, {"bytes": True}, {"num_files": "1"}])
def test_a_mark_with_impossible_counts_is_none_of_the_job(
    opened: OpenedVersion, tmp_path: Path, wrong: dict[str, object]
) -> None:
    folder = tmp_path / "out"
    counts = export_files(opened, str(folder), "csv", job_id="nightly")
    mark = json.loads((folder / "_SUCCESS").read_text())
    (folder / "_SUCCESS").write_text(json.dumps({**mark, **wrong, "files": [[], "x"]}))
    assert export_files(opened, str(folder), "csv", "overwrite", job_id="nightly") == counts
    assert names(folder) == ["_SUCCESS", "part.csv"]


def test_files_of_spark_are_overwritten(opened: OpenedVersion, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    unique = "0d7c2b4e-6f0e-4a57-9f3c-1c8d6f2f7a10"
    for name in (
        f"part-00000-{unique}-c000.snappy.parquet",
        f".part-00000-{unique}-c000.csv.gz.crc",
        f"part-00001-{unique}_00003.c000.json",
        "part-r-00000",
        "part-m-00000.avro",
        "_SUCCESS",
        "._SUCCESS.crc",
    ):
        (folder / name).touch()
    export_files(opened, str(folder), "csv", "overwrite")
    assert names(folder) == ["_SUCCESS", "part.csv"]
    assert not hidden(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "xml"}, "format: expected one of parquet"),
        ({"mode": "replace"}, "mode: expected one of 'errorifexists'"),
        ({"options": {"compresion": "zstd"}}, "did you mean compression"),
        ({"options": {"compression": "rar"}}, "compression: expected one of 'zstd'"),
        ({"job_id": "../x"}, "job_id: expected up to 128 letters"),
    ],
)
def test_wrong_options_are_refused(
    opened: OpenedVersion, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        export_files(opened, str(tmp_path / "out"), **({"format": "parquet"} | arguments))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "separator", ["", "||", "é", "\0", "\n", '"', "1", "-", ".", ":", "e", " "]
)
def test_values_of_csv_that_are_not_quoted_do_not_have_its_separator(
    opened: OpenedVersion, tmp_path: Path, separator: str
) -> None:
    """Numbers and times are not: ``1-1`` with ``-`` between columns would be three of them."""
    with pytest.raises(OptionError, match="sep: "):
        export_files(opened, str(tmp_path / "out"), "csv", options={"sep": separator})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("separator", [";", "\t", "|", "\x01", "/", " "])
def test_csv_is_read_with_the_separator_that_it_was_given(tmp_path: Path, separator: str) -> None:
    rows = pa.table({"n": [-1.5, 2e300], "on": [date(2026, 1, 2)] * 2, "text": ["a/ ;|\t", "\x01"]})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    export_files(dataset.opened, str(tmp_path / "out"), "csv", options={"sep": separator})
    (part,) = (tmp_path / "out").glob("*.csv")
    read = csv.read_csv(part, parse_options=csv.ParseOptions(delimiter=separator))
    assert read.to_pylist() == rows.to_pylist()


def test_an_export_that_fails_leaves_nothing(opened: OpenedVersion, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        export_files(opened, str(tmp_path / "out"), "parquet", runner=Failing())
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("mode", ["errorifexists", "overwrite"])
def test_a_job_killed_at_any_step_goes_on(opened: OpenedVersion, tmp_path: Path, mode: Any) -> None:
    begun, unfinished = tmp_path / "out", 0
    if mode == "overwrite":
        export_files(opened, str(begun), "json", mode)

    def run(folder: Path) -> dict[str, int]:
        return export_files(opened, str(folder), "arrow", mode, job_id="j", runner=OneForEach())

    left = left_by_kills(begun, partial(run, begun), tmp_path / "left")
    for folder in left:
        mark = folder / "_SUCCESS"
        done = mark.exists() and '"job": "j"' in mark.read_text()
        if done:
            found = [name for name in names(folder) if not name.startswith("_started")]
            assert found == ["_SUCCESS", *["part.arrow"] * 3]
        unfinished += len(hidden(folder)) if folder.exists() else 0
        counts = run(folder)
        assert names(folder) == ["_SUCCESS", *["part.arrow"] * 3]
        assert hidden(folder) == []
        assert sum(len(read(path)) for path in parts(folder)) == counts["num_rows"] == ROWS - 1
        assert run(folder) == counts
    assert len(left) > 5
    assert unfinished, "files that were being written"


def test_the_mark_names_the_files_of_all_that_ended_at_whatever_step_another_was_killed(
    opened: OpenedVersion, tmp_path: Path
) -> None:
    """Also of those that could not remove their claim any more, once they had written a mark."""
    begun = tmp_path / "out"
    for job in ("first", "second"):
        export_files(opened, str(begun), "arrow", "append", job_id=job)
    ended = {path.name for path in parts(begun)}
    for path in parts(begun):
        (begun / path.stem.replace("part-00000", "_started")).write_text("{}")

    def run(folder: Path) -> dict[str, int]:
        return export_files(opened, str(folder), "arrow", "append", job_id="third")

    left = left_by_kills(begun, partial(run, begun), tmp_path / "left")
    for folder in left:
        run(folder)
        found = [path.name for path in parts(folder)]
        assert ended < {*found}
        assert json.loads((folder / "_SUCCESS").read_text())["files"] == found
    assert len(left) > 5


def test_files_that_another_export_is_writing_stay(opened: OpenedVersion, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_files(opened, str(folder), "json", job_id="other")
    writing = folder / ".part-00000-another.json.0123456789abcdef.tmp"
    writing.write_text("{")
    export_files(opened, str(folder), "json", "append", job_id="j")
    assert hidden(folder) == [writing.name]
    export_files(opened, str(folder), "json", "overwrite")
    assert hidden(folder) == []


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-20")
@pytest.mark.parametrize("mode", ["errorifexists", "append", "overwrite"])
def test_a_disk_that_is_full_before_the_end_leaves_nothing_of_an_export(
    opened: OpenedVersion, tmp_path: Path, mode: Any
) -> None:
    """Also where only the mark found no place: what is tried again then is not there twice."""
    at, failed, without_mark = 0, True, 0
    while failed:
        at += 1
        folder = tmp_path / f"out{at}"

        def run(folder: Path = folder) -> dict[str, int]:
            return export_files(opened, str(folder), "arrow", mode, runner=OneForEach())

        if mode == "append":
            run()
        before = parts(folder) if mode == "append" else []
        with failing_from(str(folder), errno.ENOSPC, at) as calls:
            try:
                run()
            except StoreError as error:
                without_mark += "_SUCCESS" in str(error)
        failed = calls.failed
        if failed:
            assert (parts(folder) if folder.exists() else []) == before
            run()
        assert names(folder) == ["_SUCCESS", *["part.arrow"] * (len(before) + 3)]
    assert at > 5
    assert without_mark
