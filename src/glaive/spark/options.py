"""Options of ``format("lance")``: which there are, what they mean, how their text is read.

Spark hands over a flat map of texts with lower-case keys. One view can serve reading and
writing (``INSERT INTO`` passes the view's options), so either side accepts the other's options
and takes its own. A name that is neither is refused, for a mistyped option would be silent.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError

__all__ = ["Options", "from_spark", "to_spark"]

SET_BY_SPARK = frozenset(
    {"checkpointlocation", "location", "owner", "path", "paths", "provider", "serialization.format"}
)
"""Keys Spark adds on its own, besides those that start with ``option.`` or ``__``."""

STORAGE = "storage."
"""Prefix of options meant for the object store: ``storage.aws_region``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of the source; each side looks at its own.

    Parameters
    ----------
    uri
        The dataset: a path or a URI such as ``s3://bucket/flights``.
    storage
        Settings of the object store, from options such as ``storage.aws_region``.
    base_store_params
        Reading: settings for base paths of the dataset, as JSON: ``{"s3://bucket/a": {}}``.
        Those that it may not lead to by itself are allowed by being named.
    columns
        Reading: the columns of the frame, in this order; ``"a,b"``, a JSON list of names, or a
        JSON object of names and expressions: ``{"total": "price * amount"}``.
        Spark cannot tell the source which columns a query needs, so name them: all columns
        are read and shipped otherwise.
    filter
        Reading: the rows of the frame, in the filter language of glaive: ``"price > 10"``.
    push_filters
        Reading: take filters over from Spark, if the session has
        ``spark.sql.python.filterPushdown.enabled``. Only for frames that are used in one way:
        Spark 4.3 keeps what was planned for one use of a frame for all others, so that
        ``frame.where("id < 9").count()`` would leave nine rows to ``frame.count()``. A
        ``filter`` has no such effect.
    with_row_id, with_row_address
        Reading: add the column ``_rowid`` or ``_rowaddr`` at the end.
    version
        Reading: the version of the dataset; the newest when omitted. Also ``versionAsOf``.
    branch
        Reading: the branch, whose newest version is read unless ``version`` or ``asof`` is given.
    tag
        Reading: the tag of a version.
    asof
        Reading: the newest version made before this point in time, such as
        ``"2026-05-01T12:00:00Z"``; local time without a zone. Also ``timestampAsOf`` and
        ``timestamp``.
    batch_size
        Reading: rows in one Arrow batch; chosen by the width of the rows when omitted.
    split_bytes
        Reading: about how many bytes one task reads; 128 MiB when omitted, less where that
        would leave cores without work.
    parallelism
        Reading: how many tasks it takes to keep the cluster busy; the cores of the driver's
        machine when omitted.
    allow_truncation
        Both: drop digits below a microsecond instead of refusing such values.
    vector_columns
        Writing: array columns to store as fixed-size lists, ``"emb:128:float16,small:8"``.
    arrow_schema
        Writing: the exact Arrow schema to store, base64 of its IPC form (see
        :func:`glaive.spark.write`, which takes a ``pyarrow.Schema``).
    strict_nullability
        Writing a new dataset: keep Spark's "not null"; otherwise every column may hold nulls.
    must_not_exist
        Writing: fail if there is a dataset already, also if another writer creates it meanwhile.
    encoding_options
        Writing: how columns are encoded, as JSON: ``{"text": {"compression": "zstd"}}``.
    job
        Writing: what the version is known by, in the property ``glaive.job`` of its transaction;
        another one for every write. Made up when omitted.
    max_rows_per_file, max_bytes_per_file, data_storage_version, enable_stable_row_ids
        Writing: as in :func:`glaive.write_dataset`.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    columns: tuple[str, ...] | Mapping[str, str] | None = None
    filter: str | None = None
    push_filters: bool = False
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
    arrow_schema: pa.Schema | None = None
    strict_nullability: bool = False
    must_not_exist: bool = False
    job: str | None = None
    encoding_options: Mapping[str, Mapping[str, object]] | None = None
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    data_storage_version: str | None = None
    enable_stable_row_ids: bool | None = None


def from_spark(options: Mapping[str, str]) -> Options:
    """Read the options Spark hands over.

    Raises
    ------
    OptionError
        No path, an unknown option (names the closest ones) or a value that cannot be.
    """
    values: dict[str, Any] = {"uri": _uri(options), "storage": {}}
    for key, text in options.items():
        name = ALIASES.get(key.lower(), key.lower())
        if name in SET_BY_SPARK or name.startswith(("option.", "__")):
            continue
        if name.startswith(STORAGE):
            values["storage"][name.removeprefix(STORAGE)] = text
        elif name in READERS:
            if name in values:
                raise OptionError(f"option {key!r} is there under another name, too. Leave one out")
            values[name] = READERS[name](name, text)
        else:
            close = get_close_matches(name, READERS, n=3)
            hint = f"did you mean {', '.join(close)}? " if close else ""
            raise OptionError(
                f"option {key!r} of the lance source does not exist; {hint}"
                f"There are: {', '.join(sorted(READERS))}, and {STORAGE}* for the object store"
            )
    named: list[str] = [name for name in ("version", "tag", "asof") if name in values]
    if "tag" in values and "branch" in values:
        named.append("branch")
    if len(named) > 1:
        raise OptionError(f"options {', '.join(named)}: each names a version; give one of them")
    return Options(**values)


