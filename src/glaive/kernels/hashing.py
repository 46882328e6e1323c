"""Number distinct values: the items of a dictionary, and an index for every value.

Items are numbered in the order of their first appearance. Counting stops when the items, or
their bytes, are more than the caller accepts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, SchemaError
from glaive.kernels._addresses import address, outside
from glaive.kernels.native import hashing as hashing_loops
from glaive.kernels.strings import Strings, _gather_strings, as_offsets, check_offsets
from glaive.process import hash_secret
from glaive.types import Int64s, UInt8s, UInt16s, UInt32s, UInt64s, allocate, as_array, as_buffer

# --- XXH64 of many byte strings at once, as filters of inserted keys and signatures hash them
#
# The function of Yann Collet: four lanes of 64 bits take 32 bytes at a time and are merged. Strings
# below 32 bytes skip the lanes. The remaining bytes follow as words of 8 bytes, a word of 4
# and single bytes, and a final mix.


def hash_strings(strings: Strings, count: int) -> UInt64s:
    """Return the hash of each of ``count`` byte strings, with seed 0.

    Raises
    ------
    SchemaError
        The offsets descend, or leave the data.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
    return hash_ranges(data, ends[:-1], np.diff(ends), 0)


def hash_ranges(data: pa.Buffer, starts: Int64s, sizes: Int64s, seed: int) -> UInt64s:
    """Return the hash of each range of bytes; ranges may overlap.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(ranges,)``: first byte and number of bytes of each range.
    seed
        From 0 to 2^63 - 1.

    Raises
    ------
    SchemaError
        A range leaves the data.
    """
    wrong = outside(starts, sizes, data.size)
    if np.count_nonzero(wrong):
        bad = int(wrong.argmax())
        raise SchemaError(
            f"{sizes[bad]} bytes at {starts[bad]} to be hashed leave their {data.size} bytes"
        )
    count = min(len(starts), len(sizes))
    starts, sizes = (np.ascontiguousarray(part, np.int64) for part in (starts, sizes))
    hashes = np.empty(count, np.uint64)
    if count:
        places = address(data), address(starts), address(sizes)
        hashing_loops.hash_ranges(*places, count, seed, address(hashes))
    return hashes


_MIN_SLOTS = 8192
"""Slots for few items: ``SPARSE_SLOTS`` of the kernels."""


class NumberedStrings(NamedTuple):
    """32-bit indices, the distinct strings, and their number."""

    indices: pa.Buffer
    items: Strings
    number: int


class Numbered(NamedTuple):
    """32-bit indices, the distinct values back to back, and their number."""

    indices: pa.Buffer
    items: pa.Buffer
    number: int


