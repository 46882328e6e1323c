"""Merges by key: both libraries leave the same rows, counts, ids and versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CommitContentionError,
    FilterError,
    GlaiveError,
    OptionError,
    SchemaError,
)
from glaive.table.load import read_transaction

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

TARGET = pa.table(
    {
        "id": [1, 2, 3, 4, None, 6],
        "v": ["a", "b", "c", "d", "e", None],
        "w": [10, 20, 30, 40, 50, 60],
        "s": [{"x": at, "l": [at] * at} for at in range(6)],
    }
)
SOURCE = pa.table(
    {
        "id": [3, 1, 7, None, 8],
        "v": ["C", None, "G", "N", "H"],
        "w": [1, 2, 3, 4, 5],
        "s": [{"x": 100 + at, "l": []} for at in range(5)],
    },
    schema=TARGET.schema,
)
SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

Clauses = Callable[[Any], Any]
MERGES: dict[str, Clauses] = {
    "upsert": lambda b: b.when_matched_update_all().when_not_matched_insert_all(),
    "update": lambda b: b.when_matched_update_all(),
    "insert": lambda b: b.when_not_matched_insert_all(),
    "delete": lambda b: b.when_matched_delete(),
    "replace": lambda b: (
        b.when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete()
    ),
    "prune": lambda b: b.when_not_matched_by_source_delete("w > 20 AND s.x < 5"),
    "older": lambda b: b.when_matched_update_all("source.w * 10 > target.w"),
    "named": lambda b: b.when_matched_update_all(
        "source.v = 'C' OR target.s.x = 0"
    ).when_not_matched_insert_all(),
    "swap": lambda b: b.when_matched_delete().when_not_matched_insert_all(),
    "all": lambda b: (
        b.when_matched_update_all("source.w > 1")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("v IS NOT NULL")
    ),
    "unless": lambda b: b.when_matched_fail().when_not_matched_insert_all(),
}


def run(library: Any, path: str, on: Any, clauses: Clauses, source: pa.Table) -> Any:
    """The counts, or that it was refused."""
    refused = (GlaiveError,) if library is glaive else (OSError, ValueError)
    try:
        return clauses(library.dataset(path).merge_insert(on)).execute(source)
    except refused:
        return "refused"


def everything(path: str, columns: list[str]) -> dict[str, Any]:
    found = []
    for library in (lance, glaive):
        dataset = library.dataset(path)
        rows = dataset.to_table(columns=columns).to_pylist()
        found.append({"rows": sorted(rows, key=str), "version": dataset.version})
    assert found[0] == found[1]
    return found[0]


def compare(
    folder: Path, target: pa.Table, source: pa.Table, on: Any, clauses: Clauses, **options: Any
) -> Any:
    """Merge with both; the counts, after everything was found equal."""
    results = []
    stable = options.get("enable_stable_row_ids")
    columns = [*target.schema.names, *(SYSTEM if stable else [])]
    for library in (glaive, lance):
        path = str(folder / library.__name__)
        shutil.rmtree(path, ignore_errors=True)
        lance.write_dataset(target, path, **options)
        counts = run(library, path, on, clauses, source)
        results.append((counts, everything(path, columns)))
    assert results[0] == results[1]
    return results[0][0]


@pytest.mark.sampled(every=15)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", MERGES)
def test_both_leave_the_same(tmp_path: Path, name: str, version: str, stable: bool) -> None:
    counts = compare(
        tmp_path,
        TARGET,
        SOURCE,
        "id",
        MERGES[name],
        data_storage_version=version,
        enable_stable_row_ids=stable,
        max_rows_per_file=2,
    )
    assert (counts == "refused") == (name == "unless")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", MERGES)
def test_columns_in_another_order_and_some_missing(tmp_path: Path, name: str) -> None:
    if name == "named":
        clauses: Clauses = lambda b: b.when_matched_update_all("source.w = 1")  # noqa: E731 # short
    else:
        clauses = MERGES[name]
    source = SOURCE.select(["w", "id"])
    compare(tmp_path, TARGET, source, "id", clauses, max_rows_per_file=4)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("on", [["id", "v"], ["v", "w"], "v", "w"])
def test_several_keys_and_texts(tmp_path: Path, on: Any) -> None:
    source = pa.concat_tables([SOURCE, TARGET.slice(1, 2), TARGET.slice(5, 1)])
    for name in ("update", "delete", "insert"):
        compare(tmp_path, TARGET, source, on, MERGES[name])


KEYS: dict[str, pa.Array] = {
    "int8": pa.array([1, -5, None, 127], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1, None, 2**63], pa.uint64()),
    "int64": pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()),
    "bool": pa.array([True, None], pa.bool_()),
    "double": pa.array([0.5, -1e300, None, float("inf")]),
    "date": pa.array([date(2020, 1, 1), None, date(1960, 5, 5)]),
    "timestamp": pa.array([1, None, -5], pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(10, 2)),
    "binary": pa.array([b"", None, b"\x00\xff"]),
    "large_string": pa.array(["", None, "ü"], pa.large_string()),
    "fixed": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(tmp_path: Path, kind: str) -> None:
    keys = KEYS[kind]
    target = pa.table({"k": keys, "n": pa.array(range(len(keys)))})
    some = keys.slice(1)
    source = pa.table({"k": some, "n": pa.array(range(100, 100 + len(some)))})
    for name in ("upsert", "delete"):
        compare(tmp_path, target, source, "k", MERGES[name])


NESTED: dict[str, pa.DataType] = {
    "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "list": pa.list_(pa.int32()),
    "large_list": pa.large_list(pa.string()),
    "fixed_size_list": pa.list_(pa.int64(), 2),
    "list_of_structs": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.bool_()))])),
    "struct_of_lists": pa.struct([("l", pa.list_(pa.struct([("a", pa.date32())])))]),
    "map": pa.map_(pa.string(), pa.int64()),
}
VALUES: dict[str, list[Any]] = {
    "struct": [{"a": 1, "b": "x"}, {"a": 1, "b": None}, None, {"a": None, "b": None}],
    "list": [[1, 2], [1], [], None, [None], [1, None], [2, 1]],
    "large_list": [["a", "b"], ["ab"], [], None, [""], [None]],
    "fixed_size_list": [[1, 2], [2, 1], None],
    "list_of_structs": [
        [{"a": 1, "b": [True]}],
        [{"a": 1, "b": None}],
        [{"a": 1, "b": []}],
        [None],
        [],
        None,
        [{"a": 1, "b": [True]}, {"a": 1, "b": [True]}],
    ],
    "struct_of_lists": [{"l": [{"a": date(2020, 1, 1)}]}, {"l": []}, {"l": None}, None],
    "map": [[("a", 1)], [("a", None)], [], [("a", 1), ("b", 2)], None],
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", NESTED)
def test_structs_and_lists_as_keys(tmp_path: Path, kind: str) -> None:
    """Nulls within them equal each other, those that are null as a whole do not."""
    keys = pa.array(VALUES[kind], NESTED[kind])
    target = pa.table({"k": keys, "n": pa.array(range(len(keys)))})
    some: Any = keys.slice(1)
    source = pa.table({"k": some, "n": pa.array(range(100, 100 + len(some)))})
    for name in ("upsert", "delete", "replace"):
        compare(tmp_path, target, source, "k", MERGES[name], data_storage_version="2.2")


@pytest.mark.parametrize("name", ["insert", "prune", "unless", "upsert"])
def test_keys_that_the_source_has_twice(tmp_path: Path, name: str) -> None:
    target = TARGET.slice(0, 3)
    source = SOURCE.take([0, 0, 2, 2, 3, 3, 1])
    compare(tmp_path, target, source, "id", MERGES[name])
    compare(tmp_path, target, source.slice(2), "id", MERGES[name])


@pytest.mark.parametrize("stable", [False, True])
def test_updated_rows_come_in_the_order_of_the_source(tmp_path: Path, stable: bool) -> None:
    glaive.write_dataset(TARGET, tmp_path / "d", enable_stable_row_ids=stable)
    dataset = glaive.dataset(tmp_path / "d")
    MERGES["upsert"](dataset.merge_insert("id")).execute(SOURCE)
    expected = [3, 1, 7, None, 8]
    assert dataset.to_table()["id"].to_pylist()[-5:] == expected
    dataset.merge_insert("id").when_matched_update_all().execute(SOURCE.slice(0, 2).drop(["w"]))
    assert dataset.to_table()["id"].to_pylist()[-2:] == [3, 1]


def test_floats_are_matched_by_their_bits(tmp_path: Path) -> None:
    zero, other = 0x8000000000000000, 0x7FF8000000000001
    bits = [0, 0x3FF0000000000000, 0x7FF8000000000000, 0xFFF8000000000000]
    target = pa.table({"k": np.array([*bits, other], np.uint64).view(float), "n": range(5)})
    source = pa.table({"k": np.array([zero, *bits[1:]], np.uint64).view(float), "n": range(4)})
    path = str(tmp_path / "floats")
    for library in (glaive, lance):
        shutil.rmtree(path, ignore_errors=True)
        lance.write_dataset(target, path)
        counts = MERGES["upsert"](library.dataset(path).merge_insert("k")).execute(source)
        assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (3, 1)


def test_conditions_on_places_of_rows(tmp_path: Path) -> None:
    for name in ("_rowid", "_rowaddr"):
        for stable in (False, True):

            def later(builder: Any, name: str = name) -> Any:
                return builder.when_matched_update_all(f"target.{name} >= 2 AND TARGET.w < 50")

            counts = compare(tmp_path, TARGET, SOURCE, "id", later, enable_stable_row_ids=stable)
            assert counts["num_updated_rows"] == 1


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_rows(tmp_path: Path, data: st.DataObject) -> None:
    keys = st.one_of(st.none(), st.integers(0, 12))
    rows = st.lists(st.tuples(keys, keys, st.integers(0, 100)), max_size=30)
    unique = st.lists(
        st.tuples(keys, keys, st.integers(0, 100)), max_size=15, unique_by=lambda row: row[:2]
    )
    kind = pa.schema({"a": pa.int32(), "b": pa.int64(), "n": pa.int64()})

    def table(found: list[tuple[Any, ...]]) -> pa.Table:
        columns = [[row[at] for row in found] for at in range(3)]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, kind, strict=True)]
        return pa.Table.from_arrays(arrays, schema=kind)

    name = data.draw(st.sampled_from(["upsert", "update", "insert", "delete", "replace", "swap"]))
    target, source = table(data.draw(rows)), table(data.draw(unique))
    compare(tmp_path, target, source, ["a", "b"], MERGES[name], max_rows_per_file=7)


KEY_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [0, -1, 1, 2**40, -(2**63), 2**63 - 1, 77]),
    "date": (pa.date32(), [date(1970, 1, 1), date(1969, 12, 31), date(2020, 2, 2)]),
    "double": (pa.float64(), [0.0, 1.5, -1.5, float("inf"), 1e-300]),
    "string": (pa.string(), ["", "a", "ab", "b", "ü" * 20, "a" * 9]),
    "fixed": (pa.binary(3), [b"abc", b"abd", b"\0\0\0"]),
    "struct": (NESTED["struct"], VALUES["struct"]),
}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_keys_of_several_types(tmp_path: Path, data: st.DataObject) -> None:
    """Both leave what a plain model leaves: keys with nulls match nothing, equal ones match."""
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=2))
    kinds = [KEY_VALUES[name] for name in names]
    one = st.tuples(*(st.none() | st.sampled_from(values) for _, values in kinds))
    on = [f"k{at}" for at in range(len(kinds))]

    def table(keys: list[tuple[Any, ...]], first: int) -> pa.Table:
        columns = {
            name: pa.array([key[at] for key in keys], kind)
            for at, (name, (kind, _)) in enumerate(zip(on, kinds, strict=True))
        }
        return pa.table({**columns, "n": pa.array(range(first, first + len(keys)), pa.int64())})

    target = data.draw(st.lists(one, min_size=1, max_size=30))
    source = data.draw(st.lists(one, max_size=12, unique_by=repr))
    matched = [key for key in target if None not in key and key in source]
    fresh = [key for key in source if None in key or key not in target]
    name = data.draw(st.sampled_from(["upsert", "delete", "replace", "swap", "insert"]))
    counts = compare(
        tmp_path, table(target, 0), table(source, 100), on, MERGES[name], max_rows_per_file=7
    )
    if name == "upsert":
        assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (
            len(matched),
            len(fresh),
        )
    if name == "insert":
        assert counts["num_inserted_rows"] == len(fresh)


class TestColumnsInPlace:
    CLAUSES: Clauses = staticmethod(  # type: ignore[assignment]  # a function, not a method
        lambda b: b.when_matched_update_all().write_mode("rewrite_columns")
    )

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("stable", [False, True])
    @pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
    def test_matched_rows_stay_where_they_are(
        self, tmp_path: Path, version: str, stable: bool
    ) -> None:
        source = SOURCE.select(["id", "w", "s"])
        options: Any = {
            "data_storage_version": version,
            "enable_stable_row_ids": stable,
            "max_rows_per_file": 2,
        }
        counts = compare(tmp_path, TARGET, source, "id", self.CLAUSES, **options)
        assert counts["num_updated_rows"] == 2
        told = []
        for name in ("glaive", "lance"):
            dataset = glaive.dataset(tmp_path / name)
            operation = dataset.read_transaction(dataset.version).operation
            fields = [[tuple(f.fields) for f in one.files] for one in dataset.manifest.fragments()]
            told.append((operation.update_mode, sorted(operation.fields_modified), fields))
            assert [one.num_deletions for one in dataset.get_fragments()] == [0, 0, 0]
        assert told[0] == told[1]

    @pytest.mark.parametrize(
        ("clauses", "source"),
        [
            (MERGES["upsert"], SOURCE.select(["id", "w"])),
            (MERGES["update"], SOURCE),
            (MERGES["update"], SOURCE.select(["id"])),
            (MERGES["delete"], SOURCE.select(["id", "w"])),
        ],
    )
    def test_what_cannot_be_done_so_is_refused(
        self, tmp_path: Path, clauses: Clauses, source: pa.Table
    ) -> None:
        def in_place(builder: Any) -> Any:
            return clauses(builder).write_mode("rewrite_columns")

        assert compare(tmp_path, TARGET, source, "id", in_place) == "refused"


class TestErrors:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        glaive.write_dataset(TARGET, tmp_path / "d")
        return str(tmp_path / "d")

    @pytest.mark.parametrize(
        ("clauses", "source", "error"),
        [
            (lambda b: b, SOURCE, OptionError),
            (MERGES["upsert"], SOURCE.append_column("z", SOURCE["w"]), SchemaError),
            (MERGES["upsert"], SOURCE.drop_columns(["id"]), ColumnNotFoundError),
            (MERGES["upsert"], pa.concat_tables([SOURCE, SOURCE]), SchemaError),
            (MERGES["delete"], pa.concat_tables([SOURCE, SOURCE]), SchemaError),
            (MERGES["unless"], SOURCE, SchemaError),
            (lambda b: b.when_matched_update_all("source.z = 1"), SOURCE, FilterError),
            (lambda b: b.when_not_matched_by_source_delete("z = 1"), SOURCE, FilterError),
        ],
    )
    def test_nothing_is_changed(
        self, path: str, clauses: Clauses, source: pa.Table, error: Any
    ) -> None:
        files = sorted(Path(path).rglob("*"))
        with pytest.raises(error):
            clauses(glaive.dataset(path).merge_insert("id")).execute(source)
        assert glaive.dataset(path).version == 1
        assert sorted(Path(path).rglob("*")) == files

    def test_a_type_that_differs_is_refused(self, path: str) -> None:
        source = SOURCE.set_column(0, "id", SOURCE["id"].cast(pa.int32()))
        with pytest.raises(SchemaError, match="'id' should be int64, found int32"):
            MERGES["upsert"](glaive.dataset(path).merge_insert("id")).execute(source)

    def test_keys_are_named_or_declared(self, path: str) -> None:
        dataset = glaive.dataset(path)
        for on in (None, []):
            with pytest.raises(OptionError, match="declares no primary key"):
                dataset.merge_insert(on)
        with pytest.raises(ColumnNotFoundError, match="Column nothing does not exist"):
            dataset.merge_insert("nothing")
        with pytest.raises(OptionError, match="twice"):
            dataset.merge_insert(["id", "ID"])

    def test_rows_that_may_not_be_null_are_not_inserted_without(self, tmp_path: Path) -> None:
        kind = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
        path = tmp_path / "strict"
        glaive.write_dataset(pa.table({"id": [1], "n": [1]}, schema=kind), path)
        with pytest.raises(SchemaError, match="lacks non-nullable columns: n"):
            MERGES["insert"](glaive.dataset(path).merge_insert("id")).execute({"id": [5]})


KEYED = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("n", pa.int64()),
    ]
)


class TestTogether:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        data = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}, schema=KEYED)
        lance.write_dataset(data, str(tmp_path / "d"))
        return str(tmp_path / "d")

    def rows(self, ids: list[int]) -> pa.Table:
        return pa.table({"id": ids, "n": [100 + one for one in ids]}, schema=KEYED)

    @pytest.mark.parametrize("first", [glaive, lance], ids=["after-glaive", "after-pylance"])
    def test_a_key_is_inserted_once(self, path: str, first: Any) -> None:
        late = MERGES["upsert"](glaive.dataset(path).merge_insert())
        MERGES["upsert"](first.dataset(path).merge_insert("id")).execute(self.rows([5, 6]))
        counts = late.execute(self.rows([6, 7]))
        assert (counts["num_inserted_rows"], counts["num_updated_rows"]) == (1, 1)
        found = lance.dataset(path).to_table().column("id").to_pylist()
        assert sorted(found) == [1, 2, 3, 5, 6, 7]

    def test_pylance_notices_keys_that_glaive_inserted(self, path: str) -> None:
        late = MERGES["upsert"](lance.dataset(path).merge_insert("id"))
        MERGES["upsert"](glaive.dataset(path).merge_insert("id")).execute(self.rows([5, 6]))
        late.execute(self.rows([6, 7]))
        found = glaive.dataset(path).to_table().column("id").to_pylist()
        assert sorted(found) == [1, 2, 3, 5, 6, 7]

    def test_without_retries_the_other_writer_is_named(self, path: str) -> None:
        late = MERGES["upsert"](glaive.dataset(path).merge_insert()).conflict_retries(0)
        MERGES["upsert"](lance.dataset(path).merge_insert("id")).execute(self.rows([5]))
        with pytest.raises(CommitContentionError, match="version 2"):
            late.retry_timeout(timedelta(seconds=1)).execute(self.rows([5]))

    def test_a_transaction_without_a_commit(self, path: str) -> None:
        builder = MERGES["upsert"](glaive.dataset(path).merge_insert())
        transaction, counts = builder.execute_uncommitted(self.rows([3, 4]))
        assert counts == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
        assert lance.dataset(path).version == 1
        glaive.LanceDataset.commit(path, transaction)
        assert sorted(lance.dataset(path).to_table()["n"].to_pylist()) == [1, 2, 103, 104]


def keyed(columns: dict[str, pa.Array]) -> pa.Table:
    """A table whose columns are its primary key, with one more that is not."""
    declared = {"lance-schema:unenforced-primary-key": "true"}
    fields = [
        pa.field(name, one.type, nullable=False, metadata=declared) for name, one in columns.items()
    ]
    rows = len(next(iter(columns.values())))
    arrays = [*columns.values(), pa.array(range(rows), pa.int64())]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*fields, pa.field("n", pa.int64())]))


HASHED = {
    "int32": {"k": pa.array([1, -2, 3, 4], pa.int32())},
    "uint32": {"k": pa.array([1, 2**32 - 1, 3, 4], pa.uint32())},
    "uint64": {"k": pa.array([1, 2**64 - 1, 3, 4], pa.uint64())},
    "text": {"k": pa.array(["a", "", "ü" * 30, "c" * 100])},
    "large_text": {"k": pa.array(["a", "", "ü" * 30, "d" * 5], pa.large_string())},
    "binary": {"k": pa.array([b"a", b"\xff\0", b"c" * 32, b""])},
    "large_binary": {"k": pa.array([b"a", b"\xff\0", b"c", b""], pa.large_binary())},
    "several": {
        "k": pa.array([1, 2, 2, 3]),
        "l": pa.array(["x", "y", "z", ""]),
        "m": pa.array([7, 8, 9, 10], pa.uint32()),
    },
}


@pytest.mark.spec("update-3")
class TestFiltersOfInsertedKeys:
    @pytest.mark.parametrize("kind", HASHED)
    def test_are_those_of_pylance(self, tmp_path: Path, kind: str) -> None:
        rows = keyed(HASHED[kind])
        filters = []
        for library in (lance, glaive):
            path = tmp_path / library.__name__
            lance.write_dataset(rows.slice(0, 1), path)
            merge = library.dataset(str(path)).merge_insert(list(HASHED[kind]))
            MERGES["upsert"](merge).execute(rows)
            opened = glaive.dataset(path)
            transaction = read_transaction(opened.store, opened.manifest)
            assert transaction is not None
            filters.append(transaction.operation.to_wire().inserted_rows)
        assert filters[0] == filters[1]
        assert any(filters[0].bloom.bitmap)

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("first", [glaive, lance], ids=["after-glaive", "after-pylance"])
    @pytest.mark.parametrize("second", [glaive, lance], ids=["glaive", "pylance"])
    @pytest.mark.parametrize("kind", ["text", "binary", "several"])
    def test_keep_keys_from_being_inserted_twice(
        self, tmp_path: Path, kind: str, first: Any, second: Any
    ) -> None:
        rows, on, path = keyed(HASHED[kind]), list(HASHED[kind]), str(tmp_path / "d")
        lance.write_dataset(rows.slice(0, 1), path)
        late = MERGES["upsert"](second.dataset(path).merge_insert(on))
        MERGES["upsert"](first.dataset(path).merge_insert(on)).execute(rows.slice(1, 2))
        counts = late.execute(rows.slice(2, 2))
        assert (counts["num_inserted_rows"], counts["num_updated_rows"]) == (1, 1)
        assert glaive.dataset(path).count_rows() == 4

    @pytest.mark.spec("update-4")
    def test_keys_of_other_types_conflict_with_all_inserts(self, tmp_path: Path) -> None:
        rows = keyed({"k": pa.array([1, 2, 3, 4], pa.date32())})
        path = str(tmp_path / "d")
        lance.write_dataset(rows.slice(0, 1), path)
        late = MERGES["upsert"](lance.dataset(path).merge_insert("k"))
        MERGES["upsert"](glaive.dataset(path).merge_insert("k")).execute(rows.slice(1, 2))
        assert late.execute(rows.slice(2, 2))["num_updated_rows"] == 1
        late = MERGES["upsert"](glaive.dataset(path).merge_insert("k"))
        MERGES["upsert"](lance.dataset(path).merge_insert("k")).execute(rows)
        assert late.execute(rows)["num_updated_rows"] == 4
        assert glaive.dataset(path).count_rows() == 4


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_members_of_structs_that_the_source_lacks_keep_their_values(
    tmp_path: Path, version: str
) -> None:
    whole = pa.table(
        {"k": [1, 2, 3, 4], "s": [{"a": 1, "n": {"b": 2, "c": 3}}, None, {"a": 4, "n": None}, None]}
    )
    given = pa.struct([("n", pa.struct([("c", pa.int64())]))])
    source = pa.table(
        {
            "k": [1, 2, 3, 4, 5],
            "s": pa.array([{"n": {"c": 9}}, {"n": None}, None, None, {"n": {"c": 1}}], given),
        }
    )
    rows = []
    for library in (lance, glaive):
        place = tmp_path / library.__name__
        lance.write_dataset(whole, place, data_storage_version=version)
        upsert = library.dataset(place).merge_insert("k")
        upsert.when_matched_update_all().when_not_matched_insert_all().execute(source)
        rows.append(lance.dataset(place).to_table().sort_by("k").to_pylist())
    assert rows[0] == rows[1]
    assert rows[1][0]["s"] == {"a": 1, "n": {"b": 2, "c": 9}}


def test_members_of_structs_in_lists_are_not_lost(tmp_path: Path) -> None:
    whole = pa.table({"k": [1, 2, 3], "s": [[{"a": 1, "b": 2}], [{"a": 3, "b": 4}] * 2, None]})
    given = pa.list_(pa.struct([("a", pa.int64())]))
    source = pa.table(
        {"k": [1, 2, 3, 7], "s": pa.array([[{"a": 5}], [None, {"a": 6}], None, [{"a": 8}]], given)}
    )
    rows = []
    for library in (lance, glaive):
        place = tmp_path / library.__name__
        lance.write_dataset(whole, place)
        MERGES["upsert"](library.dataset(place).merge_insert("k")).execute(source)
        rows.append(lance.dataset(place).to_table().sort_by("k").column("s").to_pylist())
    assert rows[0] == rows[1]
    assert rows[1][1:] == [[{"a": None, "b": 4}, {"a": 6, "b": 4}], None, [{"a": 8, "b": None}]]
    update = glaive.dataset(place).merge_insert("k").when_matched_update_all()
    with pytest.raises(SchemaError, match=r"found . and . items"):
        update.execute(pa.table({"k": [2], "s": pa.array([[{"a": 5}]], given)}))


def test_new_files_go_to_base_paths(tmp_path: Path) -> None:
    places: Any = []
    for library in (lance, glaive):
        folder = tmp_path / library.__name__
        bases = [glaive.DatasetBasePath(str(folder / one), one) for one in ("b1", "b2")]
        uri = str(folder / "d")
        glaive.write_dataset({"k": [1]}, uri, initial_bases=bases)
        found = []
        ways: list[Clauses] = [
            lambda b, uri=uri: b.target_bases([uri, "b1"]),  # type: ignore[misc]  # bound early
            lambda b: b.target_bases(["b2"]),
            lambda b: b.target_all_bases(),
            lambda b: b.target_all_bases(include_primary=False),
        ]
        for number, way in enumerate(ways):
            builder = library.dataset(uri).merge_insert("k").when_not_matched_insert_all()
            way(builder).execute(pa.table({"k": [10 + number]}))
            last = glaive.dataset(uri).get_fragments()[-1].metadata
            found.append([file.base_id for file in last.files])
        assert sorted(lance.dataset(uri).to_table()["k"].to_pylist()) == [1, 10, 11, 12, 13]
        places.append(found)
    assert places[0] == places[1] == [[None], [2], [None], [1]]
    merge = glaive.dataset(uri).merge_insert("k").when_not_matched_insert_all()
    with pytest.raises(OptionError, match="no base path 'b9'"):
        merge.target_bases(["b9"]).execute(pa.table({"k": [99]}))
