"""``glaive inspect``: the tree, the JSON and the page, for files and datasets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from tests.damage import page_message, rewritten

import glaive
from glaive.cli.inspect import page_data, render_page
from glaive.dataset import layout
from glaive.file import LanceFileReader, LanceFileWriter
from glaive.file.layout import FileLayout, file_layout

Call = Callable[..., Result]

HOSTILE = "<script>alert('&')</script>\u2028<!--"


def write(path: Path, rows: pa.Table, version: str | None = None) -> str:
    with LanceFileWriter(path, rows.schema, version=version) as writer:
        writer.write_batch(rows)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = {"id": range(3000), "name": [f"name {i % 40}" for i in range(3000)]}
    return write(tmp_path / "a.lance", pa.table(rows))


def test_a_file_is_shown_with_encodings_and_buffers(call: Call, file: str) -> None:
    lines = call("inspect", file).stdout.splitlines()

    assert lines[0].startswith(f"{file}  format 2.2")
    assert "3,000 rows" in lines[0]
    text = "\n".join(lines)
    for part in ("id  int64", "page 0", "inline_bitpacking", "chunk table", "B/value", "footer"):
        assert part in text


def test_pages_can_be_left_out_and_columns_chosen(call: Call, file: str) -> None:
    brief = call("inspect", file, "--no-pages", "--columns", "name").stdout

    assert "page 0" not in brief
    assert "name  string" in brief
    assert "id  int64" not in brief
    assert "other columns" in brief


def test_structs_without_members_are_shown(call: Call, tmp_path: Path) -> None:
    rows = pa.table({"none": pa.array([{}, {}], pa.struct([]))})
    glaive.write_dataset(rows, tmp_path / "t.lance")
    for command in ("inspect", "show"):
        assert "none" in call(command, str(tmp_path / "t.lance")).stdout


@pytest.mark.spec("rel-25")
def test_a_dataset_of_many_columns_is_shown_with_as_few_looks_at_its_schema_as_one_of_few(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_of, looks = glaive.LanceDataset.schema.fget, []
    assert schema_of is not None

    def look(dataset: glaive.LanceDataset) -> pa.Schema:
        looks.append(dataset)
        return schema_of(dataset)

    monkeypatch.setattr(glaive.LanceDataset, "schema", property(look))
    counts = []
    for columns in (2, 50):
        place = str(tmp_path / f"{columns}.lance")
        glaive.write_dataset({f"c{i}": [i] for i in range(columns)}, place)
        looks.clear()
        assert "columns" in call("show", place, "--json").stdout
        counts.append(len(looks))
    assert counts[0] == counts[1] > 0


@pytest.mark.spec("rel-25")
def test_a_file_that_many_fragments_name_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = glaive.write_dataset({"id": [1, 2, 3]}, tmp_path / "t")
    same = [fragment.metadata for fragment in dataset.get_fragments()] * 50
    append = glaive.LanceOperation.Append(same)
    dataset = glaive.LanceDataset.commit(dataset, append, read_version=1)
    looks: list[object] = []

    def look(file: Any) -> FileLayout:
        looks.append(file)
        return file_layout(file)

    monkeypatch.setattr(layout, "file_layout", look)
    assert len(list(layout.dataset_layout(dataset).files())) == 51
    assert len(looks) == 1


def test_an_unknown_column_is_refused(call: Call, file: str) -> None:
    result = call("inspect", file, "--columns", "nmae")

    assert result.exit_code == 1
    assert "did you mean 'name'" in result.stderr


def test_of_many_columns_the_largest_are_printed(call: Call, tmp_path: Path) -> None:
    rows = pa.table({f"c{i:04}": pa.array([], pa.int64()) for i in range(1000)})
    path = write(tmp_path / "wide.lance", rows)
    few = call("inspect", path, "--largest", "5").stdout.splitlines()
    some = call("inspect", path).stdout.splitlines()
    every = call("inspect", path, "--largest", "0").stdout.splitlines()

    assert len(few) < 20
    assert any("995 smaller columns" in line for line in few)
    assert 100 < len(some) < 120
    assert len(every) > 1000


def test_of_many_buffers_and_parts_of_an_encoding_the_first_are_printed(
    call: Call, file: str
) -> None:
    """A line of the tree takes a thousand times what its bytes took: 17 seconds for 300 kB."""

    def many_parts(message: Any) -> None:
        values = message.mini_block_layout.value_compression
        for _ in range(500):
            part = values.variable_packed_struct.fields.add()
            part.bits_per_value = 8
            part.value.flat.bits_per_value = 8

    def many(_: Any, columns: list[Any]) -> None:
        columns[0].buffer_offsets.extend([0] * 3000)
        columns[0].buffer_sizes.extend([8] * 3000)
        page = columns[0].pages[0]
        page.buffer_offsets.extend([0] * 3000)
        page.buffer_sizes.extend([0] * 3000)
        page_message(page, many_parts)

    path = Path(file)
    path.write_bytes(rewritten(path.read_bytes(), many))
    text = call("inspect", file).stdout

    assert text.count("\n") < 500
    assert re.findall(r"… ([\d,]+ more \w+) \(--json prints all\)", text) == [
        "902 more parts",
        "2,902 more buffers",
        "2,900 more buffers",
    ]
    assert len(json.loads(call("inspect", file, "--json").stdout)["columns"][0]["buffers"]) == 3000


def test_json_has_the_whole_layout(call: Call, file: str) -> None:
    facts = json.loads(call("inspect", file, "--json").stdout)

    assert [column["path"] for column in facts["columns"]] == ["id", "name"]
    (page,) = facts["columns"][0]["pages"]
    assert page["rows"] == page["values"] == 3000
    assert page["encoding"]["encoding"] == "mini_block_layout"
    assert {place["kind"] for place in page["buffers"]} == {"chunk table", "chunks"}


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_files_of_every_version_are_shown(call: Call, tmp_path: Path, version: str) -> None:
    path = write(tmp_path / "a.lance", pa.table({"a": [1, 2], "s": ["x", "y"]}), version)

    assert "a  int64" in call("inspect", path, "--pages").stdout
    assert json.loads(call("inspect", path, "--json").stdout)["rows"] == 2


def test_a_dataset_is_shown_with_its_fragments(call: Call, things: str) -> None:
    text = call("inspect", things).stdout

    assert text.startswith(f"{things}  version 2")
    assert "name: string" in text
    assert text.count("fragment ") == 2
    facts = json.loads(call("inspect", things, "--json", "--files", "1").stdout)
    assert [one["rows"] for one in facts["fragments"]] == [3, 2]
    assert facts["fragments"][0]["files"][0]["layout"]["rows"] == 3
    assert facts["fragments"][1]["files"][0]["layout"] is None
    assert "version 1" in call("inspect", things, "--version", "1").stdout


def test_deletion_files_are_shown(call: Call, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    place = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": range(100)}), place).delete("a < 10")
    text = call("inspect", place).stdout

    assert "10 deleted" in text
    assert "_deletions/0-" in text


def test_places_in_object_stores_are_found(call: Call) -> None:
    glaive.write_dataset(pa.table({"a": [1]}), "memory://inspect/t.lance")
    entry = glaive.dataset("memory://inspect/t.lance").get_fragments()[0].data_files()[0]

    assert "fragment 0" in call("inspect", "memory://inspect/t.lance").stdout
    of_file = call("inspect", f"memory://inspect/t.lance/data/{entry.path}").stdout
    assert "1 row  1 column" in of_file
    missing = call("inspect", "memory://inspect/nothing.lance")
    assert missing.exit_code == 1
    assert "was not found" in missing.stderr


def test_versions_of_a_file_are_refused(call: Call, file: str) -> None:
    result = call("inspect", file, "--version", "1")

    assert result.exit_code == 1
    assert "is a file" in result.stderr


# ------------------------------------------------------------------ the page


def inside(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def test_the_page_holds_what_it_draws(call: Call, file: str, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert call("inspect", file, "--html", str(out)).exit_code == 0
    data = inside(out.read_text("utf-8"))

    layout = LanceFileReader(file).layout()
    assert data == page_data(layout)
    (drawn,) = data["files"]
    assert drawn["size"] == layout.size
    assert [column[:2] for column in drawn["columns"]] == [["id", "int64"], ["name", "string"]]
    flat = [*drawn["sections"], *drawn["gaps"]]
    for column in drawn["columns"]:
        for page in column[2]:
            flat += page[4]
    assert sum(flat[2::3]) == layout.size
    assert {"schema", "column metadata", "padding"} <= set(data["kinds"])


def test_the_page_needs_nothing_from_elsewhere(file: str) -> None:
    page = render_page(LanceFileReader(file).layout())

    assert "default-src 'none'" in page
    assert not re.search(r"https?:|//\w+\.|@import|url\(|<link|<img|<iframe|\bsrc=", page)
    assert not re.search(r"\b(fetch|XMLHttpRequest|import)\s*\(|innerHTML|document\.write", page)


def test_names_cannot_leave_the_data(tmp_path: Path) -> None:
    rows = pa.table({HOSTILE: [1, 2, 3]})
    path = write(tmp_path / "<b>.lance", rows)
    page = render_page(LanceFileReader(path).layout())
    plain = render_page(LanceFileReader(write(tmp_path / "a.lance", pa.table({"a": [1]}))).layout())

    for mark in ("<script", "</script", "<!--", "<b>"):
        assert page.count(mark) == plain.count(mark)
    assert "<title>&lt;b&gt;.lance" in page
    assert inside(page)["files"][0]["columns"][0][0] == HOSTILE


def test_a_page_of_a_dataset_has_its_files(call: Call, things: str, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    call("inspect", things, "--html", str(out))
    data = inside(out.read_text("utf-8"))

    assert data["dataset"]["version"] == 2
    assert [file["fragment"] for file in data["files"]] == [0, 1]


def test_a_folder_named_like_a_place_of_the_page_does_not_move_its_parts(
    call: Call, tmp_path: Path
) -> None:
    place, out = str(tmp_path / "{{dataset}}"), tmp_path / "d.html"
    glaive.write_dataset(pa.table({"a": [1]}), place)
    assert call("inspect", place, "--html", str(out)).exit_code == 0
    page = out.read_text("utf-8")
    assert "<title>{{dataset}} · glaive inspect</title>" in page
    assert page.index("</head>") < page.index("fragments-title")


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.2"])
def test_a_page_of_a_dataset_names_columns_as_its_version_does(
    call: Call, tmp_path: Path, version: str
) -> None:
    place, out = str(tmp_path / "d.lance"), tmp_path / "d.html"
    rows = pa.table({"id": range(9), "s": [{"a": 1, "b": "x"}] * 9, "gone": range(9)})
    dataset = glaive.write_dataset(rows, place, data_storage_version=version)

    def heads() -> list[str]:
        assert call("inspect", place, "--html", str(out)).exit_code == 0
        page = out.read_text("utf-8")
        view = page[page.index('id="fragments-title"') : page.index('id="versions-title"')]
        return sorted(re.findall("<th>([^<]+)</th>", view.split("<tbody>")[0]))

    assert heads() == ["gone", "id", "s"]
    dataset.drop_columns(["gone"])
    dataset.alter_columns({"path": "id", "name": "key"})
    assert heads() == ["dropped or replaced", "key", "s"]
    dataset.optimize.compact_files()
    dataset.add_columns({"gone": "key + 1"})
    dataset.alter_columns({"path": "gone", "data_type": pa.int16()})
    assert "gone" in heads()


def test_a_page_of_a_dataset_shows_bytes_by_fragment_and_column_and_its_versions(
    call: Call, tmp_path: Path
) -> None:
    place, out = str(tmp_path / "d.lance"), tmp_path / "d.html"
    rows = pa.table({"id": range(1000), HOSTILE: [f"text {i}" for i in range(1000)]})
    glaive.write_dataset(rows, place, max_rows_per_file=500)
    glaive.dataset(place).delete("id < 10")
    assert call("inspect", place, "--html", str(out)).exit_code == 0
    page = out.read_text("utf-8")
    view = page[page.index('id="fragments-title"') : page.index('id="picker"')]
    fragments, versions = view.split('id="versions-title"')
    assert re.findall(r"<th>fragment (\d)</th>", fragments) == ["0", "1"]
    assert HOSTILE not in view
    assert "&lt;script&gt;alert(" in fragments
    assert fragments.count('class="shaded"') == 2 * 2
    assert "--share: 100%" in fragments
    assert re.findall(r"<tr><th>(\d)</th>", versions) == ["2", "1"]
    assert "<td>990</td>" in versions
    assert "<td>1,000</td>" in versions
    assert "fragments are not read" not in view
    call("inspect", place, "--files", "1", "--html", str(out))
    assert "1 fragments are not read; --files N" in out.read_text("utf-8")
