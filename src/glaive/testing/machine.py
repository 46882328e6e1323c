"""A random walk over the operations of a dataset, done in turns by several libraries.

After each step every library must read the rows of a plain model, and the same fragments,
schema, settings, tags and indices. With a ``reference``, a twin of the dataset is changed by
that library alone, and must have come to the same fragments, row ids and indices.

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
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)

import glaive
from glaive.testing.checks import (
    Expected,
    check_indices,
    check_library,
    expect,
    expect_equal,
)
from glaive.testing.model import Model, Predicate, sorted_rows
from glaive.testing.observe import coverage, observed
from glaive.testing.strategies import merges, predicates
from glaive.testing.walker import Walker

__all__ = ["DatasetMachine"]

TURNS = st.integers(0, 5)
COUNTS = st.sampled_from([1, 2, 5, 17])
SEEDS = st.integers(0, 99)

_INDICES = {
    "number": ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"),
    "text": ("BTREE", "BITMAP", "NGRAM", "INVERTED"),
    "words": ("LABEL_LIST",),
    "vector": ("IVF_FLAT",),
}
"""Kinds of indices, by the columns they are made for."""


class DatasetMachine(Walker):
    """One dataset, as it is and as it should be: every operation is a rule."""

    # ------------------------------------------------------------------- rows

    @initialize(turn=TURNS, count=st.integers(3, 40), seed=SEEDS, per_file=st.sampled_from([4, 50]))
    def create(self, turn: int, count: int, seed: int, per_file: int) -> None:
        """Make the dataset."""
        rows = self.more_rows(count, seed)
        options = {"max_rows_per_file": per_file, **self.options}
        self.do(turn, lambda lib, at: lib.write_dataset(rows, at, **options), Model.of(rows))

    @rule(turn=TURNS, count=COUNTS, seed=SEEDS, data=st.data())
    def append(self, turn: int, count: int, seed: int, data: Any) -> None:
        """Append rows, not always with all columns."""
        optional = [name for name in self.newest.names if name != "id"]
        left_out = data.draw(st.sets(st.sampled_from(optional), max_size=1)) if optional else set()
        names = tuple(name for name in self.newest.names if name not in left_out)
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
        """Start again with other rows."""
        ids = range(self.used, self.used + count)
        self.used += count
        rows = self.rows_of(ids, seed)
        self.do(turn, lambda lib, at: lib.write_dataset(rows, at, mode="overwrite"), Model.of(rows))

    @rule(turn=TURNS, data=st.data())
    def delete(self, turn: int, data: Any) -> None:
        """Delete the rows that pass."""
        predicate: Predicate = data.draw(predicates(self.newest))
        gone = self.newest.matching(predicate)
        self.do(
            turn,
            lambda lib, at: lib.dataset(at).delete(predicate.text),
            self.newest.without(gone),
        )

    @rule(turn=TURNS, data=st.data())
    def update(self, turn: int, data: Any) -> None:
        """Give the rows that pass other values."""
        predicate: Predicate = data.draw(predicates(self.newest))
        hit = self.newest.matching(predicate)
        expected, values = self.newest, {}
        if "number" in expected.names:
            values["number"] = "number + 1"
            expected = expected.with_values(hit, "number", lambda row: _more(row["number"]))
        else:
            values["id"] = "id"
        if "text" in expected.names and data.draw(st.booleans()):
            values["text"] = "'changed'"
            expected = expected.with_values(hit, "text", lambda _: "changed")
        self.do(turn, lambda lib, at: lib.dataset(at).update(values, predicate.text), expected)

    @rule(turn=TURNS, data=st.data(), count=COUNTS, seed=SEEDS)
    def merge_insert(self, turn: int, data: Any, count: int, seed: int) -> None:
        """Merge rows in, some of whose ids are there.

        Those come as they are ordered in the dataset: libraries do not agree on whether rows
        that move keep that order or have the one of the source.
        """
        merge = data.draw(merges())
        known = sorted(self.newest.rows)
        old = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=6)) if known else []
        scanned = glaive.dataset(self.place).to_table(columns=["id"])["id"].to_pylist()
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
        """Put fragments together; the rows stay, and indices know where they went."""
        options = {
            "target_rows_per_fragment": size,
            "materialize_deletions_threshold": threshold,
        }
        self.do(turn, lambda lib, at: lib.dataset(at).optimize.compact_files(**options))

    # ---------------------------------------------------------------- columns

    def column_turn(self, turn: int, method: str) -> int:
        """Give the turn to a library that has the method."""
        able = [at for at, lib in enumerate(self.libraries) if hasattr(lib.LanceDataset, method)]
        return able[turn % len(able)]

    @precondition(lambda self: "number" in self.newest.names and len(self.newest.names) < 8)
    @rule(turn=TURNS, computed=st.booleans())
    def add_column(self, turn: int, *, computed: bool) -> None:
        """Add a column, computed or null."""
        self.used += 1
        name = f"c{self.used}"
        computed = computed or self.is_legacy
        turn = self.column_turn(turn, "add_columns")
        what = {name: "number * 2"} if computed else pa.field(name, pa.int64())

        def value(row: dict[str, Any]) -> Any:
            return row["number"] * 2 if computed and row["number"] is not None else None

        expected = self.newest.with_values(self.newest.rows, name, value)
        names = (*self.newest.names, name)
        self.do(
            turn,
            lambda lib, at: lib.dataset(at).add_columns(what),
            Model(names, expected.rows),
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
        """Make an old version the newest one."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.do(
            turn,
            lambda lib, at: lib.dataset(at, version=version).restore(),
            self.versions[version],
        )

    @rule(turn=TURNS, key=st.sampled_from("ab"), value=st.none() | st.sampled_from("xy"))
    def configure(self, turn: int, key: str, value: str | None) -> None:
        """Set or remove an entry of the configuration, and one of the schema's metadata."""
        if value is None and key not in glaive.dataset(self.place).config():
            return
        if value is None:
            self.do(turn, lambda lib, at: lib.dataset(at).delete_config_keys([key]))
        else:
            self.do(turn, lambda lib, at: lib.dataset(at).update_config({key: value}))
            self.do(turn, lambda lib, at: lib.dataset(at).update_schema_metadata({key: value}))

    @rule(turn=TURNS, name=st.sampled_from(["one", "two"]), data=st.data())
    def tag(self, turn: int, name: str, data: Any) -> None:
        """Name a version, or give a name up."""
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
        """Begin a branch, or append to one; the main branch stays as it is.

        No branch begins with a version without files: libraries do not agree on whether that
        version outlives a clean-up.
        """
        if name not in self.branches and not self.newest.rows:
            return
        if name not in self.branches:
            self.do(turn, lambda lib, at: lib.dataset(at).create_branch(name))
            self.branches[name] = self.newest
        self.used += count
        on_branch = glaive.dataset(self.place, version=(name, None))
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
        opened = library.dataset(self.place)
        make = opened.deep_clone if deep else opened.shallow_clone
        make(copy, opened.version)
        for one in self.libraries:
            expect_equal(sorted_rows(one.dataset(copy).to_table()), self.newest.sorted())
        shutil.rmtree(copy)

    @rule(turn=TURNS, retain=st.sampled_from([1, 3]))
    def clean_up(self, turn: int, retain: int) -> None:
        """Remove old versions; those with names and the newest ones stay."""
        options = {"retain_versions": retain, "error_if_tagged_old_versions": False}
        self.do(
            turn,
            lambda lib, at: lib.dataset(at).cleanup_old_versions(
                older_than=timedelta(0), **options
            ),
        )
        left = {version["version"] for version in glaive.dataset(self.place).versions()}
        kept = {max(self.versions), *self.tags.values()}
        expect(kept <= left, f"versions {sorted(kept - left)} are gone")
        self.versions = {version: self.versions[version] for version in left}

    @rule(turn=TURNS)
    def name_manifests_anew(self, turn: int) -> None:
        """Let the newest manifest come first in a listing."""
        self.do(turn, lambda lib, at: lib.dataset(at).migrate_manifest_paths_v2())

    # ---------------------------------------------------------------- indices

    @precondition(lambda self: self.indexer is not None and self.newest.rows)
    @rule(
        kind=st.sampled_from([(name, kind) for name, kinds in _INDICES.items() for kind in kinds])
    )
    def create_index(self, kind: tuple[str, str]) -> None:
        """Let the indexer make an index."""
        column, kind_name = kind
        if column not in self.newest.names:
            return

        def build(_: Any, at: str) -> None:
            opened = self.indexer.dataset(at)  # type: ignore[union-attr]  # there is one here
            if column == "vector":
                opened.create_index(column, kind_name, num_partitions=1, replace=True)
            else:
                opened.create_scalar_index(column, kind_name, replace=True)

        self.do(0, build)

    @precondition(lambda self: self.indexer is not None)
    @rule()
    def take_up_rows(self) -> None:
        """Let the indexer take the new rows into its indices."""
        self.extend_indices()

    def extend_indices(self) -> None:
        """Let the indexer take the new rows into its indices."""

        def extend(_: Any, at: str) -> None:
            self.indexer.dataset(at).optimize.optimize_indices()  # type: ignore[union-attr]  # there is one here

        self.do(0, extend)

    # --------------------------------------------------------------- checking

    @rule(data=st.data())
    def read_an_old_version(self, data: Any) -> None:
        """Every library reads what an old version held."""
        version = data.draw(st.sampled_from(sorted(self.versions)))
        for library in self.libraries:
            opened = library.dataset(self.place, version=version)
            expect_equal(sorted_rows(opened.to_table()), self.versions[version].sorted())

    @invariant()
    def all_see_the_same(self) -> None:
        """Rows of the model; fragments, settings and indices alike."""
        if not self.versions:
            return
        expected = Expected(self.newest, tuple(self.versions), self.tags, self.branches)
        seen = [check_library(library, self.place, expected) for library in self.libraries]
        for one in seen[1:]:
            expect_equal(one.differences(seen[0]), {})
        if self.reference is not None:
            twin = observed(glaive, self.twin, self.branches)
            expect_equal(seen[0].differences(twin), {})
            if self.indexer is not None:
                found = coverage(self.indexer, self.place)
                expect_equal(found, coverage(self.indexer, self.twin))

    @invariant()
    def indices_find_what_is_there(self) -> None:
        """A search with an index finds what one without it finds.

        Or what it finds in the twin: an index that the indexer itself leaves stale is its own.
        """
        if self.indexer is None or not self.versions:
            return
        check_indices(self.indexer, self.place, None if self.reference is None else self.twin)


def _more(value: int | None) -> int | None:
    return None if value is None else value + 1
