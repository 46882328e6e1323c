"""The page of a run: whole, of one file, with what a reader looks for."""

from __future__ import annotations

import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.pipeline import RunRecord, StepRecord, load, render_report
from glaive.pipeline.run import sample_of

VOID = {"meta", "link", "img", "br", "hr", "input"}
HOSTILE = "<script src='https://example.org/x.js'></script>&\"'"
PIPELINE = """
name = "shop"
description = "Goods & <orders>"
[datasets]
goods = "goods.lance"
[steps.load]
kind = "ingest"
source = "*.csv"
target = "goods"
[steps.compact]
kind = "optimize"
target = "goods"
"""


class Page(HTMLParser):
    """Checks that elements end where they should; collects addresses, targets and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        found = dict(attrs)
        self.ids |= {found["id"] or ""} if "id" in found else set()
        self.addresses += [found[key] or "" for key in ("href", "src", "action") if key in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data.strip()))


def test_the_page_is_whole_and_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(PIPELINE)
    before, after = {"version": 1, "rows": 2, "bytes": 3}, {"version": 2, "rows": 1200, "bytes": 9}
    load_step = StepRecord(
        kind="ingest",
        summary="append goods",
        state="done",
        counts={"rows": 1198},
        before={"goods": before},
        after_it={"goods": after},
        sample={"columns": ["id", HOSTILE], "rows": [["1", HOSTILE], ["2", None]]},
    )
    failed = StepRecord(
        kind="optimize",
        summary="compact goods",
        after=["load"],
        state="failed",
        attempts=2,
        error=HOSTILE,
    )
    record = RunRecord(
        id="2026-11-21",
        pipeline="shop",
        parameters={"day": HOSTILE},
        state="failed",
        steps={"load": load_step, "compact": failed},
    )

    text = render_report(load(tmp_path / "shop.toml"), record)
    page = Page(text)

    assert page.addresses == []
    assert {"step-load", "step-compact"} <= page.ids
    assert [mark for mark in ("url(", "@import", "<script") if mark in text] == []
    assert "default-src 'none'" in text
    assert ("h1", "shop, run 2026-11-21") in page.texts
    assert ("p", "Goods & <orders>") in page.texts
    assert {("td", "1 → 2"), ("td", "2 → 1,200"), ("td", "3 → 9")} <= set(page.texts)
    assert page.texts.count(("td", HOSTILE)) == 2
    assert ("pre", HOSTILE) in page.texts
    assert ("p", "compact goods; after load") in page.texts


def test_the_page_shows_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(PIPELINE)
    step = StepRecord(kind="ingest", state="failed", error="goods\udcff.csv, line 3: no number")
    record = RunRecord(id="r1", pipeline="shop", steps={"load": step})
    read = RunRecord.of_json(record.to_json(), "run.json")
    page = Page(render_report(load(tmp_path / "shop.toml"), read).encode().decode())
    assert ("pre", "goods\\udcff.csv, line 3: no number") in page.texts


@pytest.mark.spec("rel-24")
def test_a_sample_takes_no_memory_for_items_that_it_does_not_show(tmp_path: Path) -> None:
    count = 1 << 22
    items = pa.ListArray.from_arrays([0, count], pa.array(np.zeros(count, np.int8)))
    rows = {"long": items, "lists": pa.ListArray.from_arrays([0, 1], items), "none": [None]}
    types = pa.schema({"long": items.type, "lists": pa.list_(items.type), "none": items.type})
    glaive.write_dataset(pa.table(rows, types), tmp_path / "t")

    tracemalloc.start()
    try:
        sample = sample_of(str(tmp_path / "t"), {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sample is not None
    assert sample["rows"] == [
        ["[0, 0, 0, … 4,194,304 items]", "[[0, 0, 0, … 4,194,304 items]]", "null"]
    ]
    assert peak < 4 * count, "expected the bytes of the pages, and no objects for their values"
