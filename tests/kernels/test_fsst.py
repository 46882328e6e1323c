"""FSST: tables, training, encoding and decoding; both tiers agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import Tier, force_tier

from glaive.errors import CorruptFileError
from glaive.kernels.fsst import (
    SymbolTable,
    decode_chunks,
    decode_strings,
    encode_strings,
    sample_strings,
    train_symbols,
)
from glaive.kernels.strings import Strings, pack_variable
from glaive.types import Where

from .byte_strings import strings_of, values_of

HERE = Where("test.lance")
TIERS: list[Tier] = ["numpy", "numba"]
TABLE = SymbolTable((b"the ", b"an", b"a", b"tion", b"abcdefgh", b"\0\0\0", b"th"))

words = st.sampled_from([b"the ", b"than", b"a", b"nation ", b"abcdefghi", b"\0" * 7, b"\xff"])
texts = st.lists(
    st.one_of(st.lists(words, max_size=40).map(b"".join), st.binary(max_size=20)), max_size=40
)


def sentences(count: int) -> list[bytes]:
    rng = np.random.default_rng(7)
    known = [rng.integers(97, 123, size).astype(np.uint8).tobytes() for size in range(1, 12)]
    picks = rng.integers(0, len(known), (count, 6))
    return [b" ".join(known[i] for i in row) + b"%d" % n for n, row in enumerate(picks)]


@pytest.mark.spec("fsst-1")
def test_a_table_has_2312_bytes_with_lengths_right_behind_the_symbols() -> None:
    table = TABLE.to_bytes()
    assert len(table) == 2312
    assert table[:8] == (0x46535354 << 32 | 1 << 24 | 7).to_bytes(8, "little")
    assert table[8:24] == b"the \0\0\0\0an\0\0\0\0\0\0"
    assert table[8 + 7 * 8 : 8 + 7 * 8 + 7] == bytes([4, 2, 1, 4, 8, 3, 2])
    assert SymbolTable.parse(table, HERE) == TABLE


@pytest.mark.spec("fsst-2")
def test_with_the_switch_off_values_are_stored_as_they_are() -> None:
    header = (0x46535354 << 32).to_bytes(8, "little")
    table = SymbolTable.parse(header.ljust(2312, b"\0"), HERE)
    assert not table.encoded
    strings = strings_of([b"\xff", b"plain"])
    assert values_of(encode_strings(table, strings, 2)) == [b"\xff", b"plain"]
    assert values_of(decode_strings(table, strings, 2, HERE)) == [b"\xff", b"plain"]


@pytest.mark.parametrize(
    ("at", "byte", "message"), [(4, 0, "magic"), (64, 0, "1 to 8 bytes"), (64, 9, "1 to 8 bytes")]
)
def test_a_table_that_contradicts_itself_is_refused(at: int, byte: int, message: str) -> None:
    damaged = bytearray(TABLE.to_bytes())
    damaged[at] = byte
    with pytest.raises(CorruptFileError, match=message):
        SymbolTable.parse(bytes(damaged), HERE)
    with pytest.raises(CorruptFileError, match="2312 bytes"):
        SymbolTable.parse(bytes(damaged[:-1]), HERE)


@pytest.mark.spec("fsst-3", "fsst-4")
def test_codes_stand_for_symbols_and_escapes_for_the_byte_behind() -> None:
    coded = [bytes([0, 2, 255, 255, 255, 120]), b"", bytes([4, 255, 0]), bytes([1]), b""]
    expected = [b"the a\xffx", b"", b"abcdefgh\0", b"an", b""]
    assert values_of(decode_strings(TABLE, strings_of(coded), 5, HERE)) == expected
    for tier in TIERS:
        with force_tier(tier):
            many = decode_strings(TABLE, strings_of(coded * 30, 64, 3), 150, HERE)
        assert values_of(many) == expected * 30


SHORT = SymbolTable((b"t", b"he", b"an", b"a", b"\0\0"))


def coded_values(table: SymbolTable, seed: int, codes: int, rare: float) -> list[bytes]:
    """Return values of any codes; a share of the codes is escapes, often of an escape."""
    rng = np.random.default_rng(seed)
    parts = [
        bytes([255, int(rng.choice([255, 0, 65, 200]))])
        if rng.random() < rare
        else bytes([int(rng.integers(len(table.symbols)))])
        for _ in range(codes)
    ]
    ends = np.sort(rng.integers(0, codes + 1, codes // 5)).tolist()
    return [
        b"".join(parts[start:stop]) for start, stop in zip([0, *ends], [*ends, codes], strict=True)
    ]


@pytest.mark.parametrize("rare", [0, 0.005, 0.03, 0.5])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("table", [TABLE, SHORT], ids=["long", "short"])
def test_many_codes_at_a_time_are_decoded_as_one_by_one(
    table: SymbolTable, seed: int, rare: float
) -> None:
    coded = coded_values(table, seed, 1500 + 7 * seed, rare)
    decoded = []
    for tier in TIERS:
        with force_tier(tier):
            decoded.append(values_of(decode_strings(table, strings_of(coded), len(coded), HERE)))
    assert decoded[0] == decoded[1]


@pytest.mark.parametrize("position", [*range(120, 136), 192, 255, 700])
@pytest.mark.parametrize("wrong", [[9], [255], [255, 255, 254]])
@pytest.mark.parametrize("tier", TIERS)
def test_one_wrong_code_among_many_is_refused(tier: Tier, wrong: list[int], position: int) -> None:
    codes = [at % len(TABLE.symbols) for at in range(position)] + wrong
    coded = [bytes(codes), bytes([0, 1, 2] * 300)]  # an escape must not reach into the next value
    with force_tier(tier), pytest.raises(CorruptFileError, match="symbol"):
        decode_strings(TABLE, strings_of(coded), 2, HERE)


@given(texts, st.sampled_from([32, 64]), st.integers(0, 3))
def test_values_come_back(given_values: list[bytes], bits: int, first: int) -> None:
    coded = []
    for tier in TIERS:
        with force_tier(tier):
            encoded_strings = encode_strings(
                TABLE, strings_of(given_values, bits, first), len(given_values)
            )
            back = decode_strings(TABLE, encoded_strings, len(given_values), HERE)
        assert values_of(back) == given_values
        assert back.offset_bits == bits
        coded.append(values_of(encoded_strings))
    assert coded[0] == coded[1]


@given(texts.map(lambda some: some * 5), st.sampled_from([32, 64]))
def test_values_come_back_from_chunks(given_values: list[bytes], bits: int) -> None:
    count = len(given_values)
    coded = encode_strings(TABLE, strings_of(given_values, bits), count)
    chunks = pack_variable(*coded, count, bits, target=64)
    starts = np.cumsum(chunks.sizes) - chunks.sizes
    for tier in TIERS:
        with force_tier(tier):
            back = decode_chunks(
                TABLE, pa.py_buffer(chunks.data), starts, chunks.sizes, chunks.counts, bits, HERE
            )
        assert values_of(back) == given_values


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("wrong", [bytes([0, 7]), bytes([254]), bytes([0, 255])])
@pytest.mark.spec("fsst-3")
def test_codes_without_a_symbol_or_byte_are_refused(tier: Tier, wrong: bytes) -> None:
    for coded in ([wrong], [bytes([0])] * 30 + [wrong, bytes([1])], [wrong, bytes([9])] * 300):
        count = len(coded)
        chunks = pack_variable(*strings_of(coded), count, 32, target=64)
        starts = np.cumsum(chunks.sizes) - chunks.sizes
        data = pa.py_buffer(chunks.data)
        with force_tier(tier), pytest.raises(CorruptFileError, match="FSST codes"):
            decode_strings(TABLE, strings_of(coded), count, HERE)
        with force_tier(tier), pytest.raises(CorruptFileError, match="FSST codes"):
            decode_chunks(TABLE, data, starts, chunks.sizes, chunks.counts, 32, HERE)


@pytest.mark.parametrize("tier", TIERS)
def test_damaged_chunks_are_refused(tier: Tier) -> None:
    chunks = pack_variable(*strings_of([bytes([0, 1])] * 64), 64, 32, target=64)
    starts = np.cumsum(chunks.sizes) - chunks.sizes
    rows = (starts, chunks.sizes, chunks.counts, 32, HERE)
    for at in (0, 4, 16):
        damaged = chunks.data.copy()
        damaged[starts[3] + at] = 77
        with force_tier(tier), pytest.raises(CorruptFileError):
            decode_chunks(TABLE, pa.py_buffer(damaged), *rows)
    with force_tier(tier), pytest.raises(CorruptFileError, match="variable-width values"):
        decode_chunks(TABLE, pa.py_buffer(chunks.data[:-1]), *rows)
    ends = np.arange(601, dtype=np.int32) * 10
    for wrong in (-(2**30), 2**30):
        ends[300] = wrong
        strings = Strings(pa.py_buffer(ends), 32, pa.py_buffer(bytes(6000)))
        with force_tier(tier), pytest.raises(CorruptFileError, match="FSST codes"):
            decode_strings(TABLE, strings, 600, HERE)
    with force_tier(tier), pytest.raises(CorruptFileError, match="wrong offsets"):
        decode_strings(TABLE, Strings(strings_of([b"aaa"]).offsets, 32, pa.py_buffer(b"")), 1, HERE)


@pytest.mark.parametrize("bits", [32, 64])
def test_text_that_grows_more_than_a_sample_promised_is_decoded(bits: int) -> None:
    # The beginning, which is looked at, is escapes; then every code becomes eight bytes.
    coded = [bytes([255, 120]) * 1024 + bytes([4]) * 4096] * 200
    back = decode_strings(TABLE, strings_of(coded, bits), 200, HERE)
    assert values_of(back) == [b"x" * 1024 + b"abcdefgh" * 4096] * 200
    assert back.offset_bits == bits


@pytest.mark.parametrize("every", [2, 5, 200])
def test_symbols_of_eight_bytes_are_decoded_whether_rare_or_frequent(every: int) -> None:
    # One code after the other at every place of a group of four: a symbol, eight bytes, an escape.
    codes = [bytes([4]) if n % every == 0 else bytes([n % 4]) for n in range(40_000)]
    codes[1_001::97] = [b"\xffx"] * len(codes[1_001::97])
    symbols = [TABLE.symbols[code[0]] if len(code) == 1 else b"x" for code in codes]
    runs = range(0, len(codes), 37)
    coded, expected = ([b"".join(part[n : n + 37]) for n in runs] for part in (codes, symbols))
    for tier in TIERS:
        with force_tier(tier):
            assert values_of(decode_strings(TABLE, strings_of(coded), len(coded), HERE)) == expected


def test_text_that_does_not_shrink_is_encoded() -> None:
    noise = np.random.default_rng(3).integers(0, 256, (400, 100), np.uint8)
    given_values = [row.tobytes() for row in noise]
    encoded_strings = encode_strings(TABLE, strings_of(given_values), 400)
    assert values_of(decode_strings(TABLE, encoded_strings, 400, HERE)) == given_values
    assert encoded_strings.data.size > 40_000


def encoded(table: SymbolTable, given_values: list[bytes], bits: int = 32) -> list[list[bytes]]:
    """What both tiers make of the values, once it is known that they come back."""
    results = []
    for tier in TIERS:
        with force_tier(tier):
            coded = encode_strings(table, strings_of(given_values, bits), len(given_values))
            back = decode_strings(table, coded, len(given_values), HERE)
        assert values_of(back) == given_values
        results.append(values_of(coded))
    return results


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    "size", [0, 64, 65, 16_000, 65_534, 65_535, 65_536, 70_000], ids="{}_bytes".format
)
def test_values_of_any_length_are_encoded_among_others(size: int, bits: int) -> None:
    others = sentences(2000)
    long = b"the nation than a".ljust(size, b"n")[:size]
    given_values = others[:1400] + [long] * 2 + others[1400:]
    one, two = encoded(TABLE, given_values, bits)
    assert one == two


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("position", [0, 17, 2999])
def test_the_byte_that_marks_ends_may_be_in_a_value(position: int) -> None:
    stop = TABLE.encoder.stop
    assert stop == 255
    given_values = sentences(3000)
    given_values[position] = bytes([stop]) + b"the " + bytes([stop, stop])
    one, two = encoded(TABLE, given_values)
    assert one == two
    assert one[position] == bytes([255, 255, 0, 255, 255, 255, 255])


def test_symbols_may_leave_no_byte_to_mark_ends() -> None:
    table = SymbolTable((*(bytes([byte, 255 - byte]) for byte in range(128)), b"the "))
    assert table.encoder.stop == -1
    one, two = encoded(table, sentences(3000))
    assert one == two


def test_many_empty_values_are_encoded() -> None:
    given_values = [b""] * 200_000
    given_values[70_000] = b"the nation"
    coded = encode_strings(TABLE, strings_of(given_values), 200_000)
    assert coded.data.to_pybytes() == bytes([0, 255, ord("n"), 2, 3])
    assert values_of(decode_strings(TABLE, coded, 200_000, HERE)) == given_values


def test_training_finds_the_same_symbols_in_both_tiers() -> None:
    text = strings_of(sentences(400))
    tables = []
    for tier in TIERS:
        with force_tier(tier):
            tables.append(train_symbols(sample_strings(text, 400)))
    assert tables[0] == tables[1]
    assert 0 < len(tables[0].symbols) <= 255
    assert SymbolTable.parse(tables[0].to_bytes(), HERE) == tables[0]


@given(texts.map(lambda some: some * 3))
def test_training_finds_the_same_symbols_in_any_text(given_values: list[bytes]) -> None:
    tables = []
    for tier in TIERS:
        with force_tier(tier):
            tables.append(train_symbols(strings_of(given_values, 64)))
    assert tables[0] == tables[1]


def test_trained_symbols_shrink_text_to_less_than_half() -> None:
    text = strings_of(sentences(3000))
    table = train_symbols(sample_strings(text, 3000))
    assert encode_strings(table, text, 3000).data.size < 0.5 * text.data.size


@given(texts)
def test_any_text_can_be_trained_on(given_values: list[bytes]) -> None:
    strings = strings_of(given_values)
    table = train_symbols(sample_strings(strings, len(given_values)))
    coded = encode_strings(table, strings, len(given_values))
    assert values_of(decode_strings(table, coded, len(given_values), HERE)) == given_values


def test_samples_are_small_and_windows_of_long_values() -> None:
    long = strings_of([bytes(range(256)) * 400] * 3 + [b"short"])
    assert max(map(len, values_of(sample_strings(long, 4)))) == 512
    for count, low, high in ((10, 0, 1000), (1000, 7000, 9000), (20_000, 15_000, 18_000)):
        sample = sample_strings(strings_of(sentences(count)), count)
        assert low < sample.data.size < high
