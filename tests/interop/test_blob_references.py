"""Values that lie elsewhere, when rows are written again: described as pylance describes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ELSEWHERE = 3
"""The kind of a description that says so."""


def made(place: Path, writer: ModuleType, media: Path, far: Path) -> str:
    """Two fragments with values below a base path, elsewhere, and in the dataset."""
    values = [
        b"here",
        far.as_uri(),
        writer.Blob.from_uri(far.as_uri(), 3, 7),
        (media / "m.bin").as_uri(),
        writer.Blob.from_uri((media / "m.bin").as_uri(), 1, 2),
        None,
        b"p" * 70_000,
        b"o" * 5_000_000,
    ]
    fields = [pa.field("i", pa.int64()), writer.blob_field("b")]
    for first, mode in ((0, "create"), (100, "append")):
        ids = pa.array(range(first, first + len(values)), pa.int64())
        table = pa.Table.from_arrays([ids, writer.blob_array(values)], schema=pa.schema(fields))
        bases = [writer.DatasetBasePath(media.as_uri(), "media")] if mode == "create" else None
        writer.write_dataset(
            table, str(place), mode=mode, data_storage_version="2.2", initial_bases=bases,
            allow_external_blob_outside_bases=True,
        )  # fmt: skip
    return str(place)


def described(place: str) -> dict[int, Any]:
    """Descriptions by id; of values in the dataset only what they have in common."""
    found = {}
    for row in lance.dataset(place).to_table().to_pylist():
        blob = row["b"]
        elsewhere = blob is not None and blob["kind"] == 3
        found[row["i"]] = (
            tuple(blob.values()) if elsewhere else blob and (blob["kind"], blob["size"])
        )
    return found


def compact(library: ModuleType, place: str) -> None:
    library.dataset(place).optimize.compact_files()


def update(library: ModuleType, place: str) -> None:
    library.dataset(place).update({"i": "i + 1000"}, where="i < 4")


def merge(library: ModuleType, place: str) -> None:
    source = pa.table({"i": pa.array([1, 3, 100, 104], pa.int64())})
    builder = library.dataset(place).merge_insert("i").when_matched_update_all()
    builder.when_not_matched_insert_all().execute(source)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("blob-kind-5")
@pytest.mark.parametrize("writer", [lance, glaive], ids=["pylance writes", "glaive writes"])
@pytest.mark.parametrize("change", [compact, update, merge])
def test_both_libraries_carry_over_the_same_references(
    change: Callable[[ModuleType, str], None], writer: ModuleType, tmp_path: Path
) -> None:
    media, far = tmp_path / "media", tmp_path / "far.bin"
    media.mkdir()
    (media / "m.bin").write_bytes(b"0123456789")
    far.write_bytes(b"elsewhere" * 3)
    results = []
    for library in (lance, glaive):
        place = made(tmp_path / library.__name__, writer, media, far)
        change(library, place)
        results.append(described(place))
    theirs, ours = results
    assert ours == theirs
    elsewhere = [one for one in ours.values() if one and one[0] == ELSEWHERE]
    assert len(elsewhere) == 8
    assert {one[3] for one in elsewhere} == {0, 1}
    opened = glaive.dataset(str(tmp_path / "glaive"), allow_external_blobs=True)
    values = opened.to_table(["b"], blob_handling="all_binary")["b"].to_pylist()
    expected = lance.dataset(str(tmp_path / "glaive")).to_table(["b"], blob_handling="all_binary")
    assert values == expected["b"].to_pylist()


@pytest.mark.parametrize("maker", [lance, glaive], ids=["pylance", "glaive"])
def test_bases_on_the_same_disk_need_no_allowance(tmp_path: Path, maker: ModuleType) -> None:
    source, other = str(tmp_path / "source"), str(tmp_path / "other")
    table = pa.table({"a": range(10)})
    base = maker.DatasetBasePath(other, "other", is_dataset_root=True)
    maker.write_dataset(table, source, initial_bases=[base])
    maker.write_dataset(table, source, mode="append", target_bases=["other"])
    dataset = maker.dataset(source)
    dataset.delete("a = 3")
    dataset.create_branch("dev")
    maker.dataset(source).shallow_clone(str(tmp_path / "clone"), maker.dataset(source).version)
    expected = [*range(3), *range(4, 10)] * 2
    for place, version in ((source, None), (source, ("dev", None)), (tmp_path / "clone", None)):
        opened = glaive.dataset(place, version=version)
        assert opened.to_table()["a"].to_pylist() == expected
        opened.validate()
    compacted = glaive.dataset(str(tmp_path / "clone"))
    compacted.optimize.compact_files()
    assert lance.dataset(str(tmp_path / "clone")).to_table()["a"].to_pylist() == expected