def number_strings(
    strings: Strings, count: int, max_items: int, max_bytes: int
) -> NumberedStrings | None:
    """Number ``count`` strings with one hash and one comparison per value.

    Parameters
    ----------
    strings, count
        Offsets and bytes, and the number of strings to number.
    max_items, max_bytes
        Maximum distinct strings, and their bytes; with more the result is ``None``.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    slots, hashes, firsts = _tables(count, max_items)
    indices = allocate(4 * count)
    number = hashing_loops.number_strings(
        offsets=address(offsets), width=bits // 8, data=address(data), data_size=data.size,
        strings=count, max_items=max_items, max_bytes=max_bytes, slots=address(slots),
        hashes=address(hashes), firsts=address(firsts), indices=address(indices),
        secret=hash_secret(),
    )  # fmt: skip
    if number < 0:
        return None
    return NumberedStrings(indices, select_strings(strings, firsts[:number]), number)


def number_words(values: pa.Buffer, bits: int, count: int, max_items: int) -> Numbered | None:
    """Number ``count`` values of 16, 32, 64 or 128 bits.

    Parameters
    ----------
    values
        ``count`` values of ``bits`` bits.
    bits
        16, 32, 64 or 128. Narrow values are widened to 64 bits first.
    count
        Number of values.
    max_items
        Maximum distinct values; with more the result is ``None``.
    """
    if bits in (16, 32):
        narrow = f"<u{bits // 8}"
        words = pa.py_buffer(as_array(values, narrow)[:count].astype(np.uint64).data)
        found = number_words(words, 64, count, max_items)
        if found is None:
            return None
        items = as_array(found.items, np.uint64).astype(narrow)
        return found._replace(items=pa.py_buffer(items.data))
    if bits not in (64, 128) or values.size < count * bits // 8:
        raise SchemaError(
            f"dictionaries of fixed width take values of 16 to 128 bits, found {count} of "
            f"{bits} bits in {values.size} bytes"
        )
    tables = _tables(count, max_items)
    indices = allocate(4 * count)
    source = [address(values), bits // 64, count, max_items]
    results = [*(address(array) for array in (*tables, as_array(indices))), hash_secret()]
    number = hashing_loops.number_words(*source, *results)
    if number < 0:
        return None
    rows = as_array(values, np.dtype((np.void, bits // 8)))
    return Numbered(indices, pa.py_buffer(rows[tables[2][:number]].tobytes()), number)


def select_strings(strings: Strings, rows: Int64s) -> Strings:
    """Copy the strings at ``rows``, which the caller has checked.

    Raises
    ------
    SchemaError
        The offsets of a string descend or leave the data.
    """
    ends = as_offsets(strings.offsets, strings.offset_bits)
    starts = ends[rows].astype(np.int64)
    return copy_ranges(strings.data, starts, ends[rows + 1] - starts, strings.offset_bits)


def copy_ranges(data: pa.Buffer, starts: Int64s, sizes: Int64s, offset_bits: int) -> Strings:
    """Copy ranges of ``data`` as strings.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(strings,)``: first byte and number of bytes of each string.
    offset_bits
        Width of the offsets; 64 is used where 32 is too little.

    Raises
    ------
    SchemaError
        A range leaves ``data``: the offsets it comes from are damaged.
    """
    wrong = outside(starts, sizes, data.size)
    if np.count_nonzero(wrong):
        bad = int(wrong.argmax())
        raise SchemaError(
            f"a string of {sizes[bad]} bytes at {starts[bad]} leaves its {data.size} bytes: "
            "validate the array with array.validate(full=True)"
        )
    return _gather_strings(data, starts, sizes.cumsum(), offset_bits)


def _tables(count: int, max_items: int) -> tuple[UInt32s, UInt64s, Int64s]:
    """Allocate slots, hashes and first rows for the worst case; only used pages take memory."""
    items = min(max_items, count)
    slots = max(_MIN_SLOTS, 1 << max(2 * items - 1, 1).bit_length())
    return np.empty(slots, np.uint32), np.empty(items + 1, np.uint64), np.empty(items + 1, np.int64)


# --- Hash tables of 64-bit words and of strings: the number of a key, if a table has it --
#
# If several keys are equal, the first is found. The tables of compiled kernels use open addressing
# with at least two slots per key, so that a search reads little more than one slot.

_MAX_KEYS: Final = 2**31 - 1
"""Slots hold numbers of 32 bits."""


class WordTable:
    """Words, and the first number of each.

    Raises
    ------
    SchemaError
        There are 2^31 words or more.
    """

    def __init__(self, words: UInt64s) -> None:
        self.words = np.ascontiguousarray(words, np.uint64)
        self.secret = hash_secret()
        self._built: list[tuple[UInt32s, Int64s]] = []
        _check_count(len(self.words))

    @property
    def firsts(self) -> Int64s:
        """The number of the first word equal to each word of the table."""
        return self._entered[1]

    def find(self, words: UInt64s) -> Int64s:
        """Return the number of the first word equal to each given word, or -1."""
        words = np.ascontiguousarray(words, np.uint64)
        if not len(self.words):
            return np.full(len(words), -1, np.int64)
        slots, _ = self._entered
        numbers = np.empty(len(words), np.int64)
        bits = len(slots).bit_length() - 1
        if len(words):
            hashing_loops.find_words(
                address(self.words), address(slots), bits, address(words), len(words),
                address(numbers), self.secret,
            )  # fmt: skip
        return numbers

    @property
    def slots(self) -> UInt32s:
        """The slots of the compiled table; their number is a power of two."""
        return self._entered[0]

    @property
    def _entered(self) -> tuple[UInt32s, Int64s]:
        if not self._built:
            # Several threads may build a table at once. All of these tables stay alive, because
            # running kernels read them by address; from now on the first is used.
            self._built.append(self._enter())
        return self._built[0]

    def _enter(self) -> tuple[UInt32s, Int64s]:
        count = len(self.words)
        slots, bits = _slots(count)
        firsts = np.empty(count, np.int64)
        if count:
            hashing_loops.build_words(
                address(self.words), count, address(slots), bits, address(firsts), self.secret
            )
        return slots, firsts


class StringTable:
    """Byte strings, and the first number of each.

    Raises
    ------
    SchemaError
        There are 2^31 strings or more, or their offsets descend or leave the data.
    """

    def __init__(self, strings: Strings, count: int) -> None:
        _check_count(count)
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        self.strings, self.count, self._secret = strings, count, hash_secret()

    @property
    def firsts(self) -> Int64s:
        """The number of the first string equal to each string of the table."""
        return self._entered[2]

    def find(self, queries: Strings, count: int) -> Int64s:
        """Return the number of the first string equal to each query, or -1.

        Raises
        ------
        SchemaError
            The offsets descend, or leave the data.
        """
        check_offsets(queries.offsets, queries.offset_bits, queries.data, count)
        slots, hashes, _, prefilter = self._entered
        numbers = np.empty(count, np.int64)
        if count:
            offsets, width, data, _ = _addresses(self.strings)
            query_offsets, query_width, query_data, query_end = _addresses(queries)
            hashing_loops.find_strings(
                offsets=offsets, width=width, data=data, hashes=address(hashes),
                slots=address(slots), bits=len(slots).bit_length() - 1,
                prefilter=address(prefilter), queries=query_offsets, query_width=query_width,
                query_data=query_data, query_end=query_end, query_count=count,
                target=address(numbers), secret=self._secret,
            )  # fmt: skip
        return numbers

    @cached_property
    def _entered(self) -> tuple[UInt32s, UInt64s, Int64s, UInt8s]:
        slots, bits = _slots(self.count)
        hashes, firsts = np.empty(self.count, np.uint64), np.empty(self.count, np.int64)
        prefilter = np.zeros(len(slots), np.uint8)
        if self.count:
            hashing_loops.build_strings(
                *_addresses(self.strings), self.count, address(hashes), address(slots), bits,
                address(prefilter), address(firsts), self._secret,
            )  # fmt: skip
        return slots, hashes, firsts, prefilter


def _check_count(count: int) -> None:
    if count > _MAX_KEYS:
        raise SchemaError(f"{count} keys are more than the {_MAX_KEYS} that a table can hold")


def _slots(count: int) -> tuple[UInt32s, int]:
    """Return free slots for ``count`` keys, and the binary logarithm of their number."""
    bits = max(3, (2 * count - 1).bit_length()) if count else 3
    return np.zeros(1 << bits, np.uint32), bits


def _addresses(strings: Strings) -> tuple[int, int, int, int]:
    data = address(strings.data)
    return address(strings.offsets), strings.offset_bits // 8, data, data + strings.data.size


# --- Number byte strings in the order of their first appearance, across many calls ------

_FIRST_ITEMS: Final = 512
_FIRST_BYTES: Final = 8192
_MAX_ITEMS: Final = 1 << 31


class Vocabulary:
    """Distinct byte strings, numbered from 0. Use an instance in one thread only."""

    def __init__(self) -> None:
        self._slots: UInt32s = np.zeros(2 * _FIRST_ITEMS, np.uint32)
        self._hashes: UInt64s = np.zeros(_FIRST_ITEMS, np.uint64)
        self._ends: Int64s = np.zeros(_FIRST_ITEMS + 1, np.int64)
        self._pool: UInt8s = np.zeros(_FIRST_BYTES, np.uint8)
        self._items = np.zeros(1, np.int64)
        self._secret = hash_secret()

    def __len__(self) -> int:
        return int(self._items[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        arrays = (self._slots, self._hashes, self._ends, self._pool)
        return sum(array.nbytes for array in arrays)

    def strings(self, first: int = 0) -> pa.Array:
        """Return a copy of the items from ``first`` on, as ``large_binary``."""
        ends = self._ends[first : len(self) + 1]
        data = self._pool[int(ends[0]) : int(ends[-1])].copy()
        buffers = [None, as_buffer(ends - ends[0]), as_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)

    def number(self, data: pa.Buffer, starts: Int64s, sizes: UInt32s) -> UInt32s:
        """Return the numbers of byte strings, ``uint32``; new strings get the next numbers.

        Parameters
        ----------
        data
            Memory of all strings.
        starts, sizes
            First byte of each string, ``int64``, and its number of bytes, ``uint32``.

        Raises
        ------
        SchemaError
            A string leaves ``data``.
        CapacityError
            There are 2^31 distinct strings.
        """
        if len(starts) != len(sizes):
            raise SchemaError(f"{len(starts)} starts for {len(sizes)} sizes")
        if outside(starts, sizes.astype(np.int64), data.size).any():
            raise SchemaError(f"tokens that leave their {data.size} bytes of text")
        starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
        numbers = np.empty(len(starts), np.uint32)
        first = 0
        while first < len(starts):
            first = hashing_loops.number_ranges(
                data=address(data), data_size=data.size, starts=address(starts),
                sizes=address(sizes), first=first, stop=len(starts), slots=address(self._slots),
                slot_count=len(self._slots), hashes=address(self._hashes),
                ends=address(self._ends), max_items=len(self._hashes), pool=address(self._pool),
                pool_size=len(self._pool), items=address(self._items), numbers=address(numbers),
                secret=self._secret,
            )  # fmt: skip
            if first < len(starts):
                self._grow(int(sizes[first]))
        return numbers

    def _grow(self, size: int) -> None:
        """Make room for another item of ``size`` bytes."""
        known = len(self)
        used = int(self._ends[known])
        if size > len(self._pool) - used:
            pool = np.zeros(max(2 * len(self._pool), used + size), np.uint8)
            pool[:used] = self._pool[:used]
            self._pool = pool
        capacity = len(self._hashes)
        if known < capacity:
            return
        if 2 * capacity > _MAX_ITEMS:
            raise CapacityError.of(known + 1, "distinct tokens", where="an index")
        self._hashes = np.concatenate((self._hashes, np.zeros(capacity, np.uint64)))
        self._ends = np.concatenate((self._ends, np.zeros(capacity, np.int64)))
        self._slots = np.zeros(4 * capacity, np.uint32)
        hashes = address(self._hashes)
        hashing_loops.rehash(address(self._slots), len(self._slots), hashes, known)


# --- Sort the tokens of documents by token: from the tokens of each document to the reverse


class Inversion(NamedTuple):
    """The documents of each token.

    Parameters
    ----------
    starts
        ``int64``: the start of each token's documents, and the end of the last.
    documents, frequencies
        ``uint32``: documents, ascending for each token, and the token's frequency in each.
    positions
        ``uint32``: position for each token, document and occurrence, or ``None``.
    """

    starts: Int64s
    documents: UInt32s
    frequencies: UInt32s
    positions: UInt32s | None

    def position_starts(self) -> Int64s:
        """Return the start of each token's positions, and the end of the last."""
        before = np.concatenate(([0], self.frequencies.cumsum(dtype=np.int64)))
        starts: Int64s = before[self.starts]
        return starts


