"""The operations of the interface, and what each is called in its REST form.

The client, the server and :class:`DirectoryNamespace` share this table.
"""

from __future__ import annotations

from typing import Final, Literal

from glaive.dataclass import dataclass

__all__ = ["OPERATIONS", "Operation"]

Body = Literal["json", "arrow", "metadata", "none"]
Answer = Literal["json", "count", "text", "arrow", "metadata", "nothing"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Parameters
    ----------
    path
        Its path below ``/v1``; ``{id}`` and ``{index_name}`` are fields of the request.
    verb
        ``POST``, or ``GET`` for listings.
    query
        Fields of the request that are parameters of the URL.
    body
        What is sent: the request as JSON, Arrow data, a JSON object of metadata, or nothing.
    answer
        What comes back: the response as JSON, a number, a text, Arrow data, a JSON
        object of metadata, or nothing.
    request, response
        Classes of the interface, without ``Request`` and ``Response``; the method's if empty.
    """

    path: str
    verb: Literal["GET", "POST"] = "POST"
    query: tuple[str, ...] = ()
    body: Body = "json"
    answer: Answer = "json"
    request: str = ""
    response: str = ""

    def classes(self, method: str) -> tuple[str, str]:
        """Names of the classes of its request and its response."""
        name = "".join(word.capitalize() for word in method.split("_"))
        return f"{self.request or name}Request", f"{self.response or self.request or name}Response"


_PAGE = ("page_token", "limit")
_MERGE = (
    "branch",
    "on",
    "when_matched_update_all",
    "when_matched_update_all_filt",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_delete",
    "when_not_matched_by_source_delete_filt",
    "timeout",
    "use_index",
)


def _listing(path: str, *more: str) -> Operation:
    return Operation(path, "GET", (*_PAGE, *more), "none")


OPERATIONS: Final[dict[str, Operation]] = {
    # namespaces
    "list_namespaces": _listing("namespace/{id}/list"),
    "describe_namespace": Operation("namespace/{id}/describe"),
    "create_namespace": Operation("namespace/{id}/create"),
    "drop_namespace": Operation("namespace/{id}/drop"),
    "namespace_exists": Operation("namespace/{id}/exists", answer="nothing"),
    # tables
    "list_tables": _listing("namespace/{id}/table/list", "include_declared"),
    "list_all_tables": Operation(
        "table", "GET", (*_PAGE, "include_declared"), "none", request="ListTables"
    ),
    "describe_table": Operation(
        "table/{id}/describe",
        query=("with_table_uri", "load_detailed_metadata", "check_declared"),
    ),
    "table_exists": Operation("table/{id}/exists", answer="nothing"),
    "declare_table": Operation("table/{id}/declare"),
    "create_table": Operation(
        "table/{id}/create", query=("mode", "properties", "storage_options"), body="arrow"
    ),
    "register_table": Operation("table/{id}/register"),
    "deregister_table": Operation("table/{id}/deregister"),
    "drop_table": Operation("table/{id}/drop", body="none"),
    "rename_table": Operation("table/{id}/rename"),
    "restore_table": Operation("table/{id}/restore"),
    # rows
    "count_table_rows": Operation("table/{id}/count_rows", answer="count"),
    "insert_into_table": Operation("table/{id}/insert", query=("branch", "mode"), body="arrow"),
    "merge_insert_into_table": Operation("table/{id}/merge_insert", query=_MERGE, body="arrow"),
    "update_table": Operation("table/{id}/update"),
    "delete_from_table": Operation("table/{id}/delete"),
    "query_table": Operation("table/{id}/query", answer="arrow"),
    "explain_table_query_plan": Operation("table/{id}/explain_plan", answer="text"),
    "analyze_table_query_plan": Operation("table/{id}/analyze_plan", answer="text"),
    # columns and metadata
    "alter_table_add_columns": Operation("table/{id}/add_columns"),
    "alter_table_alter_columns": Operation("table/{id}/alter_columns"),
    "alter_table_drop_columns": Operation("table/{id}/drop_columns"),
    "alter_table_backfill_columns": Operation("table/{id}/backfill_column"),
    "update_table_schema_metadata": Operation(
        "table/{id}/schema_metadata/update",
        query=("branch",),
        body="metadata",
        answer="metadata",
    ),
    "update_field_metadata": Operation("table/{id}/update_field_metadata"),
    "get_table_stats": Operation("table/{id}/stats"),
    # indices
    "create_table_index": Operation("table/{id}/create_index"),
    "create_table_scalar_index": Operation(
        "table/{id}/create_scalar_index",
        request="CreateTableIndex",
        response="CreateTableScalarIndex",
    ),
    "list_table_indices": Operation("table/{id}/index/list"),
    "describe_table_index_stats": Operation("table/{id}/index/{index_name}/stats"),
    "drop_table_index": Operation(
        "table/{id}/index/{index_name}/drop", query=("branch",), body="none"
    ),
    # tags and branches
    "list_table_tags": Operation("table/{id}/tags/list", query=_PAGE, body="none"),
    "get_table_tag_version": Operation("table/{id}/tags/version"),
    "create_table_tag": Operation("table/{id}/tags/create"),
    "update_table_tag": Operation("table/{id}/tags/update"),
    "delete_table_tag": Operation("table/{id}/tags/delete"),
    "list_table_branches": Operation("table/{id}/branches/list", query=_PAGE, body="none"),
    "create_table_branch": Operation("table/{id}/branches/create"),
    "delete_table_branch": Operation("table/{id}/branches/delete"),
    # versions and transactions
    "list_table_versions": Operation(
        "table/{id}/version/list", query=("branch", *_PAGE, "descending"), body="none"
    ),
    "create_table_version": Operation("table/{id}/version/create"),
    "describe_table_version": Operation("table/{id}/version/describe"),
    "batch_delete_table_versions": Operation("table/{id}/version/delete"),
    "batch_create_table_versions": Operation("table/version/batch-create"),
    "batch_commit_tables": Operation("table/batch-commit"),
    "describe_transaction": Operation("transaction/{id}/describe"),
    "alter_transaction": Operation("transaction/{id}/alter"),
    # materialised views
    "create_materialized_view": Operation("materialized_view/{id}/create"),
    "refresh_materialized_view": Operation("materialized_view/{id}/refresh"),
}
"""By the name of the method."""
