"""What the style rule of ``CONTRIBUTING.md`` counts, in documents, docstrings, comments and errors.

``python -m tests.docs.style`` prints the counts; with paths, each finding in these files.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.kit.trees import comments, nodes

ROOT = Path(__file__).resolve().parent.parent.parent
SRC = ROOT / "src"

PATTERNS = {
    "nor": r"\b[Nn]or\b|\b[Nn]either\b",
    "those of": r"\b[Tt]hose (?:of|that|which|who)\b|\bthat of\b",
    "one that": r"\b[Oo]ne (?:that|which)\b",
    "but for": r"\bbut for\b",
    "of which": r"\b(?:of|in|by|from|over|behind|before|after|under) (?:which|whose|whom)\b",
    "is none": r"\b(?:is|are|was|were) (?:none|no (?!longer|more|one))",
    "free subject": r"(?:(?<=[.:!?] )|^)(?:What|Who|Whoever)\b(?![^.!?]*\?)",
    "behind, beside": r"\b(?:behind|beside)\b",
}
"""What reads badly, by name; the rule says what to write instead."""

NEGATIONS = r"\b(?:no|not|none|nor|neither|never|without|cannot|nothing)\b|n't\b"
LONGEST = 25
"""Words of a sentence."""

OTHERS = ("long", "no imperative")
"""Sentences over ``LONGEST``; docstrings of functions that begin with a noun."""

STAND_INS = ("those of", "one that")
CHAINS = ("nor", "but for", "of which")

KINDS = {
    "notices": ["SECURITY.md", "docs/reliability.md"],
    "guides": ["README.md", "docs/index.md", "docs/guide/*.md", "docs/reference/*.md"],
    "project": ["CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "changes/*.md"],
    "decisions": ["docs/adr/*.md"],
    "format": ["docs/format/*.md"],
}
"""Documents by kind; ``docs/figures.md`` is generated."""

CODE = re.compile(r"``.+?``(?!`)|(?::\w+:)?`[^`]+`")

END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[A-Z`(\"']|(?:glaive|pylance|pyarrow|fsspec|sqlglot)\b)")
"""Where a sentence ends."""

GENERATED = ("figures.md",)
IN_CODE = ("docstrings", "comments", "errors")

NOUN = re.compile(
    r"\s*(?:An?|The|What|Whether|How|Where|Who\w*|All|Each|Every|Those|This|Its?|One)\b"
)
"""How docstrings of functions begin that are no imperatives."""


def documents(kind: str) -> list[Path]:
    """Return the documents of a kind."""
    found = (path for pattern in KINDS[kind] for path in sorted(ROOT.glob(pattern)))
    return [path for path in found if path.name not in GENERATED]


def plain(markdown: str) -> str:
    """Return the prose of a page: without code, targets of links and ids; a cell is a paragraph."""
    text = re.sub(r"^```.*?^```$", "\n", markdown, flags=re.MULTILINE | re.DOTALL)
    # The examples of the style rule show what to avoid.
    text = re.sub(r"^> Before:.*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*[^*\n]+[.?]\*\*", "", text, flags=re.MULTILINE)
    text = CODE.sub("CODE", text)
    text = re.sub(r"\{#[\w-]+\}|<[^>\n]+>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^#+ .*$|^\|[-:| ]+\|$", "\n", text, flags=re.MULTILINE)
    lines = (
        "\n\n" + line.strip("| ").replace("|", "\n\n") if line.startswith("|") else line
        for line in text.splitlines()
    )
    text = re.sub(r"^ *(?:[-*+]|\d+\.) ", "\n\n", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"[*_]{1,2}(\S[^*_]*)[*_]{1,2}", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Split paragraphs into sentences."""
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        yield from filter(None, END.split(joined))


def words(text: str) -> int:
    """Count words; a code span is one, and so is a list of code spans."""
    text = re.sub(r"CODE(?:(?:[,;/…]| and| or)*\s+CODE)+", "CODE", text)
    return len(re.findall(r"[A-Za-z][\w'-]*", text))


def findings(text: str) -> Iterator[tuple[str, str]]:
    """Find the patterns in plain text: the name of each and its sentence."""
    for sentence in sentences(text):
        for name, pattern in PATTERNS.items():
            for _ in re.finditer(pattern, sentence):
                yield name, sentence
        for _ in re.finditer(NEGATIONS, sentence, re.IGNORECASE):
            yield "negations", sentence
        if words(sentence) > LONGEST:
            yield "long", sentence


