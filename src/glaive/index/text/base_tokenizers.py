"""Base tokenizers: cut texts into tokens, before any filter.

Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.
"""

from __future__ import annotations

import json
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from io import BytesIO, StringIO
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import spread
from glaive.arrow.letters import alphanumeric_ranges
from glaive.dataclass import NamedTuple
from glaive.errors import MissingDependencyError, OptionError, StoreError, UnsupportedFeatureError
from glaive.index.text.text_format import TextParams
from glaive.kernels.hashing import Vocabulary
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.kernels.text_search import CHARACTERS, character_set, find_tokens
from glaive.types import Int64s, UInt8s, UInt32s, as_array


class Pieces(NamedTuple):
    """Tokens of texts before any filter.

    Parameters
    ----------
    data
        Memory with the bytes of the tokens: the texts, or other memory.
    starts, sizes
        First byte and number of bytes of each token.
    counts
        Number of tokens of each text.
    positions
        Position of each token in its text; ``None``: 0, 1, 2, ….
    """

    data: pa.Buffer
    starts: Int64s
    sizes: UInt32s
    counts: Int64s
    positions: UInt32s | None = None


class BaseTokenizer(ABC):
    """Cuts texts into tokens. Immutable.

    To add a tokenizer, add a class here with the decorator :func:`base_tokenizer`, and its name to
    ``BASE_TOKENIZERS`` in ``text_format.py``.
    """

    def __init__(self, params: TextParams) -> None:
        self.params = params

    @abstractmethod
    def split(self, strings: Strings, count: int) -> Pieces:
        """Cut ``count`` UTF-8 texts.

        Raises
        ------
        SchemaError
            Offsets descend, or exceed the data.
        """


_REGISTERED: dict[str, type[BaseTokenizer]] = {}

T = TypeVar("T", bound=type[BaseTokenizer])


def base_tokenizer(name: str) -> Callable[[T], T]:
    """Register a tokenizer class under the part of a name before a slash (class decorator)."""

    def register(cls: T) -> T:
        if _REGISTERED.setdefault(name, cls) is not cls:
            raise TypeError(f"two tokenizers claim the name {name!r}")
        return cls

    return register


def base_tokenizer_of(params: TextParams) -> BaseTokenizer:
    """Return the base tokenizer that parameters name.

    Raises
    ------
    OptionError
        The name is unknown.
    MissingDependencyError
        A required package is not installed.
    """
    known = _REGISTERED.get(params.base_tokenizer.partition("/")[0])
    if known is None:
        raise OptionError(
            f"base_tokenizer {params.base_tokenizer!r} is not supported; there are "
            f"{', '.join(sorted(_REGISTERED))}"
        )
    return known(params)


# --- Upper and lower case of single letters, as in Unicode 17 ---------------------------
# Python's own tables may be older, and ``str.lower`` depends on neighbouring letters.
#
# Specification: "Filters" in ``docs/format/text-tokenizers.md``.

_LATER: Final = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3,
    0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}  # fmt: skip
"""Lower-case letters for the upper-case letters of Unicode 15 to 17."""

_LOWER: Final = {ord("\N{GREEK CAPITAL LETTER SIGMA}"): 0x3C3, **_LATER}

_LATER_SMALL: Final = frozenset(
    chain(
        _LATER.values(), (0x10FC, 0xAB69), range(0xA7F1, 0xA7F5), range(0x1DF25, 0x1DF2B),
        range(0x1E030, 0x1E06E),
    )
)  # fmt: skip
_LATER_CASELESS: Final = 0x295


def lower_case(token: str) -> str:
    """Return the token in lower case, each letter by itself."""
    return token.lower() if token.isascii() else token.translate(_LOWER).lower()


@cache
def is_capital(character: str) -> bool:
    """Return whether a character has the property Uppercase."""
    return character.isupper() or ord(character) in _LATER


@cache
def is_small(character: str) -> bool:
    """Return whether a character has the property Lowercase."""
    number = ord(character)
    return number != _LATER_CASELESS and (character.islower() or number in _LATER_SMALL)


