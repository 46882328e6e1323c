"""The objects of a simulated store, with their past, for listings that are not up to date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import ObjectExistsError
from glaive.io.store import ObjectMeta, ObjectStore, PutMode

__all__ = ["Bucket"]


@dataclass(frozen=True, slots=True)
class _Object:
    """Content of an object, when it was written, and for what; no content: it was deleted."""

    data: pa.Buffer | None
    moment: float
    doing: object = None


def _differ(past: list[_Object]) -> bool:
    """Whether an object has had different contents."""
    contents = [state.data for state in past if state.data is not None]
    return any(not contents[0].equals(content) for content in contents[1:])


class Bucket:
    """Objects by path. Each change has a moment; each change is atomic.

    Parameters
    ----------
    uri
        Where the store is said to be.
    careless
        Whether ``put`` replaces what is there although it should not: no store for a table, but
        one that a test must notice.
    """

    def __init__(self, uri: str, *, careless: bool = False) -> None:
        self.uri, self.careless = uri, careless
        self._objects: dict[str, list[_Object]] = {}

    @classmethod
    def of(cls, store: ObjectStore) -> Bucket:
        """The objects of another store, as if they had been there for long."""
        bucket = cls(store.uri)
        for meta in store.walk(""):
            bucket.put(meta.path, store.get(meta.path).to_pybytes(), "overwrite", 0.0)
        return bucket

    def copied(self, uri: str, *, careless: bool = False) -> Bucket:
        """The same objects in another place, as if they had been there for long."""
        other = Bucket(uri, careless=careless)
        other._objects = {
            path: [past[-1] if past[-1].moment == 0.0 else replace(past[-1], moment=0.0)]
            for path, past in self._objects.items()
        }
        return other

    def get(self, path: str) -> pa.Buffer | None:
        """The content now."""
        past = self._objects.get(path)
        return None if past is None else past[-1].data

    def put(
        self, path: str, data: bytes, mode: PutMode, moment: float, doing: object = None
    ) -> None:
        """Write an object; an empty one does not count as existing."""
        before = self.get(path)
        if mode == "create" and before is not None and before.size and not self.careless:
            raise ObjectExistsError(f"{self.uri}/{path} exists already. Choose another name.")
        written = _Object(pa.py_buffer(data), moment, doing)
        self._objects[path] = [*self._objects.get(path, ()), written]

    def delete(self, path: str, moment: float, doing: object = None) -> None:
        """Delete an object, if there is one."""
        past = self._objects.get(path)
        if past is not None and past[-1].data is not None:
            self._objects[path] = [*past, _Object(None, moment, doing)]

    def resurrected(self, uri: str) -> Bucket:
        """What was ever written, each object as it was last."""
        other = Bucket(uri)
        other._objects = {
            path: [next(state for state in reversed(past) if state.data is not None)]
            for path, past in self._objects.items()
        }
        return other

    def replaced(self) -> list[str]:
        """Paths of objects that had several contents."""
        return [path for path, past in self._objects.items() if len(past) > 1 and _differ(past)]

    def written_again(self, path: str) -> list[tuple[float | None, object]]:
        """For what an object was written after the first time.

        Each with the moment when the one before was deleted; ``None``: it was still there, with
        other content. The same content once more does not count.
        """
        return [
            (old.moment if old.data is None else None, new.doing)
            for old, new in pairwise(self._objects.get(path, ()))
            if new.data is not None and (old.data is None or not old.data.equals(new.data))
        ]

    def is_there(self, path: str, moment: float) -> bool:
        """Whether there was such an object at a moment."""
        states = [state for state in self._objects.get(path, ()) if state.moment <= moment]
        return bool(states) and states[-1].data is not None

    def summary(self) -> list[tuple[str, list[tuple[float, int | None]]]]:
        """Moments and sizes of all changes, by path."""
        return [
            (path, [(s.moment, None if s.data is None else s.data.size) for s in past])
            for path, past in sorted(self._objects.items())
        ]

    def written_for(self, path: str) -> object:
        """What an object was first written for; others may have written the same again."""
        return self._objects[path][0].doing

    def authors(self) -> Iterator[tuple[str, list[object]]]:
        """For what each object was written, written again, and deleted."""
        for path, past in self._objects.items():
            yield path, [state.doing for state in past]

    def walk(self, prefix: str, moment: float | None = None) -> Iterator[ObjectMeta]:
        """Objects below a prefix as they are, or were at a moment, in name order."""
        start = f"{prefix}/" if prefix else ""
        for path in sorted(path for path in self._objects if path.startswith(start)):
            seen = next(
                (
                    state
                    for state in reversed(self._objects[path])
                    if moment is None or state.moment <= moment
                ),
                None,
            )
            if seen is not None and seen.data is not None:
                yield ObjectMeta(path, seen.data.size, datetime.fromtimestamp(seen.moment, UTC))
