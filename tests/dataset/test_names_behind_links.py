"""Folders of strangers may be links to any others: no file of another name is opened there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.fragment_metadata import FilePath
from glaive.errors import CorruptFileError, OptionError
from glaive.format.manifest import encode_manifest
from glaive.format.paths import transaction_path
from glaive.format.pb import table_pb2
from glaive.table.index_coverage import REUSE_INDEX, stored_relocations

OPENED: list[str] = []
"""Files named ``key`` that this process has opened."""


def note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and str(arguments[0]).endswith("/key"):
        OPENED.append(str(arguments[0]))


sys.addaudithook(note)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with a file that is nobody's business."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "key").write_bytes(b"LANC" * 300)
    OPENED.clear()
    return folder


def rewritten(dataset: LanceDataset, wire: Any, indices: Any) -> LanceDataset:
    """The dataset with another manifest in the place of its newest one."""
    section = table_pb2.IndexSection(indices=indices).SerializeToString() if indices else None
    pieces = encode_manifest(
        wire, transaction=dataset.opened.manifest.transaction or b"", index_section=section
    )
    Path(dataset.opened.manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))
    return glaive.dataset(dataset.uri)


def outline(dataset: LanceDataset) -> Any:
    """A copy of the message of its manifest."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(dataset.opened.manifest.wire)
    return wire


@pytest.mark.spec("sec-3")
@pytest.mark.parametrize("size", [0, 1200])
def test_no_data_file_has_another_name(tmp_path: Path, elsewhere: Path, size: int) -> None:
    """Small files whose size is told are opened in another way."""
    dataset = glaive.write_dataset(pa.table({"a": [1, 2, 3]}), tmp_path / "t")
    wire = outline(dataset)
    fragment = dataset.opened.manifest.fragment_wire(0)
    fragment.files[0].path, fragment.files[0].file_size_bytes = "key", size
    wire.fragments[0] = fragment.SerializeToString()
    (tmp_path / "t" / "data").rename(tmp_path / "before")
    (tmp_path / "t" / "data").symlink_to(elsewhere)
    read = rewritten(dataset, wire, dataset.opened.manifest.indices)
    for call in (read.to_table, lambda: read.take([0]), read.validate):
        with pytest.raises(CorruptFileError, match=r"expected a name that ends in \.lance"):
            call()
    assert not OPENED


def test_no_data_file_of_another_name_is_committed(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"a": [1, 2, 3]}), tmp_path / "t")
    fragment = dataset.get_fragments()[0].metadata
    (tmp_path / "t" / "data" / fragment.files[0].path).rename(tmp_path / "t" / "data" / "key")
    fragment.files[0].path = FilePath("key")
    operation = glaive.LanceOperation.Append([fragment])
    with pytest.raises(OptionError, match=r"that ends in \.lance"):
        LanceDataset.commit(tmp_path / "t", operation, read_version=1)


@pytest.mark.spec("sec-3")
def test_no_map_of_moved_rows_has_another_name(tmp_path: Path, elsewhere: Path) -> None:
    rows = pa.table({"a": range(8)})
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=2)
    dataset.create_scalar_index("a", "BTREE")
    dataset.optimize.compact_files(defer_index_remap=True)
    indices = [*dataset.opened.manifest.indices]
    (moved,) = (one for one in indices if one.name == REUSE_INDEX)
    details = table_pb2.FragmentReuseIndexDetails()
    details.external.path, details.external.size = "key", 8
    moved.index_details.value = details.SerializeToString()
    folder = tmp_path / "t" / "_indices" / str(UUID(bytes=moved.uuid.uuid))
    folder.symlink_to(elsewhere)
    read = rewritten(dataset, outline(dataset), indices)
    with pytest.raises(CorruptFileError, match=r"expected a name that ends in \.binpb"):
        stored_relocations(read.store, read.opened.manifest)
    assert read.count_rows("a = 5") == 1
    assert not OPENED


@pytest.mark.spec("sec-3")
def test_no_transaction_has_another_name() -> None:
    with pytest.raises(CorruptFileError, match=r"expected a name that ends in \.txn"):
        transaction_path("key")
