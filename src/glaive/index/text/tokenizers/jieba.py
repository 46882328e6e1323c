"""``jieba``: Chinese words by a dictionary, and the words in them.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from glaive.errors import MissingDependencyError, OptionError, StoreError
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers.base import (
    BaseTokenizer,
    Pieces,
    RunPieces,
    all_characters,
    base_tokenizer,
    split_runs,
)
from glaive.kernels.strings import Strings


@base_tokenizer("jieba")
class Jieba(BaseTokenizer):
    """Words of the dictionary of the package jieba; positions are those of their first character.

    ``jieba/NAME`` has the dictionary of that folder below ``LANCE_LANGUAGE_MODEL_HOME``.

    Raises
    ------
    MissingDependencyError
        jieba is not installed.
    OptionError, StoreError
        The folder of the dictionary, or a file that it names, cannot be read.
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
    """Words and how often each occurs: takes about a second, once per process.

    jieba itself would read what it kept in ``/tmp/jieba.cache``, whoever wrote it, by ``marshal``,
    which trusts what it reads.

    Parameters
    ----------
    name
        Of a folder with ``dict.txt``, or with a ``config.json`` that names a dictionary (``main``)
        and files of the user's words (``users``), by paths from that folder. The default is the
        dictionary of the package where this folder is missing.
    home
        The folder of language models; ``lance/language_models`` among the user's data by default.
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
    # A name comes from an index, which may be a stranger's: it stays below the folder of models.
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
