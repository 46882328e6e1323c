"""MinHash signatures: known values, the same in both tiers, wrong bounds refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import SchemaError
from glaive.kernels.hashing import Permutations, sign

TIERS = ("numpy", "numba")

PUBLISHED = Permutations(
    np.array([0xBDD732262FEB6E95, 0x47526757130F9F53, 0x09BC585A244823F3], np.uint64),
    np.array([0x28EFE333B266F103, 0x581CE1FF0E4AE394, 0xDE4431FA3C80DB06], np.uint64),
    np.array([0x5705B8770B3D7DD5, 0x9E54D738297F77AF, 0x3474724A775B19BF], np.uint64),
)
FIRST = [0x4C0B0D36203CE55F, 0x09C7AE895D82B184, 0x68E7F4B1BE7B4C1F]
SECOND = [0x07C0130AB04388D5]


@pytest.mark.parametrize("tier", TIERS)
def test_signatures_are_those_of_the_specification(tier: Any) -> None:
    hashes = np.array([*FIRST, *SECOND], np.uint64)
    with force_tier(tier):
        signatures = sign(hashes, np.array([0, 3, 4]), PUBLISHED)
    assert signatures.tolist() == [[0xB00F, 0x59D6, 0x511A], [0x2970, 0xD6DB, 0x65F8]]


@given(
    counts=st.lists(st.integers(1, 5), max_size=6), values=st.integers(0, 5), seed=st.integers(0)
)
def test_both_tiers_agree(counts: list[int], values: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    bounds = np.cumsum([0, *counts])
    hashes = random.integers(0, 2**64, bounds[-1] + 2, np.uint64)
    numbers = Permutations(*random.integers(0, 2**64, (3, values), np.uint64))
    signed = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            signed.append(sign(hashes, bounds + 1, numbers))
    assert signed[0].shape == (len(counts), values)
    assert signed[0].tolist() == signed[1].tolist()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("bounds", [[0, 5], [-1, 2], [2, 2], [3, 1], [0, 2**62]])
def test_wrong_bounds_are_refused(tier: Any, bounds: list[int]) -> None:
    with force_tier(tier), pytest.raises(SchemaError, match="bounds of texts"):
        sign(np.zeros(4, np.uint64), np.array(bounds), PUBLISHED)


def test_permutations_have_as_many_numbers_each() -> None:
    with pytest.raises(SchemaError, match="three times 3 numbers"):
        sign(np.zeros(1, np.uint64), np.array([0, 1]), PUBLISHED._replace(terms=PUBLISHED[1][:2]))
