"""Adding, dropping and altering columns: both libraries leave the same rows, schemas and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    FilterError,
    GlaiveError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ROWS = 10
DATA = pa.table(
    {
        "a": range(ROWS),
        "t": [None if at % 3 == 0 else f"t{at}" for at in range(ROWS)],
        "s": [{"x": at, "y": [at] * (at % 3)} for at in range(ROWS)],
        "l": [[at, at + 1] for at in range(ROWS)],
    }
)
LIVE = 7
SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
VERSIONS = pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
KINDS = pytest.mark.parametrize(
    ("version", "stable"),
    [("legacy", False), ("2.0", True), ("2.1", False), ("2.2", True), ("2.2", False)],
)
"""Datasets for changes that do not look at row ids."""


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Make the same dataset twice, some rows deleted: one for each library to change."""

    def make(**options: Any) -> tuple[str, str]:
        one, other = str(tmp_path / "one"), str(tmp_path / "other")
        for path in (one, other):
            shutil.rmtree(path, ignore_errors=True)
        options.setdefault("max_rows_per_file", 4)
        lance.write_dataset(DATA, one, **options)
        lance.dataset(one).delete("a % 4 = 1")
        shutil.copytree(one, other)
        return one, other

    return make


def everything(path: str, stable: bool = False) -> dict[str, Any]:
    """What both libraries read of a dataset; they must agree."""
    found = []
    for library in (lance, glaive):
        dataset = library.dataset(path)
        columns = [*dataset.schema.names, *(SYSTEM if stable else ["_rowid"])]
        found.append(
            {
                "rows": dataset.to_table(columns=columns).to_pydict(),
                "schema": dataset.schema,
                "version": dataset.version,
                "count": dataset.count_rows(),
            }
        )
        dataset.validate()
    assert found[0] == found[1]
    return found[0]


def traces(path: str) -> dict[str, Any]:
    """Field ids, files and the transaction of the newest version."""
    dataset = glaive.dataset(path)
    told = dataset.read_transaction(dataset.version).operation
    return {
        "fields": [(f.id, f.name, f.logical_type, f.nullable) for f in dataset.lance_schema.walk()],
        "files": [
            [(f.fields, f.column_indices) for f in one.files]
            for one in dataset.manifest.fragments()
        ],
        "changed": [one.updated_at for one in dataset.manifest.fragments()],
        "transaction": (type(told).__name__, told.preserves_nullability),
        "schema": [f.id for f in told.schema.walk()],
        "listed": [len(one.files) for one in getattr(told, "fragments", ())],
    }


def files(path: str) -> list[str]:
    return sorted(str(one) for one in Path(path).rglob("*"))


def live_rows(*names: str) -> pa.Table:
    return pa.table({name: range(LIVE) for name in names})


Change = Callable[[Any, Any], object]
DOUBLE = pa.schema({"u": pa.int64()})


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"u": pc.multiply(batch["a"], 2)})


ADDED: dict[str, Change] = {
    "expressions": lambda d, _: d.add_columns({"b": "a * 2", "n": "t", "z": "s.x + 1"}),
    "constants": lambda d, _: d.add_columns(
        {"k": "1", "j": "a IS NULL", "i": "coalesce(a, 1)", "o": "nvl(t, t)"}
    ),
    "another case": lambda d, _: d.add_columns({"A": "a + 1"}),
    "rows": lambda d, _: d.add_columns(live_rows("r", "q")),
    "reader": lambda d, _: d.add_columns(live_rows("r").to_reader(3)),
    "generator": lambda d, _: d.add_columns(
        iter(live_rows("r").to_batches(2)), reader_schema=live_rows("r").schema
    ),
    "udf": lambda d, library: d.add_columns(library.batch_udf(DOUBLE)(doubled)),
    "udf in parts": lambda d, library: d.add_columns(
        library.batch_udf(DOUBLE)(doubled), read_columns=["a"], batch_size=2
    ),
    "function": lambda d, _: d.add_columns(lambda b: pa.record_batch({"u": b["a"]})),
    "function of ids": lambda d, _: d.add_columns(
        lambda b: pa.record_batch({"u": b["_rowid"], "v": b["_rowaddr"], "w": b["a"]}),
        read_columns=["_rowid", "a", "_rowaddr"],
    ),
    "function of members": lambda d, library: d.add_columns(
        library.batch_udf(DOUBLE)(lambda b: pa.record_batch({"u": pc.struct_field(b["s"], "x")})),
        read_columns=["s.x"],
    ),
    "function of frames": lambda d, _: d.add_columns(
        lambda b: b.to_pandas().assign(u=1)[["u"]], read_columns=["a"]
    ),
    "texts and structs": lambda d, _: d.add_columns(
        pa.table({"w": [str(at) for at in range(LIVE)], "q": [{"i": at} for at in range(LIVE)]})
        if d.data_storage_version != "0.1"
        else live_rows("w")
    ),
}


