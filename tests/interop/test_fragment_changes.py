"""Changes of one fragment, committed by hand: both libraries make the same of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    DataFileMissingError,
    FilterError,
    OptionError,
    RowIndexError,
    SchemaError,
    UnsupportedFeatureError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

DATA = pa.table(
    {
        "t": [None if at % 3 == 0 else f"t{at}" for at in range(10)],
        "a": range(10),
        "s": [{"x": at, "y": [at] * (at % 3)} for at in range(10)],
    }
)
SYSTEM = ["_rowid", "_row_last_updated_at_version"]
STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
VERSIONS = pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Make the same dataset twice, one row deleted: one for each library to change."""

    def make(**options: Any) -> tuple[str, str]:
        one, other = str(tmp_path / "one"), str(tmp_path / "other")
        options.setdefault("max_rows_per_file", 4)
        lance.write_dataset(DATA, one, **options)
        lance.dataset(one).delete("a = 1")
        shutil.copytree(one, other)
        return one, other

    return make


def everything(path: str, stable: bool = False) -> dict[str, Any]:
    """What both libraries read of a dataset, and its files; they must agree."""
    found = []
    for library in (lance, glaive):
        dataset = library.dataset(path)
        columns = [*dataset.schema.names, *(SYSTEM if stable else ["_rowid"])]
        rows = dataset.to_table(columns=columns).to_pydict()
        found.append({"rows": rows, "schema": dataset.schema, "version": dataset.version})
        dataset.validate()
    assert found[0] == found[1]
    fragments = glaive.dataset(path).manifest.fragments()
    files = [[(f.fields, f.column_indices) for f in one.files] for one in fragments]
    return {**found[0], "files": files}


def commit(library: Any, path: str, operation: Any) -> None:
    version = library.dataset(path).version
    library.LanceDataset.commit(path, operation, read_version=version)


class TestMetadata:
    def test_it_is_what_pylance_tells(self, pair: Any) -> None:
        path, _ = pair(enable_stable_row_ids=True)
        for mine, theirs in zip(
            glaive.dataset(path).get_fragments(), lance.dataset(path).get_fragments(), strict=True
        ):
            assert isinstance(mine.metadata, glaive.FragmentMetadata)
            assert mine.metadata.to_json() == theirs.metadata.to_json()
            back = glaive.FragmentMetadata.from_json(mine.metadata.to_json())
            assert back == mine.metadata
            assert mine.metadata.num_rows == theirs.metadata.num_rows

    def test_the_physical_schema_has_the_columns_of_the_files(self, pair: Any) -> None:
        dataset = glaive.dataset(pair()[0])
        dataset.add_columns(pa.field("q", pa.int8()))
        (first, *_) = dataset.get_fragments()
        assert first.physical_schema == DATA.schema
        assert first.schema.names == [*DATA.schema.names, "q"]

    def test_sessions_take_rows(self, pair: Any) -> None:
        path, _ = pair()
        for columns, addresses in ((None, None), (["a"], True), (["a", "s.x"], False)):
            found = [
                library.dataset(path).get_fragment(1).open_session(columns, addresses).take([0, 2])
                for library in (glaive, lance)
            ]
            assert found[0].to_pydict() == found[1].to_pydict()
        first = glaive.dataset(path).get_fragment(0).open_session(["a"], True)
        assert first.take([0, 1]).to_pydict() == {"a": [0, 2], "_rowaddr": [0, 2]}


class TestNewColumns:
    @pytest.mark.sampled(every=3)
    @STABLE
    @VERSIONS
    def test_expressions_rows_and_functions(self, pair: Any, version: str, stable: bool) -> None:
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        for library, path in ((glaive, one), (lance, other)):
            given: tuple[Any, ...] = (
                {"b": "a * 2"},
                lambda batch: pa.record_batch({"u": batch["a"]}),
                "rows",
            )
            for value in given:
                made, schema = [], None
                for fragment in library.dataset(path).get_fragments():
                    count = fragment.count_rows()
                    data = pa.table({"r": range(count)}) if value == "rows" else value
                    one_more, schema = fragment.merge_columns(data)
                    made.append(one_more)
                commit(library, path, library.LanceOperation.Merge(made, schema))
        assert everything(one, stable) == everything(other, stable)

    def test_only_one_fragment_has_them(self, pair: Any) -> None:
        one, other = pair()
        for library, path in ((glaive, one), (lance, other)):
            fragments = library.dataset(path).get_fragments()
            made, schema = fragments[1].merge_columns({"b": "a * 2"}, batch_size=2)
            rest = [fragments[0].metadata, made, fragments[2].metadata]
            commit(library, path, library.LanceOperation.Merge(rest, schema))
        assert everything(one) == everything(other)

    def test_a_join(self, pair: Any) -> None:
        one, other = pair()
        table = pa.table({"k": [3, 5, 5, 99], "w": ["x", "y", "z", "q"]})
        for library, path in ((glaive, one), (lance, other)):
            made, schema = [], None
            for fragment in library.dataset(path).get_fragments():
                one_more, schema = fragment.merge(table, "a", "k")
                made.append(one_more)
            commit(library, path, library.LanceOperation.Merge(made, schema))
        assert everything(one) == everything(other)

    def test_more_or_fewer_rows_leave_no_file(self, pair: Any) -> None:
        path, _ = pair()
        before = sorted(Path(path, "data").iterdir())
        fragment = glaive.dataset(path).get_fragment(0)
        for count in (2, 4):
            with pytest.raises(SchemaError, match="expected 3 rows"):
                fragment.merge_columns(pa.table({"r": range(count)}))
        assert sorted(Path(path, "data").iterdir()) == before


