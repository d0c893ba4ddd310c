"""collect, merge_map, merge_map_with_keytime (spec 05 §6.3, §6.4; Java `FieldCollectAgg`, `FieldMergeMapAgg`, `FieldMergeMapWithKeyTimeAgg`).

Lists of different lengths have no form for whole columns, so the groups in which values meet are folded one by one, over the numbers of
elements; elements are only compared by their identities and are never Python objects. Where the order is not part of the contract (Java's hash
order), elements come in the order in which they were first seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.identity import identities
from maintainer.merge.aggregate.lists import Elements, Lists, column_of
from maintainer.merge.aggregate.positions import valid_of
from maintainer.merge.aggregate.records import Folded, Records, counted, fold_one_by_one, meetings, refuse_retracts
from maintainer.merge.order import Int64s
from maintainer.model.types import BINARIES, NESTED
from maintainer.table.aggregates import Aggregate

Step = Callable[[Elements, Elements], Elements]


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    match aggregate.name:
        case "collect" if aggregate.distinct:
            return _fold(aggregate, values, records, _collect_distinct, _all_groups)
        case "collect":
            return _fold(aggregate, values, records, _collect)
        case "merge_map":
            return _fold(aggregate, values, records, _merge_map)
    refuse_retracts(records)
    return _fold(aggregate, values, records, _merge_map_with_keytime)


def _fold(
    aggregate: Aggregate,
    values: pa.Array,
    records: Records,
    function: Callable[[Aggregate, Lists], tuple[Step, Step | None]],
    choose: Callable[[Records, Any], tuple[Int64s, Int64s]] = meetings,
) -> Folded:
    sources, groups = choose(records, valid_of(values))
    if not len(groups):
        return Folded(sources)
    records = records.part(groups)
    lists = Lists.of(values, records.rows)
    agg, retract = function(aggregate, lists)
    swaps = aggregate.name != "collect" or aggregate.ignore_retract
    results = fold_one_by_one(records, groups, lists.at, agg, retract, swaps)
    sources[groups] = len(values) + np.arange(len(groups))
    return Folded(sources, column_of(lists, results))


def _all_groups(records: Records, valid: Any) -> tuple[Int64s, Int64s]:
    """Every group with a value: even one alone becomes distinct."""
    return np.full(len(records), -1, np.int64), np.flatnonzero(counted(records, valid[records.rows]))


def _collect(aggregate: Aggregate, lists: Lists) -> tuple[Step, Step]:
    def agg(acc: Elements, value: Elements) -> Elements:
        if acc is None or value is None:
            return value if acc is None else acc
        acc.extend(value)
        return acc

    return agg, _multiset_difference(identities(lists.elements).tolist())


def _collect_distinct(aggregate: Aggregate, lists: Lists) -> tuple[Step, Step]:
    same = identities(lists.elements).tolist()
    element = aggregate.type.element
    is_trusted = element is not None and element.root in NESTED | BINARIES

    def agg(acc: Elements, value: Elements) -> Elements:
        if acc is None and value is None:
            return None
        found = list(acc or []) if is_trusted else []
        known = {same[number] for number in found}
        for number in [*([] if is_trusted else acc or []), *(value or [])]:
            if same[number] not in known:
                known.add(same[number])
                found.append(number)
        return found

    return agg, _multiset_difference(same)


def _multiset_difference(same: list[int]) -> Step:
    def retract(acc: Elements, value: Elements) -> Elements:
        if acc is None or not value:
            return acc
        left = Counter(same[number] for number in value)
        found = []
        for number in acc:
            if left[same[number]] > 0:
                left[same[number]] -= 1
            else:
                found.append(number)
        return found

    return retract


def _merge_map(aggregate: Aggregate, lists: Lists) -> tuple[Step, Step]:
    same = identities(lists.elements.field(0)).tolist()

    def agg(acc: Elements, value: Elements) -> Elements:
        if acc is None or value is None:
            return value if acc is None else acc
        return list({same[number]: number for number in [*acc, *value]}.values())

    def retract(acc: Elements, value: Elements) -> Elements:
        if acc is None or not value:
            return acc
        gone = {same[number] for number in value}
        return [number for number in acc if same[number] not in gone]

    return agg, retract


def _merge_map_with_keytime(aggregate: Aggregate, lists: Lists) -> tuple[Step, None]:
    keys, items = lists.elements.flatten()
    same = identities(keys).tolist()
    there = valid_of(items).tolist()
    times = [None if text is None else _utf16(text) for text in pc.struct_field(items, aggregate.ts_field).to_pylist()]

    def agg(acc: Elements, value: Elements) -> Elements:
        if acc is None or value is None:
            return value if acc is None else acc
        found = {same[number]: number for number in acc}
        for number in value:
            key, time = same[number], times[number]
            if not there[number]:
                found.pop(key, None)
            elif time is not None:
                old = found.get(key)
                before = None if old is None or not there[old] else times[old]
                if before is None or time > before:
                    found[key] = number
        return list(found.values())

    return agg, None


def _utf16(text: str) -> bytes:
    """Sorts like Java's strings, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
