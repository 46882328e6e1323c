"""Options of ``format("lance")``: names, meanings and parsing.

Spark passes a flat map of strings with lower-case keys. A view can be read and written, as
``INSERT INTO`` passes the view's options. So reading ignores the options for writing and vice
versa. Unknown names raise an error, as a misspelt option would otherwise be ignored silently.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from glaive.config import memory_size
from glaive.dataclass import dataclass
from glaive.errors import DatasetNotFoundError, OptionError
from glaive.format.field import quoted_name
from glaive.io.access import AccessPolicy, ExpiringOptions
from glaive.io.location import path_of_file_uri, path_text, with_slashes
from glaive.io.storage_options import PERMISSIONS, normalise_options
from glaive.options import (
    ANYTHING,
    SWITCH,
    TEXT,
    Kind,
    UnfitError,
    integer,
    kinds_of,
    listed,
    one_of,
    option,
    table,
)
from glaive.types import VersionIdentity

# --- Values of options of ``format("lance")`` beyond their types -----------------------------
# Spark passes all options as strings. Lists and mappings are JSON. Lists of names may also be
# separated by commas.

STORAGE = "storage."
"""Prefix of object store options: ``storage.aws_region``."""

BLOBS = {"descriptor": "blobs_descriptions", "bytes": "all_binary"}
"""Modes to read blobs, with the names that scans use."""

ORDERED = 'names of columns, or objects such as [{"column_name": "price", "ascending": false}]'


def _name(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(given)
    return given


def _distinct(given: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = NAMED.of(given)
    if len(set(names)) < len(names):
        raise UnfitError(f"expected distinct names as in 'a,b', found {names}")
    return names


def _or_object(plain: Kind, such_as: str) -> Kind:
    """Return a kind that also accepts a JSON object, which begins with a brace."""
    objects = table(TEXT if plain is NAMED else ANYTHING)

    def of(given: Any) -> Any:
        if not given:
            raise ValueError(given)
        return (objects if isinstance(given, Mapping) else plain).of(given)

    def text(given: str) -> Any:
        return (objects if given.startswith("{") else plain).text(given)

    return Kind(f"{plain.expected}, or an object such as {such_as}", of, text)


def _schema(text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowInvalid, OSError) as error:
        raise UnfitError(
            f"expected the base64 text of an Arrow IPC schema ({error}). "
            "glaive.spark.write(df, uri, arrow_schema=...) makes it from a pyarrow.Schema"
        ) from error


def _order(given: Any) -> tuple[Any, ...]:
    from glaive.scan.run.compare import ColumnOrdering

    return tuple(ColumnOrdering(**one) if isinstance(one, dict) else _name(one) for one in given)


def _bytes(text: str) -> int:
    return memory_size("option maxBytesPerTrigger", int(text) if text.isdecimal() else text)


POSITIVE = integer(1)
NAMED = replace(listed(Kind("a name", _name)), expected="names as in 'a,b'")
START = Kind(
    "an integer ≥ 1, or latest",
    lambda given: given if given == "latest" else POSITIVE.of(given),
    lambda text: "latest" if text.lower() == "latest" else POSITIVE.text(text),
)

ALIASES = {
    "versionasof": "version",
    "timestampasof": "asof",
    "timestamp": "asof",
    "mergeschema": "merge_schema",
    "overwriteschema": "overwrite_schema",
    "replaceusing": "replace_using",
    "replacewhere": "replace_where",
    "txnappid": "txn_app_id",
    "txnversion": "txn_version",
}
"""Names of options in other Spark sources."""


# --- The option ``table``: the table of a catalogue instead of a path -------------------

_TABLE = "table"
_PREFIX = "namespace."


class LocatedOptions(dict[str, str]):
    """Options with the location of a table, and a function that renews credentials."""

    renew: Callable[[], Mapping[str, str]] | None = None


def with_location(options: Mapping[str, str], *, create: bool = False) -> Mapping[str, str]:
    """Return options with path and storage options of the table that ``table`` names, if any.

    Parameters
    ----------
    options
        ``table``: names separated by dots, or a JSON list of names. ``namespace.impl``: ``dir``
        (default) or ``rest``. Properties of the catalogue: ``namespace.root``, ``namespace.uri``
        and so on.
    create
        Declare a missing table, to write it.

    Raises
    ------
    OptionError
        You gave both a table and a path, or the catalogue lacks a property.
    DatasetNotFoundError
        The table is missing.
    UnsupportedFeatureError
        The catalogue manages the versions, and its client cannot be connected again.
    """
    lowered = {key.lower(): text for key, text in options.items()}
    if _TABLE not in lowered:
        return options
    if "path" in lowered or "paths" in lowered:
        raise OptionError("options path and table: give only one")
    from glaive.namespace import connect
    from glaive.table.manifest_registers import find_table

    properties = {
        key.removeprefix(_PREFIX): text for key, text in lowered.items() if key.startswith(_PREFIX)
    }
    client = connect(properties.pop("impl", "dir"), properties)
    named = lowered[_TABLE]
    path = list(NAMED.parse("option table", named)) if named[:1] == "[" else named.split(".")
    storage = {
        key.removeprefix(STORAGE): text for key, text in lowered.items() if key.startswith(STORAGE)
    }
    try:
        found = find_table(client, path, None, storage or None)
    except DatasetNotFoundError:
        if not create:
            raise
        found = find_table(client, path, None, storage or None, create=True)
    others = {
        key: text
        for key, text in options.items()
        if key.lower() != _TABLE and not key.lower().startswith((_PREFIX, STORAGE))
    }
    vended = {f"{STORAGE}{key}": text for key, text in (found.portable_options or {}).items()}
    located = LocatedOptions({**others, "path": found.uri, **vended})
    if isinstance(found.storage_options, ExpiringOptions):
        located.renew = found.storage_options.renew
    return located


SET_BY_SPARK = frozenset(
    {"checkpointlocation", "location", "owner", "path", "paths", "provider", "serialization.format"}
)
"""Keys that Spark adds, besides keys that start with ``option.`` or ``__``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of the source, for reading and writing.

    Parameters
    ----------
    uri
        The dataset: a path or a URI such as ``s3://bucket/flights``.
    storage
        Settings of the object store, from options such as ``storage.aws_region``. Also what the
        dataset may read elsewhere: ``allow_external_blobs`` (``true`` or locations) and
        ``base_store_params``, as JSON: ``{"s3://bucket/a": {}}``. For both the prefix ``storage.``
        is optional.
    columns
        Reading: the columns of the frame, in this order: ``"a,b"`` or a JSON list of names. Or a
        JSON object of names and expressions: ``{"total": "price * amount"}``. Spark reads and
        transfers all columns of Python sources unless you give this option.
    filter
        Reading: the rows of the frame, in the filter language of glaive: ``"price > 10"``.
    push_filters
        Reading: push down filters from Spark, if the session has
        ``spark.sql.python.filterPushdown.enabled``. Use it only for frames that serve one query:
        Spark 4.3 reuses the plan of the first query on a frame. After
        ``frame.where("id < 9").count()``, ``frame.count()`` would return 9 as well. ``filter`` is
        safe in this respect.
    limit
        Reading: only the first rows of the frame. With a filter or an order, one task reads these
        rows; otherwise tasks share them.
    order_by
        Reading: columns to sort by, ``"a,b"`` or a JSON list of names and objects:
        ``[{"column_name": "price", "ascending": false}]``. One task reads and sorts; use it with
        ``limit``.
    nearest
        Reading: the rows nearest to a vector, as JSON: ``{"column": "emb", "q": [0.1], "k": 10}``;
        adds ``_distance``. One task searches.
    full_text_query
        Reading: the rows whose text matches, a string or JSON:
        ``{"query": "red shoes", "columns": ["title"]}``; adds ``_score``. One task searches.
    blobs
        Reading: ``descriptor`` (the default) returns the location of each value of blob columns,
        ``bytes`` the values.
    with_row_id, with_row_address
        Reading: add the column ``_rowid`` or ``_rowaddr`` at the end.
    version
        Reading: the version of the dataset; default: the newest. Also ``versionAsOf``.
    branch
        Reading: the branch; its newest version unless ``version`` or ``asof`` is given.
    tag
        Reading: the tag of a version.
    asof
        Reading: the newest version created before this point in time, such as
        ``"2026-05-01T12:00:00Z"``. The default time zone is the local one. Also ``timestampAsOf``
        and ``timestamp``.
    batch_size
        Reading: rows per Arrow batch; default: by the width of the rows.
    split_bytes
        Reading: approximate bytes that one task reads; default: 128 MiB, or less if some cores
        would be idle.
    parallelism
        Reading: number of tasks that the cluster runs at a time; default: the cores of the
        driver's machine.
    allow_truncation
        Both: truncate times to microseconds; otherwise finer values raise an error.
    vector_columns
        Writing: array columns to store as fixed-size lists, ``"emb:128:float16,small:8"``.
    arrow_schema
        Writing: the exact Arrow schema to store, in IPC form as base64.
        :func:`glaive.spark.write` takes a ``pyarrow.Schema`` instead.
    blob_columns
        Writing: binary columns to store as blobs, ``"image,audio"``.
    column_types
        Writing: metadata of columns that Spark's plan has lost, as JSON.
        :func:`glaive.spark.write` sets it.
    decimals
        Writing: integer columns that hold the unscaled values of decimals, as JSON:
        ``{"price": "15,2"}``. :func:`glaive.spark.write` sets it.
    expected_version
        Overwriting: the version that the rows were made from. If the dataset has a newer version
        when the write is planned or committed, the write is a conflict.
    overwrite_schema
        Overwriting: with ``false``, keep the columns of the dataset, and match columns of the
        frame by name.
    merge_schema
        Appending: add columns that the dataset lacks; existing rows have nulls in them.
    replace_where
        Overwriting: replace only the rows that match this filter, with rows that match it.
    replace_using
        Overwriting: replace only the rows that have the values of a new row in these columns,
        ``"day,region"``. Also ``replaceUsing``.
    keys, sequence_by, delete_where, ignore_null_updates, scd
        Appending and streams: apply the rows as changes of the table, with ``columns`` as the
        columns to set; see :meth:`glaive.spark.LanceTable.applyChanges`. ``delete_where`` is in the
        filter language of glaive. The process that commits applies them.
    txn_app_id, txn_version
        Writing: an application and a number that it increases. The write is skipped if the dataset
        has recorded that number of the application, or a higher number. Also ``txnAppId``,
        ``txnVersion``.
    strict_nullability
        Writing a new dataset: store nullability as Spark reports it; otherwise all columns are
        nullable.
    must_not_exist
        Writing: raise if the dataset exists or another writer creates it meanwhile.
    case_sensitive
        Writing: also compare the case of names of columns.
        :func:`glaive.spark.write` sets it if the session has ``spark.sql.caseSensitive``.
    encoding_options
        Writing: the encoding of columns, as JSON: ``{"text": {"compression": "zstd"}}``.
    job
        Writing: a unique identifier of this write, stored in the transaction property
        ``glaive.job``; default: generated. To prevent a second write, use ``job_id``.
    job_id
        Writing: a name of this write. The write is skipped if a job of this name has made a
        version. The dataset records the names of its last jobs with a name.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        Writing: see :func:`glaive.write_dataset`.
    identity
        Reading: the identity of ``version`` when it was pinned; internal.
    """

    uri: str = field(repr=False)  # a URL may have a password
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    columns: tuple[str, ...] | Mapping[str, str] | None = option(
        _or_object(NAMED, '{"total": "price * amount"}')
    )
    filter: str | None = None
    push_filters: bool = False
    limit: int | None = option(POSITIVE)
    order_by: tuple[Any, ...] = option(Kind(ORDERED, _order, NAMED.text), ())
    nearest: Mapping[str, Any] | None = None
    full_text_query: str | Mapping[str, Any] | None = option(
        _or_object(TEXT, '{"query": "red shoes", "columns": ["title"]}')
    )
    blobs: str = option(one_of(*BLOBS), "descriptor")
    with_row_id: bool = False
    with_row_address: bool = False
    version: int | None = option(POSITIVE)
    branch: str | None = None
    tag: str | None = None
    asof: str | None = None
    batch_size: int | None = option(POSITIVE)
    split_bytes: int | None = option(POSITIVE)
    parallelism: int | None = option(POSITIVE)
    allow_truncation: bool = False
    vector_columns: tuple[str, ...] = option(NAMED, ())
    blob_columns: tuple[str, ...] = option(NAMED, ())
    column_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decimals: Mapping[str, str] = field(default_factory=dict)
    arrow_schema: pa.Schema | None = option(Kind("a schema", lambda given: given, _schema))
    expected_version: int | None = option(POSITIVE)
    overwrite_schema: bool = True
    merge_schema: bool = False
    replace_where: str | None = None
    replace_using: tuple[str, ...] = option(NAMED, ())
    keys: tuple[str, ...] = option(replace(NAMED, of=_distinct), ())
    sequence_by: str | None = None
    delete_where: str | None = None
    ignore_null_updates: bool = False
    scd: int = option(POSITIVE, 1)
    txn_app_id: str | None = None
    txn_version: int | None = option(integer(0))
    strict_nullability: bool = False
    must_not_exist: bool = False
    case_sensitive: bool = False
    job: str | None = None
    job_id: str | None = None
    encoding_options: Mapping[str, Mapping[str, Any]] | None = None
    max_rows_per_file: int | None = option(POSITIVE)
    max_bytes_per_file: int | None = option(POSITIVE)
    data_storage_version: str | None = None
    enable_stable_row_ids: bool | None = None
    identity: VersionIdentity | None = None

    def selected(self, names: Sequence[str]) -> tuple[str, ...] | dict[str, str]:
        """Return some columns of the frame in a form that scans accept."""
        if not isinstance(self.columns, Mapping):
            return tuple(names)
        return {name: self.columns.get(name, quoted_name(name)) for name in names}


_INTERNAL = ("uri", "storage", "identity")
"""Fields of :class:`Options` that Spark has no option for."""


@cache
def _options_of(made: type) -> dict[str, tuple[str, Kind, str]]:
    """Return fields of a set of options by lower-case name of the option: name, kind, spelling."""
    kinds = kinds_of(made)
    spelled = ((one.name, one.metadata.get("spelled") or one.name) for one in fields(made))
    return {text.lower(): (name, kinds[name], text) for name, text in spelled}


def from_spark(options: Mapping[str, str]) -> Options:
    """Parse the options from Spark.

    Raises
    ------
    OptionError
        The path and the table are missing, an option is unknown (the message names similar
        options), or a value is invalid.
    """
    options = with_location(options)
    values: dict[str, Any] = {"uri": _uri(options), "storage": {}}
    offered = {one: found for one, found in _options_of(Options).items() if one not in _INTERNAL}
    for key, text in options.items():
        name = ALIASES.get(key.lower(), key.lower())
        if name in SET_BY_SPARK or name.startswith(("option.", "__")):
            continue
        of_store = name.startswith(STORAGE) or name in PERMISSIONS
        known, short = values["storage"] if of_store else values, name.removeprefix(STORAGE)
        if of_store or name in offered:
            if short in known:
                raise OptionError(f"option {key!r} is also given under another name. Omit one")
            known[short] = text if of_store else offered[name][1].parse(f"option {name}", text)
        else:
            names = sorted([*offered, *PERMISSIONS])
            close = get_close_matches(name, names, n=3)
            hint = f"did you mean {', '.join(close)}? " if close else ""
            raise OptionError(
                f"option {key!r} of the lance source does not exist; {hint}"
                f"Options: {', '.join(names)}, and {STORAGE}* for the object store"
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


# --- Options of streams and change feeds, which glaive parses first ---------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of streams and change feeds.

    Parameters
    ----------
    starting_version
        ``startingVersion``: the first version whose changes are read; ``latest`` for versions after
        the newest. By default a stream starts with all rows of the newest version.
    starting_timestamp
        ``startingTimestamp``: the first version created at or after this point in time.
    ending_version, ending_timestamp
        ``endingVersion``, ``endingTimestamp``: the last version of a batch change feed.
    read_change_feed
        ``readChangeFeed``: read changes of rows, with ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``, instead of new rows.
    preimages
        Whether a change feed includes the old values of updated rows; default: true.
    deduplication_mode
        ``deduplicationMode``: ``netChanges`` for the difference between the two ends, in a batch
        change feed; default: ``none``.
    max_files, max_rows, max_bytes
        ``maxFilesPerTrigger``, ``maxRowsPerTrigger``, ``maxBytesPerTrigger``: limits of a batch.
    skip_change_commits
        ``skipChangeCommits``: leave out versions that update or delete rows. Otherwise such
        versions raise an error in a stream of new rows.
    ignore_deletes
        ``ignoreDeletes``: leave out versions that only delete rows.
    merge_keys
        Writing: update the rows that have the keys of new rows; insert the other new rows.
    app_id
        ``txnAppId``: name of the application; default: the query's id, from its checkpoint.
    """

    starting_version: int | Literal["latest"] | None = option(START, None, "startingVersion")
    starting_timestamp: str | None = option(TEXT, None, "startingTimestamp")
    ending_version: int | None = option(POSITIVE, None, "endingVersion")
    ending_timestamp: str | None = option(TEXT, None, "endingTimestamp")
    read_change_feed: bool = option(SWITCH, False, "readChangeFeed")
    preimages: bool = True
    deduplication_mode: Literal["none", "netChanges"] = option(
        one_of("none", "netChanges"), "none", "deduplicationMode"
    )
    max_files: int | None = option(POSITIVE, None, "maxFilesPerTrigger")
    max_rows: int | None = option(POSITIVE, None, "maxRowsPerTrigger")
    max_bytes: int | None = option(replace(POSITIVE, text=_bytes), None, "maxBytesPerTrigger")
    skip_change_commits: bool = option(SWITCH, False, "skipChangeCommits")
    ignore_deletes: bool = option(SWITCH, False, "ignoreDeletes")
    merge_keys: tuple[str, ...] = option(replace(NAMED, of=_distinct), ())
    app_id: str | None = option(TEXT, None, "txnAppId")


