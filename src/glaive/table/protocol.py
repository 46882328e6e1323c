"""What an operation has to offer: does it still hold, and what does it make of a version.

The functions are pure: manifests in, a draft of the next manifest out. Reading, writing and
retrying are the business of :mod:`glaive.table.commit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.types import FormatVersion

__all__ = ["CommitOptions", "Draft", "TableOperation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How to commit, and what a new dataset is like.

    Parameters
    ----------
    max_retries
        Attempts after the first one, before the commit is given up.
    storage_version
        Format version that a new or overwritten dataset is to keep; when omitted, that of
        the data files, else the one it had.
    enable_stable_row_ids
        Whether a new dataset has them; an existing one stays as it is.
    enable_v2_manifest_paths
        How the manifests of a new dataset are named; an existing one stays as it is.
    """

    max_retries: int = 20
    storage_version: FormatVersion | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True

    @property
    def scheme(self) -> NamingScheme:
        """Naming scheme of a new dataset."""
        return "V2" if self.enable_v2_manifest_paths else "V1"


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

    wire: table_pb2.Manifest
    index_section: bytes | None = None
    kept: int = 0


class TableOperation(Protocol):
    """One operation. Implementations are frozen values, one file each."""

    wire_name: ClassVar[str]
    """Its name in the transaction message."""

    @classmethod
    def from_wire(cls, message: Any) -> Self:
        """Read the operation's message."""

    def to_wire(self) -> Any:
        """Make the operation's message."""

    def conflict(self, theirs: Operation) -> str | None:
        """Why this operation no longer holds after ``theirs``; ``None`` if it does.

        ``theirs`` is an operation as it was read; its ``wire_name`` is ``None`` if this
        version of glaive does not know it, which is always a conflict.
        """

    def rebase(self, theirs: Operation, base: Manifest) -> Self:
        """The operation to commit on top of ``base``, which ``theirs`` made."""

    def apply(self, base: Manifest | None, version: int, options: CommitOptions) -> Draft:
        """The version after ``base``; the first one if that is ``None``."""
