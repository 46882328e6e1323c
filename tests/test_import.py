"""``import glaive`` is cheap, and its names are there when they are used."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pyarrow as pa
import pytest

import glaive
from glaive.format.manifest import WRITER

HEAVY = ("pyarrow", "numpy", "numba", "obstore", "pyspark", "google.protobuf", "pandas", "click")


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, glaive; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run(code) == "[]"


def test_import_loads_what_the_guide_says() -> None:
    code = """
import sys, glaive
from pathlib import Path
own = [module for name, module in sys.modules.items() if name.partition(".")[0] == "glaive"]
print(len(own), sum(Path(module.__file__).stat().st_size for module in own))
"""
    guide = Path(__file__).parent.parent / "docs/guide/performance.md"
    assert "`import glaive` loads one module" in guide.read_text("utf-8")
    modules, size = map(int, run(code).split())
    assert modules == 1
    assert size < 10_000


def test_opening_and_reading_loads_neither_numba_nor_obstore_nor_spark(tmp_path: object) -> None:
    code = f"""
import sys, glaive, pyarrow as pa
place = {str(tmp_path)!r} + "/t"
glaive.write_dataset(pa.table({{"a": list(range(100)), "t": ["x"] * 100}}), place)
dataset = glaive.dataset(place)
assert dataset.to_table().num_rows == 100 and dataset.take([5]).num_rows == 1
print([name for name in ("numba", "obstore", "pyspark") if name in sys.modules])
"""
    assert run(code) == "[]"


UNUSED = (
    "numpy.ma",
    "pyarrow.compute",
    "concurrent.futures",
    "json",
    "logging",
    "pathlib",
    "urllib.parse",
    "glaive.encodings.miniblock.filter",
    "glaive.encodings.miniblock.lists",
    "glaive.encodings.predicate",
    "glaive.encodings.values.rle",
    "glaive.expr",
    "glaive.format.transaction",
    "glaive.kernels.code_cache",
    "glaive.scan.run",
    "glaive.table.deletions",
    "glaive.table.manifest_steps",
)
"""What a take of a few numbers and texts has no use for."""

MOST_MODULES = 211
"""Each takes 0.15 to 0.3 ms."""


def test_taking_a_few_rows_loads_what_it_uses(tmp_path: object) -> None:
    place = f"{tmp_path}/t"
    texts = [f"text number {n} of some length, and number {n * 7919 % 9973}" for n in range(9000)]
    glaive.write_dataset({"t": texts, "n": list(range(9000))}, place)
    code = f"""
