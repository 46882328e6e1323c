"""What the actors of a simulation do to a table, and what each change may do to its rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from tests.proof.simulated.bases import target
from tests.proof.simulated.contents import Contents, Expected
from tests.proof.simulated.frames import on, pairs, schema_of, table

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment_metadata import FragmentMetadata
from glaive.dataset.lance_operation import LanceOperation
from glaive.dataset.transactions import Transaction
from glaive.dataset.version import OpenedVersion
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import WriteKeywords, commit_plan, write_options

JOB = "simulated.job"

SHARED = (6, 901, 902)
"""Keys of new rows that several merges have."""

Outcome = Literal["done", "refused", "unknown"]


@dataclass(slots=True)
class Change:
    """One call of one actor, and what came of it.

    ``since`` is the version it was made for, ``version`` the one that the call returned. One that
    is repeated has ``first_began`` from its first attempt. ``after`` says what it makes of the
    version before, made for another one; ``None`` for kinds that the check of histories knows.
    ``fields`` are the ids of the columns that it gave values, besides those of all versions; one
    that is ``planned_again`` after a conflict looks for the name ``found`` in a later version.
    ``planned`` is the version that the attempt had opened which made it.
    """

    number: int
    kind: str
    run: Callable[[LanceDataset, Change], object]
    matches: Callable[[int, int], bool] = lambda _key, _value: False
    rows: Mapping[int, int] = field(default_factory=dict)
    after: Callable[[Change, Contents, Contents], Expected] | None = None
    fields: Collection[int] = ()
    planned_again: bool = False
    retried: bool = False
    """Whether it is repeated until its outcome is known."""
    again: bool = False
    """Whether it gave a name for the second time, which it had deleted."""
    job: str | None = None
    folder: str = ""
    """Of the dataset that it changes, if that is not the table."""
    oldest: int = 1
    """The first version of the table."""
    since: int = 0
    planned: int = 0
    version: int = 0
    first_began: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    outcome: Outcome = "unknown"
    found: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        rows = f" of {dict(self.rows)}" if self.rows else ""
        made = f"made for version {self.since}, returned {self.version}"
        return f"change {self.number} ({self.kind}{rows}, {made}, {self.outcome}: {self.error!r})"


def append(number: int, rng: random.Random) -> Change:
    rows = {1000 * number + at: rng.randrange(10) for at in range(rng.choice([1, 2, 3]))}
    drawn = rng.random()

    def run(at: LanceDataset, _: Change) -> None:
        at.insert(table(rows, schema_of(at)), target_bases=target(at, drawn))

    return Change(number, "append", run, rows=rows)


def appends(number: int, rng: random.Random) -> Change:
    """Two writers' rows, which are committed together."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}

    def run(at: LanceDataset, _: Change) -> None:
        schema = schema_of(at)
        plan = plan_write(at.store, schema, WriteOptions(mode="append"), at.manifest)
        made = [write_fragments(plan, table({one: rows[one]}, schema).to_batches()) for one in rows]
        operations = [LanceOperation.Append(list(map(FragmentMetadata.of, one))) for one in made]
        LanceDataset.commit_batch(at, [Transaction(at.version, one) for one in operations])

    return Change(number, "append", run, rows=rows)


