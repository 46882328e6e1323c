"""A process that changes a dataset for some time and tells each change that was acknowledged.

    python writing.py library place writer seconds seed

Prints one JSON list per line: version known afterwards, and the rows of this writer then, as
pairs of number and value. A writer changes its own rows only; all writers compact.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from typing import Any

os.environ["LANCE_LOG"] = "error"

import pyarrow as pa


def is_conflict(error: Exception) -> bool:
    """Whether the library says that other writers were in the way, and nothing was done."""
    text = f"{type(error).__name__}: {error}".lower()
    return any(word in text for word in ("conflict", "concurrent", "contention", "writers"))


class Writer:
    """Changes rows of its own."""

    def __init__(self, library: Any, place: str, writer: int, seed: int) -> None:
        self.library, self.place, self.writer = library, place, writer
        self.chance = random.Random(seed)
        self.rows: dict[int, int] = {}
        self.made = self.acknowledged = 0

    def append(self) -> None:
        numbers = range(self.made, self.made + self.chance.randint(1, 4))
        self.made = numbers.stop
        rows = pa.table(
            {
                "writer": pa.array([self.writer] * len(numbers), pa.int64()),
                "number": pa.array(numbers, pa.int64()),
                "value": pa.array([0] * len(numbers), pa.int64()),
            }
        )
        self.library.write_dataset(rows, self.place, mode="append")
        self.rows |= dict.fromkeys(numbers, 0)

    def delete(self) -> None:
        rest = self.chance.randrange(5)
        self.library.dataset(self.place).delete(f"writer = {self.writer} AND number % 5 = {rest}")
        self.rows = {number: value for number, value in self.rows.items() if number % 5 != rest}

    def update(self) -> None:
        rest = self.chance.randrange(3)
        where = f"writer = {self.writer} AND number % 3 = {rest}"
        self.library.dataset(self.place).update({"value": "value + 1"}, where)
        self.rows = {n: value + (n % 3 == rest) for n, value in self.rows.items()}

    def compact(self) -> None:
        self.library.dataset(self.place).optimize.compact_files(target_rows_per_fragment=50)

    def change(self) -> None:
        """One change, done again until it goes through."""
        changes = [self.append, self.append, self.delete, self.update, self.compact]
        change = self.chance.choice(changes)
        for _ in range(50):
            try:
                change()
            except Exception as error:
                if not is_conflict(error):
                    raise
                time.sleep(self.chance.uniform(0, 0.02))
                if change == self.compact:
                    return
            else:
                self.acknowledged += 1
                version = self.library.dataset(self.place).version
                print(json.dumps([version, sorted(self.rows.items())]), flush=True)
                return


def main() -> None:
    name, place, writer, seconds, seed = sys.argv[1:]
    one = Writer(importlib.import_module(name), place, int(writer), int(seed))
    one.library.dataset(place).to_table()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until or (one.acknowledged < 3 and time.monotonic() < until + 120):
        one.change()


if __name__ == "__main__":
    main()
