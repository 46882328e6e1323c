"""``RestNamespace``: a client of catalogues with the REST form of the interface."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import lance_namespace as interface

from glaive.errors import GlaiveError
from glaive.io.location import Location
from glaive.io.storage_options import HTTP_OPTIONS, RETRY_OPTIONS, full_names
from glaive.namespace.errors import (
    InternalError,
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    as_namespace_errors,
)
from glaive.namespace.folders import DELIMITER, id_of, index_name_of, value
from glaive.namespace.operations import (
    ARROW_STREAM,
    JSON,
    OPERATIONS,
    CallCounts,
    Operation,
    answer_of,
    clean,
    count_calls,
    error_from,
    fields_of,
    secrets_in,
)
from glaive.options import number

# --- The source of headers for each request, such as tokens that change ------------------

_PREFIX = "dynamic_context_provider."


class ContextProvider(ABC):
    """Base class of objects that supply headers; pylance's ``DynamicContextProvider``."""

    @abstractmethod
    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        """Return entries for a request, such as ``{"headers.Authorization": "Bearer …"}``.

        ``info`` has ``operation``, the method, and ``object_id``.
        """


def provider_of(properties: Mapping[str, str]) -> Any:
    """Return the provider whose class is in the properties, or ``None``.

    Raises
    ------
    InvalidInputError
        The class is missing.
    """
    name = properties.get(f"{_PREFIX}impl")
    if not name:
        return None
    module, _, attribute = name.rpartition(".")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"{_PREFIX}impl: expected module.Class, found {name!r:.100}: {error}"
        ) from None
    options = {
        key.removeprefix(_PREFIX): text
        for key, text in properties.items()
        if key.startswith(_PREFIX) and key != f"{_PREFIX}impl"
    }
    return kind(**options)


# --- Locations and storage options from a catalogue on another machine: which are used ---
# That server is untrusted. It could choose options that specify files of this machine, or where to
# send its credentials, and so obtain them. It could make glaive read or write a location on this
# machine.

_ENDPOINTS: Final[Mapping[str, tuple[str, tuple[tuple[str, ...], ...]]]] = {
    "s3": (
        "aws_endpoint",
        (("aws_access_key_id", "aws_secret_access_key"), ("aws_skip_signature",)),
    ),
    "gs": ("google_base_url", (("google_bearer_token",), ("google_skip_signature",))),
    "az": ("azure_endpoint", (("azure_storage_token",), ("azure_skip_signature",))),
}
"""By scheme: the option with a store's address, and sets of options. One complete set keeps this
machine's credentials away from the address. The environment takes precedence over other options."""

_SENT_KEYS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "aws_endpoint": (("AWS_SSE_CUSTOMER_KEY_BASE64",), "aws_sse_customer_key_base64"),
    "azure_endpoint": (
        (
            "AZURE_FABRIC_CLUSTER_IDENTIFIER",
            "AZURE_FABRIC_SESSION_TOKEN",
            "AZURE_FABRIC_TOKEN_SERVICE_URL",
            "AZURE_FABRIC_WORKLOAD_HOST",
        ),
        "azure_skip_signature",
    ),
}
"""By address option: variables whose keys are sent there, and the option that prevents it."""

_IN_HOSTS: Final = frozenset({"aws_region", "aws_default_region", "azure_storage_account_name"})
"""Options that become a part of a host name."""

_OTHER_NAMES: Final = (
    "aws_checksum_algorithm aws_conditional_put aws_copy_if_not_exists aws_disable_bulk_delete "
    "aws_disable_tagging aws_request_payer aws_s3_express aws_server_side_encryption "
    "aws_session_token aws_sse_bucket_key_enabled aws_sse_customer_key_base64 aws_sse_kms_key_id "
    "aws_unsigned_payload aws_virtual_hosted_style_request azure_client_id azure_client_secret "
    "azure_disable_tagging azure_storage_account_key azure_storage_sas_key azure_tenant_id "
    "azure_use_fabric_endpoint checksums expires_at_millis fsync google_service_account_key "
    "refresh_offset_millis verify_checksums"
)
_ACCESS_OPTIONS: Final = frozenset(
    {
        *HTTP_OPTIONS,
        *RETRY_OPTIONS,
        *(endpoint for endpoint, _ in _ENDPOINTS.values()),
        *(name for _, sets in _ENDPOINTS.values() for names in sets for name in names),
        *_IN_HOSTS,
        *_OTHER_NAMES.split(),
    }
)
"""Options that only say how a store is reached, and with which credentials."""


