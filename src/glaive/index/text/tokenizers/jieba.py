"""``jieba``: Chinese words by a dictionary, and the words in them.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from glaive.errors import MissingDependencyError
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.base import BaseTokenizer, Pieces, base_tokenizer
from glaive.index.text.tokenizers.characters import all_characters
from glaive.index.text.tokenizers.runs import RunPieces, split_runs
from glaive.kernels.strings import Strings

__all__ = ["Jieba", "dictionary"]


@base_tokenizer("jieba")
class Jieba(BaseTokenizer):
    """Words of the dictionary of the package jieba; positions are those of their first character.

    Raises
    ------
    MissingDependencyError
        jieba is not installed.
    """

    def __init__(self, params: TextParams) -> None:
        super().__init__(params)
        self._dictionary = dictionary()

    def split(self, strings: Strings, count: int) -> Pieces:
        """Cut each distinct text."""
        return split_runs(strings, count, all_characters(), self._cut)

    def _cut(self, text: str) -> RunPieces:
        readable = text.encode(errors="replace").decode()
        words = list(self._dictionary.tokenize(readable, mode="search"))
        bounds = [(start, stop) for _, start, stop in words]
        return RunPieces(bounds, [start for start, _ in bounds], len(text))


@cache
def dictionary() -> Any:
    """Words and how often each occurs: takes about a second, once per process.

    jieba itself would read what it kept in ``/tmp/jieba.cache``, whoever wrote it, by ``marshal``,
    which trusts what it reads.
    """
    try:
        import jieba
    except ImportError as error:
        raise MissingDependencyError(
            "base_tokenizer='jieba' needs jieba: pip install 'glaive[jieba]'"
        ) from error
    jieba.setLogLevel(logging.WARNING)
    made: Any = jieba.Tokenizer()
    made.FREQ, made.total = made.gen_pfdict(made.get_dict_file())
    made.initialized = True
    return made
