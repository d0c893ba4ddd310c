"""What a doctor says (DESIGN §5 "doctor").

error    this package refuses to maintain the table as it is
warning  it works, but something beside it may not: another writer compacts too, a peer cannot read it, files are kept for ever
info     good to know
"""

from __future__ import annotations

from dataclasses import dataclass

from maintainer.errors import MaintainerError
from maintainer.model.report import Entry, Report

ERROR = "error"
WARNING = "warning"
INFO = "info"


@dataclass(frozen=True)
class Finding(Entry):
    """What is so, why it matters, and what to do."""

    severity: str
    what: str
    why: str
    do: str


@dataclass(frozen=True)
class Diagnosis(Report):
    """`fit`: this package maintains the table."""

    fit: bool
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, table: str, findings: list[Finding]) -> Diagnosis:
        """Errors first; nothing is said twice."""
        order = (ERROR, WARNING, INFO)
        first: dict[object, Finding] = {}
        for finding in findings:  # several questions may stumble over the same option
            first.setdefault(finding.why if finding.why.startswith("option ") else finding, finding)
        ordered = sorted(first.values(), key=lambda finding: order.index(finding.severity))
        return cls(table, not any(finding.severity == ERROR for finding in ordered), tuple(ordered))


def unopenable(table: str, error: MaintainerError) -> Diagnosis:
    """Of a table that cannot even be opened."""
    return Diagnosis.of(
        table, [Finding(ERROR, "the table cannot be opened", str(error), "see the reason: without it nothing else can be told")]
    )
