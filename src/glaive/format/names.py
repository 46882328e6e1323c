"""Patterns of file names of a dataset.

They are checked before files are deleted or copied, as names in manifests are untrusted, and
folders may contain foreign files.

A manifest may use any name that ends in ``.lance`` for a data file. Other files only count as data
files if writers generate such names.

==================== ==========================================================================
folder               names
==================== ==========================================================================
``data``             24 bits and 26 hexadecimal digits, or a UUID, then ``.lance``
``data/<stem>``      32 bits, then ``.blob``
``_deletions``       ``<fragment>-<version>-<number>.arrow`` or ``.bin``
``_transactions``    ``<version>-<uuid>.txn``
``_indices/<uuid>``  letters, digits, ``_``, ``-``, ``.``, then ``.lance`` or ``.idx``
``_versions``        as in :mod:`glaive.format.paths`; staged: with ``-<uuid>`` or ``#<number>``
``_refs/tags``       while being written: ``<name>.json.tmp.<32 hexadecimal digits>``, also with
``_refs/branches``   ``#<number>``
==================== ==========================================================================

Specification: "Directory layout" in ``docs/format``.
"""

from __future__ import annotations

import re
from typing import Final

from glaive.format.paths import parse_manifest_name

__all__ = [
    "is_blob_file_name",
    "is_data_file_name",
    "is_deletion_file_name",
    "is_generated_data_file_name",
    "is_index_file_name",
    "is_index_folder_name",
    "is_ref_name",
    "is_staged_manifest_name",
    "is_transaction_file_name",
    "is_unfinished_ref_name",
]

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
    """Whether this is a valid name of a data file in a manifest."""
    return _DATA.fullmatch(name) is not None


def is_generated_data_file_name(name: str) -> bool:
    """Whether writers generate such names for data files."""
    return _GENERATED_DATA.fullmatch(name) is not None


def is_blob_file_name(name: str) -> bool:
    """Whether this is the name of a blob file, in the folder of its data file."""
    return _BLOB.fullmatch(name) is not None


def is_deletion_file_name(name: str) -> bool:
    """Whether this is the name of a deletion file."""
    return _DELETION.fullmatch(name) is not None


def is_transaction_file_name(name: str) -> bool:
    """Whether this is the name of a transaction file."""
    return _TRANSACTION.fullmatch(name) is not None


def is_index_folder_name(name: str) -> bool:
    """Whether this is the name of the folder of an index segment."""
    return _INDEX_FOLDER.fullmatch(name) is not None


def is_index_file_name(name: str) -> bool:
    """Whether this is the name of an index file, in the folder of its segment."""
    return _INDEX.fullmatch(name) is not None


def is_staged_manifest_name(name: str) -> bool:
    """Whether this is the staged name of a manifest."""
    match = _STAGED.fullmatch(name)
    return match is not None and parse_manifest_name(match[1]) is not None


def is_ref_name(name: str) -> bool:
    """Whether a tag or a branch may have such a file."""
    return re.fullmatch(_REF, name) is not None


def is_unfinished_ref_name(name: str) -> bool:
    """Whether pylance gives files such names on local disks while it makes a tag or branch.

    Tags and branches themselves end in ``.json``.
    """
    return _UNFINISHED_REF.fullmatch(name) is not None
