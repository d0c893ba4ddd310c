"""What users of an indexed scan rely on: the scalar part of spec 07 §17, one case a row of it, in the order of that table.

Every question is asked with the indexes and without them; both must give the rows of a plain model (`tests.support.predicates.holds`), which
knows neither files nor indexes. Where the plan is part of the promise, decisions are compared, too.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from structlog.testing import capture_logs

import maintainer
from maintainer.data.reader import DataFile
from maintainer.format.source_meta import decode, encode
from maintainer.index.family import FamilyReader
from maintainer.model.files import EMPTY_ROW, BucketKey, FileSource, IndexFileMeta
from maintainer.model.predicate import And, Leaf, Op, Or, Predicate
from maintainer.model.schema import TableSchema
from maintainer.read import evaluate
from maintainer.read.decisions import INDEXED, MERGED, PRUNED, RAW
from maintainer.read.evaluate import BucketIndexes
from maintainer.read.scan import Scan
from maintainer.table.opening import open_store
from maintainer.table.store import TableStore
from tests.support.builders import schema, type_
from tests.support.built_tables import BuiltTable
from tests.support.evolve import add_column, rename_column, retype_column
from tests.support.predicates import holds
from tests.support.small_table import SmallTable

FORMATS = ("parquet", "orc", "avro")
WORDS = ["red", "green", "blue", None]
COLUMNS = {"id": "INT", "a": "INT", "s": "STRING", "t": "STRING", "l": "ARRAY<INT>", "x": "DOUBLE"}
INDEXES = {
    "pk-btree.index.columns": "a",
    "pk-bitmap.index.columns": "s",
    "pk-fm.index.columns": "t",
    "pk-multivalue.index.columns": "l",
    "fm-index.locate-cost-ratio": "1",
    "fm-index.sa-sample-rate": "1",
    "metadata.stats-mode": "none",  # so that files reach the indexes
}
DELETED = (0, 5, 19)
Row = dict[str, Any]


VECTORS = {"bucket": "1", "deletion-vectors.enabled": "true"}


def schema_of(columns: dict[str, str], **options: str) -> TableSchema:
    return schema(columns, options={**VECTORS, **options})


def row(i: int) -> Row:
    lists = [None, [], [1], [1, 2], [2, 2, None], [3, 1, 2]]
    return {"id": i, "a": None if i % 5 == 4 else i % 5, "s": WORDS[i % 4], "t": WORDS[i % 3], "l": lists[i % 6], "x": float(i)}


@dataclass
class Asked:
    """A table and the rows that a batch reader sees."""

    store: TableStore
    rows: list[Row]

    def scan(self, condition: Any, **how: Any) -> Scan:
        return Scan(self.store, condition, ["id"], **how)

    def check(self, predicate: Predicate) -> Sequence[str]:
        """The rows are right in every way of asking; what was decided about each file."""
        expected = sorted(each["id"] for each in self.rows if holds(predicate, each))
        with capture_logs() as logs:
            for use_index in (True, False):
                found = self.scan(predicate, use_index=use_index).to_arrow()["id"].to_pylist()
                assert sorted(found) == expected, (predicate, use_index)
        assert logs == []
        return [file.decision for file in self.scan(predicate).explain().files]


def eq(column: str, value: Any) -> Leaf:
    return Leaf(Op.EQ, column, (value,))


def built(directory: Path, columns: dict[str, str], rows: Sequence[Row], deleted: Iterable[int] = (), **options: str) -> Asked:
    """One covered file of level 5."""
    table = BuiltTable(directory, schema_of(columns, **options))
    table.put(rows, deleted=list(deleted))
    table.index()
    table.publish()
    gone = {rows[position]["id"] for position in deleted}
    return Asked(table.store, [each for each in rows if each["id"] not in gone])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Level 5: ids 0–19 and 20–39; level 3: 40–49; level 2: 50–59, an APPEND file, so not covered; level 0: 60–69, so not visible."""
    table = BuiltTable(tmp_path_factory.mktemp("t") / "t", schema_of(COLUMNS, **INDEXES))
    table.put([row(i) for i in range(20)], deleted=DELETED)
    table.put([row(i) for i in range(20, 40)])
    table.put([row(i) for i in range(40, 50)], level=3)
    table.put([row(i) for i in range(50, 60)], level=2, source=FileSource.APPEND)
    table.put([row(i) for i in range(60, 70)], level=0, source=FileSource.APPEND)
    table.index()
    table.publish()
    return Asked(table.store, [row(i) for i in range(60) if i not in DELETED])


COVERED = 3
"""Files of the table that every index covers; behind them come the APPEND file and that of level 0."""


# --------------------------------------------------------------------------------------------------- coverage, payloads, results


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_switch_changes_no_row(table: Asked, enabled: str) -> None:
    switched = Asked(open_store(table.store.uri, options={"global-index.enabled": enabled}), table.rows)
    for predicate in (eq("a", 1), Leaf(Op.NE, "s", ("red",)), Leaf(Op.CONTAINS, "t", ("e",)), Leaf(Op.ARRAYS_OVERLAP, "l", (1, 3))):
        assert (INDEXED in switched.check(predicate)) == (enabled == "true")


