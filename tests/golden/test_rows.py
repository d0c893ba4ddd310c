"""Our rows equal Java's, for every snapshot of every case that this version can read; the other cases by name, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maintainer.data.values import json_rows
from maintainer.errors import Unsupported
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from tests.support import golden

EVOLUTION = "data-evolution.enabled = true: rows are spread over several files"

LEFT: dict[str, str | None] = {
    "all_deleted": None,
    "append_only": None,
    "async_index": None,
    "bucket_function_mod": None,
    "cl_full": None,
    "cl_input": None,
    "cl_lookup": None,
    "cl_lookup_agg": None,
    "compressions": None,
    "data_file_names": None,
    "de_column_update": EVOLUTION,
    "de_global_index": EVOLUTION,
    "dv_bitmap64": None,
    "dv_many_index_files": None,
    "dv_minor": None,
    "dv_minor_then_full": None,
    "dv_switch_bitmap64": None,
    "empty_table": None,
    "expired": None,
    "fi_append": None,
    "fi_map_keys": None,
    "fi_pk_embedded": None,
    "fi_pk_file": None,
    "force_up_level0": None,
    "ft_english": None,
    "ft_ngram_buckets": None,
    "hy_basic": None,
    "idx_added_later": None,
    "idx_bitmap_blocks": None,
    "idx_bitmap_types": None,
    "idx_btree_blocks": None,
    "idx_btree_types": None,
    "idx_full_compaction": None,
    "idx_levels": None,
    "idx_multivalue": None,
    "idx_multivalue_empty": None,
    "idx_partial": None,
    "idx_partial_update": None,
    "idx_partitioned": None,
    "idx_stale": None,
    "index_in_data_dir": None,
    "inline_compaction": None,
    "keys_composite": None,
    "l0_40": None,
    "large_kept": None,
    "levels_small": None,
    "manifest_merging": None,
    "maxlevel_dv_full": None,
    "me_agg": None,
    "me_agg_remove": None,
    "me_agg_retract": None,
    "me_dedup_ignore_delete": None,
    "me_firstrow": None,
    "me_nested_update": None,
    "me_partial_groups": None,
    "me_partial_groups_agg": None,
    "me_partial_remove": None,
    "me_partial_remove_group": None,
    "me_partial_seq_field": None,
    "me_rowkind": None,
    "me_seq1": None,
    "me_seq2desc": None,
    "merge_on_read": None,
    "nested_avro": None,
    "nested_orc": None,
    "nested_parquet": None,
    "nodv_full": None,
    "nodv_minor": None,
    "nothing_to_do": None,
    "overwrite_rollback": None,
    "partitioned": None,
    "partitioned_append_null": None,
    "per_level_format": None,
    "pk_nullable": None,
    "postpone": None,
    "rollback": None,
    "row_target": None,
    "schema_evolution": None,
    "schema_evolution_full": None,
    "snapshot_ordering": None,
    "stats_modes": None,
    "tags_branches": None,
    "thin_mode": None,
    "types_avro": None,
    "types_orc": None,
    "types_parquet": None,
    "upgrade_append": None,
    "upgrade_only_file": None,
    "vec_added_later": None,
    "vec_flat_l2": None,
    "vec_nulls_levels": None,
    "vec_pq_l2": None,
    "vec_sq_cosine": None,
    "vector_column": None,
}
"""Case -> None, or why some of its snapshots cannot be read yet, as the refusal says it; the others are read."""


def test_every_case_is_listed() -> None:
    there = {path.stem for path in golden.directory().glob("*.json")}
    assert len(LEFT) == 94
    assert there <= set(LEFT)


@pytest.mark.parametrize("name", LEFT)
def test_rows_are_those_of_java(name: str, tmp_path: Path) -> None:
    found = golden.case(name)
    if found is None:
        pytest.skip(f"case {name} is not here")
    store = open_store(str(golden.unpack(name, tmp_path)))
    read, refused = 0, 0
    for snapshot, columns, data in golden.rows_of(found):
        scan = Scan(store, snapshot_id=snapshot)
        try:
            table = scan.to_arrow()
        except Unsupported as refusal:
            if LEFT[name] is None:
                raise
            assert LEFT[name] in str(refusal)
            refused += 1
            continue
        read += 1
        assert table.column_names == list(columns), f"snapshot {snapshot}"
        rows = sorted(json.dumps(list(row.values()), ensure_ascii=False) for row in json_rows(table, scan.fields))
        assert rows == sorted(json.dumps(row, ensure_ascii=False) for row in data), f"snapshot {snapshot}"
    if LEFT[name] is None:
        assert read or name == "empty_table"
    else:
        assert refused, "nothing is refused any more: take the case off the list"


def test_a_table_without_snapshot_is_empty(tmp_path: Path) -> None:
    store = open_store(str(golden.unpack("empty_table", tmp_path)))
    table = Scan(store).to_arrow()
    assert table.num_rows == 0
    assert table.column_names == list(store.latest_schema().names)


def test_a_tag_is_read_after_its_snapshot_expired(tmp_path: Path) -> None:
    found = golden.case("expired")
    assert found is not None
    store = open_store(str(golden.unpack("expired", tmp_path)))
    tag = found["tags"]["keep"]
    assert store.find_snapshot(tag["snapshot"]) is None
    scan = Scan(store, tag="keep")
    assert scan.explain().snapshot == tag["snapshot"]
    assert sorted(list(row.values()) for row in json_rows(scan.to_arrow(), scan.fields)) == sorted(tag["rows"]["data"])
