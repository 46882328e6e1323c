"""Arguments of kernels over strings: see :mod:`glaive.kernels.records`."""

from __future__ import annotations

from glaive.named_tuple import NamedTuple

__all__ = [
    "Candidate",
    "CompactVariable",
    "DecodeFsst",
    "DecodeFsstPages",
    "DecodeState",
    "EncodeFsst",
    "FindPattern",
    "FindStrings",
    "FindTokens",
    "InvertTokens",
    "LocateRows",
    "NumberRanges",
    "NumberStrings",
    "ReadText",
    "SearchFsst",
    "SortSuffixes",
    "SymbolSlot",
    "TakeItems",
    "TrainRound",
    "UnpackOffsets",
]


class DecodeState(NamedTuple):
    """How far decoding has come, in memory: a kernel resumes there with a larger output."""

    chunk: int
    values: int
    size: int


class DecodeFsst(NamedTuple):
    """For ``fsst.decode``."""

    offsets: int
    data: int
    offset_starts: int
    bases: int
    floors: int
    limits: int
    counts: int
    chunks: int
    width: int
    symbols: int
    sizes: int
    packed: int
    checkpoints: int
    max_stream: int
    out_width: int
    out_offsets: int
    out: int
    capacity: int
    state: int


class EncodeFsst(NamedTuple):
    """For ``fsst_encode.encode``."""

    offsets: int
    width: int
    data: int
    data_end: int
    first: int
    values: int
    tables: int
    stop: int
    scratch: int
    batch: int
    ends: int
    out: int
    capacity: int
    state: int


class DecodeFsstPages(NamedTuple):
    """For ``fsst_pages.decode_pages``."""

    offsets: int
    data: int
    offset_starts: int
    bases: int
    floors: int
    limits: int
    counts: int
    ends: int
    pages: int
    tables: int
    width: int
    packed: int
    checkpoints: int
    max_stream: int
    out_width: int
    out_offsets: int
    out: int
    capacity: int
    state: int


class TrainRound(NamedTuple):
    """A round of training, in memory: values encoded, least occurrences, tenths a pair weighs."""

    values: int
    min_count: int
    pair_weight: int


class Candidate(NamedTuple):
    """A candidate for a symbol, in memory: its bytes as a number, how many, and its gain."""

    word: int
    size: int
    gain: int


class SymbolSlot(NamedTuple):
    """A slot of a trained table, in memory: the symbol, the bits that count, and its entry."""

    word: int
    mask: int
    entry: int


class SearchFsst(NamedTuple):
    """For ``fsst_search.search_chunks``."""

    data: int
    starts: int
    chunk_sizes: int
    counts: int
    chunks: int
    width: int
    symbols: int
    sizes: int
    packed: int
    checkpoints: int
    scratch: int
    patterns: int
    pattern_sizes: int
    pattern_count: int
    begins: int
    ends: int
    target: int


class NumberStrings(NamedTuple):
    """For ``hashing.number_strings``."""

    offsets: int
    width: int
    data: int
    data_size: int
    strings: int
    max_items: int
    max_bytes: int
    slots: int
    hashes: int
    firsts: int
    indices: int
    secret: int


class CompactVariable(NamedTuple):
    """For ``compact.compact_variable``."""

    offsets: int
    width: int
    data: int
    data_size: int
    rows: int
    deleted: int
    deleted_count: int
    base: int
    out_offsets: int
    out: int
    capacity: int


class FindStrings(NamedTuple):
    """For ``lookup.find_strings``."""

    offsets: int
    width: int
    data: int
    hashes: int
    slots: int
    bits: int
    prefilter: int
    queries: int
    query_width: int
    query_data: int
    query_count: int
    target: int
    secret: int


class TakeItems(NamedTuple):
    """For ``offsets.take_items``: ``n`` indices of ``word`` bytes, and ``items`` strings.

    Offsets have ``width`` bytes; ``size`` is that of the items' bytes, ``room`` that of ``out``.
    """

    indices: int
    word: int
    n: int
    offsets: int
    width: int
    items: int
    data: int
    size: int
    out_offsets: int
    out: int
    room: int


class UnpackOffsets(NamedTuple):
    """For ``offsets.unpack``."""

    data: int
    offset_starts: int
    bases: int
    floors: int
    limits: int
    counts: int
    chunks: int
    width: int
    out_width: int
    out_offsets: int
    out: int
    capacity: int


class FindTokens(NamedTuple):
    """For ``token_bounds.find_tokens``."""

    offsets: int
    width: int
    data: int
    documents: int
    parts: int
    starts: int
    sizes: int
    counts: int


class NumberRanges(NamedTuple):
    """For ``vocabulary.number_ranges``."""

    data: int
    data_size: int
    starts: int
    sizes: int
    first: int
    stop: int
    slots: int
    slot_count: int
    hashes: int
    ends: int
    max_items: int
    pool: int
    pool_size: int
    items: int
    numbers: int
    secret: int


class InvertTokens(NamedTuple):
    """For ``inverting.invert_tokens``."""

    numbers: int
    counts: int
    documents: int
    last: int
    ends: int
    ids: int
    frequencies: int
    positions: int
    position_ends: int
    sorted_positions: int


class FindPattern(NamedTuple):
    """For ``wavelet.find_pattern``."""

    pattern: int
    length: int
    words: int
    ranks: int
    nodes: int
    counts: int
    path_starts: int
    paths: int
    rows: int
    found: int


class LocateRows(NamedTuple):
    """For ``wavelet.locate_rows``."""

    first: int
    stop: int
    words: int
    ranks: int
    nodes: int
    counts: int
    rows: int
    samples: int
    shift: int
    most_steps: int
    positions: int


class ReadText(NamedTuple):
    """For ``wavelet.read_text``."""

    words: int
    ranks: int
    nodes: int
    counts: int
    rows: int
    text: int


class SortSuffixes(NamedTuple):
    """For ``suffixes.sort_substrings`` and ``suffixes.sort_suffixes``."""

    text: int
    width: int
    size: int
    symbols: int
    starts: int
    heads: int
    minima: int
    found_count: int
    names: int
    order: int
