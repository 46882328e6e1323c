"""``progress=True`` shows a line on a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.fragment import write_fragments

import glaive
from glaive.dataset.monitoring import showing
from glaive.errors import OptionError

ROWS = 400
PLAIN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ERASED = "\x1b[2K"
"""Erases a line of the terminal."""


def rows() -> pa.Table:
    vectors = np.random.default_rng(1).random(ROWS * 8, dtype=np.float32)
    return pa.table(
        {"id": range(ROWS), "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8)}
    )


def on_terminal(work: Callable[[], object]) -> str:
    """What a work writes to standard error if that is a terminal."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream:
        with redirect_stderr(stream):
            work()
        stream.write("\n.")
        stream.flush()
        seen = b""
        while not seen.endswith(b"."):
            seen += os.read(reader, 65_536)
    os.close(reader)
    return seen.decode()


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    return glaive.write_dataset(rows(), tmp_path / "d", max_rows_per_file=100)


Work = Callable[[glaive.LanceDataset, Any], object]

WORKS: dict[str, tuple[str, Work]] = {
    "write": ("write", lambda ds, to: glaive.write_dataset(rows(), f"{ds.uri}.new", progress=to)),
    "insert": ("write", lambda ds, to: ds.insert(rows(), progress=to)),
    "fragments": ("write", lambda ds, to: write_fragments(rows(), ds, progress=to)),
    "compact": (
        "compact",
        lambda ds, to: ds.optimize.compact_files(target_rows_per_fragment=ROWS, progress=to),
    ),
    "delete": ("delete", lambda ds, to: ds.delete("id % 3 = 0", progress=to)),
    "update": ("update", lambda ds, to: ds.update({"id": "id + 1"}, progress=to)),
    "merge": (
        "merge",
        lambda ds, to: ds.merge_insert("id").when_matched_update_all().execute(rows(), progress=to),
    ),
    "columns": ("add columns", lambda ds, to: ds.add_columns({"b": "id * 2"}, progress=to)),
    "index": ("index id", lambda ds, to: ds.create_scalar_index("id", "BTREE", progress=to)),
    "vectors": (
        "index v",
        lambda ds, to: ds.create_index("v", "IVF_FLAT", num_partitions=2, progress=to),
    ),
}


@pytest.mark.parametrize("name", WORKS)
def test_long_work_shows_a_line_on_a_terminal_if_asked_to(
    dataset: glaive.LanceDataset, name: str
) -> None:
    label, work = WORKS[name]
    seen = on_terminal(lambda: work(dataset, True))
    assert re.search(rf"{label} .*\d+ of .* rows ", PLAIN.sub("", seen)), seen
    assert ERASED in seen


@pytest.mark.parametrize("name", ["write", "compact", "index"])
def test_nothing_is_shown_elsewhere_or_unless_it_was_asked_for(
    dataset: glaive.LanceDataset, name: str
) -> None:
    work = WORKS[name][1]
    assert on_terminal(lambda: work(dataset, None)) == "\r\n."
    again = glaive.write_dataset(rows(), f"{dataset.uri}.again", max_rows_per_file=100)
    elsewhere = StringIO()
    with redirect_stderr(elsewhere):
        work(again, True)
    assert elsewhere.getvalue() == ""


def test_the_optimizer_shows_a_line_of_all_indices(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    dataset.insert(rows())
    dataset.optimize.optimize_indices(progress=False)
    assert "optimize indices" in on_terminal(
        lambda: dataset.optimize.optimize_indices(progress=True)
    )


def test_a_clean_up_shows_the_files_that_it_deleted(dataset: glaive.LanceDataset) -> None:
    dataset.insert(rows(), mode="overwrite")
    age = timedelta(0)
    seen = on_terminal(lambda: dataset.cleanup_old_versions(age, progress=True))
    assert re.search(r"clean up \S+ +\d+ of \d+ files ", PLAIN.sub("", seen)), seen
    assert ERASED in seen


def test_a_line_is_removed_when_the_work_fails() -> None:
    def work() -> None:
        with pytest.raises(OptionError), showing(True, "outer"), showing(True, "inner"):
            raise OptionError("stop")

    seen = on_terminal(work)
    assert "outer" in seen
    assert "inner" not in seen
    assert ERASED in seen


@pytest.mark.parametrize("wrong", [3, "yes", print])
def test_what_is_no_answer_is_refused(dataset: glaive.LanceDataset, wrong: Any) -> None:
    with pytest.raises(OptionError, match="progress: expected True or False"):
        dataset.optimize.compact_files(progress=wrong)
