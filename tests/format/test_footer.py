"""Footers say where things are, and tell other files and damage apart."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from glaive.errors import CorruptFileError, NotLanceError, UnsupportedFeatureError
from glaive.format.footer import FileFooter, ManifestFooter

FOOTER = FileFooter(
    metadata_start=64,
    column_table=100,
    global_table=132,
    global_buffers=1,
    columns=2,
    major=2,
    minor=2,
)
SIZE = 148 + FileFooter.SIZE


def test_a_file_footer_comes_back() -> None:
    data = FOOTER.build()
    assert len(data) == 40
    assert FileFooter.parse(pa.py_buffer(b"tail" + data), SIZE, where="f") == FOOTER


def test_a_footer_is_laid_out_as_the_format_says() -> None:
    assert FOOTER.build() == bytes.fromhex(
        "4000000000000000 6400000000000000 8400000000000000 01000000 02000000 0200 0200 4c414e43"
    )


@pytest.mark.spec("footer-2")
@pytest.mark.parametrize("data", [b"", b"PAR1" * 20, b"LANC", bytes(40)])
def test_other_files_are_told_apart(data: bytes) -> None:
    with pytest.raises(NotLanceError, match="x/y is not a Lance file"):
        FileFooter.parse(pa.py_buffer(data), len(data), where="x/y")
    with pytest.raises(NotLanceError, match="x/y is not a Lance manifest"):
        ManifestFooter.parse(pa.py_buffer(data), len(data), where="x/y")


def test_a_file_of_another_kind_is_told_from_one_that_is_too_short() -> None:
    for size, reason in ((39, "it has 39 bytes, the footer alone takes 40"), (40, "found b'PAR1'")):
        data = pa.py_buffer((bytes(40) + b"PAR1")[-size:])
        with pytest.raises(NotLanceError, match=reason):
            FileFooter.parse(data, size, where="f")


@pytest.mark.spec("footer-3")
@pytest.mark.parametrize(("major", "minor"), [(2, 4), (3, 0), (0, 4), (0, 2)])
def test_unknown_versions_are_refused_by_number(major: int, minor: int) -> None:
    data = bytearray(FOOTER.build())
    data[32], data[34] = major, minor
    with pytest.raises(UnsupportedFeatureError, match=rf"{major}\.{minor}"):
        FileFooter.parse(pa.py_buffer(bytes(data)), SIZE, where="f")


@pytest.mark.spec("footer-4")
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_tables_outside_the_file_are_reported(
    start: int, column_table: int, global_table: int, buffers: int, columns: int
) -> None:
    footer = FileFooter(
        metadata_start=start,
        column_table=column_table,
        global_table=global_table,
        global_buffers=buffers,
        columns=columns,
        major=2,
        minor=1,
    )
    inside = (
        start <= column_table <= 148
        and column_table + 16 * columns <= 148
        and global_table + 16 * buffers <= 148
    )
    data = pa.py_buffer(footer.build())
    if inside:
        assert FileFooter.parse(data, SIZE, where="f") == footer
    else:
        with pytest.raises(CorruptFileError, match="footer"):
            FileFooter.parse(data, SIZE, where="f")


@pytest.mark.spec("man-1")
def test_a_manifest_footer_comes_back() -> None:
    data = ManifestFooter(70).build()
    assert data == bytes.fromhex("4600000000000000 0000 0200 4c414e43")
    assert ManifestFooter.parse(pa.py_buffer(data), 100, where="m") == ManifestFooter(70)
    with pytest.raises(CorruptFileError, match="position of the metadata of a manifest"):
        ManifestFooter.parse(pa.py_buffer(data), 80, where="m")
    newer = ManifestFooter(70, 1, 0).build()
    with pytest.raises(UnsupportedFeatureError, match=r"1\.0"):
        ManifestFooter.parse(pa.py_buffer(newer), 100, where="m")
