"""`SymbolicValues`: the expression behind each value hash, to show in evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aliasproof.oracles.value_hashes import Array


@dataclass(slots=True)
class SymbolicValues:
    """By the hash of an element: an op and the hashes that it read, or an element of an input."""

    expressions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def note(
        self, elements: Array, label: Callable[[int], str], read: Sequence[Array] = ()
    ) -> None:
        """Note the expression of each element. `read` are its operands, of the size of `elements`.

        `label` gives the op or the name of the element at an index.
        """
        operands = [operand.ravel().tolist() for operand in read]
        for index, value in enumerate(elements.ravel().tolist()):
            # The same hash may be computed twice; its first expression is kept.
            reads = tuple(operand[index] for operand in operands)
            self.expressions.setdefault(value, (label(index), reads))

    def spell(self, value: int, depth: int = 4) -> str:
        """The expression behind a hash: 'mul[other=0](add[other=1](x0[1]))'."""
        # Bytes that were stored as parts of several elements have no expression.
        label, read = self.expressions.get(value, ("bytes of several elements", ()))
        if not read:
            return label
        inner = ", ".join(self.spell(tensor, depth - 1) for tensor in read) if depth else "..."
        return f"{label}({inner})"

    def first_foreign(self, value: int, known: SymbolicValues) -> int | None:
        """The first computation behind a value that `known` does not have; None if it has all.

        All that it reads is known: here one run begins to compute something else.
        """
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if current in seen or current in known.expressions:
                continue
            seen.add(current)
            _, read = self.expressions.get(current, ("", ()))
            foreign = [operand for operand in read if operand not in known.expressions]
            if not foreign:
                return current
            waiting = foreign
        return None


def element(name: str, sizes: tuple[int, ...], index: int) -> str:
    """The name of an element, by its index in row-major order: 'x0[1, 2]'."""
    return (
        f"{name}{[int(position) for position in np.unravel_index(index, sizes)] if sizes else ''}"
    )
