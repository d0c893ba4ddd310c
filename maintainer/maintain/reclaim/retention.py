"""Which snapshots may go (spec 03 §14; Java `ExpireSnapshotsImpl.expire`, `ExpireConfig`). Pure.

The snapshots that go are always the oldest ones: [earliest, end). A snapshot may go when the one after it is older than the retention time, or
when there are more than the largest number of snapshots; the least number of snapshots, what a consumer still has to read, and the latest
snapshot stay. Ids that are missing within the range, as a crash leaves them, count as if they had gone already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from maintainer.errors import Unsupported, UsageError
from maintainer.table.options import TableOptions


@dataclass(frozen=True)
class Retention:
    """What has to be kept, and how many snapshots go at a time."""

    least: int
    most: int
    seconds: float
    limit: int

    @staticmethod
    def of(
        options: TableOptions, least: int | None = None, most: int | None = None, seconds: float | None = None, limit: int | None = None
    ) -> Retention:
        """The table's own retention, except for what this call says; refused where changelogs would have to outlive their snapshots."""
        found = Retention(
            options.snapshot_retained_min if least is None else least,
            options.snapshot_retained_max if most is None else most,
            options.snapshot_time_retained if seconds is None else seconds,
            options.snapshot_expire_limit if limit is None else limit,
        )
        found.check()
        found.check_changelogs(options)
        return found

    def check(self) -> None:
        if self.least < 1:
            raise UsageError(f"at least 1 snapshot has to be kept, not {self.least}: the latest one is the table")
        if self.most < self.least:
            raise UsageError(
                f"the least number of snapshots to keep, {self.least} (snapshot.num-retained.min, --retain-min), is above the largest, "
                f"{self.most} (snapshot.num-retained.max, --retain-max)"
            )
        if self.seconds < 0 or self.limit < 0:
            what = "the number of snapshots to expire" if self.limit < 0 else "the time to keep snapshots"
            raise UsageError(f"{what} cannot be below zero: {min(self.seconds, self.limit)}")

    def check_changelogs(self, options: TableOptions) -> None:
        """Whether changelogs are kept no longer than these snapshots, and no longer than those of the table's own options."""
        least, most, seconds = options.changelog_retained
        kept = (
            ("changelog.num-retained.min", least, min(self.least, options.snapshot_retained_min)),
            ("changelog.num-retained.max", most, min(self.most, options.snapshot_retained_max)),
            ("changelog.time-retained", seconds, min(self.seconds, options.snapshot_time_retained)),
        )
        for key, changelogs, snapshots in kept:
            if changelogs is not None and changelogs > snapshots:
                raise Unsupported(
                    f"{key} = {options[key]}: changelogs would have to be kept longer than their snapshots, and expiration that writes them "
                    "is not supported; nothing is expired. Unset the option, or let a Java engine expire this table"
                )


def expiring(
    ids: Sequence[int], time_of: Callable[[int], int | None], retention: Retention, protected: Iterable[int], now_ms: int
) -> tuple[int, int]:
    """The range [earliest, end) of snapshots that go, empty when none does.

    `ids`: the snapshots that there are, ascending. `time_of`: when a snapshot was committed, in epoch milliseconds; None when it is gone.
    `protected`: snapshots that must stay with all later ones, such as the next ones of consumers.
    """
    if not ids:
        return 0, 0
    earliest, latest = ids[0], ids[-1]
    first = max(latest - retention.most + 1, earliest)
    end = min(latest - retention.least + 1, earliest + retention.limit, *protected)
    youngest = now_ms - retention.seconds * 1000
    for snapshot_id in range(first, end):
        after = time_of(snapshot_id + 1)
        if after is not None and after >= youngest:
            end = snapshot_id
            break
    return earliest, max(end, earliest)