def to_spark(options: Mapping[str, object]) -> dict[str, str]:
    """Turn Python values (lists, booleans, a schema) into the texts Spark takes; drops None."""
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, pa.Schema):
            texts[name] = base64.b64encode(value.serialize()).decode()
        elif name in JSON_OPTIONS and isinstance(value, Mapping):
            texts[name] = json.dumps(dict(value))
        elif isinstance(value, datetime):
            texts[name] = value.astimezone().isoformat()
        elif isinstance(value, Mapping):
            texts |= {f"{STORAGE}{key}": str(part) for key, part in value.items()}
        elif isinstance(value, list | tuple):
            texts[name] = json.dumps(list(value))
        else:
            texts[name] = str(value)
    return texts


def _uri(options: Mapping[str, str]) -> str:
    lowered = {key.lower(): value for key, value in options.items()}
    uri = lowered.get("path")
    if uri is None and "paths" in lowered:
        raise OptionError(
            f"one dataset at a time: found the paths {lowered['paths']}. "
            "Read each on its own and combine them with union"
        )
    if not uri:
        raise OptionError(
            "the lance source was given no path. Give one: load(path), save(path) or, in SQL, "
            "CREATE TEMPORARY VIEW v USING lance OPTIONS (path '...'). Spark hands no options of "
            "tables made with CREATE TABLE to the source; a temporary view serves instead"
        )
    if uri.startswith("memory://"):
        raise OptionError(
            f"{uri} is in the memory of one process, and Spark runs several. "
            "Take a directory or an object store"
        )
    # CREATE TABLE and the like turn /p into file:/p, which is no URI other tools know.
    if uri.startswith("file:/") and not uri.startswith("file://"):
        return uri.removeprefix("file:")
    return uri


def _count(name: str, text: str) -> int:
    digits = text.strip()
    if not (digits.isdecimal() and len(digits) < 20 and int(digits)):
        raise OptionError(f"option {name}: expected an integer above 0, found {text!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name}: expected true or false, found {text!r}")
    return text.strip().lower() == "true"


def _json(name: str, text: str) -> Any:
    """What a text says as JSON; the text may hold credentials, so no message shows it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers and nesting without end
        raise OptionError(f"option {name}: not JSON ({error})") from None


def _names(name: str, text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        names = _json(name, text)
        if not all(isinstance(part, str) for part in names):
            raise OptionError(f"option {name}: expected a list of names, found {text!r}")
    else:
        names = [part.strip() for part in text.split(",")]
    if not names or not all(names):
        raise OptionError(f"option {name}: expected names as in 'a,b', found {text!r}")
    return tuple(names)


def _columns(name: str, text: str) -> tuple[str, ...] | Mapping[str, str]:
    if not text.lstrip().startswith("{"):
        return _names(name, text)
    pairs = _json(name, text)
    if not pairs or not all(isinstance(pair, str) for pair in pairs.values()):
        raise OptionError(f"option {name}: expected names and expressions, found {text!r}")
    found: dict[str, str] = pairs
    return found


def _schema(name: str, text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowInvalid, OSError) as error:
        raise OptionError(
            f"option {name}: expected the base64 text of an Arrow IPC schema ({error}). "
            "glaive.spark.write(df, uri, arrow_schema=...) makes it from a pyarrow.Schema"
        ) from error


def _mappings(name: str, text: str) -> Mapping[str, Mapping[str, Any]]:
    given = _json(name, text)
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
        raise OptionError(f"option {name}: expected an object of objects, {JSON_OPTIONS[name]}")
    return given


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise OptionError(f"option {name}: expected a text, found {text!r}. Leave it out")
    return text.strip()


JSON_OPTIONS = {
    "base_store_params": 'such as {"s3://bucket/a": {"aws_region": "eu-west-1"}}',
    "columns": 'such as {"total": "price * amount"}',
    "encoding_options": 'such as {"column": {"compression": "zstd"}}',
}
"""Options whose text is JSON, and what it looks like."""

READERS: dict[str, Callable[[str, str], object]] = {
    "base_store_params": _mappings,
    "columns": _columns,
    "filter": _text,
    "push_filters": _flag,
    "with_row_id": _flag,
    "with_row_address": _flag,
    "version": _count,
    "branch": _text,
    "tag": _text,
    "asof": _text,
    "batch_size": _count,
    "split_bytes": _count,
    "parallelism": _count,
    "allow_truncation": _flag,
    "vector_columns": _names,
    "arrow_schema": _schema,
    "strict_nullability": _flag,
    "must_not_exist": _flag,
    "job": _text,
    "encoding_options": _mappings,
    "max_rows_per_file": _count,
    "max_bytes_per_file": _count,
    "data_storage_version": _text,
    "enable_stable_row_ids": _flag,
}
"""Every option and how its text is read."""

ALIASES = {"versionasof": "version", "timestampasof": "asof", "timestamp": "asof"}
"""What other sources call some of them."""
