"""Changes of indices: made, replaced, brought up to date, dropped; the check of their answers."""

from __future__ import annotations

import random

from tests.proof.simulated.changes import Change
from tests.proof.simulated.contents import Contents

from glaive.dataset.dataset import LanceDataset
from glaive.scan.full_text.queries import MatchQuery
from glaive.testing.observe import expect, expect_equal

__all__ = ["INDEX_CHANGES", "check_search", "drop_index", "index", "optimize"]


def index(number: int, rng: random.Random) -> Change:
    """Index a column, or index it again, maybe in another way."""
    at_random = rng.random()
    kind = rng.choice(["BTREE", "BTREE", "BITMAP", "ZONEMAP"])

    def run(at: LanceDataset, _: Change) -> None:
        fields = at.manifest.schema.fields
        field = fields[int(at_random * len(fields))]
        of_words = field.logical_type == "string" and kind != "ZONEMAP"
        at.create_scalar_index(field.name, "INVERTED" if of_words else kind)

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
    entry = entries[version % len(entries)]
    name = names[entry.fields[0]]
    if entry.index_details.type_url.endswith("InvertedIndexDetails"):
        _check_words(opened, contents, name)
        return
    rows = {key: {"key": key, **row.values} for key, row in contents.rows.items()}
    values = sorted({row[name] for row in rows.values() if row[name] is not None})
    values = values or ["" if contents.types.get(name) == "string" else 0]
    wanted, least = values[::3], values[len(values) // 3]
    equal = version % 2 == 0
    text = f"{name} IN ({', '.join(map(repr, wanted))})" if equal else f"{name} >= {least!r}"
    found = opened.to_table(columns=["key"], filter=text)["key"].to_pylist()
    expected = [
        key
        for key, row in rows.items()
        if row[name] is not None and (row[name] in wanted if equal else row[name] >= least)
    ]
    expect_equal((text, sorted(found)), (text, sorted(expected)))


def _check_words(opened: LanceDataset, contents: Contents, name: str) -> None:
    """A search for words by a text index finds the rows that have one of them."""
    texts = {key: str(row.values[name] or "").split() for key, row in contents.rows.items()}
    rare = sorted({word for words in texts.values() for word in words[1:]})
    for query in (f"w{opened.version % 4}", " ".join(["n0", *rare[opened.version % 2 :: 3]])):
        wanted = set(query.split())
        search = MatchQuery(query, name)
        found = opened.to_table(columns=["key"], full_text_query=search)["key"].to_pylist()
        expected = sorted(key for key, words in texts.items() if wanted.intersection(words))
        expect_equal((query, sorted(found)), (query, expected))


INDEX_CHANGES = [(2, index), (1, optimize), (1, drop_index)]
"""Makers of changes, each with how often it is drawn."""
