"""Arguments of kernels over strings: see :mod:`glaive.kernels.records`."""

from __future__ import annotations

from glaive.named_tuple import NamedTuple


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


# --- Arguments of the kernels of full-text search, by name: see ``glaive.kernels.records``


class DecodePostings(NamedTuple):
    """A posting list to be decoded: ``blocks`` byte strings, which begin and end at ``offsets``.

    ``documents`` and ``frequencies`` are ``uint32`` arrays of ``length`` items; documents are
    below ``limit``.
    """

    data: int
    offsets: int
    blocks: int
    length: int
    block: int
    fixed_tail: int
    limit: int
    documents: int
    frequencies: int


class DecodePositions(NamedTuple):
    """Positions of a posting list, in byte strings of a block of documents each.

    ``frequencies`` and ``into`` are ``uint32`` arrays; ``into`` has as many items as the sum of
    the frequencies.
    """

    data: int
    offsets: int
    blocks: int
    length: int
    block: int
    group: int
    frequencies: int
    into: int


class TermEntry(NamedTuple):
    """A posting list to be searched: ``length`` documents with weights, and bounds of blocks.

    ``documents`` and ``lasts`` are ``uint32`` arrays, ``weights`` and ``bests`` ``float32``.
    """

    documents: int
    weights: int
    lasts: int
    bests: int
    length: int


class PhraseEntry(NamedTuple):
    """A term of a phrase: its list, and where it stands in each document.

    Document i has ``positions`` from ``starts[i]`` to ``starts[i + 1]``, of ``total``; ``offset``
    is the place of the term in the phrase.
    """

    list: int
    starts: int
    positions: int
    total: int
    offset: int


class TopAny(NamedTuple):
    """A search for the ``most`` best documents with any of some terms.

    ``lists`` has a :class:`TermEntry` for each term. ``factors``, ``bounds`` and ``sums`` are
    ``float64`` arrays; after the factors comes the score that has to be exceeded. ``allowed`` has
    a byte for each of ``limit`` documents, or is 0. ``window`` has a ``float64`` of 0 for each
    document of a window; of ``sums`` there is one more than there are terms.
    """

    lists: int
    terms: int
    factors: int
    allowed: int
    limit: int
    most: int
    scores: int
    documents: int
    cursors: int
    order: int
    bounds: int
    sums: int
    window: int


class TopAll(NamedTuple):
    """A search for the ``most`` best documents with all of some terms, or with a phrase.

    As :class:`TopAny`. ``phrase`` has a :class:`PhraseEntry` for each of ``phrase_terms``;
    ``reached``, room for twice ``capacity`` numbers.
    """

    lists: int
    terms: int
    factors: int
    allowed: int
    limit: int
    most: int
    scores: int
    documents: int
    cursors: int
    bounds: int
    phrase: int
    phrase_terms: int
    reached: int
    capacity: int
    slop: int
