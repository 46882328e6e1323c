"""Facts of the tables of a directory namespace: schema, counts, indices, tags, branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import lance_namespace as interface
import numpy as np

from glaive.format.json_schema import schema_to_json
from glaive.namespace.errors import InvalidInputError, TableTagNotFoundError, as_namespace_errors
from glaive.namespace.identifiers import id_of, text_of, value
from glaive.namespace.pages import page_of

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["TableFacts"]

_SMALL = 100_000
"""Rows below which a fragment counts as small, as in pylance."""


class TableFacts(ABC):
    """Operations that tell; a part of :class:`DirectoryNamespace`."""

    @abstractmethod
    def _open(self, request: object) -> LanceDataset:
        """Implemented by the namespace of which this is a part."""

    def _facts(self, opened: LanceDataset) -> dict[str, Any]:
        """Version, schema and counts of a table, as ``describe_table`` tells them."""
        stats = opened.stats.dataset_stats()
        metadata = {key: str(text) for key, text in opened.get_version()["metadata"].items()}
        return {
            "version": opened.version,
            "var_schema": schema_to_json(opened.schema),
            "stats": {key: stats[key] for key in ("num_deleted_rows", "num_fragments")},
            "metadata": metadata,
        }

    def get_table_stats(self, request: Any) -> interface.GetTableStatsResponse:
        """Rows, bytes, indices, and how many rows fragments have."""
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            rows = [fragment.count_rows() for fragment in opened.get_fragments()]
            size = sum(field.bytes_on_disk for field in opened.stats.data_stats().fields)
            indices = len(opened.describe_indices())
        lengths = np.asarray(rows or [0], np.int64)
        points = np.percentile(lengths, [25, 50, 75, 99], method="lower").astype(int).tolist()
        summary = dict(zip(("p25", "p50", "p75", "p99"), points, strict=True))
        summary |= {
            "min": int(lengths.min()),
            "max": int(lengths.max()),
            "mean": int(lengths.mean()),
        }
        fragments = {
            "num_fragments": len(rows),
            "num_small_fragments": sum(count < _SMALL for count in rows),
            "lengths": summary,
        }
        answer: dict[str, Any] = {
            "total_bytes": size,
            "num_rows": sum(rows),
            "num_indices": indices,
            "fragment_stats": fragments,
        }
        return interface.GetTableStatsResponse(**answer)

    # ------------------------------------------------------------ indices

    def list_table_indices(self, request: Any) -> interface.ListTableIndicesResponse:
        """All indices."""
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            rows = opened.count_rows()
            found: list[Any] = [
                {
                    "index_name": index.name,
                    "index_uuid": index.segments[0].uuid,
                    "columns": index.field_names,
                    "status": "SUCCEEDED",
                    "index_type": index.index_type,
                    "type_url": index.type_url,
                    "num_indexed_rows": index.num_rows_indexed,
                    "num_unindexed_rows": max(0, rows - index.num_rows_indexed),
                    "size_bytes": index.total_size_bytes,
                    "num_segments": len(index.segments),
                }
                for index in opened.describe_indices()
            ]
        names, token = page_of([index["index_name"] for index in found], request)
        listed = [index for index in found if index["index_name"] in names]
        return interface.ListTableIndicesResponse(indexes=listed, page_token=token)

    def describe_table_index_stats(self, request: Any) -> interface.DescribeTableIndexStatsResponse:
        """Covered and uncovered rows of an index."""
        name = value(request, "index_name")
        if not name:
            raise InvalidInputError(
                "index_name: describe_table_index_stats needs the name of an index"
            )
        with as_namespace_errors(_name(request)):
            stats = self._open(request).stats.index_stats(name, 0)
        return interface.DescribeTableIndexStatsResponse(
            index_type=stats.get("index_type"),
            num_indexed_rows=stats.get("num_indexed_rows"),
            num_unindexed_rows=stats.get("num_unindexed_rows"),
            num_indices=stats.get("num_indices"),
        )

    # ------------------------------------------------------------ tags and branches

    def list_table_tags(self, request: Any) -> interface.ListTableTagsResponse:
        """All tags, with the versions they name."""
        with as_namespace_errors(_name(request)):
            found = self._open(request).tags.list()
        names, token = page_of(sorted(found), request)
        tags: Any = {
            name: {
                "branch": found[name].get("branch"),
                "version": found[name]["version"],
                "manifestSize": found[name].get("manifest_size") or 0,
            }
            for name in names
        }
        return interface.ListTableTagsResponse(tags=tags, page_token=token)

    def get_table_tag_version(self, request: Any) -> interface.GetTableTagVersionResponse:
        """The version that a tag names."""
        tag = value(request, "tag", "")
        with as_namespace_errors(_name(request)):
            found = self._open({"id": id_of(request, of_table=True)}).tags.list()
        if tag not in found:
            raise TableTagNotFoundError(
                f"{_name(request)} has no tag {tag!r:.80}; list_table_tags names those there are"
            )
        reported = found[tag]
        return interface.GetTableTagVersionResponse(
            version=reported["version"], branch=reported.get("branch")
        )

    def list_table_branches(self, request: Any) -> interface.ListTableBranchesResponse:
        """All branches, with the versions they began at."""
        with as_namespace_errors(_name(request)):
            found = self._open(request).branches.list()
        names, token = page_of(sorted(found), request)
        branches: Any = {
            name: {
                "parentBranch": found[name].get("parent_branch"),
                "parentVersion": found[name].get("parent_version") or 0,
                "createAt": int(found[name].get("create_at") or 0),
                "manifestSize": found[name].get("manifest_size") or 0,
            }
            for name in names
        }
        return interface.ListTableBranchesResponse(branches=branches, page_token=token)


def _name(request: object) -> str:
    return f"table {text_of(id_of(request, of_table=True))}"
