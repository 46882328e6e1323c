"""The operations of the interface, and their names in its REST form.

The client, the server and :class:`DirectoryNamespace` share this table.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Final, Literal, TypeVar

import lance_namespace as interface

from glaive.dataclass import dataclass
from glaive.io.failures import credentials_in, without_named_secrets, without_values
from glaive.namespace.errors import InternalError, InvalidInputError, NamespaceError, error_of
from glaive.namespace.folders import value

Body = Literal["json", "arrow", "metadata", "none"]
Answer = Literal["json", "count", "text", "arrow", "metadata", "nothing"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the interface.

    Parameters
    ----------
    path
        Path below ``/v1``; ``{id}`` and ``{index_name}`` are fields of the request.
    verb
        ``POST``, or ``GET`` for listings.
    query
        Fields of the request that are parameters of the URL.
    body
        Content of the request: the request as JSON, Arrow data, a JSON object of metadata, or
        empty.
    answer
        Content of the response: the response as JSON, a number, a string, Arrow data, a JSON object
        of metadata, or empty.
    request, response
        Names of classes of the interface, which ``Request`` and ``Response`` complete. Default:
        the name of the method.
    """

    path: str
    verb: Literal["GET", "POST"] = "POST"
    query: tuple[str, ...] = ()
    body: Body = "json"
    answer: Answer = "json"
    request: str = ""
    response: str = ""

    def classes(self, method: str) -> tuple[str, str]:
        """Return the names of the classes of the operation's request and response."""
        name = "".join(word.capitalize() for word in method.split("_"))
        return f"{self.request or name}Request", f"{self.response or self.request or name}Response"


_PAGE = ("page_token", "limit")
_MERGE = (
    "branch",
    "on",
    "when_matched_update_all",
    "when_matched_update_all_filt",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_delete",
    "when_not_matched_by_source_delete_filt",
    "timeout",
    "use_index",
)


def _listing(path: str, *more: str) -> Operation:
    return Operation(path, "GET", (*_PAGE, *more), "none")


OPERATIONS: Final[dict[str, Operation]] = {
    # namespaces
    "list_namespaces": _listing("namespace/{id}/list"),
    "describe_namespace": Operation("namespace/{id}/describe"),
    "create_namespace": Operation("namespace/{id}/create"),
    "drop_namespace": Operation("namespace/{id}/drop"),
    "namespace_exists": Operation("namespace/{id}/exists", answer="nothing"),
    # tables
    "list_tables": _listing("namespace/{id}/table/list", "include_declared"),
    "list_all_tables": Operation(
        "table", "GET", (*_PAGE, "include_declared"), "none", request="ListTables"
    ),
    "describe_table": Operation(
        "table/{id}/describe", query=("with_table_uri", "load_detailed_metadata", "check_declared")
    ),
    "table_exists": Operation("table/{id}/exists", answer="nothing"),
    "declare_table": Operation("table/{id}/declare"),
    "create_table": Operation(
        "table/{id}/create", query=("mode", "properties", "storage_options"), body="arrow"
    ),
    "register_table": Operation("table/{id}/register"),
    "deregister_table": Operation("table/{id}/deregister"),
    "drop_table": Operation("table/{id}/drop", body="none"),
    "rename_table": Operation("table/{id}/rename"),
    "restore_table": Operation("table/{id}/restore"),
    # rows
    "count_table_rows": Operation("table/{id}/count_rows", answer="count"),
    "insert_into_table": Operation("table/{id}/insert", query=("branch", "mode"), body="arrow"),
    "merge_insert_into_table": Operation("table/{id}/merge_insert", query=_MERGE, body="arrow"),
    "update_table": Operation("table/{id}/update"),
    "delete_from_table": Operation("table/{id}/delete"),
    "query_table": Operation("table/{id}/query", answer="arrow"),
    "explain_table_query_plan": Operation("table/{id}/explain_plan", answer="text"),
    "analyze_table_query_plan": Operation("table/{id}/analyze_plan", answer="text"),
    # columns and metadata
    "alter_table_add_columns": Operation("table/{id}/add_columns"),
    "alter_table_alter_columns": Operation("table/{id}/alter_columns"),
    "alter_table_drop_columns": Operation("table/{id}/drop_columns"),
    "alter_table_backfill_columns": Operation("table/{id}/backfill_column"),
    "update_table_schema_metadata": Operation(
        "table/{id}/schema_metadata/update", query=("branch",), body="metadata", answer="metadata"
    ),
    "update_field_metadata": Operation("table/{id}/update_field_metadata"),
    "get_table_stats": Operation("table/{id}/stats"),
    # indices
    "create_table_index": Operation("table/{id}/create_index"),
    "create_table_scalar_index": Operation(
        "table/{id}/create_scalar_index",
        request="CreateTableIndex",
        response="CreateTableScalarIndex",
    ),
    "list_table_indices": Operation("table/{id}/index/list"),
    "describe_table_index_stats": Operation("table/{id}/index/{index_name}/stats"),
    "drop_table_index": Operation(
        "table/{id}/index/{index_name}/drop", query=("branch",), body="none"
    ),
    # tags and branches
    "list_table_tags": Operation("table/{id}/tags/list", query=_PAGE, body="none"),
    "get_table_tag_version": Operation("table/{id}/tags/version"),
    "create_table_tag": Operation("table/{id}/tags/create"),
    "update_table_tag": Operation("table/{id}/tags/update"),
    "delete_table_tag": Operation("table/{id}/tags/delete"),
    "list_table_branches": Operation("table/{id}/branches/list", query=_PAGE, body="none"),
    "create_table_branch": Operation("table/{id}/branches/create"),
    "delete_table_branch": Operation("table/{id}/branches/delete"),
    # versions and transactions
    "list_table_versions": Operation(
        "table/{id}/version/list", query=("branch", *_PAGE, "descending"), body="none"
    ),
    "create_table_version": Operation("table/{id}/version/create"),
    "describe_table_version": Operation("table/{id}/version/describe"),
    "batch_delete_table_versions": Operation("table/{id}/version/delete"),
    "batch_create_table_versions": Operation("table/version/batch-create"),
    "batch_commit_tables": Operation("table/batch-commit"),
    "describe_transaction": Operation("transaction/{id}/describe"),
    "alter_transaction": Operation("transaction/{id}/alter"),
    # materialised views
    "create_materialized_view": Operation("materialized_view/{id}/create"),
    "refresh_materialized_view": Operation("materialized_view/{id}/refresh"),
}
"""Operations by name of the method."""