# --- Sets of characters of tokens -------------------------------------------------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.

_SPACES: Final = b"\t\n\f\r "


@cache
def alphanumeric() -> UInt8s:
    """Return a bitmap of letters, numbers and vowel signs."""
    return _frozen(alphanumeric_ranges())


@cache
def alphanumeric_and(more: str) -> UInt8s:
    """Return a bitmap of :func:`alphanumeric` characters and some ASCII characters."""
    single = np.array([(ord(character), ord(character) + 1) for character in more], np.int64)
    characters: UInt8s = alphanumeric() | character_set(single)
    characters.flags.writeable = False
    return characters


@cache
def all_characters() -> UInt8s:
    """Return a bitmap of all characters."""
    return _frozen(np.array([(0, CHARACTERS)], np.int64))


def is_alphanumeric(character: str) -> bool:
    """Return whether a character is in :func:`alphanumeric`."""
    number = ord(character)
    return bool(alphanumeric()[number >> 3] >> (number & 7) & 1)


@cache
def not_space() -> UInt8s:
    """Return a bitmap of all characters except ASCII white space."""
    bounds = [-1, *sorted(_SPACES), CHARACTERS]
    ranges = [(before + 1, after) for before, after in pairwise(bounds)]
    return _frozen(np.array(ranges, np.int64))


def _frozen(ranges: Int64s) -> UInt8s:
    characters = character_set(ranges)
    characters.flags.writeable = False
    return characters


# --- Cut runs of characters into tokens, each distinct run once -------------------------
#
# For tokenizers with too many rules for a kernel: a kernel cuts texts into runs, and Python code
# cuts each distinct run of a batch.
#
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


class RunPieces(NamedTuple):
    """Tokens of a run.

    Parameters
    ----------
    bounds
        First character of each token, and the character after its last.
    positions
        Position of each token; the first position of the run is 0.
    advance
        Number of positions of the run.
    """

    bounds: Sequence[tuple[int, int]]
    positions: Sequence[int]
    advance: int


def split_runs(
    strings: Strings, count: int, characters: UInt8s, split: Callable[[str], RunPieces]
) -> Pieces:
    """Cut ``count`` texts into runs of some characters, and runs into tokens.

    Parameters
    ----------
    split
        Function that cuts a run.

    Cost: the cost of :func:`find_tokens`, and a call of ``split`` per distinct run.
    """
    runs = find_tokens(strings, count, characters)
    distinct = Vocabulary()
    numbers = distinct.number(strings.data, runs.starts, runs.sizes)
    table = _Table.of(distinct.strings().to_pylist(), split)
    sizes = table.counts[numbers]
    chosen = spread(table.begins[numbers], sizes)
    starts = np.repeat(runs.starts, sizes) + table.offsets[chosen]
    # Positions continue from run to run, and begin again at 0 in each text.
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
    """Tokens of all distinct runs, run by run."""

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
            # Keep bytes of invalid UTF-8, so that positions in bytes can be computed.
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
    """Convert bounds in characters to bounds in UTF-8 bytes."""
    sizes = [len(character.encode(errors="surrogateescape")) for character in text]
    ends = [0, *np.cumsum(sizes).tolist()]
    return [(ends[start], ends[stop]) for start, stop in bounds]


# --- ``code``: identifiers of programs; optionally their parts and operators ------------
# Specification: "Code" in ``docs/format/text-tokenizers.md``.

_SIGNS: Final = "!%&*+-/:<=>?^|~"
_LONG_OPERATORS: Final = (
    ">>>=", "!==", "&&=", "**=", "//=", "<<=", "<=>", "===", ">>=", ">>>", "??=", "||=", "!=", "%=",
    "&&", "&=", "**", "*=", "++", "+=", "--", "-=", "->", "//", "/=", "::", ":=", "<-", "<<", "<=",
    "==", "=>", ">=", ">>", "??", "^=", "|=", "|>", "||", "~=",
)  # fmt: skip
"""Ordered by length, the longest first, so that regular expressions prefer long operators."""

