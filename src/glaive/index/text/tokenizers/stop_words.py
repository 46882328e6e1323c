"""Words of each language that are too frequent to be worth an index entry.

They lie in the folder ``words``, one file per language, separated by white space.

Specification: "Filters" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["stop_words"]


@cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language of ``LANGUAGES``, in small letters."""
    file = files("glaive.index.text.tokenizers") / "words" / f"{language.lower()}.txt"
    return frozenset(file.read_text("utf-8").split())
