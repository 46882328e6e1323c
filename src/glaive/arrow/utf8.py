"""Texts that are not UTF-8. Reading a column does not look for them: that takes as long again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from glaive.errors import OptionError

__all__ = ["refuse_half_characters"]


@contextmanager
def refuse_half_characters(what: str) -> Iterator[None]:
    """Name what a caller gave if it turns out to be a text that UTF-8 cannot hold.

    Raises
    ------
    OptionError
        A text has half of a surrogate pair, as Python has of bytes that it could not decode.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # of the caller's own code, such as an iterator of rows
            raise
        near = str(error.object)[max(error.start - 20, 0) : error.start + 20]
        raise OptionError(
            f"{what}: {near!r} has half of a surrogate pair, which no text in UTF-8 has. Check how "
            "it was decoded."
        ) from None
