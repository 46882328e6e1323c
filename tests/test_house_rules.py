"""The rules of this house that no linter knows. Each failure says what to do."""

from __future__ import annotations

import ast
import importlib
import operator
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest
from tests.kit.trees import walk

import glaive.errors
from glaive.cli.main import COMMANDS
from glaive.config import Settings
from glaive.dataset.pylance_members import ArrowNamed, PylanceMembers
from glaive.encodings import registry
from glaive.encodings.array_encodings import ARRAYS
from glaive.types import FormatVersion

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PACKAGE = SRC / "glaive"
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"

MAX_LINES = 1000
LONGER: dict[str, str] = {
    "glaive/dataset/dataset.py": "signatures and docstrings of the one class that users look up"
}
"""Modules allowed to exceed ``MAX_LINES``: path below src, and why."""

MAX_BODY = 10
"""Lines of a public method of ``LanceDataset`` after its docstring."""


def generated(path: Path) -> bool:
    """Whether protoc wrote the file."""
    return "_pb2" in path.name


@cache
def sources() -> tuple[Path, ...]:
    """Return every module we wrote, in order."""
    return tuple(sorted(path for path in SRC.rglob("*.py") if not generated(path)))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's tree: most rules here look at each."""
    return tuple(walk(parse(path)))


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """Keep no trees afterwards: each collection of garbage would look at them."""
    yield
    for cached in (parse, nodes, imports, called):
        cached.cache_clear()


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def identifier(node: ast.expr) -> str:
    """Return the last part of a name: ``c`` for ``a.b.c``, else ``""``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@cache
def imports(tree: ast.AST) -> frozenset[str]:
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


# --- size and shape ---------------------------------------------------------------------


def test_a_module_fits_in_one_head() -> None:
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in sources()}
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert set(long) <= set(LONGER), f"split these, or say why not in LONGER: {long}"
    assert set(LONGER) <= set(long), "no longer over the limit: remove from LONGER"


def test_public_methods_of_the_dataset_only_delegate() -> None:
    tree = parse(PACKAGE / "dataset" / "dataset.py")
    (dataset,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    long = {}
    for method in dataset.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        body = method.body[1:] if ast.get_docstring(method) else method.body
        if body and (size := (body[-1].end_lineno or 0) - body[0].lineno + 1) > MAX_BODY:
            long[method.name] = size
    assert not long, f"move the work out of LanceDataset, over {MAX_BODY} lines: {long}"


def test_the_dataset_is_one_class() -> None:
    own, *others = glaive.LanceDataset.__mro__
    assert (own, others) == (glaive.LanceDataset, [PylanceMembers, ArrowNamed, object])
    assert set(vars(ArrowNamed)) <= {"__module__", "__doc__", "__dict__", "__weakref__"}


def test_all_lists_what_a_module_offers() -> None:
    wrong = []
    for path in sources():
        tree = parse(path)
        offered, listed = set(), None
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                offered.add(node.name)
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                if identifier(target) == "__all__":
                    listed = set(ast.literal_eval(node.value))  # type: ignore[attr-defined]  # only assignments have targets
        missing = {name for name in offered if not name.startswith("_")} - (listed or set())
        if listed is not None and missing:
            wrong.append(f"{name_of(path)}: {', '.join(sorted(missing))}")
    assert not wrong, "public names missing from __all__ (or give them a leading _):\n" + "\n".join(
        wrong
    )


def test_every_public_name_can_be_had_and_is_documented() -> None:
    page = (DOCS / "guide" / "api.md").read_text("utf-8")
    for name in glaive.__all__:
        assert hasattr(glaive, name)
        assert f"`glaive.{name}`" in page, f"docs/guide/api.md does not mention {name}"


PARSED_ELSEWHERE = {
    "glaive/format/wire.py": "callers catch, who know what it is",
    "glaive/file/v2/container.py": "the one caller catches, of a function that remembers",
    "glaive/file/v2/small_files.py": "the one caller catches, and reads the files one by one",
    "glaive/file/v2/writer.py": "bytes of a constant",
    "glaive/spark/writer.py": "what a task of this job sent",
    "glaive/table/fragment_ids.py": "a copy of a message in memory",
}
"""Modules that need not catch what they parse, and why."""


def _catches_decode_errors(node: ast.Try) -> bool:
    return any("DecodeError" in ast.unparse(handler.type or node) for handler in node.handlers)


def test_messages_that_cannot_be_parsed_are_damage() -> None:
    found = []
    for path in sources():
        if name_of(path) in PARSED_ELSEWHERE:
            continue
        guarded = {
            id(part)
            for node in nodes(path)
            if isinstance(node, ast.Try) and _catches_decode_errors(node)
            for statement in node.body
            for part in ast.walk(statement)
        }
        found += [
            f"{name_of(path)}:{node.lineno}"
            for node in nodes(path)
            if isinstance(node, ast.Attribute)
            and node.attr in {"FromString", "ParseFromString", "MergeFromString"}
            and id(node) not in guarded
        ]
    assert not found, f"catch DecodeError, and raise CorruptFileError: {found}"


# --- versions and registries --------------------------------------------------------------

FORMAT_VERSION = re.compile(r"(format|file|storage)_version|major|minor|V\d_\d|FormatVersion")
HAS_A_FORMAT_VERSION = re.compile(r"profile|footer|reader|writer")


def _compares_format_versions(node: ast.Compare) -> bool:
    if not any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
        return False
    for side in (node.left, *node.comparators):
        called = side.func if isinstance(side, ast.Call) else side
        if FORMAT_VERSION.fullmatch(identifier(called)):
            return True
        if isinstance(side, ast.Attribute) and side.attr == "version":
            return bool(HAS_A_FORMAT_VERSION.search(identifier(side.value)))
    return False


def test_nothing_asks_which_format_version_it_is() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources()
        if name_of(path) != "glaive/types.py" and "/spark/" not in name_of(path)
        for node in nodes(path)
        if isinstance(node, ast.Compare) and _compares_format_versions(node)
    ]
    assert not found, f"ask the profile for the permission instead: {found}"
    with pytest.raises(TypeError):
        assert FormatVersion(2, 1) < FormatVersion(2, 2)  # type: ignore[operator]  # it has none


_OF_STORES = re.compile(r"storage(_options)?|base_store_params|headers|client|conf(ig)?|given|own")


def test_representations_have_no_options_of_stores() -> None:
    """What somebody prints, or a debugger or a report of errors shows, has no credentials."""
    shown = [
        f"{name_of(path)}: {node.name}.{field.target.id}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(one).startswith("dataclass") for one in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if _OF_STORES.fullmatch(field.target.id)
        and re.search(r"Mapping\[str, (str|Any|Mapping)", ast.unparse(field.annotation))
        and "repr=False" not in ast.unparse(field)
    ]
    assert shown == ["glaive/table/operations/overwrite.py: Overwrite.config"]  # of a table


@pytest.mark.spec("rel-27")
def test_representations_have_no_uris_that_were_given() -> None:
    """They may have passwords or keys."""
    shown = [
        f"{name_of(path)}: {node.name}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(one).startswith("dataclass") for one in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "uri"
        if ast.unparse(field.annotation) == "str" and "repr=False" not in ast.unparse(field)
    ]
    assert not shown, f"add repr=False: {shown}"


EXPRESSIONS = sorted((PACKAGE / "expr").rglob("*.py"))
NO_ROWS = {"expr/constants.py": "the constants of an IN list"}
"""Where expressions make Python values of arrays that have no row each, and what these are."""


def test_expressions_step_from_row_to_row_in_one_place() -> None:
    lists = {
        path.relative_to(PACKAGE).as_posix(): path
        for path in EXPRESSIONS
        if "to_pylist" in called(parse(path))
    }
    assert set(lists) == {"expr/rows.py", *NO_ROWS}, "call map_rows of expr/rows.py"


@pytest.mark.parametrize("path", EXPRESSIONS, ids=name_of)
def test_what_steps_from_row_to_row_says_so(path: Path) -> None:
    tree = parse(path)
    steps = called(tree) & {"map_rows", "row_values"}
    words = " ".join((ast.get_docstring(tree) or "").lower().split())
    assert not steps or "row by row" in words or path.stem == "rows"


@pytest.mark.parametrize(
    ("classes", "folder", "page"),
    [
        (registry.VALUES, "values", "encodings.md"),
        (registry.PAGES, "pages", "pages.md"),
        (ARRAYS, "compressed_arrays", "arrays.md"),
        (registry.STRUCTURES, "plane_encodings", "planes.md"),
        (registry.PLANES, "plane_encodings", "planes.md"),
    ],
)
def test_everything_on_the_wire_is_documented(
    classes: dict[str, type], folder: str, page: str
) -> None:
    text = (DOCS / "format" / page).read_text("utf-8")
    known = registry.all_classes(classes, folder)
    missing = [wire_name for wire_name in known if f"| `{wire_name}` |" not in text]
    assert not missing, f"no row in docs/format/{page}"


@pytest.mark.parametrize("field", Settings.__dataclass_fields__)
def test_settings_are_documented(field: str) -> None:
    assert f"`GLAIVE_{field.upper()}`" in (DOCS / "guide" / "settings.md").read_text("utf-8")


def test_every_command_is_in_the_list() -> None:
    commands = {
        node.name
        for path in (PACKAGE / "cli").glob("*.py")
        for node in parse(path).body
        if isinstance(node, ast.FunctionDef)
        and {"command", "click.command", "click.group"}
        & {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
    }
    assert commands - {"cli"} == set(COMMANDS), "name it in _MODULES of glaive.cli.main"


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_documented(name: str) -> None:
    assert f"`glaive {name}" in (DOCS / "guide" / "commands.md").read_text("utf-8")


# --- kernels: checked wrapper, compiled kernel, NumPy reference of tests --------------------------

KERNELS = PACKAGE / "kernels"
MAX_NUMBERS = 10
COMPILED = sorted(path for path in (KERNELS / "loops").glob("*.py") if path.stem != "__init__")
WRAPPERS = sorted(
    path
    for path in KERNELS.glob("*.py")
    if "glaive.kernels.native import" in path.read_text("utf-8")
)

stem = operator.attrgetter("stem")


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in parse(path).body if isinstance(node, ast.FunctionDef)]


@cache
def called(function: ast.AST) -> frozenset[str]:
    calls = (node for node in walk(function) if isinstance(node, ast.Call))
    return frozenset(identifier(node.func) for node in calls)


def kernels_in(path: Path) -> list[ast.FunctionDef]:
    return [
        function
        for function in functions(path)
        if any(
            identifier(decorator.func if isinstance(decorator, ast.Call) else decorator)
            in ("kernel", "kernel_with_sums")
            for decorator in function.decorator_list
        )
    ]


def test_kernels_are_recognised() -> None:
    decorated = [path for path in COMPILED if "\n@kernel" in path.read_text("utf-8")]
    assert decorated
    assert all(map(kernels_in, decorated))


@pytest.mark.parametrize("module", COMPILED, ids=stem)
def test_every_kernel_is_called(module: Path) -> None:
    callees = set().union(*(called(parse(path)) for path in [*WRAPPERS, *COMPILED]))
    unused = {kernel.name for kernel in kernels_in(module)} - callees
    assert not unused, "no wrapper and no other kernel calls these: remove them"


@pytest.mark.parametrize("module", COMPILED, ids=stem)
def test_kernels_neither_raise_nor_allocate(module: Path) -> None:
    forbidden = {"empty", "zeros", "ones", "full", "arange", "array", "list", "dict", "allocate"}
    for kernel in kernels_in(module):
        assert not any(isinstance(node, ast.Raise | ast.Try) for node in ast.walk(kernel))
        assert not called(kernel) & forbidden, f"{kernel.name}: allocate in the wrapper"


@pytest.mark.parametrize(
    "module", [*WRAPPERS, *COMPILED], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_kernels_with_many_numbers_are_called_by_name(module: Path) -> None:
    """By a record that is unpacked, or by keyword: swapped addresses would go unnoticed."""
    kernels = {kernel.name for path in COMPILED for kernel in kernels_in(path)}
    for node in nodes(module):
        if isinstance(node, ast.Call) and identifier(node.func) in kernels:
            advice = f"{module.name}:{node.lineno}: make a record of glaive.kernels.records"
            assert len(node.args) <= MAX_NUMBERS, advice


def test_one_function_compiles_all_kernels() -> None:
    """numba's own compile signed arithmetic as if it never overflowed: see ``loops/build.py``."""
    for path in sources():
        compiles = called(parse(path)) & {"njit", "jit", "vectorize", "guvectorize"}
        assert not compiles or stem(path) == "memory", path


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=stem)
def test_addresses_are_taken_where_a_checked_build_sees_it(path: Path) -> None:
    taken = [node for node in nodes(path) if isinstance(node, ast.Attribute)]
    assert path.stem == "_addresses" or not any(
        node.attr in ("address", "ctypes", "__array_interface__") for node in taken
    ), "take addresses with _addresses.address"


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=stem)
def test_wrappers_import_their_kernels_late(path: Path) -> None:
    at_import = {
        found
        for node in parse(path).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for found in imports(node)
    }
    assert not any(found.startswith(("glaive.kernels.loops", "numba")) for found in at_import)


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=stem)
def test_every_wrapper_is_compared_with_its_reference(wrapper: Path) -> None:
    has_reference = (TESTS / "kernels" / "reference" / wrapper.name).exists()
    for path in (TESTS / "kernels").glob("test_*.py"):
        if dotted(wrapper) in imports(parse(path)) and (
            not has_reference or "force_tier(tier)" in path.read_text("utf-8")
        ):
            return
    pytest.fail(f"no test runs {dotted(wrapper)} under force_tier('numpy') and ('numba')")


