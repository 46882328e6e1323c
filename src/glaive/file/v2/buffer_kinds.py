"""The content of each buffer of a page, by its encoding.

Specification: the buffers of each layout in ``docs/format/pages.md``, ``docs/format/planes.md``
and ``docs/format/arrays.md``.
"""

from __future__ import annotations

from glaive.format.describe import EncodingNode

__all__ = ["buffer_kinds", "count_values"]

_COUNTED = ("mini_block_layout", "full_zip_layout", "chunked", "zipped")
"""Layouts that count items apart from rows; none is a count of zero."""


def count_values(node: EncodingNode, rows: int) -> int:
    """Values of a page: its items where they are counted, else its rows."""
    if node.name == "PlanarLayout":
        return count_values(_inside(node, "values"), rows)
    if node.name == "blob_layout":
        return count_values(_inside(node, "inner_layout"), rows)
    if node.name in _COUNTED:
        return int(node.settings.get("num_items", 0))
    return rows


def buffer_kinds(node: EncodingNode, count: int) -> list[str]:
    """The content of each of ``count`` buffers of a page.

    Buffers that the encoding does not mention are named by their number.
    """
    kinds = _of_layout(node, count)
    if kinds is None:
        named: dict[int, str] = {}
        _of_arrays(node, "values", named)
        kinds = [named.get(at, f"buffer {at}") for at in range(count)]
    kinds = kinds[:count]
    return kinds + [f"buffer {at}" for at in range(len(kinds), count)]


def _inside(node: EncodingNode, role: str) -> EncodingNode:
    return next((child for name, child in node.children if name == role), EncodingNode("none"))


# --------------------------------------------------------------- 2.1 and newer


def _of_layout(node: EncodingNode, count: int) -> list[str] | None:
    if node.name == "blob_layout":
        return _of_layout(_inside(node, "inner_layout"), count)
    if node.name == "PlanarLayout":
        return _of_planes(_inside(node, "structure"), _inside(node, "values"), count)
    if node.name == "constant_layout":
        levels = ["repetition levels", "definition levels"]
        return levels if count in (0, len(levels)) else ["value", *levels]
    if node.name == "full_zip_layout":
        return ["values", "row index"]
    if node.name == "mini_block_layout":
        index = ["repetition index"] if node.settings.get("repetition_index_depth") else []
        return _chunked(node) + index
    return None


def _of_planes(structure: EncodingNode, values: EncodingNode, count: int) -> list[str]:
    kinds = _of_value_plane(values)
    rest = "structure" if structure.name == "sparse" else "repetition index"
    return kinds + [rest] * (count - len(kinds))


def _of_value_plane(values: EncodingNode) -> list[str]:
    if values.name == "chunked":
        return _chunked(values)
    if values.name == "zipped":
        return ["values", *(["row index"] if "bits_per_offset" in values.settings else [])]
    if values.name == "indexed":
        return ["indices", *["dictionary" for _ in _of_value_plane(_inside(values, "items"))]]
    return []


def _chunked(node: EncodingNode) -> list[str]:
    dictionary = any(role == "dictionary" for role, _ in node.children)
    return ["chunk table", "chunks", *(["dictionary"] if dictionary else [])]


# --------------------------------------------------------------- 2.0

_ROLES = {
    ("binary", "indices"): "offsets",
    ("list", "offsets"): "offsets",
    ("dictionary", "indices"): "indices",
    ("dictionary", "items"): "dictionary",
    ("some_nulls", "validity"): "validity",
}
"""The content of the buffers below, by the encoding and the role in it."""


def _of_arrays(node: EncodingNode, kind: str, named: dict[int, str]) -> None:
    """Name the buffers of an array encoding and those inside it."""
    if node.name == "buffer":
        named.setdefault(int(node.settings.get("buffer_index", 0)), kind)
    for role, child in node.children:
        own = _ROLES.get((node.name, role), kind)
        # All buffers of a dictionary have this name, including its offsets.
        _of_arrays(child, kind if kind == "dictionary" else own, named)
