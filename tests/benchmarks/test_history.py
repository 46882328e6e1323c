"""Kept runs of the benchmark become a page and a chart that show what got slower."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.history import ROOT, keep
from benchmarks.workloads import Row


def run(root: Path, **ours: float) -> Path:
    """Keep a run in which pylance takes 10 ms for each workload."""
    names = {"scan_table": "scan table", "take_1": "take 1 list<int32>"}
    rows = [
        Row(names[name], 3.0, {"pylance": (10.0, 10.0), "glaive": (value, value)}, group=name[:4])
        for name, value in ours.items()
    ]
    rows.append(Row("size table", None, {"pylance": (5, 5), "glaive": (4, 4)}, "MB", group="size"))
    return keep(rows, 1000, "2.2", root)


def test_a_kept_run_lists_what_lost_against_the_run_before(tmp_path: Path) -> None:
    first = run(tmp_path, scan_table=1.0, take_1=2.0)
    # Names of files have minutes: this run is an earlier one.
    first.rename(first.with_name("2026-01-01-0000-first.json"))
    second = run(tmp_path, scan_table=1.1, take_1=4.0)
    kept = json.loads(second.read_text())
    assert kept["figures"]["scan table"]["glaive"] == [1.1, 1.1]
    page = (tmp_path / "docs" / "figures-benchmark.md").read_text()
    losses = page.split("## Lost since")[1].split("## ")[0]
    assert "| take 1 list&lt;int32> | 5.0× | 2.5× |" in losses
    assert "scan table" not in losses
    assert "| scan table | 10 | 1.1 | 9.1× | 9.1× | – |" in page
    assert "| size table | MB | 5 | 4 |" in page
    assert "1 of 2 goals are met" in page


def test_the_chart_has_a_point_for_each_kept_run(tmp_path: Path) -> None:
    for at in range(3):
        kept = run(tmp_path, scan_table=1.0 + at)
        kept.rename(kept.with_name(f"2026-01-0{at + 1}-0000-x.json"))
    run(tmp_path, scan_table=5.0)
    chart = (tmp_path / "docs" / "figures" / "bench.svg").read_text()
    (line,) = re.findall(r'<polyline points="([^"]+)"', chart)  # of the group "all" alone
    heights = [float(point.split(",")[1]) for point in line.split()]
    assert len(heights) == 4
    assert heights == sorted(heights)  # slower and slower


def test_the_page_of_the_site_is_of_the_last_kept_run() -> None:
    folder = ROOT / "docs" / "figures" / "bench"
    last = json.loads(max(folder.glob("*.json")).read_text("utf-8"))
    assert f"at commit {last['commit']} " in (ROOT / "docs" / "figures-benchmark.md").read_text()
