"""Damaged index files: making them anew is an error that names the file, or goes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.interop.compacted import entries, rows, segment_of

import glaive
from glaive.errors import GlaiveError
from glaive.index.address_map import AddressMap
from glaive.index.registry import kind_of
from glaive.index.segment import Segment, SegmentWriter

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

TWO = {"num_partitions": 2}

INDICES: dict[str, Any] = {
    "product-codes": lambda one: one.create_index("v", "IVF_PQ", num_sub_vectors=2, **TWO),
    "packed-bits": lambda one: one.create_index("v", "IVF_RQ", num_partitions=2, num_bits=2),
    "graphs": lambda one: one.create_index("v", "IVF_HNSW_SQ", num_partitions=2),
    "one-file": lambda one: one.create_index(
        "v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, index_file_version="Legacy"
    ),
    "texts": lambda one: one.create_scalar_index("t", "INVERTED", with_position=True),
    "texts-version-1": lambda one: one.create_scalar_index(
        "t", "INVERTED", with_position=True, format_version=1
    ),
    "ngrams": lambda one: one.create_scalar_index("t", "INVERTED", base_tokenizer="ngram"),
}


def damaged(raw: bytes, random: np.random.Generator) -> Iterator[bytes]:
    """The file with other bytes, mostly near its end, and cut short."""
    for at in range(12):
        changed = bytearray(raw)
        low = 0 if at % 3 == 0 else max(0, len(raw) - 1500)
        for _ in range(random.integers(1, 3)):
            changed[random.integers(low, len(raw))] = random.integers(0, 256)
        yield bytes(changed)
    yield raw[:-1]
    yield raw[: len(raw) // 2]


@pytest.mark.parametrize("kind", INDICES)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    dataset = lance.write_dataset(rows(0, 400), path)
    INDICES[kind](dataset)
    dataset.delete("id % 5 = 0 OR t LIKE '%word2%'")
    opened = glaive.dataset(str(path))
    (entry,) = entries(path)
    (old,) = opened.manifest.fragments()
    left = dataset.to_table(columns=[], with_row_address=True)["_rowaddr"].to_numpy()
    new = replace(old, id=9, physical_rows=len(left))
    moved = AddressMap.of([(left, [old], [new])])
    segment = Segment.of(opened.store, opened.manifest, entry)
    found = kind_of(entry)
    assert found is not None
    random = np.random.default_rng(1)
    failed = 0
    for file in sorted(segment_of(path, entry.name).iterdir()):
        raw = file.read_bytes()
        for changed in damaged(raw, random):
            file.write_bytes(changed)
            out = SegmentWriter(opened.store, opened.manifest.data_format)
            try:
                failed += found.remap(segment, moved, out) is None
            except GlaiveError as error:
                assert file.parent.name in str(error)  # noqa: PT017  # not all damage is an error
                failed += 1
            out.abort()
        file.write_bytes(raw)
    assert failed
