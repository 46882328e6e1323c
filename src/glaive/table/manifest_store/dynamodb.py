"""A register of manifests in a DynamoDB table, compatible with other Lance implementations.

The table has the hash key ``base_uri`` (string) and the range key ``version`` (number). Both
``base_uri`` and ``path`` are keys within the bucket, without its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import RLock
from typing import Any
from urllib.parse import urlsplit

from glaive.errors import MissingDependencyError, OptionError, StoreError
from glaive.forks import renewed
from glaive.io.failures import first_line_of
from glaive.io.storage_options import check_address
from glaive.table.manifest_store.protocol import ManifestEntry

__all__ = ["DynamoManifestStore"]

_COMMITTER = "lancedb"
"""Value of the attribute ``committer``, required by the format."""

_CREDENTIALS = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region_name": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint_url": ("dynamodb_endpoint",),
}


class DynamoManifestStore:
    """Entries in one DynamoDB table, which can be shared by the datasets of a bucket.

    Parameters
    ----------
    table
        Name of the table, which must exist.
    options
        Storage options: ``aws_*`` credentials and region, ``dynamodb_endpoint``; otherwise the
        defaults of boto3.
    """

    __slots__ = ("options", "table")

    def __init__(self, table: str, options: Mapping[str, str] | None = None) -> None:
        self.table = table
        self.options = dict(options or {})

    def __repr__(self) -> str:
        return f"DynamoManifestStore({self.table!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (DynamoManifestStore, (self.table, self.options))

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """The entry of a version; ``None`` if there is none."""
        base = _key(root)
        key = {"base_uri": {"S": base}, "version": {"N": str(version)}}
        answer = self._request("get_item", Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return None if item is None else self._entry(base, item, version)

    def latest(self, root: str) -> ManifestEntry | None:
        """The entry with the highest version; ``None`` if there are no entries."""
        base = _key(root)
        answer = self._request(
            "query",
            KeyConditionExpression="base_uri = :base",
            ExpressionAttributeValues={":base": {"S": base}},
            ScanIndexForward=False,
            Limit=1,
            ConsistentRead=True,
        )
        items = answer.get("Items") or []
        return self._entry(base, items[0]) if items else None

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; ``False`` if the version has one."""
        return self._put(
            root, entry, "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
        )

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""
        if not self._put(root, entry, "attribute_exists(base_uri) AND attribute_exists(version)"):
            raise StoreError(
                f"the DynamoDB table {self.table} has no version {entry.version} of {root}: the "
                "entry was deleted during the commit."
            )

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any. One request per version."""
        base, last = _key(root), None
        while (entry := self.latest(root)) is not None:
            if last is not None and entry.version >= last:
                raise StoreError(
                    f"the DynamoDB table {self.table} has version {entry.version} of {root} after "
                    "it was deleted. Check whether somebody writes to the dataset, then try again."
                )
            last = entry.version
            key = {"base_uri": {"S": base}, "version": {"N": str(entry.version)}}
            self._request("delete_item", Key=key)

    def _put(self, root: str, entry: ManifestEntry, condition: str) -> bool:
        base = _key(root)
        item = {
            "base_uri": {"S": base},
            "version": {"N": str(entry.version)},
            "path": {"S": f"{base}/{entry.path}" if base else entry.path},
            "committer": {"S": _COMMITTER},
        }
        if entry.size is not None:
            item["size"] = {"N": str(entry.size)}
        if entry.e_tag is not None:
            item["e_tag"] = {"S": entry.e_tag}
        answer = self._request("put_item", Item=item, ConditionExpression=condition)
        return answer.get("refused") is None

    def _entry(self, base: str, item: Any, wanted: int | None = None) -> ManifestEntry:
        """An entry as the server wrote it, with numbers as texts; of one version, if ``wanted``."""
        try:
            path = str(item["path"]["S"])
            version = int(item["version"]["N"])
            size = int(item["size"]["N"]) if "size" in item else None
            e_tag = str(item["e_tag"]["S"]) if "e_tag" in item else None
            if wanted not in (None, version):
                raise ValueError(version)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise StoreError(
                f"the DynamoDB table {self.table} has an invalid entry of {base}: {item!r:.200}"
            ) from None
        prefix = f"{base}/" if base else ""
        if not path.startswith(prefix):
            raise StoreError(
                f"the DynamoDB table {self.table} has a damaged entry: version {version} of {base} "
                f"at {path}, which is not below it."
            )
        return ManifestEntry(version=version, path=path[len(prefix) :], size=size, e_tag=e_tag)

    def _request(self, method: str, **request: Any) -> Mapping[str, Any]:
        client = self._connected()
        try:
            answer: Mapping[str, Any] = getattr(client, method)(TableName=self.table, **request)
        except client.exceptions.ConditionalCheckFailedException:
            return {"refused": True}
        except Exception as error:
            failed = StoreError(
                f"the DynamoDB table {self.table} failed: {first_line_of(error, self.options)}. "
                "Check its name, the credentials and the network, then try again."
            )
            failed.is_unanswered = _was_repeated(error)
            raise failed from None
        return answer

    def _connected(self) -> Any:
        """The cached client for these options, as creating one takes longer than a commit."""
        lower = {key.lower(): value for key, value in self.options.items()}
        given: dict[str, str] = {}
        for name, keys in _CREDENTIALS.items():
            value = next((lower[key] for key in keys if lower.get(key)), None)
            if value is not None:
                given[name] = value
        if "endpoint_url" not in given and os.environ.get("DYNAMODB_ENDPOINT"):
            given["endpoint_url"] = os.environ["DYNAMODB_ENDPOINT"]
        if "endpoint_url" in given:
            check_address(given["endpoint_url"], "the endpoint of DynamoDB")
        key = (os.getpid(), *sorted(given.items()))
        with _clients_lock:
            if key not in _clients:
                _clients[key] = _connect(given, self.table)
            return _clients[key]


_clients: dict[tuple[Any, ...], Any] = {}
"""Clients by process and options: usable by all threads, but not after a fork."""
_clients_lock = renewed(RLock())


def _connect(given: Mapping[str, str], table: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise MissingDependencyError(
            "manifests registered in DynamoDB need boto3: pip install 'glaive[aws-dynamodb]'"
        ) from None
    retries: Any = {"max_attempts": 4, "mode": "standard"}
    try:
        session = boto3.session.Session()
        return session.client("dynamodb", config=Config(retries=retries), **given)
    except Exception as error:
        raise OptionError(
            f"the DynamoDB table {table} cannot be reached: {error} Give aws_region and "
            "credentials in storage_options or the environment."
        ) from None


def _was_repeated(error: Any) -> bool:
    """Whether no answer came, or one to a repeated request: an earlier one may be under way."""
    answer = getattr(error, "response", None)
    return not answer or answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


def _key(root: str) -> str:
    """Key of a dataset within its bucket."""
    return urlsplit(root).path.strip("/") if "://" in root else root.strip("/")
