"""Index definitions that another engine changed: noticed by passes, plans and the doctor, told once, and acted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import maintainer
from maintainer.api.maintenance import Known, plan_pass, run_pass
from maintainer.maintain.plan import PlanRequest
from maintainer.maintain.transport import plan_to_json
from tests.support.evolve import drop_column, set_options
from tests.support.tables import append, make_busy_table

BTREE, BITMAP = "pk-btree.index.columns", "pk-bitmap.index.columns"

Event = tuple[str, dict[str, Any]]


def events_of(table: maintainer.Table, known: Known | None = None, **options: Any) -> list[Event]:
    """What a pass tells of definitions and payloads."""
    told: list[Event] = []
    run_pass(table.store, on_event=lambda name, fields: told.append((name, dict(fields))), known=known, **options)
    return [(name, fields) for name, fields in told if name in ("definition.changed", "payload.dropped")]


def settled(directory: Path) -> maintainer.Table:
    table = make_busy_table(directory)
    table.maintain()
    return table


def test_a_removed_definition_is_told_and_its_payloads_go(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: None})
    changed, *dropped = events_of(table)
    assert changed == (
        "definition.changed",
        {
            "table": table.name,
            "column": "n",
            "family": "btree",
            "change": "removed",
            "reason": "pk-btree.index.columns does not name the column any more",
        },
    )
    assert dropped
    for name, fields in dropped:
        assert name == "payload.dropped"
        assert (fields["column"], fields["family"]) == ("n", "btree")
        assert fields["data_level"] > 0
        assert fields["file"].startswith("index-")
        assert fields["reason"] == "the column has no index definition any more"
    assert events_of(table) == []
    assert table.verify(deep=True).ok


def test_a_definition_of_another_family_is_told_and_built(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: None, BITMAP: "v,n"})
    changed, *dropped = events_of(table)
    assert (changed[1]["family"], changed[1]["change"], changed[1]["reason"]) == ("bitmap", "moved", "the column was indexed as btree")
    assert {fields["reason"] for _, fields in dropped} == {"the column is indexed as bitmap now"}
    assert all(each.ratio == 1.0 for each in table.coverage().definitions)


def test_a_column_that_went_with_its_definition_is_called_by_its_id(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: None})
    drop_column(table.store.uri, "n")
    _, *dropped = events_of(table)
    assert {(fields["column"], fields["reason"]) for _, fields in dropped} == {(None, "its column (id 2) was dropped")}


def test_an_added_definition_and_other_build_options_are_told(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: "n,id", "btree-index.compression": "zstd"})
    told = [(fields["column"], fields["change"], fields["reason"]) for _, fields in events_of(table)]
    assert told == [
        ("id", "added", "pk-btree.index.columns names the column now"),
        ("n", "options", "other build options: btree-index.compression"),
    ]


def test_dynamic_options_are_no_change_of_definitions(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{"snapshot.num-retained.max": "50"})
    opened = maintainer.open_table(table.store.uri, options={"btree-index.compression": "zstd"})
    assert events_of(opened) == []


def test_passes_that_follow_a_table_tell_it_once(tmp_path: Path) -> None:
    table, known = settled(tmp_path), Known()
    assert events_of(table, known) == []
    set_options(table.store.uri, **{"btree-index.compression": "zstd"})
    assert [name for name, _ in events_of(table, known)] == ["definition.changed"]
    assert events_of(table, known) == []
    assert [name for name, _ in events_of(table, Known())] == ["definition.changed"]
    append(table, 5000, 10)
    assert events_of(table, known) == []
    assert events_of(table, Known()) == []


def test_plans_say_what_changed_and_what_is_dropped(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: None})
    document = plan_to_json(plan_pass(table.store, PlanRequest()), table.schema)
    assert document["definition_changes"] == [
        {"column": "n", "family": "btree", "change": "removed", "reason": "pk-btree.index.columns does not name the column any more"}
    ]
    assert all("of no definition to be dropped (n: the column has no index definition any more)" in work["reason"] for work in document["work"])


def test_the_doctor_says_what_waits_and_what_has_no_effect(tmp_path: Path) -> None:
    table = settled(tmp_path)
    assert not [finding for finding in table.doctor().findings if "index on" in finding.what or "definition" in finding.what]
    set_options(
        table.store.uri,
        **{BTREE: None, BITMAP: "v,id", "bitmap-index.compression": "zstd", "fields.n.pk-btree.index.options": "{}"},
    )
    found = {finding.what: finding for finding in table.doctor().findings}
    assert found["index on n (btree), removed"].why.endswith("payloads will be dropped by the next pass")
    assert found["index on id (bitmap), added"].do == f"maintainer index {table.store.uri} rebuild"
    assert found["index on v (bitmap), options"].do == f"maintainer index {table.store.uri} rebuild --column v --force"
    assert found["fields.n.pk-btree.index.options"].why == "it has no effect: pk-btree.index.columns does not name n"


def test_the_doctor_counts_payloads_that_no_definition_claims_since_long(tmp_path: Path) -> None:
    table = settled(tmp_path)
    set_options(table.store.uri, **{BTREE: None})
    append(table, 9000, 1)
    finding = next(finding for finding in table.doctor().findings if finding.what == "payloads of no definition on n")
    assert "Java keeps them for ever" in finding.why
    table.maintain()
    assert not [finding for finding in table.doctor().findings if "no definition" in finding.what]
