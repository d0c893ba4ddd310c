"""A plain model of merging, one record at a time, written straight from spec 05: what the column-at-a-time engines are compared with.

Values are those of Arrow's `to_pylist`: a ROW is a dict, a MAP a list of pairs, an ARRAY a list, a DECIMAL a `decimal.Decimal`, FLOAT and
DOUBLE are floats, everything else is what Python has for it. Nothing of the package is used but the types of columns.

    merge(options, fields, keys, records)               what plain compaction, merge reads and the flush of a writer make of a group
    merge(options, fields, keys, records, lookup=True)  the lookup path of a compaction: no shortcut for single records
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maintainer.model.types import DataField, DataType, TypeRoot

ADDS = ("+I", "+U")
EXACT = decimal.Context(prec=100)
Row = list[Any]


class Refused(Exception):
    """What Java answers with an error: a kind that the engine does not take, an overflow, a NULL in a NOT NULL column."""


@dataclass(frozen=True)
class Record:
    """`level` −1 is a record that a writer has not flushed yet; among equal records the one with the larger `age` is the newer one."""

    kind: str
    sequence: int
    values: tuple[Any, ...]
    level: int = 0
    age: int = 0


def merge(
    options: Mapping[str, str], fields: Sequence[DataField], keys: Sequence[str], records: Sequence[Record], lookup: bool = False
) -> Record | None:
    """The record that a group becomes; None: there is none."""
    table = _Table(options, fields, keys)
    ordered = sorted(records, key=table.age)
    if not lookup and len(ordered) == 1:
        return ordered[0]
    if table.needs_lookup and table.engine != "first-row":
        above = [record for record in ordered if record.level > 0]
        smallest = min((record.level for record in above), default=0)
        ordered = [record for record in ordered if record.level <= 0 or record.level == smallest]  # one may be left, and is merged alone
    match table.engine:
        case "deduplicate":
            kept = [record for record in ordered if not table.ignore_delete or record.kind in ADDS]
            return kept[-1] if kept else None
        case "first-row":
            return _first_row(table, ordered)
        case "partial-update":
            return _partial_update(table, ordered)
        case "aggregation":
            return _aggregation(table, ordered)
    raise AssertionError(table.engine)


class _Table:
    def __init__(self, options: Mapping[str, str], fields: Sequence[DataField], keys: Sequence[str]) -> None:
        self.options = options
        self.fields = fields
        self.names = [field.name for field in fields]
        self.keys = list(keys)
        self.engine = options.get("merge-engine", "deduplicate")
        self.sequence_fields = _names(options.get("sequence.field"))
        self.descending = options.get("sequence.field.sort-order", "ascending") == "descending"
        spellings = ("ignore-delete", "first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete")
        self.ignore_delete = any(self.true(key) for key in spellings)
        self.needs_lookup = (
            options.get("changelog-producer") == "lookup"
            or self.true("deletion-vectors.enabled")
            or self.engine == "first-row"
            or self.true("force-lookup")
        )
        self.groups = [
            (_names(key[len("fields.") : -len(".sequence-group")]), _names(text))
            for key, text in options.items()
            if key.startswith("fields.") and key.endswith(".sequence-group")
        ]

    def true(self, key: str) -> bool:
        return self.options.get(key, "false").lower() == "true"

    def age(self, record: Record) -> Any:
        """Sorts oldest first (spec 05 §1.1): NULL is smallest in both orders; of equal numbers the retract comes first."""
        user = []
        for name in self.sequence_fields:
            value = record.values[self.names.index(name)]
            user.append((0, 0) if value is None else (1, _Reversed(order(value)) if self.descending else order(value)))
        return (*user, record.sequence, record.kind in ADDS, record.age)

    def function(self, name: str) -> str | None:
        return self.options.get(f"fields.{name}.aggregate-function") or self.options.get("fields.default-aggregate-function")

    def aggregate(self, name: str, function: str) -> _Function:
        return _Function(self, name, function)

    def check_not_null(self, row: Sequence[Any]) -> None:
        for field, value in zip(self.fields, row, strict=True):
            if value is None and not field.type.nullable:
                raise Refused(f"{field.name} is null")


class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value


def order(value: Any) -> Any:
    """What compares like the value: floats in Java's total order, texts by bytes, nested values member by member with NULL smallest."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case float():
            (bits,) = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))
            return (1, bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF)
        case str():
            return (1, value.encode("utf-8", "surrogatepass"))
        case list():
            return (1, tuple(order(part) for part in value))
        case dict():
            return (1, tuple(order(part) for part in value.values()))
    return (1, value)


