"""Values of blobs behind links of a file system that fsspec opens."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.strangers import SECRET

import glaive
from glaive.errors import AccessError

from .test_blob_references import READS, rows

pytest.importorskip("fsspec")
from tests.distant import DISTANT  # as fsspec is there

LOCAL = "fsspec+file://{}"
"""What fsspec calls a directory of this machine, which is no place of fsspec."""

PLACES = (DISTANT, f"fsspec+{DISTANT}", LOCAL, "local://{}")

NOT_FETCHED = r"(\. It was not fetched: .* is a link\.|, which leads to .* by a link\. It was not)"

THROUGH = {"storage_options": {"delete_through_links": "true"}}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-26", "rel-46", "sec-5")
@pytest.mark.parametrize("size", [120_000, 6_000_000])
@pytest.mark.parametrize("opened", PLACES)
def test_a_blob_file_that_is_a_link_is_not_read(
    opened: str, size: int, tmp_path: Path, key: Path
) -> None:
    key.write_bytes(SECRET * (size // len(SECRET) + 1))
    where = tmp_path / "d"
    glaive.write_dataset(rows([b"v" * size]), where)
    uri = opened.format(where)
    assert glaive.dataset(uri).read_blobs("b", indices=[0]) == [(0, b"v" * size)]
    (link,) = (where / "data").rglob("*.blob")
    link.unlink()
    link.symlink_to(key)
    for read in READS.values():
        with pytest.raises(AccessError, match=r"column 'b': .*\.blob was not read: .*is a link"):
            read(glaive.dataset(uri), 0)
    assert glaive.dataset(uri, **THROUGH).read_blobs("b", indices=[0]) == [
        (0, key.read_bytes()[:size])
    ]


@pytest.mark.spec("rel-26", "rel-45", "sec-5")
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("linked", ["own", "own/id_rsa"])
@pytest.mark.parametrize("opened", [DISTANT, LOCAL])
def test_a_reference_leads_nowhere_through_a_link(
    opened: str, linked: str, listed: bool, tmp_path: Path, key: Path
) -> None:
    where = tmp_path / "d"
    media = tmp_path / "media" if listed else where
    (media / linked).parent.mkdir(parents=True)
    target = key if linked.endswith("rsa") else key.parent
    (media / linked).symlink_to(target, target_is_directory=target.is_dir())
    (media / "plain").write_bytes(b"plain")
    uris = [opened.format(media / name) for name in ("own/id_rsa", "plain")]
    uri = opened.format(where)
    glaive.write_dataset(rows(uris), uri, allow_external_blob_outside_bases=True)
    allowed: dict[str, Any] = {"allow_external_blobs": [opened.format(media)]} if listed else {}
    dataset = glaive.dataset(uri, **allowed)
    assert dataset.read_blobs("b", indices=[1]) == [(1, b"plain")]
    for _ in range(2):
        with pytest.raises(AccessError, match=f"own/id_rsa'{NOT_FETCHED}"):
            dataset.read_blobs("b", indices=[0])


@pytest.mark.parametrize(("opened", "whole"), [(DISTANT, "/"), (DISTANT, ""), (LOCAL, "/")])
def test_values_of_a_whole_file_system_may_be_allowed(
    opened: str, whole: str, tmp_path: Path
) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "plain").write_bytes(b"plain")
    (tmp_path / "link").symlink_to(tmp_path / "media", target_is_directory=True)
    where = opened.format(tmp_path / "d")
    uris = [opened.format(tmp_path / name / "plain") for name in ("media", "link")]
    glaive.write_dataset(rows(uris), where, allow_external_blob_outside_bases=True)
    dataset = glaive.dataset(where, allow_external_blobs=[opened.format(whole)])
    assert dataset.read_blobs("b", indices=[0, 1]) == [(0, b"plain"), (1, b"plain")]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-26", "rel-46", "sec-5")
@pytest.mark.parametrize("named", ["nothing", "dataset", "base", "above"])
@pytest.mark.parametrize("linked", ["own", "own/deep"])
@pytest.mark.parametrize("opened", [DISTANT, LOCAL])
def test_a_base_path_that_is_a_link_leads_to_no_other_files(
    opened: str, linked: str, named: str, tmp_path: Path, key: Path
) -> None:
    """Names of values below a base path do not have that of the base path, or of folders above."""
    where, base = tmp_path / "d", opened.format(tmp_path / "d/own/deep")
    uri = opened.format(where)
    (where / "own" / "deep").mkdir(parents=True)
    glaive.write_dataset(
        rows([f"{base}/{key.name}"]), uri, initial_bases=[glaive.DatasetBasePath(base, id=7)]
    )
    (where / "own" / "deep" / key.name).write_bytes(b"plain")
    assert glaive.dataset(uri).read_blobs("b", indices=[0]) == [(0, b"plain")]
    shutil.rmtree(where / "own")
    (where / linked).parent.mkdir(exist_ok=True)
    (where / linked).symlink_to(key.parent, target_is_directory=True)
    if linked == "own":
        (key.parent / "deep").symlink_to(key.parent, target_is_directory=True)
    places = {"nothing": None, "dataset": uri, "base": base, "above": opened.format(tmp_path)}
    place = places[named]
    ways: list[dict[str, Any]] = [{}]
    if place is not None:
        ways = [{"allow_external_blobs": [place]}, {"base_store_params": {place: {}}}]
    for way in ways:
        dataset = glaive.dataset(uri, **way)
        # The caller trusts what is there; where links of this machine lead is known.
        if named == "base" or (named == "above" and opened == LOCAL):
            assert dataset.read_blobs("b", indices=[0]) == [(0, SECRET)]
            continue
        for read in READS.values():
            with pytest.raises(AccessError, match=NOT_FETCHED):
                read(dataset, 0)
