"""Cut runs of characters into tokens, each distinct run once.

For tokenizers whose rules are too many for a kernel: a text is cut into runs by one, and Python
only sees each distinct run of a batch.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glaive.arrow.buffers import spread
from glaive.index.text.tokenizers.base import Pieces
from glaive.kernels.strings import Strings
from glaive.kernels.token_bounds import find_tokens
from glaive.kernels.vocabulary import Vocabulary
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s

__all__ = ["RunPieces", "split_runs"]


class RunPieces(NamedTuple):
    """Tokens of a run.

    Parameters
    ----------
    bounds
        First character of each token, and that after its last.
    positions
        Of each token; the first position of the run is 0.
    advance
        Positions of the run.
    """

    bounds: Sequence[tuple[int, int]]
    positions: Sequence[int]
    advance: int


def split_runs(
    strings: Strings, count: int, characters: UInt8s, split: Callable[[str], RunPieces]
) -> Pieces:
    """Cut ``count`` texts into runs of some characters, and these into tokens.

    Parameters
    ----------
    split
        Cuts a run.

    Cost: that of :func:`find_tokens`, and one call of ``split`` per distinct run.
    """
    runs = find_tokens(strings, count, characters)
    distinct = Vocabulary()
    numbers = distinct.number(strings.data, runs.starts, runs.sizes)
    table = _Table.of(distinct.strings().to_pylist(), split)
    sizes = table.counts[numbers]
    chosen = spread(table.begins[numbers], sizes)
    starts = np.repeat(runs.starts, sizes) + table.offsets[chosen]
    # Positions go on from run to run, and start again with each text.
    advances = np.cumsum(table.advances[numbers]) - table.advances[numbers]
    first_runs = np.cumsum(runs.counts) - runs.counts
    of_text = np.append(advances, 0)[np.minimum(first_runs, len(advances))]
    base = advances - np.repeat(of_text, runs.counts)
    positions = np.repeat(base, sizes) + table.positions[chosen]
    ends = np.concatenate(([0], np.cumsum(sizes)))
    texts = np.concatenate(([0], np.cumsum(runs.counts)))
    return Pieces(
        strings.data,
        starts,
        table.sizes[chosen].astype(np.uint32),
        np.diff(ends[texts]),
        positions.astype(np.uint32),
    )


class _Table(NamedTuple):
    """The tokens of all distinct runs, one run after the other."""

    begins: Int64s
    counts: Int64s
    advances: Int64s
    offsets: Int64s
    sizes: Int64s
    positions: Int64s

    @classmethod
    def of(cls, runs: list[Any], split: Callable[[str], RunPieces]) -> _Table:
        bounds: list[tuple[int, int]] = []
        positions: list[int] = []
        counts, advances = [], []
        for run in runs:
            # What cannot be decoded stands for itself, so that bytes can be counted.
            text = run.decode(errors="surrogateescape")
            pieces = split(text)
            bounds += pieces.bounds if len(text) == len(run) else _in_bytes(text, pieces.bounds)
            positions += pieces.positions
            counts.append(len(pieces.bounds))
            advances.append(pieces.advance)
        ranges = np.array(bounds, np.int64).reshape(-1, 2)
        of_run = np.array(counts, np.int64)
        return cls(
            np.cumsum(of_run) - of_run,
            of_run,
            np.array(advances, np.int64),
            ranges[:, 0],
            ranges[:, 1] - ranges[:, 0],
            np.array(positions, np.int64),
        )


def _in_bytes(text: str, bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bounds in bytes of UTF-8."""
    sizes = [len(character.encode(errors="surrogateescape")) for character in text]
    ends = [0, *np.cumsum(sizes).tolist()]
    return [(ends[start], ends[stop]) for start, stop in bounds]
