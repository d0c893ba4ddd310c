"""Sets of rows are written like bitmaps that are made of all their ids at once."""

from __future__ import annotations

import numpy as np
import pytest

from maintainer.format import posting, row_set
from maintainer.format.row_set import RowSet

CASES = {
    "none": np.empty(0, np.int64),
    "one": np.array([7]),
    "dense": np.arange(200_000),
    "holes": np.flatnonzero(np.arange(200_000) % 1000 != 3),
    "sparse": np.arange(0, 1_100_000, 977),
    "half": np.arange(0, 300_000, 2),
    "three in a container": np.array([5, 6, 7, 65536, 65537, 65538, 131072]),
    "large": np.array([1, 2**32, 2**32 + 1]),
}


def of(ids: np.ndarray, pieces: int) -> RowSet:  # type: ignore[type-arg]
    rows = RowSet()
    for piece in np.array_split(ids, pieces):
        rows.add(piece)
    return rows


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_bytes_do_not_depend_on_the_pieces(name: str, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_set, "_WAITING", 1000)
    ids = CASES[name]
    rows = of(ids, pieces)
    assert rows.encode() == posting.encode(ids)
    assert rows.encode() == posting.encode(ids)  # and does not change it
    assert len(rows) == len(ids)
    assert bool(rows) == bool(len(ids))
    assert rows.below(70_000) == int((ids < 70_000).sum())
    rows.add(ids)
    assert rows.encode() == posting.encode(ids)


@pytest.mark.parametrize("name", [name for name in CASES if name != "large"])
@pytest.mark.parametrize("total", [1, 3, 4, 200_000, 65536, 65539, 65540, 1_100_001])
def test_the_other_rows(name: str, total: int) -> None:
    ids = CASES[name][CASES[name] < total]
    present = np.zeros(total, bool)
    present[ids] = True
    others = np.flatnonzero(~present)
    assert of(ids, 3).complement(total).encode() == posting.encode(others)
