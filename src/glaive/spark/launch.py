"""Start or find a Spark session that can run the ``lance`` source, on any machine.

What usually goes wrong is settled before the session starts: a Java runtime is found
(:mod:`glaive.spark.java`), workers use this interpreter rather than the ``python3`` of the
system, and a local session listens on the loopback address only.
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
"""What a session on this machine gets unless told otherwise."""

REGISTERED = "spark.glaive.registered"

PASSED_ON = ("NUMBA_CACHE_DIR", "GLAIVE_KERNELS", "GLAIVE_THREADS", "GLAIVE_IO_CONCURRENCY")
"""Environment variables that executors of a cluster receive when they are set here."""


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
        Where to run, such as ``"local[4]"`` or ``"spark://host:7077"``. Omitted: what
        ``spark-submit`` says where it started this process, else all cores of this machine.
    app_name
        Name shown by Spark.
    remote
        A Spark Connect server, such as ``"sc://host"``, or ``"local[2]"`` to start one here.
        Excludes ``master``.
    conf
        Spark settings, as ``**{"spark.sql.shuffle.partitions": 8}``. They win over the defaults
        of this function. An existing session is reused and takes those it can still take.

    Raises
    ------
    MissingDependencyError
        pyspark is not installed, or there is no Java 17 or newer.

    Notes
    -----
    Sets ``PYSPARK_PYTHON``, ``PYSPARK_DRIVER_PYTHON``, ``JAVA_HOME`` and, for a local session,
    ``SPARK_LOCAL_IP`` in this process where they are not set. Starting
    Spark takes seconds, finding the running session milliseconds.
    """
    if master is not None and remote is not None:
        raise OptionError("session: give either master or remote, not both")
    spark_session = _spark_session_class()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen all this already
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
        # Connect starts its server with these settings, then fails to set them once more.
        warnings.filterwarnings("ignore", r"Failed to set spark\.(driver|ui)\.", UserWarning)
        spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make ``format("lance")``, and ``format("glaive")`` as its second name, known to a session.

    Spark finds the source by itself where glaive is installed for its workers (through the
    module ``pyspark_glaive``); registering is for the second name, which serves where ``lance``
    is taken by a JVM connector.
    """
    from glaive.spark.source import GlaiveDataSource, LanceDataSource

    # The mark lives in the session, as registrations do. Spark warns at each repetition, also
    # of what it finds by itself.
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
            f'Spark is not installed ({error}). Get it with: pip install "glaive[spark]"'
        ) from error
    return SparkSession


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
