"""The commands that look at datasets, as people and pipes see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import glaive
from glaive.cli.main import COMMANDS
from glaive.ingestion import FORMATS

Call = Callable[..., Result]


def lines(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_an_example(call: Call, name: str) -> None:
    result = call(name, "--help")

    assert result.exit_code == 0
    assert f"Examples:\n    glaive {name}" in result.stdout


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_can_be_named_to_ingest(call: Call, name: str, tmp_path: Path) -> None:
    assert name in call("ingest", "--help").stdout

    result = call("ingest", str(tmp_path / "none"), str(tmp_path / "t.lance"), "--format", name)

    assert result.exit_code == 1
    assert "none" in result.output


def test_a_format_that_does_not_exist_is_refused_with_those_that_do(call: Call) -> None:
    result = call("ingest", "a", "t.lance", "--format", "xml")

    assert result.exit_code == 1
    assert "format: expected one of csv, json" in result.output
    assert "found 'xml'" in result.output


def test_help_waits_for_nothing_heavy() -> None:
    script = (
        "import sys\nfrom glaive.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "print(*({'pyarrow', 'pyspark', 'numba', 'rich', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == ""


def test_a_command_that_ends_leaves_little_to_be_searched_for_garbage(things: str) -> None:
    script = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(len(gc.get_objects())))\n"
        "from glaive.cli.main import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "count", things], capture_output=True, text=True, check=True
    )

    count, objects = done.stdout.split()
    assert int(count) == 5
    assert int(objects) < 1_000


@pytest.mark.parametrize(
    ("words", "number", "completed"),
    [("glaive nam", 1, "plain,namespace"), ("glaive namespace se", 2, "plain,serve")],
)
def test_the_shell_completes_commands(words: str, number: int, completed: str) -> None:
    asked = {"_GLAIVE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    script = "from glaive.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **asked},
    )

    assert done.stdout.splitlines() == [completed]


def test_an_unknown_command_is_refused(call: Call) -> None:
    result = call("nothing")

    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.stderr


@pytest.mark.parametrize("name", ["versions", "schema", "head", "scan"])
def test_an_error_is_one_line_and_exit_code_1(call: Call, tmp_path: Path, name: str) -> None:
    result = call(name, str(tmp_path / "nowhere"))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: Dataset at path ")
    assert result.stderr.count("\n") == 1


def test_versions_lists_rows_and_fragments_of_each(call: Call, things: str) -> None:
    facts = lines(call("versions", things, "--json"))

    assert [(one["version"], one["rows"], one["fragments"]) for one in facts] == [
        (1, 3, 1),
        (2, 5, 2),
    ]
    table = call("versions", things).stdout
    assert "timestamp" in table
    assert len(table.strip().splitlines()) == 4


def test_schema_shows_types_nulls_and_metadata(call: Call, things: str) -> None:
    assert lines(call("schema", things, "--json"))[:2] == [
        {"name": "id", "type": "int64", "nullable": False, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {"unit": "none"}},
    ]
    table = call("schema", things, "--version", "1").stdout
    assert "fixed_size_list<item: float>[8]" in table
    assert "unit=none" in table


def test_head_prints_the_first_rows(call: Call, things: str) -> None:
    assert lines(call("head", things, "-n", "2", "--columns", "name,id", "--json")) == [
        {"name": "a", "id": 1},
        {"name": None, "id": 2},
    ]
    table = call("head", things).stdout
    assert "null" in table
    assert "[0, 1, 2, … 8 items]" in table
    assert "üüü…" in table


def test_scan_goes_through_all_or_some_rows(call: Call, things: str) -> None:
    def ids(*options: str) -> list[int]:
        rows = lines(call("scan", things, "--columns", "id", "--json", *options))
        return [row["id"] for row in rows]

    assert ids() == [1, 2, 3, 1, 2]
    assert ids("--version", "1") == [1, 2, 3]
    assert ids("--offset", "2", "--limit", "2") == [3, 1]


def test_scan_writes_a_parquet_file(call: Call, things: str, tmp_path: Path) -> None:
    result = call("scan", things, "--output", str(tmp_path / "out.parquet"))

    assert result.exit_code == 0
    assert "5 rows written" in result.stdout
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == [1, 2, 3, 1, 2]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no files in memory here")
def test_scan_writes_to_memory_and_replaces_no_device(call: Call, things: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        done = call("scan", things, "--output", f"{folder}/out.parquet")
        assert done.exit_code == 0, done.output
        linked = Path(folder, "devices")
        linked.symlink_to("/dev")
        refused = call("scan", things, "--output", f"{linked}/stdout", "--overwrite")
        assert "cannot be replaced" in refused.output


def test_a_parquet_file_does_not_get_the_ending_of_another_kind(
    call: Call, things: str, tmp_path: Path
) -> None:
    result = call("scan", things, "--output", str(tmp_path / "out.csv"))

    assert result.exit_code == 2
    assert "glaive convert" in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("version", ["main:x", "main:\u00b2", "main:1O"])
def test_a_version_that_is_no_number_is_not_the_newest(
    call: Call, things: str, version: str
) -> None:
    result = call("count", things, "--version", version)
    assert (result.exit_code, "expected branch:number" in result.stderr) == (2, True)
    assert call("count", things, "--version", "main:").stdout == "5\n"


def test_a_column_that_does_not_exist_is_named_with_the_closest(call: Call, things: str) -> None:
    result = call("head", things, "--columns", "nmae")

    assert result.exit_code == 1
    assert "did you mean 'name'?" in result.stderr


def test_warmup_says_when_it_is_done(call: Call) -> None:
    assert "compiled" in call("warmup").stderr
    assert call("warmup", "--quiet").output == ""


def test_the_module_runs_like_the_command(things: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glaive", "head", things, "-n", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout)["id"] == 1


def test_a_reader_that_leaves_ends_the_command_quietly(things: str) -> None:
    command = f"'{sys.executable}' -m glaive scan '{things}' --json | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout)["id"] == 1
    assert done.stderr == ""


def test_an_unknown_command_is_answered_with_the_closest(call: Call) -> None:
    result = call("shw", "x")
    assert result.exit_code == 2
    assert "No such command 'shw'. Did you mean 'show'?" in result.stderr


def test_rows_of_one_column_are_converted_with_their_nulls(call: Call, tmp_path: Path) -> None:
    source, target = tmp_path / "a.lance", tmp_path / "a.csv"
    glaive.write_dataset(pa.table({"a": [1, None, 3]}), source)
    result = call("convert", str(source), str(target))
    assert (result.exit_code, target.read_text()) == (0, '"a"\n1\n""\n3\n')


@pytest.mark.parametrize("kind", ["arrow", "csv", "json", "parquet"])
def test_a_folder_is_converted_with_the_columns_of_all_its_files(
    call: Call, tmp_path: Path, kind: str
) -> None:
    folder, target = tmp_path / "files", str(tmp_path / "t.lance")
    folder.mkdir()
    for name, table in (("a", {"id": [1, 2]}), ("b", {"x": ["late"], "id": [3]})):
        glaive.write_dataset(pa.table(table), tmp_path / f"{name}.lance")
        made = str(folder / f"{name}.{kind}")
        assert call("convert", str(tmp_path / f"{name}.lance"), made).exit_code == 0
    assert call("convert", str(folder), target, "--from", kind).exit_code == 0
    rows = [{"id": 1, "x": None}, {"id": 2, "x": None}, {"id": 3, "x": "late"}]
    assert glaive.dataset(target).to_table().to_pylist() == rows
    words = ("--from", kind, "--columns", "x", "--overwrite")
    assert call("convert", str(folder), target, *words).exit_code == 0
    assert glaive.dataset(target).to_table()["x"].to_pylist() == [None, None, "late"]


@pytest.mark.parametrize("kind", ["arrow", "json", "parquet"])
def test_a_folder_is_converted_with_the_members_of_structs_in_all_its_files(
    call: Call, tmp_path: Path, kind: str
) -> None:
    folder, target = tmp_path / "files", str(tmp_path / "t.lance")
    folder.mkdir()
    for name, value in (("a", {"x": 1}), ("b", {"y": "late", "x": 2})):
        glaive.write_dataset(pa.table({"s": [value]}), tmp_path / f"{name}.lance")
        made = str(folder / f"{name}.{kind}")
        assert call("convert", str(tmp_path / f"{name}.lance"), made).exit_code == 0
    assert call("convert", str(folder), target, "--from", kind).exit_code == 0
    rows = [{"s": {"x": 1, "y": None}}, {"s": {"x": 2, "y": "late"}}]
    assert glaive.dataset(target).to_table().to_pylist() == rows


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.array([date(2024, 1, 1)]), pa.array([1_700_000_000], pa.timestamp("s"))),
        (pa.array([[Decimal("1.5")]]), pa.array([[0.123]])),
        (pa.array([[0.5]]), pa.array([[Decimal("12345678901234567.89")]])),
        (pa.array([True]), pa.array([5])),
        (pa.array([{"a": 1}]), pa.array([{"a": "7", "b": 2}])),
    ],
)
def test_files_of_a_folder_whose_values_would_be_changed_are_not_converted(
    call: Call, tmp_path: Path, kind: str, first: pa.Array, later: pa.Array
) -> None:
    folder, target = tmp_path / "files", tmp_path / "t.lance"
    folder.mkdir()
    for name, values in (("a", first), ("b", later)):
        rows = pa.table({"id": [1], "x": values})
        if kind == "parquet":
            pq.write_table(rows, folder / f"{name}.{kind}")
        else:
            with pa.ipc.new_file(folder / f"{name}.{kind}", rows.schema) as writer:
                writer.write_table(rows)
    result = call("convert", str(folder), str(target), "--from", kind)
    assert result.exit_code == 1
    assert "column x: no type holds" in result.stderr
    assert f"b.{kind} and " in result.stderr
    assert not target.exists()
    words = ("--from", kind, "--columns", "id")
    assert call("convert", str(folder), str(target), *words).exit_code == 0
    assert glaive.dataset(target).to_table().to_pydict() == {"id": [1, 1]}


def test_a_type_of_a_later_file_that_holds_the_values_of_all_is_taken(
    call: Call, tmp_path: Path
) -> None:
    folder, target = tmp_path / "files", str(tmp_path / "t.lance")
    folder.mkdir()
    for name, values in (("a", pa.array([1.5], pa.float32())), ("b", pa.array([0.1]))):
        pq.write_table(pa.table({"x": values}), folder / f"{name}.parquet")
    assert call("convert", str(folder), target, "--from", "parquet").exit_code == 0
    assert glaive.dataset(target).to_table()["x"].to_pylist() == [1.5, 0.1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_values_in_names_of_folders_are_not_lost_on_the_way(
    call: Call, tmp_path: Path, kind: str
) -> None:
    folder, target = tmp_path / "files", tmp_path / "t.lance"
    rows = pa.table({"id": [1, 2], "day": ["a", "b"]})
    kinds = {"partitioning": ["day"], "partitioning_flavor": "hive", "format": kind}
    pads.write_dataset(rows, folder, **kinds)
    assert call("convert", str(folder), str(target), "--from", kind).exit_code == 0
    found = glaive.dataset(target).to_table().sort_by("id")
    assert found.to_pydict() == {"id": [1, 2], "day": ["a", "b"]}
    words = ("--from", kind, "--columns", "id", "--overwrite")
    assert call("convert", str(folder), str(target), *words).exit_code == 0
    assert glaive.dataset(target).schema.names == ["id"]
    words = ("--from", kind, "--columns", "day", "--overwrite")
    assert call("convert", str(folder), str(target), *words).exit_code == 0
    assert glaive.dataset(target).to_table().to_pydict() == {"day": ["a", "b"]}
    pads.write_dataset(rows.append_column("x", rows["day"]), tmp_path / "x=1", format=kind)
    again = ("--from", kind, "--overwrite")
    assert call("convert", str(tmp_path / "x=1"), str(target), *again).exit_code == 0
    assert glaive.dataset(target).count_rows() == 2


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_members_that_are_never_null_may_be_in_some_files_of_a_folder_alone(
    call: Call, tmp_path: Path, kind: str
) -> None:
    folder, target = tmp_path / "files", str(tmp_path / "t.lance")
    folder.mkdir()
    x, y = (pa.field(name, pa.int64(), nullable=False) for name in "xy")
    for name, members in (("a", [x]), ("b", [x, y])):
        values = pa.array([[{"x": 1, "y": 2}]], pa.list_(pa.struct(members)))
        with pa.OSFile(str(folder / f"{name}.{kind}"), "wb") as sink:
            rows = pa.table({"s": values})
            if kind == "parquet":
                pq.write_table(rows, sink)
            else:
                with pa.ipc.new_file(sink, rows.schema) as writer:
                    writer.write_table(rows)
    result = call("convert", str(folder), target, "--from", kind)
    assert result.exit_code == 0, result.output
    rows = glaive.dataset(target).to_table()
    assert rows["s"].to_pylist() == [[{"x": 1, "y": None}], [{"x": 1, "y": 2}]]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_files_that_are_converted_are_read_once(
    call: Call, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, real = pa.table({"a": [1, 2]}), pads.dataset
    glaive.write_dataset(rows, tmp_path / "a.lance")
    source, target = str(tmp_path / f"a.{kind}"), str(tmp_path / "t.lance")
    assert call("convert", str(tmp_path / "a.lance"), source).exit_code == 0

    def planned(*arguments: Any, **options: Any) -> Any:
        """A dataset of Arrow without rows: its reader would begin to read all files."""
        schema = real(*arguments, **options).schema
        scanner = SimpleNamespace(projected_schema=schema)
        return SimpleNamespace(schema=schema, scanner=lambda **_: scanner)

    monkeypatch.setattr(pads, "dataset", planned)
    result = call("convert", source, target)
    assert result.exit_code == 0, result.output
    assert glaive.dataset(target).to_table() == rows


def test_converting_names_what_is_missing_and_what_is_there(call: Call, tmp_path: Path) -> None:
    source, target = tmp_path / "a.csv", tmp_path / "a.lance"
    result = call("convert", str(source), str(target))
    assert (result.exit_code, "a.csv does not exist" in result.stderr) == (1, True)
    source.write_text("a\n1\n")
    assert call("convert", str(source), str(target)).exit_code == 0
    result = call("convert", str(source), str(target))
    assert (result.exit_code, "--overwrite replaces it" in result.stderr) == (1, True)


def test_names_of_columns_may_have_spaces_between_them(call: Call, tmp_path: Path) -> None:
    source, made = tmp_path / "a.csv", str(tmp_path / "t.lance")
    source.write_text("a,b,c\n1,2,3\n")
    assert call("convert", str(source), made, "--columns", "a, c").exit_code == 0
    assert lines(call("head", made, "--json")) == [{"a": 1, "c": 3}]
    source.write_text("a,c\n1,4\n")
    assert call("ingest", str(source), made, "--mode", "merge", "--merge-keys", " a").exit_code == 0
    assert lines(call("head", made, "--json")) == [{"a": 1, "c": 4}]
