"""Updates: `acc = acc op v` with an operation whose order and grouping do not matter, as numbers of unbounded precision.

    acc[i] = acc[i] + A[i, k]        acc[i] = where(c, maximum(acc[i], v), acc[i])

Two of them on one element may change places where who asks says so: a sum of floats comes out with other last bits. `acc - v` is a sum.
Of a sum of several products, such as those of complex numbers, an update is several:

    acc = acc + (a * b - c * d)      -->      acc = acc + a * b - c * d
"""

from __future__ import annotations

from tensorexpr.codegen.facts.places import Touch
from tensorexpr.codegen.nest import Store
from tensorexpr.ir import Access, Apply, Cast, Expr, apply
from tensorexpr.traversal import signed_terms, tensors_read

MOST_IN_TURN = 4
"""Terms that are added one after the other: one instruction less of a few is much, and each waits for the one before."""

_COMBINED = {op: op for op in ("add", "mul", "maximum", "minimum", "and", "or", "xor")} | {"sub": "add"}


def update_of(touch: Touch) -> str | None:
    """The operation of the update that an access is part of, as what is read or what is written; None where it is part of none."""
    store = touch.statement
    if not isinstance(store, Store) or store.buffer != touch.home.buffer.name or store.indices != touch.indices:
        return None
    return operation_of(store)


def operation_of(store: Store) -> str | None:
    """The operation by which a store updates an element with what does not read it; None for any other store."""
    own = Access(store.buffer, store.indices, store.value.dtype)
    if any(store.buffer in tensors_read(index) for index in store.indices):
        return None
    return _combined(store.value, own)


def _combined(value: Expr, own: Access) -> str | None:
    """The operation by which a value is made of the element itself, once."""
    if isinstance(value, Cast) and value.arg.dtype is value.dtype:
        return _combined(value.arg, own)
    if not isinstance(value, Apply):
        return None
    if value.op.name == "where":
        condition, taken, otherwise = value.args
        kept, changed = (taken, otherwise) if taken == own else (otherwise, taken)
        return _combined(changed, own) if kept == own and not _reads(condition, own) else None
    found = _COMBINED.get(value.op.name)
    if found is None:
        return None
    first, *rest = value.args
    if not any(_reads(arg, own) for arg in rest):
        return found if first == own or _combined(first, own) == found else None
    if value.op.name != "sub" and len(rest) == 1 and not _reads(first, own):
        return found if rest[0] == own or _combined(rest[0], own) == found else None
    return None


def _reads(expr: Expr, own: Access) -> bool:
    return own.tensor in tensors_read(expr)


def in_turn(store: Store) -> Expr:
    """The value of a store, with the products that it adds to its own element as a sum added one after the other: where a multiplication
    with addition is one instruction, there is one less. The sum is the same but for rounding."""
    own = Access(store.buffer, store.indices, store.value.dtype)
    match store.value:
        case Apply(args=(first, second)) if store.value.op.name == "add" and own in (first, second) and own.dtype.is_float:
            added = second if first == own else first
            terms = [] if _reads(added, own) else list(signed_terms(added))
            products = [term for _, term in terms if isinstance(term, Apply) and term.op.name == "mul"]
            if len(products) >= 2 and len(terms) <= MOST_IN_TURN:
                total: Expr = own
                for sign, term in terms:
                    total = apply("add" if sign > 0 else "sub", total, term)
                return total
    return store.value
