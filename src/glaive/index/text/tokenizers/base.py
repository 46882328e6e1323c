"""What a base tokenizer implements, and how it is found by its name.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

import pyarrow as pa

from glaive.errors import OptionError
from glaive.index.text.params import TextParams
from glaive.kernels.strings import Strings
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["BaseTokenizer", "Pieces", "base_tokenizer", "base_tokenizer_of"]


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