def is_local_address(address: str) -> bool:
    """Return whether an IP address is of this machine or link-local."""
    host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    try:
        found = ip_address(host if ":" in host else socket.inet_aton(host))
    except (OSError, ValueError):  # a name
        return host == "localhost" or host.endswith(".localhost")
    return found.is_loopback or found.is_link_local or found.is_unspecified


def refusal_of_location(location: str) -> str | None:
    """Return why a location is refused; ``None`` if it is safe.

    Raises
    ------
    OptionError
        The location is invalid.
    """
    place = Location.parse(location)
    if place.is_local or place.scheme == "memory":
        return f"{location!r:.200}, a place on this machine"
    if place.is_http and is_local_address(place.authority):
        return f"{location!r:.200}, a server on this machine or its link"
    return f"{location!r:.200}, which fsspec would open" if place.is_fsspec else None


def refusal_of_options(options: Mapping[str, object], location: str) -> str | None:
    """Return why storage options are refused; omit their values. ``None`` if they are safe.

    An option may be given under several names, and a store takes one of them: all are checked.
    """
    given: dict[str, list[str]] = {}
    for key in options:
        for name in full_names(key):
            given.setdefault(name, []).append(str(options[key]))
    if any("gcs_base_url" in text for text in given.get("google_service_account_key", ())):
        given.setdefault("google_base_url", [])
    for name in sorted(given):
        if name not in _ACCESS_OPTIONS:
            return f"the storage option {name!r}, which makes use of this machine"
        if name in _IN_HOSTS and not all(re.fullmatch(r"[\w.-]*", text) for text in given[name]):
            return f"the storage option {name!r} with characters that end the name of a host"
    endpoint, sets = _ENDPOINTS.get(Location.parse(location).scheme, ("", ()))
    if endpoint in given and not any(_has(given, names) for names in sets):
        wanted = ", or ".join(" and ".join(names) for names in sets)
        return (
            f"the storage option {endpoint!r} without {wanted}: credentials of this machine would "
            "be sent there"
        )
    variables, instead = _SENT_KEYS.get(endpoint, ((), ""))
    is_set = bool(variables) and all(map(os.environ.get, variables))
    if endpoint in given and is_set and not _has(given, (instead,)):
        return f"the storage option {endpoint!r}: this machine's {variables[0]} would be sent there"
    return None


def _has(given: Mapping[str, Sequence[str]], names: tuple[str, ...]) -> bool:
    """Return whether all of these options are given, by any name; a switch must be on."""
    return all(
        text and (not name.endswith("_skip_signature") or text.lower() in ("true", "1"))
        for name in names
        for text in given.get(name, [""])
    )


_HEADERS = "headers."
_PREFIXES = (_HEADERS, "header.")
_MAX_JSON_BYTES = 64 << 20
_MAX_ARROW_BYTES = 4 << 30
_READ_BYTES = 1 << 18

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LOCATION_KEYS = ("id", "context", "identity")
_KNOWN = (
    "uri",
    "allow_local_locations",
    "delimiter",
    "timeout",
    "ops_metrics_enabled",
    "tls.cert_file",
    "tls.key_file",
    "tls.ssl_ca_file",
    "tls.assert_hostname",
)


