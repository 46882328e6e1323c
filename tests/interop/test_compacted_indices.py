"""After a compaction, indices are what pylance would have left, and pylance finds rows by them."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from glaive.optimize import Compaction
from pyroaring import BitMap, BitMap64
from tests.overtaken import open_overtaken

import glaive
from glaive.dataset.tasks import commit_operation
from glaive.errors import CommitConflictError, GlaiveError
from glaive.file.files import LanceFileReader
from glaive.format.pb import table_pb2
from glaive.table.operations.create_index import CreateIndex

lance = pytest.importorskip("lance", reason="install the 'interop' group")
their_optimize: Any = pytest.importorskip("lance.optimize")
IndexConfig: Any = pytest.importorskip("lance.indices").IndexConfig

pytestmark = pytest.mark.interop

Entry = table_pb2.IndexMetadata


class Kind(NamedTuple):
    """An index, and a question it answers."""

    column: str
    config: Any
    question: str
    rebuilt: bool = True
    holds_ids: bool = False
    """With stable row ids."""


def _point() -> pa.Field:
    axes = [
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
    ]
    name = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    return pa.field("g", pa.struct(axes), metadata=name)


ZONES = {"rows_per_zone": 4}
BLOOM = {"number_of_items": 4, "probability": 0.1}
TO_BTREE = {"target_index_type": "btree", "path": "x"}
TO_BITMAP = {"target_index_type": "bitmap", "path": "x"}

KINDS = {
    "btree": Kind("a", "BTREE", "a IN (1, 5, 12, 20, 25)"),
    "btree-nulls": Kind("a", "BTREE", "a IS NULL"),
    "btree-floats": Kind("f", "BTREE", "f >= 3.5 AND f < 9"),
    "btree-text": Kind("t", "BTREE", "t IN ('text3', 'text11', 'text25')"),
    "bitmap": Kind("m", "BITMAP", "m = 2", holds_ids=True),
    "bitmap-single": Kind("a", "BITMAP", "a IN (1, 5, 12, 25)", holds_ids=True),
    "label-list": Kind("l", "LABEL_LIST", "array_has(l, 1)", holds_ids=True),
    "ngram": Kind("t", "NGRAM", "contains(t, 'text1')", holds_ids=True),
    "zonemap": Kind("a", IndexConfig("zonemap", ZONES), "a IN (1, 5, 12, 25)", rebuilt=False),
    "bloom": Kind("a", IndexConfig("bloomfilter", BLOOM), "a IN (1, 5, 12, 25)", rebuilt=False),
    "json": Kind("j", IndexConfig("json", TO_BTREE), "json_get_int(j, 'x') IN (5, 12, 25)"),
    "json-bitmap": Kind("j", IndexConfig("json", TO_BITMAP), "json_get_int(j, 'x') IN (5, 25)"),
    "rtree": Kind("g", "RTREE", "a IN (1, 5)", rebuilt=False, holds_ids=True),
}


def rows(start: int, stop: int, version: str = "2.2") -> pa.Table:
    """Rows with nulls here and there, each with its number in ``i``."""
    numbers = range(start, stop)
    columns: dict[str, Any] = {
        "i": pa.array(numbers, pa.int64()),
        "a": pa.array([None if at % 7 == 3 else at for at in numbers], pa.int64()),
        "f": pa.array([math.nan if at % 5 == 2 else at / 2 for at in numbers], pa.float64()),
        "m": pa.array([None if at % 6 == 5 else at % 6 for at in numbers], pa.int32()),
        "t": pa.array([None if at % 5 == 4 else f"text{at}" for at in numbers], pa.string()),
    }
    if version != "legacy":
        lists = [[None, [], [at % 3, None], [at % 3, at]][at % 4] for at in numbers]
        columns["l"] = pa.array(lists, pa.list_(pa.int64()))
    if version in ("2.2", "2.3"):
        columns["j"] = pa.array([json.dumps({"x": at}) for at in numbers], pa.json_())
        points = [None if at % 6 == 5 else {"x": at % 5.0, "y": at / 3} for at in numbers]
        columns["g"] = pa.array(points, _point().type)
    table = pa.table(columns)
    if "g" in columns:
        table = table.cast(pa.schema([_point() if f.name == "g" else f for f in table.schema]))
    return table


def make(
    path: Path,
    kind: str,
    *,
    stable: bool = False,
    version: str = "2.2",
    sizes: tuple[int, ...] = (6, 6, 6, 4),
    deleted: str | None = "i IN (2, 8)",
    more: tuple[int, ...] = (4, 4),
) -> str:
    """A dataset with an index, later rows it does not cover, and deleted rows."""
    at = 0
    for size in sizes:
        _append(path, at, at + size, stable=stable, version=version)
        at += size
    index(path, kind)
    for size in more:
        _append(path, at, at + size, stable=stable, version=version)
        at += size
    if deleted:
        lance.dataset(path).delete(deleted)
    return str(path)


def _append(path: Path | str, start: int, stop: int, *, stable: bool = False, version: str) -> None:
    lance.write_dataset(
        rows(start, stop, version),
        path,
        mode="append",
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )


def index(path: Path | str, kind: str) -> None:
    """Have pylance build the index."""
    one = KINDS[kind]
    lance.dataset(path).create_scalar_index(one.column, one.config)


def both(path: str) -> Iterator[tuple[Any, str]]:
    """Each library, with a copy of the dataset of its own."""
    for library in (glaive, lance):
        copy = f"{path}-{library.__name__}"
        shutil.copytree(path, copy)
        yield library, copy


def entries(path: str) -> list[Entry]:
    return [one for one in glaive.dataset(path).manifest.indices if one.fields]


def segments(path: str) -> list[dict[str, Any]]:
    """All that entries say and files hold, but for uuids and sizes."""
    return [_segment(path, one) for one in entries(path)]


def _segment(path: str, entry: Entry) -> dict[str, Any]:
    uuid = str(UUID(bytes=entry.uuid.uuid))
    folder = Path(path, "_indices", uuid)
    assert {one.path: one.size_bytes for one in entry.files} == {
        one.name: one.stat().st_size for one in folder.iterdir()
    }
    return {
        "name": entry.name,
        "fields": list(entry.fields),
        "dataset_version": entry.dataset_version,
        "fragments": sorted(BitMap.deserialize(entry.fragment_bitmap)),
        "details": (entry.index_details.type_url, entry.index_details.value),
        "index_version": entry.index_version,
        "created_at": entry.created_at,
        "base_id": entry.base_id if entry.HasField("base_id") else None,
        "files": {one.name: _file(one) for one in folder.iterdir()},
    }


def _file(path: Path) -> dict[str, Any]:
    reader = LanceFileReader(str(path))
    metadata = {key.decode(): value for key, value in (reader.schema.metadata or {}).items()}
    buffers: dict[str, Any] = {
        key: _rowset(reader.read_global_buffer(int(metadata[key])))
        for key in ("null_bitmap", "lance:label_list_nulls")
        if key in metadata
    }
    pages = "minhash_lsh_page_table_buffer"
    if pages in metadata:
        buffers[pages] = reader.read_global_buffer(int(metadata[pages]))
    table = reader.read_all().to_table()
    found = table.to_pydict()
    for name, decode in (("bitmaps", _rowset), ("nulls", _rowset), ("posting_list", _addresses)):
        if name in found:
            found[name] = [decode(one) for one in found[name]]
    return {
        "version": path.read_bytes()[-8:],
        "schema": [(one.name, one.type, one.nullable, one.metadata) for one in table.schema],
        "metadata": metadata,
        "buffers": buffers,
        "rows": repr(found),  # NaN is to equal NaN
    }


def _rowset(data: bytes) -> dict[int, list[int]]:
    (count,) = struct.unpack_from("<I", data)
    found, at = {}, 4
    for _ in range(count):
        fragment, size = struct.unpack_from("<II", data, at)
        found[fragment] = list(BitMap.deserialize(data[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(data)
    return found


def _addresses(data: bytes) -> list[int]:
    return list(BitMap64.deserialize(data))


def check_answers(path: str, kind: str, *, uses_index: bool = True) -> list[int]:
    """Pylance answers the same by the index as by a scan."""
    dataset = lance.dataset(path)
    question = KINDS[kind].question
    options: dict[str, Any] = {"columns": ["i"], "filter": question}
    scanner = dataset.scanner(**options)
    assert _uses_index(scanner) == uses_index
    found = sorted(scanner.to_table()["i"].to_pylist())
    plain = dataset.scanner(**options, use_scalar_index=False)
    assert not _uses_index(plain)
    assert found == sorted(plain.to_table()["i"].to_pylist())
    assert found == sorted(glaive.dataset(path).to_table(**options)["i"].to_pylist())
    assert found
    return found


def _uses_index(scanner: Any) -> bool:
    plan = scanner.explain_plan()
    return "ScalarIndexQuery" in plan or "MaterializeIndex" in plan


def _cases() -> Iterator[Any]:
    everywhere = ("btree", "bitmap", "label-list", "ngram")
    for kind, one in KINDS.items():
        for stable in (False, True):
            for version in ("legacy", "2.0", "2.1", "2.2", "2.3"):
                if version not in ("2.2", "2.0") and kind not in everywhere:
                    continue
                if one.column in "jg" and version != "2.2":
                    continue
                if kind == "label-list" and version == "legacy":
                    continue
                if kind.startswith("json") and stable:
                    continue  # pylance does not build them
                ids = f"{kind}-{'ids' if stable else 'addresses'}-{version}"
                yield pytest.param(kind, stable, version, id=ids)


@pytest.mark.sampled(every=39)
@pytest.mark.spec("zones-1")
@pytest.mark.spec("segment-2")
@pytest.mark.spec("remap-1")
@pytest.mark.spec("remap-2")
@pytest.mark.spec("remap-4")
@pytest.mark.spec("remap-5")
@pytest.mark.parametrize(("kind", "stable", "version"), list(_cases()))
def test_both_leave_the_same(tmp_path: Path, kind: str, stable: bool, version: str) -> None:
    path = make(tmp_path / "d", kind, stable=stable, version=version)
    before = entries(path)
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files(target_rows_per_fragment=10)
        found.append(segments(copy))
        rebuilt = KINDS[kind].rebuilt and not (stable and KINDS[kind].holds_ids)
        assert (entries(copy)[0].uuid != before[0].uuid) == rebuilt
        lost = not (KINDS[kind].rebuilt or (stable and KINDS[kind].holds_ids))
        glaive.dataset(copy).validate()
        check_answers(copy, kind, uses_index=not lost and kind != "rtree")
    assert found[0] == found[1]


REMADE = [name for name, kind in KINDS.items() if kind.rebuilt]


@pytest.mark.spec("btree-1")
@pytest.mark.spec("btree-2")
@pytest.mark.spec("btree-3")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_pages_of_a_b_tree_are_cut_anew(tmp_path: Path, stable: bool) -> None:
    path = str(tmp_path / "d")
    numbers = np.random.default_rng(5).permutation(14_000)
    values = {
        "a": pa.array(numbers, mask=numbers % 11 == 0),
        "f": pa.array(np.where(numbers % 9 == 0, np.nan, numbers / 3)),
        "t": pa.array([f"{at % 500:05d}" for at in numbers.tolist()]),
    }
    for start in (0, 7000):
        part = pa.table({name: one.slice(start, 7000) for name, one in values.items()})
        lance.write_dataset(part, path, mode="append", enable_stable_row_ids=stable)
    for name in values:
        lance.dataset(path).create_scalar_index(name, "BTREE")
    lance.dataset(path).delete("a % 3 = 0")
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        found.append(segments(copy))
    assert found[0] == found[1]
    assert len(found[0]) == 3


@pytest.mark.spec("minhash-1")
@pytest.mark.spec("minhash-2")
@pytest.mark.spec("minhash-3")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_texts_with_bands_are_numbered_anew(tmp_path: Path, stable: bool) -> None:
    path = str(tmp_path / "d")
    words = [f"word{at}" for at in range(40)]
    for start in (0, 300):
        numbers = range(start, start + 300)
        texts = [" ".join(words[(at * 7 + i * 3) % 40] for i in range(9)) for at in numbers]
        part = pa.table({"i": numbers, "t": texts})
        lance.write_dataset(part, path, mode="append", enable_stable_row_ids=stable)
    lance.dataset(path).create_scalar_index("t", IndexConfig("minhashlsh", {}))
    lance.dataset(path).delete("i % 7 = 1")
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        found.append(segments(copy))
    assert found[0] == found[1]
    bands = found[0][0]["files"]["bands.lance"]
    assert bands["metadata"]["minhash_lsh_num_docs"] == (b"600" if stable else b"514")


@pytest.mark.sampled(every=4)
@pytest.mark.spec("remap-3")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("kind", ["btree", "bitmap"])
def test_each_segment_follows_its_own_fragments(tmp_path: Path, kind: str, stable: bool) -> None:
    path = make(tmp_path / "d", kind, stable=stable, more=(), deleted=None)
    for start in (22, 27, 31):
        _append(path, start, start + 4, version="2.2")
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(path).delete("i IN (2, 28)")
    found = []
    for library, copy in both(path):
        before = entries(copy)
        library.dataset(copy).optimize.compact_files()
        found.append(segments(copy))
        kept = [one.uuid == two.uuid for one, two in zip(before, entries(copy), strict=True)]
        by_ids = stable and KINDS[kind].holds_ids
        assert kept == ([True] * 4 if by_ids else [False, True, False, True])
        check_answers(copy, kind)
    assert found[0] == found[1]


def test_both_say_the_same_of_indices_in_the_transaction(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree", more=())
    index(path, "zonemap")
    index(path, "json")
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        # Pylance fails to show such a transaction, its own ones too.
        dataset = glaive.dataset(copy)
        operation: Any = dataset.read_transaction(dataset.version).operation
        changes = [asdict(one) for one in operation.rewritten_indices]
        new = [one.pop("new_id") for one in changes]
        assert set(new) < {str(UUID(bytes=one.uuid.uuid)) for one in entries(copy)}
        found.append(changes)
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_segments_without_moved_rows_stay(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree", sizes=(20, 20), more=(3, 3), deleted=None)
    found = []
    for library, copy in both(path):
        before = entries(copy)
        library.dataset(copy).optimize.compact_files(target_rows_per_fragment=10)
        assert entries(copy) == before
        found.append(segments(copy))
    assert found[0] == found[1]


@pytest.mark.spec("bitmap-2")
@pytest.mark.spec("labels-1")
@pytest.mark.spec("ngram-2")
@pytest.mark.parametrize("kind", ["bitmap", "label-list", "ngram", "btree"])
def test_little_may_be_left_of_an_index(tmp_path: Path, kind: str) -> None:
    # Row 9 has a list without items and a null for a text.
    path = make(tmp_path / "d", kind, more=(), deleted="i != 9")
    empty = {"bitmap": "m", "label-list": "l", "ngram": "t", "btree": "a"}[kind]
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        found.append(segments(copy))
        assert lance.dataset(copy).to_table(columns=[empty]).num_rows == 1
    assert found[0] == found[1]


def patch(path: str, change: Callable[[Entry], object]) -> None:
    """Change the entries of a dataset, as other writers would have written them."""
    dataset = glaive.dataset(path)
    old = tuple(dataset.manifest.indices)
    new = []
    for entry in old:
        changed = Entry()
        changed.CopyFrom(entry)
        change(changed)
        new.append(changed)
    commit_operation(dataset, CreateIndex(new=tuple(new), removed=old))


def _name(entry: Entry, url: str) -> None:
    entry.index_details.type_url = url


ODD_ENTRIES: dict[str, Callable[[Entry], object]] = {
    "no details": lambda one: one.ClearField("index_details"),
    "another package": lambda one: _name(one, "/lance.index.pb.BTreeIndexDetails"),
    "no list of files": lambda one: one.ClearField("files"),
    "no bitmap": lambda one: one.ClearField("fragment_bitmap"),
    "no version": lambda one: one.ClearField("index_version"),
    "some fragments": lambda one: setattr(one, "fragment_bitmap", BitMap([0, 1]).serialize()),
}


@pytest.mark.sampled(every=3)
@pytest.mark.spec("kind-1")
@pytest.mark.spec("remap-8")
@pytest.mark.parametrize("odd", ODD_ENTRIES)
def test_entries_of_other_writers_are_understood(tmp_path: Path, odd: str) -> None:
    path = make(tmp_path / "d", "btree", more=())
    patch(path, ODD_ENTRIES[odd])
    found = []
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        found.append(segments(copy))
        check_answers(copy, "btree")
    if odd == "no details":  # pylance leaves them out again; readers then look at the files
        (theirs,) = found[1]
        theirs["details"] = ("/lance.table.BTreeIndexDetails", b"")
    assert found[0] == found[1]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("remap-8")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("kind", ["zonemap", "of nobody", "bitmap"])
def test_what_an_index_covers_is_not_left_open(tmp_path: Path, kind: str, stable: bool) -> None:
    path = make(tmp_path / "d", "btree" if kind == "of nobody" else kind, more=(), stable=stable)

    def change(entry: Entry) -> None:
        entry.ClearField("fragment_bitmap")
        if kind == "of nobody":
            _name(entry, "/lance.table.FooIndexDetails")

    patch(path, change)
    glaive.dataset(path).optimize.compact_files()
    (covered,) = (one.fragment_bitmap for one in entries(path))
    # A kind that is not known is taken to hold row ids where these are stable.
    if stable and kind != "zonemap":
        assert covered == b""
    else:
        assert list(BitMap.deserialize(covered)) == ([4] if kind == "bitmap" else [])


@pytest.mark.spec("remap-8")
def test_an_index_covers_no_rows_that_came_later(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree")
    patch(path, ODD_ENTRIES["no bitmap"])
    glaive.dataset(path).optimize.compact_files()
    assert len(glaive.dataset(path).get_fragments()) == 1
    (entry,) = entries(path)
    assert not BitMap.deserialize(entry.fragment_bitmap)
    check_answers(path, "btree", uses_index=False)


def test_what_an_index_covers_may_stay_open_beside_a_map(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree", more=())
    patch(path, ODD_ENTRIES["no bitmap"])
    glaive.dataset(path).optimize.compact_files(defer_index_remap=True)
    assert entries(path)[0].fragment_bitmap == b""
    lance.dataset(path).delete("i = 9")
    glaive.dataset(path).optimize.compact_files(materialize_deletions_threshold=0)
    check_answers(path, "btree")


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_kinds_are_known_in_whatever_case(tmp_path: Path, stable: bool) -> None:
    # Pylance takes such a B-tree for one of row ids where these are stable, and lets it rot.
    path = make(tmp_path / "d", "btree", more=(), stable=stable)
    patch(path, lambda one: _name(one, "/lance.table.btreeindexdetails"))
    before = entries(path)
    glaive.dataset(path).optimize.compact_files()
    assert entries(path)[0].uuid != before[0].uuid
    check_answers(path, "btree")


@pytest.mark.sampled(every=2)
@pytest.mark.spec("kind-2")
@pytest.mark.spec("remap-6")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("odd", ["kind", "version"])
def test_what_nobody_knows_is_not_moved_away_under(tmp_path: Path, odd: str, stable: bool) -> None:
    path = make(tmp_path / "d", "btree", more=(), deleted=None, stable=stable)

    def change(entry: Entry) -> None:
        entry.fragment_bitmap = BitMap([0, 1]).serialize()
        if odd == "kind":
            _name(entry, "/lance.table.FooIndexDetails")
        else:
            entry.index_version = 9

    patch(path, change)
    found = []
    for library, copy in both(path):
        for _ in range(2):  # Fragments that it does not cover any more are merged: here at once.
            library.dataset(copy).optimize.compact_files()
        fragments = [one.fragment_id for one in library.dataset(copy).get_fragments()]
        found.append((fragments, segments(copy)))
    assert found[0] == found[1]
    left_behind = [6] if odd == "version" else [4, 5]
    assert found[0][0] == (left_behind if stable else [0, 1, 4])


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("kind", ["btree", "bitmap"])
def test_an_index_whose_files_are_gone_covers_nothing(
    tmp_path: Path, kind: str, stable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(tmp_path / "d", kind, more=(), stable=stable)
    shutil.rmtree(Path(path, "_indices"))
    found = []
    by_ids = stable and KINDS[kind].holds_ids
    for library, copy in both(path):
        library.dataset(copy).optimize.compact_files()
        found.append(entries(copy))
        if not by_ids:  # else its reader looks for the files
            check_answers(copy, kind, uses_index=False)
    assert found[0] == found[1]
    assert ("is missing" in caplog.text) != by_ids


def index_files(path: str) -> set[Path]:
    return set(Path(path).glob("_indices/*/*"))


FILES = {
    "btree": ["page_data.lance", "page_lookup.lance"],
    "bitmap": ["bitmap_page_lookup.lance"],
    "label-list": ["bitmap_page_lookup.lance"],
    "ngram": ["ngram_postings.lance"],
    "json": ["page_data.lance", "page_lookup.lance"],
}


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("damage", ["half", "empty", "no footer", "another file"])
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in FILES.items() for name in names]
)
def test_damaged_files_stop_the_compaction(
    tmp_path: Path, kind: str, name: str, damage: str
) -> None:
    path = make(tmp_path / "d", kind, more=())
    (file,) = Path(path).glob(f"_indices/*/{name}")
    data = file.read_bytes()
    other = next(Path(path).glob("data/*.lance")).read_bytes()
    file.write_bytes(
        {
            "half": data[: len(data) // 2],
            "empty": b"",
            "no footer": data[:-40] + bytes(40),
            "another file": other,
        }[damage]
    )
    before, listed = entries(path), index_files(path)
    with pytest.raises(GlaiveError, match=name):
        glaive.dataset(path).optimize.compact_files()
    assert entries(path) == before
    assert index_files(path) == listed
    assert [one.fragment_id for one in glaive.dataset(path).get_fragments()] == [0, 1, 2, 3]


class TestMapsOfEarlierMoves:
    """Indices that were left beside a map by an earlier compaction."""

    @pytest.mark.sampled(every=10)
    @pytest.mark.spec("remap-7")
    @pytest.mark.parametrize("between", [False, True], ids=["at once", "after an append"])
    @pytest.mark.parametrize("kind", REMADE)
    def test_addresses_go_through_it(self, tmp_path: Path, kind: str, between: bool) -> None:
        # Pylance forgets the map for B-trees and trigrams, and then finds nothing by them.
        path = make(tmp_path / "d", kind, more=())
        deferred = {"defer_index_remap": True, "target_rows_per_fragment": 10}
        found, uuids = [], []
        for library, copy in both(path):
            library.dataset(copy).optimize.compact_files(**deferred)
            uuids.append(entries(copy)[0].uuid)
            if between:  # pylance writes down what the segment covers by now
                _append(copy, 22, 26, version="2.2")
                lance.dataset(copy).delete("i = 9")
            library.dataset(copy).optimize.compact_files()
            found.append(segments(copy))
            assert entries(copy)[0].uuid != uuids[-1]
        check_answers(f"{path}-glaive", kind)
        same = kind.startswith(("bitmap", "label"))
        for one in found[0] if not same else ():
            one.pop("files")
        for one in found[1] if not same else ():
            one.pop("files")
        assert found[0] == found[1]

    def test_it_stays(self, tmp_path: Path) -> None:
        path = make(tmp_path / "d", "btree", more=())
        glaive.dataset(path).optimize.compact_files(
            defer_index_remap=True, target_rows_per_fragment=10
        )
        (reuse,) = (one for one in glaive.dataset(path).manifest.indices if not one.fields)
        glaive.dataset(path).optimize.compact_files()
        assert reuse in glaive.dataset(path).manifest.indices
        found = check_answers(path, "btree")
        lance.dataset(path).optimize.optimize_indices()
        assert check_answers(path, "btree") == found

    def test_deferred_upon_deferred_upon_anew(self, tmp_path: Path) -> None:
        path = make(tmp_path / "d", "bitmap", sizes=(5, 5, 5, 5, 5, 5), more=())
        for target in (8, 15):
            glaive.dataset(path).optimize.compact_files(
                defer_index_remap=True, target_rows_per_fragment=target
            )
            lance.dataset(path).delete(f"i = {target}")
        glaive.dataset(path).optimize.compact_files()
        assert len(glaive.dataset(path).get_fragments()) == 1
        check_answers(path, "bitmap")

    def test_the_configuration_may_defer(self, tmp_path: Path) -> None:
        path = make(tmp_path / "d", "btree", more=())
        glaive.dataset(path).update_config({"lance.compaction.defer_index_remap": "true"})
        glaive.dataset(path).optimize.compact_files()
        assert len(glaive.dataset(path).manifest.indices) == 2
        check_answers(path, "btree")

    def test_what_is_deferred_is_decided_at_the_commit(self, tmp_path: Path) -> None:
        path = make(tmp_path / "d", "btree", more=())
        found = []
        for library, copy in both(path):
            compaction: Any = library.optimize.Compaction
            for planned, committed in ((True, None), (False, {"defer_index_remap": True})):
                shutil.copytree(copy, at := f"{copy}-{planned}")
                dataset = library.dataset(at)
                plan = compaction.plan(dataset, {"defer_index_remap": planned})
                results = [task.execute(dataset) for task in plan.tasks]
                compaction.commit(dataset, results, committed)
                names = sorted(one.name for one in glaive.dataset(at).manifest.indices)
                found.append((names, segments(at)))
                check_answers(at, "btree")
        assert found[:2] == found[2:]
        assert [len(names) for names, _ in found[:2]] == [1, 2]


@pytest.mark.spec("remap-1")
def test_indices_of_a_clone_are_made_anew_in_the_clone(tmp_path: Path) -> None:
    # Pylance keeps naming the base, where the new files are not.
    path = make(tmp_path / "d", "btree", more=())
    clone = str(tmp_path / "clone")
    lance.dataset(path).shallow_clone(clone, reference=lance.dataset(path).version)
    assert entries(clone)[0].HasField("base_id")
    glaive.dataset(clone).optimize.compact_files()
    assert not entries(clone)[0].HasField("base_id")
    assert check_answers(clone, "btree") == check_answers(path, "btree")


@pytest.mark.spec("remap-1")
def test_indices_of_a_branch_are_made_anew_in_the_branch(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree", more=())
    branch = glaive.dataset(path).create_branch("b")
    branch.optimize.compact_files()
    (entry,) = (one for one in branch.manifest.indices if one.fields)
    assert not entry.HasField("base_id")
    folder = Path(path, "tree", "b", "_indices", str(UUID(bytes=entry.uuid.uuid)))
    assert len(list(folder.iterdir())) == 2
    scanner = lance.dataset(path).checkout_version(("b", None)).scanner(filter="a = 5")
    assert _uses_index(scanner)
    assert scanner.to_table()["i"].to_pylist() == [5]
    check_answers(path, "btree")


class TestOtherWriters:
    """Pylance changes the dataset between the plan and the commit, and within the commit."""

    @pytest.fixture(params=[1, 2], ids=["before", "within"])
    def compact(
        self, request: pytest.FixtureRequest
    ) -> Callable[[str, Callable[[], object]], None]:
        """Compact with a meddler, before the commit or between its two versions."""

        def overtaken(path: str, meddle: Callable[[], object]) -> None:
            dataset = open_overtaken(path, meddle, number=request.param)
            plan = Compaction.plan(dataset, {"target_rows_per_fragment": 10})
            here = glaive.dataset(path)
            results = [pickle.loads(pickle.dumps(task.execute(here))) for task in plan.tasks]
            Compaction.commit(dataset, results)

        return overtaken

    def test_appended_rows_do_not_matter(self, tmp_path: Path, compact: Any) -> None:
        path = make(tmp_path / "d", "btree", more=())
        compact(path, lambda: _append(path, 22, 26, version="2.2"))
        assert 25 in check_answers(path, "btree")

    def test_an_index_that_was_dropped_stays_so(self, tmp_path: Path, compact: Any) -> None:
        path = make(tmp_path / "d", "btree", more=())
        compact(path, lambda: lance.dataset(path).drop_index("a_idx"))
        assert entries(path) == []
        assert len(lance.dataset(path).get_fragments()) == 2

    @pytest.mark.parametrize("kind", ["btree", "bitmap-single"])
    def test_an_index_built_meanwhile_is_a_conflict(
        self, tmp_path: Path, compact: Any, kind: str
    ) -> None:
        path = make(tmp_path / "d", "btree", more=())
        with pytest.raises(CommitConflictError):
            compact(path, lambda: lance.dataset(path).create_scalar_index("f", "BTREE"))
        assert len(entries(path)) == 2
        assert len(index_files(path)) == 4
        check_answers(path, "btree")

    def test_rows_deleted_meanwhile_are_a_conflict(self, tmp_path: Path, compact: Any) -> None:
        path = make(tmp_path / "d", "btree", more=())
        with pytest.raises(CommitConflictError):
            compact(path, lambda: lance.dataset(path).delete("i = 5"))
        assert len(index_files(path)) == 2
        assert 5 not in check_answers(path, "btree")

    STALE: ClassVar[dict[str, Callable[[Any], object]]] = {
        "create": lambda old: old.create_scalar_index("f", "BTREE"),
        "delete": lambda old: old.delete("i = 5"),
        "append": lambda old: lance.write_dataset(rows(50, 52), old, mode="append"),
        "optimize": lambda old: old.optimize.optimize_indices(),
        "update": lambda old: old.update({"m": "7"}, where="i = 6"),
        "compact": lambda old: old.optimize.compact_files(),
    }

    @pytest.mark.sampled(every=3)
    @pytest.mark.parametrize("change", STALE)
    def test_pylance_meets_a_compaction_as_if_it_were_its_own(
        self, tmp_path: Path, change: str
    ) -> None:
        path = make(tmp_path / "d", "btree", more=(4,))
        found = []
        for library, copy in both(path):
            old = lance.dataset(copy)
            library.dataset(copy).optimize.compact_files()
            try:
                self.STALE[change](old)
                outcome = "done"
            except OSError as error:
                outcome = str(error).partition(":")[0]
            found.append((outcome, segments(copy), check_answers(copy, "btree")))
        assert found[0] == found[1]

    def test_two_compactions_of_other_fragments(self, tmp_path: Path) -> None:
        path = make(tmp_path / "d", "btree", more=())
        found = []
        for library, copy in both(path):
            compaction: Any = library.optimize.Compaction
            plan = compaction.plan(library.dataset(copy), {"target_rows_per_fragment": 10})
            datasets = [library.dataset(copy) for _ in plan.tasks]
            results = [task.execute(datasets[0]) for task in plan.tasks]
            for dataset, result in zip(datasets, results, strict=True):
                compaction.commit(dataset, [result])
            found.append(segments(copy))
            check_answers(copy, "btree")
        assert found[0] == found[1]


def test_old_and_unfinished_segments_are_cleaned_up(tmp_path: Path) -> None:
    path = make(tmp_path / "d", "btree", more=())

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_overtaken(path, crash).optimize.compact_files()
    assert len(index_files(path)) == 4
    check_answers(path, "btree")
    glaive.dataset(path).optimize.compact_files()
    assert len(index_files(path)) == 6
    glaive.dataset(path).cleanup_old_versions(timedelta(0), delete_unverified=True)
    (segment,) = entries(path)
    assert {one.parent.name for one in index_files(path)} == {str(UUID(bytes=segment.uuid.uuid))}
    check_answers(path, "btree")


@pytest.mark.spec("rel-12")
@pytest.mark.parametrize("way", ["Update", "DataReplacement"])
def test_values_that_are_replaced_after_a_deferred_remap_are_found(
    tmp_path: Path, way: str
) -> None:
    dataset = glaive.write_dataset({"id": range(8), "n": [1] * 8}, tmp_path, max_rows_per_file=4)
    dataset.create_scalar_index("n", "BTREE")
    dataset.delete("id = 6")
    dataset.optimize.compact_files(defer_index_remap=True)
    (fragment,) = dataset.get_fragments()
    values = pa.table({"id": range(8), "n": [0, 1, 2, 3, 4, 5, 6, 7]}).take([0, 1, 2, 3, 4, 5, 7])
    operation: Any
    if way == "Update":
        made, fields, *_ = fragment.update_columns(values, "id")
        operation = glaive.LanceOperation.Update(
            updated_fragments=[made], fields_modified=fields, update_mode="rewrite_columns"
        )
    else:
        files = glaive.fragment.write_fragments(values.select(["n"]), str(tmp_path))
        group = glaive.LanceOperation.DataReplacementGroup(fragment.fragment_id, files[0].files[0])
        operation = glaive.LanceOperation.DataReplacement([group])
    glaive.LanceDataset.commit(str(tmp_path), operation, read_version=dataset.version)
    for library in (glaive, lance):
        found = library.dataset(str(tmp_path)).to_table(filter="n > 3", columns=["id"])
        assert found["id"].to_pylist() == [4, 5, 7], library.__name__
