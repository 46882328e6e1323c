"""``glaive namespace``: a directory listed, and served until interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from click.testing import CliRunner
from tests.namespace.calls import ROWS

import glaive
from glaive.cli.main import cli
from glaive.namespace import connect


def test_tables_are_listed(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "orders.lance")
    result = CliRunner().invoke(cli, ["namespace", "ls", str(tmp_path), "--json"])
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"table": ["orders"]}]


def test_a_wrong_property_is_one_line(tmp_path: Path) -> None:
    arguments = ["namespace", "ls", str(tmp_path), "--property", "manifest=no"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert "unknown property 'manifest'" in result.stderr


def test_a_directory_is_served_until_interrupted(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "orders.lance")
    command = [sys.executable, "-m", "glaive", "namespace", "serve", str(tmp_path), "--port", "0"]
    with ExitStack() as stack:
        # What a script runs in the background ignores interrupts, and so would the server.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGINT, before)
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        words = server.stdout.readline().split()
        client = connect("rest", {"uri": words[3]})
        assert glaive.dataset(namespace_client=client, table_id=["orders"]).count_rows() == 3
        server.send_signal(signal.SIGINT)
        assert server.wait(240) == 0