def _first_row(table: _Table, ordered: Sequence[Record]) -> Record | None:
    first = None
    for record in ordered:
        if record.kind in ADDS:
            first = first or record
        elif not table.ignore_delete:
            raise Refused(f"first-row does not take {record.kind}")
    return first


# partial-update (spec 05 §4)


def _partial_update(table: _Table, ordered: Sequence[Record]) -> Record | None:
    state = _Partial(table)
    for record in ordered:
        state.deleted = False
        if record.kind in ADDS:
            state.add(record)
        else:
            state.retract(record)
    return Record("-D" if state.deleted or not state.meet_add else "+I", state.sequence, tuple(state.row))


class _Partial:
    def __init__(self, table: _Table) -> None:
        self.table = table
        self.row: Row = [None] * len(table.fields)
        self.filled = self.meet_add = self.deleted = False
        self.sequence = 0
        self.removing = _names(table.options.get("partial-update.remove-record-on-sequence-group"))
        self.group_of = {name: members[0] for members in table.groups for part in members for name in part}
        self.functions = {}
        for name in table.names:
            function = table.function(name)
            is_sequence = any(name in members[0] for members in table.groups) or name in table.sequence_fields
            if function and table.groups and name not in table.keys and not is_sequence:
                self.functions[name] = table.aggregate(name, function)

    def add(self, record: Record) -> None:
        self.sequence = record.sequence
        self.meet_add = self.filled = True
        if not self.table.groups:
            for index, value in enumerate(record.values):
                if value is not None:
                    self.row[index] = value
                elif not self.table.fields[index].type.nullable:
                    raise Refused(f"{self.table.names[index]} is null")
            return
        done: set[str] = set()
        for index, name in enumerate(self.table.names):
            value, function = record.values[index], self.functions.get(name)
            sequence = self.group_of.get(name)
            if sequence is None:
                if function is not None:
                    self.row[index] = function.agg(self.row[index], value)
                elif value is not None:
                    self.row[index] = value
            elif name in done:
                continue
            elif self._all_null(record, sequence):
                done.update(sequence)
            elif self._is_newer(record, sequence):
                if name in sequence:
                    self._copy(record, sequence)
                    done.update(sequence)
                else:
                    self.row[index] = value if function is None else function.agg(self.row[index], value)
            elif function is not None:
                self.row[index] = function.agg_reversed(self.row[index], value)

    def retract(self, record: Record) -> None:
        if not self.filled:
            self._take_all(record)
            self.filled = True
        if self.table.ignore_delete:
            return
        self.sequence = record.sequence
        if self.table.groups:
            self._retract_groups(record)
        elif self.table.true("partial-update.remove-record-on-delete"):
            if record.kind == "-D":
                self.deleted = True
                self._take_all(record)
        else:
            raise Refused(f"partial-update does not take {record.kind}")

    def _retract_groups(self, record: Record) -> None:
        done: set[str] = set()
        for index, name in enumerate(self.table.names):
            sequence, function = self.group_of.get(name), self.functions.get(name)
            if sequence is None or name in done:
                continue
            if self._all_null(record, sequence):
                done.update(sequence)
            elif self._is_newer(record, sequence):
                if name in sequence:
                    for other in sequence:
                        if other in done:
                            continue
                        if record.kind == "-D" and other in self.removing:
                            self.deleted = True
                            self._take_all(record)
                            return
                        place = self.table.names.index(other)
                        self.row[place] = record.values[place]
                        done.add(other)
                else:
                    self.row[index] = None if function is None else function.retract(self.row[index], record.values[index])
            elif function is not None:
                self.row[index] = function.retract(self.row[index], record.values[index])

    def _take_all(self, record: Record) -> None:
        self.table.check_not_null(record.values)
        self.row = list(record.values)

    def _values(self, row: Sequence[Any], sequence: Sequence[str]) -> list[Any]:
        return [row[self.table.names.index(name)] for name in sequence]

    def _all_null(self, record: Record, sequence: Sequence[str]) -> bool:
        return all(value is None for value in self._values(record.values, sequence))

    def _is_newer(self, record: Record, sequence: Sequence[str]) -> bool:
        return [order(value) for value in self._values(record.values, sequence)] >= [order(value) for value in self._values(self.row, sequence)]

    def _copy(self, record: Record, sequence: Sequence[str]) -> None:
        for name in sequence:
            place = self.table.names.index(name)
            self.row[place] = record.values[place]