def test_no_coverage_and_level_0_all_visible_rows_once(tmp_path: Path) -> None:
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **INDEXES))
    table.put([row(i) for i in range(10)])
    table.put([row(i) for i in range(10, 20)], level=0, source=FileSource.APPEND)
    table.publish()
    asked = Asked(table.store, [row(i) for i in range(10)])
    assert asked.check(eq("a", 1)) == [RAW, PRUNED]
    assert asked.check(Leaf(Op.IS_NOT_NULL, "id")) == [RAW, PRUNED]


def test_partial_coverage_and_level_0_all_visible_rows_once(table: Asked) -> None:
    assert table.check(eq("a", 1)) == [INDEXED] * COVERED + [RAW, PRUNED]
    assert table.check(Leaf(Op.IS_NOT_NULL, "id")) == [RAW] * (COVERED + 1) + [PRUNED]


FAMILIES = {
    "a": ("btree", eq("a", 1)),
    "s": ("bitmap", eq("s", "red")),
    "t": ("fm", Leaf(Op.CONTAINS, "t", ("gree",))),
    "l": ("multivalue", Leaf(Op.ARRAY_CONTAINS, "l", (1,))),
}


@pytest.mark.parametrize("column", FAMILIES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-12] + bytes(12)),
        lambda path: path.write_bytes(bytes(byte ^ 0x10 for byte in path.read_bytes())),
    ],
    ids=["missing", "cut", "empty", "footer", "flipped"],
)
def test_a_broken_payload_is_read_around_with_one_warning(tmp_path: Path, column: str, damage: Callable[[Path], None]) -> None:
    family, leaf = FAMILIES[column]
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **INDEXES))
    table.put([row(i) for i in range(20)])
    table.put([row(i) for i in range(20, 40)])
    (payload,) = table.index([column])
    table.publish()
    damage(table.index_path(payload))
    with capture_logs() as logs:
        scan = Scan(table.store, leaf, ["id"])
        found = sorted(scan.to_arrow()["id"].to_pylist())
    assert found == [i for i in range(40) if holds(leaf, row(i))]
    assert [(log["event"], log["log_level"], log["payload"]) for log in logs] == [("index.unusable", "warning", payload.file_name)]
    plan = scan.explain()
    assert [file.decision for file in plan.files] == [RAW, RAW]
    assert f"the {family} index cannot be read" in plan.files[0].reason


class Lying:
    """A reader that answers everything with these ordinals."""

    def __init__(self, ordinals: BitMap64) -> None:
        self._ordinals = ordinals

    def evaluate(self, leaf: Leaf) -> BitMap64:
        return self._ordinals

    def why_not(self, leaf: Leaf) -> str:
        return "lies"


