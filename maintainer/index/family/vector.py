"""The Vector family: which columns may have an index of approximate nearest neighbours (spec 06 §4.3).

Its payloads are neither built nor read yet. Which ANN index it is, and how it is built, is not judged: as in Java, an unknown one fails at its
first build.
"""

from __future__ import annotations

from collections.abc import Mapping

from maintainer.errors import UsageError
from maintainer.index.definition import DEFAULT_METRIC, FamilyName, vector_metric
from maintainer.model.types import DataType, TypeRoot

TAKES = "a VECTOR column"
METRICS = ("l2", "cosine", DEFAULT_METRIC)


def validate(column: str, data_type: DataType, options: Mapping[str, str]) -> None:
    """See `Family.validate`."""
    key = FamilyName.VECTOR.columns_key
    if data_type.root is not TypeRoot.VECTOR:
        raise UsageError(f"{key} entry '{column}' must reference {TAKES}. Its type is {data_type}: index another column.")
    if data_type.element is None or data_type.element.root is not TypeRoot.FLOAT:
        raise UsageError(f"{key} entry '{column}' must use FLOAT elements. Its type is {data_type}: index another column.")
    metric = vector_metric(options, column)
    if metric not in METRICS:
        raise UsageError(f"fields.{column}.pk-vector.distance.metric must be one of {', '.join(METRICS)}, but is {metric}.")
