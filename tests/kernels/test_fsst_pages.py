"""FSST text of many pages at once: as page after page decodes, on both tiers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import Tier, force_tier

from glaive.errors import CorruptFileError, SchemaError
from glaive.kernels.fsst import SymbolTable, decode_pages, decode_values, encode_strings
from glaive.kernels.strings import Strings, pack_variable
from glaive.types import Where

HERE = Where("test.lance")
TIERS: list[Tier] = ["numpy", "numba"]
TABLES = [
    SymbolTable((b"the ", b"an", b"a", b"tion", b"abcdefgh", b"\0\0\0", b"th")),
    SymbolTable((b"a", b"bc", b"nation", b"th", b"e ")),
    SymbolTable(()),
]

words = st.sampled_from([b"the ", b"than", b"a", b"nation ", b"abcdefghi", b"\0" * 7, b"\xff"])
texts = st.lists(
    st.one_of(st.lists(words, max_size=40).map(b"".join), st.binary(max_size=20)),
    min_size=1,
    max_size=20,
)
Page = tuple[int, list[bytes]]


def strings(values: list[bytes], bits: int) -> Strings:
    ends = np.cumsum([0, *map(len, values)])
    return Strings(
        pa.py_buffer(ends.astype(f"<i{bits // 8}")), bits, pa.py_buffer(b"".join(values))
    )


def pack(pages: list[Page], bits: int) -> tuple[list[SymbolTable], list[np.ndarray], pa.Buffer]:
    """Tables; chunks per page with starts, sizes and counts of all; and the chunks."""
    tables, chunks, data, sizes, counts = [], [], [], [], []
    for number, values in pages:
        encoded = encode_strings(TABLES[number], strings(values, bits), len(values))
        packed = pack_variable(*encoded, len(values), bits, target=64)
        tables.append(TABLES[number])
        chunks.append(len(packed.sizes))
        data.append(packed.data.tobytes())
        sizes.append(packed.sizes)
        counts.append(packed.counts)
    size = np.concatenate(sizes).astype(np.int64)
    columns = [np.array(chunks), np.cumsum(size) - size, size, np.concatenate(counts)]
    return tables, columns, pa.py_buffer(b"".join(data))


def decoded(
    tables: list[SymbolTable], columns: list[np.ndarray], data: pa.Buffer, bits: int
) -> list[bytes]:
    chunks, starts, sizes, counts = columns
    strings = decode_pages(tables, chunks, data, starts, sizes, counts, bits, HERE)
    ends = np.frombuffer(strings.offsets, f"<i{strings.offset_bits // 8}")[: int(counts.sum()) + 1]
    text = strings.data.to_pybytes()
    assert strings.offset_bits == bits
    assert len(text) == ends[-1]
    return [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", [32, 64])
@given(pages=st.lists(st.tuples(st.sampled_from([0, 1, 2]), texts), min_size=1, max_size=5))
def test_each_page_is_decoded_with_its_own_symbols(
    tier: Tier, bits: int, pages: list[Page]
) -> None:
    packed = pack(pages, bits)
    with force_tier(tier):
        assert decoded(*packed, bits) == [value for _, values in pages for value in values]


@pytest.mark.parametrize("tier", TIERS)
def test_text_that_grows_eightfold_has_room(tier: Tier) -> None:
    pages: list[Page] = [(2, [b"z"]), *[(0, [b"abcdefgh" * 500] * 9)] * 8]
    with force_tier(tier):
        results = decoded(*pack(pages, 32), 32)
    assert results == [value for _, values in pages for value in values]


@pytest.mark.parametrize("tier", TIERS)
def test_codes_without_a_symbol_of_their_own_page_are_damage(tier: Tier) -> None:
    tables, columns, data = pack([(0, [b"than the nation"]), (1, [b"the nation"])], 32)
    few = [tables[0], SymbolTable((b"x",))]
    with force_tier(tier), pytest.raises(CorruptFileError, match="FSST codes"):
        decoded(few, columns, data, 32)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("change", ["beyond", "short", "descending"])
def test_chunks_that_leave_the_data_are_damage(tier: Tier, change: str) -> None:
    tables, columns, data = pack([(0, [b"than the", b"nation"]), (1, [b"the", b"nation"])], 32)
    if change == "beyond":
        columns[1][-1] = data.size
    elif change == "short":
        columns[2][-1] = 8
    else:
        raw = bytearray(data.to_pybytes())
        raw[columns[1][-1] : columns[1][-1] + 4] = (2**30).to_bytes(4, "little")
        data = pa.py_buffer(bytes(raw))
    with force_tier(tier), pytest.raises(CorruptFileError):
        decoded(tables, columns, data, 32)


def taken(pages: list[Page], bits: int) -> tuple[list[SymbolTable], np.ndarray, Strings]:
    """Tables, values per page, and the codes of all values."""
    codes: list[bytes] = []
    for number, values in pages:
        encoded = encode_strings(TABLES[number], strings(values, bits), len(values))
        ends = np.frombuffer(encoded.offsets, f"<i{encoded.offset_bits // 8}")[: len(values) + 1]
        raw = encoded.data.to_pybytes()
        codes += [raw[a:b] for a, b in pairwise(ends.tolist())]
    counts = np.array([len(values) for _, values in pages])
    return [TABLES[number] for number, _ in pages], counts, strings(codes, bits)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", [32, 64])
@given(st.lists(st.tuples(st.integers(0, 2), texts), min_size=1, max_size=6))
def test_values_of_several_pages_are_decoded_with_the_symbols_of_each(
    tier: Tier, bits: int, pages: list[Page]
) -> None:
    tables, counts, codes = taken(pages, bits)
    with force_tier(tier):
        offsets, out_bits, data = decode_values(tables, counts, codes, HERE)
    ends = np.frombuffer(offsets, f"<i{out_bits // 8}")[: int(counts.sum()) + 1].tolist()
    assert out_bits == bits
    found = [data.to_pybytes()[a:b] for a, b in pairwise(ends)]
    assert found == [value for _, values in pages for value in values]


@pytest.mark.parametrize("tier", TIERS)
def test_codes_that_end_in_an_escape_are_damage_in_taken_values_too(tier: Tier) -> None:
    codes = strings([b"\0\1" * 40_000, b"\xff"], 32)
    with force_tier(tier), pytest.raises(CorruptFileError, match="FSST"):
        decode_values([TABLES[0], TABLES[1]], np.array([1, 1]), codes, HERE)


@pytest.mark.parametrize("tier", TIERS)
def test_offsets_of_taken_values_that_descend_are_refused(tier: Tier) -> None:
    codes = Strings(pa.py_buffer(np.array([0, 9, 3], "<i4")), 32, pa.py_buffer(bytes(9)))
    with force_tier(tier), pytest.raises(SchemaError):
        decode_values(TABLES[:2], np.array([1, 1]), codes, HERE)
