"""Deletion files with checksums, which the manifest has: changed bytes are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.maintenance import verify as command
from glaive.errors import CorruptFileError
from glaive.format.deletions import MIN_BITMAP_ROWS
from glaive.format.transaction import Transaction
from glaive.table.load import load_manifest, open_latest, read_transaction
from glaive.table.versions import list_versions

ON = {"checksums": "true"}
VERIFIED = {"verify_checksums": "true"}
MANY = 3 * MIN_BITMAP_ROWS


def checksums(dataset: glaive.LanceDataset) -> list[int | None]:
    """Of the deletion files of the newest version."""
    fragments = open_latest(dataset.store).fragments()
    return [one.deletion_file.checksum for one in fragments if one.deletion_file is not None]


def transactions(dataset: glaive.LanceDataset) -> list[Transaction]:
    """Those of all versions."""
    store = dataset.store
    found = [read_transaction(store, load_manifest(store, one)) for one in list_versions(store)]
    return [one for one in found if one is not None]


def deletion_file(place: Path) -> Path:
    (path,) = (place / "_deletions").iterdir()
    return path


def made(place: Path, deleted: int, options: dict[str, str]) -> glaive.LanceDataset:
    """A table of which some rows are deleted, every other one."""
    dataset = glaive.write_dataset({"id": range(MANY)}, place, storage_options=options)
    dataset.delete(f"id % 2 = 0 and id < {2 * deleted}")
    return dataset


@pytest.mark.spec("rel-28", "rel-33", "del-7")
@pytest.mark.parametrize("deleted", [3, MIN_BITMAP_ROWS], ids=["arrow", "bitmap"])
def test_a_changed_byte_of_a_deletion_file_is_an_error(tmp_path: Path, deleted: int) -> None:
    place = tmp_path / "t"
    made(place, deleted, ON)
    path = deletion_file(place)
    raw = path.read_bytes()
    assert glaive.dataset(place, storage_options=VERIFIED).count_rows() == MANY - deleted
    for at in np.linspace(0, len(raw) - 1, 20).astype(int).tolist():
        changed = bytearray(raw)
        changed[at] ^= 4
        path.write_bytes(changed)
        with pytest.raises(CorruptFileError, match="checksum of a deletion file"):
            glaive.dataset(place, storage_options=VERIFIED).to_table()
        with pytest.raises(CorruptFileError, match="checksum of a deletion file"):
            glaive.dataset(place).to_table()
        with pytest.raises(CorruptFileError, match="checksum of a deletion file"):
            glaive.dataset(place).delete("id = 1")  # its file would have all of them
    result = CliRunner().invoke(command, [str(place)])
    assert result.exit_code == 1
    assert path.name in result.output


@pytest.mark.spec("rel-28", "rel-33")
def test_deleted_rows_that_were_read_without_comparing_are_read_again_to_compare(
    tmp_path: Path,
) -> None:
    """Both datasets share a session, and so what was read, but for files that differ in this."""
    place, session = tmp_path / "t", glaive.Session()
    made(place, 3, ON)
    path = deletion_file(place)
    rows, others = np.array([[0, 2, 4], [0, 2, 5]], np.uint32)
    path.write_bytes(path.read_bytes().replace(rows.tobytes(), others.tobytes()))
    unseen = glaive.dataset(place, verify=False, session=session).to_table()
    assert unseen["id"].to_pylist()[:4] == [1, 3, 4, 6]
    for verify in (None, True):
        with pytest.raises(CorruptFileError, match="checksum of a deletion file"):
            glaive.dataset(place, verify=verify, session=session).to_table()


def test_deletion_files_have_checksums_where_manifests_have_them(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t", 3, {})
    assert checksums(dataset) == [None]
    dataset.update_config({"glaive.checksums": "true"})
    dataset.delete("id = 1")
    assert None not in checksums(dataset)


def test_deletions_that_were_merged_with_those_of_others_have_checksums(tmp_path: Path) -> None:
    place = tmp_path / "t"
    made(place, 3, ON)
    first, second = (glaive.dataset(place, storage_options=ON) for _ in range(2))
    first.delete("id = 7")
    second.delete("id = 9")
    assert None not in checksums(second)
    opened = glaive.dataset(place, storage_options=VERIFIED)
    assert opened.to_table(filter="id < 10")["id"].to_pylist() == [1, 3, 5, 6, 8]


@pytest.mark.spec("rel-52")
@pytest.mark.interop
@pytest.mark.parametrize("deleted", [3, MIN_BITMAP_ROWS], ids=["arrow", "bitmap"])
def test_pylance_reads_and_continues_them(tmp_path: Path, deleted: int) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    place = tmp_path / "t"
    dataset = made(place, deleted, ON)
    mine = dataset.to_table()
    other = lance.dataset(str(place))
    assert other.to_table().equals(mine)
    other.delete("id = 1")
    other.insert(pa.table({"id": [-1]}))
    opened = glaive.dataset(place, storage_options={**ON, **VERIFIED})
    assert opened.count_rows() == mine.num_rows
    opened.delete("id = 3")  # the commit of pylance has left the checksums out
    assert None not in checksums(opened)
    assert lance.dataset(str(place)).count_rows() == mine.num_rows - 1


@pytest.mark.spec("rel-35")
def test_nobody_asks_for_the_file_of_a_transaction_that_is_in_the_manifest(tmp_path: Path) -> None:
    place = tmp_path / "t"
    made(place, 3, ON)
    for path in (place / "_transactions").iterdir():
        path.write_bytes(b"\xff" * 40)
    opened = glaive.dataset(place, storage_options=VERIFIED)
    assert [one.operation.wire_name for one in transactions(opened)] == ["overwrite", "delete"]
    opened.insert({"id": [-1]})
    assert glaive.dataset(place).count_rows() == MANY - 2
