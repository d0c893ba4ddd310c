"""What a record does to its key: the values of `_VALUE_KIND` (spec 02 §2, 05 §1.4; Java `RowKind`)."""

from __future__ import annotations

from collections.abc import Mapping

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
RETRACT_BIT = 1
"""-U and -D retract: they are the odd ones."""
KINDS: Mapping[str, int] = {"+I": INSERT, "-U": UPDATE_BEFORE, "+U": UPDATE_AFTER, "-D": DELETE}
