"""Speculation: ask about several candidates at once, and take the answers in their order.

The result is that of a sequential reduction: each answer is a function of its candidate, and the
first success in the order of the candidates decides. What was asked ahead of it is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Executor, Future

from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Evaluate, Predicate


def ahead(executor: Executor, count: int) -> Evaluate:
    """Ask about `count` candidates at a time in an executor."""

    def evaluate(predicate: Predicate, candidates: Iterable[Program]) -> Generator[int, None, None]:
        waiting: deque[Future[int]] = deque()
        source = iter(candidates)
        try:
            while True:
                while len(waiting) < count:
                    candidate = next(source, None)
                    if candidate is None:
                        break
                    waiting.append(executor.submit(predicate, candidate))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    return evaluate