# --- Count calls of each method of a catalogue, for users who want to save requests ------

C = TypeVar("C", bound=type)


class CallCounts:
    """Base class of catalogues that count calls if ``ops_metrics_enabled`` is ``"true"``."""

    _calls: Counter[str] | None = None

    def _start_counting(self, properties: Mapping[str, object]) -> None:
        if str(properties.get("ops_metrics_enabled", "false")).lower() == "true":
            self._calls = Counter()

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return calls by name of the method; empty unless ``ops_metrics_enabled``."""
        return dict(self._calls or {})

    def reset_ops_metrics(self) -> None:
        """Count from 0 again."""
        if self._calls is not None:
            self._calls.clear()


def count_calls(catalogue: C) -> C:
    """Make a class count the calls of all operations; a class decorator."""
    for name in OPERATIONS:
        setattr(catalogue, name, _counted(name, getattr(catalogue, name)))
    return catalogue


def _counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: CallCounts, *arguments: Any, **named: Any) -> Any:
        calls = self._calls  # of its class
        if calls is not None:
            calls[name] += 1
        return method(self, *arguments, **named)

    return call


# --- Requests and answers of the REST form as bytes; answers are untrusted ---------------

JSON = "application/json"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"


def fields_of(request: object) -> dict[str, Any]:
    """Return the fields of a request that have a value, under their names on the wire."""
    given = request if isinstance(request, Mapping) else request.to_dict()  # type: ignore[attr-defined]  # models of the interface
    return {key: field for key, field in given.items() if field is not None}


_MAX_JSON_VALUES = 1 << 21
"""Most values of JSON: parsing takes some hundred bytes for a value of three bytes."""


def json_of(data: bytes, what: str, secrets: Sequence[str] = ()) -> Any:
    """Parse untrusted JSON; errors name it ``what``, and omit ``secrets``.

    Raises
    ------
    InvalidInputError
        The data is invalid JSON, or has too many values.
    """
    if data.count(b",") > _MAX_JSON_VALUES:
        raise InvalidInputError(f"{what}: JSON of more than {_MAX_JSON_VALUES} values is not read")
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{what}: expected JSON, found {_shown(data, 80, secrets)}: {error}"
        ) from None


_SEARCHED_BYTES = 1 << 16
"""Bytes of an answer to search for credentials: messages show fewer."""

_OPTIONS = b"storage_options"
"""Field of an answer with credentials of any form: keys, signed URLs, JSON."""

_MAX_ERROR_BYTES = 1 << 20
"""Most bytes of an answer that reports an error as JSON."""


_MULTIPLE = ("authorization", "proxy-authorization", "cookie")
"""Headers with several credentials, which servers repeat one by one."""


def secrets_in(headers: Mapping[str, str], request: object = None) -> list[str]:
    """Return the credentials in a request, because servers repeat them when they refuse them.

    These are the headers and their parts: the decoded value of ``Basic``, cookies, and named
    values of ``Authorization``. The request's storage options may contain more.
    """
    found = [*headers.values()]
    for name, text in headers.items():
        kind, _, word = text.rpartition(" ")
        found.append(word)
        if name.lower() in _MULTIPLE:
            parts = (part.partition("=")[2] for part in re.split(r"[;,\s]+", text))
            found += [part.strip('"') for part in parts]
        if kind.lower() == "basic":
            with suppress(ValueError):
                user_and_password = b64decode(word).decode()
                found += [user_and_password, user_and_password.partition(":")[2]]
    options = value(request, "storage_options", {})
    if isinstance(options, Mapping):
        found += credentials_in({str(name): str(options[name]) for name in options})
    return found


def answer_of(
    operation: Operation, method: str, data: bytes, where: str, secrets: Sequence[str] = ()
) -> Any:
    """Parse the bytes of an answer as a response; errors omit ``secrets``.

    Raises
    ------
    InternalError
        The bytes contradict the method's response in the interface.
    """
    kind = getattr(interface, operation.classes(method)[1], None)
    if operation.answer == "nothing":
        return kind() if kind else None
    if operation.answer == "arrow":
        return kind(data=data) if kind else data
    try:
        found = json_of(data, f"answer of {where}", secrets)
    except InvalidInputError as error:
        raise InternalError(str(error)) from None
    start = _shown(data, 80, secrets)
    if operation.answer == "text":
        if not isinstance(found, str):
            raise InternalError(f"answer of {where}: expected a string, found {start}")
        return found
    if operation.answer == "count" and isinstance(found, int):
        found = {"count": found}
    if operation.answer == "metadata":
        found = {"metadata": found}
    if not isinstance(found, dict) or kind is None:
        raise InternalError(f"answer of {where}: expected a JSON object, found {start}")
    try:
        return kind.from_dict(found)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InternalError(
            f"answer of {where}: expected a {kind.__name__}, found {_shown(data, 200, secrets)}: "
            f"{clean(why_invalid(error).partition(chr(10))[0], 200, secrets)}"
        ) from None


def error_from(status: int, data: bytes, where: str, secrets: Sequence[str] = ()) -> NamespaceError:
    """Make the error that an answer with a status above 299 reports; omit ``secrets``."""
    try:
        reported = json.loads(data) if len(data) <= _MAX_ERROR_BYTES else None
    except (ValueError, RecursionError):
        reported = None
    if isinstance(reported, dict) and isinstance(reported.get("code"), int):
        texts = [str(reported[key]) for key in ("error", "detail") if reported.get(key)]
        parts = [clean(text, 1000, secrets) for text in texts]
        return error_of(reported["code"], f"{where}: {': '.join(parts) or f'HTTP status {status}'}")
    code = {400: 13, 401: 16, 403: 15, 404: 0, 409: 14, 429: 21, 501: 0, 503: 17}.get(status, 18)
    if 300 <= status < 400:
        return InternalError(
            f"{where}: the server redirects (HTTP status {status}), which is not followed because "
            "credentials would go elsewhere. Give the final address as uri"
        )
    return error_of(code, f"{where}: HTTP status {status}: {_shown(data, 200, secrets)}")


def why_invalid(error: Exception) -> str:
    """Return what is wrong with the fields of a model; only their number if many are wrong."""
    count = getattr(error, "error_count", int)()
    return f"{count} values are not valid" if count > 10 else str(error)


def clean(text: str, limit: int, secrets: Sequence[str] = ()) -> str:
    """Return the start of a server's message; omit credentials, escape terminal controls."""
    shown = without_named_secrets(without_values(text[:_SEARCHED_BYTES], secrets))[:limit]
    return "".join(
        mark if mark.isprintable() or mark == "\n" else ascii(mark)[1:-1] for mark in shown
    )


def _shown(data: bytes, limit: int, secrets: Sequence[str] = ()) -> str:
    """Return the start of an answer; omit credentials. Empty if it has storage options."""
    if _OPTIONS in data:
        return f"{len(data)} bytes with storage options"
    answer = without_values(data[:_SEARCHED_BYTES].decode(errors="surrogateescape"), secrets)
    return without_named_secrets(repr(answer.encode(errors="surrogateescape")))[:limit]
