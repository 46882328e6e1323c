"""Records that kernels over strings are called with: see :mod:`glaive.kernels.records`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "DecodeFsst",
    "DecodeFsstPages",
    "DecodeState",
    "EncodeFsst",
    "FindTexts",
    "KeepVariable",
    "NumberStrings",
    "SearchFsst",
    "UnpackOffsets",
]


class DecodeState(NamedTuple):
    """What decoding has done, in memory: a kernel goes on there when it has more room."""

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
    marks: int
    most: int
    out_width: int
    out_offsets: int
    out: int
    room: int
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
    room: int
    state: int


class DecodeFsstPages(NamedTuple):
    """For ``fsst_pages.decode_pages``."""

    data: int
    starts: int
    floors: int
    limits: int
    counts: int
    ends: int
    pages: int
    tables: int
    width: int
    marks: int
    most: int
    out_width: int
    out_offsets: int
    out: int
    room: int
    state: int


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
    marks: int
    scratch: int
    words: int
    word_sizes: int
    number: int
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
    most: int
    most_bytes: int
    slots: int
    hashes: int
    firsts: int
    indices: int


class KeepVariable(NamedTuple):
    """For ``keep.keep_variable``."""

    offsets: int
    width: int
    data: int
    data_size: int
    rows: int
    gone: int
    gone_count: int
    base: int
    out_offsets: int
    out: int
    room: int


class FindTexts(NamedTuple):
    """For ``lookup.find_texts``."""

    offsets: int
    width: int
    data: int
    hashes: int
    slots: int
    bits: int
    sieve: int
    asked: int
    asked_width: int
    asked_data: int
    asked_count: int
    target: int


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
    room: int
