"""A standalone cluster of Spark on the loopback: a master and workers, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from glaive.spark.launch import ensure_java

HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_SECONDS = 180
"""How long a process may take until it listens, on a machine that is busy with other tests."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@dataclass
class Cluster:
    """Processes of a cluster; :func:`started` makes and ends one."""

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """What drivers connect to."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int) -> None:
        """Start the master, then the workers, of one core each."""
        listening = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        self.master = self._java("master", [MASTER, *listening])
        wait_for(self.port)
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Start one more worker."""
        number = len(self.workers)
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"w{number}")]
        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        self.workers.append(self._java(f"worker{number}", [WORKER, *place, *limits, self.uri]))

    @property
    def events(self) -> Path:
        """The folder of the event logs of Spark Connect servers."""
        return self.folder / "events"

    def start_connect(self) -> str:
        """Start a Spark Connect server on the cluster; returns its address."""
        port = free_port()
        settings = {
            "spark.connect.grpc.binding.port": port,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
        }
        self.events.mkdir(exist_ok=True)
        conf = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        submit = ["org.apache.spark.deploy.SparkSubmit", "--master", self.uri, "--class", CONNECT]
        self.others.append(self._java("connect", [*submit, *conf, "spark-internal"]))
        wait_for(port)
        return f"sc://127.0.0.1:{port}"

    def kill_executor(self) -> bool:
        """Kill an executor that has begun a task in Python, with its Python workers.

        Returns whether there was one.
        """
        for executor, below in self._executors():
            if not any(_is_python_worker(process) for process in below):
                continue
            with suppress(psutil.NoSuchProcess):
                executor.kill()
                for process in below:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                return True
        return False

    def runs_python(self) -> bool:
        """Whether an executor has begun a task in Python."""
        return any(
            _is_python_worker(process) for _, below in self._executors() for process in below
        )

    def _executors(self) -> Iterator[tuple[psutil.Process, list[psutil.Process]]]:
        """Each executor, and the processes below it."""
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                for executor in psutil.Process(worker.pid).children():
                    with suppress(psutil.NoSuchProcess):
                        yield executor, executor.children(recursive=True)

    def end(self) -> None:
        """End all processes that this object started, and theirs."""
        self.end_connect()
        for process in [*self.workers, self.master]:
            if process is not None:
                end(process)

    def end_connect(self) -> None:
        """End the Spark Connect servers, which hold the cores of the workers."""
        while self.others:
            end(self.others.pop())

    def _java(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), *arguments],
                env=dict(self.environment),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _is_python_worker(process: psutil.Process) -> bool:
    """Whether a process below an executor runs tasks; the daemon that forks these does not."""
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return parent is not None and all(
            "pyspark.daemon" in of.cmdline() for of in (process, parent)
        )
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int) -> None:
    """Wait until a process listens."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


@contextmanager
def started(folder: Path, python: str, paths: str = "", workers: int = 2) -> Iterator[Cluster]:
    """A cluster whose workers run this Python, with modules from these paths."""
    ensure_java()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": python,
    }
    if paths:
        environment["PYTHONPATH"] = paths
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder, environment)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.end()
