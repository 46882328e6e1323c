"""A small server of the REST form over any catalogue, for tests and experiments.

It lacks accounts and encryption: everybody who reaches its port may do everything. It therefore
listens only on the loopback address, unless another address is given. It refuses requests of pages
in a browser, because any page may send them. On the loopback address it also refuses requests to
other host names than its own, because such pages may use them to hide.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import lance_namespace as interface

from glaive.errors import GlaiveError
from glaive.namespace.directory import connect
from glaive.namespace.errors import InvalidInputError, error_of
from glaive.namespace.folders import DELIMITER
from glaive.namespace.operations import (
    ARROW_FILE,
    JSON,
    OPERATIONS,
    Operation,
    json_of,
    why_invalid,
)

_logger = logging.getLogger(__name__)

PORT = 2333
"""The default port, as in the specification."""

_MAX_BYTES = 1 << 30
"""Most bytes of a request."""

_READ_BYTES = 1 << 20
"""Bytes of a request to read at a time."""

_CODES = {
    404: (1, 4, 6, 8, 10, 11, 12, 22),
    409: (2, 3, 5, 7, 9, 14, 19, 23),
    400: (13, 20),
    401: (16,),
    403: (15,),
    406: (0,),
    429: (21,),
    503: (17,),
}
"""Codes of the interface by status of HTTP; others are 500."""

_STATUS = {code: status for status, codes in _CODES.items() for code in codes}
_POLL_SECONDS = 0.05
"""Seconds between two checks whether the server was stopped."""

_FLAGS = ("true", "false")


class RestAdapter:
    """Server of a catalogue, until it is stopped; a context manager.

    Parameters
    ----------
    namespace_client_impl
        Kind of catalogue, see :func:`connect`; or a catalogue.
    namespace_client_properties
        Properties of the catalogue.
    session
        Accepted as in pylance, and ignored.
    host
        Address to listen on, by default ``127.0.0.1``.
    port
        Port, by default 2333; 0 for any free port, which :attr:`port` returns.

    Raises
    ------
    InvalidInputError
        The port is in use, or the address belongs to another machine.
    """

    def __init__(
        self,
        namespace_client_impl: str | interface.LanceNamespace,
        namespace_client_properties: Mapping[str, str] | None = None,
        session: object = None,
        host: str | None = None,
        port: int | None = None,
    ) -> None:
        del session
        self.catalogue = (
            connect(namespace_client_impl, namespace_client_properties or {})
            if isinstance(namespace_client_impl, str)
            else namespace_client_impl
        )
        self.host = host or "127.0.0.1"
        self._wanted = PORT if port is None else port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"RestAdapter({self.catalogue!r}, host={self.host!r}, port={self.port})"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._wanted if self._server is None else self._server.server_address[1]

    @property
    def uri(self) -> str:
        """The address for clients."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Listen, and answer on other threads."""
        if self._server is None:
            try:
                self._server = _Server((self.host, self._wanted), self.catalogue)
            except (OSError, OverflowError) as error:
                raise InvalidInputError(
                    f"cannot listen on {self.host}:{self._wanted}: {error}. Give another port, or 0"
                ) from None
            self._thread = threading.Thread(
                target=self._server.serve_forever, args=[_POLL_SECONDS], daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Wait until the server is stopped."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Close the port; running requests continue until the process ends."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # with 5, the seventh of many simultaneous clients waits a second

    def __init__(self, address: tuple[str, int], catalogue: interface.LanceNamespace) -> None:
        self.catalogue = catalogue
        self.names = {"localhost", address[0].lower()}
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that its client closed; the base class prints a traceback."""
        _logger.debug("the connection of %s ended early: %a", client_address, sys.exception())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def log_message(self, format: str, *args: Any) -> None:  # the name it has in its base class
        # A request may contain anything, also control characters that a terminal obeys.
        _logger.debug("%s", ascii(_without_query(format % args))[1:-1])

    def _serve(self, verb: str) -> None:
        try:
            status, kind, body = 200, *self._answer(verb)
        except interface.LanceNamespaceError as error:
            status, kind, body = _STATUS.get(int(error.code), 500), JSON, _error(error)
        except GlaiveError as error:
            status, kind, body = 500, JSON, _error(error_of(18, str(error)))
        except Exception as error:
            _logger.exception("%s %a", verb, _without_query(self.path))
            text = f"the server failed: {type(error).__name__}: {error}"
            status, kind, body = 500, JSON, _error(error_of(18, text))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def _answer(self, verb: str) -> tuple[str, bytes]:
        if "Origin" in self.headers or self.headers.get("Sec-Fetch-Site", "none") != "none":
            raise error_of(15, "requests of pages in a browser are refused: any page may make them")
        self._check_name()
        body = self._body()
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            raise InvalidInputError(f"{self.path!r:.80} is not an address: {error}") from None
        query = {key: texts[-1] for key, texts in parse_qs(parts.query).items()}
        method, operation, fields = _route(verb, parts.path, query.pop("delimiter", DELIMITER))
        kind = getattr(interface, operation.classes(method)[0])
        fields |= {
            name: _typed(kind, name, query[name]) for name in operation.query if name in query
        }
        if operation.body == "metadata":
            fields["metadata"] = json_of(body, "body")
        elif operation.body == "json":
            reported = json_of(body, "body")
            if not isinstance(reported, dict):
                raise InvalidInputError(f"body: expected a JSON object, found {body[:80]!r}")
            fields = {**reported, **fields}
        try:
            request = kind.from_dict(fields)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            first = why_invalid(error).replace("\n", " ")
            raise InvalidInputError(f"{method}: the request is not valid: {first}") from None
        call = getattr(self.server.catalogue, method)
        response = call(request, body) if operation.body == "arrow" else call(request)
        return _written(operation, response)

    def _check_name(self) -> None:
        """Refuse foreign host names: a browser would take the answer for their server's.

        In this case, the browser may hide that a page sends the request.
        """
        asked = self.headers.get("Host")
        if asked is None or not ip_address(str(self.server.server_address[0])).is_loopback:
            return
        try:
            name = (urlsplit(f"//{asked}").hostname or "").removesuffix(".")
            known = name in self.server.names or bool(ip_address(name))
        except ValueError:
            known = False
        if not known:
            raise error_of(
                15, f"the server is asked for as {asked!r:.80}: use its address, or localhost"
            )

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "0")
        is_size = text.isascii() and text.isdecimal() and len(text) < 20
        if self.headers.get("Transfer-Encoding") or not is_size:
            raise InvalidInputError("Content-Length: the request needs one")
        size = int(text)
        if size > _MAX_BYTES:
            raise InvalidInputError(f"a request of {size} bytes, at most {_MAX_BYTES} are read")
        body = BytesIO()  # grows as data arrives, because the client may state any size
        while piece := self.rfile.read1(min(size - body.tell(), _READ_BYTES)):
            body.write(piece)
        if body.tell() < size:
            raise InvalidInputError(f"body: expected {size} bytes, found {body.tell()}")
        return body.getvalue()


def _route(verb: str, path: str, delimiter: str) -> tuple[str, Operation, dict[str, Any]]:
    """Return the method of a path, and the fields in the path."""
    steps = path.strip("/").split("/")
    for method, operation in OPERATIONS.items():
        pattern = ["v1", *operation.path.split("/")]
        if operation.verb != verb or len(pattern) != len(steps):
            continue
        pairs = list(zip(pattern, steps, strict=True))
        if all(part == step or part[0] == "{" for part, step in pairs):
            fields: dict[str, Any] = {
                part[1:-1]: unquote(step) for part, step in pairs if part[0] == "{"
            }
            if "id" in fields:
                text = fields["id"]
                fields["id"] = [] if text == delimiter else text.split(delimiter or DELIMITER)
            elif method == "list_all_tables":
                fields["id"] = []
            return method, operation, fields
    raise error_of(0, f"{verb} {path[:200]}: the operation does not exist")


def _without_query(line: str) -> str:
    """Return what to log of a request: parameters of its URL may be storage options."""
    return re.sub(r"(?s)\?.*?(?= HTTP/\d|$)", "?…", line)


def _typed(kind: Any, name: str, text: str) -> Any:
    """Convert a parameter of the URL to the type of the request's field."""
    field = str(kind.model_fields[name].annotation)
    if "Dict" in field:
        return json_of(text.encode(), name)
    if "List" in field:
        return text.split(",")
    if "StrictBool" in field or "bool" in field:
        if text.lower() not in _FLAGS:
            raise InvalidInputError(f"{name}: expected true or false, found {text!r:.40}")
        return text.lower() == "true"
    if "int" in field.lower():
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise InvalidInputError(f"{name}: expected a number, found {text!r:.40}")
        return int(text)
    return text


def _written(operation: Operation, response: Any) -> tuple[str, bytes]:
    if operation.answer == "nothing":
        return JSON, b""
    if operation.answer == "arrow":
        return ARROW_FILE, response if isinstance(response, bytes) else response.data
    if operation.answer == "text":
        return JSON, json.dumps(response).encode()
    if operation.answer == "count":
        return JSON, str(response.count).encode()
    if operation.answer == "metadata":
        return JSON, json.dumps(response.metadata).encode()
    reported = response if isinstance(response, dict) else response.to_dict()
    return JSON, json.dumps(reported).encode()


def _error(error: interface.LanceNamespaceError) -> bytes:
    return json.dumps({"error": str(error), "code": int(error.code)}).encode()
