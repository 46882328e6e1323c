"""Words in FSST text: both tiers find what Python finds in the decoded text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.fsst import StringTest, SymbolTable, encode_strings, search_chunks
from glaive.kernels.strings import Strings
from glaive.types import Where, as_array, as_buffer

TIERS = ("numpy", "numba")
TABLE = SymbolTable((b"abc", b"ab", b"bb", b"cc", b"a", b"b"))
WHERE = Where("a.lance")


def chunked(texts: list[bytes], each: int, bits: int) -> tuple[pa.Buffer, Any, Any, Any]:
    """Chunks of so many encoded texts, as files have them."""
    parts: list[bytes] = []
    sizes, counts = [], []
    for at in range(0, len(texts), each):
        some = texts[at : at + each]
        ends = np.cumsum([0, *map(len, some)]).astype(f"<i{bits // 8}")
        plain = Strings(as_buffer(ends), bits, pa.py_buffer(b"".join(some)))
        coded = encode_strings(TABLE, plain, len(some))
        offsets = as_array(coded.offsets, f"<i{coded.offset_bits // 8}")[: len(some) + 1]
        data = as_array(coded.data)[int(offsets[0]) : int(offsets[-1])]
        head = (offsets - offsets[0] + (len(some) + 1) * bits // 8).astype(f"<i{bits // 8}")
        parts.append(head.tobytes() + data.tobytes())
        sizes.append(len(parts[-1]))
        counts.append(len(some))
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int64)
    return pa.py_buffer(b"".join(parts)), starts, np.array(sizes), np.array(counts)


def search(tier: Any, chunks: Any, bits: int, test: StringTest) -> list[int]:
    data, starts, sizes, counts = chunks
    with force_tier(tier):
        bitmap = search_chunks(TABLE, data, starts, sizes, counts, bits, test, WHERE)
    assert bitmap is not None
    flags = np.frombuffer(bitmap.to_pybytes(), np.uint8)
    return np.flatnonzero(np.unpackbits(flags, count=int(counts.sum()), bitorder="little")).tolist()


@given(
    texts=st.lists(
        st.text("abcx", max_size=9) | st.text("abcx", min_size=50, max_size=150),
        min_size=1,
        max_size=30,
    ),
    words=st.lists(st.text("abcx", min_size=1, max_size=4), min_size=1, max_size=3),
    bits=st.sampled_from([32, 64]),
    each=st.integers(1, 9),
    begins=st.booleans(),
    ends=st.booleans(),
)
def test_texts_with_a_word(
    texts: list[str], words: list[str], bits: int, each: int, begins: bool, ends: bool
) -> None:
    raw = [text.encode() for text in texts]
    test = StringTest(tuple(word.encode() for word in words), begins, ends)
    chunks = chunked(raw, each, bits)
    expected = [at for at, text in enumerate(raw) if test.passes(text)]
    for tier in TIERS:
        assert search(tier, chunks, bits, test) == expected


def test_a_test_passes_as_it_says() -> None:
    for begins, ends, expected in (
        (False, False, [True, True, True, True]),
        (True, False, [True, True, False, False]),
        (False, True, [True, False, True, False]),
        (True, True, [True, False, False, False]),
    ):
        test = StringTest((b"ab",), begins, ends)
        assert [test.passes(string) for string in (b"ab", b"abc", b"cab", b"cabc")] == expected


@pytest.mark.parametrize("tier", TIERS)
def test_damage_is_reported(tier: Any) -> None:
    test = StringTest((b"ab",), begins=False, ends=False)
    data, starts, sizes, counts = chunked([b"abc", b"cab"] * 4, 4, 32)
    codes = bytearray(data.to_pybytes())
    codes[int(starts[1]) + 20] = 77  # a code without a symbol
    offsets = bytearray(data.to_pybytes())
    offsets[16] = 200  # the end of chunk 0
    for damaged in (codes, offsets):
        with force_tier(tier), pytest.raises(CorruptFileError, match=r"FSST|chunk 0"):
            search_chunks(
                TABLE, pa.py_buffer(bytes(damaged)), starts, sizes, counts, 32, test, WHERE
            )
    with force_tier(tier), pytest.raises(CorruptFileError):
        search_chunks(TABLE, data, starts + data.size, sizes, counts, 32, test, WHERE)


def test_chunks_of_any_size_are_not_searched_at_once() -> None:
    big = chunked([b"x" * 70_000], 1, 32)
    assert search_chunks(TABLE, *big, 32, StringTest((b"x",), False, False), WHERE) is None
