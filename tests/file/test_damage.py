"""Damaged files end in a GlaiveError or in right data: no crash, no hang, no other exception."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import COLUMNS, table

from glaive.errors import CorruptFileError, GlaiveError, NotLanceError, UnsupportedFeatureError
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore
from glaive.kernels._tier import force_tier

ROWS = 1100
MOST_MEMORY = 64 * 1024 * 1024
"""Bytes of Python memory that reading a damaged file of some 100 KB may take at most."""


def _write(folder: Path, name: str, version: str) -> bytes:
    version, _, structure = version.partition(" ")
    written = table(name, ROWS)
    if structure:
        wish = {"lance-encoding:structural-encoding": structure}
        fields = [field.with_metadata(wish) for field in written.schema]
        written = written.cast(pa.schema(fields))
    store = LocalStore(str(folder))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(written.schema), version)
    writer.write(written)
    writer.finish()
    return (folder / "file.lance").read_bytes()


def _read_everything(folder: Path, content: bytes) -> None:
    """Open and read in every way; damage may only show as a GlaiveError."""
    (folder / "damaged.lance").write_bytes(content)
    try:
        reader = open_reader(LocalStore(str(folder)), "damaged.lance")
        columns = reader.bind(reader.schema.fields)
        for array in columns.read(0, columns.num_rows):
            array.validate(full=False)
        if columns.num_rows > 10:  # enough rows to pick some
            columns.read(3, 9)
            columns.take(np.array([7, 0, 7, columns.num_rows - 1]))
    except GlaiveError:
        pass


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3", "2.3 sparse"])
@pytest.mark.parametrize("name", COLUMNS)
def test_flipped_bytes_never_crash(tmp_path: Path, name: str, version: str) -> None:
    whole = _write(tmp_path, name, version)
    rng = np.random.default_rng([1, *name.encode()])
    tail = len(whole) - min(len(whole), 1500)
    places = [rng.integers(0, len(whole), 12), rng.integers(tail, len(whole), 25)]
    for at in np.concatenate(places).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(0, 8)) if rng.random() < 0.5 else 0xFF
        with force_tier("numba" if rng.random() < 0.7 else "numpy"):
            _read_everything(tmp_path, bytes(damaged))


@pytest.mark.parametrize("name", ["int64_small", "string", "vector_f32_100", "list_struct"])
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    whole = _write(tmp_path, name, "2.2")
    store = LocalStore(str(tmp_path))
    for size in [0, 1, 39, 40, 100, len(whole) // 2, len(whole) - 41, len(whole) - 1]:
        (tmp_path / "damaged.lance").write_bytes(whole[:size])
        with pytest.raises(NotLanceError, match="not a Lance file"):
            open_reader(store, "damaged.lance")


def test_memory_stays_bounded_when_sizes_lie(tmp_path: Path) -> None:
    whole = _write(tmp_path, "string", "2.2")
    tracemalloc.start()
    before = pa.default_memory_pool().bytes_allocated()
    for at in range(len(whole) - 600, len(whole) - 40, 7):
        damaged = bytearray(whole)
        damaged[at] = 0xFF
        _read_everything(tmp_path, bytes(damaged))
        assert pa.default_memory_pool().bytes_allocated() - before < MOST_MEMORY
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY


def test_something_else_is_not_a_lance_file(tmp_path: Path) -> None:
    (tmp_path / "text.lance").write_bytes(b"id,name\n1,a\n" * 20)
    with pytest.raises(NotLanceError, match=r"text\.lance is not a Lance file: expected b'LANC'"):
        open_reader(LocalStore(str(tmp_path)), "text.lance")


def test_an_unknown_version_names_those_known(tmp_path: Path) -> None:
    whole = bytearray(_write(tmp_path, "int64_small", "2.2"))
    whole[-8:-4] = (7).to_bytes(2, "little") + (1).to_bytes(2, "little")
    (tmp_path / "new.lance").write_bytes(whole)
    with pytest.raises(UnsupportedFeatureError, match=r"version 7\.1.*knows"):
        open_reader(LocalStore(str(tmp_path)), "new.lance")


def test_offsets_beyond_the_file_are_reported_with_their_place(tmp_path: Path) -> None:
    whole = bytearray(_write(tmp_path, "int64_small", "2.2"))
    whole[-32:-24] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "far.lance").write_bytes(whole)
    with pytest.raises(CorruptFileError, match=r"footer: expected .* found .*far\.lance"):
        open_reader(LocalStore(str(tmp_path)), "far.lance")
