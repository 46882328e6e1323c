"""The interface of table operations: detect conflicts, and build the next version.

Operations do no input or output: they turn manifests into a draft of the next manifest.
:mod:`glaive.table.commit` reads, writes and retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import DatasetNotFoundError
from glaive.format.fragment import DeletionFile
from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.format.wire import parse
from glaive.types import FormatVersion

__all__ = [
    "BuildContext",
    "CommitOptions",
    "Conflict",
    "Draft",
    "HiddenLineage",
    "Offsets",
    "TableOperation",
    "needs_dataset",
]

Offsets = NDArray[np.uint32]
"""Physical rows of a fragment, ascending and unique."""

HiddenLineage = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Row id of each physical row, and the version in which it was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Options of a commit, and of a new dataset.

    Parameters
    ----------
    max_retries
        Attempts after the first one. An overwrite with 0 only replaces the version it was made
        for.
    storage_version
        Format version of a new or overwritten dataset; default: that of the data files, else
        the previous one.
    enable_stable_row_ids
        Whether a new dataset has them; no effect on an existing one.
    enable_v2_manifest_paths
        Naming scheme of the manifests of a new dataset; no effect on an existing one.
    detached
        Create the version outside the history, with a random number.
    timeout
        Seconds after which no attempt is started; ``None`` for no limit.
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
    """Why an operation cannot be committed after another one.

    Parameters
    ----------
    reason
        What the other writer did.
    retryable
        Whether the change may succeed if it is repeated for the newest version.
    fragments
        Ids of the fragments that both change.
    """

    reason: str
    retryable: bool = True
    fragments: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The number of the version to build, and inputs that few operations need.

    ``older`` is the version that :attr:`TableOperation.restored` refers to.
    """

    version: int
    options: CommitOptions = CommitOptions()
    older: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The next version, without time, flags and names, which the commit sets.

    Parameters
    ----------
    wire
        The manifest message.
    index_section
        The index section in wire format, if there is one.
    kept
        Number of leading fragments that are unchanged from the previous version.
    """

    wire: table_pb2.ManifestOutline
    index_section: bytes | None = None
    kept: int = 0


class TableOperation:
    """Base of operations, which are frozen values."""

    __slots__ = ()

    wire_name: ClassVar[str]
    """Name in the transaction message."""

    strict_without_retries: ClassVar[bool] = False
    """Whether, without retries, it conflicts with every concurrent commit."""

    @classmethod
    def from_wire(cls, message: Any) -> Self:
        """Read the operation's message."""
        raise NotImplementedError

    def to_wire(self) -> Any:
        """Make the operation's message."""
        message: Any = getattr(table_pb2.Transaction(), self.wire_name)
        return parse(type(message)(), b"".join(self.encode()), self.wire_name, "the transaction")

    def encode(self) -> list[bytes]:
        """Parts of the operation's message in wire format.

        An operation overrides this, where it lists fragments, or :meth:`to_wire`.
        """
        return [self.to_wire().SerializeToString()]

    @property
    def restored(self) -> int | None:
        """Number of another version that :meth:`apply` needs, if any."""
        return None

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, bytes]]:
        """Fragments whose deletion files must be written before the version, and the contents."""
        return ()

    def hidden(self, base: Manifest) -> frozenset[int]:
        """Fragments of ``base`` whose row lineage :meth:`apply` needs from their files."""
        return frozenset()

    def with_hidden(self, lineage: Mapping[int, HiddenLineage]) -> Self:
        """The operation with the lineage of the fragments in :meth:`hidden`."""
        return self

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Why this operation cannot be committed after ``theirs``; ``None`` if it can.

        The ``wire_name`` of ``theirs`` is ``None`` if this version of glaive does not know the
        operation, which is always a conflict.
        """
        raise NotImplementedError

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Fragments that both change, and whose deleted rows :meth:`rebase` needs."""
        return frozenset()

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """The operation to commit on top of ``base``.

        Parameters
        ----------
        theirs
            Operations committed since this one was made, oldest first; none conflicts.
        base
            The version of the last of them.
        deleted
            Rows deleted in ``base``, of the fragments in :meth:`shared`.
        """
        return self

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The version after ``base``; the first one if that is ``None``."""
        raise NotImplementedError


def needs_dataset(base: Manifest | None, action: str) -> Manifest:
    """The version to change.

    Raises
    ------
    DatasetNotFoundError
        There is none.
    """
    if base is None:
        raise DatasetNotFoundError(
            f"cannot {action}: there is no dataset. Create it first, or check the path."
        )
    return base
