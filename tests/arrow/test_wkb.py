"""Well-Known Binary is checked before a library parses it."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from glaive.arrow.geometries import MAX_DEPTH, find_damage

Place = tuple[float, float]


def head(kind: int, order: str = "<") -> bytes:
    return bytes([order == "<"]) + struct.pack(f"{order}I", kind)


def points(*places: Place, order: str = "<") -> bytes:
    return b"".join(struct.pack(f"{order}2d", *place) for place in places)


def counted(*parts: bytes, count: int | None = None, order: str = "<") -> bytes:
    return struct.pack(f"{order}I", len(parts) if count is None else count) + b"".join(parts)


def line(*places: Place, count: int | None = None, order: str = "<") -> bytes:
    given = [points(place, order=order) for place in places]
    return head(2, order) + counted(*given, count=count, order=order)


def ring(*places: Place) -> bytes:
    return counted(*(points(place) for place in places))


POINT = head(1) + points((1, 2))
SQUARE = ring((0, 0), (4, 0), (4, 4), (0, 0))
SOUND = {
    "a point": POINT,
    "a point, big-endian": head(1, ">") + points((1, 2), order=">"),
    "a point with z": head(1001) + bytes(24),
    "a point with z and m and a reference system": head(0xE0000001) + bytes(36),
    "a point with z, said twice": head(0x80000000 + 1001) + bytes(24),
    "a line": line((0, 0), (1, 1)),
    "a line without points": line(),
    "a line, big-endian": line((0, 0), (1, 1), order=">"),
    "a polygon": head(3) + counted(SQUARE),
    "a polygon without rings": head(3) + counted(),
    "a polygon with a hole": head(3) + counted(SQUARE, SQUARE),
    "several points": head(4) + counted(POINT, POINT),
    "a collection in a collection": head(7) + counted(POINT, head(7) + counted(line())),
    "bytes behind it": POINT + b"more",
}
DEEP = head(7) + counted(count=1)
WRONG = {
    "it ends where a geometry begins": b"",
    "byte order 7": b"\7" + POINT[1:],
    "type 99, which no geometry has": head(99) + bytes(16),
    "3 bytes are missing": POINT[:-3],
    "it ends before a count": head(2),
    "4000000000 parts are said to follow in 0 bytes": line(count=4_000_000_000),
    "4294967295 parts are said to follow in 68 bytes": head(3) + counted(SQUARE, count=2**32 - 1),
    "bytes are missing": head(3) + counted(counted(count=2**31)),
    "300 parts": head(7) + counted(POINT, count=300),
    "it ends where": head(4) + counted(POINT, count=2),
    f"deeper than {MAX_DEPTH}": DEEP * 1_000_000 + POINT,
}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_sound_geometries_pass(kind: pa.DataType) -> None:
    values = pa.array([None, *SOUND.values(), None], kind)
    assert find_damage(values) is None
    assert find_damage(values[1:]) is None
    assert find_damage(values[:0]) is None


@pytest.mark.parametrize("problem", WRONG)
def test_damage_is_found_where_it_is(problem: str) -> None:
    values = pa.array([None, POINT, *SOUND.values(), WRONG[problem], b""])
    found = find_damage(values[1:])
    assert found is not None
    assert found.row == 1 + len(SOUND)
    assert problem in found.problem
