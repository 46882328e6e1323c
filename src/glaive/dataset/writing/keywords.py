"""The keywords of who writes rows: named, typed and explained once, for pylance's signatures.

A function that takes ``**options: Unpack[WriteKeywords]`` has them for type checkers; under
:func:`shows_keywords` it also has them in its signature and in its help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, cleandoc, signature
from typing import Any, Final, TypedDict, TypeVar

from glaive.dataset.opening import check_options
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.dataset.writing.options import WriteOptions
from glaive.file.blob_options import BlobOptions

__all__ = ["FileKeywords", "WriteKeywords", "shows_keywords", "write_options"]

F = TypeVar("F", bound=Callable[..., Any])


class FileKeywords(TypedDict, total=False):
    """How rows become data files.

    Parameters
    ----------
    max_rows_per_file, max_bytes_per_file
        When to begin a new file; each file is a fragment.
    max_rows_per_group
        Rows of a page at most in files of format 0.1; without effect in others.
    max_page_bytes
        Bytes of values in a page at most, about; 8 MiB by default. Not in format 0.1.
    data_cache_bytes
        Bytes of values that wait to become pages, shared evenly by the columns: so their pages
        have at most that share. Not in format 0.1.
    progress
        Told of files: ``begin(fragment)`` and ``complete(fragment)``.
    data_storage_version
        Format of the files: ``"0.1"``, ``"2.0"``, ``"2.1"``, ``"2.2"``, ``"2.3"``, ``"stable"``
        or ``"next"``; by default that of the dataset, else 2.2.
    use_legacy_format
        Old spelling of ``data_storage_version``.
    enable_stable_row_ids
        Whether row ids of a new dataset stay when rows move.
    encoding_options
        How columns at or below a path are encoded in the files written now, such as
        ``{"text": {"compression": "zstd", "compression_level": 9}}``. They win over
        ``lance-encoding:`` keys in the metadata of a field, which have the same names.
    initial_bases
        Further places of a dataset that is created: blobs below them may be given by URI.
    target_bases
        Names or paths of base paths that the new data files go to in turn.
    target_all_bases
        The files go to the dataset's own place and to all base paths in turn.
    external_blob_mode
        What becomes of blobs that are given by URI: ``"reference"`` keeps the URI,
        ``"ingest"`` copies the bytes.
    allow_external_blob_outside_bases
        Keep URIs below none of the dataset's base paths, too.
    blob_pack_file_size_threshold
        Bytes of a file that holds several blobs, at most; 1 GiB by default.
    """

    max_rows_per_file: int
    max_rows_per_group: int | None
    max_bytes_per_file: int
    data_cache_bytes: int | None
    max_page_bytes: int | None
    progress: Any
    data_storage_version: str | None
    use_legacy_format: bool | None
    enable_stable_row_ids: bool
    encoding_options: Mapping[str, Mapping[str, object]] | None
    initial_bases: Sequence[DatasetBasePath] | None
    target_bases: Sequence[str] | None
    target_all_bases: bool | None
    external_blob_mode: str
    allow_external_blob_outside_bases: bool
    blob_pack_file_size_threshold: int | None


class WriteKeywords(FileKeywords, total=False):
    """How rows become data files and a version.

    Parameters
    ----------
    enable_v2_manifest_paths
        How the manifests of a new dataset are named.
    commit_message, transaction_properties
        Kept with the version.
    auto_cleanup_options
        ``{"interval": 20, "older_than_seconds": 1209600}``: every so many commits to a dataset
        that is made now, older versions are cleaned up.
    """

    enable_v2_manifest_paths: bool
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    auto_cleanup_options: Mapping[str, int] | None


_OPTIONS: Final = """**options
    Those of :class:`glaive.dataset.writing.keywords.{}`.
"""
"""What stands in the docstring in place of the keywords."""

_DEFAULTS: Final = {
    **{
        entry.name: entry.default
        for entry in fields(WriteOptions)
        if isinstance(entry.default, int)
    },
    "external_blob_mode": "reference",
    "allow_external_blob_outside_bases": False,
}
"""What is not ``None`` when it is left out."""


def shows_keywords(*kinds: type) -> Callable[[F], F]:
    """Let a function that takes ``**options`` show them by name, in its signature and its help.

    Parameters
    ----------
    kinds
        The dictionaries that explain them; the last has all.
    """
    return lambda function: _showing(function, kinds)


def _showing(function: F, kinds: Sequence[type]) -> F:
    own = signature(function)
    named = [
        parameter
        for parameter in own.parameters.values()
        if parameter.kind != Parameter.VAR_KEYWORD
    ]
    named += [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in kinds[-1].__annotations__.items()
    ]
    function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]  # any function has room for it
    if function.__doc__:  # not under -OO
        place = _OPTIONS.format(kinds[-1].__name__)
        explained = [cleandoc(kind.__doc__ or "").partition("---\n")[2] for kind in kinds]
        shown = cleandoc(function.__doc__).replace(place, "\n".join([*explained, ""]))
        function.__doc__ = shown
    return function


def write_options(
    function: Callable[..., Any], kind: type, mode: str, given: Mapping[str, Any]
) -> WriteOptions:
    """The options that keywords of a function mean; ``None`` is as good as left out.

    Raises
    ------
    OptionError
        One does not exist, or has a value it cannot have.
    """
    unknown = {name: value for name, value in given.items() if name not in kind.__annotations__}
    check_options(function.__name__, unknown, function)
    values = {name: value for name, value in given.items() if value is not None}
    legacy = values.pop("use_legacy_format", None)
    if legacy is not None:
        values.setdefault("data_storage_version", "legacy" if legacy else "stable")
    for name in ("initial_bases", "target_bases"):
        if name in values:
            values[name] = tuple(values[name])
    if "auto_cleanup_options" in values:
        values["auto_cleanup"] = values.pop("auto_cleanup_options")
    blobs = BlobOptions(
        pack_file_size=values.pop("blob_pack_file_size_threshold", None),
        external=values.pop("external_blob_mode", "reference"),
        outside_bases=values.pop("allow_external_blob_outside_bases", False),
    )
    return WriteOptions(mode=mode, blobs=blobs, **values)  # type: ignore[arg-type]  # checked there
