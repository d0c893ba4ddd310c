"""`python query_pypaimon.py TABLE COLUMN VALUE ROWS`: seconds of pypaimon's query for a value, by a Python that has pypaimon; of its two ways,
with and without `global-index.enabled`, the faster one counts."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from pypaimon import CatalogFactory


def main(uri: str, column: str, value: str, rows: str) -> None:
    logging.disable(logging.WARNING)
    path = Path(uri)
    catalog = CatalogFactory.create({"warehouse": str(path.parents[1])})
    times = []
    for enabled in ("false", "true"):
        table = catalog.get_table(f"{path.parent.stem}.{path.name}").copy({"global-index.enabled": enabled})
        start = time.perf_counter()
        builder = table.new_read_builder()
        builder = builder.with_filter(builder.new_predicate_builder().equal(column, int(value)))
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows
        times.append(time.perf_counter() - start)
        if found != int(rows):
            raise SystemExit(f"found {found} rows")
    print(min(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