class RestNamespace(CallCounts, interface.LanceNamespace):
    """Client of a catalogue over HTTP, with the methods of the interface.

    Parameters
    ----------
    context_provider
        Object with ``provide_context(info)``, which is called before each request and returns
        headers: entries ``headers.NAME``. ``info`` has ``operation`` and ``object_id``.
    **properties
        Strings: ``uri`` (``http`` or ``https``; required), ``delimiter`` between names (``$``),
        ``headers.NAME`` or ``header.NAME`` sent with each request, ``timeout`` in seconds (60) for
        the next bytes, ``tls.cert_file``, ``tls.key_file``, ``tls.ssl_ca_file`` and
        ``tls.assert_hostname``. ``allow_local_locations`` allows a server elsewhere to specify
        locations on this machine, and storage options that use its files or send its credentials
        elsewhere.

    Raises
    ------
    InvalidInputError
        A property is missing, unknown or has an invalid value.

    Notes
    -----
    Each call is one request on a new connection. Redirects, and answers beyond 64 MiB (4 GiB of
    query results), are refused. Picklable if the provider is.
    """

    def __init__(
        self, context_provider: ContextProvider | None = None, **properties: object
    ) -> None:
        texts = {str(key): str(text) for key, text in properties.items()}
        self._properties = dict(properties)
        self._start_counting(properties)
        self._given_provider = context_provider
        self._provider = context_provider or provider_of(texts)
        _check(texts)
        parts = urlsplit(texts["uri"].rstrip("/"))
        self._secure = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self.uri = GlaiveError.without_secrets(texts["uri"].rstrip("/"))
        self.delimiter = texts.get("delimiter", DELIMITER)
        with as_namespace_errors("REST catalogue"):
            self._timeout = number(1e-3, 86_400).parse("timeout", texts.get("timeout", "60"))
        self._tls = {name: text for name, text in texts.items() if name.startswith("tls.")}
        self._headers = _headers_in(texts)
        self._local = texts.get("allow_local_locations", "false").lower() == "true"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made, (self._given_provider, self._properties))

    @property
    def properties(self) -> Mapping[str, object] | None:
        """Properties that make an equal client; ``None`` with a ``context_provider``."""
        return self._properties if self._given_provider is None else None

    def __repr__(self) -> str:
        return f"RestNamespace({self.namespace_id()})"

    def namespace_id(self) -> str:
        """Return the identity of this namespace: its address."""
        return f'RestNamespace {{ endpoint: "{self.uri}", delimiter: "{self.delimiter}" }}'

    def _call(self, method: str, request: object, data: bytes | None) -> Any:
        operation = OPERATIONS[method]
        location = self._location(operation, request)
        body, kind = self._body(operation, request, data)
        where = f"{operation.verb} {self.uri}/v1/{operation.path} ({method})"
        own = self._headers_of(method, request)
        secrets = secrets_in(own, request)
        headers = {"Accept": "*/*", "Content-Type": kind, **own}
        limit = _MAX_ARROW_BYTES if operation.answer == "arrow" else _MAX_JSON_BYTES
        try:
            status, answer = self._exchange(operation.verb, location, body, headers, limit)
        # A `ValueError` is a chunk with an invalid size.
        except (OSError, http.client.HTTPException, ValueError) as error:
            # An invalid answer may contain credentials: a cause would show them.
            raise ServiceUnavailableError(
                f"{where}: no answer ({type(error).__name__}: "
                f"{clean(str(error).strip(), 200, secrets)}). Check the address and whether the "
                "server runs"
            ) from (error if isinstance(error, OSError) else None)
        if len(answer) > limit:
            raise InternalError(
                f"{where}: the answer is longer than {limit} bytes. Ask for less: a limit, fewer "
                "columns, or read the table by its location"
            )
        if not 200 <= status < 300:
            raise error_from(status, answer, where, secrets)
        found = answer_of(operation, method, answer, where, secrets)
        self._check_vended(found, where, secrets)
        asks_for_mapping = isinstance(request, dict) and method in _MAPPINGS
        return found.to_dict() if asks_for_mapping else found

    def _check_vended(self, answer: object, where: str, secrets: Sequence[str]) -> None:
        """Refuse locations and storage options that are unsafe if another machine chooses them."""
        if self._host in _LOOPBACK or self._local:
            return
        location, options = (
            getattr(answer, name, None) for name in ("location", "storage_options")
        )
        if not isinstance(location, str):
            return
        reason = refusal_of_location(location)
        if reason is None and isinstance(options, Mapping):
            reason = refusal_of_options(options, location)
        if reason is not None:
            raise PermissionDeniedError(
                f"{where}: the server names {clean(reason, 500, secrets)}. If it is trusted with "
                "that, set the property allow_local_locations=true"
            )

    def _location(self, operation: Operation, request: object) -> str:
        try:
            return self._path_of(operation, request)
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{operation.path}: half of a surrogate pair, which no address has, in "
                f"{error.object!r:.80}"
            ) from None

    def _path_of(self, operation: Operation, request: object) -> str:
        path = operation.path
        if "{id}" in path:
            names = id_of(request)
            for name in names:
                if self.delimiter in name or not name:
                    raise InvalidInputError(
                        f"id: the name {name!r:.80} is empty or has the delimiter "
                        f"{self.delimiter!r}. Give another one with the property 'delimiter'"
                    )
            text = self.delimiter.join(names) if names else self.delimiter
            path = path.replace("{id}", quote(text, safe=""))
        if "{index_name}" in path:
            path = path.replace("{index_name}", quote(index_name_of(request), safe=""))
        asked = {"delimiter": self.delimiter}
        for name in operation.query:
            given = value(request, name)
            if given is not None:
                asked[name] = _parameter(given)
        return f"{self._path}/v1/{path}?{urlencode(asked)}"

    @staticmethod
    def _body(operation: Operation, request: object, data: bytes | None) -> tuple[bytes, str]:
        if operation.body == "arrow":
            if data is None:
                raise InvalidInputError("request_data: expected an Arrow IPC stream, found None")
            return data, ARROW_STREAM
        if operation.body == "none":
            return b"", JSON
        fields = fields_of(request)
        if operation.body == "metadata":
            fields = dict(fields.get("metadata") or {})
        else:
            fields = {key: field for key, field in fields.items() if key not in _LOCATION_KEYS}
        return json.dumps(fields).encode(), JSON

    def _headers_of(self, method: str, request: object) -> dict[str, str]:
        headers: dict[str, Any] = dict(self._headers)
        reported: Mapping[str, Any] = value(request, "context", {})
        if self._provider is not None:
            names = value(request, "id", [])
            info = {"operation": method, "object_id": self.delimiter.join(names)}
            reported = {**reported, **self._provider.provide_context(info)}
        headers |= _headers_in(reported)
        for key, text in headers.items():
            if not isinstance(text, str):  # what a provider gave
                kind = type(text).__name__
                raise InvalidInputError(f"header {key!r:.60}: expected a string, found {kind}")
            if any(mark in f"{key}{text}" for mark in "\r\n\0"):
                raise InvalidInputError(f"header {key!r:.60}: line breaks are not possible")
            if not key.isascii() or max(text, default="") > "\xff":
                raise InvalidInputError(f"header {key!r:.60}: it has characters that no header has")
        return headers

    def _exchange(
        self, verb: str, location: str, body: bytes, headers: Mapping[str, str], limit: int
    ) -> tuple[int, bytes]:
        """Return status and answer; an answer above the limit has one byte more than it."""
        connection = self._connection()
        try:
            connection.request(verb, location, body=body, headers=dict(headers))
            response = connection.getresponse()
            answer = _read(response, limit + 1)
        finally:
            connection.close()
        return response.status, answer

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            context = ssl.create_default_context(cafile=self._tls.get("tls.ssl_ca_file"))
            if "tls.cert_file" in self._tls:
                context.load_cert_chain(self._tls["tls.cert_file"], self._tls.get("tls.key_file"))
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"tls: {error}. Check the files of the tls.* properties"
            ) from None
        context.check_hostname = self._tls.get("tls.assert_hostname", "true").lower() != "false"
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=context
        )


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """Return the answer, or its first ``max_bytes`` bytes.

    Read it piece by piece: a larger read would read a chunk of the size -1 to its end.
    """
    answer = bytearray()
    while len(answer) < max_bytes:
        piece = response.read1(min(_READ_BYTES, max_bytes - len(answer)))
        answer += piece
        if not piece:
            if response.length:
                raise http.client.IncompleteRead(bytes(answer), response.length)
            break
    return bytes(answer)


