"""Deleting and updating rows: both libraries leave the same rows, ids, versions and files."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CommitContentionError,
    FilterError,
    OptionError,
    SchemaError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ROWS = 100
DATA = pa.table(
    {
        "a": range(ROWS),
        "t": [None if at % 7 == 0 else f"text {at}" for at in range(ROWS)],
        "s": [{"x": at, "y": [at] * (at % 3)} for at in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(range(2 * ROWS), pa.float32()), 2),
    }
)
SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]

STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
VERSIONS = pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2", "2.3"])


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Make the same dataset twice: one for each library to change."""

    def make(**options: Any) -> tuple[str, str]:
        one, other = str(tmp_path / "one"), str(tmp_path / "other")
        options.setdefault("max_rows_per_file", 30)
        lance.write_dataset(DATA, one, **options)
        shutil.copytree(one, other)
        return one, other

    return make


def everything(path: str, stable: bool = False) -> dict[str, Any]:
    """What both libraries read of a dataset; they must agree."""
    found = []
    columns = [*DATA.schema.names, *(SYSTEM if stable else ["_rowid"])]
    for library in (lance, glaive):
        dataset = library.dataset(path)
        table = dataset.to_table(columns=columns)
        fragments = [
            (one.fragment_id, one.physical_rows, one.num_deletions)
            for one in dataset.get_fragments()
        ]
        found.append(
            {
                "rows": table.to_pydict(),
                "fragments": fragments,
                "version": dataset.version,
                "count": dataset.count_rows(),
            }
        )
    assert found[0] == found[1]
    return found[0]


PREDICATES = [
    "a < 3",
    "a >= 30 AND a < 60",
    "t IS NULL",
    "s.x % 2 = 0",
    "a > 1000",
    "true",
    "t LIKE '%9'",
    "false",
]


class TestDelete:
    @pytest.mark.sampled(every=6)
    @STABLE
    @VERSIONS
    def test_both_leave_the_same(self, pair: Any, version: str, stable: bool) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for predicate in PREDICATES[:5]:
            mine = glaive.dataset(one).delete(predicate)
            theirs = lance.dataset(other).delete(predicate)
            assert mine == theirs
            assert everything(one, stable) == everything(other, stable)

    @pytest.mark.parametrize("predicate", PREDICATES)
    def test_transactions_are_those_of_pylance(self, pair: Any, predicate: str) -> None:
        told = []
        for library, path in zip((glaive, lance), pair(), strict=True):
            library.dataset(path).delete(predicate)
            told.append(glaive.dataset(path).read_transaction(2).operation)
        assert told[0].predicate == told[1].predicate
        assert sorted(told[0].deleted_fragment_ids) == sorted(told[1].deleted_fragment_ids)
        facts = [
            {f.id: (f.num_rows, f.deletion_file.file_type) for f in one.updated_fragments}
            for one in told
        ]
        assert facts[0] == facts[1]

    def test_a_pyarrow_expression(self, pair: Any) -> None:
        one, other = pair()
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).delete((pc.field("a") > 90) & (pc.field("a") < 95))
        assert everything(one) == everything(other)

    @pytest.mark.parametrize("count", [16, 17])
    def test_both_kinds_of_deletion_files_are_read(self, tmp_path: Path, count: int) -> None:
        kinds = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(pa.table({"a": range(10_000)}), path)
            library.dataset(path).delete(f"a < {count}")
            (file,) = (tmp_path / library.__name__ / "_deletions").iterdir()
            kinds.append(file.suffix)
            assert lance.dataset(path).count_rows() == 10_000 - count
            assert lance.dataset(path).to_table() == glaive.dataset(path).to_table()
        assert kinds == [".bin" if count > 16 else ".arrow", ".arrow"]

    def test_the_object_moves_to_the_new_version(self, pair: Any) -> None:
        dataset = glaive.dataset(pair()[0])
        assert dataset.delete("a < 10") == {"num_deleted_rows": 10}
        assert (dataset.version, dataset.count_rows()) == (2, ROWS - 10)

    def test_a_wrong_filter_changes_nothing(self, pair: Any) -> None:
        path, _ = pair()
        before = everything(path)
        for predicate in ("b = 1", "a =", "a + 1", "a = 'x"):
            with pytest.raises(FilterError):
                glaive.dataset(path).delete(predicate)
        with pytest.raises(OptionError, match="predicate"):
            glaive.dataset(path).delete(3)  # type: ignore[arg-type]  # on purpose
        assert everything(path) == before
        assert not (Path(path) / "_deletions").exists()

    def test_truncate_keeps_the_columns(self, pair: Any) -> None:
        one, other = pair()
        for library, path in ((glaive, one), (lance, other)):
            library.dataset(path).truncate_table()
        assert everything(one) == everything(other)
        assert glaive.dataset(one).schema == DATA.schema


