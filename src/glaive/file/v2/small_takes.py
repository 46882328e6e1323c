"""Rows of many small files, taken as from one; see :mod:`glaive.file.v2.small_files`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array
from glaive.arrow.dictionaries import concat_arrays
from glaive.encodings.miniblock.alike_pages import AlikeValues
from glaive.encodings.miniblock.layout import MiniBlockForm
from glaive.encodings.miniblock.taken_pages import TakenPages, take_values
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.protocol import Fetch, Leaf
from glaive.errors import GlaiveError
from glaive.file.v2.reading.columns import Node, column_tree
from glaive.file.v2.reading.unshred import unshred, unshred_flat
from glaive.file.v2.small_files import NotAlikeError, SmallBatch, SmallPage, are_usual
from glaive.format.field import Field
from glaive.format.wire import DecodeError
from glaive.io.read_many import JoinedObjects
from glaive.types import Where

__all__ = ["take_small_files"]

_WHERE = Where("small files")

Numbers = NDArray[np.int64]


def take_small_files(
    files: JoinedObjects,
    rows: Sequence[int],
    fields: Sequence[Field],
    column_of: Mapping[int, int],
    file: Numbers,
    row: Numbers,
) -> list[pa.Array] | None:
    """Row ``row[i]`` of file number ``file[i]`` for every i, in any order.

    The other parameters are those of :func:`read_small_files`. Every file must be asked for
    a row at least, and has those asked for.

    Returns
    -------
    list of arrays, or None
        One per field. ``None`` when the files must be read one by one.
    """
    if not are_usual(fields):
        return None
    try:
        batch = SmallBatch.of(files, rows)
        if batch is None:
            return None
        return [_take(batch, column_tree(field, column_of), file, row) for field in fields]
    except (NotAlikeError, GlaiveError, DecodeError):
        return None  # the reader of single files tells what is wrong


def _take(batch: SmallBatch, node: Node, file: Numbers, row: Numbers) -> pa.Array:
    """A top-level field."""
    if not node.children:
        return _flat(batch, node, file, row)
    leaves = [batch.column(leaf) for leaf in node.leaves()]
    done = []
    for at, some in _by_file(file, np.arange(len(file))):
        alone = [batch.alone(at, pages[which[at]], row[some]) for pages, which in leaves]
        done.append((some, unshred(node, alone, len(some), _WHERE)))
    return _in_order(done)


def _flat(batch: SmallBatch, node: Node, file: Numbers, row: Numbers) -> pa.Array:
    """A field without lists and structs: pages of one kin at once, then the others."""
    pages, which = batch.column(node)
    kins: dict[object, int] = {}
    code = np.array([kins.setdefault(_kin(page), len(kins)) for page in pages])[which]
    done: list[tuple[Numbers, pa.Array]] = []
    for kin, number in kins.items():
        chosen = np.flatnonzero(code[file] == number)
        if kin is None:
            for at, some in _by_file(file, chosen):
                leaf = batch.alone(at, pages[which[at]], row[some])
                done.append((some, unshred_flat(node, leaf, _WHERE)))
            continue
        files = np.flatnonzero(code == number)
        place = np.zeros(len(which), np.int64)
        place[files] = np.arange(len(files))
        leaf = _group(batch, kin, pages, which[files], files, place[file[chosen]], row[chosen])
        done.append((chosen, unshred_flat(node, leaf, _WHERE)))
    return _in_order(done)


def _kin(page: SmallPage) -> object:
    """What pages that are taken from together have in common; None for one that is alone."""
    opened = page.opened
    if isinstance(opened, MiniBlockPage) and opened.form.rep is None and page.rows:
        return _ByForm(opened.form)
    return page.kin if isinstance(page.kin, AlikeValues) else None


class _ByForm:
    """A form as a key. Forms are kept by their bytes: those that are equal are one object."""

    __slots__ = ("form",)

    def __init__(self, form: MiniBlockForm) -> None:
        self.form = form

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByForm) and other.form is self.form

    def __hash__(self) -> int:
        return id(self.form)


def _group(
    batch: SmallBatch,
    kin: object,
    pages: Sequence[SmallPage],
    which: Numbers,
    files: Numbers,
    place: Numbers,
    row: Numbers,
) -> Leaf:
    """Row ``row[i]`` of page number ``place[i]`` among those of one kin.

    Page i of these is that of file ``files[i]``, and says what ``pages[which[i]]`` says.
    """
    known = np.unique(which).tolist()
    places = np.zeros((len(pages), len(pages[known[0]].ranges), 2), np.int64)
    items = np.zeros(len(pages), np.int64)
    for at in known:
        page = pages[at]
        places[at] = page.ranges
        if isinstance(page.opened, MiniBlockPage):
            items[at] = page.opened.num_dictionary_items
    starts, sizes = places[which, :, 0] + batch.bases[files][:, None], places[which, :, 1]
    rows = batch.rows[files]
    if isinstance(kin, AlikeValues):
        return take_values(kin, batch.data, starts, sizes, rows, place, row, _WHERE)
    if not isinstance(kin, _ByForm):
        raise NotAlikeError
    page_of = TakenPages(kin.form, batch.data, starts, sizes, rows, items[which], _WHERE)
    leaf = page_of.take((np.cumsum(rows) - rows)[place] + row)
    if isinstance(leaf, Fetch):
        raise NotAlikeError
    return leaf


def _by_file(file: Numbers, chosen: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Each file among some of the rows, with the places of its rows."""
    order = chosen[np.argsort(file[chosen], kind="stable")]
    numbers = file[order]
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for some in np.split(order, cuts):
        if len(some):
            yield int(file[some[0]]), some


def _in_order(done: list[tuple[Numbers, pa.Array]]) -> pa.Array:
    """Put the values of parts into the places that each part has."""
    if len(done) == 1:
        return done[0][1]  # the only part has all places, in order
    order = np.concatenate([places for places, _ in done])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    whole: Any = concat_arrays([array for _, array in done])
    taken: pa.Array = whole.take(number_array(back))
    return taken
