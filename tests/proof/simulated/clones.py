"""Shallow clones: made of the table of a simulation, or that table itself; and what they refer to.

What is promised of their sources: a version with a tag keeps its files, and nothing that is done
to a clone touches them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

from tests.kit.observe import expect
from tests.proof.simulated.changes import Change
from tests.proof.simulated.frames import schema_of, table
from tests.proof.simulated.places import Place

from glaive.dataset.dataset import LanceDataset
from glaive.io.store import ObjectStore
from glaive.table.copying import begin_clone
from glaive.table.operations.overwrite import Clone
from glaive.table.root import open_other_root

__all__ = ["CLONED", "CLONES", "SOURCE", "check_sources", "clone", "clone_into", "source"]

SOURCE = "source"
"""Folder of what the table is a clone of, if it is one."""

CLONED = 8
"""Its version, with which the clone begins."""

CLONES = "clones"
"""Folder of the clones that changes make."""


def clone_into(at: LanceDataset, target: ObjectStore) -> LanceDataset:
    """A shallow clone of a version, without looking for the target by its URI."""
    operation = Clone(shallow=True, ref_version=at.version, ref_path=at.store.uri)
    return LanceDataset.of(target, begin_clone(at.store, at.manifest, target, operation))


def clone(number: int, rng: random.Random) -> Change:
    """A clone of the version that was opened, which gets a tag, and changes of the clone."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}
    compacts, cleans = rng.random() < 0.4, rng.random() < 0.6

    def run(at: LanceDataset, _: Change) -> None:
        at.tags.create(f"cloned-{number}")
        made = clone_into(at, open_other_root(at.store, f"{at.store.uri}/{CLONES}/{number}"))
        made.insert(table(rows, schema_of(at)))
        made.delete("key = 0")
        if compacts:
            made.optimize.compact_files()
        if cleans:
            made.cleanup_old_versions(timedelta(0), delete_unverified=True)

    return Change(number, "clone", run, rows=rows)


def source(number: int, rng: random.Random) -> Change:
    """What becomes of the source of a clone: all but the version with the tag is cleaned up."""
    how = rng.choice(["overwrite", "delete", "compact"])

    def run(at: LanceDataset, _: Change) -> None:
        match how:
            case "overwrite":
                at.insert(table({number: 0}, schema_of(at)), mode="overwrite")
            case "delete":
                at.delete("key < 4")
            case _:
                at.optimize.compact_files()
        at.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)

    return Change(number, "source", run, folder=SOURCE)


def check_sources(place: Place, changes: Sequence[Change]) -> None:
    """Clones have the files that they refer to, and nobody changed those of another table."""
    lost = [path for path in place.needed if place.bucket.get(path) is None]
    expect(not lost, f"{lost} of the source were deleted")
    if not place.needed and all(change.kind != "clone" for change in changes):
        return
    # Who makes a clone gives its version a tag, and who opens a table may finish a version.
    besides = ["_refs"] if place.entries is None else ["_refs", "_versions"]
    for path, authors in place.bucket.authors():
        folder = path.partition("/")[0]
        for author in authors:
            if isinstance(author, Change):
                where = CLONES if author.kind == "clone" else author.folder
                at_home = (folder == where) if where else folder not in (SOURCE, CLONES)
                allowed = author.kind == "clone" and folder in besides
                expect(at_home or allowed, f"{path} was changed by {author}")
