"""Manifests with checksums: a changed byte is found, others read them as before."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.maintenance import verify as command
from glaive.errors import CorruptFileError, GlaiveError
from glaive.format.footer import ManifestFooter
from glaive.format.manifest import SIZE, decode_manifest
from glaive.format.pb import table_pb2

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


@pytest.mark.spec("rel-32")
def test_it_is_compared_unless_somebody_says_otherwise(place: Path) -> None:
    raw = newest(place).read_bytes()
    newest(place).write_bytes(raw.replace(b"value", b"valve"))
    for options in ({}, {"verify_checksums": "true"}):
        with pytest.raises(CorruptFileError, match=r"checksum of the .*manifest"):
            glaive.dataset(place, storage_options=options)
    assert glaive.dataset(place, verify=False).config()["name"] == "valve"


def test_xxhash_is_not_loaded_where_there_are_no_checksums(tmp_path: Path, place: Path) -> None:
    """It takes longer than to open a table."""
    plain = tmp_path / "plain"
    glaive.write_dataset({"id": [1, 2, 3]}, plain).delete("id = 1")
    for path, loaded in ((plain, False), (place, True)):
        code = (
            f"import sys, glaive\nrows = glaive.dataset({str(path)!r}).to_table()\n"
            f"assert rows.num_rows\nassert ('xxhash' in sys.modules) is {loaded}"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.spec("rel-32")
def test_a_manifest_that_lacks_its_checksums_is_read_where_nothing_is_compared(place: Path) -> None:
    raw = newest(place).read_bytes()
    assert raw.count(b"GLXM") == 1
    newest(place).write_bytes(raw.replace(b"GLXM", b"GLXN"))
    with pytest.raises(CorruptFileError, match="checksums of the manifest"):
        glaive.dataset(place)
    assert glaive.dataset(place, verify=False).config()["name"] == "value"


@pytest.mark.spec("man-2", "rel-32", "rel-51")
def test_an_overwritten_run_of_a_manifest_is_an_error(place: Path) -> None:
    """Also one that holds the checksums and where the message begins, or the footer's position."""
    raw = newest(place).read_bytes()
    position = ManifestFooter.parse(pa.py_buffer(raw), len(raw), where="m").position
    chance, wrong = random.Random(5), []
    for _ in range(1500):
        size = chance.choice([8, 16, 20, 24, 40, 64, 96, 200, 512])
        at = chance.choice(
            [
                chance.randrange(len(raw) - 8),
                max(0, position - chance.randrange(size + SIZE)),
                max(0, len(raw) - size - chance.randrange(20)),
            ]
        )
        size = min(size, len(raw) - at)
        other = chance.randrange(len(raw) - size + 1)
        ways = [bytes(size), b"\xff" * size, chance.randbytes(size), raw[other : other + size]]
        changed = raw[:at] + chance.choice(ways) + raw[at + size :]
        if changed == raw:
            continue
        try:
            decode_manifest(pa.py_buffer(changed), where="m", verify=True)
        except GlaiveError:
            continue
        wrong.append((at, size))
    assert wrong == []


@pytest.mark.spec("man-6", "rel-51")
def test_a_run_that_takes_writer_and_checksums_out_of_the_message_hides_none(place: Path) -> None:
    raw = newest(place).read_bytes()
    position = ManifestFooter.parse(pa.py_buffer(raw), len(raw), where="m").position
    at = raw.index(b"glaive", position) - 4  # the field with the writer; others follow
    rest = len(raw) - 16 - at - 4
    field = bytes([0xFA, 0x7F, 0x80 | rest & 0x7F, rest >> 7])  # number 2047, of so many bytes
    changed = raw[:at] + field + b"x" * rest + raw[-16:]
    said = decode_manifest(pa.py_buffer(changed), where="m").wire
    assert not said.has_checksums
    assert not said.writer_version.library
    with pytest.raises(CorruptFileError, match="checksum of the manifest"):
        decode_manifest(pa.py_buffer(changed), where="m", verify=True)


