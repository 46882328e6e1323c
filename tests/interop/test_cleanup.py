"""Old versions go with the files only they have; both libraries leave the same."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CleanupError, OptionError
from glaive.io.local import LocalStore
from glaive.table.configuration import duration
from glaive.testing import CountingStore

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

NOW = timedelta(0)
OLD = 8 * 24 * 3600


def files(path: str) -> set[str]:
    found = Path(path).rglob("*")
    return {one.relative_to(path).as_posix() for one in found if one.is_file()}


def versions(path: str) -> list[int]:
    return [one["version"] for one in lance.dataset(path).versions()]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Five versions: two overwrites, appends, a deletion and an index by pylance."""
    uri = str(tmp_path / "d")
    lance.write_dataset(pa.table({"a": range(100)}), uri)
    dataset = lance.write_dataset(pa.table({"a": range(100)}), uri, mode="overwrite")
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 10")
    lance.write_dataset(pa.table({"a": [1]}), uri, mode="append")
    return uri


POLICIES: list[dict[str, Any]] = [
    {"older_than": NOW},
    {},
    {"retain_versions": 2},
    {"retain_versions": 9},
    {"older_than": timedelta(days=1), "retain_versions": 1},
    {"older_than": NOW, "retain_versions": 3},
    {"versions": [1, 3]},
    {"versions": [5, 99]},
    {"versions": [1], "older_than": timedelta(days=1)},
    {"older_than": NOW, "delete_unverified": True},
]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_both_remove_the_same(path: str, tmp_path: Path, policy: dict[str, Any]) -> None:
    other = str(tmp_path / "other")
    shutil.copytree(path, other)
    theirs = lance.dataset(other).cleanup_old_versions(**policy)
    told = glaive.dataset(path).explain_cleanup_old_versions(**policy)
    mine = glaive.dataset(path).cleanup_old_versions(**policy)
    assert files(path) == files(other)
    assert told.stats == mine
    for name in (
        "bytes_removed",
        "old_versions",
        "data_files_removed",
        "transaction_files_removed",
        "deletion_files_removed",
    ):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert lance.dataset(path).to_table() == glaive.dataset(path).to_table()
    for version in versions(path):
        lance.dataset(path, version=version).to_table()


@pytest.mark.spec("clean-2")
def test_what_is_kept_can_still_be_used(path: str) -> None:
    before = lance.dataset(path).to_table(filter="a = 50").to_pylist()
    glaive.dataset(path).cleanup_old_versions(NOW)
    dataset = lance.dataset(path)
    assert versions(path) == [5]
    assert dataset.to_table(filter="a = 50").to_pylist() == before
    assert "ScalarIndexQuery" in dataset.scanner(filter="a = 50").explain_plan()


@pytest.mark.spec("clean-1")
def test_this_version_and_newer_ones_stay(path: str) -> None:
    glaive.dataset(path, version=3).cleanup_old_versions(NOW)
    assert versions(path) == [3, 4, 5]


def test_a_tagged_version_is_an_error_or_kept(path: str) -> None:
    dataset = glaive.dataset(path)
    dataset.tags.create("keep", 2)
    before = files(path)
    with pytest.raises(CleanupError, match=r"'keep' \(version 2\)"):
        dataset.cleanup_old_versions(NOW)
    assert files(path) == before
    dataset.cleanup_old_versions(NOW, error_if_tagged_old_versions=False)
    assert versions(path) == [2, 5]
    assert glaive.dataset(path, version="keep").count_rows() == 100


def test_a_version_that_a_branch_was_made_from_stays(path: str) -> None:
    branch = lance.dataset(path).create_branch("dev", 2)
    branch.insert(pa.table({"a": [7]}))
    glaive.dataset(path).cleanup_old_versions(NOW)
    assert versions(path) == [2, 5]
    assert glaive.dataset(path, version=("dev", None)).count_rows() == 101
    glaive.dataset(path, version=("dev", None)).cleanup_old_versions(NOW)
    assert lance.dataset(path).checkout_version(("dev", None)).count_rows() == 101
    assert versions(path) == [2, 5]


UUID = "d18587f8-5bb1-4d1d-9140-7d304a689779"
STEM = "0" * 12 + "1" * 12 + "0123456789abcdef0123456789"
LEFTOVERS = [
    f"data/{STEM}.lance",
    f"data/{STEM}/{'1000' * 8}.blob",
    "data/.mine.lance.0123456789abcdef.tmp",
    "_deletions/0-1-5.arrow",
    "_deletions/0-1-6.bin",
    f"_transactions/4-{UUID}.txn",
    f"_versions/18446744073709551600.manifest-{UUID}",
    "_indices/f3b0c9a2-9d46-4d0c-8a86-0d6f61a3c111/page_data.lance",
]
NOT_OURS = [
    "notes.txt",
    "data/notes.txt",
    "data/notes.lance",
    "data/0101.lance",
    "data/0101/1000.blob",
    f"data/{STEM}/notes.blob",
    f"data/{STEM}/deeper/{'1000' * 8}.blob",
    "data/sub/notes.lance.bak",
    "data/.notes.txt.0123456789abcdef.tmp",
    "data/.vimrc.tmp",
    "_deletions/notes.arrow",
    "_transactions/4-mine.txn",
    "_versions/notes",
    "_versions/notes.manifest",
    "_versions/notes.manifest-1",
    f"_versions/{UUID}.manifest-{UUID}",
    "_indices/mine/page_data.lance",
    f"_indices/{UUID}/notes.txt",
    f"_indices/{UUID}/deeper/page_data.lance",
    f"_indices/{UUID}.lance",
]


