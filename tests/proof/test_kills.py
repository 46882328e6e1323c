"""Processes that are killed while they change one table; ``make nightly`` kills many more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.proof.kills import Log


@pytest.mark.slow
@pytest.mark.spec("rel-6", "rel-9", "rel-14", "rel-17")
def test_killed_processes_find_their_rows_as_their_logs_say() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.proof.kills", "--minutes", "0.08", "--processes", "3"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout, result.stderr
    report = json.loads(result.stdout)
    assert report["found"] == []
    assert result.returncode == 0
    assert report["kills"] > 0
    assert report["done"] > 0
    assert report["versions"] > 2  # of the empty table and its index


def test_a_line_that_a_killed_process_had_not_finished_is_no_change(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write(begin="append", after={1: 2})
    log.write(end="done")
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(whole + b'{"begin": "append", "after": {"1": 2, "3"')
    again = Log(tmp_path / "log")
    assert (again.rows, again.pending) == ({1: 2}, None)
    assert (tmp_path / "log").read_bytes() == whole
