"""Feature flags stop readers and writers by name, and follow from content."""

from __future__ import annotations

import pytest

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.manifest import Feature, check_readable, check_writable, recompute
from glaive.format.pb import table_pb2


@pytest.mark.spec("flag-1", "flag-2")
@pytest.mark.parametrize(
    ("bit", "name"),
    [(6, "data_overlays"), (9, "fragment_reuse"), (12, "clustering"), (16, "flag 16"), (63, "63")],
)
def test_unknown_flags_are_named(bit: int, name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"reading .*{name}.*m\.manifest"):
        check_readable(1 << bit, 1 << bit, where="m.manifest")
    check_readable(0, 1 << bit & ~(1 << 8), where="m")
    with pytest.raises(UnsupportedFeatureError, match=rf"writing .*{name}"):
        check_writable(0, 1 << bit, where="m.manifest")


def test_known_flags_pass() -> None:
    both = int(Feature.DELETION_FILES | Feature.STABLE_ROW_IDS | Feature.MIXED_FILE_VERSIONS)
    check_writable(both, both | int(Feature.TABLE_CONFIG), where="m")


def test_a_flag_for_both_words_in_one_of_them_is_damage() -> None:
    with pytest.raises(CorruptFileError, match="mixed_file_versions"):
        check_readable(0, int(Feature.MIXED_FILE_VERSIONS), where="m")


def words(
    manifest: table_pb2.ManifestOutline, *, deletion_files: bool = False, spilled: bool = False
) -> tuple[Feature, Feature]:
    recompute(
        manifest, deletion_files=deletion_files, spilled_row_lineage=spilled, covering_indices=False
    )
    return Feature(manifest.reader_feature_flags), Feature(manifest.writer_feature_flags)


@pytest.mark.spec("flag-3")
def test_flags_follow_from_content() -> None:
    manifest = table_pb2.ManifestOutline()
    assert words(manifest) == (Feature(0), Feature(0))
    manifest.config["a"] = "b"
    assert words(manifest) == (Feature(0), Feature.TABLE_CONFIG)
    manifest.base_paths.add().path = "/elsewhere"
    both = Feature.DELETION_FILES | Feature.BASE_PATHS
    assert words(manifest, deletion_files=True) == (both, both | Feature.TABLE_CONFIG)
    assert words(manifest)[0] == Feature.BASE_PATHS
    both = Feature.BASE_PATHS | Feature.SPILLED_ROW_LINEAGE
    assert words(manifest, spilled=True)[0] == both


def test_flags_that_stay_are_taken_over() -> None:
    kept = Feature.STABLE_ROW_IDS | Feature.MIXED_FILE_VERSIONS
    manifest = table_pb2.ManifestOutline(
        reader_feature_flags=int(kept | Feature.DELETION_FILES),
        writer_feature_flags=int(kept | Feature.V2_FILES | Feature.UNIQUE_FIELD_IDS),
    )
    assert words(manifest) == (kept, kept | Feature.UNIQUE_FIELD_IDS)
