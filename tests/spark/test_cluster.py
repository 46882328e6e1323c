"""Jobs on a standalone cluster of two workers, some of which are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lance
import psutil
import pytest
from tests.spark.cluster import Cluster, started
from tests.spark.cluster_jobs import HIDDEN, KINDS

import glaive

DRIVER = Path(__file__).with_name("cluster_jobs.py")
SOURCES = Path(glaive.__file__).parent
ADVERSE = {
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.maxNumFailures": "1000",
    "spark.task.maxFailures": "20",
}
"""Attempts that are started twice, and executors that come and go."""

TASK_SECONDS = 60
"""How long an executor may take until it begins a task, on a machine that is busy."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.nightly(reason="starts a cluster of its own"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with glaive installed."""
    folder = tmp_path_factory.mktemp("cluster")
    with started(folder, sys.executable, str(SOURCES.parent)) as made:
        yield made


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with all that glaive needs, and without it."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # Lines of a .pth file are paths; .pth files below these, as of glaive itself, are not read.
    (packages / "needed.pth").write_text(str(Path(psutil.__file__).parents[1]))
    python = str(home / "bin" / "python")
    code = "import pyspark, numba, importlib.util as u; print(u.find_spec('glaive'))"
    free = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    assert subprocess.check_output([python, "-c", code], env=free, text=True) == "None\n"
    return python


def drive(
    address: str,
    uri: Path,
    settings: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start the driver; what it logs goes to a file, as nobody would empty a pipe meanwhile."""
    given = [f"{name}={text}" for name, text in settings_for(settings or {}).items()]
    with log_of(uri).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), address, str(uri), *given],
            env=os.environ | {"PYTHONPATH": str(SOURCES.parent)} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def log_of(uri: Path) -> Path:
    return uri.with_name(f"{uri.name}.log")


def end_of_log(uri: Path) -> str:
    return log_of(uri).read_text()[-4000:]


def settings_for(settings: dict[str, str]) -> dict[str, str]:
    local = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "700m",
    }
    return local | settings


def finished(driver: subprocess.Popen[str], uri: Path) -> None:
    """Wait for the driver, and see that pylance reads what it left."""
    output, _ = driver.communicate(timeout=1800)
    assert output.split()[-1:] == ["done"], (output, end_of_log(uri))
    seen_by_pylance(uri)


def seen_by_pylance(uri: Path) -> None:
    """Compare what both read."""
    table, seen = glaive.dataset(uri).to_table(), lance.dataset(str(uri)).to_table()
    assert table.num_rows == seen.num_rows > 0
    assert seen.select(table.column_names).to_pylist() == table.to_pylist()


def test_every_job_runs_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    finished(drive(cluster.uri, uri), uri)


@pytest.mark.spec("rel-27")
def test_every_job_runs_over_spark_connect(cluster: Cluster, tmp_path: Path) -> None:
    """The event log has the requests of jobs, without keys of stores."""
    uri = tmp_path / "t.lance"
    address = cluster.start_connect()
    finished(drive(address, uri), uri)
    cluster.end_connect()
    logs = [path.read_text() for path in cluster.events.rglob("events_*")]
    assert "VIEW `hidden` USING lance OPTIONS" in "".join(logs)
    assert "redacted" in "".join(logs)
    assert HIDDEN not in "".join(logs)


def killed_executor(cluster: Cluster, driver: subprocess.Popen[str], seconds: float) -> bool:
    """Kill an executor so long after a task in Python was seen; whether there was one.

    On a busy machine the first task may begin long after the driver asks for it. A driver that
    runs no tasks in Python, or is done, is not waited for.
    """
    until = time.monotonic() + TASK_SECONDS
    while driver.poll() is None and time.monotonic() < until:
        if cluster.runs_python():
            time.sleep(seconds)
            if cluster.kill_executor():
                return True
        time.sleep(0.02)
    return False


def test_killed_executors_and_speculation_lose_and_double_nothing(
    cluster: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    uri = tmp_path / "t.lance"
    driver = drive(cluster.uri, uri, ADVERSE)
    killed = []
    assert driver.stdout is not None
    for number, kind in enumerate(KINDS):
        assert driver.stdout.readline().strip() == kind.__name__, end_of_log(uri)
        # Each kind meets another moment of its tasks.
        if killed_executor(cluster, driver, 0.4 * (number % 5)):
            killed.append(kind.__name__)
    # Read like the lines before: the stream may hold it already, where ``communicate`` looks not.
    assert driver.stdout.readline().strip() == "done", end_of_log(uri)
    driver.communicate(timeout=600)
    seen_by_pylance(uri)
    record_property("jobs with a killed executor", " ".join(killed))
    assert len(killed) > len(KINDS) // 2


def shipped(folder: Path, names: Sequence[str] = ("glaive", "pyspark_glaive.py")) -> Path:
    """The sources as an archive."""
    path = folder / "glaive.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.add(SOURCES.parent / name, name)
    return path


def test_workers_without_glaive_get_it_as_an_archive(bare_python: str, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    archive = {
        "spark.archives": f"{shipped(tmp_path)}#shipped",
        "spark.executorEnv.PYTHONPATH": "shipped",
    }
    with started(tmp_path / "cluster", bare_python) as cluster:
        environment = {"PYSPARK_PYTHON": bare_python}
        finished(drive(cluster.uri, uri, archive, environment), uri)
        other = tmp_path / "other.lance"
        refused = drive(cluster.uri, other, environment=environment)
        assert refused.communicate(timeout=600)[0].split() == ["write"]
        message = "MissingDependencyError: the workers of this session have no glaive"
        assert message in log_of(other).read_text()
        assert not other.exists()


def test_workers_without_glaive_get_it_as_a_zip(bare_python: str, tmp_path: Path) -> None:
    """As with ``--py-files``, or ``spark.addArtifacts(..., pyfile=True)``."""
    uri, path = tmp_path / "t.lance", tmp_path / "glaive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(SOURCES.rglob("*")):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(SOURCES.parent))
    with started(tmp_path / "cluster", bare_python, workers=1) as cluster:
        environment = {"PYSPARK_PYTHON": bare_python}
        settings = {"spark.submit.pyFiles": str(path)}
        finished(drive(cluster.uri, uri, settings, environment), uri)
