"""A `functools.cached_property` for what is read from a store, or takes long to make.

Python 3.11 holds one lock of the class while the property of any of its objects is made: payloads which several threads read would be read one
after the other. Later versions have none, and neither has this one: two threads may make the same, and one of them is kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    made_once = cached_property
else:

    class made_once(cached_property):  # noqa: N801  (like the one of functools)
        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            made = instance.__dict__[self.attrname] = self.func(instance)
            return made
