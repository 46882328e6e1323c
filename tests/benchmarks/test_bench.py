"""The benchmark table comes out whole on little data, and answers agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def bench(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "--cache", str(folder), "--rows", "20000"]
    return subprocess.run(
        [*command, "--repeats", "3", "--seconds", "0", "--memory-gb", "0.004", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly(reason="runs the whole table")
def test_all_workloads_run_and_answer_as_pylance_does(tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    report = tmp_path / "report.json"
    done = bench(tmp_path, "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())
    assert {"scan table", "take 100 vectors", "append ten rows", "size table"} <= {
        row["name"] for row in rows
    }
    assert all({"pylance", "glaive"} <= set(row["values"]) for row in rows)
    assert any("parquet" in row["values"] for row in rows)


def test_workloads_chosen_by_name_run_and_answer_as_pylance_does(tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    report = tmp_path / "report.json"
    done = bench(tmp_path, "--json", str(report), "--only", "take 100 vectors")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())
    assert "take 100 vectors" in {row["name"] for row in rows}
    assert all({"pylance", "glaive"} <= set(row["values"]) for row in rows)


def test_a_name_that_no_workload_has_lists_those_there_are(tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    done = bench(tmp_path, "--only", "nonsense")
    assert done.returncode != 0
    assert "scan table" in done.stderr


def test_random_tables_are_answered_as_pylance_does() -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.shapes", "--tables", "2", "--rows", "2000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faster than pylance" in done.stdout
