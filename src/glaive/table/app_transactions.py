"""Transactions of applications: which of them a dataset has applied.

An application, such as a stream, numbers its transactions. The commit of one has its application
and its number as properties, and the number is entered in the table metadata of the version that
the commit makes. All writers keep the table metadata, so the newest manifest says which number of
each application was applied last, whatever was committed or cleaned up since.

Specification: "Transaction" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

__all__ = ["LAST", "AppTransaction", "last_applied"]

_APP_ID: Final = "glaive.txn.app"
_VERSION: Final = "glaive.txn.version"
LAST: Final = "glaive.txn.last:"
"""Prefix of the entries of the table metadata; the application follows."""

_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """One transaction of an application: it is applied at most once.

    Parameters
    ----------
    app_id
        The application, unique for all writers of the dataset.
    version
        Number of the transaction, ≥ 0; each one is higher than those before.

    Raises
    ------
    OptionError
        There is no name, or the number is none.
    """

    app_id: str
    version: int

    def __post_init__(self) -> None:
        name: object = self.app_id
        number: object = self.version
        if not (isinstance(name, str) and name):
            raise OptionError(f"txn: expected the name of an application, found {name!r}")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _HIGHEST:
            raise OptionError(
                f"txn: expected a number from 0 to 2^63 - 1 for {self.app_id!r}, found {number!r}"
            )

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction that is committed."""
        return {_APP_ID: self.app_id, _VERSION: str(self.version)}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """The transaction of an application that has these properties, if any."""
        app_id, version = properties.get(_APP_ID), properties.get(_VERSION, "")
        if not app_id or not (version.isascii() and version.isdecimal() and len(version) < 20):
            return None
        return cls(app_id, int(version))

    def is_applied(self, manifest: Manifest) -> bool:
        """Whether a version has this transaction, or a later one of the application."""
        last = last_applied(manifest, self.app_id)
        return last is not None and last >= self.version

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Enter the number in a version that is being made."""
        wire.table_metadata[LAST + self.app_id] = str(self.version)


def last_applied(manifest: Manifest, app_id: str) -> int | None:
    """Number of the last transaction of an application; ``None`` if there is none.

    Raises
    ------
    CorruptFileError
        The entry is no number.
    """
    text = manifest.wire.table_metadata.get(LAST + app_id)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise CorruptFileError(
            f"last transaction of {app_id!r} in the table metadata",
            expected="a number",
            found=f"{text!r:.60}",
            where=manifest.where,
        )
    return int(text)
