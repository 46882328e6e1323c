"""Start or find a Spark session that can run the ``lance`` source, on any machine.

Prevents common problems before the session starts: finds a Java runtime
(:mod:`glaive.spark.java`), configures the workers to use the current interpreter rather than the
``python3`` of the system, and binds a local session to the loopback address only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from typing import TYPE_CHECKING

from glaive.errors import MissingDependencyError, OptionError
from glaive.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]

LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Default settings of a session on this machine."""

REGISTERED = "spark.glaive.registered"

PASSED_ON = ("NUMBA_CACHE_DIR", "GLAIVE_KERNELS", "GLAIVE_THREADS", "GLAIVE_IO_CONCURRENCY")
"""Environment variables that are passed on to executors of a cluster."""


def session(
    master: str | None = None,
    app_name: str = "glaive",
    *,
    remote: str | None = None,
    **conf: object,
) -> SparkSession:
    """Return a Spark session with the ``lance`` source registered.

    Parameters
    ----------
    master
        Where to run, such as ``"local[4]"`` or ``"spark://host:7077"``. Default: that of
        ``spark-submit`` if it started this process, else all cores of this machine.
    app_name
        Name displayed by Spark.
    remote
        A Spark Connect server, such as ``"sc://host"``, or ``"local[2]"`` to start one here.
        Excludes ``master``.
    conf
        Spark settings, as ``**{"spark.sql.shuffle.partitions": 8}``. They override the defaults
        of this function. An existing session is reused; settings that can still change apply.

    Raises
    ------
    MissingDependencyError
        pyspark is not installed, or there is no Java 17 or later.

    Notes
    -----
    Sets ``PYSPARK_PYTHON``, ``PYSPARK_DRIVER_PYTHON``, ``JAVA_HOME`` and, for a local session,
    ``SPARK_LOCAL_IP`` in this process if they are not set. Starting Spark takes seconds, finding
    the running session milliseconds.
    """
    if master is not None and remote is not None:
        raise OptionError("session: give either master or remote, not both")
    spark_session = _spark_session_class()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has already configured this
    if not submitted and not (remote or "").startswith("sc://"):
        ensure_java()
    builder = spark_session.builder.appName(app_name)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    settings: dict[str, object] = {
        f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if name in os.environ
    }
    if not submitted and (remote or master or "local").startswith("local"):
        settings |= LOCAL_CONF
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if (remote or "").startswith("sc://"):
        settings = {}  # the server was started with its own
    for key, value in (settings | conf).items():
        builder = builder.config(key, _text(value))
    with warnings.catch_warnings():
        # Connect starts its server with these settings, then fails to set them again.
        warnings.filterwarnings("ignore", r"Failed to set spark\.(driver|ui)\.", UserWarning)
        spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register ``format("lance")`` and its second name ``format("glaive")`` in a session.

    Spark finds the source by itself if glaive is installed for its workers (through the module
    ``pyspark_glaive``). The second name is for sessions in which ``lance`` is a JVM connector.
    """
    from glaive.spark.source import GlaiveDataSource, LanceDataSource

    # Remembered in the session, like registrations. Spark warns when they are repeated, even of
    # sources that it finds by itself.
    if spark.conf.get(REGISTERED, None) is not None:
        return
    if importlib.util.find_spec("pyspark_glaive") is None:
        spark.dataSource.register(LanceDataSource)
    spark.dataSource.register(GlaiveDataSource)
    spark.conf.set(REGISTERED, "true")


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
