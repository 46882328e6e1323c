"""Tokenizers with dictionaries: known words, and what is said where their package is missing."""

from __future__ import annotations

import marshal
import sys
import tempfile
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glaive.errors import MissingDependencyError, OptionError, StoreError
from glaive.index.text.base_tokenizers import dictionary
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers import Tokenizer

PLAIN = {"stem": False, "remove_stop_words": False, "lower_case": False, "ascii_folding": False}


def tokens(text: str, base: str, **options: Any) -> list[tuple[str, int]]:
    params = TextParams.of({**PLAIN, "base_tokenizer": base, **options})
    return Tokenizer.of(params).tokens(text)


def words(text: str, base: str) -> list[str]:
    found = tokens(text, base)
    assert [position for _, position in found] == list(range(len(found)))
    return [token for token, _ in found]


# What pylance 14 answers.
SEGMENTS = [
    ("can't user_name e-mail 3.14", ["can't", "user_name", "e", "mail", "3.14"]),
    ("a:b U.S.A. www.x.com", ["a", "b", "U.S.A", "www.x.com"]),
    ("我是中国人\uff0c今天天气很好", ["我是", "中国人", "今天", "天气", "很好"]),
    ("これはテストです。", ["これ", "は", "テスト", "です"]),
    ("ภาษาไทยง่ายมาก", ["ภาษา", "ไทย", "ง่าย", "มาก"]),
    ("한국어 AI를 쓰다 3월", ["한국어", "AI를", "쓰다", "3월"]),
    ("x 😀 \u00bd _ __", ["x", "\u00bd"]),
]


@pytest.mark.parametrize(("text", "expected"), SEGMENTS, ids=[text for text, _ in SEGMENTS])
def test_segments_of_icu(text: str, expected: list[str]) -> None:
    pytest.importorskip("icu4py", reason="install the extra 'icu'")
    assert words(text, "icu") == expected


def test_segments_of_icu_are_split() -> None:
    pytest.importorskip("icu4py", reason="install the extra 'icu'")
    assert words("can't user_name U.S.A.", "icu/split") == [
        "can",
        "t",
        "user",
        "name",
        "U",
        "S",
        "A",
    ]
    assert words("我是中国人 ง่าย", "icu/split") == ["我是", "中国人", "ง", "าย"]


def test_words_of_jieba() -> None:
    pytest.importorskip("jieba", reason="install the extra 'jieba'")
    found = [("今天", 0), ("天天", 1), ("天气", 2), ("今天天气", 0), (" ", 4), ("C++", 5)]
    assert tokens("今天天气 C++", "jieba") == found


def test_words_of_dictionaries_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jieba", reason="install the extra 'jieba'")
    monkeypatch.setenv("LANCE_LANGUAGE_MODEL_HOME", str(tmp_path))
    words = "南京 50 n\n市长 60 n\n长江 70 n\n大桥 80 n\n"
    for name, files in {
        "own": {"dict.txt": words},
        "mine": {
            "config.json": '{"main": "../own/dict.txt", "users": ["mine.txt"]}',
            "mine.txt": "京市长江 9000000 n\n",
        },
        "broken": {"config.json": '{"users": ["absent.txt"]}', "dict.txt": words},
        "wrong": {"config.json": "[", "dict.txt": words},
    }.items():
        (tmp_path / "jieba" / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / "jieba" / name / file).write_text(text, "utf-8")

    def cut(name: str, text: str = "南京市长江大桥") -> list[str]:
        return [word for word, _ in tokens(text, f"jieba/{name}")]

    assert cut("own") == ["南京", "市长", "江", "大桥"]
    assert cut("own", "京市长江") == ["京", "市长", "江"]
    assert "京市长江" in cut("mine", "京市长江")
    for name in ("broken", "wrong"):
        with pytest.raises(StoreError, match=f"jieba/{name}"):
            cut(name)
    for name in ("absent", "..", "../jieba/own", "own/../own"):
        with pytest.raises(OptionError, match="Invalid directory path"):
            cut(name)


@pytest.mark.spec("rel-26")
def test_words_are_not_those_of_a_file_in_the_common_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jieba", reason="install the extra 'jieba'")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "jieba.cache").write_bytes(marshal.dumps(({"气今": 10**9, "气": 0}, 10**9)))
    dictionary.cache_clear()
    assert ("气今", 0) not in tokens("气今天", "jieba")
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]


class StandIn:
    """What jieba's tokenizer has of the words of a file, and does when it is first used."""

    initialized = False

    def get_dict_file(self) -> StringIO:
        return StringIO("the file of the package")

    def gen_pfdict(self, file: StringIO) -> tuple[dict[str, int], int]:
        return {file.read(): 3}, 3

    def initialize(self) -> None:
        raise AssertionError("it reads what it kept in the common temporary folder")


@pytest.mark.spec("rel-26")
def test_words_are_read_from_the_package_before_it_looks_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = SimpleNamespace(Tokenizer=StandIn, setLogLevel=lambda _: None)
    monkeypatch.setitem(sys.modules, "jieba", package)
    dictionary.cache_clear()
    made = dictionary()
    dictionary.cache_clear()
    assert (made.initialized, made.FREQ, made.total) == (True, {"the file of the package": 3}, 3)


@pytest.mark.parametrize(("base", "package"), [("icu", "icu4py"), ("jieba", "jieba")])
def test_a_missing_package_is_named(base: str, package: str) -> None:
    if package in sys.modules or _is_installed(package):
        assert tokens("word", base)
        return
    with pytest.raises(MissingDependencyError, match=rf"glaive\[{base}\]"):
        tokens("word", base)


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def test_lindera_is_not_supported() -> None:
    with pytest.raises(OptionError, match="not supported; there are"):
        tokens("word", "lindera/ipadic")
