"""Values in names of folders, ``day=3/a.parquet``, are columns, for every format."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import csv, orc

import glaive
from glaive.cli.main import cli
from glaive.dataset.writing.plan import WriteOptions
from glaive.errors import SchemaError
from glaive.ingestion.plan import find_sources, plan_ingest
from glaive.ingestion.sources import Rejects, list_sources
from glaive.table.root import open_root

FORMATS = ("parquet", "csv", "json", "orc")
NULL = "__HIVE_DEFAULT_PARTITION__"


def put(path: Path, rows: dict[str, list[Any]]) -> None:
    """Write a file of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(rows)
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        write: dict[str, Any] = {".parquet": pq.write_table, ".csv": csv.write_csv}
        write[".orc"] = orc.write_table
        write[path.suffix](table, path)


def rows_of(uri: Path) -> list[tuple[Any, ...]]:
    rows = glaive.dataset(str(uri)).to_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.fixture(params=FORMATS)
def days(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Files of one format in folders of two levels."""
    for at, folder in enumerate(
        ("day=2026-01-01/city=a%2Fb", "day=2026-01-02/city=Zürich", f"day={NULL}/city={NULL}")
    ):
        put(tmp_path / "in" / folder / f"x.{request.param}", {"id": [at]})
    return tmp_path / "in"


def test_a_folder_is_ingested_with_its_values(days: Path, tmp_path: Path) -> None:
    glaive.ingest(str(days), tmp_path / "t.lance")
    made = glaive.dataset(tmp_path / "t.lance")
    assert made.schema == pa.schema({"id": "int64", "day": "date32", "city": "string"})
    assert rows_of(tmp_path / "t.lance") == [
        (0, date(2026, 1, 1), "a/b"),
        (1, date(2026, 1, 2), "Zürich"),
        (2, None, None),
    ]


@pytest.mark.parametrize("pattern", ["/*/*", "/**/*", "", "/city=*/*.*"])
def test_a_day_by_its_folder_or_a_pattern_keeps_its_values(
    days: Path, tmp_path: Path, pattern: str
) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        mode = "append" if day.endswith("2") else "create"
        glaive.ingest(f"{days}/day={day}{pattern}", tmp_path / "t.lance", mode=mode)
    assert rows_of(tmp_path / "t.lance") == [
        (0, date(2026, 1, 1), "a/b"),
        (1, date(2026, 1, 2), "Zürich"),
    ]


def test_one_file_by_its_name_keeps_its_values(days: Path, tmp_path: Path) -> None:
    (file,) = (days / "day=2026-01-02").rglob("x.*")
    glaive.ingest(file, tmp_path / "t.lance")
    assert rows_of(tmp_path / "t.lance") == [(1, date(2026, 1, 2), "Zürich")]


def test_a_schema_names_their_types_or_leaves_them_out(days: Path, tmp_path: Path) -> None:
    glaive.ingest(str(days), tmp_path / "t.lance", schema="city string, id bigint, day timestamp")
    assert ("a/b", 0, datetime(2026, 1, 1, tzinfo=UTC)) in rows_of(tmp_path / "t.lance")
    with pytest.raises(SchemaError, match=r"value '2026-01-01' .* is not int32, .* 'day'"):
        glaive.ingest(str(days), tmp_path / "n.lance", schema="id bigint, day int")
    glaive.ingest(str(days), tmp_path / "u.lance", schema="id bigint")
    assert rows_of(tmp_path / "u.lance") == [(0,), (1,), (2,)]


def test_a_dataset_without_their_columns_gets_them_if_asked(days: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"id": [7]}), uri)
    with pytest.raises(SchemaError, match=r"'day' in names of folders .*schema_drift='add'"):
        glaive.ingest(str(days), uri, mode="append")
    glaive.ingest(str(days / "day=2026-01-01"), uri, mode="append", schema="id bigint")
    assert rows_of(uri) == [(0,), (7,)]
    glaive.ingest(str(days / "day=2026-01-02"), uri, mode="append", schema_drift="add")
    glaive.ingest(
        str(days),
        uri,
        mode="merge",
        merge_keys="id",
        expect="day is null or day > date '2026-01-01'",
        on_violation="drop",
    )
    assert rows_of(uri) == [
        (0, None, None),
        (1, date(2026, 1, 2), "Zürich"),
        (2, None, None),
        (7, None, None),
    ]


def test_a_column_of_the_files_is_that_of_the_files(days: Path, tmp_path: Path) -> None:
    (file,) = (days / "day=2026-01-02").rglob("x.*")
    put(file, {"id": [1], "Day": ["Friday"]})
    for other in ("day=2026-01-01", f"day={NULL}"):
        next((days / other).rglob("x.*")).unlink()
    glaive.ingest(str(days), tmp_path / "t.lance")
    assert rows_of(tmp_path / "t.lance") == [(1, "Friday", "Zürich")]


OWN = {
    "one file has the column": (
        {"a=1/x": {"id": [1, 2]}, "a=2/y": {"id": [3], "a": [9]}}, [(1, 1), (2, 1), (3, 9)],
    ),
    "nulls of the file": ({"b=2/x": {"id": [1, 2], "b": [5, None]}}, [(1, 5), (2, None)]),
    "a text beside numbers": ({"b=zz/x": {"id": [1], "b": [5]}}, [(1, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("command", ["ingest", "convert"])
@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("name", OWN)
def test_values_of_a_file_stay_and_files_without_the_column_get_that_of_their_folder(
    tmp_path: Path, command: str, kind: str, name: str
) -> None:
    files, found = OWN[name]
    for path, rows in files.items():
        put(tmp_path / "in" / f"{path}.{kind}", rows)
    source, out = str(tmp_path / "in"), str(tmp_path / "t.lance")
    if command == "ingest":
        glaive.ingest(source, out, schema_drift="widen")
    else:
        told = CliRunner().invoke(cli, ["convert", source, out, "--from", kind])
        assert told.exit_code == 0, told.output
    assert rows_of(tmp_path / "t.lance") == found


def test_a_folder_that_needs_a_wider_type_widens_the_column_if_asked(tmp_path: Path) -> None:
    out = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"id": [1], "a": pa.array([3], pa.int32())}), out)
    put(tmp_path / "in" / "a=5000000000" / "x.parquet", {"id": [2]})
    with pytest.raises(SchemaError, match="schema_drift='widen'"):
        glaive.ingest(str(tmp_path / "in"), out, mode="append")
    glaive.ingest(str(tmp_path / "in"), out, mode="append", schema_drift="widen")
    assert rows_of(out) == [(1, 3), (2, 5_000_000_000)]


def test_tasks_can_be_sent_elsewhere(days: Path, tmp_path: Path) -> None:
    sources = find_sources(
        list_sources([str(days)]),
        format=None,
        existing=None,
        schema=None,
        vectors=(),
        schema_drift="fail",
        reader_options={},
    )
    plan = plan_ingest(open_root(tmp_path / "t.lance"), sources, WriteOptions())
    (task,) = pickle.loads(pickle.dumps(plan.tasks))
    first, *_ = task.rows(Rejects(keep=False, job_id=None))
    assert first.to_pylist() == [{"id": 0, "day": date(2026, 1, 1), "city": "a/b"}]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (None, [(0, date(2026, 1, 1), "a/b"), (1, date(2026, 1, 2), "Zürich"), (2, None, None)]),
        ("id", [(0,), (1,), (2,)]),
        ("city,id", [("Zürich", 1), ("a/b", 0), (None, 2)]),
        ("city", [("Zürich",), ("a/b",), (None,)]),
    ],
)
@pytest.mark.parametrize("days", ["parquet", "csv", "json"], indirect=True)
def test_a_folder_is_converted_with_its_values(
    days: Path, tmp_path: Path, columns: str | None, found: Sequence[Any]
) -> None:
    kind = next(days.rglob("x.*")).suffix[1:]
    asked = [] if columns is None else ["--columns", columns]
    told = CliRunner().invoke(
        cli, ["convert", str(days), str(tmp_path / "t.lance"), "--from", kind, *asked]
    )
    assert told.exit_code == 0, told.output
    assert rows_of(tmp_path / "t.lance") == found


TYPES: dict[str, tuple[list[str], Any, list[Any]]] = {
    "integers": (["1", "-20", "007"], pa.int32(), [1, -20, 7]),
    "long": (["1", "3000000000"], pa.int64(), [1, 3_000_000_000]),
    "longer": (["1", "1" * 20], pa.decimal128(38, 0), [Decimal(1), Decimal("1" * 20)]),
    "fractions": (["1", "2.5", "1e-3"], pa.float64(), [1.0, 2.5, 0.001]),
    "other fractions": (
        ["+5", ".5", "Infinity", "-1.5f", " 5 "],
        pa.float64(),
        [5.0, 0.5, float("inf"), -1.5, 5.0],
    ),
    "signs and limits": (["+5", "-2147483648"], pa.int32(), [5, -(2**31)]),
    "exponents": (["5.", "1E5"], pa.decimal128(38, 0), [Decimal(5), Decimal(100_000)]),
    "a hash of digits and an e": (["83e5471029384756102938"], pa.float64(), [float("inf")]),
    "no fractions": (["inf", "nan"], pa.string(), ["inf", "nan"]),
    "long with fractions": (["3000000000", "2.5"], pa.string(), ["3000000000", "2.5"]),
    "days": (["2026-01-31", NULL], pa.date32(), [date(2026, 1, 31), None]),
    "times": (
        ["2026-01-31", "2026-01-31 10%3A30%3A00"],
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 1, 31, 10, 30, tzinfo=UTC)],
    ),
    "no day": (["2026-02-30", "2026-01-31"], pa.string(), ["2026-02-30", "2026-01-31"]),
    "texts": (["true", "a=b", "%C3%BC", "%"], pa.string(), ["true", "a=b", "ü", "%"]),
    "nothing": ([NULL, ""], pa.string(), [None, None]),
    "months": (["2026-01", "2026-02"], pa.string(), ["2026-01", "2026-02"]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_are_inferred_as_by_spark(tmp_path: Path, name: str) -> None:
    texts, kind, values = TYPES[name]
    for at, text in enumerate(texts):
        put(tmp_path / "in" / f"%6b={text}" / "a.parquet", {"id": [at]})
    glaive.ingest(str(tmp_path / "in"), tmp_path / "t.lance")
    made = glaive.dataset(tmp_path / "t.lance").to_table()
    assert made.schema.field("k").type == kind
    assert made.sort_by("id")["k"].to_pylist() == values


@pytest.mark.parametrize("format", ["text", "binary"])
def test_files_that_state_no_columns_get_those_of_folders(tmp_path: Path, format: str) -> None:
    for at, kind in enumerate(("cat", "dog")):
        (tmp_path / f"in/kind={kind}").mkdir(parents=True)
        (tmp_path / f"in/kind={kind}/{at}.txt").write_text("x" * 9)
    glaive.ingest(str(tmp_path / "in"), tmp_path / "t.lance", format=format)
    made = glaive.dataset(tmp_path / "t.lance")
    assert made.to_table(columns=["kind"])["kind"].to_pylist() == ["cat", "dog"]
    if format == "binary":
        assert [blob.read() for blob in made.take_blobs("content", indices=[0, 1])] == [
            b"x" * 9
        ] * 2


def test_folders_far_above_a_source_do_not_count(tmp_path: Path) -> None:
    put(tmp_path / "run=5/in/a.parquet", {"id": [1]})
    glaive.ingest(str(tmp_path / "run=5/in"), tmp_path / "t.lance")
    assert rows_of(tmp_path / "t.lance") == [(1,)]


def test_a_value_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "in" / "name=\udcff" / "a.json", {"id": [1]})
    with pytest.raises(SchemaError, match=r"'\\udcff', .* is not UTF-8"):
        glaive.ingest(str(tmp_path / "in"), tmp_path / "t.lance")
