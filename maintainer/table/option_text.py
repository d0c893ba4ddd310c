"""What the text of an option means: sizes, durations, numbers (spec 01 §16; Java `MemorySize`, `TimeUtils`).

`UsageError` says how it should look.
"""

from __future__ import annotations

import re

from maintainer.errors import UsageError

_UNITS = {
    "": 1, "b": 1, "byte": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibyte": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibyte": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibyte": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibyte": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_DURATIONS = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
LARGEST = 2**63 - 1
"""Of numbers that Java could hold."""
_QUANTITY = re.compile(r"\s*(\d+)\s*([a-zµ]*)\s*", re.IGNORECASE)


def parse_memory_size(text: str) -> int:
    """Bytes: `128 mb`, `8MB`, `1024`."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS:
        raise UsageError(f"{text!r} is not a size like '128 mb' (units: b, kb, mb, gb, tb)")
    return _within_64_bits(match[1], _UNITS[match[2].lower()], text)


def parse_duration(text: str) -> float:
    """Seconds: `1 h`, `10 ms`, `500` (milliseconds)."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in _DURATIONS:
        raise UsageError(f"{text!r} is not a duration like '10 s' or '1 h'")
    return _within_64_bits(match[1], 1, text) * _DURATIONS[match[2].lower()]


def _within_64_bits(digits: str, unit: int, text: str) -> int:
    """A quantity as Java holds it: what is larger could not even be computed with."""
    value = int(digits) * unit if len(digits) < 20 else LARGEST + 1
    if value > LARGEST:
        raise UsageError(f"{text!r} is too large")
    return value


def parse_boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise UsageError(f"{text!r} is neither true nor false")
    return value == "true"


def parse_integer(text: str) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is not a whole number") from None
    if abs(value) > LARGEST:
        raise UsageError(f"{text!r} is too large")
    return value


def parse_number(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise UsageError(f"{text!r} is not a finite number")
    return value


def parse_per_level(text: str) -> dict[int, str]:
    """By level: `0:lz4,5:zstd`."""
    values = {}
    for pair in text.split(","):
        level, separator, value = pair.partition(":")
        if not separator or not value.strip():
            raise UsageError("must be like '0:lz4,5:zstd'")
        values[parse_integer(level)] = value.strip().lower()
    return values
