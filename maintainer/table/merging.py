"""What the options of a table say about merging the records of a key (spec 05; Java `MergeEngine`, `CoreOptions`, `SchemaValidation`,
`PartialUpdateMergeFunction.Factory`).

| engine         | a key's records become                                                                             |
| -------------- | -------------------------------------------------------------------------------------------------- |
| deduplicate    | the newest one                                                                                     |
| first-row      | the oldest one                                                                                     |
| partial-update | per column the newest value that is not NULL, or what the sequence group of the column says        |
| aggregation    | per column what its function makes of all values (`maintainer.table.aggregates`)                   |

Which record is newer: by the sequence fields (`sequence.field`), then by sequence number. What the options cannot mean together is refused
here, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from maintainer.errors import UsageError
from maintainer.model.schema import TableSchema
from maintainer.model.types import TypeRoot
from maintainer.table.aggregates import LAST_NON_NULL_VALUE, Aggregate, aggregation_functions, configured_function, named_aggregate
from maintainer.table.options import MergeEngine, TableOptions

_WITHOUT_ORDER = frozenset({TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.VARIANT, TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY})
_REMOVE_ON_DELETE = "partial-update.remove-record-on-delete"
_REMOVE_ON_GROUP = "partial-update.remove-record-on-sequence-group"
_PREFIX, _SUFFIX = "fields.", ".sequence-group"


@dataclass(frozen=True)
class SequenceGroup:
    """Columns of a partial update that change together: `protected` follow the record with the newest `fields`."""

    fields: tuple[str, ...]
    protected: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.fields, *self.protected)


@dataclass(frozen=True)
class MergeRules:
    """How a table merges. `needs_lookup`: of the records above level 0 only the one of the smallest level counts, as it contains the others
    (spec 05 §1.3)."""

    schema: TableSchema
    engine: MergeEngine = MergeEngine.DEDUPLICATE
    ignore_delete: bool = False
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    needs_lookup: bool = False
    remove_record_on_delete: bool = False
    remove_record_on_sequence_group: frozenset[str] = frozenset()
    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, Aggregate] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: TableSchema) -> MergeRules:
        """The rules of a table; `UsageError` names the option that makes no sense, and what to do."""
        options = TableOptions.of(schema)
        engine = options.merge_engine
        sequence_fields = _sequence_fields(schema, options, engine)
        rules = cls(
            schema=schema,
            engine=engine,
            ignore_delete=options.ignore_delete,
            sequence_fields=sequence_fields,
            descending=options.parse("sequence.field.sort-order", _is_descending, False),
            needs_lookup=options.needs_lookup,
        )
        _check_producer(options, engine)
        match engine:
            case MergeEngine.PARTIAL_UPDATE:
                return _partial_update(schema, options, rules)
            case MergeEngine.AGGREGATION:
                removes = options.boolean("aggregation.remove-record-on-delete", False)
                return replace(rules, remove_record_on_delete=removes, functions=aggregation_functions(schema, sequence_fields))
        return rules


def _is_descending(text: str) -> bool:
    order = text.strip().lower()
    if order not in ("ascending", "descending"):
        raise UsageError("must be ascending or descending")
    return order == "descending"


def _sequence_fields(schema: TableSchema, options: TableOptions, engine: MergeEngine) -> tuple[str, ...]:
    names = _names(options.text("sequence.field"))
    where = f"option sequence.field = {options.text('sequence.field')!r}"
    if names and engine is MergeEngine.FIRST_ROW:
        raise UsageError(f"{where}: the first-row engine keeps the first record that arrives; unset it, or choose another merge-engine")
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: a column is named twice")
    for name in names:
        _check_column(schema, name, where)
        if schema.field(name).type.root in _WITHOUT_ORDER:
            raise UsageError(f"{where}: the values of {name} ({schema.field(name).type}) have no order")
        if options.text(f"fields.{name}.aggregate-function"):
            raise UsageError(f"{where}: {name} says which record is newer, so fields.{name}.aggregate-function has to be unset")
    if names and not set(schema.partition_keys) <= set(schema.primary_keys):
        raise UsageError(f"{where}: rows move between partitions, where no column orders them; add the partition keys to the primary key")
    if names and options.boolean("sequence.snapshot-ordering", False):
        raise UsageError(f"{where}: snapshots cannot order records, too; unset sequence.snapshot-ordering, or this option")
    return names


def _check_producer(options: TableOptions, engine: MergeEngine) -> None:
    producer = options.changelog_producer
    if engine is MergeEngine.FIRST_ROW:
        if options.deletion_vectors_enabled:
            raise UsageError("option deletion-vectors.enabled: the first-row engine never replaces a row, so it needs none; unset it")
        if producer not in ("none", "lookup"):
            raise UsageError(f"option changelog-producer = {producer!r}: with the first-row engine it can be none or lookup")
    if options.deletion_vectors_enabled and producer == "full-compaction":
        raise UsageError("option changelog-producer = 'full-compaction': with deletion vectors it can be none, input or lookup")


def _partial_update(schema: TableSchema, options: TableOptions, rules: MergeRules) -> MergeRules:
    groups = tuple(_groups(schema, options))
    removes = options.boolean(_REMOVE_ON_DELETE, False)
    removing = _names(options.text(_REMOVE_ON_GROUP))
    if rules.ignore_delete and (removes or removing):
        raise UsageError(
            f"option {_REMOVE_ON_DELETE if removes else _REMOVE_ON_GROUP}: cannot be combined with ignore-delete; unset one of them"
        )
    if removes and groups:
        raise UsageError(
            f"option {_REMOVE_ON_DELETE}: cannot be combined with sequence groups; name the sequence fields in {_REMOVE_ON_GROUP} instead"
        )
    sequences = {name for group in groups for name in group.fields}
    for name in removing:
        if name not in sequences:
            raise UsageError(f"option {_REMOVE_ON_GROUP}: {name} is no sequence field of a sequence group (fields.{name}.sequence-group)")
    protected = {name for group in groups for name in group.protected}
    functions = {}
    unfolded = {*sequences, *rules.sequence_fields, *schema.primary_keys}
    for column in schema.names:
        configured = None if column in unfolded else configured_function(schema, column)
        if configured is None:
            continue
        function = named_aggregate(schema, column, configured)
        if column in protected:
            functions[column] = function
        elif function.name != LAST_NON_NULL_VALUE:
            raise UsageError(
                f"column {column}: its aggregate function {configured} needs a sequence group that the column is in "
                f"(fields.<sequence field>.sequence-group = {column})"
            )
    return replace(
        rules,
        remove_record_on_delete=removes,
        remove_record_on_sequence_group=frozenset(removing),
        groups=groups,
        functions=functions,
    )


def _groups(schema: TableSchema, options: TableOptions) -> Iterator[SequenceGroup]:
    owner: dict[str, str] = {}
    for key in sorted(options):
        if not (key.startswith(_PREFIX) and key.endswith(_SUFFIX)):
            continue
        group = SequenceGroup(_names(key[len(_PREFIX) : -len(_SUFFIX)]), _names(options[key]))
        where = f"option {key} = {options[key]!r}"
        if not group.fields:
            raise UsageError(f"{where}: no sequence field is named; fields.<sequence field>.sequence-group is the form")
        for name in group.columns:
            _check_column(schema, name, where)
            if name in schema.primary_keys:
                raise UsageError(f"{where}: {name} is part of the primary key, which no update changes; leave it out")
            if name in owner:
                raise UsageError(f"{where}: {name} is in {owner[name]}, too; a column can be in one sequence group only")
            owner[name] = key
        for name in group.fields:
            if schema.field(name).type.root in _WITHOUT_ORDER:
                raise UsageError(f"{where}: the values of {name} ({schema.field(name).type}) have no order")
            if options.text(f"fields.{name}.aggregate-function"):
                raise UsageError(f"{where}: {name} says which record is newer, so fields.{name}.aggregate-function has to be unset")
        yield group


def _check_column(schema: TableSchema, name: str, where: str) -> None:
    if name not in schema.names:
        raise UsageError(f"{where}: there is no column {name!r}; the columns are {', '.join(schema.names)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def merged_columns(names: Sequence[str], rules: MergeRules) -> tuple[str, ...]:
    """`names`, and what merging needs beside them (spec 05 §4.6): the sequence fields of the table and of each group that one of them is in."""
    needed = dict.fromkeys((*names, *rules.sequence_fields))
    for group in rules.groups:
        if any(name in needed for name in group.columns):
            needed.update(dict.fromkeys(group.fields))
    return tuple(needed)
