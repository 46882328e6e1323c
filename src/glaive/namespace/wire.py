"""Requests and answers of the REST form as bytes: written, and read without trust."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import lance_namespace as interface

from glaive.io.failures import credentials_in, without_named_secrets, without_values
from glaive.namespace.errors import InternalError, InvalidInputError, NamespaceError, error_of
from glaive.namespace.identifiers import value
from glaive.namespace.operations import Operation

__all__ = [
    "ARROW_FILE",
    "ARROW_STREAM",
    "JSON",
    "answer_of",
    "error_from",
    "fields_of",
    "json_of",
    "said",
    "secrets_in",
    "why_invalid",
]

JSON = "application/json"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"


def fields_of(request: object) -> dict[str, Any]:
    """The fields of a request that have a value, under their names on the wire."""
    given = request if isinstance(request, Mapping) else request.to_dict()  # type: ignore[attr-defined]  # models of the interface
    return {key: field for key, field in given.items() if field is not None}


_MOST_VALUES = 1 << 21
"""Values of JSON at most: three bytes of a value take some hundred while it is looked at."""


def json_of(data: bytes, what: str, secrets: Sequence[str] = ()) -> Any:
    """JSON that someone else has sent; ``what`` names it in the error, without ``secrets``.

    Raises
    ------
    InvalidInputError
        It is none, or has too many values.
    """
    if data.count(b",") > _MOST_VALUES:
        raise InvalidInputError(f"{what}: JSON of more than {_MOST_VALUES} values is not read")
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{what}: expected JSON, found {_shown(data, 80, secrets)}: {error}"
        ) from None


_LONGEST = 1 << 16
"""Bytes of an answer in which credentials are looked for: messages show fewer."""

_OPTIONS = b"storage_options"
"""The field of an answer with credentials, of any form: keys, URLs with a signature, JSON."""

_LONGEST_ERROR = 1 << 20
"""Bytes of an answer that reports an error, as JSON."""


_OF_PARTS = ("authorization", "proxy-authorization", "cookie")
"""Headers of several credentials, which servers repeat one by one."""


def secrets_in(headers: Mapping[str, str], request: object = None) -> list[str]:
    """Credentials in headers of a request: servers repeat them, above all those they refuse.

    Also by parts: what the text of ``Basic`` stands for, cookies, and what has a name in
    ``Authorization``; and those among the storage options that the request has.
    """
    found = [*headers.values()]
    for name, text in headers.items():
        kind, _, word = text.rpartition(" ")
        found.append(word)
        if name.lower() in _OF_PARTS:
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
    """The response that the bytes of an answer are; errors show it without ``secrets``.

    Raises
    ------
    InternalError
        They are not what the interface has for the method.
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
            raise InternalError(f"answer of {where}: expected a text, found {start}")
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
            f"{said(why_invalid(error).partition(chr(10))[0], 200, secrets)}"
        ) from None


def error_from(status: int, data: bytes, where: str, secrets: Sequence[str] = ()) -> NamespaceError:
    """The error that an answer with a status above 299 reports, without ``secrets``."""
    try:
        reported = json.loads(data) if len(data) <= _LONGEST_ERROR else None
    except (ValueError, RecursionError):
        reported = None
    if isinstance(reported, dict) and isinstance(reported.get("code"), int):
        texts = [str(reported[key]) for key in ("error", "detail") if reported.get(key)]
        parts = [said(text, 1000, secrets) for text in texts]
        return error_of(reported["code"], f"{where}: {': '.join(parts) or f'HTTP status {status}'}")
    code = {400: 13, 401: 16, 403: 15, 404: 0, 409: 14, 429: 21, 501: 0, 503: 17}.get(status, 18)
    if 300 <= status < 400:
        return InternalError(
            f"{where}: the server redirects (HTTP status {status}), which is not followed because "
            "credentials would go elsewhere. Give the final address as uri"
        )
    return error_of(code, f"{where}: HTTP status {status}: {_shown(data, 200, secrets)}")


def why_invalid(error: Exception) -> str:
    """What is wrong with the fields of a model; their number if there are many."""
    count = getattr(error, "error_count", int)()
    return f"{count} values are not valid" if count > 10 else str(error)


def said(text: str, most: int, secrets: Sequence[str] = ()) -> str:
    """The start of what a server said, without credentials and what a terminal obeys."""
    shown = without_named_secrets(without_values(text[:_LONGEST], secrets))[:most]
    return "".join(
        mark if mark.isprintable() or mark == "\n" else ascii(mark)[1:-1] for mark in shown
    )


def _shown(data: bytes, most: int, secrets: Sequence[str] = ()) -> str:
    """The start of an answer, without credentials; nothing of one that gives some."""
    if _OPTIONS in data:
        return f"{len(data)} bytes with storage options"
    answer = without_values(data[:_LONGEST].decode(errors="surrogateescape"), secrets)
    return without_named_secrets(repr(answer.encode(errors="surrogateescape")))[:most]
