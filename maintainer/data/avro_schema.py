"""Avro schemas of data files in Arrow's words (spec 02 §5; Java `AvroSchemaConverter`).

Reading goes through a *raw* schema with the same binary form but fewer kinds of types: text is bytes, a map is an array of pairs, and
logical types are the numbers and bytes below them. Decoders that know nothing else then agree, and names of columns cannot trouble them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from maintainer.errors import CorruptFile, Unsupported

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.binary(),
}
_TIMES = {
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "time-micros": pa.time64("us"),
}
_DEEPEST = 64


@dataclass(frozen=True)
class Node:
    """A type of a file: its raw schema, the Arrow type that this decodes to, and how Arrow values of the type come from it."""

    raw: Any
    arrow: pa.DataType
    natural: Callable[[pa.Array], pa.Array]


def parse(text: str) -> Mapping[str, Node]:
    """The columns of a file by their names, in order."""
    try:
        root = json.loads(text)
        if root["type"] != "record":
            raise CorruptFile(f"its records are of type {root['type']!r}")
        reader = _Reader()
        columns = [(field["name"], reader.node(field["type"], 0)) for field in root["fields"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"its Avro schema cannot be understood: {type(error).__name__}: {error}") from None
    nodes = dict(columns)
    if len(nodes) < len(columns):
        raise CorruptFile("two columns have one name")
    return nodes


class _Reader:
    def __init__(self) -> None:
        self._records = 0
        self._named: dict[str, Any] = {}

    def node(self, schema: Any, depth: int) -> Node:
        if depth > _DEEPEST:
            raise CorruptFile("its Avro schema is too deep")
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str):
            if schema in self._named:
                return self.node(self._named[schema], depth + 1)
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self._named:
            return self.node(kind, depth + 1)
        match kind:
            case "record":
                return self._record(schema, depth)
            case "array":
                return self._array(schema["items"], schema.get("logicalType") == "map", depth)
            case "map":
                members = [{"name": "key", "type": "string"}, {"name": "value", "type": schema["values"]}]
                return self._array({"type": "record", "name": "", "fields": members}, True, depth)
            case _ if kind in _PRIMITIVES:
                return _primitive(kind, schema)
            case _:
                raise Unsupported(f"Avro type {kind!r} is not read")

    def _union(self, branches: list[Any], depth: int) -> Node:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1 or len(branches) > 2:
            raise Unsupported(f"a union of {len(branches)} Avro types is not read")
        inner = self.node(others[0], depth + 1)
        return Node(["null" if branch == "null" else inner.raw for branch in branches], inner.arrow, inner.natural)

    def _record(self, schema: Mapping[str, Any], depth: int) -> Node:
        self._records += 1
        name = f"r{self._records}"
        if schema["name"]:
            self._named[schema["name"]] = schema
        names = [str(field["name"]) for field in schema["fields"]]
        nodes = [self.node(field["type"], depth + 1) for field in schema["fields"]]
        if not nodes:
            raise Unsupported("a record without members is not read")
        raw = {"type": "record", "name": name, "fields": [{"name": f"f{index}", "type": node.raw} for index, node in enumerate(nodes)]}

        def natural(array: pa.Array) -> pa.Array:
            children = [node.natural(child) for node, child in zip(nodes, array.flatten(), strict=True)]
            return pa.StructArray.from_arrays(children, names, mask=array.is_null() if array.null_count else None)

        return Node(raw, pa.struct([(f"f{index}", node.arrow) for index, node in enumerate(nodes)]), natural)

    def _array(self, items: Any, is_map: bool, depth: int) -> Node:
        item = self.node(items, depth + 1)

        def natural(array: pa.Array) -> pa.Array:
            values = item.natural(array.values)
            found = pa.ListArray.from_arrays(array.offsets.cast(pa.int32()), values, mask=array.is_null() if array.null_count else None)
            return _as_map(found) if is_map else found

        return Node({"type": "array", "items": item.raw}, pa.list_(item.arrow), natural)


def _as_map(array: pa.ListArray) -> pa.MapArray:
    pairs = array.values
    if not pa.types.is_struct(pairs.type) or pairs.type.num_fields != 2 or pairs.null_count:
        raise CorruptFile("a map that does not consist of keys and values")
    keys, items = pairs.flatten()
    if keys.null_count:
        raise CorruptFile("a NULL as the key of a map")
    arrow = pa.map_(keys.type, items.type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
    return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])


def _primitive(kind: str, schema: Mapping[str, Any]) -> Node:
    raw, arrow = ("bytes" if kind == "string" else kind), _PRIMITIVES[kind]
    logical = schema.get("logicalType")
    if kind == "long" and logical in _TIMES:
        target = _TIMES[logical]
        return Node(raw, arrow, lambda array: array.view(target))
    if kind == "bytes" and logical == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if not 0 <= scale <= precision <= 38 or not precision:
            raise CorruptFile(f"decimals of precision {precision} and scale {scale}")
        return Node(raw, arrow, lambda array: _decimals(array, pa.decimal128(precision, scale)))
    return Node(raw, arrow, lambda array: array)


def _decimals(array: pa.Array, arrow: pa.Decimal128Type) -> pa.Array:
    """Big-endian two's complement of any length as 128 bits."""
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, width, len(array) + 1, array.offset * np.dtype(width).itemsize).astype(np.int64)
    valid = np.asarray(array.is_valid())
    lengths = np.where(valid, np.diff(offsets), 1)
    if len(array) and (lengths.max() > 16 or lengths.min() < 1):
        raise CorruptFile(f"a decimal of {lengths.max() if lengths.max() > 16 else 0} bytes")
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    last = len(data) - 1
    sign = np.where(data[np.clip(offsets[:-1], 0, last)] >= 0x80, 0xFF, 0).astype(np.uint8)
    digits = np.empty((len(array), 16), np.uint8)
    for place in range(16):
        digits[:, place] = np.where(lengths > place, data[np.clip(offsets[1:] - 1 - place, 0, last)], sign)
    mask = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(arrow, len(array), [mask, pa.py_buffer(digits)])