def invert_tokens(
    numbers: UInt32s, counts: Int64s, distinct: int, positions: UInt32s | None = None
) -> Inversion:
    """Sort tokens by their number, stably; a kernel takes a few steps for each.

    Parameters
    ----------
    numbers
        Number of each token, below ``distinct``, document by document.
    counts
        Number of tokens in each document.
    distinct
        Number of distinct tokens.
    positions
        Position of each token in its document, or ``None``.

    Raises
    ------
    SchemaError
        The arguments contradict each other.
    """
    known = counts.min(initial=0) >= 0 and int(counts.sum()) == len(numbers)
    if not known or int(numbers.max(initial=0)) >= max(distinct, 1) or len(counts) >= 1 << 32:
        raise SchemaError(f"{len(numbers)} tokens do not fit the counts of {len(counts)} documents")
    if len(numbers) and not distinct:
        raise SchemaError(f"{len(numbers)} tokens of a vocabulary without tokens")
    if positions is not None and len(positions) != len(numbers):
        raise SchemaError(f"{len(positions)} positions of {len(numbers)} tokens")
    numbers, counts = np.ascontiguousarray(numbers), np.ascontiguousarray(counts)
    last, totals = np.zeros(distinct, np.uint32), np.zeros(distinct, np.int64)
    hashing_loops.count_documents(
        address(numbers), address(counts), len(counts), address(last), address(totals)
    )
    starts = np.concatenate(([0], totals.cumsum())).astype(np.int64)
    ends = starts[:-1].copy()
    last[:] = 0
    documents = np.empty(int(starts[-1]), np.uint32)
    frequencies = np.empty(int(starts[-1]), np.uint32)
    places = [0, 0, 0]
    out = None
    if positions is not None:
        positions, out = np.ascontiguousarray(positions), np.empty(len(numbers), np.uint32)
        sizes = np.bincount(numbers, minlength=distinct)
        position_ends = (sizes.cumsum() - sizes).astype(np.int64)
        places = [address(array) for array in (positions, position_ends, out)]
    hashing_loops.invert_tokens(
        numbers=address(numbers), counts=address(counts), documents=len(counts),
        last=address(last), ends=address(ends), ids=address(documents),
        frequencies=address(frequencies), positions=places[0], position_ends=places[1],
        sorted_positions=places[2],
    )  # fmt: skip
    return Inversion(starts, documents, frequencies, out)


