"""Processes of both libraries change one dataset: nothing acknowledged is lost or done twice.

Each writer tells what its rows are after every change that went through. In every version the
rows of a writer must be one of these states, and from version to version never an older one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE", "fast") != "fast"
SECONDS = 60 if NIGHTLY else 2
SCRIPT = Path(__file__).with_name("writing.py")
EMPTY = pa.schema([("writer", pa.int64()), ("number", pa.int64()), ("value", pa.int64())])

State = tuple[tuple[int, int], ...]


def states_of(dataset: Any) -> dict[int, State]:
    """The rows of each writer."""
    found: dict[int, list[tuple[int, int]]] = {}
    for row in dataset.to_table().to_pylist():
        found.setdefault(row["writer"], []).append((row["number"], row["value"]))
    return {writer: tuple(sorted(rows)) for writer, rows in found.items()}


class Writer:
    """A process that changes the dataset once it is told to."""

    def __init__(self, stack: ExitStack, folder: Path, library: str, number: int) -> None:
        self.told = folder / f"writer {number}.txt"
        output = stack.enter_context(self.told.open("w"))
        arguments = [library, str(folder / "t"), str(number), str(SECONDS), str(number)]
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                text=True,
            )
        )
        stack.callback(self.process.kill)

    def wait_until_ready(self) -> None:
        until = time.monotonic() + 120
        while not self.told.read_text().startswith("ready"):
            assert self.process.poll() is None, "a writer failed; its error was printed"
            assert time.monotonic() < until
            time.sleep(0.02)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def states(self) -> list[tuple[int, State]]:
        """Versions it saw, each with its rows then."""
        assert self.process.wait(240) == 0, "a writer failed; its error was printed"
        lines = [json.loads(line) for line in self.told.read_text().splitlines()[1:]]
        return [(version, tuple(map(tuple, rows))) for version, rows in lines]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-1", "rel-2", "rel-13")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_every_version_is_what_was_acknowledged(tmp_path: Path, stable: bool) -> None:
    place = str(tmp_path / "t")
    glaive.write_dataset(EMPTY.empty_table(), place, enable_stable_row_ids=stable)
    libraries = ["glaive", "lance"] * 2
    read = 0
    with ExitStack() as stack:
        writers = [Writer(stack, tmp_path, library, i) for i, library in enumerate(libraries)]
        for one in writers:
            one.wait_until_ready()
        for one in writers:
            one.go()
        while any(one.process.poll() is None for one in writers):
            for library in (glaive, lance):
                dataset = library.dataset(place)
                assert dataset.to_table().num_rows == dataset.count_rows()
                read += 1
            time.sleep(0.05)
        told = [one.states() for one in writers]
    assert read > 2
    newest = glaive.dataset(place)
    assert newest.version > 10
    assert all(len(one) >= 3 for one in told), "a writer never got through"
    reached = [-1] * len(writers)
    for version in range(1, newest.version + 1):
        found = states_of(glaive.dataset(place, version=version))
        if version % 8 == 0 or version == newest.version:
            assert states_of(lance.dataset(place, version=version)) == found
        for writer, states in enumerate(told):
            now = found.get(writer, ())
            # The state after the change last told of, or after one further on.
            known = [(), *(state for _, state in states)]
            reached[writer] = next(
                (at for at in range(max(0, reached[writer]), len(known)) if known[at] == now), -1
            )
            assert reached[writer] >= 0, (version, writer, now, known)
    for writer, states in enumerate(told):
        assert states_of(newest).get(writer, ()) == states[-1][1]
        for version, state in states:
            # What a writer was told of is in the version it saw next.
            assert states_of(glaive.dataset(place, version=version)).get(writer, ()) == state
    ids = newest.to_table(with_row_id=True)["_rowid"].to_pylist()
    assert len(ids) == len(set(ids))
    lance.dataset(place).validate()
