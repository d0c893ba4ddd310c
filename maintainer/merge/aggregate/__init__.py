"""Aggregate functions, a column at a time (spec 05 §6; Java `org.apache.paimon.mergetree.compact.aggregate`).

    Records   rows of the column, group by group, oldest first, and for each what it does: apply, apply reversed, retract, skip, replace
    fold      the value of each group
    folded    the same as sources: rows of the column where a value is one of those that came in, and only the others computed

One module for each family of functions: `numbers` (sum, product), `extremes` (max, min, bool_and, bool_or), `positions` (first and last),
`text` (listagg), `collections` (collect, merge_map, merge_map_with_keytime), `nested` (nested_update, nested_partial_update), `bitmaps`
(rbm32, rbm64), `sketches` (theta_sketch, hll_sketch).
"""

from __future__ import annotations

from maintainer.merge.aggregate.folding import fold, folded, gather
from maintainer.merge.aggregate.records import Folded, Records, Verdict

__all__ = ["Folded", "Records", "Verdict", "fold", "folded", "gather"]
