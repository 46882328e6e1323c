"""Keyword arguments of functions that write rows: defined and documented once.

Type checkers see them in ``**options: Unpack[WriteKeywords]``; :func:`expose_keywords` adds them
to the signature and the docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, cleandoc, signature
from typing import Any, Final, TypedDict, TypeVar

from glaive.dataset.deprecations import warn_deprecated
from glaive.dataset.opening import check_options
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.dataset.writing.options import WriteOptions
from glaive.file.blob_options import BlobOptions

__all__ = ["FileKeywords", "WriteKeywords", "expose_keywords", "write_options"]

F = TypeVar("F", bound=Callable[..., Any])


class FileKeywords(TypedDict, total=False):
    """How rows become data files.

    Parameters
    ----------
    max_rows_per_file, max_bytes_per_file
        Limits of a file; each file is a fragment.
    max_rows_per_group
        Maximum rows per page in files of format 0.1; ignored in others.
    max_page_bytes
        Approximate maximum bytes of values per page; 8 MiB by default. Not in format 0.1.
    data_cache_bytes
        Bytes of values that are buffered for pages, divided evenly among the columns, which
        limits their pages to that share. Not in format 0.1.
    progress
        True shows the rows on a line of the terminal, if there is one. Of other objects the methods
        ``begin(fragment)`` and ``complete(fragment)`` are called for each file.
    data_storage_version
        Format of the files: ``"0.1"``, ``"2.0"``, ``"2.1"``, ``"2.2"``, ``"2.3"``, ``"stable"``
        or ``"next"``; by default that of the dataset, else 2.2.
    use_legacy_format
        Old spelling of ``data_storage_version``.
    enable_stable_row_ids
        Whether rows of a new dataset keep their ids when they are relocated.
    encoding_options
        Encoding of columns at or below a path in the new files, such as
        ``{"text": {"compression": "zstd", "compression_level": 9}}``. They override
        ``lance-encoding:`` keys in the metadata of a field, which have the same names. The path
        ``"*"`` stands for columns without either.
    initial_bases
        Base paths of a new dataset; blobs below them may be given by URI.
    target_bases
        Names or paths of base paths for new data files, used in turn. A path, such as ``/x``,
        ``~/x`` and ``./x``, or a URI means the base path that is written so, also where the dataset
        gives another one that name.
    target_all_bases
        Write new data files to the dataset's own root and all base paths in turn.
    external_blob_mode
        For blobs given by URI: ``"reference"`` stores the URI, ``"ingest"`` copies the bytes.
    allow_external_blob_outside_bases
        Also accept URIs that are not below a base path.
    blob_pack_file_size_threshold
        Maximum bytes of a file that holds several blobs; 1 GiB by default.
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
        Naming scheme of the manifests of a new dataset.
    commit_message, transaction_properties
        Stored with the version.
    auto_cleanup_options
        ``{"interval": 20, "older_than_seconds": 1209600}``: clean up older versions of a new
        dataset every ``interval`` commits.
    """

    enable_v2_manifest_paths: bool
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    auto_cleanup_options: Mapping[str, int] | None


_OPTIONS: Final = """**options
    Those of :class:`glaive.dataset.writing.keywords.{}`.
"""
"""Placeholder for the keywords in docstrings."""

_DEFAULTS: Final = {
    **{
        entry.name: entry.default
        for entry in fields(WriteOptions)
        if isinstance(entry.default, int)
    },
    "external_blob_mode": "reference",
    "allow_external_blob_outside_bases": False,
}
"""Default values other than ``None``."""


def expose_keywords(*kinds: type) -> Callable[[F], F]:
    """Decorate a function that takes ``**options``: add them to its signature and docstring.

    Parameters
    ----------
    kinds
        The typed dictionaries that document them; the last one has all keys.
    """
    return lambda function: _expose(function, kinds)


def _expose(function: F, kinds: Sequence[type]) -> F:
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
    function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]  # functions have a __dict__
    if function.__doc__:  # not under -OO
        placeholder = _OPTIONS.format(kinds[-1].__name__)
        parameters = [cleandoc(kind.__doc__ or "").partition("---\n")[2] for kind in kinds]
        function.__doc__ = cleandoc(function.__doc__).replace(
            placeholder, "\n".join([*parameters, ""])
        )
    return function


def write_options(
    function: Callable[..., Any], kind: type, mode: str, given: Mapping[str, Any]
) -> WriteOptions:
    """Convert keyword arguments of a function to options; ``None`` means the default."""
    unknown = {name: value for name, value in given.items() if name not in kind.__annotations__}
    check_options(function.__name__, unknown, function)
    values = {name: value for name, value in given.items() if value is not None}
    legacy = values.pop("use_legacy_format", None)
    if legacy is not None:
        warn_deprecated(
            "use_legacy_format is deprecated, use data_storage_version instead", above=2
        )
        values.setdefault("data_storage_version", "legacy" if legacy else "stable")
    for name in ("initial_bases", "target_bases"):
        if name in values:
            values[name] = tuple(values[name])
    if isinstance(values.get("progress"), bool):
        values["shows_progress"] = values.pop("progress")
    if "auto_cleanup_options" in values:
        values["auto_cleanup"] = values.pop("auto_cleanup_options")
    blobs = BlobOptions(
        pack_file_size=values.pop("blob_pack_file_size_threshold", None),
        external=values.pop("external_blob_mode", "reference"),
        outside_bases=values.pop("allow_external_blob_outside_bases", False),
    )
    return WriteOptions(mode=mode, blobs=blobs, **values)  # type: ignore[arg-type]  # checked there
