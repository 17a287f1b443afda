"""The calls of a benchmark, in processes that may die."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.ir.errors import UserError
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Outcome
from aliasproof.processes.pool import Pool, RemoteCall

_PROCESSES = 2
Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerCalls:
    """How a benchmark calls its functions in other processes.

    `module` has the function `begin`, which a process calls first, and `answer`, which gets the
    arguments of each call. A process is renewed after `renewal` calls: Dynamo, the caches of fakes
    and files that were loaded keep memory.
    """

    module: str
    begin: str
    answer: str
    limits: Limits
    renewal: int

    def outcomes(
        self, arguments: Mapping[Key, tuple[object, ...]]
    ) -> Iterator[tuple[Key, Outcome]]:
        """The outcome of each call by its key, in the order in which they end."""
        start_server([self.module])
        begin = RemoteCall("", f"{self.module}:{self.begin}")
        pool = Pool(begin, self.limits, _PROCESSES, renewal=self.renewal)
        with pool.at_work():
            for key, values in arguments.items():
                pool.submit(RemoteCall(key, f"{self.module}:{self.answer}", values))
            while pool.pending:
                ended, outcome = pool.take()
                assert isinstance(ended, tuple)
                yield ended, outcome


def require_known(names: Sequence[str], known: Collection[str], what: str, folder: str) -> None:
    """Raises `UserError` with the first name that is not known."""
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"no {what} '{unknown[0]}' in benchmarks/{folder}")
