"""What is found out about values, and which encodings are proposed for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.options import AUTOMATIC
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.rle import RunLength
from glaive.encodings.values.sequences import Constant
from glaive.encodings.writing.fixed_stats import CHUNK_OVERHEAD, FixedStats, spread_rows
from glaive.encodings.writing.page import fixed_encoding
from glaive.encodings.writing.string_stats import sample_distinct
from glaive.errors import SchemaError

ALL: tuple[type[ValueEncoding], ...] = (Flat, InlineBitpacking, RunLength, Constant)


def stats(values: NDArray[Any]) -> FixedStats:
    return FixedStats(FixedWidth(pa.py_buffer(values), values.itemsize * 8, len(values)))


def best(values: FixedStats) -> ValueEncoding:
    proposals = [proposal for cls in ALL if (proposal := cls.propose(values)) is not None]
    return min(proposals, key=lambda proposal: proposal[0])[1]


RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(5000, dtype="<i8"), InlineBitpacking(64)),
        (RNG.integers(0, 1000, 5000).astype("<u4"), InlineBitpacking(32)),
        (RNG.integers(-5, 5, 5000).astype("<i4"), Flat(32)),
        (RNG.integers(0, 1 << 64, 5000, "<u8"), Flat(64)),
        (np.repeat(RNG.integers(0, 1 << 62, 100), 50), RunLength(64)),
        (np.repeat(np.arange(4, dtype="u1"), 5000), RunLength(8)),
        (np.zeros(3, "<u4"), InlineBitpacking(32)),
        (np.arange(3, dtype="<u4"), Flat(32)),
        (np.frombuffer(bytes(1600), "V16"), Flat(128)),
    ],
)
def test_the_smallest_encoding_is_proposed(values: Any, expected: ValueEncoding) -> None:
    assert best(stats(values)) == expected


@pytest.mark.parametrize(("bits", "expected"), [(60, InlineBitpacking(64)), (62, Flat(64))])
def test_values_that_shrink_by_less_than_a_25th_stay_plain(
    bits: int, expected: ValueEncoding
) -> None:
    values = RNG.integers(0, 1 << bits, 8192, "<u8")
    assert fixed_encoding(stats(values), AUTOMATIC) == expected
    if bits == 62:  # the upper bits of floats from 0 to 2 are zero
        assert fixed_encoding(stats(2 * RNG.random(8192)), AUTOMATIC) == expected


def test_runs_of_a_long_page_are_counted_if_sampled_values_repeat() -> None:
    values = RNG.integers(0, 1 << 64, 300_000, "<u8")
    values[:120_000] = 1 << 63  # in one place
    assert best(stats(values)) == RunLength(64)
    values[:] = 1 << 63
    sampled = spread_rows(len(values) - 1)
    values[sampled] = RNG.integers(0, 1 << 64, len(sampled), "<u8")
    assert stats(values).runs is None


@given(
    bits=st.sampled_from([8, 16, 32, 64]),
    count=st.integers(1, 6000),
    top=st.integers(1, 255),
    repeat=st.sampled_from([1, 2, 30]),
)
def test_estimates_are_the_encoded_sizes(bits: int, count: int, top: int, repeat: int) -> None:
    values = np.repeat(RNG.integers(0, top, count), repeat)[:count].astype(f"<u{bits // 8}")
    measured = stats(values)
    for cls in (Flat, InlineBitpacking, RunLength):
        proposal = cls.propose(measured)
        if proposal is not None:
            encoded = proposal[1].encode_mini(measured.block)
            written = sum(int(sizes.sum()) for sizes in encoded.sizes)
            assert proposal[0] == written + CHUNK_OVERHEAD * len(encoded.counts)


@given(values=hnp.arrays(st.sampled_from(["<u1", "<u2", "<u4", "<u8"]), st.integers(0, 3000)))
def test_facts_agree_with_the_values(values: NDArray[Any]) -> None:
    measured = stats(values)
    assert measured.raw_bytes == values.nbytes
    parts = [values[at : at + 1024] for at in range(0, len(values), 1024)]
    assert measured.chunk_widths.tolist() == [int(part.max()).bit_length() for part in parts]


@given(flags=st.lists(st.booleans(), max_size=40), noise=st.integers(0, 255))
def test_bits_behind_the_last_do_not_count(flags: list[bool], noise: int) -> None:
    packed = np.packbits(np.array(flags, np.uint8), bitorder="little")
    padded = np.append(packed, np.uint8(noise))
    if len(flags) % 8:
        padded[-2] |= noise << len(flags) % 8 & 0xFF
    block = FixedWidth(pa.py_buffer(padded), 1, len(flags))
    assert best(FixedStats(block)) == Flat(1)


def test_only_words_can_be_packed() -> None:
    wide = stats(np.frombuffer(bytes(48), "V16"))
    assert wide.word_bits is None
    with pytest.raises(SchemaError, match="values of 128 bits are not words"):
        _ = wide.chunk_widths


def test_other_statistics_get_no_proposal() -> None:
    assert [cls.propose(object()) for cls in ALL] == [None] * len(ALL)


def test_long_values_are_told_apart_by_what_is_in_their_middle() -> None:
    frame = b"x" * 50_000
    for distinct in (3, 200):
        texts = [frame + b"%04d" % (number % distinct) + frame for number in range(200)]
        block = block_from_array(pa.array(texts, pa.large_binary()))
        assert isinstance(block, Variable)
        assert sample_distinct(block) == (200, distinct)