@pytest.fixture
def littered(path: str) -> str:
    """With files that failed writers left, and some that have nothing to do with it."""
    for name in LEFTOVERS + NOT_OURS:
        file = Path(path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return path


@pytest.mark.spec("clean-3")
@pytest.mark.spec("clean-4")
def test_files_of_failed_writers_go_after_a_week(littered: str) -> None:
    before = files(littered)
    glaive.dataset(littered).cleanup_old_versions()
    assert files(littered) == before
    old = time.time() - OLD
    for name in LEFTOVERS[:4] + NOT_OURS:
        os.utime(Path(littered) / name, (old, old))
    glaive.dataset(littered).cleanup_old_versions()
    assert files(littered) == before - set(LEFTOVERS[:4])


def test_files_of_failed_writers_go_when_nobody_writes(littered: str) -> None:
    before = files(littered)
    found = glaive.dataset(littered).explain_cleanup_old_versions(
        delete_unverified=True, include_files=True
    )
    assert {one.path for one in found.candidate_files} == set(LEFTOVERS)
    assert all(one.unverified for one in found.candidate_files)
    glaive.dataset(littered).cleanup_old_versions(delete_unverified=True)
    assert files(littered) == before - set(LEFTOVERS)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("tags.create('new', 1)", r"_refs/tags/new\.json\.tmp\.[0-9a-f]{32}#1"),
        ("tags.update('kept', 1)", r"_refs/tags/\.tmp[0-9A-Za-z]{6}"),
    ],
)
@pytest.mark.spec("clean-4")
def test_what_a_killed_pylance_leaves_of_a_tag_goes_after_a_week(
    path: str, call: str, name: str
) -> None:
    """It is killed by the first byte that it writes: no file may have any."""
    lance.dataset(path).tags.create("kept", 5)
    before = files(path)
    script = f"""
import lance, resource, signal
dataset = lance.dataset({path!r})
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
dataset.{call}
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -signal.SIGXFSZ
    left = {one for one in files(path) - before if one.startswith("_refs/")}
    assert [re.fullmatch(name, one) is not None for one in left] == [True]
    glaive.dataset(path).cleanup_old_versions()
    assert left <= files(path)
    for one in left:
        os.utime(Path(path, one), (time.time() - OLD, time.time() - OLD))
    glaive.dataset(path).cleanup_old_versions()
    assert files(path).isdisjoint(left)
    assert list(lance.dataset(path).tags.list()) == ["kept"]


def test_files_are_listed_up_to_a_limit(path: str) -> None:
    dataset = glaive.dataset(path)
    found = dataset.explain_cleanup_old_versions(NOW, include_files=True, max_files=2)
    assert len(found.candidate_files) == 2
    assert found.candidate_files_truncated
    assert [one.kind for one in found.candidate_files] == ["manifest", "manifest"]
    assert dataset.explain_cleanup_old_versions(NOW).candidate_files == []


@pytest.mark.spec("clean-5")
def test_a_clean_up_that_fails_leaves_no_version_without_its_files(path: str) -> None:
    for at in range(6):
        store = CountingStore(LocalStore(path))
        plan = glaive.dataset(path).explain_cleanup_old_versions(NOW, include_files=True)
        manifests = [one.path for one in plan.candidate_files if one.kind == "manifest"]
        others = [one.path for one in plan.candidate_files if one.kind != "manifest"]
        if not manifests:
            break
        store.delete([*manifests, *others][: at + 1])
        for version in versions(path):
            lance.dataset(path, version=version).to_table()
            glaive.dataset(path, version=version).to_table()


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ({"retain_versions": 0}, "retain_versions"),
        ({"versions": []}, "versions"),
        ({"older_than": 3}, "older_than"),
        ({"delete_rate_limit": 0}, "delete_rate_limit"),
    ],
)
def test_what_cannot_be_asked_is_refused(path: str, policy: dict[str, Any], what: str) -> None:
    before = files(path)
    with pytest.raises(OptionError, match=what):
        glaive.dataset(path).cleanup_old_versions(**policy)
    assert files(path) == before


@pytest.mark.nightly(reason="waits for seconds")
def test_deleting_can_be_slowed_down(path: str) -> None:
    began = time.monotonic()
    removed = glaive.dataset(path).cleanup_old_versions(NOW, delete_rate_limit=4)
    assert removed.old_versions == 4
    assert time.monotonic() - began >= 0.9


class TestOnCommit:
    """A table's configuration asks for a clean-up every so many versions."""

    @pytest.mark.sampled(every=4)
    @pytest.mark.parametrize(
        "config",
        [
            {"interval": "3", "older_than": "0s"},
            {"interval": "2", "older_than": "0s", "retain_versions": "4"},
            {"interval": "2", "retain_versions": "2"},
            {"interval": "2"},
            {"interval": "1", "older_than": "1h 30m"},
            {"interval": "0", "older_than": "0s"},
            {"older_than": "0s"},
        ],
        ids=str,
    )
    def test_both_leave_the_same_versions(self, tmp_path: Path, config: dict[str, str]) -> None:
        seen: list[list[list[int]]] = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(pa.table({"a": [1]}), path)
            keys = {f"lance.auto_cleanup.{key}": value for key, value in config.items()}
            lance.dataset(path).update_config(keys)
            seen.append([])
            for at in range(7):
                library.dataset(path).insert(pa.table({"a": [at]}))
                seen[-1].append(versions(path))
        assert seen[0] == seen[1]

    @pytest.mark.parametrize("seconds", [0, 5, 90, 3600, 1_209_600, 40_000_001])
    def test_it_is_set_when_a_dataset_is_made(self, tmp_path: Path, seconds: int) -> None:
        configs = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            options = {"interval": 2, "older_than_seconds": seconds}
            library.write_dataset(pa.table({"a": [1]}), path, auto_cleanup_options=options)
            configs.append(lance.dataset(path).config())
        assert configs[0] == configs[1]

    def test_it_is_switched_on_and_off(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        dataset = glaive.write_dataset(pa.table({"a": [1]}), path)
        dataset.optimize.enable_auto_cleanup({"interval": 2, "older_than_seconds": 3600})
        assert lance.dataset(path).config() == {
            "lance.auto_cleanup.interval": "2",
            "lance.auto_cleanup.older_than": "3600s",
        }
        dataset.optimize.disable_auto_cleanup()
        assert lance.dataset(path).config() == {}
        with pytest.raises(OptionError, match="'often'"):
            dataset.optimize.enable_auto_cleanup({"often": 2})

    @pytest.mark.parametrize(
        "options", [{"interval": 0}, {"interval": "3"}, {"often": 3}, {"older_than_seconds": -1}]
    )
    def test_what_cannot_be_is_refused(self, tmp_path: Path, options: Any) -> None:
        with pytest.raises(OptionError, match="auto_cleanup_options"):
            glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "d", auto_cleanup_options=options)
        assert not (tmp_path / "d").exists()

    @pytest.mark.parametrize("entry", [("older_than", "soon"), ("interval", "often")])
    def test_a_wrong_entry_does_not_fail_the_commit(
        self, tmp_path: Path, entry: tuple[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        path = str(tmp_path / "d")
        dataset = glaive.write_dataset(pa.table({"a": [1]}), path)
        dataset.update_config({"lance.auto_cleanup.interval": "1"})
        dataset.update_config({f"lance.auto_cleanup.{entry[0]}": entry[1]})
        assert "were not cleaned up" in caplog.text
        assert dataset.version == 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("14d", 14 * 86400),
        ("1h 30m", 5400),
        ("0s", 0),
        ("5", 5),
        ("1d2h", 93600),
        ("2weeks", 1209600),
    ],
)
def test_time_spans(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", " ", "soon", "5 parsecs", "-1d", "1h-", "9" * 400 + "y"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(OptionError, match="time span"):
        duration(text)


def test_branches_that_keep_versions_are_told_as_in_pylance(tmp_path: Path) -> None:
    place, row = str(tmp_path / "d"), pa.table({"a": [1]})
    dataset = lance.write_dataset(row, place)
    for _ in range(4):
        dataset.insert(row)
    one = dataset.create_branch("one", 2)
    one.insert(row)
    two = one.create_branch("two")
    two.insert(row)
    dataset.create_branch("four", 4)
    dataset.create_branch("five", 5)
    ages: list[dict[str, Any]] = [
        {"older_than": timedelta(0)},
        {"older_than": timedelta(0), "retain_versions": 3},
        {"versions": [1, 3]},
        {"versions": [2]},
        {"older_than": timedelta(days=1)},
    ]
    found = []
    for branch in (None, "one", "two"):
        for given in ages:
            told = [
                {
                    (one.name, one.referenced_version, one.cleanup_candidate)
                    for one in library.dataset(place)
                    .checkout_version((branch, None))
                    .explain_cleanup_old_versions(error_if_tagged_old_versions=False, **given)
                    .referenced_branches
                }
                for library in (glaive, lance)
            ]
            assert told[0] == told[1]
            found.append(len(told[0]))
    assert found == [4, 2, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
