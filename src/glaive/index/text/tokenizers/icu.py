"""``icu`` and ``icu/split``: words as Unicode and its dictionaries of languages find them.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from glaive.errors import MissingDependencyError
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers.base import (
    BaseTokenizer,
    Pieces,
    RunPieces,
    base_tokenizer,
    is_alphanumeric,
    not_space,
    split_runs,
)
from glaive.kernels.strings import Strings

_COLONS: Final = re.compile("[:\ufe55\uff1a]")
"""ICU joins the words around them, the reference does not."""

_HANGUL: Final = re.compile("[\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff]")
_JOINING: Final = re.compile(
    "[^\\W\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u2189\u2460-\u249b\u2776-\u2793\u3200-\u33ff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
"""Letters of scripts whose words have spaces between them, decimal digits and underscores."""
_IGNORED: Final = re.compile("[\u00ad\u0300-\u036f\u200d]+$")
"""Marks and format characters at the end of a segment, which belong to the letter before."""


@base_tokenizer("icu")
class Icu(BaseTokenizer):
    """Segments with a letter or a number; with ``/split`` their runs of letters and numbers.

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
        """Cut texts at white space, and each distinct run by ICU."""
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
    """Segments, of which those of Hangul are joined with letters and numbers beside them.

    ICU breaks there because it looks Korean up in a dictionary, the reference does not.
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
    """What stands between the characters of a pattern."""
    edges = [0]
    for found in pattern.finditer(text):
        edges += found.span()
    edges.append(len(text))
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _words(segment: str, at: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Runs of letters and numbers of a part of a segment that begins at ``at``."""
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
