"""Numbers, blocks, positions and automata of full-text indices: there and back again."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traced import traced_peak

from glaive.errors import CorruptFileError
from glaive.index.text import tokens as fst_read
from glaive.index.text.postings import (
    Elements,
    Postings,
    best_scores,
    bits_of,
    blocks_of,
    encode_impacts,
    encode_positions,
    encode_postings,
    encode_varints,
    length_codes,
    pack,
    unpack,
)
from glaive.index.text.text_format import PostingLayout
from glaive.index.text.tokens import HEADER, VERSION, Fst, masked_crc32c, read_fst, write_fst
from glaive.kernels.text_search import decode_lists, decode_positions

LAYOUTS = [
    PostingLayout(128, fixed_tail=True),
    PostingLayout(128, fixed_tail=False),
    PostingLayout(256, fixed_tail=False),
]
U32 = st.integers(0, 2**32 - 1)


@pytest.mark.spec("text-7")
@given(st.lists(U32, max_size=40))
def test_varints_come_back(numbers: list[int]) -> None:
    data, sizes = encode_varints(np.array(numbers, np.int64))
    assert sizes.tolist() == [max(1, -(-number.bit_length() // 7)) for number in numbers]
    by_hand = [
        number >> 7 * at & 127 | 128 * (at < size - 1)
        for number, size in zip(numbers, sizes.tolist(), strict=True)
        for at in range(size)
    ]
    assert data.tolist() == by_hand


@pytest.mark.spec("text-8")
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("width", [0, 1, 3, 7, 8, 13, 16, 31, 32])
def test_packed_numbers_lie_in_lanes(lanes: int, width: int) -> None:
    random = np.random.default_rng(width)
    values = random.integers(0, 1 << width, (3, 32 * lanes))
    values[0] = (1 << width) - 1
    bits = np.full(3, width)
    data = np.zeros(3 * width * lanes * 4 + 5, np.uint8)
    starts = np.arange(3) * width * lanes * 4 + 5
    pack(values, bits, data, starts, lanes)
    assert unpack(data, starts, bits, lanes).tolist() == values.tolist()
    assert bits_of(values)[0] == width
    # Number 5 of the last block, found bit by bit.
    lane, place = 5 % lanes, 5 // lanes
    words = data[starts[2] :].view("<u4").reshape(-1, lanes)[:, lane] if width else []
    stream = sum(int(word) << (32 * at) for at, word in enumerate(words))
    assert stream >> (place * width) & ((1 << width) - 1) == values[2, 5]


def decoded(elements: Elements, starts: Any, layout: PostingLayout, where: str = "a test") -> Any:
    return decode_lists(
        elements.data, elements.offsets, starts, block=layout.block, fixed_tail=layout.fixed_tail,
        limit=5000, where=where,
    )  # fmt: skip


def postings_of(lengths: list[int], seed: int, often: int) -> Postings:
    random = np.random.default_rng(seed)
    documents = [np.sort(random.choice(5000, size, replace=False)) for size in lengths]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rare = random.random(int(starts[-1])) < 0.02
    frequencies = np.where(rare, random.integers(1, often + 1, len(rare)), 1)
    return Postings(starts, np.concatenate([*documents, []]).astype(np.int64), frequencies)


@given(
    lengths=st.lists(st.sampled_from([0, 1, 5, 127, 128, 129, 256, 300, 700]), max_size=6),
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 9),
    often=st.sampled_from([1, 200, 2**30]),
)
def test_postings_come_back(
    lengths: list[int], layout: PostingLayout, seed: int, often: int
) -> None:
    postings = postings_of(lengths, seed, often)
    best = np.arange(len(blocks_of(postings.starts, layout.block).sizes), dtype=np.float32)
    elements = encode_postings(postings, best, layout)
    documents, frequencies = decoded(elements, postings.starts, layout)
    assert documents.tolist() == postings.documents.tolist()
    assert frequencies.tolist() == postings.frequencies.tolist()
    if layout.scored and len(best):
        at = elements.offsets[:-1][:, None] + np.arange(4)
        assert elements.data[at].view("<f4").ravel().tolist() == best.tolist()


@pytest.mark.parametrize(("twice", "expected"), [(15, (1, 15)), (16, (2, 0)), (17, (2, 0))])
def test_frequencies_take_the_fewest_bytes(twice: int, expected: tuple[int, int]) -> None:
    # Sixteen exceptions are as long as one bit of all 256: pylance then takes the bit.
    frequencies = np.where(np.arange(256) < twice, 2, 1)
    postings = Postings(np.array([0, 256]), np.arange(256), frequencies)
    data = encode_postings(postings, np.zeros(1, np.float32), LAYOUTS[2]).data
    at = 4 + 1 + 32 * int(data[4])
    assert (data[at], data[at + 1]) == expected


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_damaged_postings_are_errors_or_other_numbers(layout: PostingLayout) -> None:
    postings = postings_of([300, 5, 0, 128, 1], 3, 5000)
    count = len(blocks_of(postings.starts, layout.block).sizes)
    elements = encode_postings(postings, np.zeros(count, np.float32), layout)
    random = np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        data = elements.data.copy()
        data[random.integers(0, len(data))] = random.integers(0, 256)
        offsets = elements.offsets.copy()
        if random.random() < 0.2:
            offsets[random.integers(1, len(offsets) - 1)] += random.integers(-3, 4)
            offsets = np.maximum.accumulate(np.clip(offsets, 0, len(data)))
        try:
            read, _ = decoded(Elements(offsets, data), postings.starts, layout, "a/b.lance")
        except CorruptFileError as error:
            assert "a/b.lance" in str(error)  # noqa: PT017  # not all damage is an error
            failed += 1
        else:
            assert len(read) == len(postings.documents)
    assert failed > 20


@given(counts=st.lists(st.sampled_from([0, 1, 127, 128, 300]), max_size=5), seed=st.integers(0, 9))
def test_positions_come_back(counts: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 3000, sum(counts))
    elements = encode_positions(values, np.array(counts, np.int64))
    # A list of one document each.
    starts = np.arange(len(counts) + 1)

    def read(often: list[int]) -> Any:
        frequencies = np.array(often, np.uint32)
        return decode_positions(
            elements.data, elements.offsets, starts, frequencies, block=128, where="a test"
        )

    begins, positions = read(counts)
    for first, last in pairwise(begins.tolist()):
        assert positions[first:last].tolist() == np.cumsum(values[first:last]).tolist()
    if counts and counts[-1] > 1:
        with pytest.raises(CorruptFileError, match="a test"):
            read([*counts[:-1], counts[-1] - 1])


@pytest.mark.spec("text-14")
def test_lengths_of_documents_in_one_byte() -> None:
    lengths = np.array([0, 7, 8, 9, 15, 16, 17, 18, 31, 32, 1000, 2**31], np.int64)
    expected = [0, 7, 8, 9, 15, 16, 16, 18, 30, 32, 960, 2**31]
    codes = length_codes(lengths)
    lowest = np.where(codes < 8, codes, ((codes & 7) | 8) << np.maximum((codes >> 3) - 1, 0))
    assert lowest.tolist() == expected
    assert length_codes(lengths).max() < 256


@pytest.mark.spec("text-11")
def test_scores_are_the_best_of_their_blocks() -> None:
    postings = postings_of([300, 2], 1, 20)
    lengths = np.random.default_rng(2).integers(1, 90, 5000)
    blocks = blocks_of(postings.starts, 128)
    by_block, best = best_scores(postings, blocks, lengths, int(lengths.sum()))
    mean = lengths.mean()
    scores = []
    for at, (begin, end) in enumerate(((0, 300), (300, 302))):
        rare = np.log((5000 - (end - begin) + 0.5) / ((end - begin) + 0.5) + 1)
        often = postings.frequencies[begin:end]
        long = lengths[postings.documents[begin:end]]
        scores.append(rare * 2.2 * often / (often + 1.2 * (0.25 + 0.75 * long / mean)))
        assert np.isclose(best[at], scores[at].max(), rtol=1e-5)
    parts = [scores[0][:128], scores[0][128:256], scores[0][256:], scores[1]]
    assert np.allclose(by_block, [part.max() for part in parts], rtol=1e-5)


@pytest.mark.spec("text-7", "text-12", "text-13")
def test_impacts_are_the_best_pairs_of_blocks_and_groups() -> None:
    postings = postings_of([128 * 33 + 7, 3], 4, 30)
    codes = np.random.default_rng(6).integers(1, 40, 5000)
    blocks = blocks_of(postings.starts, 128)
    elements, counts = encode_impacts(postings, blocks, codes)
    assert counts.tolist() == [34 + 2, 1 + 1]
    bounds = [*range(0, 128 * 33 + 1, 128), 128 * 33 + 7]
    spans = [*pairwise(bounds), (0, 128 * 32), (128 * 32, 4231)]
    spans += [(4231, 4234)] * 2
    for at, (begin, end) in enumerate(spans):
        data = elements.data[elements.offsets[at] : elements.offsets[at + 1]]
        last, pairs = _pairs(data.tobytes())
        assert last == postings.documents[end - 1]
        held = list(
            zip(
                postings.frequencies[begin:end].tolist(),
                codes[postings.documents[begin:end]].tolist(),
                strict=True,
            )
        )
        best = {
            pair
            for pair in held
            if not any(a >= pair[0] and b <= pair[1] and (a, b) != pair for a, b in held)
        }
        assert pairs == sorted(best)


def _pairs(data: bytes) -> tuple[int, list[tuple[int, int]]]:
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value

    last, count = number(), number()
    pairs, often, code = [], 0, 0
    for _ in range(count):
        step = number()
        often += (step >> 1) + 1
        code += data[at] if step & 1 else 1
        at += step & 1
        pairs.append((often, code))
    assert at == len(data)
    return last, pairs


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("byte", [0, 128])
def test_bytes_of_a_block_are_counted_before_they_are_numbers(byte: int) -> None:
    """They took 70 bytes of memory each."""
    data = np.full(10_000_000, byte, np.uint8)
    long = Elements(np.array([0, len(data)]), data)

    def read() -> None:
        for layout in LAYOUTS[1:]:
            with pytest.raises(CorruptFileError):
                decoded(long, np.array([0, 3]), layout)
        with pytest.raises(CorruptFileError):
            decode_positions(
                data, long.offsets, np.array([0, 1]), np.array([3], np.uint32), block=128, where="x"
            )

    assert traced_peak(read) < 1_000_000


def automaton(tokens: list[bytes], seed: int = 0) -> tuple[bytes, dict[bytes, int]]:
    numbers = np.random.default_rng(seed).permutation(len(tokens))
    data = write_fst(pa.array(tokens, pa.large_binary()), numbers)
    return data, dict(zip(tokens, numbers.tolist(), strict=True))


def read(data: bytes, count: int) -> dict[bytes, int]:
    texts, numbers = read_fst(pa.py_buffer(data), count, "a test")
    numbers_by_token: dict[Any, int] = dict(zip(texts.to_pylist(), numbers.tolist(), strict=True))
    return numbers_by_token


@given(tokens=st.sets(st.binary(max_size=9) | st.text("abc", max_size=9).map(str.encode)))
def test_automata_have_the_tokens_they_were_made_of(tokens: set[bytes]) -> None:
    data, expected = automaton(sorted(tokens))
    assert read(data, len(tokens)) == expected
    total = masked_crc32c(np.frombuffer(data[:-4], np.uint8))
    assert total == int.from_bytes(data[-4:], "little")


@pytest.mark.parametrize("letters", [33, 64, 255, 256])
def test_nodes_may_lead_on_by_many_letters(letters: int) -> None:
    tokens = [bytes([letter]) for letter in range(letters)]
    tokens += [b"\x01" + bytes([letter]) for letter in range(letters)]
    data, expected = automaton(sorted(tokens), 3)
    assert read(data, len(tokens)) == expected


@pytest.mark.spec("text-24")
def test_an_automaton_of_the_empty_token_alone_may_have_no_nodes() -> None:
    """As pylance writes that of texts that are empty, with the tokenizer `raw`."""
    head = VERSION.to_bytes(8, "little") + bytes(HEADER - 8)
    data = head + (1).to_bytes(8, "little") + bytes(8) + bytes.fromhex("c4679536")
    assert read(data, 1) == {b"": 0}
    assert masked_crc32c(np.frombuffer(data[:-4], np.uint8)) == int.from_bytes(data[-4:], "little")
    opened = Fst(pa.py_buffer(data), "a test")
    assert [opened.find(token) for token in (b"", b"a")] == [0, None]


def shared(doublings: int, letters: int) -> bytes:
    """An automaton of 2 ** doublings tokens with so many letters in common: a byte each."""
    data = bytearray(VERSION.to_bytes(8, "little") + bytes(HEADER - 8))
    data += bytes([0, 0x10, 128 | 1])  # a letter, and then the end
    data += bytes([192 | 1]) * letters
    data += bytes([1, 1, *b"ba", 0x10, 2]) * doublings  # two letters to the node before
    root = len(data) - 1
    return bytes(data) + struct.pack("<QQI", 1 << doublings, root, 0)


@pytest.mark.nightly(reason="reads tokens of many megabytes")
@pytest.mark.spec("rel-25")
def test_the_letters_of_a_few_long_tokens_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels: list[int] = []
    parse: Any = vars(fst_read)["_parse"]

    def counted(data: Any, addresses: Any, where: object) -> Any:
        levels.append(len(addresses))
        return parse(data, addresses, where)

    monkeypatch.setattr(fst_read, "_parse", counted)
    texts, _ = read_fst(pa.py_buffer(shared(2, 60_000)), 4, "a test")
    assert len(levels) < 10
    ends = {text.as_py()[2:] for text in texts}
    assert ends == {b"t" * 60_001}
    with pytest.raises(CorruptFileError, match="nodes on all paths"):
        read_fst(pa.py_buffer(shared(6, 20_000)), 64, "a test")


def test_long_tokens_come_back_whatever_they_share() -> None:
    long = "abcXÿ0" * 700
    tokens = [long, long[:2000], long[:2000] + "z", "b" + long, "b" + long + "c", "q" * 3000, ""]
    data, expected = automaton(sorted(token.encode() for token in tokens), 5)
    assert read(data, len(tokens)) == expected


@pytest.mark.spec("rel-24", "rel-25")
def test_few_nodes_that_stand_for_many_long_tokens_are_refused() -> None:
    assert len(read_fst(pa.py_buffer(shared(3, 5)), 8, "a test")[0]) == 8
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFileError, match="nodes on all paths"):
            read_fst(pa.py_buffer(shared(18, 1000)), 1 << 18, "a test")
        # 262,144 tokens of 1,000 letters.
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()


def test_nodes_of_many_letters_have_an_index_of_them() -> None:
    tokens = [bytes([2 * letter]) for letter in range(40)]
    data, _ = automaton(tokens)
    root = int.from_bytes(data[-12:-4], "little")
    index = list(data[root - 1 - 256 : root - 1])
    assert index == [at // 2 if at % 2 == 0 and at < 80 else 255 for at in range(256)]


def test_many_and_long_tokens() -> None:
    tokens = sorted(
        {b"%d" % (number * number) for number in range(3000)} | {b"x" * 3000, b"x" * 2999}
    )
    data, expected = automaton(tokens)
    assert read(data, len(tokens)) == expected


def test_damaged_automata_are_errors_or_other_tokens() -> None:
    tokens = sorted({b"word%d" % number for number in range(200)})
    data, _ = automaton(tokens)
    random = np.random.default_rng(1)
    failed = 0
    for _ in range(400):
        raw = bytearray(data)
        raw[random.integers(0, len(raw))] = random.integers(0, 256)
        try:
            decoded = read(bytes(raw), len(tokens))
        except CorruptFileError:
            failed += 1
        else:
            assert len(decoded) <= len(tokens)
    assert failed > 50
    for size in (0, 16, 40):
        with pytest.raises(CorruptFileError, match="token set"):
            read(data[:size], len(tokens))


@pytest.mark.spec("text-24")
@pytest.mark.parametrize(
    ("data", "total"),
    [
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_the_known_one(data: bytes, total: int) -> None:
    expected = ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFF_FFFF
    assert masked_crc32c(np.frombuffer(data, np.uint8)) == expected


@pytest.mark.spec("text-24")
def test_the_checksum_is_that_of_one_bit_after_the_other() -> None:
    for size in (*range(4, 40), 999, 5000):
        data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
        total = 0xFFFF_FFFF
        for byte in data.tolist():
            total ^= byte
            for _ in range(8):
                total = total >> 1 ^ 0x82F63B78 * (total & 1)
        total ^= 0xFFFF_FFFF
        assert masked_crc32c(data) == ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFF_FFFF
