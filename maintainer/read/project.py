"""What a predicate still says when only some columns can be looked at (spec 07 §3).

    leaf   kept if its column is one of them, else nothing is known
    AND    the conjunction of what is known of its children
    OR     the disjunction, if something is known of every child; else nothing is known

A projection is implied by the predicate: what it rejects, the predicate rejects.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from maintainer.model.predicate import And, Leaf, Op, Or, Predicate


def project(predicate: Predicate, columns: Container[str]) -> Predicate | None:
    """The predicate as far as these columns decide it; None: they decide nothing."""
    if isinstance(predicate, Leaf):
        return predicate if predicate.field in columns else None
    kept = [child for child in (project(child, columns) for child in predicate.children) if child is not None]
    if isinstance(predicate, Or):
        return Or(tuple(kept)) if len(kept) == len(predicate.children) else None
    return (kept[0] if len(kept) == 1 else And(tuple(kept))) if kept else None


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that must all be true, without nested ANDs."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from conjuncts(child)
    else:
        yield predicate


def disjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions of which one must be true, without nested ORs."""
    if isinstance(predicate, Or):
        for child in predicate.children:
            yield from disjuncts(child)
    else:
        yield predicate


def without_implied(children: list[Predicate]) -> list[Predicate]:
    """The children of an AND without `f IS NOT NULL` where another leaf on `f` rejects NULL anyway: a large set that changes nothing."""
    rejecting = {child.field for child in children if isinstance(child, Leaf) and child.op not in (Op.IS_NULL, Op.IS_NOT_NULL)}
    return [child for child in children if not (isinstance(child, Leaf) and child.op == Op.IS_NOT_NULL and child.field in rejecting)]