def test_an_ordinal_that_no_source_has_makes_all_answers_of_its_payload_unknown(table: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    reader: FamilyReader = Lying(BitMap64([1, 40]))  # type: ignore[assignment]
    monkeypatch.setattr(evaluate, "open_payload", lambda *_: reader)
    with capture_logs() as logs:
        decisions = [file.decision for file in table.scan(eq("a", 1)).explain().files]
    assert decisions == [RAW] * (COVERED + 1) + [PRUNED]
    assert sorted(log["error"].partition(": corrupt: ")[2] for log in logs) == ["ordinal 40 of 10 rows", "ordinal 40 of 40 rows"]


@pytest.mark.parametrize(("ranges", "decision"), [(4096, INDEXED), (4097, RAW)])
def test_more_than_4096_ranges_are_read_raw(tmp_path: Path, ranges: int, decision: str) -> None:
    rows = [{"id": i, "a": i % 2} for i in range(2 * ranges)]
    asked = built(tmp_path / "t", {"id": "INT", "a": "INT"}, rows, **{"pk-btree.index.columns": "a", "file.format": FORMATS[ranges % 3]})
    assert asked.check(eq("a", 1)) == [decision]


def test_all_rows_no_row_and_the_last_row(table: Asked, tmp_path: Path) -> None:
    rows = [{"id": i, "a": int(i == 9)} for i in range(10)]
    asked = built(tmp_path / "t", {"id": "INT", "a": "INT"}, rows, **{"pk-btree.index.columns": "a"})
    for literals, ranges in (((0, 1), ((0, 9),)), ((2, 3), None), ((1,), ((9, 9),))):
        leaf = Leaf(Op.IN, "a", literals)
        assert asked.check(leaf) == [INDEXED if ranges else PRUNED]
        assert asked.scan(leaf).explain().files[0].ranges == ranges


def test_a_position_that_a_split_cannot_hold_is_read_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 2**31 + 10
    for last, decision in ((2**31 - 1, INDEXED), (2**31, RAW)):
        built = BuiltTable(tmp_path / str(last), schema({"id": "INT", "a": "INT"}, options={**VECTORS, "pk-btree.index.columns": "a"}))
        (file,) = built.put([{"id": i, "a": i} for i in range(10)])
        (payload,) = built.index()
        built.change(file, row_count=rows)
        built.put_index_file(with_sources(payload, lambda meta: replace(meta, files=((meta.files[0][0], rows),)), rows), replacing=payload)
        built.publish()
        reader = Lying(BitMap64([3, last]))
        monkeypatch.setattr(evaluate, "open_payload", lambda *_, reader=reader: reader)
        (plan,) = Scan(built.store, eq("a", 1)).explain().files
        assert plan.decision == decision, plan.reason
    assert plan.reason == "the index selects position 2147483648, and 2147483647 is the last that a split can hold"


# ------------------------------------------------------------------------------------------------------------------- predicates


def test_an_and_is_narrowed_beside_what_no_index_answers_and_an_or_is_not(table: Asked) -> None:
    raw = [RAW] * (COVERED + 1) + [PRUNED]

    def is_narrowed(predicate: Predicate) -> bool:
        *covered, uncovered, hidden = table.check(predicate)
        assert (uncovered, hidden) == (RAW, PRUNED)
        return INDEXED in covered and RAW not in covered

    one = eq("a", 1)
    for other in (eq("x", 21.0), Leaf(Op.CONTAINS, "s", ("re",), negated=True), Leaf(Op.LT, "t", ("h",))):
        assert is_narrowed(And((one, other)))
        assert is_narrowed(And((other, one)))
        assert table.check(Or((one, other))) == raw
        assert table.check(And((Or((one, other)), other))) == raw
        assert is_narrowed(Or((And((one, other)), eq("a", 2))))
        assert is_narrowed(And((And((one, other)), And((eq("s", "green"),)))))
    assert is_narrowed(And((one, Leaf(Op.ARRAY_CONTAINS, "l", (1,)), Leaf(Op.CONTAINS, "t", ("red",)))))


@pytest.mark.parametrize("column", ["a", "s"])
def test_conditions_that_no_row_satisfies(table: Asked, column: str) -> None:
    value = {"a": 1, "s": "red"}[column]
    for predicate in (
        And((Leaf(Op.IS_NULL, column), Leaf(Op.IS_NOT_NULL, column))),
        And((Leaf(Op.IS_NOT_NULL, column), Leaf(Op.IS_NULL, column))),
        eq(column, None),
        Leaf(Op.NE, column, (None,)),
        Leaf(Op.IN, column, ()),
        Leaf(Op.IN, column, (None,)),
        Leaf(Op.NOT_IN, column, (None,)),
        Leaf(Op.NOT_IN, column, (value, None)),
        Leaf(Op.BETWEEN, column, (value, {"a": 0, "s": "blue"}[column])),
    ):
        assert table.check(predicate)[:COVERED] == [PRUNED] * COVERED, predicate
    assert table.check(Leaf(Op.IN, column, (value, None))) == [INDEXED] * COVERED + [RAW, PRUNED]
    for op in (Op.LT, Op.LE, Op.GT, Op.GE):
        table.check(Leaf(op, column, (None,)))
    for literals in ((None, value), (value, None), (None, None)):
        table.check(Leaf(Op.BETWEEN, column, literals))
        table.check(Leaf(Op.NOT_BETWEEN, column, literals))
    for op in (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS, Op.LIKE) if column == "s" else ():
        table.check(Leaf(op, column, (None,)))


def test_not_equal_does_not_give_nulls(table: Asked) -> None:
    for predicate in (Leaf(Op.NE, "a", (1,)), Leaf(Op.NOT_IN, "a", (1, 2)), Leaf(Op.NOT_IN, "a", ()), Leaf(Op.NE, "s", ("red",))):
        assert table.check(predicate)[:COVERED] == [INDEXED] * COVERED
        assert all(each["a"] is not None or predicate.field == "s" for each in table.rows if holds(predicate, each))


TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "a\nb",
    "a\r",
    "a\x85b",
    "a\u2028b",
    "a_b",
    "_",
    "%",
    "a%b",
    "a\\b",
    "\\",
    "é",
    "😀",
    "a😀b",
    "￿",
    "\U0010ffff",
]
TEXTS += ["\U0010ffff\U0010ffff", "\x7f", "\x7f\x7f", "\x80", "a\x7f", "a\U0010ffff", "aÿ", None]
PATTERNS = [
    "",
    "%",
    "%%",
    "a",
    "a%",
    "%b",
    "%a%",
    "a%b",
    "a_b",
    "_",
    "__",
    "%_",
    "\\_",
    "\\%",
    "\\\\",
    "a\\_b",
    "a\\%b",
    "%\\\\%",
    "_%_",
    "a_",
    "%😀%",
]
PREFIXES = ["", "a", "\x7f", "\U0010ffff", "a\U0010ffff", "￿", "é", "ÿ", "\\"]


