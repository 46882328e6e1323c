"""A server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server import Server, running


@pytest.fixture(scope="session")
def running_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.reset()
    return running_server
