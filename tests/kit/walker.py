"""The base class of random walks over a dataset, without their rules."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis.stateful import RuleBasedStateMachine
from tests.kit.model import BASE, Model, made_rows

import glaive

__all__ = ["Change", "Walker"]

Change = Callable[[Any, str], object]
"""Changes a dataset, given a library and a URI."""


class Walker(RuleBasedStateMachine):
    """A dataset and its expected state."""

    libraries: ClassVar[tuple[ModuleType | Any, ...]] = (glaive,)
    """Modules with the same interface, used in turn."""
    reference: ClassVar[ModuleType | Any | None] = None
    """The library that applies all changes to a second, reference dataset, if any."""
    indexer: ClassVar[ModuleType | Any | None] = None
    """The library that creates indices, if any."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of ``write_dataset`` for the creation of the dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="walk-"))
        self.uri, self.reference_uri = str(self.folder / "walk"), str(self.folder / "reference")
        self.versions: dict[int, Model] = {}
        self.tags: dict[str, int] = {}
        self.branches: dict[str, Model] = {}
        self.used = 0

    def teardown(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def newest(self) -> Model:
        """The expected newest version."""
        return self.versions[max(self.versions)]

    def do(self, turn: int, change: Change, expected: Model | None = None) -> None:
        """Change the dataset, and the reference dataset with the reference library."""
        expected = self.newest if expected is None else expected
        change(self.libraries[turn % len(self.libraries)], self.uri)
        if self.reference is not None:
            change(self.reference, self.reference_uri)
        newest = glaive.dataset(self.uri).version
        for version in range(max(self.versions, default=0) + 1, newest + 1):
            self.versions[version] = expected

    def more_rows(self, count: int, seed: int, names: tuple[str, ...] | None = None) -> pa.Table:
        """Rows with new ids, and all columns or those named."""
        ids = range(self.used, self.used + count)
        self.used += count
        return self.rows_of(ids, seed, self.schema_of(names))

    def rows_of(self, ids: Iterable[int], seed: int, schema: pa.Schema = BASE) -> pa.Table:
        """Rows with these ids; without nulls in format 0.1."""
        return made_rows(ids, seed, schema, nulls=not self.is_legacy)

    @property
    def is_legacy(self) -> bool:
        """Whether files are written in format 0.1."""
        return str(self.options.get("data_storage_version")) in ("legacy", "0.1")

    def schema_of(self, names: tuple[str, ...] | None = None) -> pa.Schema:
        """The schema of the newest version, or of some of its columns."""
        if not self.versions:
            return BASE
        schema = glaive.dataset(self.uri).schema
        return pa.schema([schema.field(name) for name in names or self.newest.names])