@pytest.fixture(scope="module", params=["btree", "bitmap", "fm"])
def texts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """A column of texts by the family of its index; half of the options make dictionaries of many small blocks."""
    options = {f"pk-{request.param}.index.columns": "s", "metadata.stats-mode": "none", "fm-index.locate-cost-ratio": "1"}
    options |= {"btree-index.block-size": "32 b", "bitmap-index.dictionary-block-size": "32 b", "fm-index.sa-sample-rate": "1"}
    rows = [{"id": i, "s": text} for i, text in enumerate(TEXTS * 2)]
    return built(tmp_path_factory.mktemp("texts") / "t", {"id": "INT", "s": "STRING"}, rows, deleted=[1], **options)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_like(texts: Asked, pattern: str) -> None:
    texts.check(Leaf(Op.LIKE, "s", (pattern,)))
    texts.check(Leaf(Op.LIKE, "s", (pattern,), negated=True))


@pytest.mark.parametrize("pattern", ["a\\", "\\a", "%\\b%", "\\\\\\"])
def test_a_backslash_before_anything_else_is_an_error(texts: Asked, pattern: str) -> None:
    for use_index in (True, False):
        with pytest.raises(maintainer.UsageError, match="invalid escape sequence"):
            Scan(texts.store, "s LIKE '" + pattern + "'", use_index=use_index).plan()


@pytest.mark.parametrize("text", PREFIXES)
def test_beginnings_ends_and_parts_of_texts_lose_no_row(texts: Asked, text: str) -> None:
    for op in (Op.STARTS_WITH, Op.ENDS_WITH, Op.CONTAINS):
        texts.check(Leaf(op, "s", (text,)))
    for op in (Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.EQ):
        texts.check(Leaf(op, "s", (text,)))


def test_the_empty_text_is_in_all_rows_that_are_not_null(table: Asked) -> None:
    everything = [each["id"] for each in table.rows if each["s"] is not None]
    for op in (Op.STARTS_WITH, Op.CONTAINS, Op.ENDS_WITH):
        assert table.check(Leaf(op, "s", ("",)))[:COVERED] == [INDEXED] * COVERED
        assert sorted(table.scan(Leaf(op, "s", ("",))).to_arrow()["id"].to_pylist()) == everything


FLOATS = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan, None]
TRAPS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "double": ("DOUBLE", FLOATS, FLOATS),
    "float": ("FLOAT", [0.0 if each in (5e-324, -5e-324) else each for each in FLOATS], [-0.0, 0.0, math.nan, 1.5, -math.inf]),
    "decimal": (
        "DECIMAL(10, 2)",
        [Decimal(text) for text in ("-1.50", "0.00", "0.01", "9999.99")] + [None],
        [Decimal("0.00"), Decimal("0.01")],
    ),
    "large decimal": ("DECIMAL(38, 10)", [Decimal("1E27"), Decimal("-0.0000000001"), Decimal(0), None], [Decimal("0E-10"), Decimal("1E+27")]),
    "millis": ("TIMESTAMP(3)", [-1_000_000, 0, 1_000_000, None], [0, -1_000_000]),
    "micros": ("TIMESTAMP(6)", [-1_000, 0, 1_000, None], [0, -1_000]),
    "nanos": ("TIMESTAMP(9)", [-1, 0, 1, None], [0, -1, 1]),
    "char": ("CHAR(3)", ["a", "ab", "abc", " ", "", None], ["a", "ab", "", " "]),
}


@pytest.mark.parametrize("family", ["btree", "bitmap"])
@pytest.mark.parametrize("name", TRAPS)
def test_values_that_are_easily_lost(tmp_path: Path, family: str, name: str) -> None:
    text, values, literals = TRAPS[name]
    rows = [{"id": i, "v": value} for i, value in enumerate(values * 2)]
    options = {f"pk-{family}.index.columns": "v", "metadata.stats-mode": "none"}
    asked = built(tmp_path / "t", {"id": "INT", "v": text}, rows, **options)
    for literal in literals:
        for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE):
            assert asked.check(Leaf(op, "v", (literal,))) != [RAW]
        for op in (Op.IN, Op.NOT_IN, Op.BETWEEN, Op.NOT_BETWEEN):
            assert asked.check(Leaf(op, "v", (literal, literals[-1]))) != [RAW]
    if text in ("DOUBLE", "FLOAT"):
        assert asked.check(Leaf(Op.IS_NAN, "v")) == [RAW]
        assert asked.check(And((Leaf(Op.IS_NAN, "v"), Leaf(Op.IS_NOT_NULL, "v")))) == [RAW]


@pytest.mark.parametrize(
    ("literals", "decision"),
    [((1, 1, 2), INDEXED), ((2, 1), INDEXED), ((1, None), PRUNED), ((None,), PRUNED), ((9,), PRUNED), ((), RAW)],
)
def test_contains_all(table: Asked, literals: tuple[Any, ...], decision: str) -> None:
    assert table.check(Leaf(Op.ARRAY_CONTAINS_ALL, "l", literals))[0] == decision