# --- errors -------------------------------------------------------------------------------

LEAVES = [
    name for name in glaive.errors.__all__ if not getattr(glaive.errors, name).__subclasses__()
]


@cache
def built_in_sources() -> frozenset[str]:
    """Return the names of everything called in the sources, ``X`` for ``X.among(…)`` too."""
    found = set()
    for path in sources():
        if path.name == "errors.py":
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call):
                found.add(identifier(node.func))
                if isinstance(node.func, ast.Attribute):
                    found.add(identifier(node.func.value))
    return frozenset(found)


@cache
def expected_in_tests() -> frozenset[str]:
    """Return the names of all errors that some test expects."""
    return frozenset(
        name
        for path in TESTS.rglob("test_*.py")
        for errors in re.findall(r"\braises\(\s*\(?([\w.,|\s]+)", path.read_text("utf-8"))
        for name in re.findall(r"\w+", errors)
    )


@pytest.mark.parametrize("error", LEAVES)
def test_every_error_is_raised_and_expected(error: str) -> None:
    assert error in built_in_sources(), "nothing raises it: remove it"
    assert error in expected_in_tests(), "no test provokes it: write one"


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawing = glaive.errors.__doc__ or ""
    assert {name for name in glaive.errors.__all__ if name not in drawing} == set()


