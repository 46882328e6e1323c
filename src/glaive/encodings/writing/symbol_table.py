"""One FSST symbol table for the pages of a column, where it serves later ones as well.

Training takes about as long as encoding a megabyte. The first page of a column trains; each
page after it encodes a sample of its own values with that table, and trains only if the
table does worse there than on the first page. Which page is the first is settled before pages
are encoded side by side, so a file has the same bytes in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

from glaive.arrow.blocks import Variable
from glaive.kernels.fsst import encode_strings
from glaive.kernels.fsst_train import sample_strings, train_symbols
from glaive.kernels.strings import Strings, as_offsets
from glaive.kernels.symbols import SymbolTable

__all__ = ["Coding", "PageSymbols", "SharedSymbols", "train"]

WORSE = 1.01
"""How much larger a page may become with the table of the first page than that page did."""


@dataclass(frozen=True, slots=True)
class Coding:
    """A symbol table, and what it leaves of the bytes of values like those it was made for."""

    table: SymbolTable
    share: float


class SharedSymbols:
    """What the first page of a column found; later pages wait for it."""

    def __init__(self) -> None:
        self._settled = Event()
        self._coding: Coding | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the first page has trained, or has ended without."""
        return self._settled.is_set()

    def settle(self, coding: Coding | None = None) -> None:
        """Let the others go on: with a table, or without one. Only the first call counts."""
        if not self._settled.is_set():
            self._coding = coding
            self._settled.set()

    def wait(self) -> Coding | None:
        """Return what the first page found, once it is known."""
        self._settled.wait()
        return self._coding


@dataclass(frozen=True, slots=True)
class PageSymbols:
    """The symbols of a column as one of its pages sees them.

    ``first`` holds for one page of the column only. Whoever encodes it calls ``settle`` of
    ``shared`` when done, whatever happened, or the other pages wait for ever.
    """

    shared: SharedSymbols
    first: bool

    def coding(self, block: Variable) -> Coding:
        """Return the shared table if it is as good for ``block``, else one of its own."""
        if self.first and not self.shared.is_settled:
            sample, fresh = _sample(block, 0), _sample(block, 1)
            table = train_symbols(sample, _bytes(block))
            coding = Coding(table, _share(table, sample))
            # Text it has not seen tells better what to expect of other pages.
            self.shared.settle(Coding(table, max(coding.share, _share(table, fresh))))
            return coding
        found = self.shared.wait()
        if found is not None:
            share = _share(found.table, _sample(block, 0))
            if share <= WORSE * found.share:
                return Coding(found.table, share)
        return train(block)


def train(block: Variable) -> Coding:
    """Make a table of a sample of the values, about 16 KiB."""
    sample = _sample(block, 0)
    table = train_symbols(sample, _bytes(block))
    return Coding(table, _share(table, sample))


def _sample(block: Variable, turn: int) -> Strings:
    return sample_strings(Strings(block.offsets, block.offset_bits, block.data), block.count, turn)


def _bytes(block: Variable) -> int:
    ends = as_offsets(block.offsets, block.offset_bits)
    return int(ends[block.count]) - int(ends[0])


def _share(table: SymbolTable, sample: Strings) -> float:
    count = sample.offsets.size // 8 - 1
    return encode_strings(table, sample, count).data.size / max(sample.data.size, 1)