UPDATES: list[tuple[dict[str, str], str | None]] = [
    ({"t": "'z'"}, "a % 10 = 0"),
    ({"a": "a + 1000"}, "a < 35"),
    ({"a": "a * 2", "t": "concat('w', t)"}, "t IS NOT NULL AND a > 50"),
    ({"t": "NULL"}, None),
    ({"a": "1"}, "a > 100000"),
]


class TestUpdate:
    @STABLE
    @pytest.mark.sampled(every=10)
    @VERSIONS
    def test_both_leave_the_same(self, pair: Any, version: str, stable: bool) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for updates, where in UPDATES:
            mine = glaive.dataset(one).update(updates, where)
            theirs = lance.dataset(other).update(updates, where)
            assert mine == theirs
            assert everything(one, stable) == everything(other, stable)

    def test_transactions_are_those_of_pylance(self, pair: Any) -> None:
        for updates, where in UPDATES:
            told = []
            for library, path in zip((glaive, lance), pair(), strict=True):
                library.dataset(path).update(updates, where)
                version = glaive.dataset(path).version
                told.append(glaive.dataset(path).read_transaction(version).operation)
                shutil.rmtree(path)
            for name in (
                "removed_fragment_ids",
                "fields_modified",
                "fields_for_preserving_frag_bitmap",
                "update_mode",
            ):
                assert sorted(getattr(told[0], name)) == sorted(getattr(told[1], name)), name
            rows = [[f.physical_rows for f in one.new_fragments] for one in told]
            assert rows[0] == rows[1]

    def test_old_values_count_in_all_expressions(self, pair: Any) -> None:
        path, _ = pair()
        glaive.dataset(path).update({"a": "s.x + 1", "t": "CAST(a AS string)"}, "a = 5")
        row = lance.dataset(path).to_table(filter="t = '5'").to_pylist()
        assert [one["a"] for one in row] == [6]

    def test_values_are_converted_to_the_type_of_the_column(self, tmp_path: Path) -> None:
        schema = pa.schema({"i": pa.int16(), "d": pa.timestamp("ms"), "f": pa.float32()})
        data = pa.table({"i": [1], "d": [0], "f": [0.5]}, schema=schema)
        updates = {"i": "7", "d": "timestamp '2020-01-02 03:04:05'", "f": "i / 2"}
        tables = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(data, path)
            library.dataset(path).update({"i": "7", "d": updates["d"]})
            tables.append(lance.dataset(path).to_table())
        assert tables[0] == tables[1]

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize(
        ("column", "text"),
        [
            ("i", "2.7"),
            ("i", "0 - f"),
            ("i", "m"),
            ("m", "300"),
            ("m", "i / 2"),
            ("c", "i"),
            ("c", "f"),
            ("t", "c"),
            ("z", "'2020-02-03'"),
            ("t", "z"),
        ],
    )
    def test_values_are_converted_as_a_cast_does(
        self, tmp_path: Path, column: str, text: str
    ) -> None:
        data = pa.table(
            {
                "i": pa.array([1, -9, None]),
                "f": [1.5, -2.5, None],
                "m": pa.array([Decimal("1.55"), Decimal("-7.25"), None], pa.decimal128(10, 2)),
                "c": pa.array(["a", "b", None]).dictionary_encode(),
                "t": ["x", "y", None],
                "z": pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC")),
            }
        )
        tables = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(data, path)
            library.dataset(path).update({column: text})
            tables.append(lance.dataset(path).to_table().to_pylist())
        assert tables[0] == tables[1]

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize(
        ("updates", "error"),
        [
            ({}, OptionError),
            ({"b": "1"}, ColumnNotFoundError),
            ({"s.x": "1"}, OptionError),
            ({"a": "t"}, SchemaError),
            ({"a": "1 +"}, FilterError),
            ({"a": "nothing"}, FilterError),
            ({"a": 1}, OptionError),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, pair: Any, updates: Any, error: Any) -> None:
        path, _ = pair()
        before = everything(path)
        files = sorted((Path(path) / "data").iterdir())
        with pytest.raises(error):
            glaive.dataset(path).update(updates, "a < 50")
        assert everything(path) == before
        assert sorted((Path(path) / "data").iterdir()) == files

    def test_null_where_none_may_be_is_refused(self, tmp_path: Path) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
        dataset = glaive.write_dataset(pa.table({"a": [1]}, schema=schema), tmp_path / "d")
        with pytest.raises(SchemaError, match="a"):
            dataset.update({"a": "NULL"})
        assert lance.dataset(str(tmp_path / "d")).to_table().to_pydict() == {"a": [1]}

    def test_blobs_move_with_their_rows(self, tmp_path: Path) -> None:
        large = b"x" * 200_000
        schema = pa.schema([pa.field("a", pa.int64()), lance.blob_field("b")])
        data = pa.table([[1, 2], lance.blob_array([large, b"small"])], schema=schema)
        path = str(tmp_path / "d")
        lance.write_dataset(data, path, data_storage_version="2.2")
        glaive.dataset(path).update({"a": "a + 10"}, "a = 1")
        for library in (glaive, lance):
            dataset = library.dataset(path)
            assert dataset.to_table(columns=["a"]).column("a").to_pylist() == [2, 11]
            blobs = dataset.take_blobs("b", indices=[0, 1])
            assert [blob.read() for blob in blobs] == [b"small", large]


class TestTogether:
    """Several writers that began at the same version."""

    def test_other_rows_of_one_fragment_are_deleted_by_both(self, pair: Any) -> None:
        path, _ = pair()
        first, second, third = (glaive.dataset(path), lance.dataset(path), glaive.dataset(path))
        first.delete("a = 1")
        second.delete("a = 2")
        third.update({"t": "'new'"}, "a = 3")
        assert third.version == 4
        found = everything(path)["rows"]["a"]
        assert sorted(found) == [0, *range(3, ROWS)]

    def test_the_same_row_is_deleted_once(self, pair: Any) -> None:
        path, _ = pair()
        first, second = glaive.dataset(path), glaive.dataset(path)
        assert first.delete("a < 5") == {"num_deleted_rows": 5}
        assert second.delete("a < 7") == {"num_deleted_rows": 2}
        assert everything(path)["count"] == ROWS - 7

    def test_an_update_of_a_changed_row_is_done_again(self, pair: Any) -> None:
        path, _ = pair()
        first, second = lance.dataset(path), glaive.dataset(path)
        first.update({"a": "a + 1000"}, "a = 5")
        assert second.update({"t": "'seen'"}, "a = 1005 OR a = 5") == {"num_rows_updated": 1}
        row = lance.dataset(path).to_table(filter="a = 1005").to_pylist()
        assert [one["t"] for one in row] == ["seen"]

    def test_a_delete_goes_around_a_compaction(self, pair: Any) -> None:
        path, _ = pair()
        stale = glaive.dataset(path)
        lance.dataset(path).optimize.compact_files()
        assert stale.delete("a >= 95") == {"num_deleted_rows": 5}
        assert everything(path)["count"] == ROWS - 5

    def test_without_retries_the_conflict_is_told(self, pair: Any) -> None:
        path, _ = pair()
        first, second = glaive.dataset(path), glaive.dataset(path)
        first.update({"a": "0"}, "a = 5")
        with pytest.raises(CommitContentionError, match="Nothing was changed"):
            second.update({"a": "1"}, "a = 5", conflict_retries=0)
        assert everything(path)["rows"]["a"].count(0) == 2