UPDATES: dict[str, tuple[Any, ...]] = {
    "a key": (pa.table({"a": [2, 3, 3, 99], "t": ["X", "Y", "Z", "W"]}), "a"),
    "another name": (pa.table({"k": [3], "t": ["x"]}), "a", "k"),
    "row ids": (pa.table({"_rowid": pa.array([2], pa.uint64()), "t": ["Q"]}),),
    "addresses": (pa.table({"_rowaddr": pa.array([2], pa.uint64()), "t": ["Q"]}), "_rowaddr"),
    "a struct": (pa.table({"a": [2], "s": [{"x": 5, "y": [1]}]}), "a"),
    "several": (
        pa.table({"a": [0, 2], "s": [{"x": 0, "y": [7]}, {"x": 5, "y": []}], "t": ["n", None]}),
        "a",
    ),
    "no match": (pa.table({"a": [222], "t": ["x"]}), "a"),
    "a deleted row": (pa.table({"a": [1], "t": ["x"]}), "a"),
}


class TestUpdateColumns:
    @pytest.mark.sampled(every=4)
    @STABLE
    @VERSIONS
    @pytest.mark.parametrize("name", UPDATES)
    def test_both_leave_the_same(self, pair: Any, name: str, version: str, stable: bool) -> None:
        data, *keys = UPDATES[name]
        if version == "legacy" and "t" in data.column_names:
            pytest.skip("the first column of a file of format 0.1: pylance 14 damages it")
        one, other = pair(data_storage_version=version, enable_stable_row_ids=stable)
        told = []
        for library, path in ((glaive, one), (lance, other)):
            fragment = library.dataset(path).get_fragment(0)
            made, fields, offsets = fragment.update_columns(data, *keys, with_offsets=True)
            told.append((fields, offsets, [tuple(f.fields) for f in made.files]))
            operation = library.LanceOperation.Update(
                updated_fragments=[made],
                fields_modified=fields,
                update_mode="rewrite_columns",
                updated_fragment_offsets={0: offsets},
            )
            commit(library, path, operation)
        assert told[0] == told[1]
        assert everything(one, stable) == everything(other, stable)

    def test_without_offsets_there_are_two_values(self, pair: Any) -> None:
        fragment = glaive.dataset(pair()[0]).get_fragment(0)
        assert len(fragment.update_columns(*UPDATES["a key"])) == 2

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((pa.table({"a": [2], "zz": [1]}), "a"), SchemaError),
            ((pa.table({"a": [2], "t": [1]}), "a"), SchemaError),
            ((pa.table({"a": [2]}), "a"), OptionError),
            ((pa.table({"a": [2], "t": ["x"]}), "q", "a"), ColumnNotFoundError),
            ((pa.table({"a": [2], "t": ["x"]}), "a", "q"), ColumnNotFoundError),
            ((pa.table({"a": [2], "s": [{"x": 1}]}), "a"), SchemaError),
            ((pa.table({"s": [{"x": 1, "y": [1]}], "t": ["x"]}), "s"), SchemaError),
        ],
        ids=["unknown", "type", "key alone", "left", "right", "member", "struct key"],
    )
    def test_what_cannot_be_is_refused(self, pair: Any, arguments: Any, error: Any) -> None:
        path, _ = pair()
        before = sorted(Path(path).rglob("*"))
        with pytest.raises(error):
            glaive.dataset(path).get_fragment(0).update_columns(*arguments)
        assert sorted(Path(path).rglob("*")) == before

    def test_the_first_column_of_old_files_stays(self, pair: Any) -> None:
        path, _ = pair(data_storage_version="legacy")
        with pytest.raises(UnsupportedFeatureError, match=r"format 0\.1"):
            glaive.dataset(path).get_fragment(0).update_columns(*UPDATES["a key"])


