"""Texts that are not UTF-8: reads hand them on; what needs their letters says so, or goes on."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import json

import glaive
from glaive.cli.main import cli
from glaive.dataset.dataset import LanceDataset
from glaive.errors import FilterError, SchemaError

ROWS = 50


def texts() -> list[str]:
    return [f"größe {row} and {row * 7919}" for row in range(ROWS)]


def damaged(place: Path, column: Any) -> LanceDataset:
    """A dataset of two fragments; the text of the first row is not UTF-8."""
    rows = pa.table({"c": column})
    glaive.write_dataset(rows, place, max_rows_per_file=ROWS // 2, data_storage_version="2.2")
    first = glaive.dataset(place).get_fragments()[0].metadata.files[0]
    file = place / "data" / first.path
    content = file.read_bytes()
    file.write_bytes(content.replace("größe 0".encode(), b"gr\xff\xff\xc3\x9fe 0", 1))
    assert file.read_bytes() != content
    return glaive.dataset(place)


@pytest.mark.parametrize(
    "nested",
    [
        lambda values: values,
        lambda values: pa.array([{"t": text} for text in values.to_pylist()]),
        lambda values: pa.array([[text] for text in values.to_pylist()], pa.list_(pa.string())),
        lambda values: pa.array(
            [[(1, text)] for text in values.to_pylist()], pa.map_(pa.int8(), pa.string())
        ),
        lambda values: values.dictionary_encode(),
    ],
    ids=["texts", "structs", "lists", "maps", "dictionaries"],
)
def test_verify_finds_them_if_it_decodes_values(
    tmp_path: Path, nested: Callable[[Any], Any]
) -> None:
    damaged(tmp_path / "t", nested(pa.array(texts())))
    plain = CliRunner().invoke(cli, ["verify", str(tmp_path / "t")])
    deep = CliRunner().invoke(cli, ["verify", str(tmp_path / "t"), "--deep", "--json"])
    assert (plain.exit_code, deep.exit_code) == (0, 1)
    assert "texts of column 'c' in fragment 0: expected UTF-8" in deep.stdout


@pytest.mark.parametrize("text", ["levenshtein(c, 'a') = 1", "cast(c as int) = 1"])
def test_functions_that_need_letters_name_themselves(tmp_path: Path, text: str) -> None:
    dataset = damaged(tmp_path / "t", pa.array(texts()))
    with pytest.raises(FilterError, match=r"(levenshtein|cast).*(Invalid UTF8|is not of type)"):
        dataset.to_table(filter=text)


def stored_texts(place: Path, values: list[bytes]) -> LanceDataset:
    """A dataset of texts, which may be any bytes."""
    bytes_of: Any = pa.array(values)
    column: Any = pa.StringArray.from_buffers(len(values), *bytes_of.buffers()[1:])
    return glaive.write_dataset(pa.table({"c": column}), place)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("end", [b"\xf0", b"\xf0\x9f", b"\xc3"])
def test_a_part_of_a_text_has_no_bytes_of_the_next_row(tmp_path: Path, end: bytes) -> None:
    dataset = stored_texts(tmp_path / "t", [b"ab" + end, b"\x9f\x98", b"", b"\x80"])
    with pytest.raises(FilterError, match=r"right cannot be computed.*Invalid UTF8"):
        dataset.to_table(columns={"x": "right(c, 1)"})


@pytest.mark.spec("rel-23")
def test_geometries_in_texts_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("shapely", reason="install the extra 'geo'")
    dataset = stored_texts(tmp_path / "t", [b"POINT(1 2)", b"POINT(1 \xf0"])
    with pytest.raises(FilterError, match=r"st_area: column 'c': the value in row 1 .* not UTF-8"):
        dataset.to_table(filter="st_area(c) > 0")


def test_indices_of_substrings_find_the_other_texts(tmp_path: Path) -> None:
    dataset = damaged(tmp_path / "t", pa.array(texts()))
    dataset.create_scalar_index("c", "NGRAM")
    found = glaive.dataset(tmp_path / "t").to_table(filter="contains(c, 'größe 4')")["c"]
    assert found.to_pylist() == [text for text in texts() if text.startswith("größe 4")]


@pytest.mark.parametrize("line", [b'{"\xf4": 1}', b'{"a": {"\xf4": 1}}'])
def test_rows_whose_names_are_not_utf8_are_refused(tmp_path: Path, line: bytes) -> None:
    rows = json.read_json(BytesIO(line + b"\n"))
    dataset = glaive.write_dataset(pa.table({"a": [{"b": 1}]}), tmp_path / "t")
    writes: list[Callable[[], object]] = [
        lambda: glaive.write_dataset(rows, tmp_path / "new"),
        lambda: dataset.insert(rows),
        lambda: dataset.add_columns(rows.to_batches()[0]),
        lambda: dataset.merge(rows, "a"),
        lambda: dataset.merge_insert("a").when_not_matched_insert_all().execute(rows),
    ]
    for write in writes:
        with pytest.raises(SchemaError, match=r"name of a column or of a member is not UTF-8"):
            write()
    assert not (tmp_path / "new").exists()
    assert glaive.dataset(tmp_path / "t").version == 1
