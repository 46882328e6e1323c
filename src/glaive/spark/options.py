"""Options of ``format("lance")``: names, meanings and parsing.

Spark passes a flat map of strings with lower-case keys. A view can be read and written (``INSERT
INTO`` passes the view's options), so reading ignores the options for writing and vice versa.
Unknown names are errors, as a misspelt option would otherwise be ignored silently.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.io.access import AccessPolicy
from glaive.io.location import path_of_file_uri, with_slashes
from glaive.io.renewed import ExpiringOptions
from glaive.io.storage_options import PERMISSIONS, normalise_options
from glaive.spark.option_text import ALIASES, JSON_OPTIONS, READERS, STORAGE
from glaive.spark.table_option import LocatedOptions, with_location
from glaive.types import VersionIdentity

__all__ = [
    "Options",
    "absolute",
    "from_spark",
    "refuse_no_texts",
    "to_spark",
    "with_absolute_path",
]

SET_BY_SPARK = frozenset(
    {"checkpointlocation", "location", "owner", "path", "paths", "provider", "serialization.format"}
)
"""Keys Spark adds on its own, besides those that start with ``option.`` or ``__``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of the source, for reading and writing.

    Parameters
    ----------
    uri
        The dataset: a path or a URI such as ``s3://bucket/flights``.
    storage
        Settings of the object store, from options such as ``storage.aws_region``, and what the
        dataset may read elsewhere: ``allow_external_blobs`` (``true`` or places) and
        ``base_store_params``, as JSON: ``{"s3://bucket/a": {}}``. Both may also be given without
        the prefix ``storage.``.
    columns
        Reading: the columns of the frame, in this order; ``"a,b"``, a JSON list of names, or a
        JSON object of names and expressions: ``{"total": "price * amount"}``.
        Spark does not push column selection down to Python sources, so all columns are read and
        transferred unless this option is given.
    filter
        Reading: the rows of the frame, in the filter language of glaive: ``"price > 10"``.
    push_filters
        Reading: push down filters from Spark, if the session has
        ``spark.sql.python.filterPushdown.enabled``. Only for frames that are used in one query:
        Spark 4.3 reuses the plan of the first query on a frame, so after
        ``frame.where("id < 9").count()`` the result of ``frame.count()`` would be 9 as well.
        ``filter`` has no such effect.
    limit
        Reading: the first rows of the frame only; without a filter or an order, so many rows are
        divided among tasks, else one task reads them.
    order_by
        Reading: columns to sort by, ``"a,b"`` or a JSON list of names and objects:
        ``[{"column_name": "price", "ascending": false}]``. One task reads and sorts; meant for
        use with ``limit``.
    nearest
        Reading: the rows nearest to a vector, as JSON: ``{"column": "emb", "q": [0.1], "k": 10}``;
        adds ``_distance``. One task searches.
    full_text_query
        Reading: the rows whose text matches, a text or JSON:
        ``{"query": "red shoes", "columns": ["title"]}``; adds ``_score``. One task searches.
    blobs
        Reading: ``descriptor`` (the default) returns where the values of blob columns are,
        ``bytes`` the values.
    with_row_id, with_row_address
        Reading: add the column ``_rowid`` or ``_rowaddr`` at the end.
    version
        Reading: the version of the dataset; the newest when omitted. Also ``versionAsOf``.
    branch
        Reading: the branch, whose newest version is read unless ``version`` or ``asof`` is given.
    tag
        Reading: the tag of a version.
    asof
        Reading: the newest version created before this point in time, such as
        ``"2026-05-01T12:00:00Z"``; local time without a zone. Also ``timestampAsOf`` and
        ``timestamp``.
    batch_size
        Reading: rows in one Arrow batch; derived from the width of the rows when omitted.
    split_bytes
        Reading: approximate bytes that one task reads; 128 MiB when omitted, less if some cores
        would be idle.
    parallelism
        Reading: number of tasks that the cluster runs at a time; the cores of the driver's
        machine when omitted.
    allow_truncation
        Both: truncate times to microseconds; otherwise finer values are errors.
    vector_columns
        Writing: array columns to store as fixed-size lists, ``"emb:128:float16,small:8"``.
    arrow_schema
        Writing: the exact Arrow schema to store, base64 of its IPC form (see
        :func:`glaive.spark.write`, which takes a ``pyarrow.Schema``).
    blob_columns
        Writing: binary columns to store as blobs, ``"image,audio"``.
    column_types
        Writing: metadata of columns that Spark's plan has lost, as JSON. Set by
        :func:`glaive.spark.write`.
    decimals
        Writing: columns of integers that are decimals without their scale, as JSON:
        ``{"price": "15,2"}``. Set by :func:`glaive.spark.write`.
    expected_version
        Overwriting: the version that the rows were made from; if there is a newer one when the
        write is planned or committed, it is a conflict.
    overwrite_schema
        Overwriting: with ``false``, keep the columns of the dataset, and match those of the frame
        by name.
    merge_schema
        Appending: add columns that the dataset lacks, which are null in its rows.
    replace_where
        Overwriting: replace only the rows that match this filter, with rows that match it.
    txn_app_id, txn_version
        Writing: an application and a number that it increases; if the dataset has that number of
        the application, or a higher one, nothing is written. Also ``txnAppId``, ``txnVersion``.
    strict_nullability
        Writing a new dataset: keep Spark's "not null"; otherwise all columns are nullable.
    must_not_exist
        Writing: fail if the dataset exists or another writer creates it concurrently.
    case_sensitive
        Writing: match columns of a dataset by the case of their names, too.
        :func:`glaive.spark.write` sets it where the session has ``spark.sql.caseSensitive``.
    encoding_options
        Writing: how columns are encoded, as JSON: ``{"text": {"compression": "zstd"}}``.
    job
        Writing: a unique identifier of this write, stored in the transaction property
        ``glaive.job``. Generated when omitted. It does not prevent a second write: ``job_id`` does.
    job_id
        Writing: names this write; if a job of this name has made a version, nothing is written.
        The dataset knows the names of its last jobs that had one.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        Writing: as in :func:`glaive.write_dataset`.
    identity
        Reading: what ``version`` was recognised by when it was pinned; none of Spark's options.
    """

    uri: str = field(repr=False)  # a URL may have a password
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    filter: str | None = None
    push_filters: bool = False
    limit: int | None = None
    order_by: tuple[Any, ...] = ()
    nearest: Mapping[str, Any] | None = None
    full_text_query: str | Mapping[str, Any] | None = None
    blobs: str = "descriptor"
    with_row_id: bool = False
    with_row_address: bool = False
    version: int | None = None
    branch: str | None = None
    tag: str | None = None
    asof: str | None = None
    batch_size: int | None = None
    split_bytes: int | None = None
    parallelism: int | None = None
    allow_truncation: bool = False
    vector_columns: tuple[str, ...] = ()
    blob_columns: tuple[str, ...] = ()
    column_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decimals: Mapping[str, str] = field(default_factory=dict)
    arrow_schema: pa.Schema | None = None
    expected_version: int | None = None
    overwrite_schema: bool = True
    merge_schema: bool = False
    replace_where: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    strict_nullability: bool = False
    must_not_exist: bool = False
    case_sensitive: bool = False
    job: str | None = None
    job_id: str | None = None
    encoding_options: Mapping[str, Mapping[str, object]] | None = None
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    data_storage_version: str | None = None
    enable_stable_row_ids: bool | None = None
    identity: VersionIdentity | None = None


def from_spark(options: Mapping[str, str]) -> Options:
    """Parse the options from Spark.

    Raises
    ------
    OptionError
        No path and no table, an unknown option (the message names the closest ones), or an
        invalid value.
    """
    options = with_location(options)
    values: dict[str, Any] = {"uri": _uri(options), "storage": {}}
    for key, text in options.items():
        name = ALIASES.get(key.lower(), key.lower())
        if name in SET_BY_SPARK or name.startswith(("option.", "__")):
            continue
        of_store = name.startswith(STORAGE) or name in PERMISSIONS
        known, short = values["storage"] if of_store else values, name.removeprefix(STORAGE)
        if of_store or name in READERS:
            if short in known:
                raise OptionError(f"option {key!r} is also given under another name. Omit one")
            known[short] = text if of_store else READERS[name](name, text)
        else:
            close = get_close_matches(name, READERS, n=3)
            hint = f"did you mean {', '.join(close)}? " if close else ""
            raise OptionError(
                f"option {key!r} of the lance source does not exist; {hint}"
                f"Options: {', '.join(sorted(READERS))}, and {STORAGE}* for the object store"
            )
    values["storage"] |= _permissions(values["storage"])
    if isinstance(options, LocatedOptions) and options.renew is not None:
        values["storage"] = ExpiringOptions(values["storage"], options.renew)
    selectors: list[str] = [name for name in ("version", "tag", "asof") if name in values]
    if "tag" in values and "branch" in values:
        selectors.append("branch")
    if len(selectors) > 1:
        raise OptionError(f"options {', '.join(selectors)} all select a version; give only one")
    return Options(**values)


def refuse_no_texts(options: Mapping[str, str]) -> None:
    """Refuse what Python makes of names of files that are no UTF-8, and of half a pair in JSON.

    Raises
    ------
    OptionError
        The session would only say that an error occurred.
    """
    for key, text in options.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise OptionError(
                f"{key}: the character at {error.start} is half of a surrogate pair, and Spark has "
                "no such texts. Rename what has this name, or check how the text was decoded"
            ) from None


def _permissions(storage: Mapping[str, str]) -> dict[str, str]:
    """What the dataset may read elsewhere; relative paths are those of this process."""
    try:
        allowed = AccessPolicy.of_options(storage)
    except OptionError as error:
        raise OptionError(f"option {error}") from None
    return {} if allowed is None else allowed.as_options()


def to_spark(options: Mapping[str, object]) -> dict[str, str]:
    """Convert Python values (lists, booleans, a schema) to strings for Spark; omits None."""
    strings: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, bool):
            strings[name] = str(value).lower()
        elif isinstance(value, pa.Schema):
            strings[name] = base64.b64encode(value.serialize()).decode()
        elif name in JSON_OPTIONS and isinstance(value, Mapping):
            strings[name] = json.dumps(dict(value), default=_plain)
        elif name == "order_by" and isinstance(value, Sequence) and not isinstance(value, str):
            strings[name] = json.dumps([_column_order(entry) for entry in value])
        elif isinstance(value, datetime):
            strings[name] = value.astimezone().isoformat()
        elif isinstance(value, Mapping):
            strings |= {f"{STORAGE}{key}": text for key, text in normalise_options(value).items()}
        elif isinstance(value, list | tuple):
            strings[name] = json.dumps(list(value))
        else:
            strings[name] = str(value)
    return strings


def _column_order(entry: Any) -> str | dict[str, Any]:
    """One of ``order_by``, for JSON."""
    if isinstance(entry, str):
        return entry
    try:
        return dict(entry) if isinstance(entry, Mapping) else asdict(entry)
    except TypeError:
        raise OptionError(
            "order_by: expected names of columns, glaive.ColumnOrdering, or mappings "
            f"{JSON_OPTIONS['order_by']}, found {entry!r}"
        ) from None


def _plain(value: Any) -> Any:
    """A vector as a list, for JSON."""
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value.to_pylist()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise OptionError(f"expected numbers, texts, lists and mappings, found {value!r:.80}")


def _uri(options: Mapping[str, str]) -> str:
    lowered = {key.lower(): value for key, value in options.items()}
    uri = lowered.get("path")
    if uri is None and "paths" in lowered:
        raise OptionError(
            f"the lance source reads one dataset at a time, found the paths {lowered['paths']}. "
            "Read them separately and combine them with union"
        )
    if not uri:
        raise OptionError(
            "the lance source has no path. Use load(path), save(path) or, in SQL, "
            "CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...'). Spark does not pass the "
            "options of tables (CREATE TABLE, saveAsTable) to the source; use a temporary view, or "
            "name the path: SELECT * FROM t WITH (path = '...'), or option('path', ...).table('t')"
        )
    if uri.startswith("memory://"):
        raise OptionError(
            f"{uri} is in the memory of one process, and Spark runs several. "
            "Use a directory or an object store"
        )
    return absolute(uri)


def with_absolute_path(options: Mapping[str, str]) -> dict[str, str]:
    """Options whose path is resolved here, for tasks that parse them; see :func:`absolute`."""
    return {
        key: absolute(text) if key.lower() == "path" and text else text
        for key, text in options.items()
    }


def absolute(uri: str | os.PathLike[str]) -> str:
    """Resolve a relative path here, as executors have other working directories.

    ``file:/p``, as Spark writes the paths of tables, becomes ``/p``.

    Raises
    ------
    OptionError
        A scheme with a single slash, such as ``dbfs:/x``.
    """
    text = os.fspath(uri)
    slashed = with_slashes(text)
    if slashed != text:
        return path_of_file_uri(slashed)
    return text if "://" in text else str(Path(text).expanduser().absolute())
