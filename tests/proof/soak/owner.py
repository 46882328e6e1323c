"""One writer of the soak: it changes rows of its own only, and knows all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitConflictError, CommitContentionError

DIMENSION = 8
SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("owner", pa.int32()),
        ("group", pa.string()),
        ("text", pa.string()),
        ("value", pa.int64()),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)
COLUMNS = SCHEMA.names
WORDS = [f"word{number}" for number in range(40)]
MOST_ROWS = 400
"""Of one owner: a soak has as many rows at its end as at its beginning."""

Row = dict[str, Any]


class Owner:
    """Changes and searches rows of its own, and compares them with a model.

    Parameters
    ----------
    uri
        The dataset.
    number
        Of the owner; its keys have this remainder.
    seed
        Of what it does.
    """

    def __init__(self, uri: str, number: int, seed: int) -> None:
        self.uri, self.number = uri, number
        self.rng = random.Random(f"{seed} {number}")
        self.rows: dict[int, Row] = {}
        self.next = number
        self.counts: Counter[str] = Counter()
        self.dataset = glaive.dataset(uri)

    # ------------------------------------------------------------------- rows

    def made(self, keys: list[int]) -> list[Row]:
        """New values of rows."""
        rng = self.rng
        return [
            {
                "key": key,
                "owner": self.number,
                "group": rng.choice("abcde"),
                "text": " ".join(rng.sample(WORDS, 4)),
                "value": rng.randrange(1000),
                "vector": np.float32([rng.random() for _ in range(DIMENSION)]).tolist(),
            }
            for key in keys
        ]

    def new_keys(self, count: int) -> list[int]:
        """Keys that no row had."""
        first, self.next = self.next, self.next + 100 * count
        return list(range(first, self.next, 100))

    def condition(self) -> tuple[str, Callable[[Row], bool]]:
        """Some of the own rows: as a filter and as a function of a row."""
        rng, owner = self.rng, self.number
        divisor = rng.choice([3, 5, 7])
        rest, low, group = rng.randrange(divisor), rng.randrange(1000), rng.choice("abcde")
        kind = rng.randrange(4)
        if kind == 0:
            return (
                f"owner = {owner} AND value % {divisor} = {rest}",
                lambda row: row["value"] % divisor == rest,
            )
        if kind == 1:
            return f"owner = {owner} AND `group` = '{group}'", lambda row: row["group"] == group
        if kind == 2:
            return f"owner = {owner} AND value < {low}", lambda row: row["value"] < low
        keys = set(rng.sample(sorted(self.rows), min(5, len(self.rows)))) | {owner}
        listed = ", ".join(map(str, sorted(keys)))
        return f"key IN ({listed})", lambda row: row["key"] in keys

    # ---------------------------------------------------------------- changes

    def append(self, at: LanceDataset) -> dict[int, Row]:
        """Add rows, if there is room for more."""
        rows = self.made(self.new_keys(self.rng.randrange(1, 40)))
        at.insert(pa.Table.from_pylist(rows, SCHEMA))
        return {**self.rows, **{row["key"]: row for row in rows}}

    def delete(self, at: LanceDataset) -> dict[int, Row]:
        """Delete some rows."""
        text, matches = self.condition()
        at.delete(text)
        return {key: row for key, row in self.rows.items() if not matches(row)}

    def update(self, at: LanceDataset) -> dict[int, Row]:
        """Change the value and the text of some rows."""
        text, matches = self.condition()
        words = " ".join(self.rng.sample(WORDS, 3))
        at.update({"value": "value + 1", "text": f"'{words}'"}, text)
        return {
            key: {**row, "value": row["value"] + 1, "text": words} if matches(row) else row
            for key, row in self.rows.items()
        }

    def merge(self, at: LanceDataset) -> dict[int, Row]:
        """Replace some rows, and insert others."""
        old = self.rng.sample(sorted(self.rows), min(8, len(self.rows)))
        rows = self.made([*old, *self.new_keys(4)])
        builder = at.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        builder.execute(pa.Table.from_pylist(rows, SCHEMA))
        return {**self.rows, **{row["key"]: row for row in rows}}

    def change(self) -> None:
        """Make one change; a conflict leaves all as it was."""
        make = self.rng.choice([self.append, self.delete, self.update, self.merge])
        if len(self.rows) > MOST_ROWS:
            make = self.delete
        at = self.newest()
        try:
            self.rows = make(at)
        except (CommitConflictError, CommitContentionError):
            self.counts["refused"] += 1
        else:
            self.counts["changes"] += 1

    def newest(self) -> LanceDataset:
        """The newest version: of a dataset opened long ago, or opened now."""
        if self.rng.random() < 0.5:
            return glaive.dataset(self.uri)
        self.dataset.checkout_latest()
        return self.dataset

    # ------------------------------------------------------------------ reads

    def check(self) -> None:
        """Compare something with the model.

        Raises
        ------
        AssertionError
            It is not what it should be.
        """
        look = self.rng.choice([self.scan, self.search, self.search_texts, self.search_vectors])
        look(self.newest())
        self.counts["reads"] += 1

    def scan(self, at: LanceDataset) -> None:
        """All own rows."""
        found = at.to_table(COLUMNS, filter=f"owner = {self.number}")
        self.compare(found, self.rows, "a scan")

    def search(self, at: LanceDataset) -> None:
        """The own rows that match a filter, which indices may answer; their number, too."""
        text, matches = self.condition()
        expected = {key: row for key, row in self.rows.items() if matches(row)}
        self.compare(at.to_table(COLUMNS, filter=text), expected, text)
        count = at.count_rows(text)
        assert count == len(expected), f"{text} counted {count} rows, not {len(expected)}"

    def search_texts(self, at: LanceDataset) -> None:
        """The own rows with a word."""
        word = self.rng.choice(WORDS)
        query = {"query": word, "columns": ["text"]}
        found = at.to_table(
            COLUMNS, filter=f"owner = {self.number}", full_text_query=query, prefilter=True
        )
        rows = self.rows.items()
        expected = {key: row for key, row in rows if word in row["text"].split()}
        self.compare(found.select(COLUMNS), expected, f"a search for {word}")

    def search_vectors(self, at: LanceDataset) -> None:
        """The nearest own rows; all partitions are searched, so that none may be missing."""
        vector = np.float32([self.rng.random() for _ in range(DIMENSION)])
        found = at.to_table(
            ["key"],
            filter=f"owner = {self.number}",
            prefilter=True,
            nearest={"column": "vector", "q": vector, "k": 5, "nprobes": 1000},
        )
        distances = sorted(
            float(np.sum((np.float32(row["vector"]) - vector) ** 2)) for row in self.rows.values()
        )
        expected = distances[: min(5, len(distances))]
        actual = sorted(found["_distance"].to_pylist())
        assert np.allclose(actual, expected, rtol=1e-4, atol=1e-6), (
            f"owner {self.number}, version {at.version}: nearest rows {found.to_pylist()}, "
            f"distances of the model {expected}"
        )

    def compare(self, found: pa.Table, rows: dict[int, Row], what: str) -> None:
        """Compare rows that were found with those of the model."""
        found = found.take(pc.sort_indices(found, [("key", "ascending")]))
        expected = [rows[key] for key in sorted(rows)]
        if found.to_pylist() == expected:
            return
        keys = Counter(found["key"].to_pylist())
        raise AssertionError(
            f"owner {self.number}, {what}: lost {sorted(rows.keys() - keys.keys())}, "
            f"foreign {sorted(keys.keys() - rows.keys())}, "
            f"doubled {[key for key, count in keys.items() if count > 1]}, "
            f"of {len(expected)} rows"
        )
