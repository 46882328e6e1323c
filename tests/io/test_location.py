"""Two spellings of one place are equal, and no two places are."""

from __future__ import annotations

from pathlib import Path

import pytest

from glaive.errors import OptionError
from glaive.io.location import Location, split_secret, with_secret


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a/b", "file:///a/b"),
        ("/a/b", "file://localhost/a/x/../b/"),
        ("/a b", "file:///a%20b"),
        ("/a b", "local:///a b"),
        ("/a%20b?c#d::e", "fsspec+file:///a%20b?c#d::e"),
        ("file:///a", "fsspec+LOCAL:///a/x/../"),
        ("/a", "fsspec+file:/a"),
        ("s3a://bucket/x/", "s3://bucket/x"),
        ("S3://bucket/x", "s3://bucket/x"),
        ("azure://container/x", "az://container/x"),
        ("HTTP://Host/x", "http://host:80/x"),
        ("https://host:443/x", "https://HOST/x"),
        ("sftp://host/x", "fsspec+sftp://host/x"),
    ],
)
def test_spellings_of_one_location_contain_each_other(one: str, other: str) -> None:
    first, second = Location.parse(one), Location.parse(other)
    assert first.contains(second)
    assert second.contains(first)
    assert first.below(second) == ""


@pytest.mark.parametrize(
    ("place", "below", "path"),
    [
        ("/a", "/a/b/c", "b/c"),
        ("/", "/a", "a"),
        ("s3://bucket", "s3://bucket/x/y", "x/y"),
        ("s3://bucket/x", "s3://bucket/x/y", "y"),
        ("http://host", "http://host:80/x", "x"),
        ("abfss://c@one.dfs.core.windows.net/x", "abfss://c@ONE.blob.core.windows.net/x/y", "y"),
    ],
)
def test_a_place_contains_what_lies_below_it(place: str, below: str, path: str) -> None:
    around, inner = Location.parse(place), Location.parse(below)
    assert around.contains(inner)
    assert around.below(inner) == path
    assert not inner.contains(around)


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ("/a", "/ab"),
        ("/a", "/a/../b"),
        ("/a", "file:///a/%2e%2e/b"),
        ("/a", "s3://a/a"),
        ("s3://bucket/x", "s3://bucket/xy"),
        ("s3://bucket/x", "s3://bucket/x/../y"),
        ("s3://bucket/x", "s3://bucket/x/%2E%2e/y"),
        ("https://host/x", "https://host/x/..;a/y"),
        ("s3://bucket", "s3://Bucket"),
        ("s3://bucket", "gs://bucket"),
        ("http://host", "https://host"),
        ("http://host", "http://host:81"),
        ("http://host", "http://host.evil"),
        ("http://host", "http://evil/host"),
        ("abfss://c@one.dfs.core.windows.net", "abfss://c@two.dfs.core.windows.net"),
        ("abfss://c@one.dfs.core.windows.net", "abfss://c@one.dfs.core.windows.net.evil"),
        ("abfss://c@one.dfs.core.windows.net", "abfss://d@one.dfs.core.windows.net"),
        ("abfss://c@one.dfs.core.windows.net", "abfss://c@one.dfs.fabric.microsoft.com"),
        ("sftp://host/x", "sftp://joe@host/x"),
        ("sftp://host/x", "simplecache::sftp://host/x"),
        ("sftp://host/x", "sftp://host/x::http://evil/x"),
    ],
)
def test_another_place_is_not_contained(place: str, other: str) -> None:
    assert not Location.parse(place).contains(Location.parse(other))


def test_users_and_passwords_are_no_part_of_a_location() -> None:
    given = Location.parse("https://joe:secret@host/x")
    assert given.user
    assert given.uri == "https://host/x"
    assert "secret" not in repr(given)
    assert Location.parse("https://host/x").contains(given)
    reached = Location.parse("sftp://joe:se@cret@host/x")
    assert (reached.user, reached.uri) == (True, "fsspec+sftp://joe@host/x")
    assert not Location.parse("abfss://c@one.dfs.core.windows.net").user


@pytest.mark.parametrize(
    "text",
    [
        "s3:///x",
        "s3://../x",
        "s3a://./x",
        "gs://../x",
        "az://../x",
        "abfss://..@account.dfs.core.windows.net/x",
        "http://good\\@evil/x",
        "http://good?@evil/x",
        "http://good#@evil/x",
        "http://go%6fd/x",
        "http://good\t.evil/x",
        "s3://good\nevil/x",
        "file://host/x",
        "/data/a\0b",
        "file:///data/a%00b",
        "file://[a/b",
        "file://a\uff0fb/c",
    ],
)
def test_what_not_everybody_reads_as_the_same_place_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^base path 1: "):
        Location.parse(text, "base path 1: ")


def test_a_tilde_is_an_ordinary_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("~/.ssh").path == f"{tmp_path}/~/.ssh"


def test_the_root_of_a_disk_is_told_from_other_directories() -> None:
    assert Location.parse("file:///").is_whole_disk
    assert Location.parse("/a/..").is_whole_disk
    assert not Location.parse("/a").is_whole_disk
    assert not Location.parse("s3://bucket").is_whole_disk


@pytest.mark.parametrize("uri", ["ftp://", "local:///", "ftp:///", "ftp://h/", "s3://b/", "/"])
def test_the_uri_of_a_location_leads_to_it(uri: str) -> None:
    """Permissions travel as URIs to the workers of a cluster."""
    location = Location.parse(uri)
    assert Location.parse(location.uri) == location


@pytest.mark.parametrize("uri", ["s3://key@/a", "http://joe@/a", "memory://a@"])
def test_a_user_is_no_bucket_or_host(uri: str) -> None:
    with pytest.raises(OptionError, match="expected a bucket or host after"):
        Location.parse(uri)


@pytest.mark.parametrize("user", ["", "joe", "joe@corp"])
@pytest.mark.parametrize("secret", ["s", "se@c:ret"])
def test_a_password_is_put_back_where_it_was(user: str, secret: str) -> None:
    uri = f"fsspec+ftp://{user}:{secret}@host:21/a@b/c:d@e"
    public, found = split_secret(uri)
    assert (public, found) == (f"fsspec+ftp://{user}@host:21/a@b/c:d@e", secret)
    assert with_secret(public, found) == uri
    assert split_secret(public) == (public, "")
    assert with_secret(public, "") == public
    given = Location.parse(uri)
    assert with_secret(given.uri, secret) == uri