_MIN_SIMILARITY = 0.85
"""Minimum similarity of two names, at most 1, to suggest one for the other."""


def stream_options(options: Mapping[str, str]) -> tuple[StreamOptions, dict[str, str]]:
    """Parse the options of streams; return them and the other options.

    Raises
    ------
    OptionError
        A value is invalid, or two options contradict each other.
    """
    offered = _options_of(StreamOptions)
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    for key, text in options.items():
        lowered = key.lower()
        if lowered == "queryname":  # Spark adds it to the options of a sink
            continue
        if lowered in offered:
            name, kind, _ = offered[lowered]
            values[name] = kind.parse(f"option {key}", text)
            continue
        others[key] = text
        close = get_close_matches(lowered, offered, 1, _MIN_SIMILARITY)
        if close and lowered not in _options_of(Options) and lowered not in ALIASES:
            known = offered[close[0]][2]
            raise OptionError(
                f"option {key!r} of the lance source does not exist; did you mean {known}?"
            )
    for end in ("starting", "ending"):
        if {f"{end}_version", f"{end}_timestamp"} <= values.keys():
            raise OptionError(f"options {end}Version and {end}Timestamp: give only one")
    return StreamOptions(**values), others


def refuse_invalid_strings(options: Mapping[str, str]) -> None:
    """Refuse strings with half surrogate pairs, as from undecodable file names or JSON.

    Raises
    ------
    OptionError
        A string has half a surrogate pair. Spark would only say that an error occurred.
    """
    for key, text in options.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise OptionError(
                f"{key}: the character at {error.start} is half of a surrogate pair, and Spark "
                "cannot represent it. Rename what has this name, or check how it was decoded"
            ) from None