# --- imports ------------------------------------------------------------------------------

HEAVY = ("numba", "llvmlite", "pyspark", "obstore", "google.protobuf", "pandas", "rich", "click")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("glaive", HEAVY),
        ("glaive.cli.pipeline", ("numba", "pyspark")),
        ("glaive.spark", ("numba",)),
    ],
)
def test_importing_is_cheap(module: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_types_of_numbers_need_no_pandas() -> None:
    """Before pyarrow 26 ``to_pandas_dtype`` imports it, and it may not be installed."""
    found = [
        name_of(path)
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "to_pandas_dtype"
    ]
    assert found == []


PLAIN_DATA = ("arrow", "encodings", "file", "scan", "expr", "dataset")


def test_constants_for_nulls_need_no_pandas() -> None:
    """Arrow makes constants of Python values with ``pyarrow.scalar``, which imports pandas."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources()
        if path.parent.name in PLAIN_DATA or path.parent.parent.name in PLAIN_DATA
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "fill_null"
        and any(isinstance(argument, ast.Constant) for argument in node.args)
    ]
    assert not found, f"use glaive.arrow.conditions.filled: {found}"


def test_classes_compile_no_methods_while_modules_load() -> None:
    home = PACKAGE / "dataclass.py"
    found = [
        name_of(path)
        for path in sources()
        if path != home and "dataclasses.dataclass" in imports(parse(path))
    ]
    assert found == [], "use the decorator of glaive.dataclass"
    home = PACKAGE / "dataclass.py"
    standard = {"typing.NamedTuple", "collections.namedtuple"}
    found = [
        name_of(path)
        for path in sources()
        if path != home and standard.intersection(imports(parse(path)))
    ]
    assert found == [], "use that of glaive.dataclass"


def test_the_reference_implementation_is_for_tests_only() -> None:
    found = [
        name_of(path)
        for path in sources()
        if any(name.split(".")[0] == "lance" for name in imports(parse(path)))
    ]
    assert found == []


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Return what each module imports, at any place: late, and for types only, too."""
    names = {dotted(path).removesuffix(".__init__"): path for path in sources()}
    graph = {}
    for name, path in names.items():
        found = set()
        for node in nodes(path):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = [(node.module, f"{node.module}.{alias.name}") for alias in node.names]
                found |= {member if member in names else module for module, member in members}
        graph[name] = frozenset(found & names.keys() - {name})
    return graph


def test_no_modules_import_each_other() -> None:
    circle: list[str] = []
    try:
        TopologicalSorter(import_graph()).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert not circle, "move what both need into a module below"


@pytest.mark.slow
def test_layers_point_down() -> None:
    pytest.importorskip("importlinter", reason="install the 'lint' group")
    script = "from importlinter.cli import lint_imports_command as check; check(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


# --- texts --------------------------------------------------------------------------------

TEXTS = [
    *sorted(
        path
        for folder in ("src", "tests", "docs", "benchmarks", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".md", ".proto", ".svg"}
    ),
    *sorted(ROOT.glob("*.md")),
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
    ROOT / ".ci" / "run",
]


def test_no_path_of_one_machine() -> None:
    machine = re.compile("/" + "(home|root|Users|work|opt|private)" + r"/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if machine.search(line)
    ]
    assert found == []


def test_what_lies_in_the_root_belongs_there() -> None:
    """Logs of trials, and a dataset in the working directory, were committed once."""
    folders = {"benchmarks", "changes", "docs", "examples", "src", "tests", "tools"}
    known = {"LICENSE", "Makefile", *folders}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = {line.partition("/")[0] for line in listed.stdout.splitlines()} - known
    endings = (".md", ".toml", ".yml")
    assert [name for name in names if not name.startswith(".") and not name.endswith(endings)] == []


def test_exceptions_to_the_checks_give_their_reason() -> None:
    bare = re.compile(r"#\s*(type:\s*ignore(\[[\w, -]+\])?|noqa(:\s*[A-Z0-9, ]+)?)\s*$")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        if path.suffix == ".py" and not generated(path)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert not found, f"say why on the line, behind a second #: {found}"


def test_every_folder_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = {path.parent.relative_to(ROOT).as_posix() for path in sources()} - {
        "src",
        "src/glaive",
    }
    missing = sorted(folder for folder in folders if f"`{folder}/`" not in text)
    assert not missing, "say in ARCHITECTURE.md what these folders are for"


def test_the_map_names_each_folder_once_and_none_that_is_missing() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    tree = text.partition("## The tree")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in tree.splitlines() if line.startswith("| `")]
    named = Counter(name for cell in cells for name in re.findall(r"`([\w/]+/)`", cell))
    assert [name for name, times in named.items() if times > 1] == []
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_the_map_draws_the_layers_that_are_checked() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    drawing = text.partition("## Layers\n\n```\n")[2].partition("```")[0]
    # The names end where at least two blanks and their meaning begin, in column 43.
    drawn = [line[:43].split() for line in drawing.splitlines()]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (rows,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    checked = [re.findall(r"\w+", row) for row in rows if row != "(__main__)"]
    assert len(drawn) == len(checked)
    for names, row in zip(drawn, checked, strict=True):
        shown = set(names) - {"…"}
        assert shown <= set(row) if "…" in names else shown == set(row)


def test_modules_that_the_map_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = {path.parent.stem for path in sources()} - {"glaive", "src"}
    modules = {dotted(path).removeprefix("glaive.").removesuffix(".__init__") for path in sources()}
    shorter = {module.partition(".")[2] for module in modules}
    wrong = []
    for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", text):
        parts = name.split(".")
        if parts[0] not in folders:
            continue
        # ``a.b.C`` is a class of ``a.b``; folders of ``dataset`` are named without it.
        module = ".".join(part for part in parts if part[0].islower())
        members = [part for part in parts if not part[0].islower()]
        if module in modules | shorter:
            full = module if module in modules else f"dataset.{module}"
            found = importlib.import_module(f"glaive.{full}") if full in modules else None
            if found is None or all(hasattr(found, member) for member in members):
                continue
            wrong.append(name)
            continue
        owner, _, function = module.rpartition(".")
        owner = owner if owner in modules else f"dataset.{owner}"
        if owner in modules and hasattr(importlib.import_module(f"glaive.{owner}"), function):
            continue
        wrong.append(name)
    assert wrong == []


def test_every_decision_is_in_the_index() -> None:
    folder = DOCS / "adr"
    index = (folder / "README.md").read_text("utf-8")
    records = {path.name for path in folder.glob("[0-9]*.md")}
    listed = dict(re.findall(r"\((\d{4}-[\w-]+\.md)\) \| (.*?) \|", index))
    titles = {name: (folder / name).read_text("utf-8").partition("\n")[0] for name in records}
    assert listed == {name: title.partition(". ")[2] for name, title in titles.items()}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def names(needed: list[str]) -> set[str]:
        return {re.split(r"[^\w.-]", one)[0] for one in needed}

    def listed(table: str, column: int) -> set[str]:
        cells = [line.split("|")[column] for line in table.splitlines() if line.startswith("|")]
        return {name.strip(" `") for cell in cells[2:] for name in cell.split(",")}

    text = (DOCS / "adr" / "0008-dependencies.md").read_text("utf-8")
    base, extras = text.split("| extra |")
    assert listed(base, 2) == names(project["dependencies"])
    extras = "| extra |" + extras
    of_extras = [project["optional-dependencies"][extra] for extra in listed(extras, 1)]
    assert listed(extras, 2) <= {name for needed in of_extras for name in names(needed)}


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
    broken = [
        f"{path.relative_to(ROOT)} -> {target}"
        for path in TEXTS
        if path.suffix == ".md"
        for target in link.findall(path.read_text("utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def headings(text: str) -> list[str]:
    return [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]


def test_modules_cite_sections_that_exist() -> None:
    pages = {path.name: headings(path.read_text("utf-8")) for path in DOCS.glob("format/*.md")}
    cited = re.compile(r'((?:"[^"]+"(?:,| and)?\s+)+)in ``docs/format(?:/([\w.-]+))?``')
    missing = []
    for path in sources():
        text = re.sub("^# ?", "", path.read_text("utf-8"), flags=re.MULTILINE)
        for names, page in cited.findall(text):
            known = pages.get(page, []) if page else list(chain.from_iterable(pages.values()))
            missing += [
                f"{name_of(path)}: {name!r} in {page or 'any page'}"
                for name in re.findall(r'"([^"]+)"', names)
                if not any(name.lower() in heading for heading in known)
            ]
    assert not missing, "\n".join(missing)
