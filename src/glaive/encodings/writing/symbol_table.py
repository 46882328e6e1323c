"""One FSST symbol table for the pages of a column, where it fits later pages as well.

Training takes about as long as encoding a megabyte. The first page of a column trains; each
page after it encodes a sample of its own values with that table, and trains only if the table
compresses worse there than on the first page. The first page is determined before pages are
encoded in parallel, so a file has the same bytes in every run.
"""

from __future__ import annotations

from threading import Event

from glaive.arrow.blocks import Variable
from glaive.dataclass import dataclass
from glaive.kernels.fsst import encode_strings
from glaive.kernels.fsst_train import sample_strings, train_symbols
from glaive.kernels.strings import Strings, as_offsets
from glaive.kernels.symbols import SymbolTable

__all__ = ["Coding", "PageSymbols", "SharedSymbols", "train"]

WORSE = 1.01
"""Factor by which a page may compress worse with the first page's table than that page does."""


@dataclass(frozen=True, slots=True)
class Coding:
    """A symbol table, and the share of bytes that remains of values like those in its sample."""

    table: SymbolTable
    share: float


class SharedSymbols:
    """The symbol table of the first page of a column; later pages wait for it."""

    def __init__(self) -> None:
        self._finished = Event()
        self._coding: Coding | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the first page has trained, or has ended without a table."""
        return self._finished.is_set()

    def finish(self, coding: Coding | None = None) -> None:
        """Let other pages continue, with or without a table. Only the first call counts."""
        if not self._finished.is_set():
            self._coding = coding
            self._finished.set()

    def wait(self) -> Coding | None:
        """Wait for the first page; return its table, if it has one."""
        self._finished.wait()
        return self._coding


@dataclass(frozen=True, slots=True)
class PageSymbols:
    """Access of one page to the symbols of its column.

    ``first`` is true for one page of the column only. The code that encodes it must call
    ``finish`` of ``shared`` in all cases, or the other pages wait for ever.
    """

    shared: SharedSymbols
    first: bool

    def coding(self, block: Variable) -> Coding:
        """Return the shared table if it fits ``block``, else a new one."""
        if self.first and not self.shared.is_finished:
            sample, fresh = _sample(block, 0), _sample(block, 1)
            table = train_symbols(sample, _bytes(block))
            coding = Coding(table, _share(table, sample))
            # Text outside of the sample predicts better what to expect of other pages.
            self.shared.finish(Coding(table, max(coding.share, _share(table, fresh))))
            return coding
        shared = self.shared.wait()
        if shared is not None:
            share = _share(shared.table, _sample(block, 0))
            if share <= WORSE * shared.share:
                return Coding(shared.table, share)
        return train(block)


def train(block: Variable) -> Coding:
    """Train a table on a sample of the values, about 16 KiB."""
    sample = _sample(block, 0)
    table = train_symbols(sample, _bytes(block))
    return Coding(table, _share(table, sample))


def _sample(block: Variable, turn: int) -> Strings:
    return sample_strings(Strings(block.offsets, block.offset_bits, block.data), block.count, turn)


def _bytes(block: Variable) -> int:
    offsets = as_offsets(block.offsets, block.offset_bits)
    return int(offsets[block.count]) - int(offsets[0])


def _share(table: SymbolTable, sample: Strings) -> float:
    count = sample.offsets.size // 8 - 1
    return encode_strings(table, sample, count).data.size / max(sample.data.size, 1)
