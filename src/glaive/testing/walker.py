"""What a random walk over a dataset needs, whichever steps it takes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis.stateful import RuleBasedStateMachine

import glaive
from glaive.testing.model import BASE, Model, made_rows

__all__ = ["Change", "Walker"]

Change = Callable[[Any, str], object]
"""Changes a dataset: given a library and a place."""


class Walker(RuleBasedStateMachine):
    """One dataset, as it is and as it should be."""

    libraries: ClassVar[tuple[ModuleType | Any, ...]] = (glaive,)
    """Modules with the same interface; they take turns."""
    reference: ClassVar[ModuleType | Any | None] = None
    """The library that does all to the twin; no twin without it."""
    indexer: ClassVar[ModuleType | Any | None] = None
    """The library that makes indices; none are made without it."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of ``write_dataset`` when the dataset is made."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="walk-"))
        self.place, self.twin = str(self.folder / "walk"), str(self.folder / "twin")
        self.versions: dict[int, Model] = {}
        self.tags: dict[str, int] = {}
        self.branches: dict[str, Model] = {}
        self.used = 0

    def teardown(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def newest(self) -> Model:
        """What the newest version should hold."""
        return self.versions[max(self.versions)]

    def do(self, turn: int, change: Change, expected: Model | None = None) -> None:
        """Change the dataset, and its twin in the way of the reference."""
        expected = self.newest if expected is None else expected
        change(self.libraries[turn % len(self.libraries)], self.place)
        if self.reference is not None:
            change(self.reference, self.twin)
        newest = glaive.dataset(self.place).version
        for version in range(max(self.versions, default=0) + 1, newest + 1):
            self.versions[version] = expected

    def more_rows(self, count: int, seed: int, names: tuple[str, ...] | None = None) -> pa.Table:
        """Rows that never were, with the columns there are or some of them."""
        ids = range(self.used, self.used + count)
        self.used += count
        return self.rows_of(ids, seed, self.schema_of(names))

    def rows_of(self, ids: Iterable[int], seed: int, schema: pa.Schema = BASE) -> pa.Table:
        """Rows with these ids; files of format 0.1 hold no nulls."""
        return made_rows(ids, seed, schema, nulls=not self.is_legacy)

    @property
    def is_legacy(self) -> bool:
        """Whether files are written in format 0.1."""
        return str(self.options.get("data_storage_version")) in ("legacy", "0.1")

    def schema_of(self, names: tuple[str, ...] | None = None) -> pa.Schema:
        """The types of columns as they are in the newest version."""
        if not self.versions:
            return BASE
        schema = glaive.dataset(self.place).schema
        return pa.schema([schema.field(name) for name in names or self.newest.names])
