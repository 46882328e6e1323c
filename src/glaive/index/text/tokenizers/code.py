"""``code``: identifiers of programs and, if asked for, their parts; operators, if asked for.

Specification: "Code" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers.base import (
    BaseTokenizer,
    Pieces,
    RunPieces,
    alphanumeric_and,
    base_tokenizer,
    is_capital,
    is_small,
    split_runs,
)
from glaive.kernels.strings import Strings

_SIGNS: Final = "!%&*+-/:<=>?^|~"
_LONG_OPERATORS: Final = (
    ">>>=", "!==", "&&=", "**=", "//=", "<<=", "<=>", "===", ">>=", ">>>", "??=", "||=", "!=", "%=",
    "&&", "&=", "**", "*=", "++", "+=", "--", "-=", "->", "//", "/=", "::", ":=", "<-", "<<", "<=",
    "==", "=>", ">=", ">>", "??", "^=", "|=", "|>", "||", "~=",
)  # fmt: skip
"""The longest first, so that they are found before their parts."""

_SIGN: Final = f"[{re.escape(_SIGNS)}]"
_PARTS: Final = re.compile(
    "|".join((*map(re.escape, _LONG_OPERATORS), _SIGN, f"[^{re.escape(_SIGNS)}]+"))
)
_DIGITS: Final = frozenset("0123456789")


@base_tokenizer("code")
class Code(BaseTokenizer):
    """Runs of letters, numbers and underscores; with operators, these too."""

    def __init__(self, params: TextParams) -> None:
        super().__init__(params)
        self._characters = alphanumeric_and("_" + (_SIGNS if params.index_operators else ""))

    def split(self, strings: Strings, count: int) -> Pieces:
        """Find runs with a kernel, and cut each distinct one."""
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
        """Bounds of the parts of an identifier."""
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
