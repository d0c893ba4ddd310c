"""Released Java on the same table, where there is a JDK: `tests/java-peer/peer.sh bench-compact`.

java.process   CPU of its whole process for one full compaction, at least 4 times that of `maintainer compact --full`
java.warm      CPU of its third full compaction in a warm JVM, at least 1.7 times ours in a warm process
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import tables
from compactions import BIG
from rounds import CHILD, COMMAND, Measurement, run
from tables import Shape

PEER = Path(__file__).parents[2] / "tests" / "java-peer" / "peer.sh"
ROUNDS = 3


def measure(directory: Path) -> Iterator[Measurement]:
    if shutil.which("java") is None:
        return
    database = directory / "bench.db"
    table, warm = database / "java", database / "java_warm"
    tables.write(table, BIG)
    tables.write(warm, Shape(5, 1000, 3000))
    ours, ours_process = [], []
    for number in range(ROUNDS):
        for spent, command in ((ours, [*CHILD, "compact", str(warm)]), (None, [COMMAND, "compact", "--full"])):
            copy = database / f"java_{number}"
            shutil.copytree(table, copy)
            said, cpu = run([*command, str(copy)])
            shutil.rmtree(copy)
            if spent is None:
                ours_process.append(cpu)
            else:
                spent.append(float(said))
    process = json.loads(run([str(PEER), "bench-compact", str(table)])[0])["process_cpu_s"]
    third = json.loads(run([str(PEER), "bench-compact", str(table), "--repeat", "3"])[0])["cpu_s"]
    yield "java.process.cpu", min(ours_process), "s", process / 4, True
    yield "java.warm.cpu", min(ours), "s", third / 1.7, True
