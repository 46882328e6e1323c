"""Checks of what became of a simulated table.

Every version ever made is read again, also those that a clean-up deleted, and must follow from the
one before by the change whose manifest it is. See ``docs/reliability.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

from tests.kit.observe import expect, expect_equal
from tests.kit.simulation import Faults
from tests.proof.simulated.bases import based
from tests.proof.simulated.changes import Change
from tests.proof.simulated.clones import CLONES, SOURCE, check_sources
from tests.proof.simulated.contents import NOTHING, Columns, Contents, Expected, Rows
from tests.proof.simulated.frames import KEY_COLUMNS, pairs, schema_of, table
from tests.proof.simulated.indices import check_compacted, check_search
from tests.proof.simulated.places import Place
from tests.proof.simulated.rows import FragmentRows, rows_of_fragments
from tests.proof.simulated.steps import check_contents, check_lineage, expected_after

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.version import OpenedVersion
from glaive.errors import StoreError
from glaive.format.manifest import Feature, Manifest
from glaive.format.transaction import Transaction
from glaive.scan.snapshot import Session
from glaive.table.load import load_manifest, open_latest, read_transaction
from glaive.table.references import FileSet, files_of
from glaive.table.versions import ManifestLocation, list_versions

_KNOWN: dict[tuple[bytes, bytes], FragmentRows] = {}
"""Rows of the fragments that all simulations begin with, by schema and message of the fragment."""

_COLUMNS: dict[bytes, Columns] = {}
"""The columns of a schema."""

_SEARCHED: set[bytes] = set()
"""Manifests that all simulations begin with, whose indices were searched."""

_MANIFESTS: dict[tuple[ManifestLocation, bytes], Manifest] = {}
"""Manifests that all simulations begin with, by place and content."""

_PAST = "memory://simulated/past"
"""Where all simulations are said to have been, so that what they begin with is opened once."""

_SESSION = Session(16 << 20, 16 << 20)
"""Opened files and indices of all simulations: no two of them write files of the same name."""

_ALWAYS = ("add column", "append", "overwrite", "prune", "publish", "restore", "upsert")
"""Kinds of changes that make a version whatever is there."""

_UNDONE = ("restore", "overwrite", "drop column", "rename column")
"""Kinds that make a new column undone."""

_SEVERAL = ("publish", "same rows")
"""Kinds that may end in an error after a commit: they are several commits, or go on after it."""

_HINT = "_versions/latest_version_hint.json"
_REPLACED = ("_refs/", _HINT, "tree/", f"{SOURCE}/_refs/", f"{SOURCE}/{_HINT}", f"{CLONES}/")
"""What may be replaced by other content: names, hints; other branches than the main one, clones."""


class OutsideOfAssumptionsError(Exception):
    """What happened is no fault: ``docs/reliability.md`` assumes that it does not happen."""


class History:
    """All versions of a table, and the changes that made them.

    Parameters
    ----------
    place
        Where the table is, after the simulation.
    changes
        What the actors did.
    first
        The newest version before that.
    faults
        What may have happened to requests.

    Raises
    ------
    OutsideOfAssumptionsError
        A clean-up deleted a version while a request to make one of that number, or the same one
        once more, was under way.
    """

    def __init__(self, place: Place, changes: Sequence[Change], first: int, faults: Faults) -> None:
        self.place, self.changes, self.first, self.faults = place, changes, first, faults
        self.bucket = place.bucket
        self._known: dict[tuple[bytes, bytes], FragmentRows] = {}
        self.past = place.resurrected(_PAST).observed()
        self.store = place.observed()
        self.locations = {one.version: one for one in list_versions(self.past)}
        replaced = [path for path in self.bucket.replaced() if not path.startswith(_REPLACED)]
        replaced += [path for path in self._made_again() if path not in replaced]
        if replaced and all(map(self._is_outside_of_assumptions, replaced)):
            raise OutsideOfAssumptionsError(replaced)
        expect(not replaced, f"{replaced} were replaced by other objects")
        self.manifests = {number: self._manifest(one) for number, one in self.locations.items()}
        self.newest = max(self.manifests)
        self.contents = {number: self._contents(one) for number, one in self.manifests.items()}
        self.rows = {number: one.rows for number, one in self.contents.items()}
        self._transactions: dict[int, Transaction] = {}

    def _made_again(self) -> list[str]:
        """Manifests that were there, were deleted, and are there again, of whatever content."""
        paths = [one.path for one in self.locations.values()]
        again = self.bucket.written_again
        return [path for path in paths if any(deleted is not None for deleted, _ in again(path))]

    def _is_outside_of_assumptions(self, path: str) -> bool:
        """Whether a version was cleaned up while somebody was about to make one of that number."""
        newer = {one.version: one.path for one in self.locations.values()}
        number = next((one for one, name in newer.items() if name == path), None)
        again = self.bucket.written_again(path)
        return number is not None and all(
            deleted is not None
            and isinstance(change, Change)
            and change.first_began <= deleted
            and any(self.bucket.is_there(newer[one], deleted) for one in newer if one > number)
            for deleted, change in again
        )

    def _manifest(self, location: ManifestLocation) -> Manifest:
        if location.version > self.first:
            return load_manifest(self.past, location)
        key = location, self.past.get(location.path).to_pybytes()
        if key not in _MANIFESTS:
            _MANIFESTS[key] = load_manifest(self.past, location)
        return _MANIFESTS[key]

    def _contents(self, manifest: Manifest) -> Contents:
        """What a version holds."""
        schema = b"".join(field.SerializeToString() for field in manifest.wire.fields)
        if schema not in _COLUMNS:
            fields = [field for field in manifest.schema.fields if field.name not in KEY_COLUMNS]
            _COLUMNS[schema] = {field.name: (field.id, field.logical_type) for field in fields}
        return Contents(_COLUMNS[schema], self._rows(manifest, schema))

    def _rows(self, manifest: Manifest, schema: bytes) -> Rows:
        """The rows of a version; fragments that were read before are not read again."""
        keys = [(schema, raw) for raw in manifest.wire.fragments]
        kept = {key: _KNOWN.get(key) or self._known.get(key) for key in keys}
        unread = [at for at, key in enumerate(keys) if not kept[key]]
        if unread:
            known = _KNOWN if manifest.version <= self.first else self._known
            read = rows_of_fragments(self.past, manifest, schema, unread, _SESSION)
            for at, rows in read.items():
                kept[keys[at]] = known[keys[at]] = rows
        pairs = [pair for key in keys for pair in kept[key] or ()]
        found = dict(pairs)
        expect(
            len(found) == len(pairs), lambda: f"version {manifest.version} has a row twice: {pairs}"
        )
        ids = {row.row_id for row in found.values()}
        expect(
            len(ids) == len(pairs),
            lambda: f"version {manifest.version} has a row id twice: {pairs}",
        )
        return found

    def author(self, version: int) -> Change | None:
        """The change whose call made a version."""
        found = self.place.written_for(self.locations[version])
        return found if isinstance(found, Change) else None

    def check(self) -> None:
        """Check everything; raises ``AssertionError``."""
        expect_equal(sorted(self.manifests), list(range(self.place.oldest, self.newest + 1)))
        self.check_outcomes()
        for version in range(self.first + 1, self.newest + 1):
            self.check_step(version)
        self.check_fragment_ids()
        self.check_reads()
        self.check_what_remains()
        self.check_index()
        self.check_branches()
        check_sources(self.place, self.changes)

    # ------------------------------------------------------------------ outcomes

    def check_outcomes(self) -> None:
        """What was acknowledged is there, once; what was refused is not."""
        made: dict[int, list[int]] = {}
        jobs: dict[str, list[int]] = {}
        for version in range(self.first + 1, self.newest + 1):
            change = self.author(version)
            expect(change is not None, f"version {version} was made by nobody")
            assert change is not None
            if self._kind(version) == "reserve_fragments":
                continue
            made.setdefault(change.number, []).append(version)
            expect(version > change.since, (version, change))
            if change.job is not None:
                jobs.setdefault(change.job, []).append(version)
        for job, versions in jobs.items():
            expect(len(versions) == 1, f"{job} was committed as versions {versions}")
        for change in self.changes:
            versions = made.get(change.number, [])
            again = [
                one
                for before, one in pairwise(versions)
                # A restored version does not know that the change was made before.
                if not (
                    self._is_undone(change, versions[0], one) or self._is_next_pass(before, one)
                )
            ]
            expect(not again, f"{change} made versions {versions}")
            if change.outcome == "refused":
                expect(not versions, f"{change} was refused, and made version {versions}")
            if type(change.error) is StoreError and not change.retried:
                there = [] if change.kind in _SEVERAL else versions
                expect(not there, f"{change} said that there is no version, and made {there}")
            if change.outcome == "done" and not (versions or change.job in jobs):
                self._check_nothing_to_do(change)

    def _is_undone(self, change: Change, first: int, last: int) -> bool:
        """Whether another change between two versions made a change undone."""
        undone = _UNDONE if change.kind == "add column" else ("restore",)
        authors = map(self.author, range(first + 1, last))
        return any(other is not None and other.kind in undone for other in authors)

    def _is_next_pass(self, before: int, version: int) -> bool:
        """Whether a compaction merged what a pass of it had left, in a transaction made later."""
        made_for = self._transaction(version).read_version
        return {self._kind(before), self._kind(version)} == {"rewrite"} and made_for >= before

    def _check_nothing_to_do(self, change: Change) -> None:
        """A change that was acknowledged made no version: there was nothing to change."""
        message = f"{change} was acknowledged, and is not there"
        expect(
            change.kind not in ("append", "overwrite", "upsert", "restore", "prune", "publish"),
            message,
        )
        if change.kind in ("delete", "update"):
            rows, opened = self.rows[change.version], self.rows[change.since]
            same = [key for key in rows if key in opened and rows[key].value == opened[key].value]
            expect(not any(change.matches(key, rows[key].value) for key in same), message)

    def _transaction(self, version: int) -> Transaction:
        if version not in self._transactions:
            transaction = read_transaction(self.past, self.manifests[version])
            expect(transaction is not None, f"version {version} has no transaction")
            assert transaction is not None
            self._transactions[version] = transaction
        return self._transactions[version]

    def _kind(self, version: int) -> str:
        return self._transaction(version).operation.wire_name

    # --------------------------------------------------------------------- steps

    def check_step(self, version: int) -> None:
        """A version has the rows of the one before, changed as its change changes them."""
        if self._kind(version) == "rewrite":
            check_compacted(self.manifests[version - 1], self.manifests[version])
        change = self.author(version)
        assert change is not None
        before, after = self.contents[version - 1], self.contents[version]
        if change.kind == "same rows" or self._kind(version) == "reserve_fragments":
            expected = Expected(before.types, before.values)
        else:
            opened = self.contents.get(change.since, NOTHING)
            change.planned = self._transaction(version).read_version
            planned = self.contents.get(change.planned, opened)
            if change.planned_again:
                change.fields = [planned.columns[change.found][0]]
            expected = expected_after(change, before, opened, self.contents[self.place.oldest])
        check_contents(f"version {version} by {change}", expected, before, after)
        if self._stable and change.kind not in ("restore", "overwrite"):
            earlier = range(self.place.oldest, version)
            used = {row.row_id for number in earlier for row in self.rows[number].values()}
            check_lineage(version, expected, used, before.rows, after.rows)

    def check_fragment_ids(self) -> None:
        """A new fragment has a number that none had before."""
        used, before = set[int](), set[int]()
        for version in range(self.place.oldest, self.newest + 1):
            ids = set(self.manifests[version].fragment_ids.tolist())
            change = self.author(version) if version > self.first else None
            if change is None or change.kind != "restore":
                again = (ids - before) & used
                expect(not again, f"version {version} has numbers of fragments again: {again}")
            used, before = used | ids, ids

    @property
    def _stable(self) -> bool:
        return self.manifests[self.newest].uses(Feature.STABLE_ROW_IDS)

    # --------------------------------------------------------------------- reads

    def check_reads(self) -> None:
        """A reader saw one version, whole."""
        for change in self.changes:
            if change.kind == "read" and change.outcome == "done":
                rows = self.rows[change.version]
                every = sorted((key, row.value) for key, row in rows.items())
                expected = [pair for pair in every if change.matches(*pair)]
                expect(change.found == expected, f"{change} found {change.found} of {every}")

    def check_what_remains(self) -> None:
        """Clean-up deleted nothing that a remaining, tagged or newest version needs.

        Objects are never replaced by others, so what is there has the rows that were read from
        all that was ever written.
        """
        remaining = list_versions(self.store)
        expect_equal(max(one.version for one in remaining), self.newest)
        numbers = {one.version for one in remaining}
        there = {meta.path for meta in self.store.walk("")}
        files = files_of(self.manifests[self.newest])
        paths = {one.path for one in files if one.base_id is None and not one.is_folder}
        paths |= set(based(self.manifests[self.newest], self.bucket.uri))
        expect(paths <= there, f"version {self.newest} needs {paths - there}")
        deleted = [meta.path for meta in self.past.walk("") if meta.path not in there]
        for version in numbers if deleted else ():
            needed = FileSet.of([self.manifests[version]])
            needed.paths |= set(based(self.manifests[version], self.bucket.uri))
            lost = [path for path in deleted if path in needed]
            expect(not lost, f"version {version} remains, and {lost} were deleted")
        for name, tagged in self._tags():
            expect(tagged in numbers, f"{name} is of version {tagged}, which was cleaned up")

    def _tags(self) -> Iterator[tuple[str, int]]:
        """Tags, and the versions that they name; without those made while a clean-up ran.

        Requests of a killed clean-up may still be under way. A clean-up that does not see a tag,
        as the listing is stale, does not keep its version.
        """
        yield "origin", self.place.oldest
        for change in self.changes:
            if change.kind != "tag" or change.outcome != "done" or self._is_unsure(change):
                continue
            yield f"tag {change.number}", change.since

    def check_branches(self) -> None:
        """A branch, or a clone, has the rows of the version it was made from, and its own.

        Also after all rows of the main branch were replaced and its old versions cleaned up.
        """
        branches = [
            change
            for change in self.changes
            if change.kind in ("branch", "clone")
            and change.outcome == "done"
            and not self._is_unsure(change)
        ]
        if branches:
            place = self.place.copied()
            store = place.observed()
            opened = LanceDataset.of(store, open_latest(store))
            opened.insert(table({0: 0}, schema_of(opened)), mode="overwrite")
            opened.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
        for change in branches:
            if change.kind == "branch":
                made = opened.checkout_version((f"branch-{change.number}", None))
            else:
                store = place.observed(f"{CLONES}/{change.number}")
                made = LanceDataset.of(store, open_latest(store))
            found = pairs(made.to_table())
            expected = {key: row.value for key, row in self.rows[change.since].items() if key}
            expect_equal(found, sorted({**expected, **change.rows}.items()))

    def _is_unsure(self, change: Change) -> bool:
        """Whether a clean-up that may not have seen a name ran at the same time.

        Or whether a request that deleted it may have been carried out once more.
        """
        cleaned = (
            (other.began, other.ended if other.outcome == "done" else math.inf)
            for other in self.changes
            if other.kind == "clean-up"
        )
        unseen = self.faults.stale > 0 or (change.again and self.faults.repeat > 0)
        return unseen or any(
            began < change.ended and change.began < ended for began, ended in cleaned
        )

    def check_index(self) -> None:
        """Searches by indices of the newest version find what there is.

        What all simulations begin with is searched once. Files are those that were ever written:
        that none of them was deleted too early is checked beside.
        """
        manifest = self.manifests[self.newest]
        message = manifest.wire.SerializeToString()
        if not manifest.indices or message in _SEARCHED:
            return
        if self.newest == self.first:
            _SEARCHED.add(message)
        opened = LanceDataset.holding(OpenedVersion.of(self.past, manifest, session=_SESSION))
        check_search(opened, self.contents[self.newest])
