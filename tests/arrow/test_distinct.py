"""Distinct values are those that Arrow finds, also where values were chosen to meet in its hash."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive.arrow.chunked import concat_arrays, dictionary_encoded

FACTORS = 11400714785074694791, 14029467366897019727
"""What Arrow multiplies the last and the first eight bytes of a text by, to hash it."""

MANY = 2000


def texts_that_meet(count: int) -> Any:
    """Distinct texts of 16 bytes with one and the same hash in Arrow."""
    last = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        hashed = (last * np.uint64(FACTORS[0])).byteswap() ^ np.uint64(0x123456789ABCDEF0)
        first = hashed.byteswap() * np.uint64(pow(FACTORS[1], -1, 1 << 64))
    data = np.stack((first, last), axis=1).tobytes()
    ends = pa.py_buffer(16 * np.arange(count + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(data)])


NUMBERS = [at * at % 61 - 30 for at in range(MANY)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(NUMBERS, pa.int8()),
        pa.array(NUMBERS, pa.int32()),
        pa.array(NUMBERS, pa.int64()),
        pa.array([number / 7 for number in NUMBERS], pa.float32()),
        pa.array([Decimal(number) for number in NUMBERS], pa.decimal128(20, 2)),
        pa.array([Decimal(number) for number in NUMBERS], pa.decimal256(50, 2)),
        pa.array(NUMBERS, pa.timestamp("us")),
        pa.array([number > 0 for number in NUMBERS]),
        pa.array([f"{number:07}".encode() for number in NUMBERS], pa.binary(7)),
        pa.array(map(str, NUMBERS), pa.string()),
        pa.array(map(str, NUMBERS), pa.large_string()),
        pa.array([b""] * MANY, pa.large_binary()),
        pa.nulls(MANY, pa.binary()),
        pa.nulls(MANY),
    ],
    ids=lambda array: str(array.type),
)
def test_distinct_values_are_those_of_arrow(array: Any) -> None:
    holes = pa.array([at % 5 == 0 for at in range(MANY)])
    with_nulls = pc.if_else(holes, pa.scalar(None, array.type), array)
    for given in (array, array.slice(3), with_nulls, with_nulls.slice(7)):
        found = dictionary_encoded(given)
        found.validate(full=True)
        expected = given.dictionary_encode()
        assert found.indices.to_pylist() == expected.indices.to_pylist()
        assert found.dictionary.equals(expected.dictionary)


@pytest.mark.spec("rel-25")
def test_chosen_texts_do_not_take_the_square_of_their_number() -> None:
    """In Arrow these take more than an hour."""
    texts = texts_that_meet(1_000_000)
    found = dictionary_encoded(texts)
    assert found.dictionary.equals(texts)
    assert found.indices.to_numpy().tolist() == list(range(len(texts)))


@pytest.mark.spec("rel-25")
def test_chosen_texts_in_a_dictionary_column_are_read_and_indexed(tmp_path: Path) -> None:
    texts = texts_that_meet(200_000)
    repeated = pa.concat_arrays([pa.array([b"a"] * 60_000, pa.binary()), texts])
    items = pa.DictionaryArray.from_arrays(pa.array(np.arange(len(texts), dtype=np.int32)), texts)
    ends = pa.nulls(60_000, items.type)
    table = pa.table({"text": repeated, "item": pa.chunked_array([ends, items])})
    dataset = glaive.write_dataset(table, tmp_path / "chosen.lance")
    read = dataset.to_table()["item"].chunks
    assert pa.concat_arrays([one.dictionary_decode() for one in read]).drop_null().equals(texts)
    dataset.create_scalar_index("text", "BTREE")
    dataset.create_scalar_index("text", "BITMAP", name="again")
    assert dataset.count_rows("text = X'61'") == 60_000


def test_arrays_of_several_dictionaries_are_joined_by_value() -> None:
    rows = [
        [f"{at * step % 1500}" if at % 7 else None for at in range(3000)] for step in (1, 7, 11)
    ]
    arrays = [pa.array(one, pa.string()).dictionary_encode() for one in rows]
    joined = concat_arrays([arrays[0], arrays[1].slice(5), arrays[2]])
    joined.validate(full=True)
    assert joined.to_pylist() == rows[0] + rows[1][5:] + rows[2]
    assert len(joined.dictionary) == 1500
    assert joined.type == arrays[0].type
