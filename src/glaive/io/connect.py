"""Open an object store by URI and options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import RLock
from typing import Any

from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, HTTPStore, MemoryStore, S3Store

from glaive.config import settings
from glaive.errors import GlaiveError, OptionError
from glaive.forks import renewed
from glaive.io.failures import first_line_of, from_object_store
from glaive.io.objectstore import ObjectStoreAdapter
from glaive.io.refusals import refusals
from glaive.io.request_limit import RequestLimit
from glaive.io.stats import IoCounters
from glaive.io.storage_options import Connection, StoreKind, read_options

__all__ = ["connect"]

_KINDS: Mapping[str, StoreKind] = {
    "s3": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "http",
    "memory": "memory",
}
_logger = logging.getLogger(__name__)
_CLASSES: Mapping[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_memories: dict[str, MemoryStore] = {}
_memories_lock = renewed(RLock())


def connect(uri: str, options: Mapping[str, str]) -> ObjectStoreAdapter:
    """Open ``scheme://bucket/prefix``; no request is made.

    ``memory://name`` is one store per name and process. No store here uses a user and password
    from the URI: they are removed, so that they appear in no message and no file.

    Raises
    ------
    OptionError
        An option has an invalid value.
    StoreError
        The store cannot be opened with these options.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    kind = _KINDS[scheme]
    if kind != "az" and "@" in bucket:  # Azure has the container there
        bucket = bucket.rpartition("@")[2]
        uri = f"{scheme}://{bucket}/{prefix}"
        public = GlaiveError.without_secrets(uri)
        _logger.warning("%s: the user before the host in the URI is not sent", public)
    connection = read_options(kind, options, uri=uri)
    if kind == "memory":
        with _memories_lock:
            store: Any = _memories.setdefault(bucket, MemoryStore())
    else:
        store = _remote(kind, f"{scheme}://{bucket}", uri, connection)
    return ObjectStoreAdapter(
        store,
        f"{scheme}://{bucket}",
        prefix,
        dict(options),
        download_retries=connection.download_retries,
        request_limit=RequestLimit(settings.io_concurrency),
        counters=IoCounters(),
        reopen=connect,
    )


def _remote(kind: StoreKind, root: str, uri: str, connection: Connection) -> Any:
    client = dict(connection.client)
    if root.startswith("http://"):
        client.setdefault("allow_http", "true")
    arguments: dict[str, Any] = {
        "client_options": client or None,
        "retry_config": dict(connection.retry),
    }
    if kind == "s3":
        from glaive.io.aws_keys import keys_without_token
        from glaive.io.aws_profile import profile_credentials

        provider = keys_without_token(connection.config) or profile_credentials(connection.config)
        if provider is not None:
            arguments["credential_provider"] = provider
    try:
        if kind == "http":
            return HTTPStore.from_url(root, **arguments)
        return _CLASSES[kind].from_url(root, config=dict(connection.config) or None, **arguments)
    except refusals() as error:
        given = {**connection.config, **connection.client}
        if isinstance(error, OSError):
            raise from_object_store(error, uri, "open", given) from None
        remedy = "" if isinstance(error, UnknownConfigurationKeyError) else ". Correct the value."
        raise OptionError(
            f"storage_options for {uri}: {first_line_of(error, given)}{remedy}"
        ) from None