# --- MinHash signatures of texts by the hashes of their shingles ------------------------
#
# A value of a signature is the least hash after a permutation, mixed and cut to 16 bits. The
# probability that two texts have the same value is the share of shingles that they have in common.


class Permutations(NamedTuple):
    """Numbers of permutations, one for each value of a signature, all modulo 2^64.

    Parameters
    ----------
    factors, terms
        A hash is multiplied by its factor, which is odd, and then its term is added.
    mixers
        Factors for the least result, before its upper 16 bits are taken.
    """

    factors: UInt64s
    terms: UInt64s
    mixers: UInt64s


def sign(hashes: UInt64s, bounds: Int64s, permutations: Permutations) -> UInt16s:
    """Return the signature of each text.

    Parameters
    ----------
    hashes
        Hashes of the shingles, text by text.
    bounds
        ``int64`` of shape ``(texts + 1,)``: the first hash of each text, and the end of the
        last text. Each text has at least one hash.

    Returns
    -------
    numpy.ndarray
        ``uint16`` of shape ``(texts, values)``.

    Raises
    ------
    SchemaError
        The bounds descend or leave the hashes, or permutations differ in length.
    """
    values = len(permutations.factors)
    if any(len(numbers) != values for numbers in permutations):
        raise SchemaError(f"permutations need three times {values} numbers")
    texts = max(0, len(bounds) - 1)
    if texts and not (
        bounds[0] >= 0 and bounds[-1] <= len(hashes) and bool((bounds[1:] > bounds[:-1]).all())
    ):
        raise SchemaError(f"bounds of texts must ascend within their {len(hashes)} hashes")
    signatures = np.empty((texts, values), np.uint16)
    if not signatures.size:
        return signatures
    numbers = [np.ascontiguousarray(part, np.uint64) for part in permutations]
    hashes, bounds = np.ascontiguousarray(hashes), np.ascontiguousarray(bounds, np.int64)
    factors, terms, mixers = map(address, numbers)
    places = address(hashes), address(bounds)
    hashing_loops.sign(*places, texts, factors, terms, mixers, values, address(signatures))
    return signatures
