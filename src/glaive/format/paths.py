"""Names of the files of a dataset, relative to its root.

All manifests of a dataset are named in one of two ways:

======== ===================================================== =========================
scheme   name                                                  example, version 7
======== ===================================================== =========================
V1       the version                                           ``7.manifest``
V2       2^64 - 1 - version as 20 digits: the newest is first  ``18446744073709551608…``
detached ``d`` and the version, which has bit 63 set           ``d9223372036854775815…``
======== ===================================================== =========================

Specification: "Directory layout" and "Manifest names" in ``docs/format``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from glaive.dataclass import dataclass
from glaive.format.wire import check_ending, check_file_name
from glaive.process import random_bytes

VERSIONS: Final = "_versions"
DATA: Final = "data"
TRANSACTIONS: Final = "_transactions"
DELETIONS: Final = "_deletions"
INDICES: Final = "_indices"
REFS: Final = "_refs"
HINT: Final = "_versions/latest_version_hint.json"

DETACHED: Final = 1 << 63
"""Bit of the version number of manifests outside of the history."""

NamingScheme = Literal["V1", "V2"]

_SUFFIX: Final = ".manifest"
_MAX: Final = 2**64 - 1
_DIGITS: Final = 20
_V2_LENGTH: Final = _DIGITS + len(_SUFFIX)


@dataclass(frozen=True, slots=True)
class ManifestName:
    """The version and scheme in a manifest's file name."""

    version: int
    scheme: NamingScheme

    @property
    def is_detached(self) -> bool:
        """Whether the version is outside of the history."""
        return bool(self.version & DETACHED)


def manifest_path(version: int, scheme: NamingScheme = "V2") -> str:
    """Return the path of the manifest of a version."""
    if version & DETACHED:
        return f"{VERSIONS}/d{version}{_SUFFIX}"
    if scheme == "V2":
        return f"{VERSIONS}/{_MAX - version:020d}{_SUFFIX}"
    return f"{VERSIONS}/{version}{_SUFFIX}"


def parse_manifest_name(name: str) -> ManifestName | None:
    """Return the version and scheme of a file in ``_versions``; ``None`` for any other file."""
    if not name.endswith(_SUFFIX):
        return None
    detached = name.startswith("d")
    digits = name[1 : -len(_SUFFIX)] if detached else name[: -len(_SUFFIX)]
    # Python refuses to parse thousands of digits, which an entry of a manifest store may have.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        return None
    number = int(digits)
    if number > _MAX or detached != bool(detached and number & DETACHED):
        return None
    if detached:
        return ManifestName(number, "V2")
    if len(name) == _V2_LENGTH:
        return ManifestName(_MAX - number, "V2")
    return None if number & DETACHED else ManifestName(number, "V1")


def new_data_file_name(end: str = "") -> str:
    """Return a random name: 24 binary digits, then 104 bits as hexadecimal digits.

    The random prefix distributes the files of a dataset over the partitions of object stores.

    Parameters
    ----------
    end
        The last hexadecimal digits, at most 12; they represent the order of the rows.
    """
    random = random_bytes(16)
    return f"{int.from_bytes(random[:3], 'big'):024b}{random[3:].hex()[: 26 - len(end)]}{end}.lance"


@lru_cache(maxsize=256)  # versions of small tables share most of their files
def data_file_path(name: str, *, where: object = "a manifest") -> str:
    """Return the path of a data file named in a manifest.

    Raises
    ------
    CorruptFileError
        The name leads out of the folder of data files.
    """
    return f"{DATA}/{check_file_name(name, 'path of a data file', where)}"


def blob_folder(data_file: str) -> str:
    """Return the folder of the blob files of a data file."""
    return data_file.removesuffix(".lance")


def blob_file_path(data_file: str, blob_id: int) -> str:
    """Return the path of a blob file of a data file."""
    return f"{blob_folder(data_file)}/{blob_file_name(blob_id)}"


BLOB_IDS: Final = 1 << 32
"""Number of possible blob files: their names have 32 bits."""


def blob_file_name(blob_id: int) -> str:
    """Name of a blob file in its folder: 32 bits, least significant first."""
    bits = f"{blob_id:032b}"[::-1]
    return f"{bits}.blob"


def index_file_path(folder: str, name: str, *, where: object = "a manifest") -> str:
    """Return the path of a file in the folder of an index, from its name in a manifest.

    Raises
    ------
    CorruptFileError
        The name leads out of the folder.
    """
    return f"{folder}/{check_file_name(name, 'name of an index file', where)}"