class TestAdd:
    @pytest.mark.sampled(every=21)
    @STABLE
    @VERSIONS
    @pytest.mark.parametrize("name", ADDED)
    def test_both_leave_the_same(self, pair: Any, name: str, version: str, stable: bool) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        ADDED[name](glaive.dataset(one), glaive)
        ADDED[name](lance.dataset(other), lance)
        assert everything(one, stable) == everything(other, stable)
        assert traces(one) == traces(other)

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
    @pytest.mark.parametrize(
        "columns",
        [
            pa.field("q", pa.struct({"i": pa.int64()})),
            [pa.field("q", pa.int64()), pa.field("r", pa.list_(pa.string()), metadata={"k": "v"})],
            pa.schema([pa.field("q", pa.struct([pa.field("i", pa.int64(), nullable=False)]))]),
        ],
        ids=["field", "fields", "schema"],
    )
    def test_columns_without_values_write_no_files(
        self, pair: Any, version: str, columns: Any
    ) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=True)
        before = files(f"{one}/data")
        glaive.dataset(one).add_columns(columns)
        lance.dataset(other).add_columns(columns)
        assert everything(one, True) == everything(other, True)
        assert traces(one) == traces(other)
        assert files(f"{one}/data") == before

    @pytest.mark.parametrize(
        "columns",
        [pa.table({"s": [{"z": at} for at in range(LIVE)]}), pa.field("s", pa.struct({"z": "i4"}))],
        ids=["rows", "field"],
    )
    def test_structs_grow_from_2_2_on(self, pair: Any, columns: Any) -> None:
        one, other = pair(data_storage_version="2.2")
        glaive.dataset(one).add_columns(columns)
        lance.dataset(other).add_columns(columns)
        assert everything(one) == everything(other)
        assert traces(one) == traces(other)
        path, _ = pair(data_storage_version="2.1")
        with pytest.raises(UnsupportedFeatureError, match=r"'s'.*2\.2 and later"):
            glaive.dataset(path).add_columns(columns)

    @pytest.mark.spec("frag-8")
    @pytest.mark.parametrize("name", ["m", "a"])
    @pytest.mark.parametrize("writer", ["glaive", "pylance"])
    def test_a_struct_in_several_files_is_null_where_it_is_in_all(
        self, tmp_path: Path, writer: str, name: str
    ) -> None:
        path = str(tmp_path / "d")
        old = [{"d": {"x": 1}}, None, {"d": None}, None, {"d": {"x": 2}}]
        new = [None, {name: 20, "d": {"y": 5}}, None, None, {name: 50, "d": None}]
        kind = pa.struct({name: pa.int64(), "d": pa.struct({"y": pa.int64()})})
        before = pa.table({"s": pa.array(old, pa.struct({"d": pa.struct({"x": pa.int64()})}))})
        library = glaive if writer == "glaive" else lance
        dataset = library.write_dataset(before, path, data_storage_version="2.2")
        added = pa.table({"s": pa.array(new, kind)})
        dataset.add_columns(added if writer == "glaive" else added.to_reader())
        rows = [
            {"d": {"x": 1, "y": None}, name: None},
            {"d": {"x": None, "y": 5}, name: 20},
            {"d": None, name: None},
            None,
            {"d": {"x": 2, "y": None}, name: 50},
        ]
        read = glaive.dataset(path)
        table = read.to_table()
        table.validate(full=True)
        assert table["s"].to_pylist() == rows == lance.dataset(path).to_table()["s"].to_pylist()
        assert read.take([4, 1, 3])["s"].to_pylist() == [rows[4], rows[1], None]
        assert read.count_rows("s IS NULL") == 1
        assert read.count_rows(f"s.{name} = 20 AND s.d IS NOT NULL") == 1
        glaive.write_dataset(table.slice(0, 1), path, mode="append")
        read = glaive.dataset(path)
        read.optimize.compact_files()
        assert len(read.get_fragments()) == 1
        assert read.to_table()["s"].to_pylist() == [*rows, rows[0]]

    def test_a_column_that_is_never_null(self, pair: Any) -> None:
        one, other = pair()
        schema = pa.schema([pa.field("r", pa.int64(), nullable=False)])
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).add_columns(live_rows("r").cast(schema))
        assert everything(one) == everything(other)
        assert traces(one) == traces(other)

    def test_ids_go_on_where_pylance_goes_on(self, pair: Any) -> None:
        one, other = pair()
        for library, path in ((glaive, one), (lance, other)):
            dataset = library.dataset(path)
            dataset.add_columns({"p": "a", "q": "a"})
            dataset.drop_columns(["q"])
            dataset.add_columns({"r": "a"})
            dataset.drop_columns(["p", "r"])
            dataset.add_columns(pa.field("v", pa.int8()))
            dataset.drop_columns(["v"])
            dataset.add_columns({"w": "t"})
        assert everything(one) == everything(other)
        assert traces(one) == traces(other)

    def test_deleted_rows_are_not_computed(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        glaive.write_dataset({"a": [0, 2, 0, 4, 0, 0]}, path)
        dataset = glaive.dataset(path)
        dataset.delete("a = 0")
        dataset.add_columns({"b": "100 / a"})
        assert lance.dataset(path).to_table().to_pydict() == {"a": [2, 4], "b": [50, 25]}

    def test_names_that_need_quotes(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        rows = [{"x.y": at, "z z": -at} for at in range(3)]
        lance.write_dataset(pa.table({"Order Date": [1, 2, 3], "s": rows}), path)
        dataset = glaive.dataset(path)
        dataset.delete("`Order Date` = 2")
        dataset.add_columns({"b": "`Order Date` + s.`x.y`", "c": "s.`z z`"})
        dataset.alter_columns({"path": "s.`x.y`", "data_type": pa.int8(), "nullable": True})
        dataset.merge(pa.table({"k": [3], "w": ["x"]}), "Order Date", "k")
        dataset.drop_columns(["s.`z z`"])
        found = lance.dataset(path).to_table()
        assert found == dataset.to_table()
        assert found.drop_columns(["s"]).to_pydict() == {
            "Order Date": [1, 3],
            "b": [1, 5],
            "c": [0, -2],
            "w": [None, "x"],
        }

    def test_blob_columns_stay_what_they_are(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        schema = pa.schema([pa.field("a", pa.int64()), lance.blob_field("b")])
        large = b"x" * 200_000
        data = pa.table([[1, 2, 3], lance.blob_array([large, b"s", None])], schema=schema)
        lance.write_dataset(data, path, data_storage_version="2.2", max_rows_per_file=2)
        dataset = glaive.dataset(path)

        def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch({"n": pc.binary_length(batch["b"])})

        dataset.add_columns(sizes, read_columns=["b"])
        more = pa.schema([glaive.blob_field("more")])
        dataset.add_columns(pa.table([glaive.blob_array([b"1", large, None])], schema=more))
        assert dataset.to_table(columns=["n"])["n"].to_pylist() == [200_000, 1, None]
        for column, wanted in (("b", [large, b"s", None]), ("more", [b"1", large, None])):
            for library in (glaive, lance):
                blobs = library.dataset(path).take_blobs(column, indices=[0, 1, 2])
                assert [blob and blob.read() for blob in blobs] == wanted

    def test_an_empty_dataset(self, tmp_path: Path) -> None:
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(pa.table({"a": pa.array([], pa.int64())}), path)
            library.dataset(path).add_columns({"b": "a + 1"})
        assert traces(str(tmp_path / "glaive")) == traces(str(tmp_path / "lance"))

    def test_a_fragment_without_live_rows_needs_no_file(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        dataset = glaive.write_dataset({"a": range(6)}, path, max_rows_per_file=3)
        made = dataset.get_fragment(0).delete_rows([0, 1])
        assert made is not None
        operation = glaive.LanceOperation.Delete([made], [], "by hand")
        dataset = glaive.LanceDataset.commit(dataset, operation, read_version=1)
        dataset.add_columns({"b": "a * 2"})
        assert lance.dataset(path).to_table().column("b").to_pylist() == [4, 6, 8, 10]

    WRONG: tuple[tuple[str, Change, Any], ...] = (
        ("taken", lambda d, _: d.add_columns({"a": "a + 1"}), SchemaError),
        ("taken by rows", lambda d, _: d.add_columns(live_rows("b", "a")), SchemaError),
        ("taken by a field", lambda d, _: d.add_columns(pa.field("a", pa.int8())), SchemaError),
        ("dots", lambda d, _: d.add_columns({"b.c": "a"}), SchemaError),
        ("syntax", lambda d, _: d.add_columns({"b": "a +"}), FilterError),
        ("unknown", lambda d, _: d.add_columns({"b": "zz + 1"}), FilterError),
        ("number", lambda d, _: d.add_columns({"b": 1}), OptionError),
        ("fails late", lambda d, _: d.add_columns({"b": "1 / (a - 8)"}), FilterError),
        ("short", lambda d, _: d.add_columns(live_rows("b").slice(1)), SchemaError),
        ("long", lambda d, _: d.add_columns(pa.table({"b": range(LIVE + 1)})), SchemaError),
        ("no list", lambda d, _: d.add_columns([]), OptionError),
        ("nothing", lambda d, _: d.add_columns(3), OptionError),
        (
            "never null",
            lambda d, _: d.add_columns(pa.field("q", pa.int64(), nullable=False)),
            SchemaError,
        ),
        (
            "nulls where none may be",
            lambda d, _: d.add_columns(
                pa.Table.from_arrays(
                    [pa.array([1, 2, 3, 4, 5, 6, None])],
                    schema=pa.schema([pa.field("q", pa.int64(), nullable=False)]),
                )
            ),
            SchemaError,
        ),
        (
            "another type",
            lambda d, library: d.add_columns(
                library.batch_udf(DOUBLE)(lambda b: pa.record_batch({"u": ["x"] * len(b)}))
            ),
            SchemaError,
        ),
        (
            "another count",
            lambda d, library: d.add_columns(
                library.batch_udf(DOUBLE)(lambda _: pa.record_batch({"u": [1]}))
            ),
            SchemaError,
        ),
        (
            "read",
            lambda d, library: d.add_columns(
                library.batch_udf(DOUBLE)(doubled), read_columns=["zz"]
            ),
            ColumnNotFoundError,
        ),
        ("batch_size", lambda d, _: d.add_columns({"b": "a"}, batch_size=0), OptionError),
    )

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize(("name", "change", "error"), WRONG, ids=[one[0] for one in WRONG])
    def test_what_cannot_be_is_refused(
        self, pair: Any, name: str, change: Change, error: Any
    ) -> None:
        one, other = pair()
        before = files(one)
        with pytest.raises(error):
            change(glaive.dataset(one), glaive)
        assert files(one) == before
        with pytest.raises((OSError, ValueError, TypeError, RuntimeError, OverflowError)):
            change(lance.dataset(other), lance)

    def test_a_function_that_raises_leaves_nothing(self, pair: Any) -> None:
        path, _ = pair()
        before = files(path)

        def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
            if batch["a"][0].as_py() > 3:
                raise KeyError("on purpose")
            return doubled(batch)

        with pytest.raises(KeyError, match="on purpose"):
            glaive.dataset(path).add_columns(glaive.batch_udf(DOUBLE)(broken))
        assert files(path) == before

    def test_reserved_names_are_refused(self, pair: Any) -> None:
        with pytest.raises(SchemaError, match=r"'_rowid'.*reserved"):
            glaive.dataset(pair()[0]).add_columns({"_rowid": "a"})

    def test_no_columns_make_a_version_all_the_same(self, pair: Any) -> None:
        one, other = pair()
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).add_columns({})
        assert everything(one) == everything(other)
        assert traces(one) == traces(other)

    def test_format_0_1_has_no_columns_without_values(self, pair: Any) -> None:
        path, _ = pair(data_storage_version="legacy")
        with pytest.raises(UnsupportedFeatureError, match=r"0\.1"):
            glaive.dataset(path).add_columns(pa.field("q", pa.int64()))

    def test_another_writer_in_the_way(self, pair: Any) -> None:
        path, _ = pair()
        late = glaive.dataset(path)
        lance.write_dataset(DATA.slice(0, 1), path, mode="append")
        before = files(f"{path}/data")
        with pytest.raises(CommitConflictError, match="append"):
            late.add_columns({"b": "a"})
        assert files(f"{path}/data") == before
        assert late.version == 2


class TestCheckpoint:
    @pytest.mark.parametrize("stop", [1, 3, 4])
    def test_it_goes_on_where_it_was(self, pair: Any, tmp_path: Path, stop: int) -> None:
        path, _ = pair()
        store = tmp_path / "checkpoint.sqlite"
        calls: list[list[int]] = []

        def count(batch: pa.RecordBatch) -> pa.RecordBatch:
            if len(calls) == stop:
                raise RuntimeError("power cut")
            calls.append(batch["a"].to_pylist())
            return doubled(batch)

        udf = glaive.batch_udf(DOUBLE, checkpoint_file=store)(count)
        with pytest.raises(RuntimeError, match="power cut"):
            glaive.dataset(path).add_columns(udf, batch_size=2)
        first = list(calls)
        stop = -1
        glaive.dataset(path).add_columns(udf, batch_size=2)
        assert calls == [[0], [2, 3], [4], [6, 7], [8]]
        assert calls[: len(first)] == first
        found = lance.dataset(path).to_table()
        assert found["u"].to_pylist() == [2 * one for one in found["a"].to_pylist()]
        assert not store.exists()
        assert len(files(f"{path}/data")) == 6

    def test_a_killed_process_is_gone_on_with(self, pair: Any, tmp_path: Path) -> None:
        path, _ = pair()
        store, log = tmp_path / "checkpoint.sqlite", tmp_path / "log"
        program = f"""
import os, glaive, pyarrow as pa
def count(batch):
    if 6 in batch["a"].to_pylist() and not os.path.exists({str(log) + "2"!r}):
        open({str(log) + "2"!r}, "w").close()
        os._exit(9)
    with open({str(log)!r}, "a") as file:
        print(batch["a"].to_pylist(), file=file)
    return pa.record_batch({{"u": batch["a"]}})
udf = glaive.batch_udf(pa.schema({{"u": pa.int64()}}), checkpoint_file={str(store)!r})(count)
glaive.dataset({path!r}).add_columns(udf, batch_size=2)
"""
        ends = [
            subprocess.run([sys.executable, "-c", program], check=False).returncode
            for _ in range(2)
        ]
        assert ends == [9, 0]
        assert log.read_text().splitlines() == ["[0]", "[2, 3]", "[4]", "[6, 7]", "[8]"]
        found = lance.dataset(path).to_table()
        assert found["u"] == found["a"]

    def test_fragments_that_changed_are_worked_out_anew(self, pair: Any, tmp_path: Path) -> None:
        path, _ = pair()
        store = tmp_path / "checkpoint.sqlite"
        calls: list[list[int]] = []

        def count(batch: pa.RecordBatch) -> pa.RecordBatch:
            calls.append(batch["a"].to_pylist())
            if 8 in calls[-1] and len(calls) == 3:
                raise RuntimeError("power cut")
            return doubled(batch)

        udf = glaive.batch_udf(DOUBLE, checkpoint_file=store)(count)
        with pytest.raises(RuntimeError, match="power cut"):
            glaive.dataset(path).add_columns(udf)
        lance.dataset(path).delete("a = 2")
        glaive.dataset(path).add_columns(udf)
        assert calls == [[0, 2, 3], [4, 6, 7], [8], [0, 3], [8]]
        assert lance.dataset(path).to_table()["u"].to_pylist() == [0, 6, 8, 12, 14, 16]

    def test_a_file_that_was_removed_is_written_again(self, pair: Any, tmp_path: Path) -> None:
        path, _ = pair()
        before = set(Path(path, "data").iterdir())
        store = tmp_path / "checkpoint.sqlite"
        broken = [True]

        def count(batch: pa.RecordBatch) -> pa.RecordBatch:
            if 8 in batch["a"].to_pylist() and broken[0]:
                raise RuntimeError("power cut")
            return doubled(batch)

        udf = glaive.batch_udf(DOUBLE, checkpoint_file=store)(count)
        with pytest.raises(RuntimeError, match="power cut"):
            glaive.dataset(path).add_columns(udf)
        left = set(Path(path, "data").iterdir()) - before
        assert len(left) == 2
        left.pop().unlink()
        broken[0] = False
        glaive.dataset(path).add_columns(udf)
        assert lance.dataset(path).to_table()["u"].to_pylist() == [0, 4, 6, 8, 12, 14, 16]

    def test_a_file_that_is_no_checkpoint_is_refused(self, pair: Any, tmp_path: Path) -> None:
        path, _ = pair()
        store = tmp_path / "notes.txt"
        store.write_text("this is no database, but long enough to be looked at as if it were one")
        udf = glaive.batch_udf(DOUBLE, checkpoint_file=store)(doubled)
        with pytest.raises(OptionError, match=r"notes\.txt"):
            glaive.dataset(path).add_columns(udf)
        with pytest.raises(OptionError, match="for LanceDataset"):
            glaive.dataset(path).get_fragment(0).merge_columns(udf)

    def test_wrong_functions_are_refused(self) -> None:
        with pytest.raises(OptionError, match="function"):
            glaive.batch_udf()(3)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(OptionError, match="output_schema"):
            glaive.batch_udf({"a": 1})(doubled)  # type: ignore[arg-type]  # on purpose

    def test_without_rows_the_schema_must_be_named(self, tmp_path: Path) -> None:
        dataset = glaive.write_dataset(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "d")
        with pytest.raises(OptionError, match="output_schema"):
            dataset.add_columns(doubled)
        dataset.add_columns(glaive.batch_udf(DOUBLE)(doubled))
        assert dataset.schema.names == ["a", "u"]


class TestDrop:
    @pytest.mark.sampled(every=13)
    @KINDS
    @pytest.mark.parametrize(
        "columns",
        [["a"], ["s.x", "l"], ["s.x", "s.y"], ["a", "a"], ["s", "s.x"], ["l.item"], [], ["t", "b"]],
        ids=str,
    )
    def test_both_leave_the_same(
        self, pair: Any, columns: list[str], version: str, stable: bool
    ) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for library, path in ((glaive, one), (lance, other)):
            dataset = library.dataset(path)
            dataset.add_columns({"b": "a"})
            dataset.drop_columns(columns)
        assert everything(one, stable) == everything(other, stable)
        assert traces(one) == traces(other)

    @pytest.mark.parametrize(
        ("columns", "error"),
        [
            (["zz"], ColumnNotFoundError),
            (["s.zz"], ColumnNotFoundError),
            (["a", "t", "s", "l"], SchemaError),
            ("a", OptionError),
            ([1], OptionError),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, pair: Any, columns: Any, error: Any) -> None:
        path, _ = pair()
        before = files(path)
        with pytest.raises(error):
            glaive.dataset(path).drop_columns(columns)
        assert files(path) == before

    def test_maps_are_dropped_as_a_whole(self, tmp_path: Path) -> None:
        kind = pa.map_(pa.string(), pa.int64())
        data = pa.table({"a": [1], "m": pa.array([[("k", 1)]], kind)})
        dataset = glaive.write_dataset(data, tmp_path / "d")
        with pytest.raises(SchemaError, match="'m' is stored as a unit"):
            dataset.drop_columns(["m.entries.key"])


KEYS = pa.table({"a": [2, 3, 7, 7, 100], "w": ["x", "y", "z", "zz", "q"]})
MERGES: dict[str, tuple[Any, ...]] = {
    "same name": (KEYS, "a"),
    "other name": (KEYS.rename_columns(["id", "w"]), "a", "id"),
    "row ids": (pa.table({"_rowid": pa.array([2, 3], pa.uint64()), "w": ["x", "y"]}), "_rowid"),
    "addresses": (
        pa.table({"k": pa.array([2**32, 3], pa.uint64()), "w": ["x", "y"]}),
        "_rowaddr",
        "k",
    ),
    "null is a key": (pa.table({"t": ["t2", None], "w": ["x", "y"]}), "t"),
    "reader": (lambda: KEYS.to_reader(2), "a"),
}
ALTERED: dict[str, tuple[dict[str, Any], ...]] = {
    "rename": ({"path": "a", "name": "A"},),
    "rename a member": ({"path": "s.x", "name": "X"},),
    "rename items": ({"path": "l.item", "name": "element"},),
    "swap": ({"path": "a", "name": "t"}, {"path": "t", "name": "a"}),
    "twice": ({"path": "a", "name": "x"}, {"path": "a", "name": "y"}),
    "never null": ({"path": "a", "nullable": False},),
    "never null and renamed": ({"path": "a", "nullable": False, "name": "b"},),
    "member never null": ({"path": "s.x", "nullable": False},),
    "struct never null": ({"path": "s", "nullable": False},),
    "nullable": ({"path": "t", "nullable": True},),
    "cast": ({"path": "a", "data_type": pa.int32()},),
    "cast to the same": ({"path": "a", "data_type": pa.int64()},),
    "cast a text": ({"path": "t", "data_type": pa.large_string()},),
    "cast a list": ({"path": "l", "data_type": pa.large_list(pa.int16())},),
    "cast and rename": (
        {"path": "a", "data_type": pa.int8(), "name": "A"},
        {"path": "t", "name": "T"},
    ),
    "nothing": (),
}
APART: dict[str, tuple[dict[str, Any], ...]] = {
    "cast a member": ({"path": "s.x", "data_type": pa.int32()},),
    "cast items": ({"path": "l.item", "data_type": pa.int32()},),
    "cast several": (
        {"path": "s.x", "data_type": pa.int32()},
        {"path": "l.item", "data_type": pa.int16()},
        {"path": "a", "data_type": pa.int16()},
    ),
}


class TestAlter:
    @pytest.mark.sampled(every=21)
    @KINDS
    @pytest.mark.parametrize("name", ALTERED)
    def test_both_leave_the_same(self, pair: Any, name: str, version: str, stable: bool) -> None:
        if (name, version) == ("rename items", "legacy"):
            pytest.skip("pylance 14 cannot read what it leaves")
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).alter_columns(*ALTERED[name])
        assert everything(one, stable) == everything(other, stable)
        assert traces(one) == traces(other)

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("version", ["2.1", "2.2"])
    @pytest.mark.parametrize("name", APART)
    def test_members_are_cast_alone_from_2_1_on(self, pair: Any, name: str, version: str) -> None:
        one, other = pair(data_storage_version=version)
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).alter_columns(*APART[name])
        assert everything(one) == everything(other)
        assert traces(one) == traces(other)

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("version", ["legacy", "2.0"])
    @pytest.mark.parametrize("name", APART)
    def test_before_they_are_cast_with_the_whole_column(
        self, pair: Any, name: str, version: str
    ) -> None:
        # What pylance 14 leaves here in format 2.0 it cannot read itself.
        path, _ = pair(data_storage_version=version)
        before = everything(path)["rows"]
        glaive.dataset(path).alter_columns(*APART[name])
        after = everything(path)
        assert after["rows"] == before
        kinds = {"s.x": pa.int32(), "l.item": pa.int32() if name == "cast items" else pa.int16()}
        found = {"s.x": after["schema"].field("s").type.field("x").type}
        found["l.item"] = after["schema"].field("l").type.value_type
        for change in APART[name]:
            if change["path"] in kinds:
                assert found[change["path"]] == kinds[change["path"]]

    def test_members_of_structs_in_lists(self, tmp_path: Path) -> None:
        rows = [[{"p": at, "q": str(at)}] * at for at in range(4)]
        for version in ("2.0", "2.1", "2.2"):
            path = str(tmp_path / version)
            glaive.write_dataset({"l": rows}, path, data_storage_version=version)
            glaive.dataset(path).alter_columns({"path": "l.item.p", "data_type": pa.int8()})
            found = lance.dataset(path).to_table()
            assert found.schema.field("l").type.value_type.field("p").type == pa.int8()
            assert (
                found["l"].to_pylist() == rows == glaive.dataset(path).to_table()["l"].to_pylist()
            )

    TYPES = (
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.date32(),
        pa.timestamp("ms"),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("s"),
        pa.duration("us"),
        pa.decimal128(10, 2),
        pa.decimal256(40, 2),
        pa.list_(pa.int64()),
        pa.large_list(pa.int32()),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.float32(), 2),
        pa.struct({"a": pa.int8()}),
    )

    @pytest.mark.sampled(every=6)
    @pytest.mark.parametrize("old", TYPES, ids=str)
    def test_the_types_that_can_be_cast_are_those_of_pylance(
        self, tmp_path: Path, old: pa.DataType
    ) -> None:
        base = str(tmp_path / "base")
        lance.write_dataset(pa.table({"c": pa.array([None, None], old)}), base)
        for at, new in enumerate(self.TYPES):
            allowed = []
            for library in (glaive, lance):
                path = str(tmp_path / f"{library.__name__}{at}")
                shutil.copytree(base, path)
                try:
                    library.dataset(path).alter_columns({"path": "c", "data_type": new})
                    allowed.append(lance.dataset(path).schema)
                except (GlaiveError, OSError):
                    allowed.append(None)
            assert allowed[0] == allowed[1], (old, new)

    def test_columns_of_extension_types_are_cast_as_their_storage(self, tmp_path: Path) -> None:
        tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8.0).reshape(2, 4))
        halves = pa.list_(pa.float16(), 4)
        found = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            dataset = library.write_dataset(pa.table({"v": tensors}), path)
            dataset.alter_columns({"path": "v", "data_type": halves})
            found.append(lance.dataset(path).to_table())
        assert found[0] == found[1]
        assert found[0].schema == pa.schema({"v": halves})

    @pytest.mark.parametrize("new", [pa.list_(pa.float16(), 5), pa.string(), pa.json_()], ids=str)
    def test_other_casts_of_extension_types_are_refused(
        self, tmp_path: Path, new: pa.DataType
    ) -> None:
        tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 4)))
        documents = pa.array(["{}", "[]"], pa.json_())
        table = pa.table({"v": tensors, "j": documents})
        dataset = glaive.write_dataset(table, tmp_path / "d")
        for column in ("v", "j"):
            with pytest.raises(SchemaError, match="cannot be cast from"):
                dataset.alter_columns({"path": column, "data_type": new})
        assert dataset.to_table() == table

    WRONG: tuple[tuple[tuple[Any, ...], Any, str], ...] = (
        (({"path": "zz", "name": "q"},), ColumnNotFoundError, "zz"),
        (({"path": "a", "name": "t"},), SchemaError, "'t'"),
        (({"path": "a", "name": "x.y"},), SchemaError, "separates members"),
        (({"path": "a"},), OptionError, "At least one of name"),
        (({"path": "a", "nulable": False, "name": "b"},), OptionError, "nulable"),
        (({"name": "b"},), OptionError, "path"),
        ((3,), OptionError, "path"),
        (({"path": "a", "name": 3},), OptionError, "a string"),
        (({"path": "a", "data_type": "int8"},), OptionError, "pyarrow type"),
        (({"path": "t", "nullable": False},), SchemaError, "null in 3 rows"),
        (({"path": "l.item", "nullable": False},), SchemaError, "list items"),
        (({"path": "t", "data_type": pa.int64()},), SchemaError, "from string to int64"),
        (({"path": "s", "data_type": pa.struct({"x": pa.int8()})},), SchemaError, "'s'"),
        (
            ({"path": "a", "data_type": pa.int32(), "nullable": False},),
            OptionError,
            "Change the types first",
        ),
        (
            ({"path": "a", "name": "x"}, {"path": "x", "nullable": False}),
            ColumnNotFoundError,
            'Column "x" does not exist',
        ),
    )

    @pytest.mark.parametrize(("changes", "error", "says"), WRONG, ids=str)
    def test_what_cannot_be_is_refused(
        self, pair: Any, changes: Any, error: Any, says: str
    ) -> None:
        one, other = pair()
        before = files(one)
        with pytest.raises(error, match=says):
            glaive.dataset(one).alter_columns(*changes)
        assert files(one) == before
        with pytest.raises((OSError, ValueError, TypeError)):
            lance.dataset(other).alter_columns(*changes)

    def test_members_of_one_struct_have_different_names(self, pair: Any) -> None:
        with pytest.raises(SchemaError, match=r"'s\.y'.*taken"):
            glaive.dataset(pair()[0]).alter_columns({"path": "s.x", "name": "y"})

    def test_a_value_that_does_not_fit_leaves_nothing(self, pair: Any) -> None:
        path, _ = pair()
        dataset = glaive.dataset(path)
        dataset.update({"a": "1000"}, "a = 8")
        before = files(path)
        with pytest.raises(SchemaError, match=r"'a'.*1000"):
            dataset.alter_columns({"path": "a", "data_type": pa.int8()})
        assert files(path) == before
        dataset.delete("a = 1000")
        dataset.alter_columns({"path": "a", "data_type": pa.int8()})
        assert everything(path)["schema"].field("a").type == pa.int8()

    def test_nulls_of_the_struct_count_for_its_members(self, tmp_path: Path) -> None:
        kind = pa.struct({"x": pa.int64()})
        data = pa.table({"s": pa.array([{"x": 1}, None], kind)})
        dataset = glaive.write_dataset(data, tmp_path / "d")
        with pytest.raises(SchemaError, match="null in 1 rows"):
            dataset.alter_columns({"path": "s.x", "nullable": False})

    def test_an_append_in_the_way_counts_where_nulls_do(self, pair: Any) -> None:
        path, _ = pair()
        first, second = glaive.dataset(path), glaive.dataset(path)
        lance.write_dataset(DATA.slice(0, 1), path, mode="append")
        with pytest.raises(CommitConflictError, match="nulls"):
            first.alter_columns({"path": "a", "nullable": False})
        second.alter_columns({"path": "a", "name": "A"})
        assert everything(path)["count"] == LIVE + 1

    CHANGES: tuple[tuple[str, Change], ...] = (
        ("rename", lambda d, _: d.alter_columns({"path": "a", "name": "A"})),
        ("cast", lambda d, _: d.alter_columns({"path": "a", "data_type": pa.int32()})),
        ("drop", lambda d, _: d.drop_columns(["a"])),
        ("drop another", lambda d, _: d.drop_columns(["t"])),
        ("add", lambda d, _: d.add_columns({"b": "a"})),
        ("merge", lambda d, _: d.merge(KEYS, "a")),
    )

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize(("name", "change"), CHANGES, ids=[one[0] for one in CHANGES])
    def test_indices_stay_or_go_as_with_pylance(self, pair: Any, name: str, change: Change) -> None:
        one, other = pair()
        lance.dataset(one).create_scalar_index("a", "BTREE")
        shutil.rmtree(other)
        shutil.copytree(one, other)
        if name == "cast":
            with pytest.raises(SchemaError, match="'a' cannot be cast: it has the index 'a_idx'"):
                change(glaive.dataset(one), glaive)
            with pytest.raises(OSError, match="a_idx"):
                change(lance.dataset(other), lance)
        else:
            change(glaive.dataset(one), glaive)
            change(lance.dataset(other), lance)
        assert everything(one) == everything(other)
        left = [glaive.dataset(path).manifest.indices for path in (one, other)]
        assert left[0] == left[1]
        assert bool(left[0]) == (name != "drop")
        if left[0]:
            column = lance.dataset(one).schema.names[0]
            assert lance.dataset(one).to_table(filter=f"{column} = 7").num_rows == 1

    def test_the_schema_as_a_whole_cannot_be_replaced(self, pair: Any) -> None:
        with pytest.raises(UnsupportedFeatureError, match="alter_columns"):
            glaive.dataset(pair()[0]).replace_schema(DATA.schema)


