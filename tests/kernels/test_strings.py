"""Byte string kernels: chunks, blocks, single values, dictionaries; both tiers agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import Tier, force_tier

from glaive.errors import CorruptFileError, SchemaError
from glaive.kernels.hashing import number_strings, number_words, select_strings
from glaive.kernels.offsets import expand_dictionary, take_variable, unpack_blocks, unpack_variable
from glaive.kernels.strings import (
    Packed,
    Strings,
    check_offsets,
    pack_blocks,
    pack_variable,
    value_lengths,
    zip_offsets,
)
from glaive.types import Where

from .byte_strings import strings_of, values_of

HERE = Where("test.lance")
TIERS: list[Tier] = ["numpy", "numba"]
BITS = [32, 64]

texts = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"", b"\xff", b"\xff" * 9, "größe".encode(), b"x" * 300, b"y" * 5000]),
    ),
    max_size=60,
)


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(sizes) - sizes


def packed(strings: Strings, count: int, bits: int) -> tuple[Packed, pa.Buffer]:
    chunks = pack_variable(*strings, count, bits)
    return chunks, pa.py_buffer(chunks.data)


@given(texts, st.sampled_from(BITS), st.sampled_from(BITS), st.integers(0, 5))
def test_strings_come_back_from_their_chunks(
    given_values: list[bytes], bits: int, out_bits: int, first: int
) -> None:
    source = strings_of(given_values, bits, first)
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            chunks, data = packed(source, len(given_values), out_bits)
            back = unpack_variable(
                data, starts_of(chunks.sizes), chunks.sizes, chunks.counts, out_bits, HERE
            )
        assert values_of(back) == given_values
        assert back.offset_bits == out_bits
        seen.append((data.to_pybytes(), chunks.sizes.tolist(), chunks.counts.tolist()))
    assert seen[0] == seen[1]


@given(texts)
def test_chunks_hold_powers_of_two_and_about_four_kilobytes(given_values: list[bytes]) -> None:
    chunks, _ = packed(strings_of(given_values), len(given_values), 32)
    assert chunks.counts.sum() == len(given_values)
    for size, count in zip(chunks.sizes[:-1].tolist(), chunks.counts[:-1].tolist(), strict=True):
        assert count >= 2
        assert count & (count - 1) == 0
        assert size <= 4096 or count == 2


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.spec("var-2")
def test_a_chunk_is_padded_to_whole_offsets(tier: Tier) -> None:
    with force_tier(tier):
        chunks, data = packed(strings_of([b"ab", b"", b"", b"xyz"]), 4, 32)
    assert data.to_pybytes().hex() == "1400000016000000160000001600000019000000616278797a484848"
    assert chunks.sizes.tolist() == [28]


@pytest.mark.parametrize("tier", TIERS)
def test_many_short_strings_fill_chunks_of_4096_values(tier: Tier) -> None:
    with force_tier(tier):
        chunks, _ = packed(strings_of([b""] * 9000), 9000, 32)
    # 1024 offsets of 4 bytes would be 4100 with the one at the end.
    assert set(chunks.counts[:-1].tolist()) == {512}


@given(texts.filter(bool), st.data(), st.sampled_from(BITS))
def test_single_values_are_read_alone(
    given_values: list[bytes], data: st.DataObject, bits: int
) -> None:
    chunks, buffer = packed(strings_of(given_values), len(given_values), bits)
    rows = np.array(data.draw(st.lists(st.integers(0, len(given_values) - 1), max_size=30)), int)
    before = np.cumsum(chunks.counts) - chunks.counts
    chunk = np.searchsorted(before, rows, side="right") - 1
    for tier in TIERS:
        with force_tier(tier):
            taken = take_variable(
                buffer,
                starts_of(chunks.sizes),
                chunks.sizes,
                chunks.counts,
                chunk,
                rows - before[chunk],
                bits,
                HERE,
            )
        assert values_of(taken) == [given_values[row] for row in rows]


@given(st.lists(texts, max_size=4), st.sampled_from(BITS), st.sampled_from(BITS))
def test_strings_come_back_from_blocks(groups: list[list[bytes]], bits: int, out_bits: int) -> None:
    counts = np.array([len(group) for group in groups], np.int64)
    everything = [value for group in groups for value in group]
    data, sizes = pack_blocks(*strings_of(everything, bits, 3), counts, out_bits)
    for tier in TIERS:
        with force_tier(tier):
            back = unpack_blocks(
                pa.py_buffer(data), starts_of(sizes), sizes, counts, out_bits, HERE
            )
        assert values_of(back)[: len(everything)] == everything


def test_one_chunk_and_one_block_are_not_copied() -> None:
    chunks, buffer = packed(strings_of([b"ab", b"c"]), 2, 32)
    zero = np.zeros(1, np.int64)
    back = unpack_variable(buffer, zero, chunks.sizes, chunks.counts, 32, HERE)
    assert back.data.address == buffer.address
    data, sizes = pack_blocks(*strings_of([b"ab", b"c"]), chunks.counts, 32)
    block = pa.py_buffer(data)
    back = unpack_blocks(block, zero, sizes, chunks.counts, 32, HERE)
    assert block.address <= back.offsets.address < block.address + block.size


def two_chunks() -> tuple[bytearray, NDArray[np.int64], NDArray[np.int64]]:
    chunks, buffer = packed(strings_of([b"ab", b"c"]), 2, 32)
    return (
        bytearray(buffer.to_pybytes() * 2),
        np.array([0, chunks.sizes[0]]),
        chunks.sizes.repeat(2),
    )


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("at", "number"), [(0, 4), (0, 15), (4, 200), (4, 11), (8, 13), (8, 2**32 - 1), (8, 17)]
)
@pytest.mark.spec("var-5")
def test_offsets_that_descend_or_leave_the_chunk_are_refused(
    tier: Tier, at: int, number: int
) -> None:
    data, starts, sizes = two_chunks()
    data[16 + at : 20 + at] = number.to_bytes(4, "little")
    counts = np.array([2, 2])
    damaged = pa.py_buffer(bytes(data))
    with force_tier(tier), pytest.raises(CorruptFileError, match="offsets"):
        unpack_variable(damaged, starts, sizes, counts, 32, HERE)
    for times in (1, 10):
        chunk, index = np.repeat([1, 1], times), np.repeat([0, 1], times)
        with force_tier(tier), pytest.raises(CorruptFileError, match="offsets"):
            take_variable(damaged, starts, sizes, counts, chunk, index, 32, HERE)


@pytest.mark.parametrize("tier", TIERS)
def test_chunks_beyond_their_buffer_are_refused(tier: Tier) -> None:
    data, starts, sizes = two_chunks()
    buffer = pa.py_buffer(bytes(data))
    for count, size, start in ((2, 16, 17), (5, 16, 16), (2, 16, -1), (2, 40, 0)):
        counts = np.array([2, count])
        moved, shrunk = np.array([0, start]), np.array([16, size])
        with force_tier(tier), pytest.raises(CorruptFileError, match="variable-width values"):
            unpack_variable(buffer, moved, shrunk, counts, 32, HERE)
    with pytest.raises(IndexError):
        take_variable(
            buffer, starts, sizes, np.array([2, 2]), np.array([1]), np.array([2]), 32, HERE
        )
    many = np.arange(12)
    with force_tier(tier), pytest.raises(IndexError):
        take_variable(buffer, starts, sizes, np.array([2, 2]), many * 0, many, 32, HERE)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.spec("var-5", "rel-24")
def test_values_of_different_rows_that_overlap_are_refused(tier: Tier) -> None:
    # Each second value is all of the bytes: their offsets ascend, those between do not.
    count, text = 40, b"x" * 500
    offsets = np.full(count + 1, 4 * (count + 1), "<u4")
    offsets[1::2] += len(text)
    data = pa.py_buffer(offsets.tobytes() + text)
    chunk = (np.zeros(1, np.int64), np.array([data.size]), np.array([count]))
    apart = np.zeros(20, np.int64)
    with force_tier(tier):
        repeated = take_variable(data, *chunk, apart, apart, 32, HERE)
        with pytest.raises(CorruptFileError, match="do not overlap, found 10000 bytes in 20 rows"):
            take_variable(data, *chunk, apart, np.arange(0, count, 2), 32, HERE)
    assert repeated.data.size == 20 * len(text)


def test_blocks_that_contradict_themselves_are_refused() -> None:
    data, sizes = pack_blocks(*strings_of([b"ab", b"c"]), np.array([2]), 32)
    zero, counts = np.zeros(1, np.int64), np.array([2])
    for at, number, message in (
        (0, 64, "offset width"),
        (4, 12, "position"),
        (4, 99, "position"),
        (16, 9, "offsets"),
    ):
        damaged = bytearray(data.tobytes())
        damaged[at : at + 4] = number.to_bytes(4, "little")
        with pytest.raises(CorruptFileError, match=message):
            unpack_blocks(pa.py_buffer(bytes(damaged)), zero, sizes, counts, 32, HERE)


@pytest.mark.parametrize("tier", TIERS)
def test_lengths_are_measured_and_damaged_arrays_refused(tier: Tier) -> None:
    with force_tier(tier):
        assert value_lengths(*strings_of([b"abc", b"a", b"abcd"]), 3) == (1, 4)
        assert value_lengths(*strings_of([]), 0) == (0, 0)
        with pytest.raises(SchemaError, match="need 5 offsets"):
            value_lengths(*strings_of([b"a"]), 4)
        with pytest.raises(SchemaError, match="need 5 offsets"):
            check_offsets(*strings_of([b"a"]), 4)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "wrong", [[0, 5, 3], [2, 1, 3], [0, 1, 9], [-1, 0, 3], [0, 4, -1], [0, -1, 4], [0, -(2**31), 4]]
)
def test_offsets_that_descend_or_leave_their_data_are_refused(
    wrong: list[int], bits: int, tier: Tier
) -> None:
    strings = pa.py_buffer(np.array(wrong, f"<i{bits // 8}")), bits, pa.py_buffer(b"abcd")
    with force_tier(tier):
        for check in (value_lengths, check_offsets):
            with pytest.raises(SchemaError, match="ascend"):
                check(*strings, 2)


def test_wide_offsets_may_be_as_far_apart_as_they_can() -> None:
    far = [-(2**63), 2**63 - 1, 0]
    strings = pa.py_buffer(np.array(far, "<i8")), 64, pa.py_buffer(b"abcd")
    for tier in TIERS:
        with force_tier(tier), pytest.raises(SchemaError, match="ascend"):
            check_offsets(*strings, 2)


@given(texts.filter(bool), st.data(), st.sampled_from([8, 16, 32, 64]), st.sampled_from(BITS))
def test_indices_become_the_items_they_point_to(
    items: list[bytes], data: st.DataObject, bits: int, offset_bits: int
) -> None:
    wanted = data.draw(st.lists(st.integers(0, len(items) - 1), max_size=50))
    indices = pa.py_buffer(np.array(wanted, f"<u{bits // 8}").tobytes())
    short = [item[:16] for item in items]
    for tier in TIERS:
        for each in (items, short):
            with force_tier(tier):
                expanded = expand_dictionary(
                    indices, bits, len(wanted), strings_of(each, offset_bits)
                )
            assert values_of(expanded) == [each[i] for i in wanted]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("item", [b"a", b"a" * 40])
def test_an_index_beyond_the_items_is_refused(tier: Tier, item: bytes) -> None:
    for bits, wrong in ((32, [0, 2]), (8, [0, 255]), (64, [0, 2**40])):
        indices = pa.py_buffer(np.array(wrong, f"<u{bits // 8}"))
        with force_tier(tier), pytest.raises(IndexError, match="dictionary of 2 items"):
            expand_dictionary(indices, bits, 2, strings_of([item, item]))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("length", [3, 12, 60, 300])
def test_many_indices_become_items_of_any_length(bits: int, length: int) -> None:
    random = np.random.default_rng(length)
    items = [random.bytes(int(size)) for size in random.integers(0, length + 1, 40)]
    wanted = random.integers(0, 40, 3000)
    for word in (8, 16, 32, 64):
        indices = pa.py_buffer(wanted.astype(f"<u{word // 8}"))
        expanded = expand_dictionary(indices, word, 3000, strings_of(items, bits))
        assert values_of(expanded) == [items[i] for i in wanted]
    wanted[2000] = 40
    with pytest.raises(IndexError, match="index 40 of a dictionary of 40 items"):
        expand_dictionary(pa.py_buffer(wanted), 64, 3000, strings_of(items, bits))


@pytest.mark.parametrize("bits", BITS)
def test_items_that_are_not_there_are_not_taken(bits: int) -> None:
    for wrong in ([0, 2], [2**32 - 1, 0]):
        indices = pa.py_buffer(np.array(wrong, "<u4"))
        with pytest.raises(IndexError, match="of a dictionary of 2 items"):
            expand_dictionary(indices, 32, 2, strings_of([b"a", b"b" * 90], bits))
    one = pa.py_buffer(np.array([0], "<u4"))
    for ends in ([0, 5], [3, 1], [-1, 2], [0, -1]):
        items = Strings(pa.py_buffer(np.array(ends, f"<i{bits // 8}")), bits, pa.py_buffer(b"abcd"))
        with pytest.raises(SchemaError, match="must ascend"):
            expand_dictionary(one, 32, 1, items)
    with pytest.raises(IndexError, match="need more than 4 bytes"):
        expand_dictionary(one, 32, 2, strings_of([b"a"], bits))


@given(texts.map(lambda some: some * 3), st.sampled_from(BITS))
def test_distinct_strings_are_numbered_in_their_order(given_values: list[bytes], bits: int) -> None:
    order = list(dict.fromkeys(given_values))
    for tier in TIERS:
        with force_tier(tier):
            numbered = number_strings(
                strings_of(given_values, bits, 2), len(given_values), 10_000, 2**40
            )
        assert numbered is not None
        assert numbered.number == len(order)
        assert values_of(numbered.items) == order
        indices = np.frombuffer(numbered.indices, np.uint32)[: len(given_values)]
        assert [order[i] for i in indices] == given_values


@pytest.mark.parametrize("tier", TIERS)
def test_numbering_stops_when_there_are_too_many(tier: Tier) -> None:
    many = [f"value {i}".encode() for i in range(5000)]
    with force_tier(tier):
        whole = number_strings(strings_of(many * 2), 10_000, 5000, 2**40)
        assert whole is not None
        assert whole.number == 5000
        assert number_strings(strings_of(many * 2), 10_000, 4999, 2**40) is None
        assert number_strings(strings_of(many * 2), 10_000, 5000, 1000) is None


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bits", [16, 32, 64, 128])
def test_distinct_words_are_numbered_in_their_order(tier: Tier, bits: int) -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(0, 2**16, (3000, bits // 16), np.uint16)[rng.integers(0, 3000, 9000)]
    rows = [row.tobytes() for row in words]
    order = list(dict.fromkeys(rows))
    buffer = pa.py_buffer(words.tobytes())
    with force_tier(tier):
        numbered = number_words(buffer, bits, 9000, 3000)
        assert number_words(buffer, bits, 9000, 100) is None
    assert numbered is not None
    assert numbered.items.to_pybytes() == b"".join(order)
    indices = np.frombuffer(numbered.indices, np.uint32)[:9000]
    assert [order[i] for i in indices] == rows


def test_values_of_other_widths_have_no_dictionary() -> None:
    with pytest.raises(SchemaError, match="16 to 128 bits"):
        number_words(pa.py_buffer(bytes(8)), 8, 2, 2)
    with pytest.raises(SchemaError, match="16 to 128 bits"):
        number_words(pa.py_buffer(bytes(7)), 32, 2, 2)


@pytest.mark.parametrize("tier", TIERS)
def test_strings_are_picked_by_row(tier: Tier) -> None:
    given_values = [b"a", b"", b"ccc" * 30, b"dd"]
    rows = np.array([3, 0, 2, 2, 1])
    with force_tier(tier):
        selected = select_strings(strings_of(given_values, 32, 4), rows)
    assert values_of(selected) == [given_values[row] for row in rows]


steps = st.lists(st.sampled_from([0, 1, 9, 30, 200, 256, 70_000, 2**24]), max_size=300)


@given(st.lists(st.one_of(steps, st.integers(0, 300).map(lambda n: [7] * n)), max_size=4))
def test_offsets_come_back_from_their_frames(chunks: list[list[int]]) -> None:
    offsets = [np.cumsum([4 * len(chunk) + 4, *chunk]).astype("<u4") for chunk in chunks]
    counts = np.array([len(each) for each in offsets], np.int64)
    data = pa.py_buffer(b"?" + b"".join(each.tobytes() for each in offsets))
    seen = []
    for tier in TIERS:
        with force_tier(tier):
            seen.append(zip_offsets(data, 1 + starts_of(4 * counts), counts))
    (frames, sizes), (expected, expected_sizes) = seen
    assert frames == expected
    np.testing.assert_array_equal(sizes, expected_sizes)
    for one, start, size in zip(offsets, starts_of(sizes).tolist(), sizes.tolist(), strict=True):
        frame = frames[start : start + size]
        assert pa.Codec("zstd").decompress(frame, one.nbytes, asbytes=True) == one.tobytes()


@pytest.mark.parametrize(("start", "count"), [(0, 3), (-4, 1), (5, 1), (0, 0), (0, 2**62)])
def test_offsets_outside_of_their_data_are_refused(start: int, count: int) -> None:
    for tier in TIERS:
        with force_tier(tier), pytest.raises(ValueError, match="leave their data of 8 bytes"):
            zip_offsets(pa.py_buffer(bytes(8)), np.array([start]), np.array([count]))