def transaction_path(name: str) -> str:
    """Return the path of a transaction file named in a manifest: ``<read version>-<uuid>.txn``.

    Raises
    ------
    CorruptFileError
        The name leads out of the folder of transactions, or lacks the suffix ``.txn``.
    """
    checked = check_file_name(name, "name of a transaction file", "a manifest")
    check_ending(checked, ".txn", "name of a transaction file", "a manifest")
    return f"{TRANSACTIONS}/{checked}"


def deletion_file_path(fragment: int, read_version: int, number: int, *, bitmap: bool) -> str:
    """Return the path of the deletion file of a fragment."""
    suffix = "bin" if bitmap else "arrow"
    return f"{DELETIONS}/{fragment}-{read_version}-{number}.{suffix}"


# --- Patterns of file names of a dataset ------------------------------------------------
#
# glaive checks names before it deletes or copies files: names in manifests are untrusted, and
# folders may contain foreign files.
#
# A manifest may use any name that ends in ``.lance`` for a data file. Other files only count as
# data files if writers generate such names.
#
# - ``data``: 24 bits and 26 hexadecimal digits, or a UUID, then ``.lance``.
# - ``data/<stem>``: 32 bits, then ``.blob``.
# - ``_deletions``: ``<fragment>-<version>-<number>.arrow`` or ``.bin``.
# - ``_transactions``: ``<version>-<uuid>.txn``.
# - ``_indices/<uuid>``: letters, digits, ``_``, ``-``, ``.``, then ``.lance`` or ``.idx``.
# - ``_versions``: as in :mod:`glaive.format.paths`; staged: with ``-<uuid>`` or ``#<number>``.
# - ``_refs/tags``, ``_refs/branches``: while being written ``<name>.json.tmp.<32 hexadecimal
#   digits>``, also with ``#<number>``.
#
# Specification: "Directory layout" in ``docs/format``.

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NUMBER: Final = "[0-9]{1,20}"

_DATA: Final = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*\.lance")
_GENERATED_DATA: Final = re.compile(rf"(?:[01]{{24}}[0-9a-f]{{26}}|{_UUID}|[0-9a-f]{{32}})\.lance")
_BLOB: Final = re.compile(r"[01]{32}\.blob")
_DELETION: Final = re.compile(rf"{_NUMBER}-{_NUMBER}-{_NUMBER}\.(?:arrow|bin)")
_TRANSACTION: Final = re.compile(rf"{_NUMBER}-{_UUID}\.txn")
_INDEX_FOLDER: Final = re.compile(_UUID)
_INDEX: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.(?:lance|idx)")
_REF: Final = r"[^/\\\x00-\x1f\x7f]+\.json"
_UNFINISHED_REF: Final = re.compile(rf"{_REF}\.tmp\.[0-9a-f]{{32}}(?:#{_NUMBER})?")
_STAGED: Final = re.compile(rf"(.+\.manifest)(?:-{_UUID}|#{_NUMBER})")


def is_data_file_name(name: str) -> bool:
    """Return whether this is a valid name of a data file in a manifest."""
    return _DATA.fullmatch(name) is not None


def is_generated_data_file_name(name: str) -> bool:
    """Return whether writers generate such names for data files."""
    return _GENERATED_DATA.fullmatch(name) is not None


def is_blob_file_name(name: str) -> bool:
    """Return whether this is the name of a blob file, in the folder of its data file."""
    return _BLOB.fullmatch(name) is not None


def is_deletion_file_name(name: str) -> bool:
    """Return whether this is the name of a deletion file."""
    return _DELETION.fullmatch(name) is not None


def is_transaction_file_name(name: str) -> bool:
    """Return whether this is the name of a transaction file."""
    return _TRANSACTION.fullmatch(name) is not None


def is_index_folder_name(name: str) -> bool:
    """Return whether this is the name of the folder of an index segment."""
    return _INDEX_FOLDER.fullmatch(name) is not None


def is_index_file_name(name: str) -> bool:
    """Return whether this is the name of an index file, in the folder of its segment."""
    return _INDEX.fullmatch(name) is not None


def is_staged_manifest_name(name: str) -> bool:
    """Return whether this is the staged name of a manifest."""
    match = _STAGED.fullmatch(name)
    return match is not None and parse_manifest_name(match[1]) is not None


def is_ref_name(name: str) -> bool:
    """Return whether a tag or a branch may have such a file."""
    return re.fullmatch(_REF, name) is not None


def is_unfinished_ref_name(name: str) -> bool:
    """Return whether pylance gives local files such names while it makes a tag or branch.

    Tags and branches themselves end in ``.json``.
    """
    return _UNFINISHED_REF.fullmatch(name) is not None
