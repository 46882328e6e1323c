"""Merges that delete, deletions of all rows, and branches that become the next version."""

from __future__ import annotations

import random

from tests.proof.simulated.changes import SHARED, Change
from tests.proof.simulated.contents import Contents, Expected, changed_meanwhile
from tests.proof.simulated.frames import on, schema_of, table

from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitContentionError


def prune(number: int, rng: random.Random) -> Change:
    """A merge that updates, inserts, and deletes the rows from a part of the table it has not."""
    keys = {rng.randrange(8) for _ in range(2)} | {rng.choice([1000 * number, *SHARED])}
    rows, end = dict.fromkeys(sorted(keys), 10_000 * number), rng.choice([4, 8, 10_000])
    turned = rng.random() < 0.5

    def run(at: LanceDataset, _: Change) -> object:
        merge = at.merge_insert(on(at, turned=turned))
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge = merge.when_not_matched_by_source_delete(f"key < {end}")
        return merge.execute(table(rows, schema_of(at)))

    def after(_: Change, before: Contents, opened: Contents) -> Expected:
        expected, touched = before.values, set[int]()
        for key, old in before.values.items():
            if key in rows:
                expected[key] = {**old, "value": rows[key]}
                touched.add(key)
            elif key < end:
                del expected[key]
                touched.add(key)
        new = rows.keys() - expected.keys()
        expected |= {key: before.new_row(rows[key]) for key in new}
        free = touched & changed_meanwhile(before, opened)
        return Expected(before.types, expected, touched, free)

    return Change(number, "prune", run, rows=rows, after=after)


def remove(number: int, rng: random.Random) -> Change:
    """A merge that deletes the rows it has."""
    keys = {rng.randrange(8) for _ in range(3)} | {1000 * number}

    def run(at: LanceDataset, _: Change) -> object:
        source = table(dict.fromkeys(keys, 0), schema_of(at))
        return at.merge_insert(on(at, turned=False)).when_matched_delete().execute(source)

    return Change(number, "delete", run, lambda key, _: key in keys)


def truncate(number: int, _: random.Random) -> Change:
    return Change(number, "delete", lambda at, _: at.truncate_table(), lambda _key, _value: True)


def publish(number: int, rng: random.Random) -> Change:
    """Make a branch, change it, and make it the next version; some are deleted then."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    name, ends = f"draft-{number}", rng.random() < 0.5

    def run(at: LanceDataset, _: Change) -> None:
        draft = at.create_branch(name)
        draft.insert(table(rows, schema_of(at)))
        draft.delete("key = 0")
        draft.update({"value": "value + 100"}, "key = 1")
        at.branches.publish(name)
        if ends:
            try:
                at.branches.delete(name)
            except CommitContentionError as error:  # others delete theirs
                if repr(name) in str(error):
                    raise

    def after(_: Change, __: Contents, opened: Contents) -> Expected:
        """Of the version that was opened: there may be none in between."""
        expected = {key: values for key, values in opened.values.items() if key != 0}
        expected |= {key: opened.new_row(value) for key, value in rows.items()}
        if 1 in expected:
            expected[1] = {**expected[1], "value": expected[1]["value"] + 100}
        return Expected(opened.types, expected, {1})

    return Change(number, "publish", run, rows=rows, after=after)


MERGES = [(2, prune), (1, remove), (1, truncate), (1, publish)]
"""Makers of changes, each with how often it is drawn."""