def parts_of_code(path: Path) -> dict[str, str]:
    """Return the docstrings, comments and error messages of a module, each a paragraph."""
    source = path.read_text("utf-8")
    found: dict[str, list[str]] = {kind: [] for kind in IN_CODE}
    for node in nodes(source):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            found["docstrings"] += filter(None, map(_bare_string, body))
        if isinstance(node, ast.Raise) and node.exc is not None:
            found["errors"].append(" ".join(_texts(node.exc)))
    block: list[str] = []
    last = 0
    for line, comment in comments(source):
        if not re.match(r"# *(?:type:|noqa)", comment):
            if line != last + 1:
                block.append("\n")
            block.append(comment.lstrip("#- "))
            last = line
    found["comments"] = ["\n".join(block)]
    return {kind: _plain_code("\n\n".join(texts)) for kind, texts in found.items()}


def nominal(path: Path) -> Iterator[str]:
    """Yield functions whose docstring begins with a noun; properties may."""
    for node in nodes(path.read_text("utf-8")):
        if isinstance(node, ast.FunctionDef) and NOUN.match(ast.get_docstring(node) or ""):
            marks = " ".join(map(ast.unparse, node.decorator_list))
            if "property" not in marks and "setter" not in marks:
                yield f"{node.name}:{node.lineno}"


def _bare_string(node: ast.AST) -> str | None:
    """Return the text of a docstring, that of an attribute too."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        text = node.value.value
        return inspect.cleandoc(text) if isinstance(text, str) else None
    return None


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the constant texts of an expression in order, and a word for each value."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.FormattedValue):
        yield "value"
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _plain_code(text: str) -> str:
    text = re.sub(r"::\n.*?(?=\n\S|\Z)", "\n", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(?:>>>|\.\.\.).*$", "\n", text, flags=re.MULTILINE)
    # A heading ends a sentence; the description of a parameter begins one after its name.
    text = re.sub(r"^\w+\n-{3,}$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)\S.*$(?=\n\1 {4}\S)", "\n\nCODE", text, flags=re.MULTILINE)
    text = CODE.sub("CODE", text)
    return re.sub(r"^ *(?:[-*+]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)


def sources() -> list[Path]:
    return sorted(path for path in SRC.rglob("*.py") if "_pb2" not in path.name)


def counts() -> dict[str, Counter[str]]:
    """Count patterns, negations, long sentences and words by kind of text."""
    found = {kind: Counter[str]() for kind in (*KINDS, *IN_CODE)}
    for kind in KINDS:
        for path in documents(kind):
            _count(found[kind], plain(path.read_text("utf-8")))
    for path in sources():
        for kind, text in parts_of_code(path).items():
            _count(found[kind], text)
        found["docstrings"]["no imperative"] += sum(1 for _ in nominal(path))
    return found


def _count(counter: Counter[str], text: str) -> None:
    counter.update(name for name, _ in findings(text))
    # Rates are those of prose alone: code spans do not count.
    counter["words"] += words(text.replace("CODE", ""))


def rates(counter: Counter[str]) -> dict[str, float]:
    """Return the four figures per 10,000 words."""
    sums = {
        "negations": counter["negations"],
        "stand-ins": sum(counter[name] for name in STAND_INS),
        "nor, but for, of which": sum(counter[name] for name in CHAINS),
        "free subjects": counter["free subject"],
    }
    return {name: round(1e4 * count / (counter["words"] or 1), 1) for name, count in sums.items()}


def show(paths: Iterable[Path]) -> None:
    """Print each finding in some files."""
    for path in paths:
        if path.suffix == ".md":
            parts = {"": plain(path.read_text("utf-8"))}
        else:
            parts = parts_of_code(path)
            for name in nominal(path):
                print(f"{path}: no imperative: {name}")
        counter = Counter[str]()
        for text in parts.values():
            _count(counter, text)
            for name, sentence in findings(text):
                if name != "negations":
                    print(f"{path}: {name}: {sentence}")
        print(f"{path}: {counter['words']} words, {rates(counter)}, {counter['long']} long")


def main() -> None:
    if paths := [Path(argument) for argument in sys.argv[1:]]:
        show(paths)
        return
    names = (*PATTERNS, *OTHERS, "negations", "words")
    print("\t".join(("", *names)))
    for kind, counter in counts().items():
        print("\t".join((kind, *(str(counter[name]) for name in names))))
        print(f"  {rates(counter)}")


if __name__ == "__main__":
    main()
