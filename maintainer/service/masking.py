"""What must not be shown of a configuration: values of storage options that may be secrets, and passwords inside of URIs (DESIGN §5).

Of `storage-options` only values that are known to be none are shown, of `options` none whose name looks like one. What refers to environment
variables is shown as it is written (`maintainer.service.document`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from maintainer.service.document import Place

MASK = "***"
LEAST_SECRET = 8
"""Characters of a text that is looked for in what is logged."""
_NO_SECRETS = re.compile(
    r"endpoint(_?url|_override)?|region(_?name)?|.*_url|host|port|project|account_name|bucket|default_.*|version|.*_version|.*_style|protocol|"
    r"profile|cache_type|acl|.*timeout|retries|max_.*|min_.*|.*_size|mode|location",
    re.IGNORECASE,
)
"""Names of storage options whose texts are shown; every other text may be a secret."""
_SECRETS = re.compile(r"secret|passw|passphrase|token|credential|access.?key|private|signature|sas$|api.?key|encrypt", re.IGNORECASE)
"""Names of options that are never shown, whatever they hold."""


def shown_uri(uri: str) -> str:
    """A URI without what may be a password in it."""
    return re.sub(r"(?<=://)[^/\s]*@", f"{MASK}@", uri)


def is_secret(place: Place, value: Any) -> bool:
    """Whether a value must not be shown."""
    if len(place) < 4 or place[2] not in ("storage-options", "options"):
        return False
    names = [str(part) for part in place[3:] if isinstance(part, str)]
    if any(_SECRETS.search(name) for name in names):
        return True
    if place[2] == "options" or isinstance(value, bool) or value is None:
        return False
    return not _NO_SECRETS.fullmatch(names[-1]) or urlsplit(str(value)).username is not None


def secret_texts(place: Place, value: Any, written: bool) -> Iterator[str]:
    """What of a value must not be logged; a password of digits need not be quoted in YAML."""
    if written or is_secret(place, value):
        yield str(value)
    elif isinstance(value, str) and place[-1] == "uri" and (within := re.search(r"(?<=://)([^/\s]*)@", value)):
        yield from (within[1], within[1].partition(":")[2])


def leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*place, number))
    else:
        yield place, value
