"""The name of the application that a stream is: the id of its query."""

from __future__ import annotations

import json
from collections.abc import Mapping

from glaive.errors import GlaiveError, OptionError
from glaive.io.uri import open_store

__all__ = ["application_id"]

_CHECKPOINT = "checkpointlocation"


def application_id(
    given: str | None, options: Mapping[str, str], storage: Mapping[str, str]
) -> str:
    """The option ``txnAppId``, or the id of the query, which its checkpoint keeps.

    A query that starts with a new checkpoint has another id, so its batches are not taken for
    those of the query that wrote before.

    Parameters
    ----------
    options
        All options of the sink; Spark adds the location of the checkpoint if the query names it.
    storage
        Settings of the object store of the dataset, for a checkpoint beside it.

    Raises
    ------
    OptionError
        There is neither, or the checkpoint cannot be read from here.
    """
    if given is not None:
        return given
    lowered = {key.lower(): value for key, value in options.items()}
    location = lowered.get(_CHECKPOINT)
    if not location:
        raise OptionError(
            "the sink needs .option('checkpointLocation', ...) of the query, or 'txnAppId', a name "
            "that stays the same when the query starts again: batches are recognised by it"
        )
    if location.startswith("file:/"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    try:
        content = json.loads(
            open_store(location, dict(storage) or None).get("metadata").to_pybytes()
        )
        return f"query {content['id']}"
    except (GlaiveError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(
            f"the id of the query cannot be read from its checkpoint {location} ({error}). Give "
            "the sink option txnAppId: a name that stays when the query starts again, and "
            "changes when it starts with a new checkpoint"
        ) from error