def _permissions(storage: Mapping[str, str]) -> dict[str, str]:
    """Return what the dataset may read elsewhere; relative paths are resolved in this process."""
    try:
        allowed = AccessPolicy.of_options(storage)
    except OptionError as error:
        raise OptionError(f"option {error}") from None
    return {} if allowed is None else allowed.as_options()


def spark_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Convert Python values (lists, booleans, a schema) to strings for Spark; omit ``None``."""
    strings: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, bool):
            strings[name] = str(value).lower()
        elif isinstance(value, pa.Schema):
            strings[name] = base64.b64encode(value.serialize()).decode()
        elif isinstance(value, Mapping) and name not in ("storage", "storage_options"):
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
    """Convert an entry of ``order_by`` for JSON."""
    if isinstance(entry, str):
        return entry
    try:
        return dict(entry) if isinstance(entry, Mapping) else asdict(entry)
    except TypeError:
        raise OptionError(
            "order_by: expected names of columns, glaive.ColumnOrdering, or mappings "
            f"such as {ORDERED}, found {entry!r}"
        ) from None


def _plain(value: Any) -> Any:
    """Convert a vector to a list, for JSON."""
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value.to_pylist()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise OptionError(f"expected numbers, strings, lists and mappings, found {value!r:.80}")


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
    """Resolve the path among options here, for tasks that parse them; see :func:`absolute`."""
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
        The scheme has a single slash, such as ``dbfs:/x``.
    """
    text = path_text(uri)
    slashed = with_slashes(text)
    if slashed != text:
        return path_of_file_uri(slashed)
    return text if "://" in text else str(Path(text).expanduser().absolute())
