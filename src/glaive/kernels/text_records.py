"""Arguments of the kernels of full-text search, by name: see ``glaive.kernels.records``."""

from __future__ import annotations

from glaive.named_tuple import NamedTuple

__all__ = ["DecodePositions", "DecodePostings", "PhraseEntry", "TermEntry", "TopAll", "TopAny"]


class DecodePostings(NamedTuple):
    """A posting list to be decoded: ``blocks`` byte strings, which begin and end at ``offsets``.

    ``documents`` and ``frequencies`` are ``uint32`` arrays of ``length`` items; documents are
    below ``limit``.
    """

    data: int
    offsets: int
    blocks: int
    length: int
    block: int
    fixed_tail: int
    limit: int
    documents: int
    frequencies: int


class DecodePositions(NamedTuple):
    """Positions of a posting list, in byte strings of a block of documents each.

    ``frequencies`` and ``into`` are ``uint32`` arrays; ``into`` has as many items as the sum of
    the frequencies.
    """

    data: int
    offsets: int
    blocks: int
    length: int
    block: int
    group: int
    frequencies: int
    into: int


class TermEntry(NamedTuple):
    """A posting list to be searched: ``length`` documents with weights, and bounds of blocks.

    ``documents`` and ``lasts`` are ``uint32`` arrays, ``weights`` and ``bests`` ``float32``.
    """

    documents: int
    weights: int
    lasts: int
    bests: int
    length: int


class PhraseEntry(NamedTuple):
    """A term of a phrase: its list, and where it stands in each document.

    Document i has ``positions`` from ``starts[i]`` to ``starts[i + 1]``, of ``total``; ``offset``
    is the place of the term in the phrase.
    """

    list: int
    starts: int
    positions: int
    total: int
    offset: int


class TopAny(NamedTuple):
    """A search for the ``most`` best documents with any of some terms.

    ``lists`` has a :class:`TermEntry` for each term. ``factors``, ``bounds`` and ``sums`` are
    ``float64`` arrays; after the factors comes the score that has to be exceeded. ``allowed`` has
    a byte for each of ``limit`` documents, or is 0. ``window`` has a ``float64`` of 0 for each
    document of a window; of ``sums`` there is one more than there are terms.
    """

    lists: int
    terms: int
    factors: int
    allowed: int
    limit: int
    most: int
    scores: int
    documents: int
    cursors: int
    order: int
    bounds: int
    sums: int
    window: int


class TopAll(NamedTuple):
    """A search for the ``most`` best documents with all of some terms, or with a phrase.

    As :class:`TopAny`. ``phrase`` has a :class:`PhraseEntry` for each of ``phrase_terms``;
    ``reached``, room for twice ``capacity`` numbers.
    """

    lists: int
    terms: int
    factors: int
    allowed: int
    limit: int
    most: int
    scores: int
    documents: int
    cursors: int
    bounds: int
    phrase: int
    phrase_terms: int
    reached: int
    capacity: int
    slop: int
