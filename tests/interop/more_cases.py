"""Columns of the rarer types, of any length, and which format versions pylance has them in."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["MORE", "Case", "more_table"]

PACKED = {"lance-encoding:packed": "true"}
_WORDS = ["red", "green", "", "blue", "größe", "x" * 40]

Rng = np.random.Generator


class Case(NamedTuple):
    """A maker of arrays, the versions that take them, and metadata of the field."""

    make: Callable[[Rng, int], Any]
    versions: tuple[str, ...] = ("2.1", "2.2", "2.3")
    metadata: dict[str, str] | None = None


_NEW = ("2.2", "2.3")
_2_3 = ("2.3",)


def _mask(rng: Rng, count: int) -> Any:
    return pa.array(rng.random(count) < 0.2)


def _numbers(rng: Rng, count: int, kind: Any = None, *, nulls: bool = True) -> Any:
    values = rng.integers(0, 100, count)
    gone = rng.random(count) < 0.2 if nulls else np.zeros(count, np.bool_)
    return pa.array(values, mask=gone).cast(kind or pa.int32())


def _text(rng: Rng, count: int, kind: Any = None, *, nulls: bool = True) -> Any:
    picks = rng.integers(0, len(_WORDS) + nulls, count).tolist()
    return pa.array([*_WORDS, None]).take(pa.array(picks, pa.int64())).cast(kind or pa.string())


def _struct(rng: Rng, count: int, *, nulls: bool = True) -> Any:
    members = [_numbers(rng, count), _text(rng, count)]
    mask = _mask(rng, count) if nulls else None
    return pa.StructArray.from_arrays(members, names=["x", "y"], mask=mask)


def _offsets(rng: Rng, count: int, most: int = 5) -> Any:
    return pa.array(np.concatenate(([0], np.cumsum(rng.integers(0, most, count)))), pa.int32())


def _items(offsets: Any) -> int:
    return int(offsets[-1].as_py())


def _list(make: Callable[[Rng, int], Any]) -> Callable[[Rng, int], Any]:
    def made(rng: Rng, count: int) -> Any:
        offsets = _offsets(rng, count)
        return pa.ListArray.from_arrays(
            offsets, make(rng, _items(offsets)), mask=_mask(rng, count) if count else None
        )

    return made


def _map(value: Callable[[Rng, int], Any], key: Any = None) -> Callable[[Rng, int], Any]:
    def made(rng: Rng, count: int) -> Any:
        offsets = _offsets(rng, count)
        size = _items(offsets)
        keys = pa.array([str(at) for at in range(size)]).cast(key or pa.string())
        return pa.MapArray.from_arrays(
            offsets, keys, value(rng, size), mask=_mask(rng, count) if count else None
        )

    return made


def _fixed(
    make: Callable[[Rng, int], Any], size: int, *, nulls: bool = True
) -> Callable[[Rng, int], Any]:
    def made(rng: Rng, count: int) -> Any:
        items = make(rng, count * size)
        mask = _mask(rng, count) if nulls and count else None
        return pa.FixedSizeListArray.from_arrays(items, size, mask=mask)

    return made


def _within(make: Callable[[Rng, int], Any]) -> Callable[[Rng, int], Any]:
    """A struct with the values as its only member, and nulls."""
    return lambda rng, count: pa.StructArray.from_arrays(
        [make(rng, count)], names=["v"], mask=_mask(rng, count)
    )


def _side_by_side(
    *members: Callable[[Rng, int], Any], nulls: bool = True
) -> Callable[[Rng, int], Any]:
    """A struct of several members."""

    def made(rng: Rng, count: int) -> Any:
        arrays = [member(rng, count) for member in members]
        names = [f"m{at}" for at in range(len(arrays))]
        mask = _mask(rng, count) if nulls else None
        return pa.StructArray.from_arrays(arrays, names=names, mask=mask)

    return made


def _filled_lists(rng: Rng, count: int) -> Any:
    """Lists that all have items, some of them null."""
    offsets = np.concatenate(([0], np.cumsum(rng.integers(1, 4, count))))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _numbers(rng, int(offsets[-1])))


def _wide(rng: Rng, count: int) -> Any:
    gone = rng.random(count) < 0.2
    return pa.array([None if one else rng.bytes(300) for one in gone], pa.binary())


def _packed(*members: Callable[[Rng, int], Any], nulls: bool = True) -> Callable[[Rng, int], Any]:
    def made(rng: Rng, count: int) -> Any:
        arrays = [member(rng, count) for member in members]
        names = [chr(97 + at) for at in range(len(arrays))]
        mask = _mask(rng, count) if nulls else None
        return pa.StructArray.from_arrays(arrays, names=names, mask=mask)

    return made


def _full(kind: Any) -> Callable[[Rng, int], Any]:
    return lambda rng, count: _numbers(rng, count, kind, nulls=False)


def _words(kind: Any) -> Callable[[Rng, int], Any]:
    return lambda rng, count: _text(rng, count, kind, nulls=False)


def _dictionary(index: Any, items: Any, *, nulls: bool = True) -> Callable[[Rng, int], Any]:
    def made(rng: Rng, count: int) -> Any:
        numbers = rng.integers(0, len(items), count)
        gone = rng.random(count) < 0.2 if nulls else np.zeros(count, np.bool_)
        return pa.DictionaryArray.from_arrays(pa.array(numbers, index, mask=gone), items)

    return made


def _crowded_dictionary(rng: Rng, count: int) -> Any:
    """Far more items than values in a page."""
    items = pa.array([f"item {at}" for at in range(20_000)])
    return pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 20_000, count), pa.int32()), items
    )


def _json(rng: Rng, count: int) -> Any:
    texts = [
        f'{{"deep":{{"größe":"\\"{at}\\""}},"id":{at},"tags":["a",{at / 7},null,true]}}'
        if at % 3
        else ("[]", "12", '"text"', "-0.5", "null")[at % 5]
        for at in rng.integers(0, 10_000, count).tolist()
    ]
    null = rng.random(count) < 0.2
    some = [None if gone else text for text, gone in zip(texts, null.tolist(), strict=True)]
    return pa.array(some, pa.json_())


def _uuid(rng: Rng, count: int) -> Any:
    raw = pa.array([rng.bytes(16) for _ in range(count)], pa.binary(16))
    storage = raw if not count else pa.compute.if_else(_mask(rng, count), None, raw)
    return pa.ExtensionArray.from_storage(pa.uuid(), storage.cast(pa.binary(16)))


def _bool8(rng: Rng, count: int) -> Any:
    return pa.ExtensionArray.from_storage(pa.bool8(), _numbers(rng, count, pa.int8()))


def _opaque(rng: Rng, count: int) -> Any:
    kind = pa.opaque(pa.int32(), "kind", "vendor")
    return pa.ExtensionArray.from_storage(kind, _numbers(rng, count))


def _tensor(rng: Rng, count: int) -> Any:
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3])
    flat = pa.array(rng.normal(size=count * 6).astype(np.float32))
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, 6))


def _bfloat16(rng: Rng, count: int) -> Any:
    from lance.arrow import bfloat16_array

    values = [None if gone else 1.5 * at for at, gone in enumerate(rng.random(count) < 0.2)]
    return bfloat16_array(values)


def _empty_struct(_rng: Rng, count: int) -> Any:
    return pa.StructArray.from_buffers(pa.struct([]), count, [None])


def _with_empty_struct(rng: Rng, count: int) -> Any:
    members = [_numbers(rng, count), _empty_struct(rng, count)]
    return pa.StructArray.from_arrays(members, names=["i", "e"])


def _flags(rng: Rng, count: int) -> Any:
    return pa.array(rng.random(count) < 0.5, mask=rng.random(count) < 0.2)


def _short(rng: Rng, count: int) -> Any:
    return _numbers(rng, count, pa.int16())


MORE: dict[str, Case] = {
    "null": Case(lambda _, count: pa.nulls(count)),
    "list_null": Case(_list(lambda _, count: pa.nulls(count))),
    "struct_null": Case(_within(lambda _, count: pa.nulls(count))),
    "fsl_null": Case(_fixed(lambda _, count: pa.nulls(count), 3)),
    "map": Case(_map(_numbers), _NEW),
    "map_of_text": Case(_map(_text, pa.int64()), _NEW),
    "map_of_lists": Case(_map(_list(_numbers)), _NEW),
    "map_of_structs": Case(_map(_struct), _NEW),
    "map_of_maps": Case(_map(_map(_numbers)), _NEW),
    "list_of_maps": Case(_list(_map(_numbers)), _NEW),
    "struct_of_map": Case(_within(_map(_text)), _NEW),
    "fsl_struct": Case(_fixed(_struct, 2), _NEW),
    "fsl_struct_full": Case(_fixed(lambda r, n: _struct(r, n, nulls=False), 3, nulls=False), _NEW),
    "fsl_struct_deep": Case(_fixed(_within(_fixed(_struct, 2)), 3), _NEW),
    "fsl_struct_vector": Case(_fixed(_within(_fixed(_short, 4)), 2), _NEW),
    "fsl_struct_dictionary": Case(
        _fixed(_within(_dictionary(pa.int8(), pa.array(_WORDS))), 2), _NEW
    ),
    "fsl_struct_wide": Case(_fixed(_within(lambda r, n: _text(r, n, pa.large_string())), 40), _NEW),
    "struct_fsl_struct": Case(_within(_fixed(_struct, 2)), _NEW),
    "struct_full": Case(_side_by_side(_full(pa.int32()), _words(pa.string()))),
    "struct_struct_full": Case(_within(_side_by_side(_full(pa.int64()), nulls=False))),
    "struct_vector_full": Case(_within(_fixed(_full(pa.int16()), 3, nulls=False))),
    "struct_fsl_struct_full": Case(_within(_fixed(_within(_full(pa.int8())), 2)), _NEW),
    "struct_list_full": Case(_within(_filled_lists)),
    "fsl_struct_list": Case(_fixed(_within(_list(_numbers)), 2), _2_3),
    "fsl_struct_list_full": Case(
        _fixed(_side_by_side(_filled_lists, _numbers, nulls=False), 3, nulls=False), _2_3
    ),
    "fsl_struct_lists": Case(_fixed(_side_by_side(_list(_text), _list(_numbers)), 2), _2_3),
    "fsl_struct_lists_later": Case(_fixed(_side_by_side(_numbers, _list(_numbers)), 3), _NEW),
    "fsl_struct_map": Case(_fixed(_side_by_side(_text, _map(_numbers)), 2), _NEW),
    "fsl_struct_list_list": Case(_fixed(_within(_list(_list(_numbers))), 2), _2_3),
    "fsl_struct_list_null": Case(_fixed(_within(_list(lambda _, n: pa.nulls(n))), 2), _2_3),
    "fsl_struct_list_wide": Case(_fixed(_within(_list(_wide)), 2), _2_3),
    "fsl_struct_fsl_list": Case(_fixed(_within(_fixed(_within(_list(_numbers)), 2)), 2), _2_3),
    "fsl_of_one_struct_list": Case(_fixed(_within(_list(_numbers)), 1), _2_3),
    "fsl_struct_uneven": Case(
        _fixed(_side_by_side(_numbers, _fixed(_within(_numbers), 2)), 2), _NEW
    ),
    "list_fsl_struct": Case(_list(_fixed(_within(_numbers), 2)), _2_3),
    # Of structs with several members pylance reads no null lists of a fixed size in lists.
    "list_fsl_structs": Case(_list(_fixed(_struct, 2, nulls=False)), _2_3),
    "list_fsl_struct_wide": Case(_list(_fixed(_within(_wide), 2)), _2_3),
    "list_fsl_struct_list": Case(_list(_fixed(_within(_list(_text)), 2)), _2_3),
    "list_list_fsl_struct": Case(_list(_list(_fixed(_within(_text), 3))), _2_3),
    "list_struct_uneven": Case(_list(_side_by_side(_numbers, _fixed(_within(_numbers), 2))), _2_3),
    "map_fsl_struct": Case(_map(_fixed(_within(_numbers), 3)), _2_3),
    "fsl_list_fsl_struct": Case(_fixed(_within(_list(_fixed(_within(_short), 2))), 3), _2_3),
    "struct_fsl_struct_list": Case(_within(_fixed(_within(_list(_numbers)), 2)), _2_3),
    "fsl_empty": Case(_fixed(_empty_struct, 2, nulls=False), _2_3),
    "fsl_with_empty": Case(
        _fixed(_side_by_side(_numbers, _empty_struct, nulls=False), 2, nulls=False), _2_3
    ),
    "packed_packed": Case(
        _packed(_full(pa.int8()), _packed(_full(pa.int64()), _full(pa.int16()), nulls=False)),
        _2_3,
        PACKED,
    ),
    "packed_packed_text": Case(
        _packed(
            _full(pa.int8()),
            _packed(_full(pa.int64()), _words(pa.string()), nulls=False),
            _words(pa.large_string()),
        ),
        _NEW,
        PACKED,
    ),
    "packed_packed_vector": Case(
        _packed(_packed(_fixed(_full(pa.int16()), 3, nulls=False), nulls=False), _full(pa.int8())),
        _NEW,
        PACKED,
    ),
    "packed_packed_packed": Case(
        _packed(_packed(_packed(_full(pa.int16()), nulls=False), nulls=False), _full(pa.int8())),
        _2_3,
        PACKED,
    ),
    "packed": Case(
        _packed(_full(pa.int8()), _full(pa.float32()), _full(pa.int64())), metadata=PACKED
    ),
    "packed_text": Case(
        _packed(_full(pa.int8()), _words(pa.string()), _words(pa.large_binary())), _NEW, PACKED
    ),
    "packed_vector": Case(
        _packed(_full(pa.int8()), _fixed(_full(pa.int16()), 3, nulls=False)), _NEW, PACKED
    ),
    "dictionary": Case(_dictionary(pa.int32(), pa.array(_WORDS))),
    "dictionary_null_items": Case(_dictionary(pa.int16(), pa.array([*_WORDS, None]))),
    "dictionary_full": Case(_dictionary(pa.int8(), pa.array(_WORDS), nulls=False)),
    "dictionary_uint64": Case(_dictionary(pa.uint64(), pa.array(_WORDS, pa.large_string()))),
    "dictionary_int": Case(_dictionary(pa.uint16(), pa.array(range(256), pa.int64()))),
    "dictionary_double": Case(_dictionary(pa.int32(), pa.array([0.5, -0.0, 1e300]))),
    "dictionary_bool": Case(_dictionary(pa.int8(), pa.array([True, False]))),
    "dictionary_binary": Case(_dictionary(pa.int64(), pa.array([b"", b"\x00", b"ab"]))),
    "dictionary_crowded": Case(_crowded_dictionary),
    "list_dictionary": Case(_list(_dictionary(pa.int32(), pa.array([*_WORDS, None])))),
    "struct_dictionary": Case(_within(_dictionary(pa.int32(), pa.array(_WORDS)))),
    "map_dictionary": Case(_map(_dictionary(pa.int8(), pa.array(_WORDS))), _NEW),
    "string_view": Case(lambda r, n: _text(r, n, pa.string_view())),
    "binary_view": Case(lambda r, n: _text(r, n, pa.binary()).cast(pa.binary_view())),
    "json": Case(_json),
    "list_json": Case(_list(_json)),
    "struct_json": Case(_within(_json)),
    "map_json": Case(_map(_json), _NEW),
    "uuid": Case(_uuid),
    "list_uuid": Case(_list(_uuid)),
    "map_uuid": Case(_map(_uuid), _NEW),
    "bool8": Case(_bool8),
    "opaque": Case(_opaque),
    "tensor": Case(_tensor),
    "bfloat16": Case(_bfloat16),
    "fsl_bfloat16": Case(_fixed(_bfloat16, 4, nulls=False)),
    "empty_struct": Case(_empty_struct),
    "struct_with_empty": Case(_with_empty_struct),
    "fsl_bool": Case(_fixed(_flags, 3)),
    "fsl_fsl": Case(_fixed(_fixed(_short, 2), 3)),
    "list_fsl_bool": Case(_list(_fixed(_flags, 5))),
    "metadata": Case(_numbers, metadata={"unit": "cm", "größe": "1"}),
}
"""Cases by name."""


@lru_cache(maxsize=8)
def more_table(name: str, rows: int) -> pa.Table:
    """One column; the same name and rows always give the same values."""
    case = MORE[name]
    array = case.make(np.random.default_rng([rows, *name.encode()]), rows)
    field = pa.field("c", array.type, metadata=case.metadata)
    return pa.Table.from_arrays([array], schema=pa.schema([field]))
