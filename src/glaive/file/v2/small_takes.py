"""Take rows of many small files at once; see :mod:`glaive.file.v2.small_files`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import integer_array, inverse_permutation
from glaive.arrow.dictionaries import concat_arrays
from glaive.file.v2.reading.columns import Node, column_tree
from glaive.file.v2.reading.unshred import unshred, unshred_flat
from glaive.file.v2.small_files import SmallBatch, at_hand
from glaive.format.field import Field
from glaive.types import Int64s, Where

__all__ = ["take_small_files"]

_WHERE = Where("small files")


def take_small_files(
    batch: SmallBatch,
    fields: Sequence[Field],
    column_of: Mapping[int, int],
    file: Int64s,
    row: Int64s,
) -> list[pa.Array]:
    """Row ``row[i]`` of file number ``file[i]`` for every i, in any order; one array per field.

    Every file must have at least one requested row. The other parameters and the errors are
    those of :func:`read_small_files`.
    """
    return [_take(batch, column_tree(field, column_of), file, row) for field in fields]


def _take(batch: SmallBatch, node: Node, file: Int64s, row: Int64s) -> pa.Array:
    """A top-level field."""
    if not node.children:
        return _flat(batch, node, file, row)
    leaves = [batch.column(leaf) for leaf in node.leaves()]
    done = []
    for at, some in _by_file(file, np.arange(len(file))):
        alone = [batch.alone(at, pages[which[at]], row[some]) for pages, which in leaves]
        done.append((some, unshred(node, alone, len(some), _WHERE)))
    return _in_order(done)


def _flat(batch: SmallBatch, node: Node, file: Int64s, row: Int64s) -> pa.Array:
    """A field without lists and structs: runs of joined pages, then pages that are read alone."""
    pages, which = batch.column(node)
    runs, alone = batch.runs(pages, which)
    done: list[tuple[Int64s, pa.Array]] = []
    for files, run in runs:
        counts, first_row = batch.rows[files], np.full(len(which), -1)
        first_row[files] = np.cumsum(counts) - counts
        chosen = np.flatnonzero(first_row[file] >= 0)
        leaf = at_hand(run.take(first_row[file[chosen]] + row[chosen]))
        done.append((chosen, unshred_flat(node, leaf, _WHERE)))
    for at, positions in _by_file(file, np.flatnonzero(np.isin(file, alone))):
        leaf = batch.alone(at, pages[which[at]], row[positions])
        done.append((positions, unshred_flat(node, leaf, _WHERE)))
    return _in_order(done)


def _by_file(file: Int64s, chosen: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Each file among the chosen rows, with the positions of its rows."""
    order = chosen[np.argsort(file[chosen], kind="stable")]
    numbers = file[order]
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for some in np.split(order, cuts):
        if len(some):
            yield int(file[some[0]]), some


def _in_order(done: list[tuple[Int64s, pa.Array]]) -> pa.Array:
    """Join parts by the positions of their values."""
    if len(done) == 1:
        return done[0][1]  # the only part has all positions, in order
    order = np.concatenate([positions for positions, _ in done])
    whole: Any = concat_arrays([array for _, array in done])
    taken: pa.Array = whole.take(integer_array(inverse_permutation(order)))
    return taken
