"""The example of a declarative pipeline, run by Spark's own command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.spark.launch import ensure_java

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
COMMAND = Path(sys.executable).parent / "spark-pipelines"


def run(folder: Path) -> None:
    """Run the pipeline in a process of its own, which starts a Spark Connect server."""
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [str(COMMAND), "run", "--spec", str(folder / "spark-pipeline.yml")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly(reason="builds two indices")
def test_the_album_finds_images_by_meaning_and_by_words(tmp_path: Path) -> None:
    album = EXAMPLE.parent / "multimodal" / "album.toml"
    parameters = [f"output={tmp_path}", "images=90"]
    given = [part for parameter in parameters for part in ("--set", parameter)]
    done = subprocess.run(
        [sys.executable, "-m", "glaive", "pipeline", "run", str(album), "--json", *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert done.stdout.count("a big red circle on the") == 6
    found = glaive.dataset(tmp_path / "album.lance")
    assert {index.index_type for index in found.describe_indices()} == {"IVF_FLAT", "Inverted"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not COMMAND.exists(), reason="needs pyspark[pipelines]")
@pytest.mark.nightly(reason="starts a server twice")
def test_a_pipeline_goes_on_where_it_ended(tmp_path: Path) -> None:
    ensure_java()
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/data/shipments", str(tmp_path)))
    orders = pa.table({"order": [1, 2, 3], "state": ["shipped", "open", "open"]})
    dataset = glaive.write_dataset(
        orders, str(tmp_path / "orders.lance"), enable_stable_row_ids=True
    )

    run(folder)
    dataset.update({"state": "'shipped'"}, where="order = 3")
    run(folder)

    shipped = glaive.dataset(str(tmp_path / "shipped.lance"))
    assert sorted(shipped.to_table()["order"].to_pylist()) == [1, 3]
    # The dataset was created, and there was one batch for each run.
    assert shipped.version == 3
