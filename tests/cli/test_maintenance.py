"""Commands that tell about datasets, keep them in order, and change their versions."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import glaive
from glaive.cli.main import COMMANDS

Call = Callable[..., Result]


def objects(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def one(result: Result) -> Any:
    (found,) = objects(result)
    return found


def test_count_takes_a_filter_and_a_tag(call: Call, things: str) -> None:
    glaive.dataset(things).tags.create("first", 1)
    assert call("count", things).stdout == "5\n"
    assert one(call("count", things, "--filter", "id < 3", "--json")) == {"version": 2, "rows": 4}
    assert call("count", things, "--version", "first").stdout == "3\n"
    assert call("count", things, "--version", "main:1").stdout == "3\n"


def test_take_prints_rows_in_the_order_of_positions(call: Call, things: str) -> None:
    rows = objects(call("take", things, "2", "0", "--columns", "id", "--json"))
    assert rows == [{"id": 3}, {"id": 1}]
    assert "position 9 is out of range" in call("take", things, "9").stderr


def test_scan_filters_and_sorts(call: Call, things: str) -> None:
    options = ("--filter", "id > 1", "--order-by", "id", "--columns", "id", "--json")
    assert [row["id"] for row in objects(call("scan", things, *options))] == [2, 2, 3]


def test_a_file_that_exists_is_not_replaced_silently(
    call: Call, things: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    assert call("scan", things, "--output", str(out)).exit_code == 0
    refused = call("scan", things, "--output", str(out))
    assert refused.exit_code == 1
    assert "--overwrite replaces it" in refused.stderr
    assert call("scan", things, "--output", str(out), "--overwrite").exit_code == 0


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_a_folder_that_is_missing_is_one_line(
    call: Call, things: str, tmp_path: Path, option: str
) -> None:
    name = "scan" if option == "--output" else "inspect"
    result = call(name, things, option, str(tmp_path / "nowhere" / "out"))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_convert_names_a_folder_that_is_missing(call: Call, things: str, tmp_path: Path) -> None:
    result = call("convert", things, str(tmp_path / "nowhere" / "out.parquet"))
    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path / 'nowhere'} is not a folder. Create it\n"


def test_json_has_no_nan_and_tables_no_line_breaks(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    table = pa.table({"x": [float("nan"), float("inf"), 1.5], "t": ["a\nb", "c", "d"]})
    glaive.write_dataset(table, uri)
    assert [row["x"] for row in objects(call("head", uri, "--json"))] == [None, None, 1.5]
    assert "a\\nb" in call("head", uri).stdout


def test_a_storage_option_is_key_and_value(call: Call, things: str) -> None:
    result = call("count", things, "--storage-option", "nothing")
    assert result.exit_code == 2
    assert "expected KEY=VALUE" in result.stderr
    assert call("count", things, "--storage-option", "client_max_retries=1").stdout == "5\n"


def test_tags_are_made_moved_and_deleted(call: Call, things: str) -> None:
    assert one(call("tag", things, "gold", "--version", "1", "--json"))["done"] == "created"
    assert one(call("tag", things, "--json"))["version"] == 1
    assert "moved: version 2" in call("tag", things, "gold", "--move").stdout
    assert "gold" in call("tag", things).stdout
    again = call("tag", things, "gold")
    assert again.exit_code == 1
    assert "already exists" in again.stderr
    assert call("tag", things, "gold", "--delete").exit_code == 0
    assert objects(call("tag", things, "--json")) == []
    assert "NAME is missing" in call("tag", things, "--delete").stderr


def test_branches_are_made_and_deleted(call: Call, things: str) -> None:
    assert "created from version 1" in call("branch", things, "trial", "--version", "1").stdout
    assert one(call("branch", things, "--json"))["parent_version"] == 1
    assert "trial" in call("branch", things).stdout
    assert call("count", things, "--version", "trial:1").stdout == "3\n"
    assert one(call("branch", things, "trial", "--delete", "--json"))["done"] == "deleted"
    assert "NAME is missing" in call("branch", things, "--delete").stderr


def test_a_version_is_restored(call: Call, things: str) -> None:
    assert one(call("restore", things, "1", "--json")) == {"restored": 1, "version": 3}
    assert glaive.dataset(things).count_rows() == 3
    assert "content of version 2" in call("restore", things, "2").stdout


def test_history_tells_operations_rows_tags_and_messages(call: Call, things: str) -> None:
    dataset = glaive.dataset(things)
    dataset.tags.create("first", 1)
    dataset.delete("id = 1")
    rows = objects(call("history", things, "--json"))
    assert [(row["version"], row["operation"], row["rows"]) for row in rows] == [
        (3, "Delete", 3),
        (2, "Append", 5),
        (1, "Overwrite", 3),
    ]
    assert rows[2]["tags"] == ["first"]
    assert len(objects(call("history", things, "-n", "1", "--json"))) == 1
    assert "Append" in call("history", things).stdout
    dataset.add_bases([glaive.DatasetBasePath(f"{things}.2", "second")])
    assert objects(call("history", things, "--json"))[0]["operation"] == "UpdateBases"


def test_diff_compares_manifests(call: Call, things: str) -> None:
    dataset = glaive.dataset(things)
    dataset.delete("id = 1")
    dataset.add_columns({"twice": "id * 2"})
    facts = one(call("diff", things, "1", "4", "--json"))
    assert facts["rows"] == 0
    assert facts["fragments_added"] == 1
    assert facts["fragments_with_other_deletions"] == 1
    assert facts["columns_added"] == ["twice"]
    assert "twice" in call("diff", things, "1", "4").stdout


def test_show_fits_on_a_screen(call: Call, things: str) -> None:
    glaive.dataset(things).delete("id = 1")
    facts = one(call("show", things, "--json"))
    assert (facts["rows"], facts["deleted_rows"], facts["fragments"]) == (3, 2, 2)
    assert {row["column"] for row in facts["columns"]} == {"id", "name", "v"}
    assert all(row["bytes"] > 0 for row in facts["columns"])
    assert facts["advice"] == [
        "2 of 2 fragments lost more than 10 % of the rows: run `glaive maintain` on it"
    ]
    text = call("show", things).stdout
    for key, value, advice in (
        ("glaive.cluster_by", '["gone"]', "Column gone does not exist"),
        ("lance.compaction.batch_size", "few", "lance.compaction.batch_size: expected"),
    ):
        glaive.dataset(things).update_config({key: value})
        assert f"advice: {advice}" in call("show", things).stdout
    assert "fixed_size_list" in text
    assert len(text.splitlines()) < 40
    assert "3 rows, 2 deleted, in 2 fragments" in text


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_show_counts_the_bytes_of_blobs(call: Call, tmp_path: Path, version: str) -> None:
    images = [bytes(5000 * at) if at else None for at in range(10)]
    blob, values = glaive.blob_field("b"), glaive.blob_array(images)
    if version == "2.0":
        blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        values = pa.array(images, pa.large_binary())  # type: ignore[assignment]  # as in 2.0
    rows = pa.table([pa.array(range(10)), values], schema=pa.schema([pa.field("id", "i8"), blob]))
    uri = str(tmp_path / "t.lance")
    glaive.write_dataset(rows, uri, data_storage_version=version)
    stored = sum(path.stat().st_size for path in Path(uri, "data").rglob("*") if path.is_file())
    facts = one(call("show", uri, "--json"))
    assert facts["columns"][0]["column"] == "b"
    assert 225_000 <= facts["columns"][0]["bytes"] < facts["bytes"] <= stored
    assert "in 1 fragment;" in call("show", uri).stdout


def test_small_files_are_compacted(call: Call, things: str) -> None:
    assert one(call("compact", things, "--json"))["fragments_removed"] == 2
    assert "nothing to do" in call("compact", things).stdout
    glaive.write_dataset(glaive.dataset(things).to_table(), things, mode="append")
    assert "2 fragments became 1" in call("compact", things).stdout


def test_maintenance_says_first_what_pays(call: Call, things: str) -> None:
    options = ("maintain", things, "--small-fragments", "1")
    assert "2 of 2 fragments are below 1,048,576 rows" in call(*options, "--dry-run").stdout
    assert glaive.dataset(things).version == 2
    assert one(call(*options, "--json"))["step"] == "compact"
    assert len(glaive.dataset(things).get_fragments()) == 1
    assert call(*options).stdout == "nothing to do\n"
    assert "did you mean 'vacuum'" in call(*options, "--steps", "vacum").output


def test_clean_up_says_first_what_it_would_delete(call: Call, things: str) -> None:
    glaive.dataset(things).optimize.compact_files()
    options = ("--older-than-days", "0", "--delete-unverified")
    plan = one(call("cleanup", things, "--dry-run", "--json", *options))
    assert plan["old_versions"] == 3
    assert {file["reason"] for file in plan["files"]} == {"only deleted versions use it"}
    assert "would be deleted" in call("cleanup", things, "--dry-run", *options).stdout
    assert len(glaive.dataset(things).versions()) == 4
    assert one(call("cleanup", things, "--json", *options))["old_versions"] == 3
    assert len(glaive.dataset(things).versions()) == 1
    assert "0 versions and 0 files" in call("cleanup", things).stdout
    glaive.dataset(things).delete("id = 1")
    young = call("cleanup", things, "--dry-run").stdout
    assert "(0 B) would be deleted: no old version is older than 14 days" in young


def test_ls_lists_datasets_only(call: Call, things: str, tmp_path: Path) -> None:
    assert Path(things).parent == tmp_path
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("text")
    Path(tmp_path, "bad.lance", "_versions").mkdir(parents=True)
    rows = objects(call("ls", str(tmp_path), "--json"))
    assert [row["dataset"] for row in rows] == ["bad.lance", "things.lance"]
    assert "was not found" in rows[0]["error"]
    assert (rows[1]["version"], rows[1]["rows"]) == (2, 5)
    assert "things.lance" in call("ls", str(tmp_path)).stdout
    for no_folder in ("nowhere", "file.txt"):
        result = call("ls", str(tmp_path / no_folder))
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{no_folder} is not a folder" in result.stderr


def test_ls_lists_datasets_of_an_object_store(call: Call) -> None:
    glaive.write_dataset(pa.table({"a": [1]}), "memory://listed/one.lance")
    assert one(call("ls", "memory://listed", "--json"))["dataset"] == "one.lance"


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "arguments",
    [
        ("count", "t", "--storage-option", "MARKED"),
        ("count", "t", "--storage-option", "a=b", "--storage-option", "token:MARKED"),
        ("ls", "t", "--storage-option", "=MARKED"),
        ("ingest", "x.csv", "t", "--conf", "spark.password MARKED"),
        ("ingest", "x.csv", "t", "--option", "MARKED"),
        ("namespace", "ls", "t", "--property", "storage.token:MARKED"),
        ("pipeline", "plan", "x.toml", "--set", "password:MARKED"),
    ],
)
def test_no_message_has_an_option_that_is_no_pair(
    call: Call, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a\n1\n")
    Path("x.toml").write_text("")
    refused = call(*arguments)
    assert refused.exit_code == 2
    assert "=VALUE, found no" in refused.stderr
    assert "MARKED" not in refused.output


def test_commands_that_take_a_place_take_options_of_its_store(call: Call) -> None:
    known = {name: call(name, "--help").stdout for name in COMMANDS}
    taken = {name for name, told in known.items() if "--storage-option KEY=VALUE" in told}
    assert set(COMMANDS) - taken == {"demo", "namespace", "pipeline", "sql", "warmup"}
    for name in ("ls", "doctor"):
        refused = call(name, "memory://listed", "--storage-option", "region")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "expected KEY=VALUE, found no equals sign in it" in refused.stderr
    nowhere = call("doctor", "--storage-option", "region=eu-west-1")
    assert nowhere.exit_code == 2
    assert "--storage-option is for LOCATION: give one" in nowhere.stderr


def test_indices_are_built_listed_updated_and_dropped(call: Call, things: str) -> None:
    row = one(call("index", things, "--column", "id", "--json"))
    assert (row["index"], row["rows"], row["rows_not_covered"]) == ("id_idx", 5, 0)
    glaive.write_dataset(glaive.dataset(things).to_table(), things, mode="append")
    assert one(call("index", things, "--json"))["rows_not_covered"] == 5
    assert one(call("index", things, "--update", "--json"))["rows_not_covered"] == 0
    assert "id_idx" in call("index", things).stdout
    assert objects(call("index", things, "--drop", "id_idx", "--json")) == []
    assert "give one of" in call("index", things, "--update", "--drop", "a").stderr


def test_search_finds_vectors_and_texts(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    numbers = np.arange(40, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 4)
    texts = [f"word{at} common" for at in range(10)]
    dataset = glaive.write_dataset(pa.table({"id": range(10), "v": vectors, "t": texts}), uri)
    dataset.create_scalar_index("t", "INVERTED")
    options = ("--columns", "id", "--json")
    near = objects(call("search", uri, "--column", "v", "--like", "7", "-k", "2", *options))
    assert near[0]["id"] == 7
    vector = ("--vector", "[4, 5, 6, 7]", "-k", "1")
    assert objects(call("search", uri, "--column", "v", *vector, *options))[0]["id"] == 1
    found = objects(call("search", uri, "--column", "t", "--text", "word3", *options))
    assert [row["id"] for row in found] == [3]
    assert [row["id"] for row in objects(call("search", uri, "word3", "word9", *options))] == [3, 9]
    assert objects(call("search", uri, "--like", "7", "-k", "1", *options))[0]["id"] == 7
    assert "give words" in call("search", uri, "--column", "t").stderr
    dataset.add_columns({"u": "t"})
    assert "--column: name one of t, u" in call("search", uri, "word3").stderr
    for wrong in ("x", "5", "[" * 5_000, f"[{'9' * 400}]"):
        assert "JSON list" in call("search", uri, "--column", "v", "--vector", wrong).stderr


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow", "lance"])
def test_files_are_converted_there_and_back(call: Call, tmp_path: Path, ending: str) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
    source, middle, back = (
        str(tmp_path / name) for name in ("a.parquet", f"b.{ending}", "c.lance")
    )
    pq.write_table(table, source)
    assert one(call("convert", source, middle, "--json"))["rows"] == 3
    assert "3 rows written" in call("convert", middle, back).stdout
    again = call("convert", source, middle)
    assert again.exit_code == 1
    assert call("convert", source, middle, "--overwrite").exit_code == 0
    assert glaive.dataset(back).to_table()["name"].to_pylist() == ["a", "b", None]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow", "lance"])
def test_dictionaries_of_several_fragments_are_converted(
    call: Call, tmp_path: Path, ending: str
) -> None:
    source, middle, back = (str(tmp_path / name) for name in ("a.lance", f"b.{ending}", "c.lance"))
    wanted = []
    for words in (["x", "y"], ["z", None, "x"], ["y", "w"]):
        rows = pa.table({"word": pa.array(words).dictionary_encode()})
        glaive.write_dataset(rows, source, mode="append" if wanted else "create")
        wanted += words
    for pair in ((source, middle), (middle, back)):
        assert call("convert", *pair).exit_code == 0
    found = glaive.dataset(back).to_table()["word"].to_pylist()
    assert [word or None for word in found] == wanted


def test_texts_of_several_lines_are_converted_back_from_csv(call: Call, tmp_path: Path) -> None:
    source, middle, back = (str(tmp_path / name) for name in ("a.lance", "b.csv", "c.lance"))
    lines = ["1,2\n" * (number % 30) for number in range(40_000)]  # of more than a block of Arrow
    glaive.write_dataset(pa.table({"n": range(len(lines)), "t": lines}), source)
    for pair in ((source, middle), (middle, back)):
        assert call("convert", *pair).exit_code == 0
    assert glaive.dataset(back).to_table() == glaive.dataset(source).to_table()


@pytest.mark.parametrize("ahead", [0, 500_000], ids=["first block", "later block"])
def test_a_quotation_mark_that_is_never_closed_takes_in_no_lines(
    call: Call, tmp_path: Path, ahead: int
) -> None:
    source, target = tmp_path / "a.csv", tmp_path / "b.lance"
    lines = [*(f'{number},"x"' for number in range(ahead)), '7,"y', "8,z", "9,w"]
    source.write_text("n,t\n" + "\n".join(lines) + "\n")
    refused = call("convert", str(source), str(target))
    assert refused.exit_code == 1
    assert f"a.csv, line {ahead + 2}: a quotation mark is not closed" in refused.stderr
    source.write_text('n,t\n1,"x\ny"\n' + "\n".join(lines))
    refused = call("convert", str(source), str(target))
    assert "a quotation mark is not closed" in refused.stderr
    assert not target.exists()


def test_files_of_parquet_are_converted_to_the_columns_of_all(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), folder / "a[1].parquet")
    pq.write_table(pa.table({"c": [0.5], "a": pa.array([3], pa.int8())}), folder / "b.parquet")
    made = str(tmp_path / "a.lance")
    assert call("convert", str(folder), made, "--from", "parquet").exit_code == 0
    rows = glaive.dataset(made).to_table()
    columns = {"a": [1, 2, 3], "b": ["x", "y", None], "c": [None, None, 0.5]}
    assert rows.to_pydict() == columns
    assert rows.schema.field("a").type == pa.int64()
    words = ("--from", "parquet", "--columns", "b", "--overwrite")
    assert call("convert", str(folder), made, *words).exit_code == 0
    assert glaive.dataset(made).to_table().to_pydict() == {"b": ["x", "y", None]}
    pq.write_table(pa.table({"a": ["no number"]}), folder / "c.parquet")
    refused = call("convert", str(folder), made, "--from", "parquet", "--overwrite")
    assert refused.exit_code == 1
    assert "c.parquet" in refused.stderr
    assert glaive.dataset(made).to_table().column_names == ["b"]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("ending", ["csv", "json", "lance", "parquet"])
def test_memory_behind_the_texts_of_an_arrow_file_is_not_converted(
    call: Call, tmp_path: Path, ending: str
) -> None:
    rows = pa.table({"name": ["abc", "def"]})
    source, target = tmp_path / "a.arrow", tmp_path / f"b.{ending}"
    with pa.ipc.new_file(source, rows.schema) as writer:
        writer.write_table(rows)
    content, offsets = source.read_bytes(), struct.pack("<3i", 0, 3, 6)
    assert content.count(offsets) == 1
    source.write_bytes(content.replace(offsets, struct.pack("<3i", 0, 3, 5000)))
    result = call("convert", str(source), str(target))
    assert result.exit_code == 1
    assert "offset" in result.stderr
    assert not target.is_file()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_midnight_at_the_end_of_a_day_is_converted(call: Call, tmp_path: Path, ending: str) -> None:
    midnight = pa.array([86_400_000_000]).view(pa.time64("us"))
    rows = pa.table({"at": midnight})
    if ending == "parquet":
        pq.write_table(rows, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as writer:
            writer.write_table(rows)
    assert call("convert", str(tmp_path / f"a.{ending}"), str(tmp_path / "b.lance")).exit_code == 0
    assert glaive.dataset(tmp_path / "b.lance").to_table()["at"].combine_chunks().equals(midnight)


def test_extension_types_become_csv_of_what_they_store(call: Call, tmp_path: Path) -> None:
    rows = pa.table({"j": pa.array(['{"a":1}', None], pa.json_()), "b": [True, False]})
    glaive.write_dataset(rows, tmp_path / "a.lance")
    result = call("convert", str(tmp_path / "a.lance"), str(tmp_path / "b.csv"))
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "b.csv").read_text() == '"j","b"\n"{""a"":1}",true\n,false\n'


def test_json_has_all_digits_of_times(call: Call, tmp_path: Path) -> None:
    count = 12_345_678_901_234_567
    at = pa.array([45_296_000_000_001, None]).view(pa.time64("ns"))
    took = pa.array([count, None]).view(pa.duration("ns"))
    lists = pa.ListArray.from_arrays([0, 1, 2], at)
    rows = pa.table({"at": at, "took": took, "all": lists, "both": took.dictionary_encode()})
    source, target = str(tmp_path / "a.lance"), tmp_path / "b.json"
    glaive.write_dataset(rows.drop_columns(["both"]), source)
    assert call("convert", source, str(target)).exit_code == 0
    assert target.read_text() == call("scan", source, "--json").stdout
    text = "12:34:56.000000001"
    first = {"at": text, "took": count, "all": [text]}
    second = {"at": None, "took": None, "all": [None]}
    assert [json.loads(line) for line in target.read_text().splitlines()] == [first, second]
    with pa.ipc.new_file(tmp_path / "c.arrow", rows.schema) as writer:
        writer.write_table(rows)
    assert call("convert", str(tmp_path / "c.arrow"), str(target), "--overwrite").exit_code == 0
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert lines == [first | {"both": count}, second | {"both": None}]


def test_hidden_files_beside_json_are_not_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"a": 1}\n')
    (tmp_path / "in" / ".DS_Store").write_bytes(b"[" * 1000)
    words = ("convert", str(tmp_path / "in"), str(tmp_path / "b.csv"), "--from", "json")
    assert call(*words).exit_code == 0
    (tmp_path / "in" / "b.json").write_bytes(b"no JSON")
    refused = call(*words, "--overwrite")
    assert refused.exit_code == 1
    assert "b.json, line 1: " in refused.stderr


@pytest.mark.spec("rel-25")
def test_files_are_converted_once_whatever_links_lead_to_them(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "below"
    folder.mkdir(parents=True)
    for number, place in enumerate((folder.parent, folder)):
        pq.write_table(pa.table({"a": [number]}), place / "x.parquet")
    for number in range(3):  # in a circle, so that each doubles the paths of every level
        (folder / f"circle{number}").symlink_to("..")
    (folder.parent / "a").symlink_to(folder)
    (folder / "again.parquet").symlink_to("../x.parquet")
    (folder / "nowhere.parquet").symlink_to("itself")
    (folder / "itself").symlink_to("itself")
    made = str(tmp_path / "a.lance")
    assert call("convert", str(tmp_path / "in"), made, "--from", "parquet").exit_code == 0
    assert sorted(glaive.dataset(made).to_table()["a"].to_pylist()) == [0, 1]


@pytest.mark.parametrize("command", [("convert",), ("scan", "--output")])
def test_what_is_no_file_is_not_replaced(
    call: Call, things: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    for place in (str(tmp_path / "pipe.parquet"), "/dev/nothing.parquet"):
        refused = call(command[0], things, *command[1:], place, "--overwrite")
        assert refused.exit_code == 1
        assert "cannot be replaced" in refused.stderr
    assert stat.S_ISFIFO((tmp_path / "pipe.parquet").stat().st_mode)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("command", [("convert",), ("scan", "--output")])
def test_rows_are_not_written_through_links_to_other_files(
    call: Call, things: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "folder"
    mine.write_bytes(b"precious")
    folder.mkdir()
    for name in (".out.parquet.unfinished", ".out.parquet.tmp"):
        (folder / name).symlink_to(mine)
    (folder / "out.parquet").symlink_to(tmp_path / "made")
    words = (command[0], things, *command[1:], str(folder / "out.parquet"))
    assert call(*words).exit_code == 0
    assert mine.read_bytes() == b"precious"
    assert not (tmp_path / "made").exists()
    assert pq.read_table(folder / "out.parquet").num_rows == 5


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        (struct.pack("<3i", 0, 7, 14), struct.pack("<3i", 0, 7, 1 << 30)),
        (b"first", b"f\xffrst"),
        (b"a name", b"a \xffame"),
    ],
    ids=["offsets", "texts", "names"],
)
def test_damaged_files_of_arrow_are_not_converted(
    call: Call, tmp_path: Path, whole: bytes, damaged: bytes
) -> None:
    table = pa.table({"a name": [list(range(7))] * 2, "text": ["first", "second"]})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    content = (tmp_path / "a.arrow").read_bytes()
    assert whole in content
    (tmp_path / "a.arrow").write_bytes(content.replace(whole, damaged))
    for target in ("b.jsonl", "b.lance"):
        result = call("convert", str(tmp_path / "a.arrow"), str(tmp_path / target))
        assert result.exit_code == 1
        assert "is damaged" in result.stderr or "is not UTF-8" in result.stderr
        assert not (tmp_path / target).is_file()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("columns", [None, "image,id"])
def test_blobs_are_converted_with_their_values(
    call: Call, tmp_path: Path, version: str, columns: str | None
) -> None:
    values = [b"abc", None, bytes(100_000)]
    images: Any = values
    field = glaive.blob_field("image")
    if version == "2.1":
        metadata = {"lance-encoding:blob": "true"}
        field = pa.field("image", pa.large_binary(), metadata=metadata)
    else:
        images = glaive.blob_array(values)
    table = pa.table(
        {"id": [1, 2, 3], "image": images}, pa.schema([pa.field("id", pa.int64()), field])
    )
    source = glaive.write_dataset(table, str(tmp_path / "a.lance"), data_storage_version=version)
    wanted = () if columns is None else ("--columns", columns)
    copied, parquet = str(tmp_path / "b.lance"), str(tmp_path / "b.parquet")
    call("convert", source.uri, copied, "--format-version", version, *wanted)
    call("convert", source.uri, parquet, *wanted)
    copy = glaive.dataset(copied)
    names = columns.split(",") if columns else ["id", "image"]
    assert copy.schema == pa.schema([source.schema.field(name) for name in names])
    assert pq.read_table(parquet).column_names == names
    assert copy.to_table(blob_handling="all_binary")["image"].to_pylist() == values
    assert copy.take_blobs("image", indices=[2])[0].size() == 100_000
    assert pq.read_table(parquet)["image"].to_pylist() == values


def test_convert_says_what_it_cannot_do(call: Call, things: str, tmp_path: Path) -> None:
    assert "unknown suffix" in call("convert", things, "out.xyz").stderr
    folder = call("convert", str(tmp_path), "out.lance")
    assert "is a folder. Name its format, as in --from parquet" in folder.stderr
    bad, lines = tmp_path / "bad.csv", ["1,2"] * 400_000
    for broken in (lines[:1], lines):
        bad.write_text("\n".join(["a,b", *broken, "3"]))
        said = call("convert", str(bad), str(tmp_path / "bad.lance")).stderr
        assert said.startswith(f"Error: {bad}, line {len(broken) + 2}: ")
    source = str(tmp_path / "a.parquet")
    assert "only rows of a Lance" in call("convert", source, "b.lance", "--filter", "a = 1").stderr
    missing = call("convert", source, str(tmp_path / "b.lance"))
    assert missing.exit_code == 1
    assert missing.stderr.startswith("Error: ")
    nested = call("convert", things, str(tmp_path / "b.csv"))
    assert nested.exit_code == 1
    assert "Leave the column out" in nested.stderr
    assert not (tmp_path / "b.csv").exists()


def test_doctor_checks_packages_and_a_location(call: Call, things: str, tmp_path: Path) -> None:
    checks = {row["check"]: row for row in objects(call("doctor", things, "--json"))}
    assert checks["pyarrow"]["state"] == "ok"
    assert checks[things]["found"] == "version 2, 5 rows"
    assert "✓ python" in call("doctor").stdout
    assert "there is no dataset" in call("doctor", str(tmp_path / "nowhere")).stdout
    failed = call("doctor", "nothing://a")
    assert failed.exit_code == 1
    assert "✗ nothing://a" in failed.stdout


def test_adviser_tries_encodings_and_changes_nothing(call: Call, things: str) -> None:
    rows = objects(call("adviser", things, "--columns", "id,name", "--json"))
    assert {row["column"] for row in rows} == {"id", "name"}
    assert {"default", "zstd"} <= {row["encoding"] for row in rows}
    assert sum(row["smallest"] for row in rows) == 2
    assert all(row["bytes"] > 0 and row["read_ms"] >= 0 for row in rows)
    said = call("adviser", things, "--columns", "id", "--rows", "2").stdout
    assert "* the smallest of the column; bytes and times are of the first 2 of 5 rows" in said
    assert glaive.dataset(things).version == 2


@pytest.mark.parametrize("command", ["doctor", "warmup"])
@pytest.mark.parametrize("place", ["a file", "a folder for all"])
def test_kernels_that_cannot_be_kept_are_a_failure(
    command: str, place: str, tmp_path: Path
) -> None:
    cache = tmp_path / "kernels"
    if place == "a file":
        cache.touch()
    else:
        cache.mkdir()
        cache.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-m", "glaive", command],
        env={**os.environ, "GLAIVE_KERNELS": "numba", "GLAIVE_KERNEL_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"cannot be kept in {cache}" in done.stdout + done.stderr
