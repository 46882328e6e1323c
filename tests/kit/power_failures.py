"""Record how an operation changes files, and make what a power failure may leave of it.

Not for what a killed process leaves (``tests.kit.crashes``): the system keeps what that
wrote. After a power failure only that is certain which was forced to disk; of everything else a
file system may have kept any part, in any order. Only for local directories, on systems that have
``/proc``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from glaive.dataclass import dataclass

__all__ = ["Recording", "recorded"]

_Kind = Literal["name", "rename", "unname", "folder", "write", "cut", "sync"]


@dataclass(frozen=True, slots=True)
class _Step:
    """A change of a directory or of the content of a file, or a barrier.

    ``subject`` is what has to be forced to disk for it: the path of a directory, or the number of
    a file, which stays the same whatever names it gets.
    """

    kind: _Kind
    subject: str | int
    path: str = ""
    to: str = ""
    file: int = -1
    offset: int = 0
    data: bytes = b""


class Recording:
    """The changes of an operation, in order."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.steps: list[_Step] = []
        self._files: dict[str, int] = {}
        self._open: dict[int, tuple[str | int, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self.steps)

    # --------------------------------------------------------------- recording

    def note_open(self, path: str, flags: int, descriptor: int, *, is_new: bool) -> None:
        """A file or directory was opened, and perhaps created."""
        if Path(path).is_dir():
            self._open[descriptor] = path, 0
            return
        if not flags & (os.O_WRONLY | os.O_RDWR):
            return
        if path not in self._files:
            self._count += 1
            self._files[path] = self._count
            if is_new:
                self._named(path, self._count)
        self._open[descriptor] = self._files[path], 0

    def _named(self, path: str, file: int) -> None:
        self.steps.append(_Step("name", _folder(path), path, file=file))

    def note_write(self, descriptor: int, data: bytes) -> None:
        """Bytes were appended at the position of a descriptor."""
        subject, offset = self._open[descriptor]
        file = int(subject)
        self.steps.append(_Step("write", subject, file=file, offset=offset, data=data))
        self._open[descriptor] = subject, offset + len(data)

    def note_cut(self, descriptor: int, size: int) -> None:
        """A file got another size."""
        subject, _ = self._open[descriptor]
        self.steps.append(_Step("cut", subject, file=int(subject), offset=size))

    def note_sync(self, descriptor: int) -> None:
        """A file, or a directory, was forced to disk."""
        self.steps.append(_Step("sync", self._open[descriptor][0]))

    def note_link(self, source: str, target: str) -> None:
        """A file got another name."""
        self._files[target] = self._files[source]
        self._named(target, self._files[source])

    def note_rename(self, source: str, target: str) -> None:
        """A file got another name instead of its own."""
        file = self._files[target] = self._files.pop(source, -1)
        self.steps.append(_Step("rename", _folder(target), source, target, file))

    def note_unlink(self, path: str) -> None:
        """A file lost a name."""
        self._files.pop(path, None)
        self.steps.append(_Step("unname", _folder(path), path))

    def note_folder(self, path: str) -> None:
        """A directory was made."""
        self.steps.append(_Step("folder", _folder(path), path))

    def knows(self, descriptor: int) -> bool:
        """Whether a descriptor is of a file that is written, or of a directory."""
        return descriptor in self._open

    def forget(self, descriptor: int) -> None:
        """A descriptor was closed."""
        self._open.pop(descriptor, None)

    # ---------------------------------------------------------------- replaying

    def leave(self, place: Path, at: int, chance: random.Random) -> None:
        """Make in ``place`` what a power failure before step ``at`` may have left.

        Parameters
        ----------
        place
            A copy of the directory as it was before the operation.
        at
            From 0 to the number of steps.
        chance
            Decides what of the steps that were not forced to disk is there. Of bytes that were
            not, the file may have the size without them, and zeros instead.
        """
        forced: set[int] = set()
        pending: dict[str | int, list[int]] = {}
        for number, step in enumerate(self.steps[:at]):
            if step.kind == "sync":
                forced.update(pending.pop(step.subject, ()))
            else:
                pending.setdefault(step.subject, []).append(number)
        share = chance.choice([0.0, 0.3, 0.7, 1.0])
        contents: dict[int, bytearray] = {}
        names: dict[str, int] = {}
        for number, step in enumerate(self.steps[:at]):
            kept = number in forced or chance.random() < share
            if step.kind == "write":
                if kept or chance.random() < 0.5:
                    _write(contents.setdefault(step.file, bytearray()), step, kept=kept)
            elif kept:
                self._apply(place, step, names, contents)
        for path, file in names.items():
            target = place / os.path.relpath(path, self.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(contents.get(file, b""))

    def _apply(
        self, place: Path, step: _Step, names: dict[str, int], contents: dict[int, bytearray]
    ) -> None:
        there = place / os.path.relpath(step.path, self.root) if step.path else place
        if step.kind == "name":
            names[step.path] = step.file
        elif step.kind == "folder":
            there.mkdir(parents=True, exist_ok=True)
        elif step.kind == "cut":
            del contents.setdefault(step.file, bytearray())[step.offset :]
        elif step.kind == "unname":
            names.pop(step.path, None)
            there.unlink(missing_ok=True)
        elif step.kind == "rename":
            names.pop(step.path, None)
            there.unlink(missing_ok=True)
            names[step.to] = step.file


@contextmanager
def recorded(root: str) -> Iterator[Recording]:
    """Record changes below a directory while the block runs; only by this thread.

    Replaces functions of ``os`` meanwhile.
    """
    recording = Recording(root)
    wrappers = _wrappers(recording)
    before = {name: getattr(os, name) for name in wrappers}
    for name, wrapper in wrappers.items():
        setattr(os, name, wrapper(before[name]))
    try:
        yield recording
    finally:
        for name, function in before.items():
            setattr(os, name, function)


def _full(path: Any, dir_fd: int | None = None) -> str:
    folder = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
    return str(folder / os.fspath(path))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _wrappers(recording: Recording) -> dict[str, Callable[[Any], Any]]:
    """Functions of ``os`` that also record, by name, each made around the real one."""
    descriptor = partial(partial, _on_descriptor, recording)
    paths = partial(partial, _on_paths, recording)
    return {
        "open": partial(_opening, recording),
        "close": partial(_closing, recording),
        "write": partial(_writing, recording),
        "writev": partial(_writing, recording),
        "fsync": descriptor(recording.note_sync),
        "ftruncate": descriptor(recording.note_cut),
        "link": paths(recording.note_link),
        "replace": paths(recording.note_rename),
        "rename": paths(recording.note_rename),
        "unlink": paths(recording.note_unlink),
        "mkdir": paths(recording.note_folder),
    }


def _write(content: bytearray, step: _Step, *, kept: bool) -> None:
    end = step.offset + len(step.data)
    content.extend(bytes(max(0, end - len(content))))
    if kept:
        content[step.offset : end] = step.data


def _is_below(recording: Recording, path: str) -> bool:
    return path.startswith(f"{recording.root}/") or path == recording.root


def _opening(recording: Recording, real: Any) -> Any:
    def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        full = _full(path, dir_fd)
        is_new = not os.path.lexists(full)
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        if _is_below(recording, full):
            recording.note_open(full, flags, descriptor, is_new=is_new)
        return descriptor

    return call


def _closing(recording: Recording, real: Any) -> Any:
    def call(descriptor: int) -> None:
        recording.forget(descriptor)
        real(descriptor)

    return call


def _writing(recording: Recording, real: Any) -> Any:
    def call(descriptor: int, data: Any) -> int:
        done: int = real(descriptor, data)
        if recording.knows(descriptor):
            parts = data if isinstance(data, list) else [data]
            recording.note_write(descriptor, b"".join(map(bytes, parts))[:done])
        return done

    return call


def _on_descriptor(recording: Recording, note: Callable[..., None], real: Any) -> Any:
    def call(descriptor: int, *arguments: Any) -> None:
        real(descriptor, *arguments)
        if recording.knows(descriptor):
            note(descriptor, *arguments)

    return call


def _on_paths(recording: Recording, note: Callable[..., None], real: Any) -> Any:
    def call(*paths: Any, dir_fd: int | None = None, **options: Any) -> None:
        if dir_fd is not None:
            options["dir_fd"] = dir_fd
        real(*paths, **options)
        full = [_full(path, dir_fd) for path in paths if not isinstance(path, int)]
        if _is_below(recording, full[0]):
            note(*full)

    return call
