"""Changes of indices: made, replaced, brought up to date, dropped; the check of their answers."""

from __future__ import annotations

import random

from tests.proof.simulated.changes import Change
from tests.proof.simulated.contents import Contents

from glaive.dataset.dataset import LanceDataset
from glaive.testing.observe import expect, expect_equal

__all__ = ["INDEX_CHANGES", "check_search", "drop_index", "index", "optimize"]


def index(number: int, rng: random.Random) -> Change:
    """Index a column, or index it again, maybe in another way."""
    at_random = rng.random()
    kind = rng.choice(["BTREE", "BTREE", "BITMAP", "ZONEMAP"])

    def run(at: LanceDataset, _: Change) -> None:
        names = at.schema.names
        at.create_scalar_index(names[int(at_random * len(names))], kind)

    return Change(number, "same rows", run)


def optimize(number: int, _: random.Random) -> Change:
    return Change(number, "same rows", lambda at, _: at.optimize.optimize_indices())


def drop_index(number: int, _: random.Random) -> Change:
    """Drop the index that was made last."""

    def run(at: LanceDataset, _: Change) -> None:
        if names := [entry.name for entry in at.manifest.indices if entry.fields]:
            at.drop_index(names[-1])

    return Change(number, "same rows", run)


def check_search(opened: LanceDataset, contents: Contents) -> None:
    """A search by an index finds what there is: equal values in one version, a range in another.

    Each version is asked for one of its indices; all of them are of columns that it has.
    """
    version = opened.version
    entries = [entry for entry in opened.manifest.indices if entry.fields]  # no map of moved rows
    if not entries:
        return
    names = {field.id: field.name for field in opened.manifest.schema.fields}
    for entry in entries:
        known = names.keys() >= set(entry.fields)
        expect(known, f"version {version} has no field {entry.fields} of its index {entry.name}")
    name = names[entries[version % len(entries)].fields[0]]
    rows = {key: {"key": key, **row.values} for key, row in contents.rows.items()}
    values = sorted({row[name] for row in rows.values() if row[name] is not None})
    wanted, least = values[::3] or [0], values[len(values) // 3] if values else 0
    equal = version % 2 == 0
    text = f"{name} IN ({', '.join(map(str, wanted))})" if equal else f"{name} >= {least}"
    found = opened.to_table(columns=["key"], filter=text)["key"].to_pylist()
    expected = [
        key
        for key, row in rows.items()
        if row[name] is not None and (row[name] in wanted if equal else row[name] >= least)
    ]
    expect_equal((text, sorted(found)), (text, sorted(expected)))


INDEX_CHANGES = [(2, index), (1, optimize), (1, drop_index)]
"""Makers of changes, each with how often it is drawn."""
