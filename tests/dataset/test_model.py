"""A dataset against a list of tables: whatever is done to it, by whichever library, in any order.

The model is one Arrow table per version. After every step both libraries read the newest
version; rules read old versions, rows and slices.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

POINT = pa.struct([("x", pa.int64()), ("name", pa.string())])
COLUMNS: dict[str, pa.DataType] = {
    "flag": pa.bool_(),
    "small": pa.int16(),
    "number": pa.float64(),
    "text": pa.string(),
    "tags": pa.list_(pa.string()),
    "point": POINT,
    "path": pa.list_(POINT),
    "vector": pa.list_(pa.float32(), 3),
}
SIZES = st.sampled_from([0, 1, 2, 7, 1023, 1024, 1025, 2500])
SEEDS = st.integers(0, 2**32 - 1)
LIBRARIES = st.sampled_from([glaive, lance])


def _value(kind: Any, rng: np.random.Generator) -> object:
    """A value of a type, or none."""
    number = int(rng.integers(0, 1000))
    if number % 7 == 0:
        return None
    if pa.types.is_struct(kind):
        return {member.name: _value(member.type, rng) for member in kind}
    if pa.types.is_fixed_size_list(kind):
        return [float(number + i) for i in range(kind.list_size)]
    if pa.types.is_list(kind):
        return [_value(kind.value_type, rng) for _ in range(number % 4)]
    if pa.types.is_string(kind):
        return f"text {number}"
    if pa.types.is_boolean(kind):
        return bool(number % 2)
    return float(number) if pa.types.is_floating(kind) else number


def _rows(names: list[str], count: int, first: int, seed: int) -> pa.Table:
    """Rows with the columns ``id``, never null and counted from ``first``, and ``names``."""
    rng = np.random.default_rng(seed)
    few = min(count, 50)
    made = {
        name: pa.array([_value(COLUMNS[name], rng) for _ in range(few)], COLUMNS[name]).take(
            pa.array(rng.integers(0, max(1, few), count))
        )
        for name in names
    }
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            *(pa.field(name, COLUMNS[name]) for name in names),
        ]
    )
    columns = [pa.array(np.arange(first, first + count)), *made.values()]
    return pa.Table.from_arrays(columns, schema=schema)


class DatasetMachine(RuleBasedStateMachine):
    """Versions of one dataset, as they are and as they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="model-"))
        self.place = str(self.folder / "t")
        self.versions: dict[int, pa.Table] = {}
        self.made = 0
        self.kept: Any = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def newest(self) -> pa.Table:
        return self.versions[max(self.versions)]

    def _new_rows(self, names: list[str], count: int, seed: int) -> pa.Table:
        self.made += count
        return _rows(names, count, self.made - count, seed)

    def _commit(self, expected: pa.Table) -> None:
        self.versions[max(self.versions, default=0) + 1] = expected

    # ------------------------------------------------------------------- writing

    @initialize(
        library=LIBRARIES,
        names=st.permutations(list(COLUMNS)),
        width=st.integers(0, len(COLUMNS)),
        count=SIZES,
        seed=SEEDS,
        options=st.fixed_dictionaries(
            {
                "enable_stable_row_ids": st.booleans(),
                "enable_v2_manifest_paths": st.booleans(),
                "data_storage_version": st.sampled_from(["2.1", "2.2"]),
                "max_rows_per_file": st.sampled_from([1, 700, 1024, 10_000]),
            }
        ),
    )
    def create(
        self,
        library: Any,
        names: list[str],
        width: int,
        count: int,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        if options["max_rows_per_file"] == 1:
            count = min(count, 7)
        rows = self._new_rows(names[:width], count, seed)
        library.write_dataset(rows, self.place, **options)
        self._commit(rows)

    @rule(library=LIBRARIES, count=SIZES, seed=SEEDS, data=st.data(), streamed=st.booleans())
    def append(self, library: Any, count: int, seed: int, data: Any, *, streamed: bool) -> None:
        known = [name for name in self.newest.schema.names if name != "id"]
        given = data.draw(st.lists(st.sampled_from(known), unique=True) if known else st.just([]))
        rows = self._new_rows(given, count, seed)
        schema = self.newest.schema
        whole = pa.Table.from_arrays(
            [
                rows.column(field.name)
                if field.name in rows.schema.names
                else pa.nulls(count, field.type)
                for field in schema
            ],
            schema=schema,
        )
        shuffled = rows.select(data.draw(st.permutations(rows.schema.names)))
        source = shuffled.to_reader(max_chunksize=500) if streamed else shuffled
        library.write_dataset(source, self.place, mode="append", max_rows_per_file=900)
        self._commit(pa.concat_tables([self.newest, whole]))

    @rule(
        library=LIBRARIES,
        names=st.permutations(list(COLUMNS)),
        width=st.integers(0, 4),
        count=SIZES,
        seed=SEEDS,
    )
    def overwrite(self, library: Any, names: list[str], width: int, count: int, seed: int) -> None:
        rows = self._new_rows(names[:width], count, seed)
        library.write_dataset(rows, self.place, mode="overwrite", max_rows_per_file=1000)
        self._commit(rows)

    @precondition(lambda self: self.newest.num_rows)
    @rule(share=st.integers(2, 9), rest=st.integers(0, 8))
    def delete(self, share: int, rest: int) -> None:
        ids = self.newest["id"].to_numpy()
        gone = ids % share == rest
        if gone.any():
            lance.dataset(self.place).delete(f"id % {share} = {rest}")
            self._commit(self.newest.filter(pa.array(~gone)))

    @precondition(lambda self: self.newest.num_rows)
    @rule()
    def compact(self) -> None:
        opened = lance.dataset(self.place)
        opened.optimize.compact_files(target_rows_per_fragment=2000)
        for version in range(max(self.versions) + 1, opened.latest_version + 1):
            self.versions[version] = self.newest

    # ------------------------------------------------------------------- reading

    @rule(data=st.data(), pickled=st.booleans())
    def check_out(self, data: Any, *, pickled: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        opened = glaive.dataset(self.place).checkout_version(version)
        if pickled:
            opened = pickle.loads(pickle.dumps(opened))
        assert opened.version == version
        assert opened.to_table().equals(self.versions[version])

    @rule()
    def keep(self) -> None:
        self.kept = glaive.dataset(self.place)

    @precondition(lambda self: self.kept is not None)
    @rule(latest=st.booleans())
    def use_kept(self, *, latest: bool) -> None:
        if latest:
            self.kept.checkout_latest()
            assert self.kept.version == max(self.versions)
        assert self.kept.to_table().equals(self.versions[self.kept.version])

    @rule(seed=SEEDS, count=st.sampled_from([0, 1, 2, 50, 3000]), data=st.data())
    def take(self, seed: int, count: int, data: Any) -> None:
        expected = self.newest
        if not expected.num_rows:
            count = 0
        rows = np.random.default_rng(seed).integers(0, max(1, expected.num_rows), count)
        names = data.draw(st.none() | st.lists(st.sampled_from(expected.schema.names), unique=True))
        found = glaive.dataset(self.place).take(rows.tolist(), columns=names)
        expected = expected.take(pa.array(rows))
        assert found.num_rows == count
        assert found.equals(expected if names is None else expected.select(names))

    @rule(
        limit=st.none() | st.integers(0, 3000),
        offset=st.integers(0, 3000),
        batch_size=st.sampled_from([1, 100, 1024, 5000]),
        strict=st.booleans(),
        data=st.data(),
    )
    def scan(
        self, limit: int | None, offset: int, batch_size: int, data: Any, *, strict: bool
    ) -> None:
        names = data.draw(
            st.none() | st.lists(st.sampled_from(self.newest.schema.names), unique=True)
        )
        options: dict[str, Any] = {"columns": names, "limit": limit, "offset": offset}
        expected = self.newest.slice(offset, limit)
        expected = expected if names is None else expected.select(names)
        opened = glaive.dataset(self.place)
        assert opened.to_table(**options).equals(expected)
        batches = list(
            opened.to_batches(**options, batch_size=batch_size, strict_batch_size=strict)
        )
        assert pa.Table.from_batches(batches, expected.schema).equals(expected)
        assert all(0 < batch.num_rows <= batch_size for batch in batches)
        if strict:
            assert all(batch.num_rows == batch_size for batch in batches[:-1])
        unordered = opened.to_table(**options, scan_in_order=False)
        assert unordered.num_rows == expected.num_rows

    @invariant()
    def both_libraries_read_the_newest_version(self) -> None:
        if not self.versions:
            return
        ours, theirs = glaive.dataset(self.place), lance.dataset(self.place)
        assert ours.version == theirs.version == max(self.versions)
        assert ours.count_rows() == len(ours) == self.newest.num_rows
        assert ours.schema.equals(self.newest.schema)
        found = ours.to_table(with_row_id=True, with_row_address=True)
        expected = theirs.to_table(with_row_id=True, with_row_address=True)
        assert found.equals(expected)
        assert found.drop_columns(["_rowid", "_rowaddr"]).equals(self.newest)

    @invariant()
    def the_history_is_complete(self) -> None:
        if self.versions:
            told = glaive.dataset(self.place).versions()
            assert {one["version"]: int(one["metadata"]["total_rows"]) for one in told} == {
                version: rows.num_rows for version, rows in self.versions.items()
            }


def test_a_dataset_is_a_list_of_tables() -> None:
    fast = os.environ.get("HYPOTHESIS_PROFILE", "fast") == "fast"
    run_state_machine_as_test(
        DatasetMachine,
        settings=settings(max_examples=12 if fast else 500, stateful_step_count=12, deadline=None),
    )
