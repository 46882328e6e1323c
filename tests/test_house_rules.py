"""The rules of this house that no linter knows. Each failure says what to do."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import glaive.errors
from glaive.config import Settings
from glaive.encodings.registry import page_layouts, value_encodings

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
PACKAGE = SRC / "glaive"
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"

MAX_LINES = 400
LONGER: dict[str, str] = {}
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


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def identifier(node: ast.expr) -> str:
    """Return the last part of a name: ``c`` for ``a.b.c``, else ``""``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# --- size and shape ---------------------------------------------------------------------


def test_a_module_fits_in_one_head() -> None:
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in sources()}
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert set(long) <= set(LONGER), f"split these, or say why not in LONGER: {long}"
    assert set(LONGER) <= set(long), "no longer over the limit: remove from LONGER"


def test_public_methods_of_the_dataset_only_delegate() -> None:
    tree = parse(PACKAGE / "dataset" / "dataset.py")
    (dataset,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "LanceDataset"
    )
    long = {}
    for method in dataset.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        body = method.body[1:] if ast.get_docstring(method) else method.body
        if body and (size := (body[-1].end_lineno or 0) - body[0].lineno + 1) > MAX_BODY:
            long[method.name] = size
    assert not long, f"move the work out of LanceDataset, over {MAX_BODY} lines: {long}"


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


@pytest.mark.parametrize("name", glaive.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(glaive, name) is not None


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
        if name_of(path) != "glaive/types.py"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Compare) and _compares_format_versions(node)
    ]
    assert not found, f"ask the profile for the permission instead: {found}"


@pytest.mark.parametrize("wire_name", value_encodings())
def test_value_encodings_are_documented(wire_name: str) -> None:
    assert f"| `{wire_name}` |" in (DOCS / "format" / "encodings.md").read_text("utf-8")


@pytest.mark.parametrize("wire_name", page_layouts())
def test_page_layouts_are_documented(wire_name: str) -> None:
    assert f"| `{wire_name}` |" in (DOCS / "format" / "pages.md").read_text("utf-8")


@pytest.mark.parametrize("field", Settings.__dataclass_fields__)
def test_settings_are_documented(field: str) -> None:
    assert f"`GLAIVE_{field.upper()}`" in (DOCS / "guide" / "settings.md").read_text("utf-8")


# --- kernels: door, twin, loop ------------------------------------------------------------

LOOPS = PACKAGE / "kernels" / "loops"
LOOP_MODULES = sorted(
    path.stem for path in LOOPS.glob("*.py") if path.stem not in {"__init__", "memory"}
)


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in parse(path).body if isinstance(node, ast.FunctionDef)]


def called(function: ast.AST) -> set[str]:
    return {identifier(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("name", LOOP_MODULES)
def test_every_loop_stands_behind_a_door(name: str) -> None:
    loops = functions(LOOPS / f"{name}.py")
    from_loops = set().union(*(called(loop) for loop in loops))
    door = (PACKAGE / "kernels" / f"{name}.py").read_text("utf-8")
    for loop in loops:
        assert any(identifier(mark) == "loop" for mark in loop.decorator_list), (
            f"{name}.{loop.name}: loops are module-level functions under @loop"
        )
        assert loop.name in from_loops or re.search(rf"\b{loop.name}\b", door), (
            f"{name}.{loop.name}: no door in glaive.kernels.{name} calls it"
        )


@pytest.mark.parametrize("name", LOOP_MODULES)
def test_loops_neither_raise_nor_allocate(name: str) -> None:
    tree = parse(LOOPS / f"{name}.py")
    forbidden = {"empty", "zeros", "ones", "full", "arange", "array", "list", "dict", "allocate"}
    assert not any(isinstance(node, ast.Raise | ast.Try) for node in ast.walk(tree))
    assert not called(tree) & forbidden, "allocate in the door and pass the address"


@pytest.mark.parametrize("name", LOOP_MODULES)
def test_doors_load_their_loops_late(name: str) -> None:
    body = parse(PACKAGE / "kernels" / f"{name}.py").body
    at_import = {
        found
        for node in body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for found in imports(node)
    }
    assert not any(found.startswith("glaive.kernels.loops") for found in at_import)


@pytest.mark.parametrize("name", LOOP_MODULES)
def test_warmup_can_exercise_every_door(name: str) -> None:
    assert callable(importlib.import_module(f"glaive.kernels.{name}").exercise)


@pytest.mark.parametrize("name", LOOP_MODULES)
def test_every_kernel_is_compared_with_its_twin(name: str) -> None:
    text = (TESTS / "kernels" / f"test_{name}.py").read_text("utf-8")
    assert "force_tier" in text, "run the doors under both tiers and compare"
    assert "numba" in text
    assert "numpy" in text


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
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call):
                found.add(identifier(node.func))
                if isinstance(node.func, ast.Attribute):
                    found.add(identifier(node.func.value))
    return frozenset(found)


@cache
def expected_in_tests() -> frozenset[str]:
    """Return the names of all errors that some test expects."""
    return frozenset(
        identifier(part)
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and identifier(node.func) == "raises"
        for argument in node.args
        for part in ast.walk(argument)
        if isinstance(part, ast.Name | ast.Attribute)
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


def test_importing_glaive_is_cheap() -> None:
    script = f"import sys, glaive; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_reference_implementation_is_for_tests_only() -> None:
    found = [
        name_of(path)
        for path in sources()
        if any(name.split(".")[0] == "lance" for name in imports(parse(path)))
    ]
    assert found == []


@pytest.mark.slow
def test_layers_point_down() -> None:
    pytest.importorskip("importlinter", reason="install the 'lint' group")
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


# --- texts --------------------------------------------------------------------------------

TEXTS = sorted(
    path
    for folder in ("src", "tests", "docs", "benchmarks", "tools", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyi", ".md", ".proto", ".toml", ".svg", ".sql"}
) + [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run", *sorted(ROOT.glob("*.md"))]


def test_no_path_of_one_machine() -> None:
    machine = re.compile("/" + "(home|root|Users|work|opt|private)" + r"/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if machine.search(line)
    ]
    assert found == []


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


def test_every_decision_is_in_the_index() -> None:
    folder = DOCS / "adr"
    index = (folder / "README.md").read_text("utf-8")
    records = {path.name for path in folder.glob("[0-9]*.md")}
    assert set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", index)) == records


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
