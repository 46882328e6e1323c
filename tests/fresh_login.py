"""Environments of a fresh login, for processes that tests start."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import chain
from pathlib import Path

__all__ = ["fresh_login", "without_java"]


def fresh_login(home: Path) -> dict[str, str]:
    """Return an environment with no active virtual environment and no ``PYSPARK_PYTHON``.

    This Python's folder is not on the path: ``python3`` is another one, or none. Of Spark's
    settings only those of short sessions are there, see ``spark/conf/spark-defaults.conf``.
    """
    own = Path(sys.executable).parent
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != own]
    return {
        "PATH": os.pathsep.join(path),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "SPARK_CONF_DIR": os.environ["SPARK_CONF_DIR"],
    }


def without_java(home: Path) -> dict[str, str]:
    """Return the environment of a fresh login on a machine with no Java, in ``home``."""
    programs = home / "bin"
    programs.mkdir()
    for program in chain.from_iterable(Path(folder).glob("*") for folder in ("/usr/bin", "/bin")):
        link = programs / program.name
        if program.is_file() and not program.name.startswith("java") and not link.is_symlink():
            link.symlink_to(program)
    assert shutil.which("java", path=str(programs)) is None
    return fresh_login(home) | {"PATH": str(programs)}