_SIGN: Final = f"[{re.escape(_SIGNS)}]"
_PARTS: Final = re.compile(
    "|".join((*map(re.escape, _LONG_OPERATORS), _SIGN, f"[^{re.escape(_SIGNS)}]+"))
)
_DIGITS: Final = frozenset("0123456789")


@base_tokenizer("code")
class Code(BaseTokenizer):
    """Runs of letters, numbers and underscores, and optionally operators."""

    def __init__(self, params: TextParams) -> None:
        super().__init__(params)
        self._characters = alphanumeric_and("_" + (_SIGNS if params.index_operators else ""))

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find runs with a kernel, and cut each distinct run."""
        return split_runs(strings, count, self._characters, self._cut)

    def _cut(self, run: str) -> RunPieces:
        bounds: list[tuple[int, int]] = []
        positions: list[int] = []
        position = 0
        words = [found.span() for found in _PARTS.finditer(run)]
        for start, stop in words:
            parts = self._parts(run, start, stop)
            if len(parts) < 2 or self.params.preserve_original:
                bounds.append((start, stop))
                positions.append(position)
            if len(parts) > 1:
                bounds += parts
                positions += range(position, position + len(parts))
            position += max(1, len(parts))
        return RunPieces(bounds, positions, position)

    def _parts(self, run: str, start: int, stop: int) -> list[tuple[int, int]]:
        """Return bounds of the parts of an identifier."""
        if not self.params.split_identifiers or run[start] in _SIGNS:
            return []
        edges = [start, stop]
        for at in range(start + 1, stop):
            before, here = run[at - 1], run[at]
            after = run[at + 1] if at + 1 < stop else ""
            numeric = (before in _DIGITS) != (here in _DIGITS)
            if (
                "_" in (before, here)
                or (numeric and self.params.split_on_numerics)
                or (is_capital(here) and is_small(before))
                or (is_capital(before) and is_capital(here) and after and is_small(after))
            ):
                edges.append(at)
        edges.sort()
        return [(first, last) for first, last in pairwise(edges) if run[first] != "_"]


# --- ``icu`` and ``icu/split``: words by the rules and dictionaries of Unicode ----------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.

_COLONS: Final = re.compile("[:\ufe55\uff1a]")
"""ICU joins the words around colons; Lance separates them."""

_HANGUL: Final = re.compile("[\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff]")
_JOINING: Final = re.compile(
    "[^\\W\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u2189\u2460-\u249b\u2776-\u2793\u3200-\u33ff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
"""Letters of scripts with spaces between words, decimal digits, and underscores."""
_IGNORED: Final = re.compile("[\u00ad\u0300-\u036f\u200d]+$")
"""Marks and format characters at the end of a segment; they belong to the letter before."""


@base_tokenizer("icu")
class Icu(BaseTokenizer):
    """Segments with a letter or a number; with ``/split``, their runs of letters and numbers.

    Raises
    ------
    MissingDependencyError
        icu4py is not installed.
    """

    def __init__(self, params: TextParams) -> None:
        super().__init__(params)
        self._splits = params.base_tokenizer.endswith("/split")
        try:
            from icu4py.breakers import WordBreaker
        except ImportError as error:
            raise MissingDependencyError(
                f"base_tokenizer={params.base_tokenizer!r} needs icu4py: pip install 'glaive[icu]'"
            ) from error
        self._breaker: Any = WordBreaker

    def split(self, strings: Strings, count: int) -> Pieces:
        """Cut texts at white space, and each distinct run with ICU."""
        return split_runs(strings, count, not_space(), self._cut)

    def _cut(self, run: str) -> RunPieces:
        bounds: list[tuple[int, int]] = []
        text = run.encode(errors="replace").decode()
        at = 0
        for segment in _joined(self._breaker(text, "en_US")):
            for start, stop in _between(segment, _COLONS):
                if self._splits:
                    bounds += _words(segment, at, start, stop)
                elif any(map(is_alphanumeric, segment[start:stop])):
                    bounds.append((at + start, at + stop))
            at += len(segment)
        return RunPieces(bounds, range(len(bounds)), len(bounds))


def _joined(segments: Iterable[str]) -> Iterator[str]:
    """Join segments of Hangul with adjacent letters and numbers.

    ICU uses a dictionary for Korean and breaks there; Lance keeps them together.
    """
    before = ""
    for segment in segments:
        edge = _IGNORED.sub("", before)[-1:], segment[:1]
        if any(map(_HANGUL.match, edge)) and all(map(_JOINING.match, edge)):
            before += segment
            continue
        if before:
            yield before
        before = segment
    if before:
        yield before


def _between(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the bounds of the text between matches of a pattern."""
    edges = [0]
    for found in pattern.finditer(text):
        edges += found.span()
    edges.append(len(text))
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _words(segment: str, at: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return runs of letters and numbers in a part of a segment that begins at ``at``."""
    bounds: list[tuple[int, int]] = []
    begin = -1
    for place in range(start, stop + 1):
        part = place < stop and is_alphanumeric(segment[place])
        if part and begin < 0:
            begin = place
        elif not part and begin >= 0:
            bounds.append((at + begin, at + place))
            begin = -1
    return bounds


# --- ``jieba``: Chinese words of a dictionary, and the words within them ----------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


@base_tokenizer("jieba")
class Jieba(BaseTokenizer):
    """Words of a dictionary of the package jieba; the position of a word is its first character.

    ``jieba/NAME`` uses the dictionary of the folder NAME below ``LANCE_LANGUAGE_MODEL_HOME``.

    Raises
    ------
    MissingDependencyError
        jieba is not installed.
    OptionError, StoreError
        The folder of the dictionary, or a file that it names, is unreadable.
    """

    def __init__(self, params: TextParams) -> None:
        super().__init__(params)
        name = params.base_tokenizer.partition("/")[2] or "default"
        self._dictionary = dictionary(name, os.environ.get("LANCE_LANGUAGE_MODEL_HOME"))

    def split(self, strings: Strings, count: int) -> Pieces:
        """Cut each distinct text."""
        return split_runs(strings, count, all_characters(), self._cut)

    def _cut(self, text: str) -> RunPieces:
        readable = text.encode(errors="replace").decode()
        words = list(self._dictionary.tokenize(readable, mode="search"))
        bounds = [(start, stop) for _, start, stop in words]
        return RunPieces(bounds, [start for start, _ in bounds], len(text))


@cache
def dictionary(name: str = "default", home: str | None = None) -> Any:
    """Load words and their frequencies; takes about a second, once per process.

    jieba itself would load ``/tmp/jieba.cache`` with ``marshal``, which is unsafe: any user may
    have written that file.

    Parameters
    ----------
    name
        Folder with ``dict.txt``, or with ``config.json``. The latter names a dictionary (``main``)
        and files of user words (``users``), relative to the folder. If the folder is missing,
        ``default`` is the dictionary of the package.
    home
        Folder of language models; default: ``lance/language_models`` in the user's data folder.
    """
    try:
        import jieba
    except ImportError as error:
        raise MissingDependencyError(
            "base_tokenizer='jieba' needs jieba: pip install 'glaive[jieba]'"
        ) from error
    jieba.setLogLevel(logging.WARNING)
    made: Any = jieba.Tokenizer()
    data = Path(home) if home else Path.home() / ".local/share/lance/language_models"
    folder = data / "jieba" / name
    # An untrusted index may choose the name: it must stay below the folder of models.
    if not folder.is_dir() or name in ("", ".", "..") or Path(name).name != name:
        if name != "default":
            raise OptionError(
                f"base_tokenizer 'jieba/{name}': Invalid directory path: {folder}. Put the "
                "dictionary there, or set LANCE_LANGUAGE_MODEL_HOME to the folder of models"
            )
        main, users = made.get_dict_file(), []
    else:
        try:
            config: dict[str, Any] = {}
            if (folder / "config.json").exists():
                config = json.loads((folder / "config.json").read_bytes())
            main = BytesIO((folder / config.get("main", "dict.txt")).read_bytes())
            users = [(folder / one).read_text("utf-8") for one in config.get("users", ())]
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"base_tokenizer 'jieba/{name}': {folder}: {error}") from error
    with main:
        made.FREQ, made.total = made.gen_pfdict(main)
    made.initialized = True
    for words in users:
        made.load_userdict(StringIO(words))
    return made


# --- ``simple``: words are runs of letters and numbers ----------------------------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


@base_tokenizer("simple")
class Simple(BaseTokenizer):
    """Runs of letters and numbers."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find tokens with a kernel; one step per character."""
        return Pieces(strings.data, *find_tokens(strings, count, alphanumeric()))


# --- ``whitespace``: words are separated by ASCII white space ---------------------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


@base_tokenizer("whitespace")
class Whitespace(BaseTokenizer):
    """Runs of characters other than white space."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find tokens with a kernel; one step per character."""
        return Pieces(strings.data, *find_tokens(strings, count, not_space()))


# --- ``raw``: a text is one token -------------------------------------------------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


@base_tokenizer("raw")
class Raw(BaseTokenizer):
    """The whole text, even if empty."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Return each text as one token."""
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
        sizes = np.diff(ends).astype(np.uint32)
        return Pieces(strings.data, ends[:-1], sizes, np.ones(count, np.int64))


# --- ``ngram``: all short runs of adjacent characters, including white space ------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.

_ALLOWED_LENGTHS = 64
"""Number of n-gram lengths that is allowed for texts of any size."""

_MAX_TOKENS = 1 << 22
"""Maximum tokens of texts cut together, if there are more lengths."""


@base_tokenizer("ngram")
class NGram(BaseTokenizer):
    """All n-grams of some lengths, all at position 0."""

    def split(self, strings: Strings, count: int) -> Pieces:
        """Return the n-grams of each character, the shortest first; memory: 20 bytes per n-gram."""
        check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
        ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        leads = as_array(strings.data)[first:last] & 0xC0 != 0x80
        begins = first + np.flatnonzero(leads)
        # Characters of each text: ``bounds[i]`` is where the characters of text i begin.
        bounds = np.searchsorted(begins, ends)
        shortest, longest = self.params.min_ngram_length, self._longest()
        text = np.repeat(np.arange(count), np.diff(bounds))
        at = np.arange(len(begins))
        if self.params.prefix_only:
            at = bounds[:-1][np.diff(bounds) > 0]
            text = text[at]
        # Number of n-grams of each character: limited by the characters up to the end.
        max_count = max(longest - shortest + 1, 0)
        here = np.clip(bounds[text + 1] - at - shortest + 1, 0, max_count)
        self._check(int(here.sum()), int(here.max(initial=0)), len(at))
        owner = np.repeat(np.arange(len(at)), here)
        before = np.cumsum(here) - here
        stops = at[owner] + shortest + np.arange(len(owner)) - before[owner]
        # A text ends where the next text begins, or at the end of the data.
        edges = np.append(begins, last)[stops]
        edges = np.minimum(edges, ends[text[owner] + 1])
        starts = begins[at[owner]]
        sizes = (edges - starts).astype(np.uint32)
        counts = np.bincount(text[owner], minlength=count).astype(np.int64)
        return Pieces(strings.data, starts, sizes, counts, np.zeros(len(starts), np.uint32))

    def _longest(self) -> int:
        """Return the length of the longest n-gram that may have few enough bytes."""
        limit = self.params.max_token_length
        longest = self.params.max_ngram_length
        return longest if limit is None else min(longest, limit - 1)

    def _check(self, tokens: int, lengths: int, characters: int) -> None:
        """Raise if an untrusted index asks for n-grams whose number is quadratic in the text."""
        if lengths > _ALLOWED_LENGTHS and tokens > _MAX_TOKENS:
            raise UnsupportedFeatureError(
                f"min_ngram_length={self.params.min_ngram_length} and "
                f"max_ngram_length={self.params.max_ngram_length} make {tokens} tokens of "
                f"{characters} characters; more than {_MAX_TOKENS} are supported only where each "
                f"character begins at most {_ALLOWED_LENGTHS}. Build the index again with a "
                "smaller max_ngram_length, or with a max_token_length"
            )
