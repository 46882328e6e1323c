"""Trials of damaged index files: one file of an index is changed, and all is searched, and rebuilt.

Bytes are changed wherever they are. Numbers, texts, lists and buffers are changed, too, and the
file is then written anew, so that what is wrong gets past all checks of files: counts, offsets,
codebooks, blocks of postings, neighbours in graphs.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.proof.index_kinds import KINDS, indexed_dataset, searches_of
from tests.proof.wire_mutations import mutate_message, section_of, with_section

import glaive
from glaive.errors import GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.index.segment import IndexFile
from glaive.io.access import open_store

__all__ = ["a_value_in_an_index", "an_index_entry", "an_index_file"]

_EXTREMES = [0, 1, -1, 2, 127, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1]

_MAINTAINED: list[Callable[[Any], object]] = [
    lambda d: d.optimize.optimize_indices(),
    lambda d: d.optimize.optimize_indices(num_indices_to_merge=9),
    lambda d: d.optimize.compact_files(materialize_deletions_threshold=0.0),
    lambda d: [d.stats.index_stats(one.name) for one in d.describe_indices()],
    lambda d: [d.prewarm_index(one.name) for one in d.describe_indices()],
]


def _searched(place: Path, kind: str, rng: np.random.Generator, *, named: bool = True) -> str:
    """Search the index in every way, and maintain it in one; what came of it.

    Each error names the index if it has to.
    """
    refused = 0
    searches = searches_of(kind)
    dataset = glaive.dataset(place)
    for search in searches:
        try:
            search(dataset).validate(full=True)
        except GlaiveError as error:
            refused += 1
            _check_message(error, named=named)
    try:
        _MAINTAINED[int(rng.integers(len(_MAINTAINED)))](dataset)
        glaive.dataset(place).to_table(["k"]).validate(full=True)
    except GlaiveError as error:
        _check_message(error, named=named)
        return f"{refused} of {len(searches)} searches refused, not maintained"
    return f"{refused} of {len(searches)} searches refused, maintained"


def _check_message(error: GlaiveError, *, named: bool) -> None:
    if named and "_indices" not in str(error):
        raise AssertionError(f"does not name the index: {error!r}") from error


def _chosen(folder: Path, rng: np.random.Generator) -> tuple[str, Path, Path]:
    """A copy of a dataset, and one file of its index."""
    kind = sorted(KINDS)[int(rng.integers(len(KINDS)))]
    place = folder / "hurt.lance"
    shutil.copytree(indexed_dataset(kind), place)
    files = sorted(path for path in (place / "_indices").rglob("*") if path.is_file())
    return kind, place, files[int(rng.integers(len(files)))]


def an_index_file(folder: Path, rng: np.random.Generator) -> str:
    """Damage the bytes of a file of an index."""
    kind, place, file = _chosen(folder, rng)
    content = bytearray(file.read_bytes())
    if rng.random() < 0.1:
        del content[int(rng.integers(len(content))) :]
    for _ in range(int(rng.integers(1, 4))):
        if content:
            _change(content, rng)
    file.write_bytes(bytes(content))
    return f"bytes of {kind}: {_searched(place, kind, rng)}"


def _change(content: bytearray, rng: np.random.Generator) -> None:
    """Change one bit, or put an extreme number somewhere."""
    if rng.random() < 0.4 or len(content) < 16:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        return
    width = int(rng.choice([1, 2, 4, 8]))
    at = int(rng.integers(len(content) // width)) * width
    number = int(rng.choice(_EXTREMES)) & ((1 << 8 * width) - 1)
    content[at : at + width] = number.to_bytes(width, "little")


# ------------------------------------------------------------------ values


def a_value_in_an_index(folder: Path, rng: np.random.Generator) -> str:
    """Change values of a file of an index, which is a sound file all the same."""
    kind, place, file = _chosen(folder, rng)
    try:
        _rewrite(place, file, rng)
    except GlaiveError:  # a file of another kind, or values that cannot be written
        return f"values of {kind}: not changed"
    return f"values of {kind}: {_searched(place, kind, rng)}"


def _rewrite(place: Path, file: Path, rng: np.random.Generator) -> None:
    """Write the file again with something else in one of its parts."""
    store = open_store(str(place))
    path = str(file.relative_to(place))
    opened = IndexFile(store, path)
    table, metadata, buffers = opened.read(), dict(opened.metadata), []
    while True:
        try:
            buffers.append(bytearray(opened.buffer(len(buffers) + 1).to_pybytes()))
        except GlaiveError:
            break
    parts = ["column", "type", "rows", "metadata", "buffer"]
    part = rng.choice(parts, p=[0.4, 0.1, 0.1, 0.15, 0.25])
    if part == "buffer" and any(buffers):
        content = next(buffer for buffer in buffers if buffer)
        if rng.random() < 0.5:
            content[:] = mutate_message(bytes(content), random.Random(int(rng.integers(2**32))))
        else:
            for _ in range(int(rng.integers(1, 4))):
                _change(content, rng)
    elif part == "metadata" and metadata:
        key = sorted(metadata)[int(rng.integers(len(metadata)))]
        metadata[key] = (_other_text if rng.random() < 0.5 else _other_json)(metadata[key], rng)
    elif part == "rows" and len(table):
        kept = rng.choice(len(table), int(rng.integers(len(table) + 1)), replace=rng.random() < 0.5)
        table = table.take(pa.array(kept))
    elif part == "type" and table.num_columns:
        at = int(rng.integers(table.num_columns))
        other = _of_another_type(len(table), rng)
        table = table.set_column(at, pa.field(table.schema.names[at], other.type), other)
    elif table.num_columns and len(table):
        at = int(rng.integers(table.num_columns))
        changed = _other_values(table.column(at).combine_chunks(), rng)
        table = table.set_column(at, table.schema.field(at), changed)
    file.unlink()
    writer: Any = create_writer(store, path, LanceSchema.from_arrow(table.schema), "2.1")
    for one in buffers:
        writer.add_global_buffer(bytes(one))
    for key, value in metadata.items():
        writer.add_schema_metadata(key, value)
    writer.write(table)
    writer.finish()


_TYPES: list[tuple[Any, pa.DataType]] = [
    (None, pa.null()), (True, pa.bool_()), (-1, pa.int8()), (2**31, pa.uint32()), (-1, pa.int64()),
    (2**64 - 1, pa.uint64()), (float("nan"), pa.float32()), (1e300, pa.float64()),
    ("x", pa.string()), ("", pa.large_string()), (b"\xff" * 9, pa.binary()),
    (b"", pa.large_binary()), (b"\xff" * 4, pa.binary(4)), (2**31 - 1, pa.date32()),
    (2**62, pa.timestamp("s")), (2**62, pa.duration("s")), ([1], pa.list_(pa.int64())),
    ([None], pa.list_(pa.int32())), (["x"], pa.list_(pa.string())),
    ([], pa.list_(pa.large_binary())), ([1], pa.list_(pa.uint8(), 1)),
    ([1.0] * 16, pa.list_(pa.float32(), 16)), ([1e308] * 16, pa.list_(pa.float64(), 16)),
    ({"a": 1}, pa.struct([("a", pa.int64())])),
]  # fmt: skip
"""A value of many types."""


def _of_another_type(rows: int, rng: np.random.Generator) -> pa.Array[Any]:
    """A column with equal values of a type that its reader does not ask for."""
    value, kind = _TYPES[int(rng.integers(len(_TYPES)))]
    return pa.array([value] * rows, kind)


def _other_text(text: str, rng: np.random.Generator) -> str:
    """A text with one number, or one character, changed."""
    digits = [at for at, one in enumerate(text) if one.isdecimal()]
    if digits and rng.random() < 0.8:
        at = digits[int(rng.integers(len(digits)))]
        return text[:at] + str(rng.choice(_EXTREMES)) + text[at + 1 :]
    if rng.random() < 0.3 or not text:
        return ""
    at = int(rng.integers(len(text)))
    return text[:at] + str(rng.choice(list('x{["0-é'))) + text[at + 1 :]


def _other_json(text: str, rng: np.random.Generator) -> str:
    """A JSON text with one value, somewhere in it, replaced, removed or put in lists."""
    try:
        value = json.loads(text)
    except ValueError:
        return _other_text(text, rng)
    return json.dumps(_other_member(value, rng))


def _other_member(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.8:
        return _other_json(value, rng)
    if isinstance(value, dict | list) and value and rng.random() < 0.9:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = keys[int(rng.integers(len(keys)))]
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = _other_member(value[key], rng)
        return value
    others = [None, True, -1, 1.5, 1e300, 2**31, 2**63, 10**40, "", "x", "NaN", "é" * 9, [], {}]
    deep: Any = value
    for _ in range(int(rng.integers(900))):
        deep = [deep]
    others += [deep, [value], {"a": value}, [value] * 999]
    return others[int(rng.integers(len(others)))]


def _other_values(values: Any, rng: np.random.Generator) -> Any:
    """An array with a few of its numbers or bytes, or of its children's, changed."""
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lists = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        offsets = values.offsets
        if rng.random() < 0.4 and len(values) > 1:  # one list ends elsewhere
            numbers = offsets.to_numpy().copy()
            at = int(rng.integers(1, len(numbers)))
            numbers[at] = numbers[at - 1]
            offsets = pa.array(numbers, offsets.type)
            return lists.from_arrays(offsets, values.values, type=kind)
        return lists.from_arrays(offsets, _other_values(values.values, rng), type=kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_other_values(values.values, rng), type=kind)
    if pa.types.is_struct(kind):
        children = [values.field(at) for at in range(kind.num_fields)]
        at = int(rng.integers(len(children)))
        children[at] = _other_values(children[at], rng)
        return pa.StructArray.from_arrays(children, fields=list(kind))
    items = values.to_pylist()
    if not items:
        return values
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(items)))
        items[at] = _other_item(items[at], kind, rng)
    return pa.array(items, kind)