# aggregation (spec 05 §5)


def _aggregation(table: _Table, ordered: Sequence[Record]) -> Record:
    functions = []
    for name in table.names:
        if name in table.sequence_fields:
            function = "last_value"
        elif name in table.keys:
            function = "primary-key"
        else:
            function = table.function(name) or "last_non_null_value"
        functions.append(table.aggregate(name, function))
    row: Row = [None] * len(table.fields)
    deleted = False
    for record in ordered:
        deleted = table.true("aggregation.remove-record-on-delete") and record.kind == "-D"
        if deleted:
            table.check_not_null(record.values)
            row = list(record.values)
            continue
        for index, function in enumerate(functions):
            step = function.agg if record.kind in ADDS else function.retract
            row[index] = step(row[index], record.values[index])
    return replace(ordered[-1], kind="-D" if deleted else "+I", values=tuple(row))


# the functions (spec 05 §6)


def function_of(options: Mapping[str, str], field: DataField, name: str) -> _Function:
    """One function of one column, fresh, as each group needs its own: agg, agg_reversed, retract."""
    return _Function(_Table(options, [field], []), field.name, name)


class _Function:
    """One function of one column, for one group: `first_value` and its like remember what they met."""

    def __init__(self, table: _Table, column: str, name: str) -> None:
        self.options = {key[len(f"fields.{column}.") :]: value for key, value in table.options.items() if key.startswith(f"fields.{column}.")}
        self.type: DataType = table.fields[table.names.index(column)].type
        self.name = "first_non_null_value" if name == "first_not_null_value" else name
        self.ignore_retract = self.options.get("ignore-retract", "false") == "true"
        self.distinct = self.options.get("distinct", "false") == "true"
        self.met = False

    def agg(self, acc: Any, value: Any) -> Any:
        one_sided: Callable[[Any, Any], Any] | None = {
            "sum": self._add,
            "product": self._multiply,
            "max": lambda a, b: b if order(a) < order(b) else a,
            "min": lambda a, b: a if order(a) < order(b) else b,
            "bool_and": lambda a, b: a and b,
            "bool_or": lambda a, b: a or b,
            "merge_map": lambda a, b: _overlaid(a, b),
            "rbm32": self._union32,
        }.get(self.name)
        if one_sided is not None:
            return value if acc is None else acc if value is None else one_sided(acc, value)
        match self.name:
            case "primary-key" | "last_value":
                return value
            case "last_non_null_value":
                return acc if value is None else value
            case "first_value":
                met, self.met = self.met, True
                return acc if met else value
            case "first_non_null_value":
                if self.met or value is None:
                    return acc
                self.met = True
                return value
            case "listagg":
                return self._listagg(acc, value)
            case "collect":
                return self._collect(acc, value)
            case "merge_map_with_keytime":
                return self._with_keytime(acc, value)
            case "nested_update":
                return self._nested_update(acc, value)
            case "nested_partial_update":
                return self._nested_partial_update(acc, value)
        raise AssertionError(self.name)

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        if self.name == "collect" and not self.ignore_retract:
            return self.agg(acc, value)
        return self.agg(value, acc)

    def retract(self, acc: Any, value: Any) -> Any:
        if self.ignore_retract:
            return acc
        match self.name:
            case "primary-key":
                return value
            case "last_value":
                return None
            case "last_non_null_value":
                return None if value is not None else acc
            case "sum":
                if acc is None:
                    return None if value is None else self._negate(value)
                return acc if value is None else self._subtract(acc, value)
            case "product":
                return acc if acc is None or value is None else self._divide(acc, value)
            case "merge_map":
                if acc is None or not value:
                    return acc
                gone = [_same(key) for key, _ in value]
                return [(key, item) for key, item in acc if _same(key) not in gone]
            case "collect":
                return self._uncollect(acc, value)
            case "nested_update":
                return self._nested_retract(acc, value)
        raise Refused(f"{self.name} does not retract")

    # numbers (§6.1)

    def _add(self, a: Any, b: Any) -> Any:
        return self._fit_sum(EXACT.add(a, b) if self._is_decimal else a + b)

    def _subtract(self, a: Any, b: Any) -> Any:
        return self._fit_sum(EXACT.subtract(a, b) if self._is_decimal else a - b)

    def _negate(self, value: Any) -> Any:
        return EXACT.minus(value) if self._is_decimal else self._fit(-value)

    def _multiply(self, a: Any, b: Any) -> Any:
        return self._rounded(EXACT.multiply(a, b)) if self._is_decimal else self._fit(a * b)

    def _divide(self, a: Any, b: Any) -> Any:
        if self._is_decimal:
            if b == 0:
                raise Refused("division by zero")
            return self._rounded(_exact_quotient(a, b))
        if self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            return self._fit(_ieee_quotient(a, b))
        if b == 0:
            raise Refused("division by zero")
        quotient = abs(a) // abs(b)
        return self._fit(quotient if (a < 0) == (b < 0) else -quotient)

    @property
    def _is_decimal(self) -> bool:
        return self.type.root is TypeRoot.DECIMAL

    def _fit(self, value: Any) -> Any:
        """Of a number that is no decimal: in its width."""
        bits = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}.get(self.type.root)
        if bits is not None:
            if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                raise Refused("overflow")
            return value
        if self.type.root is TypeRoot.FLOAT:
            return _float32(value)
        return value

    def _fit_sum(self, value: Any) -> Any:
        if not self._is_decimal:
            return self._fit(value)
        unscaled = int(EXACT.scaleb(value, self.type.scale))
        if self.type.precision <= 18 and -(1 << 63) <= unscaled < 1 << 63:
            return value
        return value if len(str(abs(unscaled))) <= self.type.precision else None

    def _rounded(self, value: decimal.Decimal) -> decimal.Decimal | None:
        found = value.quantize(decimal.Decimal(1).scaleb(-self.type.scale), rounding=decimal.ROUND_HALF_UP, context=EXACT)
        unscaled = abs(int(EXACT.scaleb(found, self.type.scale)))
        return found if len(str(unscaled)) <= self.type.precision else None

    # texts (§6.2)

    def _listagg(self, acc: str | None, value: str | None) -> str | None:
        if _blank(value):
            return acc
        if _blank(acc):
            return value
        assert acc is not None and value is not None
        delimiter = self.options.get("list-agg-delimiter", ",")
        if not self.distinct:
            return acc + delimiter + value
        known = _tokens(acc, delimiter)
        for token in _tokens(value, delimiter):
            if not _blank(token) and token not in known:
                known.append(token)
                acc = acc + delimiter + token
        return acc

    # arrays and maps (§6.3–§6.6)

    def _collect(self, acc: Row | None, value: Row | None) -> Row | None:
        if acc is None and value is None:
            return None
        if not self.distinct:
            return value if acc is None else acc if value is None else acc + value
        element = self.type.element
        assert element is not None
        trusted = element.root in (TypeRoot.ROW, TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.BINARY, TypeRoot.VARBINARY)
        found: Row = list(acc or []) if trusted else []
        known = [_same(part) for part in found]
        for part in [*([] if trusted else acc or []), *(value or [])]:
            if _same(part) not in known:
                known.append(_same(part))
                found.append(part)
        return found

    def _uncollect(self, acc: Row | None, value: Row | None) -> Row | None:
        if acc is None or not value:
            return acc
        left = [_same(part) for part in value]
        found = []
        for part in acc:
            if _same(part) in left:
                left.remove(_same(part))
            else:
                found.append(part)
        return found

    def _with_keytime(self, acc: Any, value: Any) -> Any:
        if acc is None or value is None:
            return value if acc is None else acc
        row = self.type.element
        assert row is not None
        field = self.options.get("ts-field", row.fields[-1].name)
        found = {_same(key): (key, item) for key, item in acc}
        for key, item in value:
            if item is None:
                found.pop(_same(key), None)
                continue
            if item[field] is None:
                continue
            old = found.get(_same(key), (key, None))[1]
            if old is None or old[field] is None or _java_text(item[field]) > _java_text(old[field]):
                found[_same(key)] = (key, item)
        return list(found.values())

    def _nested_update(self, acc: Any, value: Any) -> Any:
        if value is None:
            return acc
        limit = int(self.options.get("count-limit", str(2**31 - 1)))
        key = _names(self.options.get("nested-key"))
        if not key:
            if acc is not None and len(acc) >= limit:
                return acc
            new = [row for row in value if row is not None]
            if acc is None:
                return new[:limit]
            return [row for row in acc if row is not None] + new[: limit - len(acc)]
        sequence = _names(self.options.get("nested-sequence-field"))
        rows: dict[Any, Any] = {}
        for source, row in [*((0, row) for row in acc or []), *((1, row) for row in value)]:
            name = self._nested_key(key, row)
            if name is None:
                continue
            if name not in rows:
                if source == 0 or len(rows) < limit:
                    rows[name] = row
            elif [order(row[one]) for one in sequence] >= [order(rows[name][one]) for one in sequence]:
                rows[name] = row
        return list(rows.values())

    def _nested_partial_update(self, acc: Any, value: Any) -> Any:
        if value is None:
            return acc
        key = _names(self.options.get("nested-key"))
        rows: dict[Any, Any] = {}
        for row in [*(acc or []), *value]:
            name = self._nested_key(key, row)
            if name is not None:
                old = rows.get(name, {})
                rows[name] = {field: old.get(field) if item is None else item for field, item in row.items()}
        return list(rows.values())

    def _nested_retract(self, acc: Any, value: Any) -> Any:
        if acc is None or value is None:
            return acc
        key = _names(self.options.get("nested-key"))
        if not key:
            gone = [_same(row) for row in value if row is not None]
            return [row for row in acc if row is not None and _same(row) not in gone]
        rows = {name: row for row in acc if (name := self._nested_key(key, row)) is not None}
        for row in value:
            if (name := self._nested_key(key, row)) is not None:
                rows.pop(name, None)
        return list(rows.values())

    def _nested_key(self, key: Sequence[str], row: Mapping[str, Any] | None) -> Any:
        """None: the row is left out."""
        if row is None:
            return None
        strategy = self.options.get("nested-key-null-strategy", "merge")
        if any(row[name] is None for name in key) and strategy != "merge":
            if strategy == "error":
                raise Refused("a nested key is null")
            return None
        return tuple(_same(row[name]) for name in key)

    # bitmaps (§6.7)

    def _union32(self, a: bytes, b: bytes) -> bytes:
        from pyroaring import BitMap

        union = BitMap.deserialize(a) | BitMap.deserialize(b)
        union.run_optimize()
        return union.serialize()


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _blank(text: str | None) -> bool:
    """As Java's `Character.isWhitespace`, which knows neither no-break spaces nor U+0085."""
    return text is None or all((c.isspace() and c not in "\u00a0\u2007\u202f\u0085") or "\x1c" <= c <= "\x1f" for c in text)


def _tokens(text: str, delimiter: str) -> list[str]:
    parts = text.split(delimiter or " ")
    return parts[:-1] if parts[-1] == "" else parts


def _same(value: Any) -> Any:
    """What is equal for equal values only: NaN equals itself, −0.0 is not 0.0, and 1 is not true."""
    match value:
        case list() | tuple():
            return tuple(_same(part) for part in value)
        case dict():
            return tuple((name, _same(part)) for name, part in value.items())
    return (type(value).__name__, order(value))


def _java_text(value: Any) -> bytes:
    """Java compares texts by their UTF-16 units."""
    return str(value).encode("utf-16-be", "surrogatepass")


def _float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _ieee_quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _exact_quotient(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
    """Refused when its expansion does not end."""
    context = decimal.Context(prec=400, traps=[decimal.Inexact])
    try:
        return context.divide(a, b)
    except decimal.Inexact:
        raise Refused("the quotient has no exact decimal expansion") from None


def _overlaid(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    found = {_same(key): (key, value) for key, value in a}
    for key, value in b:
        found[_same(key)] = (found.get(_same(key), (key,))[0], value)
    return list(found.values())
