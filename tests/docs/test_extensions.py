"""The examples of entry points work as an installed package, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copytree

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"

RUNS = {
    "functions": """
        found = lance.write_dataset(pa.table({"x": [1, 2, 3]}), "t").to_table(filter="twice(x) > 3")
        assert found["x"].to_pylist() == [2, 3], found
    """,
    "encodings": """
        field = pa.field("x", pa.int32(), metadata={"lance-encoding:compression": "xor"})
        numbers = [*range(5000)]
        table = pa.table({"x": numbers}, schema=pa.schema([field]))
        dataset = lance.write_dataset(table, "t", data_storage_version="2.1")
        assert dataset.to_table()["x"].to_pylist() == numbers
        assert dataset.take([4000, 7])["x"].to_pylist() == [4000, 7]
        (file,) = Path("t/data").iterdir()
        assert bytes(b ^ 0x5A for b in (1234).to_bytes(4, "little")) in file.read_bytes()
    """,
    "indices": """
        dataset = lance.write_dataset(pa.table({"x": [*range(50_000), None]}), "t")
        dataset.create_scalar_index("x", "MODULO")
        dataset = lance.dataset("t")
        assert "ScalarIndexQuery" in dataset.scanner(filter="x = 17").explain_plan()
        assert dataset.to_table(filter="x = 17")["x"].to_pylist() == [17]
    """,
    "formats": """
        Path("colours.pairs").write_text("red=3\\nblue=5\\n")
        lance.ingest("colours.pairs", "t")
        found = lance.dataset("t").to_table().to_pylist()
        assert found == [{"name": "red", "value": 3}, {"name": "blue", "value": 5}]
    """,
    "stores": """
        lance.write_dataset(pa.table({"x": [1]}), "scratch://t")
        assert lance.dataset("scratch://t").count_rows() == 1
    """,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as an installer leaves it: its modules and its entry points."""
    folder = tmp_path_factory.mktemp("site")
    copytree(EXAMPLES / "glaive_extensions", folder / "glaive_extensions")
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("group", RUNS)
def test_an_installed_package_adds_to_glaive(group: str, site: Path, tmp_path: Path) -> None:
    body = "\n".join(line[8:] for line in RUNS[group].splitlines())
    code = f"import sys; sys.path.append({str(site)!r})\n"
    code += f"from pathlib import Path\nimport glaive as lance, pyarrow as pa\n{body}"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_every_group_of_entry_points_has_an_example() -> None:
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text("utf-8"))["project"]
    assert {f"glaive.{group}" for group in RUNS} == set(project["entry-points"])


def test_a_file_without_its_package_says_which_encoding_it_needs(
    site: Path, tmp_path: Path
) -> None:
    test_an_installed_package_adds_to_glaive("encodings", site, tmp_path)
    import glaive
    from glaive.errors import UnsupportedFeatureError

    with pytest.raises(UnsupportedFeatureError, match=r"'xor' .* belongs to another package"):
        glaive.dataset(tmp_path / "t").to_table()
