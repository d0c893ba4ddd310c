"""The errors of the package, and the exit code of the command line for each.

    MaintainerError                 1   anything that failed and says so
    ├── UsageError                  2   bad arguments, configuration or input; not a table
    │   └── NotATable               2   nothing that looks like a table at this place
    ├── CorruptFile                 3   bytes that are not what they claim to be
    ├── CorruptTable                3   files that contradict one another
    │   └── MissingFile             3   a file that the metadata names is not there (also a `FileNotFoundError`)
    ├── CastError                   1   a value that the new type of its column cannot hold
    ├── CommitConflict              4   another commit changed what this one builds on
    │   └── CommitStateUnknown      4   a publish may or may not have happened
    ├── MergeError                  1   records that the table's merge engine does not take
    ├── StorageError                5   the store cannot be reached, or denies, or is full
    │   └── SpillError              5   the same of the disk that memory spills to
    └── Unsupported                 7   a table kind, format version or option that is refused

An error says what was being done, to which table, bucket or file, what was wrong, and what the reader can do.
"""

from __future__ import annotations


class MaintainerError(Exception):
    """Anything this package raises on purpose."""

    exit_code = 1


class UsageError(MaintainerError):
    """The caller asked for something that cannot be asked for."""

    exit_code = 2


class NotATable(UsageError):
    """There is no table at the given place."""


class CorruptFile(MaintainerError):
    """A file does not hold what its format or the metadata that names it says.

    Decoders are pure and do not know where their bytes came from: they raise with an empty `path`, and whoever read the
    bytes re-raises `error.at(path)`.
    """

    exit_code = 3

    def __init__(self, reason: str, *, path: str = "", offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        where = path or "bytes"
        at = "" if offset is None else f" at offset {offset}"
        super().__init__(f"{where}: corrupt{at}: {reason}")

    def at(self, path: str) -> CorruptFile:
        """The same error, naming the file."""
        return type(self)(self.reason, path=self.path or path, offset=self.offset)


class CorruptTable(MaintainerError):
    """The files of a table contradict one another (a missing file, two overlapping files of one level, …)."""

    exit_code = 3


class MissingFile(CorruptTable, FileNotFoundError):
    """A file is not there. Who looks for a file that need not exist catches this; for everybody else the table is damaged."""


class CastError(MaintainerError):
    """The type of a column was changed, and a value in an older file cannot become one of the new one. Java cannot read such a table either."""


class CommitConflict(MaintainerError):
    """Another commit changed what this one builds on; nothing was published."""

    exit_code = 4


class CommitStateUnknown(CommitConflict):
    """A publish was sent and its outcome could not be learned; none of its files were deleted."""


class MergeError(MaintainerError):
    """The records of a key cannot become one: the merge engine does not take their kinds or values. It names key, field and remedy."""


class StorageError(MaintainerError):
    """The store cannot be reached, refuses access, or is full."""

    exit_code = 5


class SpillError(StorageError):
    """What does not fit into memory cannot be put on a disk of this machine, or not be read from there again. The table's store is fine."""


class Unsupported(MaintainerError):
    """A table kind, format version or option that this package refuses; nothing was written."""

    exit_code = 7


def told(error: Exception) -> tuple[str, int]:
    """What is said of any exception, and its exit code: one that is not raised on purpose is a defect, and says so."""
    if isinstance(error, MaintainerError):
        return str(error), error.exit_code
    return f"this should not have happened: {type(error).__name__}: {error}", MaintainerError.exit_code