class TestDelete:
    @pytest.mark.parametrize("predicate", ["a > 2", "a > 200", "a >= 0", "t IS NULL"])
    def test_by_predicate(self, pair: Any, predicate: str) -> None:
        one, other = pair()
        left = []
        for library, path in ((glaive, one), (lance, other)):
            made = library.dataset(path).get_fragment(0).delete(predicate)
            left.append(made and (made.id, made.num_deletions, made.num_rows))
            updated, gone = ([], [0]) if made is None else ([made], [])
            operation = library.LanceOperation.Delete(updated, gone, predicate)
            commit(library, path, operation)
        assert left[0] == left[1]
        assert everything(one) == everything(other)

    @pytest.mark.parametrize("offsets", [[0, 3], [1], [], [3, 0, 3], [0, 1, 2, 3]], ids=str)
    def test_by_offset(self, pair: Any, offsets: list[int]) -> None:
        one, other = pair()
        left = []
        for library, path in ((glaive, one), (lance, other)):
            made = library.dataset(path).get_fragment(0).delete_rows(offsets)
            left.append(made and (made.num_deletions, made.deletion_file.file_type))
        assert left[0] == left[1]

    def test_what_is_not_there_is_refused(self, pair: Any) -> None:
        fragment = glaive.dataset(pair()[0]).get_fragment(0)
        for offset in (7, -1):
            with pytest.raises(RowIndexError, match=f"offset {offset} is out of range"):
                fragment.delete_rows([offset])
        with pytest.raises(FilterError):
            fragment.delete("zz > 1")


class TestCreate:
    def test_all_rows_in_one(self, pair: Any) -> None:
        one, other = pair()
        many = pa.table({"t": ["x"] * 3000, "a": range(3000), "s": [{"x": 1, "y": [2]}] * 3000})
        for library, path in ((glaive, one), (lance, other)):
            made = library.LanceFragment.create(path, many, fragment_id=77)
            assert (made.id, made.physical_rows, len(made.files)) == (77, 3000, 1)
            commit(library, path, library.LanceOperation.Append([made]))
        assert everything(one) == everything(other)
        assert glaive.dataset(one).fragment_ids() == [0, 1, 2, 77]

    def test_a_dataset_of_them(self, tmp_path: Path) -> None:
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            made = library.LanceFragment.create(path, DATA)
            operation = library.LanceOperation.Overwrite(DATA.schema, [made])
            library.LanceDataset.commit(path, operation)
        assert everything(str(tmp_path / "glaive")) == everything(str(tmp_path / "lance"))

    def test_rows_that_do_not_fit_are_refused(self, pair: Any) -> None:
        path, _ = pair()
        with pytest.raises(SchemaError, match="'q'"):
            glaive.LanceFragment.create(path, pa.table({"q": [1]}))
        with pytest.raises(SchemaError, match="expected rows"):
            glaive.LanceFragment.create(path, DATA.slice(0, 0))
        with pytest.raises(OptionError, match="fragment_id"):
            glaive.LanceFragment.create(path, DATA, fragment_id=-1)
        with pytest.raises(OptionError, match="nonsense"):
            glaive.LanceFragment.create(path, DATA, nonsense=3)  # type: ignore[call-arg]  # on purpose

    @VERSIONS
    def test_from_a_file(self, pair: Any, version: str) -> None:
        path, _ = pair(data_storage_version=version)
        dataset = glaive.dataset(path)
        wanted = dataset.get_fragment(1).metadata
        made = glaive.LanceFragment.create_from_file(wanted.files[0].path, dataset, 1)
        assert made == wanted

    def test_from_a_file_that_is_not_there(self, pair: Any) -> None:
        dataset = glaive.dataset(pair()[0])
        with pytest.raises(DataFileMissingError, match=r"nope\.lance"):
            glaive.LanceFragment.create_from_file("nope.lance", dataset, 9)

    def test_from_a_file_of_other_columns(self, pair: Any) -> None:
        path, other = pair()
        stranger = glaive.LanceFragment.create(f"{path}-2", pa.table({"q": [1]}))
        name = stranger.files[0].path
        shutil.copy(f"{path}-2/data/{name}", f"{other}/data/{name}")
        with pytest.raises(SchemaError, match="'q'"):
            glaive.LanceFragment.create_from_file(name, glaive.dataset(other), 9)
