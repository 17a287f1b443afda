"""Overlap of two concrete regions, decided by z3 with a witness that a person can check by hand.

`aliasproof.ir.regions.overlap` decides the same about a hundred times faster. z3 is the
second opinion: it shares no code with that function, and its answer names the two elements and the
byte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from aliasproof.ir.errors import InternalError
from aliasproof.ir.regions import Region

# torch allows 64 dims per tensor. All names are declared at once, in this order: see `Session`.
_MOST_DIMS = 64


@dataclass(frozen=True, slots=True)
class Witness:
    """One element of each region, as index tuples, and the address of a byte in both elements."""

    indices_a: tuple[int, ...]
    indices_b: tuple[int, ...]
    byte: int

    def check(self, a: Region, b: Region) -> bool:
        """Whether the witness is right, by integer arithmetic."""
        return _holds_byte(a, self.indices_a, self.byte) and _holds_byte(
            b, self.indices_b, self.byte
        )


@dataclass(frozen=True, slots=True)
class Disjoint:
    """Proved: no byte is in both regions."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """z3 gave up; `reason` has the time limit and z3's own reason ("canceled": out of time)."""

    reason: str


def decide(a: Region, b: Region, timeout_ms: int = 2000) -> Witness | Disjoint | Unknown:
    """Ask z3 whether two regions of one address space have a byte in common.

    Equal questions get equal answers, also in another order or another process; only the time limit
    (`timeout_ms`, in milliseconds) depends on the clock. Not safe for several threads.

    Raises:
        InternalError: z3's witness is wrong.

    """
    session = Session.here()
    indices_a, indices_b = session.indices_a[: len(a.sizes)], session.indices_b[: len(b.sizes)]
    # The distance in bytes from the element of `a` to the element of `b`. Two elements share a byte
    # if neither ends before the other begins. Only the difference of the starts is used, since z3
    # is faster on small numbers. (Without dims, the distance is an `int`.)
    distance = z3.Sum(
        *(stride * index for stride, index in zip(b.strides, indices_b, strict=True)),
        *(-stride * index for stride, index in zip(a.strides, indices_a, strict=True)),
        b.start - a.start,
    )
    assumptions = [
        *_inside(indices_a, a.sizes),
        *_inside(indices_b, b.sizes),
        distance < a.itemsize,
        distance > -b.itemsize,
    ]
    answer = session.ask(assumptions, [*indices_a, *indices_b], timeout_ms)
    if not isinstance(answer, tuple):
        return answer
    # The bytes that two elements share begin where the later one starts.
    at_a, at_b = answer[: len(a.sizes)], answer[len(a.sizes) :]
    witness = Witness(at_a, at_b, byte=max(_address(a, at_a), _address(b, at_b)))
    if not witness.check(a, b):
        raise InternalError(
            f"z3 gave a wrong witness, please send us this line: {witness} for {a} and {b}"
        )
    return witness


@dataclass(frozen=True, slots=True)
class Session:
    """z3 in this process: one context, one solver, and the declared names.

    Making a context takes milliseconds, so it lives as long as the process. The solver is `reset`,
    not `push`ed and `pop`ped: after `pop` it remembers which values to try first, so the witness
    would depend on earlier questions (in 134 of 1,500 cases; `reset` costs half a millisecond more
    per question). The names stay declared for the same reason: z3 orders terms by the time of their
    creation.
    """

    solver: Any
    indices_a: tuple[Any, ...]
    indices_b: tuple[Any, ...]

    @classmethod
    def here(cls, purpose: str = "regions") -> Session:
        """The session of this process for a purpose; a forked child creates a new one."""
        key = (os.getpid(), purpose)
        if key not in _SESSIONS:
            context = z3.Context()
            names_a = tuple(z3.Int(f"i{dim}", context) for dim in range(_MOST_DIMS))
            names_b = tuple(z3.Int(f"j{dim}", context) for dim in range(_MOST_DIMS))
            _SESSIONS[key] = cls(z3.SimpleSolver(ctx=context), names_a, names_b)
        return _SESSIONS[key]

    @property
    def context(self) -> Any:
        """The context in which all terms of a question must be created."""
        return self.solver.ctx

    def ask(
        self, assumptions: Sequence[Any], names: Sequence[Any], timeout_ms: int
    ) -> tuple[int, ...] | Disjoint | Unknown:
        """The values of `names` in a model of the assumptions, if there is one."""
        self.solver.reset()
        # A fixed seed, so that equal questions have equal witnesses.
        self.solver.set("random_seed", 0)
        self.solver.set("timeout", timeout_ms)
        self.solver.add(*assumptions)
        verdict = self.solver.check()
        if verdict == z3.unsat:
            return Disjoint()
        if verdict == z3.unknown:
            return Unknown(
                f"z3 gave up, with a limit of {timeout_ms} ms: {self.solver.reason_unknown()}"
            )
        model = self.solver.model()
        # A name that no assumption restricts has no value in the model: completion gives it one.
        return tuple(int(model.eval(name, model_completion=True).as_long()) for name in names)


# By process id and purpose: a context that came through a fork is neither used nor freed.
_SESSIONS: dict[tuple[int, str], Session] = {}


def _inside(indices: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return [
        bound
        for index, size in zip(indices, sizes, strict=True)
        for bound in (index >= 0, index < size)
    ]


def _address(region: Region, indices: Sequence[int]) -> int:
    return region.start + sum(
        stride * index for stride, index in zip(region.strides, indices, strict=True)
    )


def _holds_byte(region: Region, indices: Sequence[int], byte: int) -> bool:
    if len(indices) != len(region.sizes):
        return False
    if not all(0 <= index < size for index, size in zip(indices, region.sizes, strict=True)):
        return False
    return 0 <= byte - _address(region, indices) < region.itemsize
