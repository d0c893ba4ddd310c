"""listagg (spec 05 §6.2; Java `FieldListaggAgg`).

What is blank never adds anything, so the value of a group is its other texts, joined: those that were applied reversed first, the last of
them in front, then those that were applied, in order. That is one `binary_join` for all groups. With `distinct`, groups in which at least two
texts meet are looked at one by one, as each of their tokens has to be compared with those that are there.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.merge.aggregate.records import Bools, Folded, Records, Verdict, counted, fold_one_by_one, refuse_retracts
from maintainer.merge.order import Int64s
from maintainer.table.aggregates import Aggregate

_BLANK = r"\A[\x09-\x0d\x1c-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}]*\z"
"""Nothing but what Java's `Character.isWhitespace` says yes to: neither no-break spaces nor U+0085."""


def fold(aggregate: Aggregate, values: pa.Array, records: Records) -> Folded:
    refuse_retracts(records)
    records = _since_replaced(records)
    texts = pc.take(values, pa.array(records.rows))
    written = _is_written(texts)
    counts = counted(records, written)
    group = records.group_of_rows()
    sources = np.full(len(records), -1, np.int64)
    # a text that was put there, or to which nothing was added from behind, stays as it is although it is blank
    kept = (records.verdicts != Verdict.APPLY) & (counts == 0)[group]
    sources[group[kept]] = records.rows[kept]
    kept = written & (counts == 1)[group]
    sources[group[kept]] = records.rows[kept]
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return Folded(sources)
    sources[several] = len(values) + np.arange(len(several))
    pieces = np.flatnonzero(written & (counts > 1)[group])
    if aggregate.distinct:
        return Folded(sources, _distinct(aggregate.delimiter, texts, records, pieces, group, several))
    reversed_ones = records.verdicts[pieces] == Verdict.REVERSED
    if reversed_ones.any():
        pieces = pieces[np.lexsort((np.where(reversed_ones, -pieces - 1, pieces), group[pieces]))]
    offsets = np.concatenate(([0], np.cumsum(counts[several]))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pc.take(texts, pa.array(pieces)))
    return Folded(sources, pc.binary_join(lists, pa.scalar(aggregate.delimiter, values.type)))


def _since_replaced(records: Records) -> Records:
    """Without what came before the last text of its group that was put in place of all."""
    places = np.flatnonzero(records.verdicts == Verdict.REPLACE)
    if not len(places):
        return records
    group = records.group_of_rows()
    first = records.starts.copy()
    np.maximum.at(first, group[places], places)
    before = np.arange(len(records.rows)) < first[group]
    verdicts = np.where(before, np.int8(Verdict.SKIP), records.verdicts)
    return Records(records.rows, records.starts, verdicts, records.key).without(Verdict.SKIP)


def _is_written(texts: pa.Array) -> Bools:
    """Which texts are neither NULL nor blank."""
    blank = pc.fill_null(pc.match_substring_regex(texts, _BLANK), True)
    written: Bools = pc.invert(blank).to_numpy(zero_copy_only=False)
    return written


def _distinct(delimiter: str, texts: pa.Array, records: Records, pieces: Int64s, group: Int64s, several: Int64s) -> pa.Array:
    starts = np.searchsorted(group[pieces], several)
    of_pieces = Records(pieces, starts, records.verdicts[pieces], records.key)
    words = pc.take(texts, pa.array(pieces)).to_pylist()
    results = fold_one_by_one(of_pieces, several, words.__getitem__, partial(_joined_distinct, delimiter))
    return pa.array(results, texts.type)


def _joined_distinct(delimiter: str, acc: str | None, value: str | None) -> str | None:
    if value is None:
        return acc
    if acc is None:
        return value
    known = set(_tokens(acc, delimiter))
    parts = [acc]
    for token in _tokens(value, delimiter):
        if token not in known and not is_blank(token):
            known.add(token)
            parts.append(token)
    return delimiter.join(parts)


def is_blank(text: str) -> bool:
    return all((c.isspace() and c not in "\u00a0\u2007\u202f\u0085") or "\x1c" <= c <= "\x1f" for c in text)


def _tokens(text: str, delimiter: str) -> list[str]:
    """Split at the whole delimiter, or at spaces when that is empty; a delimiter at the end is followed by nothing."""
    parts = text.split(delimiter or " ")
    return parts if parts[-1] else parts[:-1]
