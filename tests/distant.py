"""A file system of fsspec over a directory, in place of a server's: none that fsspec calls local.

It has no put-if-absent, moves what waits from a common folder, and reports links, as HDFS does. Its
files are below the same paths as those of this machine: ``distant:///t`` shows what ``/t`` holds.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import fsspec
from fsspec.spec import AbstractFileSystem

__all__ = ["DISTANT", "Distant"]

DISTANT: Final = "distant://{}"
"""The URI of a path there."""


class Distant(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system of which nothing says that its files are those of this machine."""

    protocol: ClassVar[str] = "distant"
    temppath: ClassVar[str] = tempfile.gettempdir()
    root_marker = "/"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        found = os.lstat(path)
        size, kind = found.st_size, "file"
        if stat.S_ISDIR(found.st_mode):
            kind = "directory"
        elif stat.S_ISLNK(found.st_mode):
            kind, size = "link", 0
            with suppress(OSError):  # one that leads nowhere
                size = Path(path).stat().st_size
        return {"name": path, "size": size, "type": kind, "mtime": found.st_mtime}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        paths = [f"{one}" for one in Path(self._strip_protocol(path)).iterdir()]
        return [self.info(one) for one in paths] if detail else paths

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        Path(self._strip_protocol(path)).mkdir(parents=True, exist_ok=exist_ok)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        Path(self._strip_protocol(path)).mkdir(parents=create_parents)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        Path(self._strip_protocol(path1)).replace(self._strip_protocol(path2))

    def rm_file(self, path: str) -> None:
        Path(self._strip_protocol(path)).unlink()

    def _open(self, path: str, mode: str = "rb", *_: Any, autocommit: bool, **__: Any) -> Any:
        if autocommit:
            return Path(path).open(mode)
        waiting = f"{self.temppath}/{uuid4()}"
        file: Any = Path(waiting).open(mode)  # noqa: SIM115  # as a file system does
        file.commit = lambda: self.mv(waiting, path)
        file.discard = lambda: self.rm_file(waiting)
        return file


fsspec.register_implementation("distant", "tests.distant.Distant", clobber=True)
