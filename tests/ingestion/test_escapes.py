"""Escapes of CSV, whose number in front of a character says whether it counts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.traced import traced_peak

from glaive.ingestion import sources
from glaive.ingestion.sources import unescaped


def expected(data: bytes, character: str) -> list[int]:
    counted, escapes = [], 0
    for at, byte in enumerate(data):
        if byte == ord(character) and not escapes % 2:
            counted.append(at)
        escapes = escapes + 1 if byte == ord("\\") else 0
    return counted


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_characters_behind_an_odd_number_of_escapes_do_not_count(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(sources, "_PART_BYTES", size)
    chosen = random.Random(size)
    for _ in range(200):
        data = bytes(chosen.choices(b'\\\\\\"\na', k=chosen.randrange(40)))
        for character in '"\n':
            found = unescaped(np.frombuffer(data, np.uint8), character, "\\")
            assert found.tolist() == expected(data, character), data


def test_escapes_take_no_memory_of_their_own() -> None:
    data = np.frombuffer(b"\\\n" * (8 << 20), np.uint8)
    assert traced_peak(lambda: unescaped(data, "\n", "\\")) < 4 * data.size
