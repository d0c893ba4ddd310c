"""What verification found, as it comes up: how often each rule was tried, and what broke it (DESIGN §5 "verify")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from maintainer.errors import MaintainerError, MissingFile, StorageError
from maintainer.model.report import Entry


@dataclass(frozen=True)
class Problem(Entry):
    """A rule that something breaks."""

    rule: str
    where: str
    message: str


class Findings:
    """Counts and problems. `still_there` raises when what is looked at is no longer there, or is going: then a missing file means nothing."""

    def __init__(self, still_there: Callable[[MissingFile | None], None] = lambda _: None) -> None:
        self.checked: Counter[str] = Counter()
        self.problems: list[Problem] = []
        self.still_there = still_there

    @contextmanager
    def rule(self, rule: str, where: str) -> Iterator[None]:
        """Tries a rule on one object: an error inside of the block is the problem."""
        self.checked[rule] += 1
        try:
            yield
        except StorageError:
            raise
        except MaintainerError as error:
            if isinstance(error, MissingFile):
                self.still_there(error)
            self.add(rule, where, str(error))

    def add(self, rule: str, where: str, message: str) -> None:
        self.problems.append(Problem(rule, where, message))
