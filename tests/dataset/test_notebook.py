"""What a notebook shows: tables with the facts, and nothing of a dataset as HTML of its own."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa

import glaive

EVIL = "<script>alert('x')</script>"


def texts(html: str) -> list[str]:
    """All texts of a page; it must be well formed."""
    return [text for text in ET.fromstring(f"<a>{html}</a>").itertext() if text]


def test_datasets_scans_fragments_versions_and_schemas_are_tables(tmp_path: Path) -> None:
    table = pa.table({"id": range(1000), EVIL: ["a"] * 1000, "s": [{"m": 1}] * 1000})
    dataset = glaive.write_dataset(table, tmp_path / "a.lance", max_rows_per_file=600)
    dataset.delete("id = 3")
    shown = texts(dataset._repr_html_())  # the protocol of notebooks
    assert shown[0].endswith("a.lance, version 2: 999 rows in 2 fragments, format 2.2")
    assert shown[1:7] == ["column", "type", "bytes", "id", "int64", shown[6]]
    assert int(shown[6].replace(",", "")) > 0
    assert {EVIL, "struct<m: int64>"} <= set(shown)
    scan = texts(dataset.scanner(["id"], filter="id < 3")._repr_html_())  # same
    assert scan[:5] == ["scan", "column", "type", "id", "int64"]
    assert "plan" in scan
    fragment = texts(dataset.get_fragments()[0]._repr_html_())  # same
    assert fragment[0] == "fragment 0: 599 rows, 1 deleted"
    versions = dataset.versions()
    assert [one["version"] for one in versions] == [1, 2]
    assert texts(versions._repr_html_())[4] == "2"  # type: ignore[attr-defined]  # a list
    schema = texts(dataset.lance_schema._repr_html_())  # same
    assert schema[:7] == ["schema", "id", "field", "type", "nullable", "0", "id"]
    assert EVIL in schema


def test_long_tables_and_texts_are_cut(tmp_path: Path) -> None:
    names = [f"column {number} {'x' * 300}" for number in range(80)]
    dataset = glaive.write_dataset(pa.table({name: [1] for name in names}), tmp_path / "a.lance")
    html = dataset._repr_html_()  # the protocol of notebooks
    assert texts(html)[-1] == "and 30 more"
    assert "x" * 200 not in html
