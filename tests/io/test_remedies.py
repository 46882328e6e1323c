"""Errors of the operating system name a remedy of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITE = """
import resource, signal, sys
from glaive.errors import StoreError
from glaive.io.local import LocalStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    LocalStore(sys.argv[1]).put("a", [bytes(2000)])
except StoreError as error:
    print(error)
"""


def test_a_file_beyond_the_limit_of_a_process_is_told_apart_from_a_full_disk(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", WRITE, str(tmp_path)],  # else half of a file of bytecode stays
        capture_output=True,
        text=True,
        check=True,
    )
    assert "File too large. Files of this process or place have a limit of size" in done.stdout
    assert "ulimit -f" in done.stdout
    assert not (tmp_path / "a").exists()