@pytest.mark.parametrize(
    ("leaf", "decision"),
    [
        (Leaf(Op.ARRAY_CONTAINS, "l", (None,)), PRUNED),
        (Leaf(Op.ARRAYS_OVERLAP, "l", (None, 3)), INDEXED),
        (Leaf(Op.ARRAYS_OVERLAP, "l", (None,)), PRUNED),
        (Leaf(Op.ARRAYS_OVERLAP, "l", ()), PRUNED),
        (Leaf(Op.IS_NULL, "l"), RAW),
        (Leaf(Op.IS_NOT_NULL, "l"), RAW),
        (Leaf(Op.ARRAY_CONTAINS, "l", (1,), negated=True), RAW),
    ],
    ids=str,
)
def test_arrays(table: Asked, leaf: Leaf, decision: str) -> None:
    assert table.check(leaf)[0] == decision


@pytest.mark.parametrize("limit", ["0 b", "1 b"])
def test_ranges_are_not_looked_up_in_payloads_that_are_too_large_for_it(table: Asked, limit: str) -> None:
    options = {f"{family}-index.fallback-scan-max-size": limit for family in ("btree", "bitmap")}
    store = open_store(table.store.uri, options=options)
    asked = Asked(store, table.rows)
    equality = [Leaf(Op.EQ, "a", (1,)), Leaf(Op.IN, "a", (1, 2)), Leaf(Op.NE, "a", (1,)), Leaf(Op.IS_NULL, "a"), Leaf(Op.EQ, "s", ("red",))]
    ranges = [Leaf(Op.GT, "a", (1,)), Leaf(Op.BETWEEN, "a", (1, 2)), Leaf(Op.NOT_BETWEEN, "a", (1, 2)), Leaf(Op.CONTAINS, "s", ("e",))]
    for leaf in equality:
        assert asked.check(leaf)[:COVERED] == [INDEXED] * COVERED
    for leaf in ranges:
        assert asked.check(leaf)[:COVERED] == [RAW] * COVERED
    assert asked.check(Leaf(Op.STARTS_WITH, "s", ("r",)))[:COVERED] == [INDEXED] * COVERED, "no size rule"


# ------------------------------------------------------------------------------------------------------------ files and positions


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("deleted", [(0,), (29,), (0, 29), range(30), range(1, 29), (10,)], ids=str)
def test_deleted_rows_never_come_back(tmp_path: Path, file_format: str, deleted: Sequence[int]) -> None:
    """Two files share one file of deletion vectors, a third one has none."""
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **INDEXES, **{"file.format": file_format}))
    table.put([row(i) for i in range(30)], deleted=list(deleted))
    table.put([row(i) for i in range(30, 60)], deleted=[0, 7])
    table.put([row(i) for i in range(60, 90)], level=4)
    table.index()
    table.publish()
    gone = {*deleted, 30, 37}
    asked = Asked(table.store, [row(i) for i in range(90) if i not in gone])
    for predicate in (eq("a", 0), eq("a", 4), Leaf(Op.IS_NULL, "a"), eq("s", "red"), Leaf(Op.IN, "a", (0, 1, 2, 3)), eq("id", 29)):
        asked.check(predicate)
    everything = Scan(asked.store, columns=["id"]).to_arrow()["id"].to_pylist()
    assert everything == [each["id"] for each in asked.rows]


