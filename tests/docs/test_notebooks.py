"""The notebooks of ``examples/notebooks`` run, each in a process and folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def needs(notebook: Path) -> list[pytest.MarkDecorator]:
    if notebook.stem != "spark":
        return []
    long = pytest.mark.nightly(reason="a session of its own, with the examples of the guide")
    return [pytest.mark.spark, long]


@pytest.mark.parametrize(
    "notebook", [pytest.param(path, id=path.stem, marks=needs(path)) for path in NOTEBOOKS]
)
def test_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code_of(notebook)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_results(notebook: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 1
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
