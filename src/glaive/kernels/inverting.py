"""Sort the tokens of documents by token: from the tokens of each document to its opposite."""

from __future__ import annotations

import numpy as np

from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import inverting as compiled
from glaive.kernels.string_records import InvertTokens
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["Inversion", "exercise", "invert_tokens"]


class Inversion(NamedTuple):
    """The documents of each token.

    Parameters
    ----------
    starts
        Where the documents of each token begin; and the end of the last. ``int64``
    documents, frequencies
        Documents, ascending for each token, and how often each has it. ``uint32``
    positions
        For each token, document and occurrence: its position. None if there are none. ``uint32``
    """

    starts: Int64s
    documents: UInt32s
    frequencies: UInt32s
    positions: UInt32s | None

    def position_starts(self) -> Int64s:
        """Where the positions of each token begin; and the end of the last."""
        before = np.concatenate(([0], np.cumsum(self.frequencies, dtype=np.int64)))
        starts: Int64s = before[self.starts]
        return starts


def invert_tokens(
    numbers: UInt32s, counts: Int64s, distinct: int, positions: UInt32s | None = None
) -> Inversion:
    """Sort tokens by their number, stably; a few steps of a kernel for each.

    Parameters
    ----------
    numbers
        Number of each token, below ``distinct``, one document after the other.
    counts
        Tokens of each document.
    distinct
        Distinct tokens.
    positions
        Position of each token in its document, or None.

    Raises
    ------
    SchemaError
        The arguments do not fit each other.
    """
    known = counts.min(initial=0) >= 0 and int(counts.sum()) == len(numbers)
    if not known or int(numbers.max(initial=0)) >= max(distinct, 1) or len(counts) >= 1 << 32:
        raise SchemaError(f"{len(numbers)} tokens that are not those of {len(counts)} documents")
    if len(numbers) and not distinct:
        raise SchemaError(f"{len(numbers)} tokens, of which none is known")
    if positions is not None and len(positions) != len(numbers):
        raise SchemaError(f"{len(positions)} positions of {len(numbers)} tokens")
    if not use_compiled(len(numbers)):
        return _invert_numpy(numbers, counts, distinct, positions)
    numbers, counts = np.ascontiguousarray(numbers), np.ascontiguousarray(counts)
    last, totals = np.zeros(distinct, np.uint32), np.zeros(distinct, np.int64)
    compiled.count_documents(
        address(numbers), address(counts), len(counts), address(last), address(totals)
    )
    starts = np.concatenate(([0], np.cumsum(totals))).astype(np.int64)
    ends = starts[:-1].copy()
    last[:] = 0
    documents = np.empty(int(starts[-1]), np.uint32)
    frequencies = np.empty(int(starts[-1]), np.uint32)
    places = [0, 0, 0]
    out = None
    if positions is not None:
        positions, out = np.ascontiguousarray(positions), np.empty(len(numbers), np.uint32)
        sizes = np.bincount(numbers, minlength=distinct)
        position_ends = (np.cumsum(sizes) - sizes).astype(np.int64)
        places = [address(array) for array in (positions, position_ends, out)]
    call = InvertTokens(
        numbers=address(numbers), counts=address(counts), documents=len(counts),
        last=address(last), ends=address(ends), ids=address(documents),
        frequencies=address(frequencies), positions=places[0], position_ends=places[1],
        sorted_positions=places[2],
    )  # fmt: skip
    compiled.invert_tokens(*call)
    return Inversion(starts, documents, frequencies, out)


def _invert_numpy(
    numbers: UInt32s, counts: Int64s, distinct: int, positions: UInt32s | None
) -> Inversion:
    order = np.argsort(numbers, kind="stable")
    document = np.repeat(np.arange(len(counts)), counts)[order]
    token = numbers[order].astype(np.int64)
    first = np.ones(len(order), np.bool_)
    first[1:] = (token[1:] != token[:-1]) | (document[1:] != document[:-1])
    frequencies = np.diff(np.append(np.flatnonzero(first), len(order)))
    totals = np.bincount(token[first], minlength=distinct)
    starts = np.concatenate(([0], np.cumsum(totals))).astype(np.int64)
    return Inversion(
        starts,
        document[first].astype(np.uint32),
        frequencies.astype(np.uint32),
        None if positions is None else positions[order],
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    numbers = np.array([0, 1, 0], np.uint32)
    invert_tokens(numbers, np.array([2, 1]), 2, numbers)
