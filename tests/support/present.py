"""Which peers are on this machine, and why not where one is missing."""

from __future__ import annotations

import re
import shutil
import subprocess


def java_absent() -> str | None:
    """None when Java 17 or later and Maven are here (the Java peer can be built), else the reason."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if not java:
        return "no Java on this machine (java is not on the PATH)"
    if not maven:
        return "no Maven on this machine (mvn is not on the PATH)"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', version)
    if not found or int(found.group(1)) < 17:
        return f"Java 17 or later is needed, found: {version.splitlines()[0] if version else 'nothing'}"
    return None
