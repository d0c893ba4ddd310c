"""The Full Text family: which columns may have an index of words (spec 06 §4.4). Its payloads are neither built nor read yet; the values of
tokenizer options are not judged, as in Java."""

from __future__ import annotations

from collections.abc import Mapping

from maintainer.errors import UsageError
from maintainer.index.definition import FamilyName
from maintainer.model.types import CHARACTERS, DataType

TAKES = "an existing column"


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    if data_type.root not in CHARACTERS:
        raise UsageError(
            f"{FamilyName.FULL_TEXT.columns_key} entry '{column}' must reference a CHAR/VARCHAR/STRING column. Its type is {data_type}: "
            "index another column."
        )
