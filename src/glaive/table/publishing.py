"""Publish a branch: its newest version becomes the next version of the branch it was made from.

The next version has no trace of the branch: its files have been copied beside those of the target,
and references to the target's root by a base path have become those of its own files. So the branch
can go on, be cleaned up, or be deleted.

Specification: "Publishing" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import field, replace
from operator import itemgetter
from typing import Any, Final

from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.format.fragment import FragmentList, encode_lists
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation, Transaction
from glaive.format.wire import parse
from glaive.io.location import Location
from glaive.io.store import ObjectStore
from glaive.table.fragment_ids import copy_of
from glaive.table.index_coverage import encode_indices
from glaive.table.named_jobs import renumber
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import BuildContext, Conflict, Draft, needs_dataset

PUBLISHED: Final = "glaive.published"
"""Property of the transaction: what was published, as JSON."""


@dataclass(frozen=True, slots=True)
class Published:
    """What was published of a branch so far; the last commit of it records this.

    Parameters
    ----------
    branch, identity
        Its name, and what tells it from an earlier branch of this name.
    steps
        For each time: the version of the branch, and the version that was made. The first pair is
        the version from which the branch was made, twice.
    """

    branch: str
    identity: str
    steps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, transaction: Transaction | None) -> Published | None:
        """What a transaction published, if it did."""
        text = None if transaction is None else transaction.properties.get(PUBLISHED)
        try:
            branch, identity, steps = json.loads(text or "null")
            pairs = tuple((a, b) for a, b in steps)
        except (TypeError, ValueError, RecursionError):  # none, or written by another tool
            return None
        numbers = [number for pair in pairs for number in pair]
        if not numbers or any(type(one) is not int or not 0 < one < 2**64 for one in numbers):
            return None
        return cls(str(branch), str(identity), pairs)

    def text(self) -> str:
        """As it is recorded."""
        return json.dumps([self.branch, self.identity, self.steps])

    @property
    def version(self) -> int:
        """The version of the branch that was published last, or from which it was made."""
        return self.steps[-1][0]

    def then(self, version: int, made: int) -> Published:
        """The same with one version more."""
        return replace(self, steps=(*self.steps, (version, made)))

    def counterpart(self, version: int) -> int:
        """The number that a version of the branch, or one before it was made, has here."""
        if version <= self.steps[0][0]:
            return version
        at = bisect_left(self.steps, version, key=itemgetter(0))
        return self.steps[min(at, len(self.steps) - 1)][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Overwrite):
    """Replace everything by the contents of a version of a branch; :meth:`of` makes it.

    Others see an overwrite. Unlike that, it keeps indices, ids and lineage, and conflicts with
    every other commit.

    Parameters
    ----------
    source
        The version of the branch.
    own
        Base paths of it that are the root of the target.
    before
        What was published before.
    """

    source: Manifest = field(compare=False, repr=False)
    own: frozenset[int]
    before: Published

    @classmethod
    def of(cls, source: Manifest, own: frozenset[int], before: Published) -> Publish:
        """The operation for a version of a branch."""
        return cls(fragments=(), schema=source.schema, source=source, own=own, before=before)

    def encode(self) -> list[bytes]:
        """Parts of an overwrite with the fragments, as the target has them."""
        source = self.source
        rest = table_pb2.Transaction.Overwrite(
            schema=source.schema.to_wire(),
            schema_metadata=source.schema.metadata,
            config_upsert_values=source.config,
        )
        return [encode_lists(FragmentList(self._moved())), rest.SerializeToString()]

    def _moved(self) -> Iterator[bytes]:
        for at in range(self.source.num_fragments):
            self._move(fragment := self.source.fragment_wire(at))
            yield fragment.SerializeToString()

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with everything: the branch does not have what was committed since."""
        return Conflict("the branch does not have this version", retryable=False)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The version of the branch, on top of ``base``."""
        base, source = needs_dataset(base, "publish a branch"), self.source
        wire = copy_of(source)
        wire.ClearField("branch")
        if base.wire.branch:
            wire.branch = base.wire.branch
        kept = [path for path in wire.base_paths if path.id not in self.own]
        del wire.base_paths[:]
        wire.base_paths.extend(kept)
        if base.max_fragment_id >= 0:
            wire.max_fragment_id = max(wire.max_fragment_id, base.max_fragment_id)
        wire.next_row_id = max(wire.next_row_id, base.wire.next_row_id)
        known = self.before.then(source.version, context.version)
        renumber(wire, known.counterpart)
        for at in range(source.num_fragments):
            fragment = source.fragment_wire(at)
            self._renumber(fragment, known)
            self._move(fragment)
            wire.fragments[at] = fragment.SerializeToString()
        entries = []
        for entry in source.indices:
            changed = table_pb2.IndexMetadata()
            changed.CopyFrom(entry)
            self._come_home(changed)
            changed.dataset_version = known.counterpart(changed.dataset_version)
            entries.append(changed)
        return Draft(wire, encode_indices(entries))

    def _move(self, fragment: table_pb2.DataFragment) -> None:
        """Make references to the root of the target those of its own files."""
        for file in fragment.files:
            self._come_home(file)
        if fragment.HasField("deletion_file"):
            self._come_home(fragment.deletion_file)

    def _come_home(self, file: Any) -> None:
        if file.HasField("base_id") and file.base_id in self.own:
            file.ClearField("base_id")

    def _renumber(self, fragment: table_pb2.DataFragment, known: Published) -> None:
        """Give versions of the branch in the lineage the numbers that they have in the target.

        Raises
        ------
        UnsupportedFeatureError
            The lineage is in a file.
        """
        is_new = not all(file.HasField("base_id") for file in fragment.files)
        for kind in ("created_at", "last_updated_at"):
            if is_new and fragment.HasField(_in_column(kind)):
                raise UnsupportedFeatureError(
                    f"fragment {fragment.id} of {self.source.where} has row versions in a file, "
                    "which cannot become those of another branch. Compact the branch first"
                )
            name = f"inline_{kind}_versions"
            data: bytes = getattr(fragment, name)
            if not data:
                continue
            where = f"row versions of fragment {fragment.id} of {self.source.where}"
            sequence = parse(table_pb2.RowDatasetVersionSequence(), data, "row versions", where)
            numbers = [known.counterpart(run.version) for run in sequence.runs]
            if any(run.version != new for run, new in zip(sequence.runs, numbers, strict=True)):
                for run, number in zip(sequence.runs, numbers, strict=True):
                    run.version = number
                setattr(fragment, name, sequence.SerializeToString())


def _in_column(kind: str) -> Any:
    return f"column_{kind}_versions"


def root_bases(source: Manifest, target: ObjectStore) -> frozenset[int]:
    """Ids of the base paths of a branch that are the root of the one it was made from."""
    home = Location.parse(target.uri)
    return frozenset(
        base.id
        for base in source.wire.base_paths
        if base.is_dataset_root and Location.parse(base.path) == home
    )
