"""Inspection of a table on an object store."""

from __future__ import annotations

import maintainer
from tests.support.s3 import Bucket
from tests.support.s3 import s3_bucket as s3_bucket
from tests.support.tables import OPTIONS, append


def test_a_table_on_s3_is_inspected_like_any_other(s3_bucket: Bucket) -> None:
    fields = [{"name": "id", "type": "BIGINT"}, {"name": "v", "type": "STRING"}, {"name": "n", "type": "INT"}]
    definition = {"fields": fields, "primaryKeys": ["id"], "options": OPTIONS}
    uri = s3_bucket.place("t")
    table = maintainer.create_table(uri, definition, storage_options=s3_bucket.storage_options)
    append(table, 0, 50)
    table.maintain(full=True)
    append(table, 10, 5, "y")
    table.maintain()
    assert table.wait_for_coverage(timeout=0).reached
    assert table.verify(deep=True).problems == ()
    found = table.doctor()
    assert found.fit and found.findings == ()
    assert not [name for name in table.store.storage.list("schema") if "probe" in name.name]
    assert [each.kind for each in table.snapshots()] == ["APPEND", "COMPACT"] * 2
