"""Does new data fit the columns of a dataset?

Columns are matched by name, at every level. They may come in another order, and nullable ones
may be missing: their rows read as null. Types have to be the same; nothing is cast unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.fields import ITEM_NAMES, Field, LanceSchema

__all__ = ["check_append"]


def check_append(
    schema: LanceSchema, new: pa.Schema, *, where: object = "the dataset"
) -> LanceSchema:
    """Schema of a data file with the new rows: columns in their order, ids of the dataset.

    Nullability and metadata are those of the dataset. A column that refuses nulls may come as
    a nullable one: whoever writes the rows has to see that there are none.

    Raises
    ------
    SchemaError
        A column is not in the dataset, is missing though it refuses nulls, or has another
        type. All differences are listed with column, expected and found.
    """
    found = LanceSchema.from_arrow(new)
    faults = list(_differences(schema.fields, found.fields, ""))
    if faults:
        raise SchemaError(
            f"the new rows do not fit the columns of {where}: {'; '.join(faults)}. "
            "Cast, rename, add or drop these columns before writing, or write with "
            'mode="overwrite" to replace the dataset and its schema.'
        )
    return LanceSchema(_adopt(schema.fields, found.fields), schema.metadata)


def _differences(expected: Sequence[Field], found: Sequence[Field], prefix: str) -> Iterator[str]:
    pairs = _pairs(expected, found)
    for other, mine in pairs:
        if mine is None:
            yield f"column '{prefix}{other.name}' of type {other.arrow_type} is not in the dataset"
        elif mine.logical_type != other.logical_type:
            name = f"{prefix}{mine.name}"
            yield f"column {name!r}: expected {mine.arrow_type}, found {other.arrow_type}"
        else:
            yield from _differences(mine.children, other.children, f"{prefix}{mine.name}.")
    given = {mine.id for _, mine in pairs if mine is not None}
    for mine in expected:
        if mine.id not in given and not mine.nullable:
            name = f"{prefix}{mine.name}"
            yield f"column {name!r}: expected {mine.arrow_type} not null, found no such column"


def _pairs(expected: Sequence[Field], found: Sequence[Field]) -> list[tuple[Field, Field | None]]:
    """Each new field and the dataset's field it belongs to."""
    by_name = {one.name: one for one in expected}
    pairs = [(other, by_name.get(other.name)) for other in found]
    if len(expected) == len(found) == 1 and found[0].name in ITEM_NAMES:
        # The item of a list is the item, however its maker calls it.
        return [(found[0], expected[0])] if expected[0].name in ITEM_NAMES else pairs
    return pairs


def _adopt(expected: Sequence[Field], found: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(
        replace(mine, children=_adopt(mine.children, other.children))
        for other, mine in _pairs(expected, found)
        if mine is not None
    )
