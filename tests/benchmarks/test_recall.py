"""Vectors of texts, on which the recall of indices is compared."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lance", reason="install the 'interop' group")
from benchmarks.recall import text_vectors

pytestmark = pytest.mark.interop

TEXTS = [
    "read the pages of the file", "read all pages of a file", "write the pages of the file",
    "train the index on vectors", "train an index on some vectors", "search the index of vectors",
    "it",
]  # fmt: skip


def test_texts_with_words_in_common_are_near_and_those_without_words_left_out() -> None:
    vectors = text_vectors(TEXTS, words=20, axes=4)
    assert vectors.shape == (6, 4)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    likeness = vectors @ vectors.T
    assert likeness[0, 1] > likeness[0, 3:].max()
    assert likeness[3, 4] > likeness[3, :3].max()
