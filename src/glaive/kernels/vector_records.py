"""Arguments of kernels of vector indices, by name; see ``records``."""

from __future__ import annotations

from glaive.named_tuple import NamedTuple


class RepairGraph(NamedTuple):
    """For ``graph.repair_graph``."""

    offsets: int
    nodes: int
    live: int
    damaged: int
    damaged_count: int
    vectors: int
    vector_of: int
    dimension: int
    dot: int
    stamps: int
    scratch: int
    capacity: int
    into_counts: int
    into_nodes: int
    into_distances: int


class FindNearest(NamedTuple):
    """For ``nearest.find_nearest``."""

    rows: int
    row_count: int
    dimension: int
    table: int
    blocks: int
    scratch: int
    ids: int
    scores: int


class FindNeighbors(NamedTuple):
    """For ``graph_build.find_neighbors``."""

    batch: int
    batch_size: int
    vectors: int
    node_count: int
    size: int
    kind: int
    levels: int
    upper_of: int
    lower_nodes: int
    lower_distances: int
    lower_counts: int
    lower_judged: int
    lower_capacity: int
    upper_nodes: int
    upper_distances: int
    upper_counts: int
    upper_judged: int
    upper_capacity: int
    entry: int
    entry_level: int
    candidates: int
    stamps: int
    stamp: int
    ids: int
    distances: int
    fresh: int


class LinkBack(NamedTuple):
    """For ``graph_build.link_back``."""

    starts: int
    targets: int
    target_count: int
    sources: int
    source_distances: int
    vectors: int
    node_count: int
    size: int
    kind: int
    nodes: int
    distances: int
    counts: int
    judged: int
    capacity: int
    ids: int
    far: int
    scratch_size: int


class QuantizeRotated(NamedTuple):
    """For ``rotation.quantize_rotated``."""

    rows: int
    row_count: int
    dimension: int
    factors: int
    factor_count: int
    most: int
    codes: int


class MeasurePairs(NamedTuple):
    """For ``distances.measure``."""

    values: int
    rows: int
    step: int
    pairs: int
    dimension: int
    element: int
    metric: int
    queries: int
    query_of: int
    norms: int
    scratch: int
    out: int


class SelectNear(NamedTuple):
    """For ``products.select_near``; numbers there have 32 bits."""

    rows: int
    row_count: int
    present: int
    dimension: int
    table: int
    queries: int
    offsets: int
    factors: int
    limits: int
    start: int
    chunk: int
    capacity: int
    masks: int
    query_out: int
    row_out: int


class SearchGraph(NamedTuple):
    """For ``graph_search.search_graph``.

    ``levels``: four numbers for each, the highest first; ``found``: 32 bits; ``visited``: bytes,
    none of which is ``stamp`` or, for each level behind the first, one more; ``scale``: offset,
    shift and factor, of 64 bits; ``places``: as of ``ScanCodes``, the last five of nine;
    ``kept``: room for keys, fragments and rows of those wanted.
    """

    levels: int
    level_count: int
    nodes: int
    entry: int
    visited: int
    stamp: int
    kind: int
    codes: int
    width: int
    query: int
    terms: int
    capacity: int
    distances: int
    found: int
    fresh: int
    scale: int
    places: int
    wanted: int
    kept: int


class RankVectors(NamedTuple):
    """For ``ranking.rank_vectors``; ``numbers``: 32 bits, as distances."""

    values: int
    step: int
    among: int
    vector_count: int
    dimension: int
    metric: int
    queries: int
    query_count: int
    query_bytes: int
    most: int
    numbers: int
    distances: int


class RescoreRows(NamedTuple):
    """For ``rescoring.rescore_rows``; ``low`` is the address of a number."""

    fragments: int
    rows: int
    row_keys: int
    bounds: int
    query_count: int
    first_rows: int
    row_counts: int
    fragment_count: int
    ends: int
    page_starts: int
    pages: int
    memory: int
    size: int
    width: int
    dimension: int
    element: int
    metric: int
    queries: int
    query_bytes: int
    norms: int
    limits: int
    low: int
    capacity: int
    widened: int
    starts: int
    measured: int
    heap: int
    keys: int
    places: int
    sizes: int


class ScanCodes(NamedTuple):
    """For ``code_scan.scan_codes``; ``parts``: nine numbers for each partition."""

    parts: int
    offsets: int
    weights: int
    part_count: int
    kind: int
    width: int
    code_bytes: int
    query: int
    numbers: int
    starts: int
    sizes: int
    fragments: int
    bits: int
    capacity: int
    heap: int
    keys: int
    places: int
    scratch: int
