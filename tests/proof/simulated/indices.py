"""Changes of indices: made, replaced, brought up to date, dropped; the check of their answers."""

from __future__ import annotations

import random

from tests.kit.observe import expect, expect_equal
from tests.proof.simulated.changes import Change
from tests.proof.simulated.contents import VECTOR, Contents, typed
from tests.proof.simulated.frames import PART, keys_of

from glaive.dataset.dataset import LanceDataset
from glaive.format.manifest import Manifest
from glaive.scan.text_queries import MatchQuery
from glaive.table.index_coverage import REUSE_INDEX

__all__ = [
    "INDEX_CHANGES",
    "check_compacted",
    "check_search",
    "drop_index",
    "drop_map",
    "index",
    "optimize",
]

_OF_TEXTS = ("INVERTED", "INVERTED", "NGRAM")
_OF_VECTORS = ("IVF_FLAT", "IVF_SQ", "IVF_HNSW_FLAT")
"""Kinds of indices of columns that have no scalars."""


def index(number: int, rng: random.Random) -> Change:
    """Index a column, or index it again, maybe in another way."""
    at_random = rng.random()
    kind = rng.choice(["BTREE", "BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
    of_texts, of_vectors = rng.choice(_OF_TEXTS), rng.choice(_OF_VECTORS)

    def run(at: LanceDataset, _: Change) -> None:
        fields = at.manifest.schema.fields
        field = fields[int(at_random * len(fields))]
        match field.logical_type:
            case "string":
                at.create_scalar_index(field.name, kind if kind == "ZONEMAP" else of_texts)
            case _ if field.logical_type == VECTOR:
                at.create_index(field.name, of_vectors, num_partitions=2, replace=True)
            case _:
                at.create_scalar_index(field.name, kind)

    return Change(number, "same rows", run)


def optimize(number: int, _: random.Random) -> Change:
    return Change(number, "same rows", lambda at, _: at.optimize.optimize_indices())


def drop_index(number: int, _: random.Random) -> Change:
    """Drop the index that was made last."""

    def run(at: LanceDataset, _: Change) -> None:
        if names := [entry.name for entry in at.manifest.indices if entry.fields]:
            at.drop_index(names[-1])

    return Change(number, "same rows", run)


def drop_map(number: int, _: random.Random) -> Change:
    """Drop the map of the rows that compactions moved without their indices."""

    def run(at: LanceDataset, _: Change) -> None:
        if any(entry.name == REUSE_INDEX for entry in at.manifest.indices):
            at.drop_index(REUSE_INDEX)

    return Change(number, "same rows", run)


def check_compacted(before: Manifest, after: Manifest) -> None:
    """A compaction brings no index back that was dropped."""
    there, now = ({index.name for index in one.indices} for one in (before, after))
    expect(now <= there | {REUSE_INDEX}, (after.version, there, now))


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
    details = entry.index_details.type_url
    if details.endswith("InvertedIndexDetails"):
        _check_words(opened, contents, name)
        return
    if details.endswith("NGramIndexDetails"):
        _check_part(opened, contents, name)
        return
    if contents.types.get(name) == VECTOR:
        _check_nearest(opened, contents, name)
        return
    keys = contents.rows.items()
    rows = {key: {"key": key, PART: key % 2 == 0, **row.values} for key, row in keys}
    values = sorted({row[name] for row in rows.values() if row[name] is not None})
    values = values or [True if name == PART else typed(contents.types.get(name, ""), 0)]
    wanted, least = values[::3], values[len(values) // 3]
    equal = version % 2 == 0
    text = f"{name} IN ({', '.join(map(repr, wanted))})" if equal else f"{name} >= {least!r}"
    found = keys_of(opened.to_table(columns=["key"], filter=text))
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
        found = keys_of(opened.to_table(columns=["key"], full_text_query=search))
        expected = sorted(key for key, words in texts.items() if wanted.intersection(words))
        expect_equal((query, sorted(found)), (query, expected))


def _check_part(opened: LanceDataset, contents: Contents, name: str) -> None:
    """A search for a part of a text by an index of n-grams finds the rows that have it."""
    texts = {key: row.values[name] or "" for key, row in contents.rows.items()}
    parts = sorted({text[1:] for text in texts.values() if text})
    for part in parts[opened.version % 2 :: 3]:
        found = keys_of(opened.to_table(columns=["key"], filter=f"contains({name}, '{part}')"))
        expected = sorted(key for key, text in texts.items() if part in text)
        expect_equal((part, sorted(found)), (part, expected))


def _check_nearest(opened: LanceDataset, contents: Contents, name: str) -> None:
    """A search of all partitions finds all vectors, with their distances."""
    nearest = {"column": name, "q": [0.0, 0.0], "k": 1000, "nprobes": 1000, "refine_factor": 2}
    found = opened.to_table(columns=["key", "_distance"], nearest=nearest)
    distances = sorted(zip(keys_of(found), found["_distance"].to_pylist(), strict=True))
    vectors = {key: row.values[name] for key, row in contents.rows.items()}
    there = sorted((key, vector) for key, vector in vectors.items() if vector is not None)
    expect_equal(distances, [(key, sum(one * one for one in vector)) for key, vector in there])


INDEX_CHANGES = [(2, index), (1, optimize), (1, drop_index), (0.5, drop_map)]
"""Makers of changes, each with how often it is drawn."""
