"""An S3 and DynamoDB server on loopback: slow, failing or cutting off as a test asks."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any, Literal
from uuid import uuid4

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Kind = Literal["error", "throttle", "conflict", "unknown", "reset", "late", "gateway", "cut", "lie"]
STATUS = {
    "error": "500 Internal Server Error",
    "throttle": "503 Slow Down",
    "conflict": "409 Conflict",
    "unknown": "404 Not Found",
    "gateway": "504 Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request: what was asked for, and when it came and was answered."""

    method: str
    path: str
    began: float
    ended: float


@dataclass(slots=True)
class Failing:
    """Requests that go wrong: those that ``matches``, after ``after`` others, ``times`` times.

    ``error`` answers 500, ``throttle`` 503, ``conflict`` 409 as if one were under way, ``unknown``
    404; ``reset`` closes the connection without an answer and does nothing; ``late`` does what was
    asked when ``Server.arrive`` is called, as does ``gateway``, which answers 504; ``lie`` does it
    and then closes the connection; ``cut`` sends half of the answer.
    """

    kind: Kind
    matches: Callable[[str, str], bool] = lambda _, __: True
    after: int = 0
    times: int = 1


@dataclass(slots=True)
class Server:
    """A running server and what it was asked."""

    url: str = ""
    latency: float = 0.0
    ignored: str | None = None
    """An action of DynamoDB that is answered, and not done."""
    calls: list[Call] = field(default_factory=list)
    failing: list[Failing] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)
    one_at_a_time: Any = field(default_factory=Lock)
    """Moto looks up an item and replaces it in two steps, which conditions need as one."""
    clients: dict[str, Any] = field(default_factory=dict)
    under_way: list[Callable[[], object]] = field(default_factory=list)

    def reset(self) -> None:
        """Forget what was asked, and go wrong no more."""
        with self.lock:
            self.calls.clear()
            self.failing.clear()
            self.ignored = None
            self.under_way.clear()

    def arrive(self) -> None:
        """Carry out the requests that were late."""
        while self.under_way:
            self.under_way.pop(0)()

    @contextmanager
    def slow(self, seconds: float) -> Iterator[Server]:
        """Every answer takes so much longer; the log starts again."""
        self.reset()
        self.latency = seconds
        try:
            yield self
        finally:
            self.latency = 0.0

    def bucket(self) -> str:
        """A new bucket."""
        name = f"b{uuid4().hex}"
        self.client("s3").create_bucket(Bucket=name)
        self.reset()
        return name

    def table(self) -> str:
        """A new DynamoDB table for manifests."""
        name = f"T{uuid4().hex}"
        keys = [("base_uri", "HASH", "S"), ("version", "RANGE", "N")]
        self.client("dynamodb").create_table(
            TableName=name,
            KeySchema=[{"AttributeName": n, "KeyType": role} for n, role, _ in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, _, t in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        self.reset()
        return name

    def client(self, service: str) -> Any:
        """A client of our own, to look behind the scenes."""
        if service not in self.clients:
            self.clients[service] = boto3.session.Session().client(
                service,
                endpoint_url=self.url,
                region_name="us-east-1",
                aws_access_key_id="test",
                aws_secret_access_key="test",
            )
        return self.clients[service]

    @property
    def options(self) -> dict[str, str]:
        """Storage options for this server."""
        return {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
            "aws_endpoint": self.url,
            "dynamodb_endpoint": self.url,
            "allow_http": "true",
        }

    def most_in_flight(self) -> int:
        """Requests that were under way at the same time, at most."""
        edges = sorted(
            [(call.began, 1) for call in self.calls] + [(call.ended, -1) for call in self.calls]
        )
        now = most = 0
        for _, step in edges:
            now += step
            most = max(most, now)
        return most

    def mean_in_flight(self) -> float:
        """Requests under way on average, while there was any."""
        busy = sum(call.ended - call.began for call in self.calls)
        covered, reach = 0.0, 0.0
        for call in sorted(self.calls, key=lambda call: call.began):
            start = max(call.began, reach)
            if call.ended > start:
                covered += call.ended - start
                reach = call.ended
        return busy / covered if covered else 0.0

    def round_trips(self) -> int:
        """Requests that can only have waited for each other: the longest chain without overlap."""
        trips, reach = 0, 0.0
        for call in sorted(self.calls, key=lambda call: call.ended):
            if call.began >= reach:
                trips += 1
                reach = call.ended
        return trips

    def _failure(self, method: str, path: str) -> Kind | None:
        with self.lock:
            for failing in self.failing:
                if failing.times <= 0 or not failing.matches(method, path):
                    continue
                if failing.after > 0:
                    failing.after -= 1
                    continue
                failing.times -= 1
                return failing.kind
        return None

    def answer(
        self, inner: Any, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Handle one request."""
        began = time.monotonic()
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        query = environ.get("QUERY_STRING", "")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        name = f"{path}?{query}" if query else path + target.rpartition(".")[2]
        if self.latency:
            time.sleep(self.latency)
        kind = self._failure(method, name)
        try:
            if kind in ("late", "gateway"):
                later = dict(environ)
                self.under_way.append(lambda: b"".join(inner(later, lambda *_: None)))
            if self.ignored is not None and name.endswith(self.ignored):
                start_response("200 OK", [("Content-Length", "2")])
                return [b"{}"]
            if kind in STATUS:
                start_response(STATUS[kind], [("Content-Length", "0")])
                return [b""]
            if kind in ("reset", "late"):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return [b""]
            with self.one_at_a_time:
                answer = b"".join(inner(environ, start_response))
            if kind == "lie":
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return [b""]
            return [answer[: len(answer) // 2] if kind == "cut" else answer]
        finally:
            with self.lock:
                self.calls.append(Call(method, name, began, time.monotonic()))


class _Quiet(WSGIRequestHandler):
    def log(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def running() -> Iterator[Server]:
    """Start a server on a free port; it has ended when the block ends."""
    server = Server()
    inner = DomainDispatcherApplication(create_backend_app)
    made = make_server(
        "127.0.0.1",
        0,
        lambda environ, start: server.answer(inner, environ, start),
        threaded=True,
        request_handler=_Quiet,
    )
    server.url = f"http://127.0.0.1:{made.server_port}"
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        made.shutdown()
        thread.join()
        made.server_close()
