"""What an operation has to offer: does it still hold, and what does it make of a version.

The functions are pure: manifests in, a draft of the next manifest out. Reading, writing and
retrying are the business of :mod:`glaive.table.commit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from glaive.errors import DatasetNotFoundError
from glaive.format.fragment import DeletionFile
from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.types import FormatVersion

__all__ = [
    "CommitOptions",
    "Conflict",
    "Draft",
    "HiddenLineage",
    "Offsets",
    "TableOperation",
    "needs_dataset",
]

Offsets = NDArray[np.uint32]
"""Physical rows of a fragment, ascending, each once."""

HiddenLineage = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Row id of each physical row, and the version in which it was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How to commit, and what a new dataset is like.

    Parameters
    ----------
    max_retries
        Attempts after the first one, before the commit is given up. An overwrite with 0
        replaces the version it was made for and no other.
    storage_version
        Format version that a new or overwritten dataset is to keep; when omitted, that of
        the data files, else the one it had.
    enable_stable_row_ids
        Whether a new dataset has them; an existing one stays as it is.
    enable_v2_manifest_paths
        How the manifests of a new dataset are named; an existing one stays as it is.
    detached
        Whether the version stays outside the history, under a random number.
    timeout
        Seconds after which no further attempt is made; ``None`` for no limit.
    """

    max_retries: int = 20
    storage_version: FormatVersion | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True
    detached: bool = False
    timeout: float | None = None

    @property
    def scheme(self) -> NamingScheme:
        """Naming scheme of a new dataset."""
        return "V2" if self.enable_v2_manifest_paths else "V1"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why an operation no longer holds.

    Parameters
    ----------
    reason
        What the other writer did that does not go together with the operation.
    retryable
        Whether the operation may succeed when it is repeated on the newest version.
    fragments
        Ids of the fragments both change.
    """

    reason: str
    retryable: bool = True
    fragments: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Draft:
    """The next version, but for what all commits have in common.

    Parameters
    ----------
    wire
        The manifest message; time, flags and names are set by the commit.
    index_section
        Wire form of the index section, if there is one.
    kept
        Fragments at the start of the list that are those of the version before, unchanged.
    """

    wire: table_pb2.ManifestOutline
    index_section: bytes | None = None
    kept: int = 0


class TableOperation:
    """One operation. Implementations are frozen values, one file each."""

    __slots__ = ()

    wire_name: ClassVar[str]
    """Its name in the transaction message."""

    strict_without_retries: ClassVar[bool] = False
    """Whether, committed with no retries allowed, it refuses whatever came in between."""

    @classmethod
    def from_wire(cls, message: Any) -> Self:
        """Read the operation's message."""
        raise NotImplementedError

    def to_wire(self) -> Any:
        """Make the operation's message."""
        raise NotImplementedError

    @property
    def restored(self) -> int | None:
        """Another version that :meth:`apply` needs, if any."""
        return None

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, Offsets]]:
        """Fragments whose deletion files are to be written before the version, and the rows."""
        return ()

    def hidden(self, base: Manifest) -> frozenset[int]:
        """Fragments of ``base`` whose row ids and creation :meth:`apply` needs from their files."""
        return frozenset()

    def with_hidden(self, found: Mapping[int, HiddenLineage]) -> Self:
        """The operation with what :meth:`hidden` asked for."""
        return self

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Why this operation no longer holds after ``theirs``; ``None`` if it does.

        ``theirs`` is an operation as it was read; its ``wire_name`` is ``None`` if this
        version of glaive does not know it, which is always a conflict.
        """
        raise NotImplementedError

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Fragments both change whose deleted rows :meth:`rebase` has to see."""
        return frozenset()

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """The operation to commit on top of ``base``.

        Parameters
        ----------
        theirs
            What was committed since the operation was made, oldest first; none conflicts.
        base
            The version that the last of them made.
        deleted
            Rows deleted in ``base``, of the fragments that :meth:`shared` named.
        """
        return self

    def apply(
        self,
        base: Manifest | None,
        version: int,
        options: CommitOptions,
        older: Manifest | None = None,
    ) -> Draft:
        """The version after ``base``; the first one if that is ``None``.

        ``older`` is the version that :attr:`restored` names.
        """
        raise NotImplementedError


def needs_dataset(base: Manifest | None, what: str) -> Manifest:
    """The version to change.

    Raises
    ------
    DatasetNotFoundError
        There is none.
    """
    if base is None:
        raise DatasetNotFoundError(
            f"{what}, but there is no dataset. Create it first, or check the path."
        )
    return base
