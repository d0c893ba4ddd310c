"""The measurements of `scripts/bench`, by the beginnings of their names; what they are is said in their modules."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

import compactions
import indexes
import java
import memory
import passes
import queries
import structlog

MEASUREMENTS = (
    ("compaction", compactions.measure),
    ("pass.small", passes.small),
    ("pass.buckets", passes.buckets),
    ("pass.updates", passes.updates),
    ("memory.long", memory.long),
    ("memory.wide", memory.wide),
    ("index.build", indexes.builds),
    ("index.rebuild", indexes.rebuilds),
    ("index.lookup", indexes.lookups),
    ("memory.index", indexes.memory),
    ("query.equality", queries.equality),
    ("query.range", queries.ranges),
    ("query.scan", queries.scan),
    ("query.plan", queries.plans),
    ("query.requests", queries.requests),
    ("memory.query", queries.memory),
    ("java", java.measure),
    ("help", passes.start_up),
)
CHILDREN = {**compactions.CHILDREN, **passes.CHILDREN, **memory.CHILDREN, **indexes.CHILDREN, **queries.CHILDREN}


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a command that compiles its modules each time is not what users run
    if sys.argv[1:2] == ["--child"]:
        print(CHILDREN[sys.argv[2]](*sys.argv[3:]))
        return 0
    given = sys.argv[1:]
    if {"-h", "--help"} & set(given):
        print("usage: scripts/bench [NAME…]\n\nEach line: name, value, unit, and what it is measured against.\n")
        print("\n\n".join(module.__doc__ or "" for module in (compactions, passes, memory, indexes, queries, java)))
        return 0
    unknown = [wanted for wanted in given if not any(_is_of(prefix, wanted) for prefix, _ in MEASUREMENTS)]
    if unknown:
        print(f"no measurement begins with {', '.join(unknown)}; there are {', '.join(prefix for prefix, _ in MEASUREMENTS)}", file=sys.stderr)
        return 2
    exceeded = False
    for prefix, measure in MEASUREMENTS:
        if given and not any(_is_of(prefix, wanted) for wanted in given):
            continue
        with tempfile.TemporaryDirectory(prefix="maintainer-bench-") as directory:
            for name, value, unit, versus, is_limit in measure(Path(directory)):
                print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "versus": versus and round(versus, 3)}), flush=True)
                exceeded = exceeded or (is_limit and versus is not None and value > versus)
    return int(exceeded)


def _is_of(prefix: str, wanted: str) -> bool:
    return prefix.startswith(wanted) or wanted.startswith(prefix)


if __name__ == "__main__":
    raise SystemExit(main())