@pytest.mark.parametrize("file_format", FORMATS)
def test_only_row_groups_that_hold_a_selected_row_are_read(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": i, "a": i, "s": f"{i * 7919}", "x": float(i)} for i in range(70_000)]
    deleted = [5, 40_000]
    options = {"pk-btree.index.columns": "a", "file.format": file_format, "metadata.stats-mode": "none"}
    asked = built(tmp_path / "t", {"id": "INT", "a": "INT", "s": "STRING", "x": "DOUBLE"}, rows, deleted, **options)
    groups: list[tuple[int, int]] = []
    for name, indexes in (("_read", 0), ("_raw_batches", 2)):
        for kind in DataFile.__subclasses__():
            original = getattr(kind, name)

            def spying(self: Any, *given: Any, original: Any = original, at: int = indexes) -> Any:
                groups.extend((self.row_groups[group].first, self.row_groups[group].rows) for group in given[at])
                return original(self, *given)

            monkeypatch.setattr(kind, name, spying)
    found = Scan(asked.store, Leaf(Op.IN, "a", (5, 6, 39_999, 40_000, 40_001))).to_arrow()
    assert found["id"].to_pylist() == [6, 39_999, 40_001] and found["x"].to_pylist() == [6.0, 39_999.0, 40_001.0]
    assert groups and all(any(first <= at < first + count for at in (6, 39_999, 40_001)) for first, count in groups)
    assert sum(count for _, count in set(groups)) < 70_000


def test_a_selection_across_the_boundary_of_row_groups(tmp_path: Path) -> None:
    for file_format in FORMATS:
        rows = [{"id": i, "a": i} for i in range(40_000)]
        options = {"pk-btree.index.columns": "a", "file.format": file_format, "metadata.stats-mode": "none"}
        asked = built(tmp_path / file_format, {"id": "INT", "a": "INT"}, rows, [20_000], **options)
        for first, last in ((10_000, 35_000), (19_999, 20_001), (0, 39_999)):
            scan = asked.scan(Leaf(Op.BETWEEN, "a", (first, last)))
            assert scan.to_arrow()["id"].to_pylist() == [i for i in range(first, last + 1) if i != 20_000]
            assert scan.explain().files[0].decision == INDEXED


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_that_came_later_were_renamed_or_widened(tmp_path: Path, file_format: str) -> None:
    columns = {"id": "INT", "a": "INT", "n": "INT", "m": "INT"}
    table = BuiltTable(tmp_path / "t", schema_of(columns, **{"pk-btree.index.columns": "a", "file.format": file_format}))
    rows = [{"id": i, "a": i % 5, "n": i, "m": i % 3} for i in range(20)]
    table.put(rows, deleted=[1])
    table.index()
    table.publish()
    add_column(table.store.uri, "later", type_("STRING"))
    rename_column(table.store.uri, "n", "number")
    retype_column(table.store.uri, "m", type_("BIGINT"))
    seen = [{"id": each["id"], "a": each["a"], "number": each["n"], "m": each["m"], "later": None} for each in rows if each["id"] != 1]
    asked = Asked(open_store(table.store.uri), seen)
    for other, expected in (
        (eq("number", 6), INDEXED),
        (eq("m", 1), INDEXED),
        (Leaf(Op.GT, "m", (2**40,)), PRUNED),
        (Leaf(Op.IS_NULL, "later"), INDEXED),
        (eq("later", "x"), PRUNED),
    ):
        assert asked.check(And((eq("a", 1), other))) in ([expected], [INDEXED])
    assert Scan(asked.store, eq("a", 1)).to_arrow().column_names == ["id", "a", "number", "m", "later"]


# --------------------------------------------------------------------------------------------------------------- snapshots, limits


def steps(tmp_path: Path) -> tuple[SmallTable, dict[int, dict[int, Any]]]:
    """A table with commits and passes one after the other, and its rows as of every snapshot."""
    table = SmallTable(tmp_path, indexes=True, write_only="true")
    seen: dict[int, dict[int, Any]] = {}

    def note() -> None:
        snapshot = table.store.latest_snapshot_id()
        assert snapshot is not None
        seen[snapshot] = dict(visible)

    visible: dict[int, Any] = {}
    for first, gone in ((0, ()), (5, (1, 2)), (12, (7,))):
        table.write({i: i % 4 for i in range(first, first + 10)}, delete=gone)
        note()  # not visible yet
        table.maintain()
        visible = dict(table.rows)
        note()
    return table, seen


def test_time_travel_reads_the_rows_and_payloads_of_that_snapshot(tmp_path: Path) -> None:
    table, seen = steps(tmp_path)
    assert len(seen) == 6
    payloads = []
    for snapshot, rows in seen.items():
        for value in range(4):
            expected = sorted(key for key, (v, _) in rows.items() if v == value)
            for use_index in (True, False):
                scan = Scan(table.store, eq("v", value), ["id"], snapshot_id=snapshot, use_index=use_index)
                assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
        plan = Scan(table.store, eq("v", 1), snapshot_id=snapshot).explain()
        payloads.append({file.group for file in plan.files if file.decision == INDEXED})
    before, first, _, second, _, third = payloads
    assert before == set() and first and second and third and first.isdisjoint(third), "the payloads of each, and none before there was one"


def test_a_tag_is_read_with_its_indexes_after_its_snapshot_expired(tmp_path: Path) -> None:
    table, seen = steps(tmp_path)
    directory, chosen = Path(table.path), sorted(seen)[1]
    (directory / "tag").mkdir()
    shutil.move(directory / "snapshot" / f"snapshot-{chosen}", directory / "tag" / "tag-old")
    for number in range(1, chosen):
        (directory / "snapshot" / f"snapshot-{number}").unlink()
    (directory / "snapshot" / "EARLIEST").write_text(str(chosen + 1))
    store = open_store(table.path)
    scan = Scan(store, eq("v", 1), ["id"], tag="old")
    assert INDEXED in {file.decision for file in scan.explain().files}
    assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(key for key, (v, _) in seen[chosen].items() if v == 1)


def test_a_branch_is_read_from_its_own_snapshots_and_payloads(tmp_path: Path) -> None:
    table, seen = steps(tmp_path)
    directory, chosen = Path(table.path), sorted(seen)[1]
    branch = directory / "branch" / "branch-b"
    (branch / "snapshot").mkdir(parents=True)
    shutil.copytree(directory / "schema", branch / "schema")
    shutil.copy(directory / "snapshot" / f"snapshot-{chosen}", branch / "snapshot")
    rows = [{"id": key, "v": v, "s": s} for key, (v, s) in seen[chosen].items()]
    asked = Asked(open_store(table.path, branch="b"), rows)
    assert INDEXED in asked.check(eq("v", 1))
    assert asked.scan(eq("v", 1)).explain().snapshot == chosen


def test_a_commit_while_a_scan_is_planned_changes_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SmallTable(tmp_path, indexes=True)
    table.write({i: i % 4 for i in range(20)})
    table.maintain()
    before, rows = table.store.latest_snapshot_id(), dict(table.rows)
    ask = BucketIndexes.answers
    committed: list[int | None] = []

    def racing(self: BucketIndexes, *given: Any) -> Any:
        if not committed:
            committed.append(table.write(dict.fromkeys(range(30), 1)))
            table.maintain(full=True)
        return ask(self, *given)

    monkeypatch.setattr(BucketIndexes, "answers", racing)
    plan = Scan(table.store, eq("v", 1), ["id"]).plan()
    monkeypatch.undo()
    assert committed and plan.snapshot is not None and plan.snapshot.id == before
    again = Scan(table.store, eq("v", 1), ["id"], snapshot_id=before)
    assert sorted(again.to_arrow()["id"].to_pylist()) == sorted(key for key, (v, _) in rows.items() if v == 1)
    assert sorted(Scan(table.store, eq("v", 1), ["id"]).to_arrow()["id"].to_pylist()) == list(range(30))


@pytest.mark.parametrize("use_index", [True, False])
def test_a_limit_counts_rows_that_satisfy_the_condition(table: Asked, use_index: bool) -> None:
    predicate = And((eq("a", 1), Leaf(Op.GT, "x", (30.0,))))
    expected = [each["id"] for each in table.rows if holds(predicate, each)]
    for limit in (0, 1, 3, 100):
        found = table.scan(predicate, limit=limit, use_index=use_index).to_arrow()["id"].to_pylist()
        assert len(found) == min(limit, len(expected)) and set(found) <= set(expected)


# ---------------------------------------------------------------------------------------------------------------- kinds of tables


def two_versions(tmp_path: Path, **options: str) -> tuple[BuiltTable, list[Row], list[Row]]:
    """Ids 0–19 in level 5, covered; 10–29 once more in level 0 with other values. Both as rows."""
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **INDEXES, **options))
    old, new = [row(i) for i in range(20)], [{**row(i), "a": 3, "s": "new"} for i in range(10, 30)]
    table.put(old)
    table.put(new, level=0, source=FileSource.APPEND, first_sequence=100)
    table.index()
    table.publish()
    return table, old, new


