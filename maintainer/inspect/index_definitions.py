"""What a doctor says of index definitions: those that somebody changed, payloads of none, and options that mean nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from maintainer.index import groups
from maintainer.index.definition import definitions
from maintainer.index.definition_changes import OPTIONS, definition_changes, effect, why_dropped
from maintainer.inspect.diagnosis import INFO, WARNING, Finding
from maintainer.model.schema import TableSchema
from maintainer.table.state import TableState
from maintainer.table.store import TableStore

_OWN_OPTION = re.compile(r"fields\.(.+)\.pk-(.+?)\.(?:index\.(?:options|type)|distance\.metric)")


def of_definitions(store: TableStore, schema: TableSchema, state: TableState | None) -> Iterator[Finding]:
    """All of it; the definitions must be valid."""
    found = definitions(schema)
    indexed = {(each.column, str(each.family)) for each in found}
    for key in sorted(schema.options):
        match = _OWN_OPTION.fullmatch(key)
        if match and (match[1], match[2]) not in indexed:
            yield Finding(
                WARNING,
                key,
                f"it has no effect: pk-{match[2]}.index.columns does not name {match[1]}",
                f"maintainer alter {store.uri} unset {key}, or name the column in pk-{match[2]}.index.columns",
            )
    if state is None:
        return
    buckets = tuple(state.buckets.values())
    told = set()
    for change in definition_changes(store.schema_of(state.snapshot), schema):
        meaning = effect(change, buckets)
        told.add(meaning.column)
        do = f"maintainer index {store.uri} rebuild" + (f" --column {meaning.column} --force" if change.change == OPTIONS else "")
        if meaning.levels or meaning.payloads:
            what = f"index on {meaning.column} ({meaning.family}), {meaning.change}"
            yield Finding(INFO, what, f"{change.reason} since the latest snapshot: {meaning.what}", do)
    orphans = Counter(why_dropped(payload, schema) for bucket in buckets for payload in groups.orphans(bucket, found))
    for (column, why), count in orphans.items():
        if column not in told:
            what = "payloads of no definition" if column is None else f"payloads of no definition on {column}"
            number = f"{count:,} payload{'s' * (count > 1)} of which {why}"
            yield Finding(INFO, what, f"{number}; Java keeps them for ever", f"maintainer index {store.uri} rebuild, which drops them")
