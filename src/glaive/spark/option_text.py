"""The text of each option of ``format("lance")``, and what it is read as.

Spark passes all options as strings. Lists and mappings are JSON; lists of names may also be
separated by commas.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError
from glaive.io.storage_options import PERMISSIONS

__all__ = [
    "ALIASES",
    "BLOBS",
    "JSON_OPTIONS",
    "READERS",
    "STORAGE",
    "flag",
    "names_of",
    "positive",
    "text_of",
]


STORAGE = "storage."
"""Prefix of object store options: ``storage.aws_region``."""


def positive(name: str, text: str) -> int:
    """An integer above 0."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and int(digits)):
        raise OptionError(f"option {name}: expected an integer above 0, found {text!r}")
    return int(digits)


def _number(name: str, text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise OptionError(f"option {name}: expected an integer ≥ 0, found {text!r}")
    return int(digits)


def flag(name: str, text: str) -> bool:
    """True or false."""
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name}: expected true or false, found {text!r}")
    return text.strip().lower() == "true"


def _json(name: str, text: str) -> Any:
    """Parse JSON. It may hold credentials, so error messages do not show it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # includes huge numbers and deep nesting
        raise OptionError(f"option {name}: not JSON ({error})") from None


def names_of(name: str, text: str) -> tuple[str, ...]:
    """Names, separated by commas or as a JSON list."""
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
        return names_of(name, text)
    pairs = _json(name, text)
    if not pairs or not all(isinstance(pair, str) for pair in pairs.values()):
        raise OptionError(f"option {name}: expected names and expressions, found {text!r}")
    expressions: dict[str, str] = pairs
    return expressions


def _schema(name: str, text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowInvalid, OSError) as error:
        raise OptionError(
            f"option {name}: expected the base64 text of an Arrow IPC schema ({error}). "
            "glaive.spark.write(df, uri, arrow_schema=...) makes it from a pyarrow.Schema"
        ) from error


def _mappings(name: str, text: str) -> Mapping[str, Mapping[str, Any]]:
    value = _json(name, text)
    if not isinstance(value, dict) or not all(isinstance(part, dict) for part in value.values()):
        raise OptionError(f"option {name}: expected an object of objects, {JSON_OPTIONS[name]}")
    return value


def text_of(name: str, text: str) -> str:
    """A text that is not blank."""
    if not text.strip():
        raise OptionError(f"option {name}: expected a string, found {text!r}. Omit it")
    return text.strip()


def _object(name: str, text: str) -> Mapping[str, Any]:
    value = _json(name, text)
    if not isinstance(value, dict):
        raise OptionError(f"option {name}: expected a JSON object, {JSON_OPTIONS[name]}")
    return value


def _texts(name: str, text: str) -> Mapping[str, str]:
    value = _object(name, text)
    if not all(isinstance(part, str) for part in value.values()):
        raise OptionError(f"option {name}: expected an object of texts, {JSON_OPTIONS[name]}")
    return value


def _order(name: str, text: str) -> tuple[Any, ...]:
    """Names, or objects with the members of ``ColumnOrdering``."""
    from glaive.scan.run.compare import ColumnOrdering

    if not text.lstrip().startswith("["):
        return names_of(name, text)
    order = []
    for entry in _json(name, text):
        try:
            order.append(entry if isinstance(entry, str) else ColumnOrdering(**entry))
        except TypeError:
            raise OptionError(
                f"option {name}: expected names or objects, {JSON_OPTIONS[name]}, found {entry!r}"
            ) from None
    return tuple(order)


def _query(name: str, text: str) -> str | Mapping[str, Any]:
    return _object(name, text) if text.lstrip().startswith("{") else text_of(name, text)


def _blobs(name: str, text: str) -> str:
    if text not in BLOBS:
        raise OptionError(f"option {name}: expected {' or '.join(BLOBS)}, found {text!r}")
    return text


BLOBS = {"descriptor": "blobs_descriptions", "bytes": "all_binary"}
"""How blobs are read, and what scans call it."""

JSON_OPTIONS = {
    "base_store_params": 'such as {"s3://bucket/a": {"aws_region": "eu-west-1"}}',
    "columns": 'such as {"total": "price * amount"}',
    "column_types": 'such as {"column": {"lance:arrow_type": "fixed_size_list:float:128"}}',
    "decimals": 'such as {"price": "15,2"}',
    "encoding_options": 'such as {"column": {"compression": "zstd"}}',
    "full_text_query": 'such as {"query": "red shoes", "columns": ["title"]}',
    "nearest": 'such as {"column": "emb", "q": [0.1, 0.2], "k": 10}',
    "order_by": 'such as [{"column_name": "price", "ascending": false}]',
}
"""Options in JSON, with examples."""

READERS: dict[str, Callable[[str, str], object]] = {
    **dict.fromkeys(PERMISSIONS, text_of),
    "columns": _columns,
    "filter": text_of,
    "push_filters": flag,
    "limit": positive,
    "order_by": _order,
    "nearest": _object,
    "full_text_query": _query,
    "blobs": _blobs,
    "with_row_id": flag,
    "with_row_address": flag,
    "version": positive,
    "branch": text_of,
    "tag": text_of,
    "asof": text_of,
    "batch_size": positive,
    "split_bytes": positive,
    "parallelism": positive,
    "allow_truncation": flag,
    "vector_columns": names_of,
    "blob_columns": names_of,
    "column_types": _mappings,
    "decimals": _texts,
    "expected_version": positive,
    "overwrite_schema": flag,
    "merge_schema": flag,
    "replace_where": text_of,
    "txn_app_id": text_of,
    "txn_version": _number,
    "arrow_schema": _schema,
    "strict_nullability": flag,
    "must_not_exist": flag,
    "case_sensitive": flag,
    "job": text_of,
    "job_id": text_of,
    "encoding_options": _mappings,
    "max_rows_per_file": positive,
    "max_bytes_per_file": positive,
    "data_storage_version": text_of,
    "enable_stable_row_ids": flag,
}
"""The parser of each option."""

ALIASES = {
    "versionasof": "version",
    "timestampasof": "asof",
    "timestamp": "asof",
    "mergeschema": "merge_schema",
    "overwriteschema": "overwrite_schema",
    "replacewhere": "replace_where",
    "txnappid": "txn_app_id",
    "txnversion": "txn_version",
}
"""Names that other sources use for some options."""