def batch(number: int, rng: random.Random) -> Change:
    """A batch of a stream: written again, under the same number, until it is known to be there."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    transaction = {"glaive.txn.app": f"stream {number}", "glaive.txn.version": "1"}

    def run(at: LanceDataset, _: Change) -> None:
        at.insert(table(rows, schema_of(at)), transaction_properties=transaction)

    return Change(number, "append", run, rows=rows, retried=True)


def job(number: int, base: OpenedVersion, rng: random.Random) -> Change:
    """A job of Spark: tasks write, some twice, and drivers, maybe two of them, commit them once."""
    rows = {500: number, 501: number}

    def run(at: LanceDataset, _: Change) -> object:
        options = write_options(
            job, WriteKeywords, "append", {"transaction_properties": {JOB: "shared"}}
        )
        schema = schema_of(at)
        plan = plan_write(at.store, schema, options, base.manifest)
        fragments = []
        for key, value in rows.items():
            attempts = [
                list(write_fragments(plan, table({key: value}, schema).to_batches()))
                for _ in range(rng.choice([1, 1, 2]))
            ]
            fragments += rng.choice(attempts)
        manifest = commit_plan(plan, fragments, once=JOB)
        at.move_to(manifest)
        return manifest.version

    return Change(number, "append", run, rows=rows, retried=True, job="shared")


def condition(rng: random.Random) -> tuple[str, Callable[[int, int], bool]]:
    divisor = rng.choice([2, 3, 5])
    rest = rng.randrange(divisor)
    if rng.random() < 0.5:
        key = rng.randrange(8)
        return f"key = {key}", lambda found, _: found == key
    return f"key % {divisor} = {rest}", lambda key, _: key % divisor == rest


def delete(number: int, rng: random.Random) -> Change:
    text, matches = condition(rng)
    return Change(number, "delete", lambda at, _: at.delete(text), matches)


def update(number: int, rng: random.Random) -> Change:
    text, matches = condition(rng)
    return Change(
        number, "update", lambda at, _: at.update({"value": "value + 100"}, text), matches
    )


def upsert(number: int, rng: random.Random) -> Change:
    """A merge; some of its new rows other merges may have, too."""
    keys = {rng.randrange(8) for _ in range(2)} | {rng.choice([1000 * number, *SHARED])}
    rows = dict.fromkeys(sorted(keys), 10_000 * number)
    turned, drawn = rng.random() < 0.5, rng.random()

    def run(at: LanceDataset, _: Change) -> object:
        merge = at.merge_insert(on(at, turned=turned)).target_bases(target(at, drawn))
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        return merge.execute(table(rows, schema_of(at)))

    return Change(number, "upsert", run, rows=rows)


def compact(number: int, rng: random.Random) -> Change:
    """Compact; some leave the indices as they are, with a map of the rows that moved."""
    size, defer = rng.choice([4, 100]), rng.random() < 0.3
    return Change(
        number,
        "same rows",
        lambda at, _: at.optimize.compact_files(
            target_rows_per_fragment=size,
            materialize_deletions_threshold=0.0,
            defer_index_remap=defer,
        ),
    )


def configure(number: int, _: random.Random) -> Change:
    return Change(number, "same rows", lambda at, _: at.update_config({f"key {number}": "value"}))


def restore(number: int, rng: random.Random) -> Change:
    by_tag = rng.random() < 0.5

    def run(at: LanceDataset, change: Change) -> None:
        at.checkout_version("origin" if by_tag else change.oldest).restore()

    return Change(number, "restore", run)


def overwrite(number: int, rng: random.Random) -> Change:
    rows = {1000 * number + at: rng.randrange(10) for at in range(3)}
    drawn = rng.random()

    def run(at: LanceDataset, _: Change) -> None:
        given = table(rows, schema_of(at))
        at.insert(given, mode="overwrite", target_bases=target(at, drawn))

    return Change(number, "overwrite", run, rows=rows)


def tag(number: int, rng: random.Random) -> Change:
    """Tag the version that was opened; some give the name to another version first."""
    name, again = f"tag-{number}", rng.choice(["", "", "delete", "update"])

    def run(at: LanceDataset, change: Change) -> None:
        change.again = again == "delete"
        if again:
            at.tags.create(name, change.oldest)
        if again == "delete":
            at.tags.delete(name)
        if again == "update":
            at.tags.update(name)
        else:
            at.tags.create(name)

    return Change(number, "tag", run)


def branch(number: int, rng: random.Random) -> Change:
    """A branch of the version that was opened, and rows that are appended to it.

    Some are made in the place of one that was deleted.
    """
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    again = rng.random() < 0.3

    def run(at: LanceDataset, change: Change) -> None:
        change.again = again
        if again:
            at.create_branch(f"branch-{number}").insert(table({5_000: number}, schema_of(at)))
            at.branches.delete(f"branch-{number}")
        made = at.create_branch(f"branch-{number}")
        made.insert(table(rows, schema_of(at)))
        made.delete("key = 0")

    return Change(number, "branch", run, rows=rows)


def clean_up(number: int, rng: random.Random) -> Change:
    keep = rng.choice([1, 2, 3])

    def run(at: LanceDataset, _: Change) -> object:
        return at.cleanup_old_versions(
            timedelta(0), retain_versions=keep, error_if_tagged_old_versions=False
        )

    return Change(number, "clean-up", run)


def read(number: int, _: random.Random) -> Change:
    """Read all rows of a version."""

    def run(at: LanceDataset, change: Change) -> None:
        change.found = pairs(at.to_table(columns=["key", "value"]))

    return Change(number, "read", run, lambda _key, _value: True)


def search(number: int, rng: random.Random) -> Change:
    """Search by key: through the index, where there is one."""
    key = rng.randrange(8)

    def run(at: LanceDataset, change: Change) -> None:
        change.found = pairs(at.to_table(columns=["key", "value"], filter=f"key = {key}"))

    return Change(number, "read", run, lambda found, _: found == key)


CHANGES: list[tuple[int, Callable[[int, random.Random], Change]]] = [
    (4, append),
    (4, delete),
    (4, update),
    (4, upsert),
    (4, compact),
    (1, appends),
    (2, batch),
    (1, configure),
    (1, restore),
    (1, overwrite),
    (1, tag),
    (1, branch),
    (3, clean_up),
    (2, read),
    (2, search),
]
"""Makers of changes, each with how often it is drawn."""