_MAPPINGS = ("create_table_version", "describe_table_version", "batch_delete_table_versions")
"""Methods that pylance calls with mappings, and expects mappings from."""


def _method(name: str, operation: Operation) -> Callable[..., Any]:
    declared = getattr(interface.LanceNamespace, name)

    if operation.body == "arrow":

        @wraps(declared)
        def send(self: RestNamespace, request: Any, request_data: bytes) -> Any:
            return self._call(name, request, request_data)  # of its class

        return send

    @wraps(declared)
    def ask(self: RestNamespace, request: Any) -> Any:
        return self._call(name, request, None)  # of its class

    return ask


for _name, _operation in OPERATIONS.items():
    setattr(RestNamespace, _name, _method(_name, _operation))


count_calls(RestNamespace)


def _made(provider: ContextProvider | None, properties: Mapping[str, object]) -> RestNamespace:
    return RestNamespace(provider, **properties)


def _check(texts: Mapping[str, str]) -> None:
    try:
        parts = urlsplit(texts.get("uri", ""))
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and parts.port != -1  # access to the port may raise an error
        is_address = is_address and not re.search(r"[\0-\x20\x7f]", parts.hostname or "")
        (parts.hostname or "").encode("idna")  # an error if a name between dots is too long
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidInputError(
            f"uri: a REST catalogue needs an address such as http://127.0.0.1:2333, found "
            f"{texts.get('uri', '')!r:.200}"
        )
    if not texts.get("delimiter", DELIMITER):
        raise InvalidInputError("delimiter: expected a character, found an empty text")
    prefixes = (*_PREFIXES, "dynamic_context_provider.")
    for name in texts:
        if name not in _KNOWN and not name.startswith(prefixes):
            raise InvalidInputError(
                f"unknown property {name!r} of a REST catalogue. Known: {', '.join(_KNOWN)}, and "
                f"{_HEADERS}*"
            )


def _headers_in(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {key.partition(".")[2]: text for key, text in texts.items() if key.startswith(_PREFIXES)}


def _parameter(given: object) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Mapping):
        return json.dumps(dict(given))
    if isinstance(given, list):
        return ",".join(map(str, given))
    return str(given)