CONDITIONS = (eq("a", 1), eq("a", 3), eq("s", "new"), eq("s", "red"), And((eq("a", 3), eq("s", "red"))), Or((eq("a", 1), eq("s", "new"))))


def test_with_deletion_vectors_level_0_is_not_seen(tmp_path: Path) -> None:
    table, old, _ = two_versions(tmp_path)
    for predicate in CONDITIONS:
        assert Asked(table.store, old).check(predicate)[-1] == PRUNED


def test_tables_that_merge_on_read_see_level_0_and_use_no_index(tmp_path: Path) -> None:
    for name, options in (("vectors", {"deletion-vectors.merge-on-read": "true"}), ("none", {"deletion-vectors.enabled": "false"})):
        options = {"deletion-vectors.enabled": "true", **options}
        indexes = INDEXES if name == "vectors" else {"metadata.stats-mode": "none"}
        table = BuiltTable(tmp_path / name, schema(COLUMNS, options={"bucket": "1", **indexes, **options}))
        old, new = [row(i) for i in range(20)], [{**row(i), "a": 3, "s": "new"} for i in range(10, 30)]
        table.put(old)
        table.put(new, level=0, source=FileSource.APPEND, first_sequence=100)
        table.index()
        table.publish()
        asked = Asked(table.store, [*old[:10], *new])
        for predicate in CONDITIONS:
            assert set(asked.check(predicate)) <= {MERGED, PRUNED}


def test_old_versions_are_not_resurrected_by_statistics_of_other_columns(tmp_path: Path) -> None:
    options = {"bucket": "1", "deletion-vectors.enabled": "false"}
    table = BuiltTable(tmp_path / "t", schema({"id": "INT", "a": "INT"}, options=options))
    table.put([{"id": i, "a": 1} for i in range(20)])
    table.put([{"id": i, "a": 2} for i in range(20)], level=0, source=FileSource.APPEND, first_sequence=100)
    table.publish()
    asked = Asked(table.store, [{"id": i, "a": 2} for i in range(20)])
    assert asked.check(eq("a", 1)) == [MERGED, MERGED], "the newer file has no such row, and replaces those of the older"
    assert asked.check(And((eq("a", 1), Leaf(Op.GT, "id", (50,))))) == [PRUNED, PRUNED]


