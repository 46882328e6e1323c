"""Damaged index files: rebuilding them is an error that names the file, or goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.compacted import entries, rows, segment_of

import glaive
from glaive.errors import CorruptFileError, GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.index.protocol import kind_of
from glaive.index.row_sets import AddressMap
from glaive.index.segment import IndexFile, Segment, SegmentWriter

lance = pytest.importorskip("lance", reason="install the 'interop' group")
IndexConfig: Any = pytest.importorskip("lance.indices").IndexConfig

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


def rebuilt(path: Path) -> tuple[Segment, Callable[[], bool]]:
    """The segment of the only index, and whether it can be rebuilt for moved rows."""
    opened = glaive.dataset(str(path))
    (entry,) = entries(path)
    (old,) = opened.manifest.fragments()
    left = lance.dataset(path).to_table(columns=[], with_row_address=True)["_rowaddr"].to_numpy()
    new = replace(old, id=9, physical_rows=len(left))
    moved = AddressMap.of([(left, [old], [new])])
    segment = Segment.of(opened.store, opened.manifest, entry)
    found = kind_of(entry)
    assert found is not None

    def attempt() -> bool:
        out = SegmentWriter(opened.store, opened.manifest.data_format)
        try:
            return found.remap(segment, moved, out) is not None
        finally:
            out.abort()

    return segment, attempt


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("kind", INDICES)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    dataset = lance.write_dataset(rows(0, 400), path)
    INDICES[kind](dataset)
    dataset.delete("id % 5 = 0 OR t LIKE '%word2%'")
    segment, attempt = rebuilt(path)
    random = np.random.default_rng(1)
    failed = 0
    for file in sorted(segment_of(path, segment.entry.name).iterdir()):
        raw = file.read_bytes()
        for changed in damaged(raw, random):
            file.write_bytes(changed)
            try:
                failed += not attempt()
            except GlaiveError as error:
                assert file.parent.name in str(error)  # noqa: PT017  # not all damage is an error
                failed += 1
        file.write_bytes(raw)
    assert failed


TYPED: dict[str, Any] = {
    "b-tree": lambda one: one.create_scalar_index("id", "BTREE"),
    "bands": lambda one: one.create_scalar_index("t", IndexConfig("minhashlsh", {})),
    "texts": INDICES["texts"],
    "graphs": INDICES["graphs"],
}


def other_columns(table: pa.Table) -> Iterator[pa.Table]:
    """The rows with a column of another type, or with nulls, or without it."""
    count = len(table)
    others: Any = [["x"] * count, [0.5] * count, [[1]] * count, [["x"]] * count]
    for at, field in enumerate(table.schema):
        for values in map(pa.array, others):
            yield table.set_column(at, field.name, values)
        nulls = pa.nulls(count, field.type)
        yield table.set_column(at, field.with_nullable(True), nulls)
        yield table.remove_column(at)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("kind", TYPED)
def test_columns_of_other_types_are_damage(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    dataset = lance.write_dataset(rows(0, 300), path)
    TYPED[kind](dataset)
    dataset.delete("id % 5 = 0")
    segment, attempt = rebuilt(path)
    failed = 0
    for name in segment.sizes():
        place = f"{segment.folder}/{name}"
        file = path / place
        raw = file.read_bytes()
        opened = IndexFile(segment.store, place)
        table, metadata, buffers = opened.read(), opened.metadata, []
        for number in range(1, 3):
            try:
                buffers.append(opened.buffer(number).to_pybytes())
            except CorruptFileError:
                break
        for other in other_columns(table):
            file.unlink()
            writer: Any = create_writer(
                segment.store, place, LanceSchema.from_arrow(other.schema), "2.2"
            )
            for one in buffers:
                writer.add_global_buffer(one)
            for key, value in metadata.items():
                writer.add_schema_metadata(key, value)
            writer.write(other)
            writer.finish()
            try:
                failed += not attempt()
            except GlaiveError as error:
                assert file.parent.name in str(error)  # noqa: PT017  # not all damage is an error
                failed += 1
        file.write_bytes(raw)
    assert failed
