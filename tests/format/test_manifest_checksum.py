"""Manifests with checksums: a changed byte is found, others read them as before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, GlaiveError
from glaive.format.footer import ManifestFooter
from glaive.format.manifest import decode_manifest
from glaive.format.manifest_checksum import SIZE

ON = {"checksums": "true"}


def newest(place: Path) -> Path:
    """The manifest of the newest version; its name counts down."""
    return min((place / "_versions").glob("*.manifest"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table with an index and checksums."""
    place = tmp_path / "t"
    dataset = glaive.write_dataset({"id": [1, 2, 3]}, place, storage_options=ON)
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"name": "value"})
    return place


@pytest.mark.spec("man-5", "rel-32")
def test_a_changed_byte_of_a_manifest_is_an_error(place: Path) -> None:
    raw = newest(place).read_bytes()
    position = ManifestFooter.parse(pa.py_buffer(raw), len(raw), where="m").position
    assert raw[position - 4 : position] == b"GLXM"
    wrong = []
    for at in (*range(position - SIZE), *range(position, len(raw) - 16)):
        changed = bytearray(raw)
        changed[at] ^= 4
        try:
            decode_manifest(pa.py_buffer(bytes(changed)), where="m", verify=True)
        except GlaiveError:
            continue
        wrong.append(at)
    assert wrong == []
    decode_manifest(pa.py_buffer(raw), where="m", verify=True)


def test_it_is_compared_where_that_is_asked_for(place: Path) -> None:
    raw = newest(place).read_bytes()
    newest(place).write_bytes(raw.replace(b"value", b"valve"))
    assert glaive.dataset(place).config()["name"] == "valve"
    with pytest.raises(CorruptFileError, match=r"checksum of the .*manifest"):
        glaive.dataset(place, storage_options={"verify_checksums": "true"})


def test_the_configuration_of_a_table_has_its_manifests_get_them(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = glaive.write_dataset({"id": [1]}, place)
    assert b"GLXM" not in newest(place).read_bytes()
    dataset.update_config({"glaive.checksums": "true"})
    dataset.insert({"id": [2]})
    assert newest(place).read_bytes().count(b"GLXM") == 1


def test_a_transaction_that_ends_like_checksums_is_none(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = glaive.write_dataset({"id": [1]}, place)
    dataset.insert({"id": [2]}, transaction_properties={"p": "x" * 40 + "GLXM"})
    opened = glaive.dataset(place, storage_options={"verify_checksums": "true"})
    assert opened.count_rows() == 2


def test_pylance_reads_and_continues_it(place: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    other = lance.dataset(str(place))
    assert other.config()["name"] == "value"
    other.insert(pa.table({"id": [4]}))
    assert lance.dataset(str(place)).to_table(filter="id >= 3")["id"].to_pylist() == [3, 4]
    assert glaive.dataset(place, storage_options=ON).count_rows() == 4