def _other_item(item: Any, kind: pa.DataType, rng: np.random.Generator) -> Any:
    if rng.random() < 0.05:
        return None
    if isinstance(item, bytes):
        content = bytearray(item)
        if rng.random() < 0.3:
            del content[int(rng.integers(len(content) + 1)) :]
        elif content:
            _change(content, rng)
        return bytes(content)
    if isinstance(item, str):
        return _other_text(item, rng)
    if pa.types.is_floating(kind):
        return float(rng.choice([0.0, -1.0, 1e30, -1e30, np.inf, np.nan]))
    if pa.types.is_integer(kind):
        number = int(rng.choice(_EXTREMES)) & ((1 << kind.bit_width) - 1)
        signed = pa.types.is_signed_integer(kind) and number >= 1 << (kind.bit_width - 1)
        return number - (1 << kind.bit_width) if signed else number
    return item


# ------------------------------------------------------------------ entries


def an_index_entry(folder: Path, rng: np.random.Generator) -> str:
    """Change the entry of an index in the newest manifest: its fields, files and details."""
    kind = sorted(KINDS)[int(rng.integers(len(KINDS)))]
    place = folder / "hurt.lance"
    shutil.copytree(indexed_dataset(kind), place)
    newest = min((place / "_versions").glob("*.manifest"))
    raw = newest.read_bytes()
    section = section_of(raw)
    for _ in range(int(rng.integers(1, 3))):
        section = mutate_message(section, random.Random(int(rng.integers(2**32))))
    newest.write_bytes(with_section(raw, section))
    try:
        return f"entry of {kind}: {_searched(place, kind, rng, named=False)}"
    except GlaiveError as error:
        return f"entry of {kind}: {type(error).__name__}"
