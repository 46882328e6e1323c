"""The scalar functions of pylance 14.0.2, found by asking it for each word of its binary."""

from __future__ import annotations

_NAMES = """
    abs acos acosh array_any_value array_append array_cat array_compact array_concat
    array_contains array_dims array_distance array_distinct array_element array_empty
    array_except array_extract array_has array_has_all array_has_any array_indexof
    array_intersect array_join array_length array_max array_min array_ndims array_normalize
    array_pop_back array_pop_front array_position array_positions array_prepend array_push_back
    array_push_front array_remove array_remove_all array_remove_n array_repeat array_replace
    array_replace_all array_replace_n array_resize array_reverse array_slice array_sort
    array_to_string array_union arrays_overlap arrays_zip arrow_cast arrow_metadata
    arrow_try_cast arrow_typeof ascii asin asinh atan atan2 atanh bit_length btrim cardinality
    cast_to_type cbrt ceil char_length character_length chr coalesce concat concat_ws contains
    contains_tokens cos cosh cosine_distance cot current_date current_time current_timestamp
    date_bin date_format date_part date_trunc datepart datetrunc decode degrees digest
    dot_product element_at empty encode ends_with exp factorial find_in_set flatten floor
    from_unixtime gcd generate_series get_field greatest ifnull initcap inner_product instr
    is_valid isnan iszero json_array_contains json_array_length json_exists json_extract
    json_extract_with_type json_get json_get_bool json_get_float json_get_int json_get_string
    lcm least left length levenshtein list_any_value list_append list_cat list_compact
    list_concat list_contains list_dims list_distance list_distinct list_element list_empty
    list_except list_extract list_has list_has_all list_has_any list_indexof list_intersect
    list_join list_length list_max list_ndims list_normalize list_pop_back list_pop_front
    list_position list_positions list_prepend list_push_back list_push_front list_remove
    list_remove_all list_remove_n list_repeat list_replace list_replace_all list_replace_n
    list_resize list_reverse list_slice list_sort list_to_string list_union list_zip ln log
    log10 log2 lower lpad ltrim make_array make_date make_list make_map make_time map
    map_entries map_extract map_keys map_values md5 named_struct nanvl now nullif nvl nvl2
    octet_length overlay pi position pow power radians rand random range regexp_count
    regexp_instr regexp_like regexp_match regexp_replace repeat replace reverse right round row
    rpad rtrim sha224 sha256 sha384 sha512 signum sin sinh split_part sqrt st_area st_contains
    st_coveredby st_covers st_crosses st_disjoint st_distance st_equals st_geometryfromtext
    st_geometrytype st_geomfromtext st_geomfromwkb st_intersects st_isempty st_isvalid
    st_length st_length2d st_makepoint st_npoints st_numpoints st_overlaps st_point st_touches
    st_within st_wkbtosql st_wkttosql st_xmax st_xmin st_ymax st_ymin starts_with
    string_to_array string_to_list strpos struct substr substr_index substring substring_index
    tan tanh to_char to_date to_hex to_local_time to_time to_timestamp to_timestamp_micros
    to_timestamp_millis to_timestamp_nanos to_timestamp_seconds to_unixtime today translate
    trim trunc try_cast_to_type upper uuid version with_metadata
"""
NAMES = _NAMES.split()
"""All names of the functions that are here too."""

_LEFT_OUT = """
    any_match array_any_match array_filter array_transform arrow_field list_any_match
    list_filter list_transform union_extract union_tag unnest box2d box3d geometrytype
    st_3dmakebox st_asbinary st_astext st_box2dfromgeohash st_centroid st_convexhull
    st_coorddim st_dump st_endpoint st_extent st_geohash st_isclosed st_isvalidreason st_m
    st_makebox2d st_makepointm st_ndims st_numinteriorring st_numinteriorrings
    st_orientedenvelope st_pointfromgeohash st_pointm st_pointonsurface st_pointz st_pointzm
    st_simplify st_simplifypreservetopology st_simplifyvw st_startpoint st_x st_y st_z st_zmax
"""
LEFT_OUT = _LEFT_OUT.split()
"""Names that are refused here: functions that take a lambda, which its own parser does not read,
some geometry functions, unions, which no dataset holds, and ``arrow_field``."""
