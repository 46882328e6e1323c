"""Changes of a dataset that proofs stop, or have fail, at each of their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.kit.model import made_rows

from glaive.dataset.dataset import LanceDataset

__all__ = ["CHANGES", "Change"]

Change = Callable[[LanceDataset], object]

_MERGED: Final = made_rows([*range(0, 40, 7), *range(100, 104)], 5)


def _merge(dataset: LanceDataset) -> object:
    builder = dataset.merge_insert("id")
    return builder.when_matched_update_all().when_not_matched_insert_all().execute(_MERGED)


CHANGES: Final[dict[str, Change]] = {
    "append": lambda at: at.insert(made_rows(range(100, 110), 3), max_rows_per_file=5),
    "overwrite": lambda at: at.insert(made_rows(range(5), 3), mode="overwrite"),
    "delete": lambda at: at.delete("id % 3 = 0"),
    "update": lambda at: at.update({"text": "'new'"}, "id % 4 = 1"),
    "merge": _merge,
    "compact": lambda at: at.optimize.compact_files(target_rows_per_fragment=25),
    "restore": lambda at: at.checkout_version(1).restore(),
}
"""By name; for rows of ``made_rows`` with ids from 0 to 39, in a dataset with a version 1."""