@pytest.mark.spec("man-2")
@pytest.mark.parametrize("length", [0, 1, -1])
def test_a_message_that_does_not_end_with_the_footer_is_damaged(place: Path, length: int) -> None:
    """One of no bytes would be a version without columns and rows."""
    raw = bytearray(newest(place).read_bytes())
    position = ManifestFooter.parse(pa.py_buffer(bytes(raw)), len(raw), where="m").position
    (size,) = struct.unpack_from("<I", raw, position)
    struct.pack_into("<I", raw, position, size + length if length else 0)
    with pytest.raises(CorruptFileError, match="length of the manifest"):
        decode_manifest(pa.py_buffer(bytes(raw)), where="m")


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


@pytest.mark.spec("man-6")
def test_a_manifest_that_says_it_has_checksums_must_have_them(place: Path) -> None:
    raw = bytearray(newest(place).read_bytes())
    position = ManifestFooter.parse(pa.py_buffer(bytes(raw)), len(raw), where="m").position
    raw[position - 1] ^= 4
    decode_manifest(pa.py_buffer(bytes(raw)), where="m")
    with pytest.raises(CorruptFileError, match=r"checksums of the manifest: .*GLX"):
        decode_manifest(pa.py_buffer(bytes(raw)), where="m", verify=True)


@pytest.mark.spec("man-6")
def test_what_another_writer_puts_before_the_message_is_not_taken_for_checksums(
    tmp_path: Path,
) -> None:
    glaive.write_dataset({"id": [1]}, tmp_path / "t")
    raw = newest(tmp_path / "t").read_bytes()
    position = ManifestFooter.parse(pa.py_buffer(raw), len(raw), where="m").position
    wire = table_pb2.ManifestOutline.FromString(raw[position + 4 : -16])
    wire.ClearField("transaction_section")
    dictionary = b"a dictionary of 0.1 that ends in GLXM"

    def written_by(library: str) -> pa.Buffer:
        wire.writer_version.library = library
        message = wire.SerializeToString()
        parts = [dictionary, struct.pack("<I", len(message)), message]
        return pa.py_buffer(b"".join([*parts, ManifestFooter(len(dictionary)).build()]))

    found = decode_manifest(written_by("lance"), where="m", verify=True)
    assert found.wire.fragments == wire.fragments
    dictionary, wire.has_checksums = b"a dictionary", True  # kept by a writer that does not know it
    assert decode_manifest(written_by("lance"), where="m", verify=True).wire.has_checksums
    dictionary, wire.has_checksums = b"a dictionary of 0.1 that ends in GLXM", False
    # glaive has its transaction there, so that these four bytes cannot be anything else.
    with pytest.raises(CorruptFileError, match="checksum of the sections"):
        decode_manifest(written_by("glaive"), where="m", verify=True)


def test_a_commit_without_checksums_does_not_say_that_it_has_some(place: Path) -> None:
    opened = glaive.dataset(place, storage_options={"checksums": "false"})
    opened.insert({"id": [9]})
    raw = newest(place).read_bytes()
    assert b"GLXM" not in raw
    assert decode_manifest(pa.py_buffer(raw), where="m", verify=True).version == opened.version


@pytest.mark.spec("rel-28", "rel-32")
def test_glaive_verify_compares_manifests(place: Path) -> None:
    raw = newest(place).read_bytes()
    newest(place).write_bytes(raw.replace(b"value", b"valve"))
    result = CliRunner().invoke(command, [str(place)])
    assert result.exit_code == 1
    assert "checksum of the sections of the manifest" in result.output
    assert "version 1: sound" in result.output


def test_pylance_reads_and_continues_it(place: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    other = lance.dataset(str(place))
    assert other.config()["name"] == "value"
    other.insert(pa.table({"id": [4]}))
    assert lance.dataset(str(place)).to_table(filter="id >= 3")["id"].to_pylist() == [3, 4]
    assert glaive.dataset(place, storage_options=ON).count_rows() == 4
