"""What a doctor says (DESIGN §5 "doctor").

error    this package refuses to maintain the table as it is
warning  it works, but something beside it may not: another writer compacts too, a peer cannot read it, files are kept for ever
info     good to know
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from maintainer.errors import MaintainerError, UsageError
from maintainer.model.report import Entry, Report
from maintainer.storage import schemes

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


def unopenable(table: str, uri: str, error: MaintainerError) -> Diagnosis | None:
    """Of a table that cannot even be opened; None when that is the caller's mistake."""
    found = _missing_library(uri)
    if found is None and not isinstance(error, UsageError):
        found = Finding(ERROR, "the table cannot be opened", str(error), "see the reason; nothing else can be told before that")
    return None if found is None else Diagnosis.of(table, [found])


def _missing_library(uri: str) -> Finding | None:
    """What is to be installed for this kind of URI."""
    scheme = schemes.library_scheme(uri.partition(":")[0].lower())
    known = schemes.TRUSTED.get(scheme)
    if known is None or find_spec(known.library) is not None:
        return None
    why = f"tables at {scheme}: URIs are read and written through it"
    return Finding(ERROR, f"{known.library} is not installed", why, schemes.install_hint(scheme))
