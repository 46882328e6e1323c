"""Rows that were written to data files but not committed, readable like a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glaive.dataset.writing.plan import WritePlan
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.finish_manifest import finish
from glaive.table.operations.overwrite import Overwrite
from glaive.table.protocol import BuildContext, CommitOptions

if TYPE_CHECKING:
    from glaive.format.pb import table_pb2

__all__ = ["staged_rows"]


def staged_rows(
    plan: WritePlan, fragments: Sequence[Fragment], bases: Sequence[table_pb2.BasePath] = ()
) -> Views:
    """The rows of uncommitted fragments, as a version with these rows only; nothing is written.

    Parameters
    ----------
    plan
        The plan by which they were written.
    bases
        Base paths of the dataset, where files may be.
    """
    context = BuildContext(1, CommitOptions(storage_version=plan.profile.version))
    operation = Overwrite(fragments=tuple(fragments), schema=plan.schema, base_paths=tuple(bases))
    draft = operation.apply(None, context)
    finish(draft, 1)
    manifest = Manifest(draft.wire, where=f"uncommitted files of {plan.store.uri}")
    return Views(Snapshot(plan.store, manifest, Session()))
