"""Programs of others that import ``lance`` work with datasets of glaive: the real packages.

``make clients`` installs them beside this library, and runs these tests; ``make nightly`` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

CLIENTS = {
    "daft_client": ["daft", "daft_lance"],
    "datasets_client": ["datasets"],
    "lancedb_client": ["lancedb"],
    "ray_client": ["ray", "lance_ray"],
}
"""The packages that each program needs."""


@pytest.mark.slow
@pytest.mark.nightly(reason="needs packages of others")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_and_writes_with_the_alias(client: str, tmp_path: Path) -> None:
    missing = [package for package in CLIENTS[client] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{missing}: make clients installs them")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    offline = {"HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1"}
    environment = os.environ | offline | {"PYTHONPATH": paths}
    # A process of its own: the alias would be that of all tests.
    command = [sys.executable, "-m", f"tests.clients.{client}", str(tmp_path)]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