def test_the_first_row_stays_and_level_0_is_not_seen(tmp_path: Path) -> None:
    options = {"bucket": "1", "merge-engine": "first-row", **INDEXES}
    options.pop("deletion-vectors.enabled", None)
    table = BuiltTable(tmp_path / "t", schema(COLUMNS, options=options))
    old = [row(i) for i in range(20)]
    table.put(old)
    table.put([{**row(i), "a": 3} for i in range(20, 30)], level=0, source=FileSource.APPEND, first_sequence=100)
    table.index()
    table.publish()
    for predicate in CONDITIONS:
        decisions = Asked(table.store, old).check(predicate)
        assert decisions[-1] == PRUNED and decisions[0] in (INDEXED, PRUNED)


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_the_indexed_value_is_that_of_the_compacted_row(tmp_path: Path, engine: str) -> None:
    definition = {
        "fields": [{"name": "id", "type": "INT"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}],
        "primaryKeys": ["id"],
        "options": {
            "bucket": "1",
            "deletion-vectors.enabled": "true",
            "merge-engine": engine,
            "pk-btree.index.columns": "v",
            **({"fields.v.aggregate-function": "sum"} if engine == "aggregation" else {}),
        },
    }
    table = maintainer.create_table(str(tmp_path / "t"), definition)
    for values in ([1, 2, None], [10, None, None]):
        with table.writer() as writer:
            writer.write(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": pa.array(values, pa.int64()), "s": ["x", "y", "z"]}))
        table.maintain(full=True)
    final = {1: 11 if engine == "aggregation" else 10, 2: 2, 3: None}
    asked = Asked(table.store, [{"id": key, "v": value} for key, value in final.items()])
    for value in (1, 2, 10, 11):
        assert asked.check(eq("v", value)) in ([INDEXED], [PRUNED])
    asked.check(Leaf(Op.IS_NULL, "v"))


def test_postponed_rows_are_not_seen(tmp_path: Path) -> None:
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **{**INDEXES, "bucket": "-2"}))
    table.put([row(i) for i in range(20)], key=BucketKey(EMPTY_ROW, 0))
    table.put([row(i) for i in range(20, 40)], level=0, source=FileSource.APPEND, key=BucketKey(EMPTY_ROW, -2))
    table.index()
    table.publish()
    for predicate in CONDITIONS:
        assert Asked(table.store, [row(i) for i in range(20)]).check(predicate)[0] == PRUNED


def test_append_only_tables_are_read_raw_and_pruned_by_statistics(tmp_path: Path) -> None:
    table = BuiltTable(tmp_path / "t", schema({"id": "INT", "a": "INT"}, primary_keys=(), options={"bucket": "-1"}))
    for first in (0, 20):
        table.put([{"id": i, "a": i % 5} for i in range(first, first + 20)], level=0, source=FileSource.APPEND, key=BucketKey(EMPTY_ROW, 0))
    table.publish()
    asked = Asked(table.store, [{"id": i, "a": i % 5} for i in range(40)])
    assert asked.check(eq("a", 1)) == [RAW, RAW]
    assert {file.reason for file in asked.scan(eq("a", 1)).explain().files} == {"tables without a primary key have no index"}
    assert asked.check(And((eq("a", 1), Leaf(Op.LT, "id", (5,))))) == [RAW, PRUNED]
    assert asked.check(eq("a", 7)) == [PRUNED, PRUNED]


# ------------------------------------------------------------------------------------------------------------- groups and sources


def with_sources(payload: IndexFileMeta, change: Callable[[Any], Any], rows: int | None = None) -> IndexFileMeta:
    index = payload.global_index
    assert index is not None and index.source_meta is not None
    changed = replace(index, source_meta=encode(change(decode(index.source_meta))))
    if rows is not None:
        changed = replace(changed, row_range_end=rows - 1)
    return replace(payload, global_index=changed, row_count=rows or payload.row_count)


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_source_with_another_row_count_is_not_covered(tmp_path: Path, relaxed: bool) -> None:
    table = BuiltTable(tmp_path / "t", schema_of(COLUMNS, **INDEXES))
    table.put([row(i) for i in range(20)])
    (payload,) = table.index(["a"])
    wrong = with_sources(payload, lambda meta: replace(meta, files=tuple((name, rows + 1) for name, rows in meta.files)))
    table.put_index_file(wrong, replacing=payload)
    table.publish()
    store = open_store(table.store.uri, options={"read.group-acceptance": "relaxed" if relaxed else "strict"})
    with capture_logs():
        files = Scan(store, eq("a", 1), ["id"]).explain().files
        assert sorted(Scan(store, eq("a", 1), ["id"]).to_arrow()["id"].to_pylist()) == [1, 6, 11, 16]
    assert [file.decision for file in files] == [RAW]