class TestMerge:
    @pytest.mark.sampled(every=8)
    @KINDS
    @pytest.mark.parametrize("name", MERGES)
    def test_both_leave_the_same(self, pair: Any, name: str, version: str, stable: bool) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for library, path in ((glaive, one), (lance, other)):
            data, *keys = MERGES[name]
            library.dataset(path).merge(data() if callable(data) else data, *keys)
        assert everything(one, stable) == everything(other, stable)
        assert traces(one) == traces(other)

    def test_without_rows_all_is_null(self, pair: Any) -> None:
        path, _ = pair()
        glaive.dataset(path).merge(KEYS.slice(0, 0), "a")
        assert everything(path)["rows"]["w"] == [None] * LIVE

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((KEYS.rename_columns(["a", "t"]), "a"), SchemaError),
            ((KEYS.select(["a"]), "a"), OptionError),
            ((KEYS, "zz", "a"), ColumnNotFoundError),
            ((KEYS, "a", "zz"), ColumnNotFoundError),
            ((KEYS, "s.x", "a"), ColumnNotFoundError),
            ((KEYS.set_column(0, "a", KEYS["a"].cast("int32")), "a"), SchemaError),
            (
                (
                    KEYS.cast(
                        pa.schema([KEYS.schema.field(0), pa.field("w", "string", nullable=False)])
                    ),
                    "a",
                ),
                SchemaError,
            ),
            ((3, "a"), OptionError),
        ],
        ids=["taken", "alone", "left", "right", "member", "type", "never null", "nothing"],
    )
    def test_what_cannot_be_is_refused(self, pair: Any, arguments: Any, error: Any) -> None:
        path, _ = pair()
        before = files(path)
        with pytest.raises(error):
            glaive.dataset(path).merge(*arguments)
        assert files(path) == before


@pytest.mark.parametrize("size", [1, 999, 1000, 8192, 20_000, 30_000])
def test_a_function_gets_batches_of_the_size_however_many_rows_are_read_at_a_time(
    tmp_path: Path, size: int
) -> None:
    count = 20_000 if size > 1 else 50
    rows = pa.table({"a": range(count), "t": [f"text {i}" * (i % 50) for i in range(count)]})
    seen: list[int] = []

    def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return pa.record_batch([batch["a"], batch["t"]], names=["a2", "t2"])

    dataset = glaive.write_dataset(rows, tmp_path / "t")
    dataset.add_columns(copied, batch_size=size)
    assert seen[1:] == [min(size, count - start) for start in range(0, count, size)]
    assert dataset.to_table(columns=["a2", "t2"]).to_pydict() == {
        "a2": rows["a"].to_pylist(),
        "t2": rows["t"].to_pylist(),
    }