import sys, pyarrow
others = set(sys.modules)  # pyarrow loads cloudpickle where that is installed
import glaive
dataset = glaive.dataset({place!r})
assert dataset.take([8000, 5, 3001, 2, 8000])["t"][0].as_py().startswith("text number 8000 ")
print([name for name in {UNUSED!r} if name in sys.modules and name not in others])
print(sum(name.startswith("glaive") for name in sys.modules))
"""
    loaded, count = run(code).splitlines()
    assert loaded == "[]"
    assert int(count) <= MOST_MODULES


SEARCHES = {
    "text": (
        "dataset.to_table(full_text_query='number', limit=3, columns=['n'])",
        (
            "pandas",
            "numpy.ma",
            "glaive.expr",
            "glaive.index.text.partition",
            "glaive.scan.filter_search",
        ),
        319,
    ),
    "point": (
        "dataset.to_table(filter='n = 777', columns=['n', 't'])",
        (
            "pandas",
            "numpy.ma",
            "pyarrow.compute",
            "glaive.index.scalar.sorting",
            "glaive.index.text.opened",
        ),
        327,
    ),
    "range": (
        "dataset.to_table(filter='n between 5 and 7 and f > 2', columns=['n', 't'])",
        ("pandas", "glaive.index.scalar.sorting", "glaive.index.text.opened"),
        336,
    ),
    "vectors": (
        "dataset.to_table(nearest={'column': 'v', 'q': [1.0] * 8, 'k': 3}, columns=['n'])",
        (
            "pandas",
            "numpy.ma",
            "pyarrow.compute",
            "glaive.expr",
            "glaive.index.vector.index_writer",
        ),
        309,
    ),
}
"""A first search, what it has no use for, and how many modules it may load at most."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with an index of texts, one of numbers and one of vectors."""
    place = f"{tmp_path_factory.mktemp('searched')}/t"
    rows = 3000
    vectors = pa.array([float(n * 7919 % 997) for n in range(8 * rows)], pa.float32())
    table = pa.table(
        {
            "n": range(rows),
            "f": [float(n) for n in range(rows)],
            "t": [f"text number {n} of some length" for n in range(rows)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    dataset = glaive.write_dataset(table, place)
    dataset.create_scalar_index("t", "INVERTED")
    dataset.create_scalar_index("n", "BTREE")
    dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    return place


@pytest.mark.parametrize("name", SEARCHES)
def test_a_first_search_loads_what_it_uses(name: str, searched: str) -> None:
    search, unused, most = SEARCHES[name]
    code = f"""
import sys, glaive
dataset = glaive.dataset({searched!r})
assert {search}.num_rows > 0
print([name for name in {unused!r} if name in sys.modules])
print(sum(name.startswith("glaive") for name in sys.modules))
"""
    loaded, count = run(code).splitlines()
    assert loaded == "[]"
    assert int(count) <= most


UNUSED_TO_APPEND = (
    "llvmlite",
    "pyarrow.compute",
    "glaive.file.legacy",
    "glaive.encodings.writing.page",
    "glaive.encodings.writing.page",
    "glaive.encodings.writing.string_stats",
    "glaive.file.blob_writer",
)
"""What an append of a few numbers and texts has no use for: it chooses no encoding."""


def test_appending_a_few_rows_loads_what_it_uses(tmp_path: object) -> None:
    place = f"{tmp_path}/t"
    texts = ["a text of some length " * 5] * 9 + ["b"]
    rows = pa.table({"n": range(10), "f": [None, *map(float, range(9))], "t": texts})
    glaive.write_dataset(rows, place)
    with pa.ipc.new_file(f"{place}.arrow", rows.schema) as file:  # Arrow loads pandas for lists
        file.write_table(rows)
    code = f"""
import sys, glaive, pyarrow as pa
rows = pa.ipc.open_file({place!r} + ".arrow").read_all()
assert glaive.write_dataset(rows, {place!r}, mode="append").count_rows() == 20
print([name for name in {UNUSED_TO_APPEND!r} if name in sys.modules])
"""
    assert run(code) == "[]"


def test_taking_a_few_rows_of_fragments_loads_no_functions_of_arrow(tmp_path: object) -> None:
    place = f"{tmp_path}/t"
    glaive.write_dataset({"t": [f"text {n}" for n in range(9000)]}, place, max_rows_per_file=3000)
    code = f"""
import sys, glaive
dataset = glaive.dataset({place!r})
assert dataset.take([8000, 5, 3001, 2, 8000])["t"][0].as_py() == "text 8000"
print("pyarrow.compute" in sys.modules)
"""
    assert run(code) == "False"


@pytest.mark.parametrize("name", [*glaive.__all__, "errors", "file", "__version__"])
def test_every_name_is_there(name: str) -> None:
    assert name in dir(glaive)
    assert getattr(glaive, name) is not None


@pytest.mark.parametrize(
    "before", ["", "import glaive.dataset.open", "from glaive.dataset import dataset as _"]
)
def test_the_function_is_there_whatever_was_imported_before(before: str, tmp_path: object) -> None:
    place = f"{tmp_path}/t"
    code = f"""
{before}
import glaive
from glaive import dataset
glaive.write_dataset({{"a": [1]}}, {place!r})
print(glaive.dataset({place!r}).version, dataset(uri={place!r}, version=1).count_rows())
"""
    assert run(code) == "1 1"


def test_names_of_the_module_that_pylance_has_are_there_and_listed() -> None:
    package = importlib.import_module("glaive.dataset")
    listed = [name for name in dir(package) if not name.startswith("_")]
    assert {"CompactionMetrics", "LANCE_COMMIT_MESSAGE_KEY", "MergeInsertBuilder"} <= set(listed)
    assert [name for name in listed if not hasattr(package, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'datasets'"):
        _ = glaive.datasets  # type: ignore[attr-defined]  # on purpose


def test_the_version_is_told_the_same_everywhere() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    assert glaive.__version__ == project["project"]["version"] == WRITER[1]


def test_the_wheel_is_as_large_as_the_guide_says() -> None:
    root = Path(__file__).parent.parent
    stated = re.search(
        r"The wheel has ([\d.]+) MB", (root / "docs/guide/performance.md").read_text("utf-8")
    )
    assert stated is not None
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as wheel:
        for path in (root / "src").rglob("*"):
            if path.is_file() and path.suffix != ".so" and "__pycache__" not in path.parts:
                # names as in a wheel: where the checkout lies does not count
                wheel.write(path, path.relative_to(root / "src"))
    assert abs(packed.tell() / 1e6 - float(stated[1])) < 0.1


def test_modules_of_pyarrow_that_pylance_imports_are_imported_when_they_are_used() -> None:
    assert (
        run("import pyarrow as pa, glaive, sys; print('pyarrow.dataset' in sys.modules)") == "False"
    )
    for first in ("import pyarrow as pa, glaive", "import glaive; glaive.LanceDataset"):
        code = f"{first}; import pyarrow as pa; print(pa.dataset.dataset(pa.table({{'a': [1]}}))"
        assert run(f"{code}.count_rows(), hasattr(pa, 'no_such_name'), pa.fs.FileType.File.name)")


WITHOUT_PANDAS = (
    "d.to_table(filter='n > 5')",
    "d.to_table(filter='n % 97 = 3 and f * 2 > 0.5')",
    "d.to_table(filter=\"at > timestamp '1970-01-01 00:00:05'\")",
    "d.to_table(filter='array_has(l, 3)')",
    "d.to_table({'a': 'n * 2', 'b': 'upper(t)'})",
    "d.update({'n': 'n + 1'}, where='n % 97 = 3')",
    "d.delete('n in (1, 2)')",
    "d.merge_insert('n').when_matched_update_all().execute(d.to_table(limit=5))",
    "glaive.write_dataset(d.to_table(limit=5), d.uri, mode='append')",
    "glaive.dataset(d.uri).optimize.compact_files()",
    "glaive.dataset(d.uri).create_scalar_index('n', 'BTREE')",
    *(
        f"glaive.dataset(d.uri).create_{made}, name='{made}')"
        for made in (
            'scalar_index("t", "BTREE"',
            'scalar_index("n", "BITMAP"',
            'scalar_index("z", "BITMAP"',
            'scalar_index("l", "LABEL_LIST"',
            'scalar_index("f", "ZONEMAP"',
            'scalar_index("n", "BLOOMFILTER"',
            'scalar_index("t", "NGRAM"',
            'scalar_index("t", "INVERTED"',
            'index("v", "IVF_FLAT", num_partitions=2',
            'index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2',
            'index("v", "IVF_SQ", num_partitions=2',
            'index("v", "IVF_RQ", num_partitions=2',
            'index("v", "IVF_HNSW_SQ", num_partitions=2',
        )
    ),
    "d = glaive.dataset(d.uri); d.insert(d.to_table(limit=5)); d.optimize.optimize_indices()",
    "d.to_table(full_text_query='word', limit=5)",
    "d.to_table(nearest={'column': 'v', 'q': [1.0] * 8, 'k': 3})",
    "d.to_table(nearest={'column': 'v', 'q': [1.0] * 8, 'k': 3}, filter='f > 5', prefilter=True)",
    "d.to_table(filter=\"t = 'word 3' or z = 'z3'\")",
    "d.to_table(filter='array_has_any(l, [7, 8])')",
    "d.to_table(filter=\"contains(t, 'word')\")",
    "d.to_table({'a': 'cast(f as int)'}); d.scanner(order_by=['z']).to_table()",
    "d.add_columns({'y': \"concat(t, z)\"})",
    "d.merge(d.to_table({'n': 'n', 'm': 'n * 2'}, limit=5), 'n')",
    "d.delete('n % 7 = 3'); d.optimize.compact_files()",
    "d.tags.create('a', 1); glaive.dataset(d.uri, version=2).restore()",
    "d.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)",
)
"""Calls for which glaive leaves pandas alone, although pyarrow imports it for many of its own."""


def test_scans_of_few_rows_and_of_dictionaries_load_little_of_numpy(tmp_path: object) -> None:
    n = pa.array([1, None, 3] * 40)
    rows = pa.table({"n": n, "d": pa.array(["a", None, "b"] * 40).dictionary_encode()})
    glaive.write_dataset(rows, f"{tmp_path}/t", max_rows_per_file=10, data_storage_version="2.0")
    code = f"""
import sys, glaive
glaive.dataset({f"{tmp_path}/t"!r}).to_table()
print([name for name in ("pandas", "numpy.ma") if name in sys.modules])
"""
    assert run(code) == "[]"


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_changes_of_dictionaries_and_lists_with_nulls_do_not_import_pandas(
    tmp_path: object, version: str
) -> None:
    assert find_spec("pandas") is not None, "without pandas, this test cannot fail"
    numbers = range(3000)
    words = pa.array([f"w{n % 50}" if n % 3 else None for n in numbers])
    table = pa.table(
        {
            "n": numbers,
            "d": words.dictionary_encode(),
            "l": [None if n % 4 else [f"x{n % 5}", None] for n in numbers],
            "s": [None if n % 9 == 0 else {"a": n, "b": f"b{n % 3}"} for n in numbers],
            "b": [None if n % 6 == 0 else n % 5 == 0 for n in numbers],
            "f": pa.array(numbers).cast(pa.decimal128(22, 3)),
        }
    )
    if version == "2.0":
        table = table.drop_columns("s")  # 2.0 has no null structs
    glaive.write_dataset(table, f"{tmp_path}/t", data_storage_version=version)
    code = f"""
import sys, glaive
d = glaive.dataset({f"{tmp_path}/t"!r})
for turn in range(7):
    d.update({{'n': 'n + 0'}}, where=f'n % 97 = {{turn}}')
    d.to_table(filter='b'); d.count_rows('b is null'); d.to_table(filter="d = 'w3' or f < 5")
    d.take([1, 700]); d.to_table(limit=10, offset=1000)
d.optimize.compact_files()
d.to_table()
print("pandas" in sys.modules)
"""
    assert run(code) == "False"


def test_filters_changes_indices_and_clean_ups_do_not_import_pandas(tmp_path: object) -> None:
    assert find_spec("pandas") is not None, "without pandas, this test cannot fail"
    numbers = range(2000)
    vectors = pa.array([float(n * 7919 % 997) for n in range(16000)], pa.float32())
    table = pa.table(
        {
            "n": numbers,
            "f": [n / 7 for n in numbers],
            "at": pa.array([n * 10**6 for n in numbers], pa.timestamp("us")),
            "l": [[n, 3] for n in numbers],
            "t": [f"word {n % 7}" for n in numbers],
            "z": [f"z{n % 7}" if n % 50 else None for n in numbers],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    glaive.write_dataset(table, f"{tmp_path}/t", max_rows_per_file=700)
    code = f"""
import sys, glaive
from datetime import timedelta
d = glaive.dataset({f"{tmp_path}/t"!r})
for call in {WITHOUT_PANDAS!r}:
    exec(call)
    if "pandas" in sys.modules:
        print(call)
        break
"""
    assert run(code) == ""
