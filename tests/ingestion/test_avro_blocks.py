"""What blocks of Avro files say of their size is compared before memory is taken for it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

import glaive
from glaive.errors import MissingDependencyError, UnsupportedFeatureError
from glaive.ingestion.formats.avro import Bounded, check_block
from glaive.ingestion.sources import list_sources


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(
    ("codec", "size"), [("snappy", b"\xff\xff\xff\xff\x0f"), ("lz4", b"\xfe\xff\xff\x7f")]
)
def test_no_memory_is_taken_for_the_size_that_a_block_states(codec: str, size: bytes) -> None:
    """Decoders take it at once; that of snappy ends the process where there is less."""
    with pytest.raises(EOFError, match="a block of 45 bytes says"):
        check_block(codec, size + bytes(45 - len(size)))


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("size", [5, 12, 16, 17])
def test_small_blocks_are_no_marks_between_blocks(tmp_path: Path, size: int) -> None:
    block = b"\xff\xff\xff\xff\x0f".ljust(size, b"\0")
    (tmp_path / "a.avro").write_bytes(b"\x02\x28" + block)
    (file,) = list_sources([str(tmp_path / "a.avro")])
    with (tmp_path / "a.avro").open("rb") as opened:
        source = Bounded(opened, file)
        source.codec = "snappy"
        source.read(1)
        source.read(1)
        with pytest.raises(EOFError, match="says that it decodes to"):
            source.read(size)


@pytest.mark.parametrize("codec", ["snappy", "lz4_raw"])
def test_blocks_that_state_what_they_hold_are_not_refused(codec: str) -> None:
    """As many zeros as the codec can make of few bytes."""
    for count in (0, 1, 60, 1000, 10**6):
        block = pa.Codec(codec).compress(bytes(count), asbytes=True)
        if codec == "lz4_raw":
            block = count.to_bytes(4, "little") + block
        check_block(codec.removesuffix("_raw"), block)


@pytest.mark.parametrize(
    ("codec", "message"),
    [("lz4", "its lz4 codec is supported but you need"), ("none", "Unrecognized codec: none")],
)
def test_a_codec_that_cannot_be_read_is_no_damage(tmp_path: Path, codec: str, message: str) -> None:
    """With ``bad_records`` all rows of a sound file would be left out."""
    with (tmp_path / "a.avro").open("wb") as file:
        schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
        fastavro.writer(file, schema, [{"a": 1}], codec="bzip2")
    data = (tmp_path / "a.avro").read_bytes()
    given = bytes([2 * len(codec)]) + codec.encode()
    (tmp_path / "a.avro").write_bytes(data.replace(b"\x0abzip2", given))
    if codec == "lz4" and find_spec("lz4") is not None:
        pytest.skip("lz4 is installed")

    with pytest.raises((MissingDependencyError, UnsupportedFeatureError), match=message):
        glaive.ingest(tmp_path / "a.avro", tmp_path / "t.lance", bad_records=tmp_path / "b.lance")
