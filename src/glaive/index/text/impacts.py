"""Impacts: for each block of documents the best pairs of frequency and length, which bound scores.

Specification: "Impacts" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.arrow.buffers import spread
from glaive.index.text.postings import Blocks, Elements, Postings
from glaive.index.text.varints import encode_varints
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["encode_impacts"]

_GROUP = 32
"""Blocks of a group."""


_MAX_FREQUENCY = np.int64(0xFFFF_FFFF)
"""Largest frequency."""


class _Pairs(NamedTuple):
    """Pairs of several sets, one set after the other, frequencies ascending in each."""

    of: Int64s
    frequencies: Int64s
    codes: Int64s


def encode_impacts(postings: Postings, blocks: Blocks, codes: Int64s) -> tuple[Elements, Int64s]:
    """Impacts of each list: of its blocks, then of groups of 32 blocks; and how many it has.

    Parameters
    ----------
    codes
        Lengths of the documents, as one byte each.
    """
    last = postings.documents[blocks.begins + blocks.sizes - 1].astype(np.int64)
    fine = _best_of_blocks(postings, blocks, codes)
    groups = -(-blocks.of_list // _GROUP)
    first = np.cumsum(groups) - groups
    within = spread(np.zeros(len(groups), np.int64), blocks.of_list)
    group = np.repeat(first, blocks.of_list) + within // _GROUP
    count = int(groups.sum())
    coarse = _best(_Pairs(group[fine.of], fine.frequencies, fine.codes))
    ends = np.flatnonzero(np.diff(group, append=-1) != 0) if len(group) else group
    elements = _encode(fine, last), _encode(coarse, last[ends])
    # In each list, blocks come before groups of blocks.
    lists = len(groups)
    of_block = np.repeat(np.arange(lists), blocks.of_list)
    of_group = np.repeat(np.arange(lists), groups)
    order = np.argsort(np.concatenate([2 * of_block, 2 * of_group + 1]), kind="stable")
    sizes = np.concatenate([np.diff(element.offsets) for element in elements])
    data = np.concatenate([element.data for element in elements])
    starts = np.cumsum(sizes) - sizes
    reordered = data[spread(starts[order], sizes[order])]
    offsets = np.concatenate([[0], np.cumsum(sizes[order])])
    if len(order) != len(group) + count:
        raise ValueError(f"{len(order)} impacts of {len(group)} blocks in {count} groups")
    return Elements(offsets, reordered), blocks.of_list + groups


def _best_of_blocks(postings: Postings, blocks: Blocks, codes: Int64s) -> _Pairs:
    """The Pareto-optimal pairs of each block."""
    parts = [_Pairs(*(np.zeros(0, np.int64) for _ in _Pairs._fields))]
    for some, within in blocks.windows():
        number = np.repeat(np.arange(some.start, some.stop), blocks.sizes[some])
        frequencies = postings.frequencies[within].astype(np.int64)
        parts.append(_best(_Pairs(number, frequencies, codes[postings.documents[within]])))
    return _Pairs(*map(np.concatenate, zip(*parts, strict=True)))


def _best(pairs: _Pairs) -> _Pairs:
    """The Pareto-optimal pairs of each set: no other pair is as good in both values."""
    # By set, the most frequent first, then the shortest: as one integer each, which sorts fast.
    keys = np.sort(pairs.of << 40 | (_MAX_FREQUENCY - pairs.frequencies) << 8 | pairs.codes)
    of, frequencies, codes = keys >> 40, _MAX_FREQUENCY - (keys >> 8 & _MAX_FREQUENCY), keys & 255
    # Keys of each set are below those of the set before, so that the minimum restarts.
    low = np.minimum.accumulate(codes - 256 * of)
    better = np.ones(len(of), np.bool_)
    better[1:] = low[1:] < low[:-1]
    of, frequencies, codes = of[better], frequencies[better], codes[better]
    order = np.lexsort((frequencies, of))
    return _Pairs(of[order], frequencies[order], codes[order])


def _encode(pairs: _Pairs, last: Int64s) -> Elements:
    sets = len(last)
    counts = np.bincount(pairs.of, minlength=sets)
    first = np.cumsum(counts) - counts
    previous = np.concatenate([[-1], pairs.of[:-1]]) == pairs.of
    frequencies = np.diff(pairs.frequencies, prepend=0)
    codes = np.diff(pairs.codes, prepend=0)
    frequencies[~previous] = pairs.frequencies[~previous]
    codes[~previous] = pairs.codes[~previous]
    explicit = codes != 1
    steps, step_sizes = encode_varints(((frequencies - 1) << 1) | explicit)
    heads, head_sizes = encode_varints(np.stack([last, counts], axis=1).reshape(-1))
    head_sizes = head_sizes.reshape(-1, 2).sum(axis=1)
    own = step_sizes + explicit
    sums = np.concatenate([[0], np.cumsum(own)])
    sizes = head_sizes + (sums[first + counts] - sums[first])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[spread(offsets[:-1], head_sizes)] = heads
    begins = (offsets[:-1] + head_sizes)[pairs.of] + (sums[:-1] - sums[first][pairs.of])
    data[spread(begins, step_sizes)] = steps
    data[(begins + step_sizes)[explicit]] = codes[explicit]
    return Elements(offsets, data)
