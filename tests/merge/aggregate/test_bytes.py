"""Functions of bytes: roaring bitmaps and sketches (spec 05 §6.7, §6.8)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from maintainer.errors import MergeError, Unsupported
from maintainer.format import roaring, roaring64_art
from maintainer.format.data_type import parse
from maintainer.merge.aggregate import Verdict
from tests.support.folding import check, folded

BYTES = parse("BYTES")
APPLY = Verdict.APPLY
IGNORING = {"ignore-retract": "true"}


def test_bitmaps_of_32_bits_have_java_s_bytes() -> None:
    for values, text in (
        ([], "3a30000000000000"),
        ([1], "3a3000000100000000000000100000000100"),
        ([1, 2, 3], "3a300000010000000000020010000000010002000300"),
        (range(5000), "3b3000000100008713010000008713"),
    ):
        assert roaring.encode32(BitMap(values)).hex() == text
        assert roaring.decode32(bytes.fromhex(text)) == BitMap(values)


bitmaps = st.none() | st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 200), max_size=20).map(lambda values: BitMap(values).serialize())
verdicts = st.sampled_from([APPLY, APPLY, APPLY, Verdict.REVERSED, Verdict.REPLACE, Verdict.SKIP, Verdict.RETRACT])


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.lists(st.tuples(verdicts, bitmaps), max_size=4), max_size=4), st.sampled_from([{}, IGNORING]))
def test_bitmaps_of_32_bits_are_united_like_the_model_does(groups: Any, options: dict[str, str]) -> None:
    check("rbm32", BYTES, groups, options)


def test_bitmaps_of_64_bits_are_united() -> None:
    one, other = ([1, 2**40, 2**64 - 1], [2, 2**40, 2**63])
    pieces = [(APPLY, roaring64_art.encode(BitMap64(values))) for values in (one, other)]
    (found,) = folded("rbm64", BYTES, [[pieces[0], (APPLY, None), pieces[1]]])
    assert roaring64_art.decode(found) == BitMap64([*one, *other])


@pytest.mark.parametrize("name", ["rbm32", "rbm64", "theta_sketch", "hll_sketch"])
def test_bytes_that_meet_nothing_are_not_looked_at(name: str) -> None:
    assert folded(name, BYTES, [[(APPLY, b"?"), (APPLY, None)], [(APPLY, None)], [(Verdict.REVERSED, b"!")]]) == [b"?", None, b"!"]


@pytest.mark.parametrize("name", ["rbm32", "rbm64"])
@pytest.mark.parametrize("data", [b"", b"?", b"\1" * 40])
def test_bytes_that_are_no_bitmap_are_an_error_of_their_key(name: str, data: bytes) -> None:
    good = roaring.encode32(BitMap([1])) if name == "rbm32" else roaring64_art.encode(BitMap64([1]))
    with pytest.raises(MergeError, match=rf"key #1, field f: {name} met a value that it cannot read"):
        folded(name, BYTES, [[(APPLY, good), (APPLY, good)], [(APPLY, good), (APPLY, data)]])


@pytest.mark.parametrize("name", ["theta_sketch", "hll_sketch"])
def test_sketches_that_meet_need_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(Unsupported, match=rf"field f: {name}.*pip install 'paimon-maintainer\[sketches\]'"):
        folded(name, BYTES, [[(APPLY, b"?"), (APPLY, b"!")]])


def test_theta_sketches_are_united() -> None:
    library = pytest.importorskip("datasketches", reason="the extra 'sketches' is not installed")
    sketches = []
    for numbers in (range(1000), range(500, 2000)):
        sketch = library.update_theta_sketch(12)
        for number in numbers:
            sketch.update(number)
        sketches.append((APPLY, sketch.compact().serialize()))
    (found,) = folded("theta_sketch", BYTES, [sketches])
    assert library.compact_theta_sketch.deserialize(found).get_estimate() == 2000
    with pytest.raises(MergeError, match="cannot read"):
        folded("theta_sketch", BYTES, [[sketches[0], (APPLY, b"\1\2\3")]])


def test_hll_sketches_are_united() -> None:
    library = pytest.importorskip("datasketches", reason="the extra 'sketches' is not installed")
    sketches = []
    for numbers in (range(1000), range(500, 2000)):
        sketch = library.hll_sketch(12)
        for number in numbers:
            sketch.update(number)
        sketches.append((APPLY, sketch.serialize_compact()))
    (found,) = folded("hll_sketch", BYTES, [sketches])
    assert library.hll_sketch.deserialize(found).get_estimate() == pytest.approx(2000, rel=0.05)
    with pytest.raises(MergeError, match="cannot read"):
        folded("hll_sketch", BYTES, [[sketches[0], (APPLY, b"\1\2\3")]])
