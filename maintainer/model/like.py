r"""LIKE patterns (spec 07 §4.1; Java `org.apache.paimon.predicate.Like`).

| in the pattern | matches                                                                     |
| -------------- | --------------------------------------------------------------------------- |
| `%`            | any text, line ends included                                                |
| `_`            | one code point that does not end a line: not \n, \r, U+0085, U+2028, U+2029 |
| `\_` `\%` `\\` | the character after the backslash; before anything else `\` is an error     |
| anything else  | itself                                                                      |

`reduced` is Java's rewriting of simple patterns into what an index answers better.
"""

from __future__ import annotations

from maintainer.errors import UsageError
from maintainer.model.predicate import Leaf, Op

ANY = "%"
ONE = "_"
ESCAPE = "\\"
LONGEST = 4096
"""Characters of a pattern that needs a regular expression: RE2 refuses much longer ones."""


def check_pattern(pattern: str) -> None:
    """`UsageError` for an escape that Java refuses, or a pattern that is too long."""
    position = pattern.find(ESCAPE)
    while position >= 0:
        if pattern[position + 1 : position + 2] not in (ANY, ONE, ESCAPE):
            raise UsageError(
                f"invalid escape sequence in the LIKE pattern {pattern!r} at position {position}: only \\%, \\_ and \\\\ have a meaning"
            )
        position = pattern.find(ESCAPE, position + 2)
    if len(pattern) > LONGEST and reduced(Leaf(Op.LIKE, "", (pattern,))).op == Op.LIKE:
        raise UsageError(f"a LIKE pattern of {len(pattern)} characters is too long; at most {LONGEST}")


def with_backslash(pattern: str, escape: str) -> str:
    """The pattern with `escape` as its escape character, rewritten to use the backslash."""
    if escape == ESCAPE:
        return pattern
    if not isinstance(escape, str) or len(escape) != 1:
        raise UsageError(f"the escape of LIKE must be one character, not {escape!r}")
    result: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in (ANY, ONE, escape) or not following:
                raise UsageError(f"invalid escape sequence in the LIKE pattern {pattern!r}: {escape!r} must stand before %, _ or itself")
            result.append(ESCAPE + following if following in (ANY, ONE, ESCAPE) else following)
        else:
            result.append(ESCAPE * 2 if character == ESCAPE else character)
    return "".join(result)


def regular_expression(pattern: str) -> str:
    """The pattern for RE2, to be matched against the whole text."""
    result = [r"\A"]
    characters = iter(pattern)
    for character in characters:
        if character == ANY:
            result.append(r"(?s:.*)")
        elif character == ONE:
            result.append(r"[^\n\r\x{85}\x{2028}\x{2029}]")
        else:
            literal = next(characters, ESCAPE) if character == ESCAPE else character
            result.append(literal if literal.isascii() and literal.isalnum() else f"\\x{{{ord(literal):x}}}")
    result.append(r"\z")
    return "".join(result)


def reduced(leaf: Leaf) -> Leaf:
    """A LIKE without `_` and `\\` as `=`, startsWith, endsWith or contains where it is one; any other leaf as it is."""
    if leaf.op != Op.LIKE or leaf.literal is None:
        return leaf
    pattern: str = leaf.literal
    inner = pattern.strip(ANY) if len(pattern) > 1 else pattern
    if ONE in pattern or ESCAPE in pattern or not inner or ANY in inner:
        return leaf
    for op, shape in ((Op.EQ, inner), (Op.STARTS_WITH, inner + ANY), (Op.ENDS_WITH, ANY + inner), (Op.CONTAINS, ANY + inner + ANY)):
        if pattern == shape:
            if op == Op.EQ and leaf.negated:
                return Leaf(Op.NE, leaf.field, (inner,))
            return Leaf(op, leaf.field, (inner,), negated=leaf.negated)
    return leaf


def literal_parts(pattern: str) -> list[str]:
    """The texts between the wildcards: the first and the last one, which may be empty, are where the text starts and ends; if there is only
    one, it is the text."""
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        if character in (ANY, ONE):
            parts.append("")
        else:
            parts[-1] += next(characters, ESCAPE) if character == ESCAPE else character
    return parts
