"""What objects are reached by: sessions use what they keep again only where it is the same."""

from __future__ import annotations

from collections.abc import Mapping

from glaive.io.access import ExpiringOptions, RenewedStore, open_store
from glaive.process import now_ns

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}


def test_times_until_which_credentials_are_valid_are_no_part_of_them() -> None:
    store = open_store("s3://bucket/t", KEYS)
    later = open_store("s3://bucket/t", KEYS | {"expires_at_millis": "1", "checksums": "false"})
    same = open_store("s3://bucket/t", KEYS | {"expires_at_millis": "2", "checksums": "false"})
    assert store.reached_by != later.reached_by == same.reached_by


def test_passwords_of_urls_are_part_of_what_objects_are_reached_by() -> None:
    first, second, third = (
        open_store(f"fsspec+memory://joe:{password}@host/t").reached_by
        for password in ("one", "two", "one")
    )
    assert first == third != second


def test_a_store_with_newer_credentials_is_reached_as_before() -> None:
    """What was read with the first ones is used with those that the catalogue gives later."""
    soon = {"expires_at_millis": str(now_ns() // 1_000_000 + 1000)}

    def renew() -> Mapping[str, str]:
        return KEYS | {"aws_access_key_id": "c", "expires_at_millis": str(2**52)}

    store = RenewedStore("s3://bucket/t", ExpiringOptions(KEYS | soon, renew))
    before = store.reached_by
    assert store.options["aws_access_key_id"] == "c"
    assert store.reached_by == before
    assert RenewedStore("s3://bucket/t", ExpiringOptions(renew(), renew)).reached_by != before
