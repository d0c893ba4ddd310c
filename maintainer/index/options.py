"""Options of an index definition: the table's options, overlaid by the column's JSON object (spec 06 §2.2; Java `CoreOptions`).

    fields.<c>.pk-btree.index.options = {"block-size": "4 kb", "compression": "zstd"}

An unqualified key gets the family's prefix (`btree-index.`). The object does not override the table: two different values are an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maintainer.errors import MaintainerError, Unsupported, UsageError
from maintainer.format.key_bytes import check_type
from maintainer.model.types import DataType
from maintainer.table.option_text import parse_memory_size, parse_number
from maintainer.table.support import is_known_option, meant_option

if TYPE_CHECKING:
    from maintainer.format.stored_block import Compressor

ROLLING_KEYS = frozenset({"sorted-index.records-per-range", "sorted-index.records-per-file"})
"""Rolling sizes of row-id indexes; a payload of a primary-key index is always one file."""

PEER_BLOCKS = "maintain.bitmap-peer-blocks"
"""`auto`, or `off` for exactly the bytes that Java writes (see `maintainer.index.family.bitmap`)."""

READ_ONLY = ("fallback-scan-max-size", "read-cache-size", "demand-page-size", "locate-cost-ratio")
"""Ends of options that readers look at and builds do not."""

_LARGEST_BLOCK = 2**31 - 1
"""What Java keeps the size of a block in."""

COMPRESSIONS = ("none", "zstd", "lz4", "lzo")


def overlay(
    key: str, table: Mapping[str, str], base: Mapping[str, str], prefix: str, *, kept: tuple[str, ...], rivals: Mapping[str, str] | None = None
) -> dict[str, str]:
    """`base` with the JSON object at `key` laid over it.

    Keys that start with one of `kept` are qualified already. `rivals` are the entries that a value must not contradict (default: `base`).
    """
    resolved = dict(base)
    given = dict(base if rivals is None else rivals)
    for name, value in _json_object(key, table.get(key, "")).items():
        if not name.strip():
            raise UsageError(f"{key} contains an empty option key. Name the option, or leave it out.")
        if value is None:
            raise UsageError(f"{key} value for key {name} must not be null. Give a value, or leave it out.")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        qualified = name if name.startswith(kept) else prefix + name
        if given.get(qualified, text) != text:
            raise UsageError(
                f"{key} defines conflicting values for {qualified}. They are {given[qualified]!r} and {text!r}, and none goes before "
                "the other: leave one out."
            )
        given[qualified] = resolved[qualified] = text
    return resolved


def _json_object(key: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f'{key} must be a JSON object of option key-value pairs. Write it like {{"compression": "zstd"}}.')
    return value


def memory_size(options: Mapping[str, str], key: str, default: int) -> int:
    """The number of bytes that an option such as `64 kb` means."""
    text = options.get(key)
    if text is None:
        return default
    try:
        return parse_memory_size(text)
    except (MaintainerError, ValueError) as error:
        raise UsageError(f"{key} = {text!r} is not a memory size: {error}") from error


def integer(options: Mapping[str, str], key: str, default: int) -> int:
    """The value of a whole-number option."""
    text = options.get(key)
    if text is None:
        return default
    try:
        return int(text.strip())
    except ValueError as error:
        raise UsageError(f"{key} = {text!r} is not a whole number") from error


def number(options: Mapping[str, str], key: str, default: float) -> float:
    """The value of an option that is a number."""
    text = options.get(key)
    if text is None:
        return default
    try:
        return parse_number(text)
    except UsageError as error:
        raise UsageError(f"{key} = {text!r}: {error}") from error


def check_names(prefix: str, options: Mapping[str, str]) -> None:
    """Raises `UsageError` for an option of a family that there is not: a slip would go unnoticed."""
    ignored = {name.strip() for name in options.get("maintain.ignored-options", "").split(",")}
    for key in options:
        if key.startswith(prefix) and key not in ignored and not is_known_option(key):
            meant = meant_option(key)
            advice = "leave it out" if meant is None else f"did you mean {meant}? Else leave it out"
            raise UsageError(f"{key}: this option is not known here; {advice}, or list it in maintain.ignored-options.")


def check_keys(prefix: str, block: str, column: str, key_type: DataType, options: Mapping[str, str]) -> None:
    """Raises `UsageError` unless values of this type can be the keys of a sorted payload, and its options can be acted on."""
    try:
        check_type(key_type)
    except Unsupported as error:
        raise UsageError(f"{error} Take column '{column}' out of pk-{prefix.replace('-index.', '.index.')}columns.") from None
    check_names(prefix, options)
    compression(options, prefix)
    integer(options, f"{prefix}compression-level", 1)
    size = memory_size(options, f"{prefix}{block}", 1)
    if block.startswith("dictionary") and size <= 0:
        raise UsageError(f"{prefix}{block}: Bitmap dictionary block size must be greater than 0.")
    if size > _LARGEST_BLOCK:
        raise UsageError(f"{prefix}{block} must be below 2 gb, but is {size} bytes.")
    memory_size(options, f"{prefix}fallback-scan-max-size", 0)


def compression(options: Mapping[str, str], prefix: str, default: str = "none") -> str:
    """The compression that is asked for blocks of a payload, lower case."""
    text = options.get(f"{prefix}compression", default)
    if text.lower() not in COMPRESSIONS:
        raise UsageError(f"{prefix}compression: Unknown CompressionMethod {text}; known are {', '.join(COMPRESSIONS)}")
    return text.lower()


def block_compressor(options: Mapping[str, str], prefix: str, default: str = "none") -> Compressor | None:
    """How the blocks of a payload are to be compressed.

    Where lzo is asked for, which no library of ours writes, it is zstd: each block says how it is compressed, so every reader takes it.
    """
    from maintainer.format.stored_block import compressor

    name = compression(options, prefix, default)
    return compressor("zstd" if name == "lzo" else name, integer(options, f"{prefix}compression-level", 1))


def peer_blocks(options: Mapping[str, str]) -> bool:
    """Whether bitmap payloads are laid out so that peers who look up keys by their bytes find them."""
    value = options.get(PEER_BLOCKS, "auto").strip().lower()
    if value not in ("auto", "off"):
        raise UsageError(f"{PEER_BLOCKS} = {value!r} is neither auto nor off")
    return value == "auto"


def is_true(options: Mapping[str, str], key: str) -> bool:
    """Whether a switch that is off by default is on."""
    return options.get(key, "false").strip().lower() == "true"
