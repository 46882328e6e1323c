"""A random walk over the operations of a dataset, executed by several libraries in turn.

After each step every library must read the rows of an in-memory model, and the same fragments,
schema, settings, tags and indices. With a ``reference``, that library applies the same operations
to a second dataset, which must end up with the same fragments, row ids and indices.

    class Walk(DatasetMachine):
        libraries = (glaive, lance)

    run_state_machine_as_test(Walk, settings=settings(max_examples=50))
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.kit.model import Model, Predicate, sorted_rows
from tests.kit.observe import (
    Expected,
    check_indices,
    check_library,
    coverage,
    expect,
    expect_equal,
    observed,
)
from tests.kit.strategies import merges, predicates
from tests.kit.walker import Walker

import glaive

__all__ = ["DatasetMachine"]

TURNS = st.integers(0, 5)
COUNTS = st.sampled_from([1, 2, 5, 17])
SEEDS = st.integers(0, 99)
MOST_PASSES = 10
"""Compactions until nothing is left to merge: some 30 fragments, of which each merges two."""

_INDICES = {
    "number": ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"),
    "text": ("BTREE", "BITMAP", "NGRAM", "INVERTED"),
    "words": ("LABEL_LIST",),
    "vector": ("IVF_FLAT",),
}
"""Index types by column."""


class DatasetMachine(Walker):
    """A random walk in which every operation is a rule."""

    # ------------------------------------------------------------------- rows

    @initialize(turn=TURNS, count=st.integers(3, 40), seed=SEEDS, per_file=st.sampled_from([4, 50]))
    def create(self, turn: int, count: int, seed: int, per_file: int) -> None:
        """Create the dataset."""
        rows = self.more_rows(count, seed)
        options = {"max_rows_per_file": per_file, **self.options}
        self.do(turn, lambda lib, at: lib.write_dataset(rows, at, **options), Model.of(rows))

    @rule(turn=TURNS, count=COUNTS, seed=SEEDS, data=st.data())
    def append(self, turn: int, count: int, seed: int, data: Any) -> None:
        """Append rows, sometimes without a column."""
        optional = [name for name in self.newest.names if name != "id"]
        omitted = data.draw(st.sets(st.sampled_from(optional), max_size=1)) if optional else set()
        names = tuple(name for name in self.newest.names if name not in omitted)
        if self.is_legacy:
            names = self.newest.names
        rows = self.more_rows(count, seed, names)
        self.do(
            turn,
            lambda lib, at: lib.write_dataset(rows, at, mode="append", max_rows_per_file=7),
            self.newest.append(rows),
        )

    @rule(turn=TURNS, count=COUNTS, seed=SEEDS)
    def overwrite(self, turn: int, count: int, seed: int) -> None:
        """Replace all rows."""
        ids = range(self.used, self.used + count)
        self.used += count
        rows = self.rows_of(ids, seed)
        self.do(turn, lambda lib, at: lib.write_dataset(rows, at, mode="overwrite"), Model.of(rows))

    @rule(turn=TURNS, data=st.data())
    def delete(self, turn: int, data: Any) -> None:
        """Delete the matching rows."""
        predicate: Predicate = data.draw(predicates(self.newest))
        remaining = self.newest.without(self.newest.matching(predicate))
        self.do(turn, lambda lib, at: lib.dataset(at).delete(predicate.text), remaining)

    @rule(turn=TURNS, data=st.data())
    def update(self, turn: int, data: Any) -> None:
        """Update the matching rows."""
        predicate: Predicate = data.draw(predicates(self.newest))
        matching = self.newest.matching(predicate)
        expected, values = self.newest, {}
        if "number" in expected.names:
            values["number"] = "number + 1"
            expected = expected.with_values(
                matching, "number", lambda row: _plus_one(row["number"])
            )
        else:
            values["id"] = "id"
        if "text" in expected.names and data.draw(st.booleans()):
            values["text"] = "'changed'"
            expected = expected.with_values(matching, "text", lambda _: "changed")
        self.do(turn, lambda lib, at: lib.dataset(at).update(values, predicate.text), expected)

    @rule(turn=TURNS, data=st.data(), count=COUNTS, seed=SEEDS)
    def merge_insert(self, turn: int, data: Any, count: int, seed: int) -> None:
        """Merge rows, some of them with existing ids.

        Those are in the order of the dataset, because libraries differ in whether updated rows
        have the order of the dataset or of the source.
        """
        merge = data.draw(merges())
        known = sorted(self.newest.rows)
        old = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=6)) if known else []
        scanned = glaive.dataset(self.uri).to_table(columns=["id"])["id"].to_pylist()
        old.sort(key=scanned.index)
        new: list[Any] = self.more_rows(count, seed)["id"].to_pylist() if seed % 3 else []
        rows = self.rows_of([*old, *new], seed, self.schema_of())
        if not rows.num_rows:
            return
        self.do(
            turn,
            lambda lib, at: merge.build(lib.dataset(at).merge_insert("id")).execute(rows),
            merge.expected(self.newest, rows),
        )

    @rule(turn=TURNS, size=st.sampled_from([3, 10, 1000]), threshold=st.sampled_from([0.0, 0.1]))
    def compact(self, turn: int, size: int, threshold: float) -> None:
        """Compact fragments; the rows stay the same and indices are remapped.

        A library may leave neighbours that another call merges: both go on until none is left.
        """
        options = {"target_rows_per_fragment": size, "materialize_deletions_threshold": threshold}

        def until_none_is_left(lib: Any, at: str) -> None:
            calls = (lib.dataset(at).optimize.compact_files(**options) for _ in range(MOST_PASSES))
            expect(any(not done.fragments_removed for done in calls), "compactions do not end")

        self.do(turn, until_none_is_left)

    # ---------------------------------------------------------------- columns

    def column_turn(self, turn: int, method: str) -> int:
        """Choose a library that has the method."""
        turns = [at for at, lib in enumerate(self.libraries) if hasattr(lib.LanceDataset, method)]
        return turns[turn % len(turns)]

    @precondition(lambda self: "number" in self.newest.names and len(self.newest.names) < 8)
    @rule(turn=TURNS, computed=st.booleans())
    def add_column(self, turn: int, *, computed: bool) -> None:
        """Add a column, computed or null."""
        self.used += 1
        name = f"c{self.used}"
        computed = computed or self.is_legacy
        turn = self.column_turn(turn, "add_columns")
        addition = {name: "number * 2"} if computed else pa.field(name, pa.int64())

        def value(row: dict[str, Any]) -> Any:
            return row["number"] * 2 if computed and row["number"] is not None else None

        expected = self.newest.with_values(self.newest.rows, name, value)
        names = (*self.newest.names, name)
        self.do(
            turn, lambda lib, at: lib.dataset(at).add_columns(addition), Model(names, expected.rows)
        )

    @precondition(lambda self: len(self.newest.names) > 3)
    @rule(turn=TURNS, data=st.data())
    def drop_column(self, turn: int, data: Any) -> None:
        """Drop a column."""
        name = data.draw(st.sampled_from([name for name in self.newest.names if name != "id"]))
        turn = self.column_turn(turn, "drop_columns")
        expected = self.newest.dropped(name)
        self.do(turn, lambda lib, at: lib.dataset(at).drop_columns([name]), expected)

    @precondition(lambda self: any(name.startswith("c") for name in self.newest.names))
    @rule(turn=TURNS)
    def rename_column(self, turn: int) -> None:
        """Rename a column."""
        self.used += 1
        old = next(name for name in self.newest.names if name.startswith("c"))
        new = f"c{self.used}"
        turn = self.column_turn(turn, "alter_columns")
        self.do(
            turn,
            lambda lib, at: lib.dataset(at).alter_columns({"path": old, "name": new}),
            self.newest.renamed(old, new),
        )

    # --------------------------------------------------------------- versions

    @rule(turn=TURNS, data=st.data())
    def restore(self, turn: int, data: Any) -> None:
        """Restore an old version."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.do(
            turn, lambda lib, at: lib.dataset(at, version=version).restore(), self.versions[version]
        )

    @rule(turn=TURNS, key=st.sampled_from("ab"), value=st.none() | st.sampled_from("xy"))
    def configure(self, turn: int, key: str, value: str | None) -> None:
        """Set or remove an entry of the configuration and the schema metadata."""
        if value is None and key not in glaive.dataset(self.uri).config():
            return
        if value is None:
            self.do(turn, lambda lib, at: lib.dataset(at).delete_config_keys([key]))
        else:
            self.do(turn, lambda lib, at: lib.dataset(at).update_config({key: value}))
            self.do(turn, lambda lib, at: lib.dataset(at).update_schema_metadata({key: value}))

    @rule(turn=TURNS, name=st.sampled_from(["one", "two"]), data=st.data())
    def tag(self, turn: int, name: str, data: Any) -> None:
        """Create, move or delete a tag."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        if name not in self.tags:
            self.do(turn, lambda lib, at: lib.dataset(at).tags.create(name, version))
            self.tags[name] = version
        elif data.draw(st.booleans()):
            self.do(turn, lambda lib, at: lib.dataset(at).tags.update(name, version))
            self.tags[name] = version
        else:
            self.do(turn, lambda lib, at: lib.dataset(at).tags.delete(name))
            del self.tags[name]

    @rule(turn=TURNS, count=COUNTS, seed=SEEDS, name=st.sampled_from(["dev", "team/x"]))
    def branch(self, turn: int, count: int, seed: int, name: str) -> None:
        """Create a branch or append to it; the main branch is unchanged.

        No branch starts at a version without files, because libraries differ in whether a
        clean-up removes that version.
        """
        if name not in self.branches and not self.newest.rows:
            return
        if name not in self.branches:
            self.do(turn, lambda lib, at: lib.dataset(at).create_branch(name))
            self.branches[name] = self.newest
        self.used += count
        on_branch = glaive.dataset(self.uri, version=(name, None))
        rows = self.rows_of(range(self.used - count, self.used), seed, on_branch.schema)

        def write(lib: Any, at: str) -> None:
            opened = lib.dataset(at).checkout_version((name, None))
            lib.write_dataset(rows, opened, mode="append")

        self.do(turn, write)
        self.branches[name] = self.branches[name].append(rows)

    @rule(turn=TURNS, deep=st.booleans())
    def clone(self, turn: int, *, deep: bool) -> None:
        """Clone the dataset; every library reads the clone."""
        library = self.libraries[turn % len(self.libraries)]
        copy = str(self.folder / "copy")
        opened = library.dataset(self.uri)
        clone = opened.deep_clone if deep else opened.shallow_clone
        clone(copy, opened.version)
        for library in self.libraries:
            expect_equal(sorted_rows(library.dataset(copy).to_table()), self.newest.sorted())
        shutil.rmtree(copy)

    @rule(turn=TURNS, retain=st.sampled_from([1, 3]))
    def clean_up(self, turn: int, retain: int) -> None:
        """Remove old versions except tagged ones and the newest ones."""
        options = {"retain_versions": retain, "error_if_tagged_old_versions": False}
        self.do(
            turn,
            lambda lib, at: lib.dataset(at).cleanup_old_versions(
                older_than=timedelta(0), **options
            ),
        )
        remaining = {version["version"] for version in glaive.dataset(self.uri).versions()}
        required = {max(self.versions), *self.tags.values()}
        expect(required <= remaining, f"versions {sorted(required - remaining)} were removed")
        self.versions = {version: self.versions[version] for version in remaining}

    @rule(turn=TURNS)
    def migrate_manifest_names(self, turn: int) -> None:
        """Rename manifests so that the newest comes first in a listing."""
        self.do(turn, lambda lib, at: lib.dataset(at).migrate_manifest_paths_v2())

    # ---------------------------------------------------------------- indices

    @precondition(lambda self: self.indexer is not None and self.newest.rows)
    @rule(
        choice=st.sampled_from([(name, kind) for name, kinds in _INDICES.items() for kind in kinds])
    )
    def create_index(self, choice: tuple[str, str]) -> None:
        """Create an index with the indexer."""
        column, kind = choice
        if column not in self.newest.names:
            return

        def build(_: Any, at: str) -> None:
            opened = self.indexer.dataset(at)  # type: ignore[union-attr]  # there is one here
            if column == "vector":
                opened.create_index(column, kind, num_partitions=1, replace=True)
            else:
                opened.create_scalar_index(column, kind, replace=True)

        self.do(0, build)

    @precondition(lambda self: self.indexer is not None)
    @rule()
    def extend_indices(self) -> None:
        """Add the new rows to the indices with the indexer."""

        def extend(_: Any, at: str) -> None:
            self.indexer.dataset(at).optimize.optimize_indices()  # type: ignore[union-attr]  # there is one here

        self.do(0, extend)

    # --------------------------------------------------------------- checking

    @rule(data=st.data())
    def read_an_old_version(self, data: Any) -> None:
        """Check that every library reads the rows of an old version."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        for library in self.libraries:
            opened = library.dataset(self.uri, version=version)
            expect_equal(sorted_rows(opened.to_table()), self.versions[version].sorted())

    @invariant()
    def states_are_equal(self) -> None:
        """Check the rows against the model, and that all libraries read the same state."""
        if not self.versions:
            return
        expected = Expected(self.newest, tuple(self.versions), self.tags, self.branches)
        states = [check_library(library, self.uri, expected) for library in self.libraries]
        for state in states[1:]:
            expect_equal(state.differences(states[0]), {})
        if self.reference is not None:
            reference = observed(glaive, self.reference_uri, self.branches)
            expect_equal(states[0].differences(reference), {})
            if self.indexer is not None:
                covered = coverage(self.indexer, self.uri)
                expect_equal(covered, coverage(self.indexer, self.reference_uri))

    @invariant()
    def searches_are_correct(self) -> None:
        """Check that searches with and without an index have the same result."""
        if self.indexer is None or not self.versions:
            return
        reference = None if self.reference is None else self.reference_uri
        check_indices(self.indexer, self.uri, reference)


def _plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1
