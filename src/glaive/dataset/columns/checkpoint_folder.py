"""A checkpoint of new columns that processes of a cluster share: a file for each fragment.

A finished fragment is a JSON file that names the data file with its new columns. Data files lie in
the dataset, where no version refers to them before the commit; the folder is elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.fragments.data_files import DataFile
from glaive.errors import ObjectNotFoundError, OptionError, StoreError
from glaive.format import fragment as stored
from glaive.format.fragment import Fragment
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store

__all__ = ["CheckpointFolder"]

_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
"""Of the file of a fragment; the folder may have others."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Finished fragments by what was to be done with them; can be pickled.

    Parameters
    ----------
    store
        The folder.
    job
        Identifies the new columns: files of other jobs are ignored.
    """

    store: ObjectStore
    job: str

    @classmethod
    def open(cls, uri: str, job: str, storage_options: Mapping[str, str] | None = None) -> Self:
        """Start or resume a checkpoint; the folder is made when a fragment is finished."""
        return cls(open_store(uri, storage_options), job)

    def _name(self, fragment: Fragment) -> str:
        """Of the file for a fragment in its current state: other files or deletions change it."""
        content = fragment.to_wire().SerializeToString(deterministic=True)
        return hashlib.sha256(self.job.encode() + content).hexdigest() + ".json"

    def batch(
        self, fragment: Fragment, start: int
    ) -> pa.RecordBatch | None:  # results of batches are not kept
        """None: fragments are kept whole."""
        return None

    def keep_batch(self, fragment: Fragment, start: int, batch: pa.RecordBatch) -> None:
        """Nothing: fragments are kept whole."""

    def file(self, fragment: Fragment) -> stored.DataFile | None:
        """The finished file of a fragment, if any.

        Raises
        ------
        OptionError
            What is there under its name is none.
        """
        name = self._name(fragment)
        try:
            data = self.store.get(name)
        except ObjectNotFoundError:
            return None
        try:
            return DataFile(**json.loads(bytes(data))).to_stored()
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"checkpoint {self.store.full(name)}: no description of a data file ({error}). "
                "Choose another folder, or delete this file"
            ) from error

    def keep_file(self, fragment: Fragment, file: stored.DataFile) -> None:
        """Store a finished file; the last attempt counts."""
        text = json.dumps(DataFile.of(file).to_json())
        self.store.put(self._name(fragment), [text.encode()])

    def remove(self) -> None:
        """Delete the files of the folder that checkpoints made, if that is possible.

        The columns are committed.
        """
        with suppress(StoreError):
            names = [meta.path for meta in self.store.list("")]
            self.store.discard(list(filter(_NAME.fullmatch, names)))
