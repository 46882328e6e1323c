"""What a base tokenizer implements, and how it is found by its name.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import spread
from glaive.arrow.letters import alphanumeric_ranges
from glaive.errors import OptionError
from glaive.index.text.text_format import TextParams
from glaive.kernels.hashing import Vocabulary
from glaive.kernels.strings import Strings
from glaive.kernels.text_search import CHARACTERS, character_set, find_tokens
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s, UInt32s


class Pieces(NamedTuple):
    """Tokens of texts before any filter.

    Parameters
    ----------
    data
        The memory that the tokens lie in: that of the texts, or other memory.
    starts, sizes
        First byte of each token, and how many it has.
    counts
        Tokens of each text.
    positions
        Position of each token in its text; None: they count up from 0.
    """

    data: pa.Buffer
    starts: Int64s
    sizes: UInt32s
    counts: Int64s
    positions: UInt32s | None = None


class BaseTokenizer(ABC):
    """Cuts texts into tokens. Immutable.

    Adding one is adding a module to this folder with a class that is decorated with
    :func:`base_tokenizer`, and its name to ``BASE_TOKENIZERS`` in ``params.py``.
    """

    def __init__(self, params: TextParams) -> None:
        self.params = params

    @abstractmethod
    def split(self, strings: Strings, count: int) -> Pieces:
        """Cut ``count`` texts of UTF-8.

        Raises
        ------
        SchemaError
            Offsets descend, or leave the data.
        """


_REGISTERED: dict[str, type[BaseTokenizer]] = {}

T = TypeVar("T", bound=type[BaseTokenizer])


def base_tokenizer(*names: str) -> Callable[[T], T]:
    """Class decorator: register a tokenizer under its names, each without what follows a slash."""

    def register(cls: T) -> T:
        for name in names:
            if _REGISTERED.setdefault(name, cls) is not cls:
                raise TypeError(f"two tokenizers claim the name {name!r}")
        return cls

    return register


@cache
def _tokenizers() -> dict[str, type[BaseTokenizer]]:
    from pkgutil import iter_modules

    from glaive.index.text import tokenizers

    for module in iter_modules(tokenizers.__path__, f"{tokenizers.__name__}."):
        import_module(module.name)
    return _REGISTERED


def base_tokenizer_of(params: TextParams) -> BaseTokenizer:
    """The base tokenizer that parameters name.

    Raises
    ------
    OptionError
        There is none of this name.
    MissingDependencyError
        The package that it needs is not installed.
    """
    name = params.base_tokenizer.partition("/")[0]
    known = _REGISTERED.get(name)
    if known is None and name.isidentifier():
        # The module that bears the name is looked for first: others need not be imported.
        home = f"{__name__.rpartition('.')[0]}.{name}"
        if find_spec(home) is not None:
            import_module(home)
        known = _REGISTERED.get(name)
    if known is None and name not in _tokenizers():
        raise OptionError(
            f"base_tokenizer {params.base_tokenizer!r} is not supported; there are "
            f"{', '.join(sorted(_tokenizers()))}"
        )
    return (known or _tokenizers()[name])(params)


# --- Capital and small letters, one by one, as of Unicode 17 ----------------------------
# Python's own tables may be of an older version, and ``str.lower`` looks at neighbours.
#
# Specification: "Filters" in ``docs/format/text-indices.md``.

_LATER: Final = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3,
    0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}  # fmt: skip
"""Small letters of capitals of Unicode 15 to 17."""

_LOWER: Final = {ord("\N{GREEK CAPITAL LETTER SIGMA}"): 0x3C3, **_LATER}

_LATER_SMALL: Final = frozenset(
    chain(
        _LATER.values(), (0x10FC, 0xAB69), range(0xA7F1, 0xA7F5), range(0x1DF25, 0x1DF2B),
        range(0x1E030, 0x1E06E),
    )
)  # fmt: skip
_NO_LONGER_SMALL: Final = 0x295


def lower_case(token: str) -> str:
    """The token in small letters, each letter by itself."""
    return token.lower() if token.isascii() else token.translate(_LOWER).lower()


@cache
def is_capital(character: str) -> bool:
    """Whether a character has the property Uppercase."""
    return character.isupper() or ord(character) in _LATER


@cache
def is_small(character: str) -> bool:
    """Whether a character has the property Lowercase."""
    number = ord(character)
    return number != _NO_LONGER_SMALL and (character.islower() or number in _LATER_SMALL)


# --- Sets of characters that are parts of tokens ----------------------------------------
# Specification: "Tokenizers" in ``docs/format/text-indices.md``.

_SPACES: Final = b"\t\n\f\r "


@cache
def alphanumeric() -> UInt8s:
    """Letters, numbers and vowel signs, as a bitmap."""
    return _frozen(alphanumeric_ranges())


@cache
def alphanumeric_and(more: str) -> UInt8s:
    """The same and some characters of ASCII, as a bitmap."""
    single = np.array([(ord(character), ord(character) + 1) for character in more], np.int64)
    characters: UInt8s = alphanumeric() | character_set(single)
    characters.flags.writeable = False
    return characters


@cache
def all_characters() -> UInt8s:
    """All characters, as a bitmap."""
    return _frozen(np.array([(0, CHARACTERS)], np.int64))


def is_alphanumeric(character: str) -> bool:
    """Whether a character is one of :func:`alphanumeric`."""
    number = ord(character)
    return bool(alphanumeric()[number >> 3] >> (number & 7) & 1)


@cache
def not_space() -> UInt8s:
    """All characters but the white space of ASCII, as a bitmap."""
    bounds = [-1, *sorted(_SPACES), CHARACTERS]
    ranges = [(before + 1, after) for before, after in pairwise(bounds)]
    return _frozen(np.array(ranges, np.int64))


def _frozen(ranges: Int64s) -> UInt8s:
    characters = character_set(ranges)
    characters.flags.writeable = False
    return characters


# --- Cut runs of characters into tokens, each distinct run once -------------------------
# For tokenizers whose rules are too many for a kernel: a text is cut into runs by one, and Python
# only sees each distinct run of a batch.
#
# Specification: "Tokenizers" in ``docs/format/text-indices.md``.


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
