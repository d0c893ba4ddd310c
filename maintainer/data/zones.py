"""Local times and instants of a time zone, a column at a time (Java `LocalDateTime.atZone`, `ofInstant`).

A local time that clocks skip counts with the offset from before the change, one that they show twice is the first of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from maintainer.errors import UsageError

Int64s = npt.NDArray[np.int64]
Move = Callable[[Int64s, str, str], Int64s]

_UTC = frozenset({"UTC", "Z", "GMT", "Etc/UTC"})
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def locals_(values: Int64s, unit: str, zone: str) -> Int64s:
    """What clocks show at these instants."""
    return values if zone in _UTC else values + _offsets(values, unit, zone)


def instants(values: Int64s, unit: str, zone: str) -> Int64s:
    """When clocks show these local times."""
    if zone in _UTC:
        return values
    day = _PER_DAY[unit]
    before, after = _offsets(values - day, unit, zone), _offsets(values + day, unit, zone)
    first, second = values - before, values - after
    holds_after = (_offsets(first, unit, zone) != before) & (_offsets(second, unit, zone) == after)
    return np.where(holds_after, second, first)


def _offsets(values: Int64s, unit: str, zone: str) -> Int64s:
    try:
        instants = pa.array(values).view(pa.timestamp(unit, tz=zone))
        local = pc.local_timestamp(instants).view(pa.int64())
    except pa.ArrowInvalid as error:
        raise UsageError(f"option read.time-zone = {zone!r}: {error}") from None
    return cast(Int64s, local.to_numpy() - values)
