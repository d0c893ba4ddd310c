"""Random columns of every type that can be indexed, in every form that Arrow may hand over, against row-by-row writers and plain search."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from maintainer.data.spill import Spill
from maintainer.data.values import to_arrow_array
from maintainer.format import bitmap_file, key_bytes
from maintainer.index.family import column_sort, ordering
from maintainer.index.payload import DEFAULT_MEMORY, Resources
from maintainer.model.predicate import Leaf, Op
from maintainer.model.types import CHARACTERS, FLOATS, DataType, TypeRoot
from maintainer.model.values import order_key
from tests.support.builders import type_
from tests.support.campaign import share
from tests.support.sorted_index import build_arrays, content, definition, grouped, open_payload, reference_bitmap, reference_btree

ROUNDS = share("random columns of indexes", short=160, long=8000)
TEXTS = ["", "a", "a\0", "a\0b", "ab", "b", "\0", "é", "ü" * 3, "\ud7ff", "\ue000", "\uffff", "😀", "😀a", "\U0010ffff", "x" * 14, "x" * 15,
         "x" * 70, "x" * 69 + "y", "y" * 5000]  # fmt: skip
EDGES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-(2**15), -1, 0, 2**15 - 1],
    "INT": [-(2**31), -256, -1, 0, 1, 255, 2**31 - 1],
    "BIGINT": [-(2**63), -(2**32), -1, 0, 1, 2**32, 2**63 - 1],
    "FLOAT": [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), 2.0**-149, 3.4028234663852886e38],
    "DOUBLE": [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308],
    "DECIMAL(5, 2)": [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.00"), Decimal("999.99")],
    "DECIMAL(18, 0)": [Decimal(-(10**18) + 1), Decimal(-1), Decimal(0), Decimal(255), Decimal(10**18 - 1)],
    "DECIMAL(19, 3)": [
        Decimal("-9999999999999999.999"),
        Decimal("-0.001"),
        Decimal("0.000"),
        Decimal("0.128"),
        Decimal("9999999999999999.999"),
    ],
    "DECIMAL(38, 10)": [Decimal(n).scaleb(-10) for n in (-(10**37), -(2**64), -1, 0, 127, 128, 2**63, 2**64, 10**37)],
    "DATE": [-719162, -1, 0, 1, 2932896],
    "TIME": [0, 1, 999, 86_399_999],
    "TIMESTAMP(0)": [n * 10**9 for n in (-62135596800, -1, 0, 1, 4102444800)],
    "TIMESTAMP(3)": [n * 10**6 for n in (-62135596800000, -1, 0, 1, 999, 4102444800000)],
    "TIMESTAMP(6)": [n * 10**3 for n in (-62135596800000000, -1001, -1, 0, 1, 999, 1000, 128_000, 4102444800000000)],
    "TIMESTAMP(9)": [-(2**62), -1_000_001, -1, 0, 1, 127, 128, 16384, 999_999, 1_000_000, 2**62],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [n * 10**3 for n in (-1001, -1, 0, 1, 999)],
    "CHAR(4)": ["    ", "a   ", "ab  ", "é   ", "abcd"],
    "VARCHAR(70)": TEXTS[:18],
    "STRING": TEXTS,
}
REFERENCES: dict[str, Callable[..., bytes]] = {"btree": reference_btree, "bitmap": reference_bitmap}


def fresh(chance: random.Random, name: str) -> Any:
    """A value that is probably on no list."""
    data_type = type_(name)
    match data_type.root:
        case TypeRoot.BOOLEAN:
            return chance.random() < 0.5
        case root if root in FLOATS:
            return float(chance.randrange(-(2**20), 2**20)) / 8
        case root if root in CHARACTERS:
            length = 4 if root is TypeRoot.CHAR else chance.choice([1, 3, 7, 8, 20])
            return "".join(chance.choice("ab\0é😀") for _ in range(length))[: data_type.length or None]
        case TypeRoot.DECIMAL:
            return Decimal(chance.randrange(10 ** min(data_type.precision, 20))).scaleb(-data_type.scale)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            step = 10 ** (9 - data_type.precision)
            return chance.randrange(-(10**18), 10**18) // step * step
        case _:
            low, high = min(EDGES[name]), max(EDGES[name])
            return chance.randint(low, high)


def column(chance: random.Random, name: str) -> list[Any]:
    size = chance.choice([1, 2, 9, 60, 300])
    pool = {
        "edges": lambda: EDGES[name],
        "one": lambda: [chance.choice(EDGES[name])],
        "few": lambda: [fresh(chance, name) for _ in range(3)] + chance.sample(EDGES[name], 2),
        "many": lambda: [fresh(chance, name) for _ in range(size)] + EDGES[name],
        "none": lambda: [None],
    }[chance.choices(["edges", "one", "few", "many", "none"], [4, 2, 3, 4, 1])[0]]()
    nulls = chance.choice([0, 0, 0.1, 0.9])
    found = [None if chance.random() < nulls else chance.choice(pool) for _ in range(size)]
    return sorted(found, key=order_key) if chance.random() < 0.2 else found


def chunks(chance: random.Random, values: Sequence[Any], data_type: DataType) -> list[pa.Array]:
    """The column in pieces: plain, dictionary-encoded, from the middle of a longer array, empty, with other widths of offsets."""
    found = []
    start = 0
    while start < len(values):
        end = min(len(values), start + chance.choice([1, 4, 30, 1000]))
        piece = values[start:end]
        form = chance.choice(["plain", "dictionary", "slice", "slice of a dictionary", "large"])
        if form.startswith("slice"):
            before = [chance.choice(values) for _ in range(chance.randint(1, 9))]
            array = to_arrow_array([*before, *piece, *before], data_type)
            array = (array.dictionary_encode() if "dictionary" in form else array).slice(len(before), len(piece))
        else:
            array = to_arrow_array(piece, data_type)
            if form == "dictionary":
                array = array.dictionary_encode()
            elif form == "large" and data_type.root in CHARACTERS:
                array = array.cast(pa.large_string())
        found.append(array)
        if chance.random() < 0.1:
            found.append(to_arrow_array([], data_type))
        start = end
    return found


def conditions(chance: random.Random, name: str, values: Sequence[Any]) -> list[Leaf]:
    data_type = type_(name)
    known = [value for value in values if value is not None]

    def literal() -> Any:
        return chance.choice(known) if known and chance.random() < 0.6 else chance.choice([*EDGES[name], fresh(chance, name)])

    found = [Leaf(Op.IS_NULL, "c"), Leaf(Op.IS_NOT_NULL, "c")]
    found += [Leaf(op, "c", (literal(),)) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)]
    found += [Leaf(op, "c", (literal(), literal())) for op in (Op.BETWEEN, Op.NOT_BETWEEN)]
    found += [Leaf(op, "c", tuple(literal() for _ in range(chance.randint(0, 5)))) for op in (Op.IN, Op.NOT_IN)]
    if data_type.root in CHARACTERS:
        text = literal()
        cut = chance.randint(0, len(text))
        found += [
            Leaf(Op.STARTS_WITH, "c", (text[:cut],)),
            Leaf(Op.ENDS_WITH, "c", (text[cut:],)),
            Leaf(Op.CONTAINS, "c", (text[cut // 2 : cut],)),
        ]
    return found


def matches(leaf: Leaf, value: Any) -> bool:
    """What a condition means for one value."""
    if leaf.op is Op.IS_NULL:
        return value is None
    if value is None:
        return False
    own, keys = order_key(value), [order_key(literal) for literal in leaf.literals]
    return {
        Op.IS_NOT_NULL: lambda: True,
        Op.EQ: lambda: own == keys[0],
        Op.NE: lambda: own != keys[0],
        Op.LT: lambda: own < keys[0],
        Op.LE: lambda: own <= keys[0],
        Op.GT: lambda: own > keys[0],
        Op.GE: lambda: own >= keys[0],
        Op.BETWEEN: lambda: keys[0] <= own <= keys[1],
        Op.NOT_BETWEEN: lambda: own < keys[0] or own > keys[1],
        Op.IN: lambda: own in keys,
        Op.NOT_IN: lambda: own not in keys,
        Op.STARTS_WITH: lambda: value.startswith(leaf.literal),
        Op.ENDS_WITH: lambda: value.endswith(leaf.literal),
        Op.CONTAINS: lambda: leaf.literal in value,
    }[leaf.op]()


@pytest.mark.parametrize("kind", ["btree", "bitmap"])
@pytest.mark.parametrize("part", range(4))
def test_random_columns(kind: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(part, ROUNDS, 4):
        chance = random.Random(seed)
        monkeypatch.setattr(ordering, "BATCH_ROWS", chance.choice([1, 2, 7, 1 << 18]))
        monkeypatch.setattr(ordering, "BATCH_KEY_BYTES", chance.choice([1, 40, 32 << 20]))
        monkeypatch.setattr(ordering, "_PIECE", chance.choice([1, 5, 1 << 16]))
        memory = chance.choice([1, 2_000, 20_000, DEFAULT_MEMORY])
        monkeypatch.setattr(column_sort, "_SAMPLE", chance.choice([1, 5, 2048]))
        monkeypatch.setattr(column_sort, "_REPEATS", chance.choice([1, 2, 4]))
        monkeypatch.setattr(bitmap_file, "CHUNK_IDS", chance.choice([1, 3, 1 << 20]))
        name = chance.choice(list(EDGES))
        block_size = chance.choice([1, 5, 20, 100, 65536])
        block = "block-size" if kind == "btree" else "dictionary-block-size"
        compression = chance.choice(["none", "zstd"])
        peers = chance.choice(["off", "auto"])
        options = {f"{kind}-index.{block}": f"{block_size} b", f"{kind}-index.compression": compression, "maintain.bitmap-peer-blocks": peers}
        index = definition(kind, name, options)
        values = column(chance, name)
        arrays = chunks(chance, values, index.data_type)
        about = f"seed {seed}: {name}, {values}"
        given = arrays if chance.random() < 0.5 or any(pa.types.is_dictionary(each.type) for each in arrays) else iter(arrays)
        built = build_arrays(given, index, len(values), Resources(memory, spill := Spill()))
        assert not spill.used
        entries, nulls = grouped(values, index.data_type)
        if kind == "btree" or peers == "off":
            assert content(built) == REFERENCES[kind](entries, nulls, block_size, compression), about
        reader = open_payload(content(built), index, built.index_meta, len(values))
        assert reader.verify() == [], about
        assert _pairs(reader) == {(key, ordinal) for key, ids in entries for ordinal in ids}, about
        for leaf in conditions(chance, name, values):
            _check(reader, leaf, values, index.data_type, kind, about)


def _pairs(reader: Any) -> set[tuple[bytes, int]]:
    """Everything that the payload holds."""
    found = []
    for keys, ids, counts in reader.batches():
        ends = counts.cumsum().tolist()
        found += [(key, ordinal) for key, start, end in zip(keys, [0, *ends], ends, strict=False) for ordinal in ids[start:end].tolist()]
    assert len(set(found)) == len(found)
    return set(found)


def _check(reader: Any, leaf: Leaf, values: Sequence[Any], data_type: DataType, kind: str, about: str) -> None:
    answer = reader.evaluate(leaf)
    expected = {ordinal for ordinal, value in enumerate(values) if matches(leaf, value)}
    assert answer is not None, f"{leaf}, {about}"
    assert expected <= set(answer), f"{leaf}, {about}"
    zero = data_type.root in FLOATS and any(literal == 0 for literal in leaf.literals)
    scanned = leaf.op in (Op.ENDS_WITH, Op.CONTAINS) and kind == "btree"
    if not zero and not scanned:
        assert expected == set(answer), f"{leaf}, {about}"


def test_keys_of_edges_are_all_different() -> None:
    """So that the cases above are as many as they look."""
    for name, values in EDGES.items():
        assert len({key_bytes.encode(value, type_(name)) for value in values}) == len(values)
