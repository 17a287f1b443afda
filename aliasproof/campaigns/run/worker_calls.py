"""What a worker process of a campaign is called for: shards and reductions.

Whatever a target does in it, a call returns, raises `InternalError`, or ends the process with a
status that says why. The pool would hand anything else to the campaign, which is not to end by it.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Sequence

from aliasproof.campaigns.failure.failure import Failure, ReducedFailure
from aliasproof.campaigns.failure.reduction import reduce_failure, reduce_isolated
from aliasproof.campaigns.run.blame import Blame
from aliasproof.campaigns.run.pool import cleaned_worker
from aliasproof.campaigns.run.shard import ShardResult, run_shard
from aliasproof.campaigns.store.plan import Shard
from aliasproof.programs.errors import DeviceLost, InternalError, OutOfMemory, out_of_memory
from aliasproof.trials import time_limit
from aliasproof.trials.forked import NO_MEMORY, ZERO
from aliasproof.trials.worker import processor_seconds

# The exit status of a worker that lost its device. No other part of a worker exits with it.
LOST = 71


@contextlib.contextmanager
def whose_end_is_told() -> Iterator[None]:
    """End the worker if the call in this context wants to end it, or if it loses its device.

    What a worker without its device runs later would fail, whatever it is. Any error that no part
    of the harness explains is one of aliasproof itself.
    """
    exit_now = os._exit
    os._exit = lambda status: exit_now(status or ZERO)
    try:
        yield
    except Exception as error:
        if out_of_memory(error):
            exit_now(NO_MEMORY)
        if isinstance(error, InternalError):
            raise
        text = "".join(traceback.format_exception(error)[-3:])
        raise InternalError(f"{type(error).__name__}: {error}\n{text}") from None
    except OutOfMemory:
        exit_now(NO_MEMORY)
    except DeviceLost:
        exit_now(LOST)
    except SystemExit as exit_:
        code = exit_.code
        exit_now((code if isinstance(code, int) else int(code is not None)) or ZERO)
    except BaseException:  # noqa: BLE001 - such as a KeyboardInterrupt that a target raises
        exit_now(1)
    finally:
        os._exit = exit_now


def run_with_blame(shard: Shard, blame: str) -> ShardResult:
    """Run a shard, and note in the file `blame` which programs run."""
    note = Blame(blame)

    def announce(indices: Sequence[int]) -> None:
        time_limit.begin(1 if len(indices) == 1 else 2)
        note(indices)

    with whose_end_is_told(), cleaned_worker():
        return run_shard(shard, announce)


def timed_reduction(failure: Failure) -> tuple[ReducedFailure | None, float]:
    """Reduce a failure. The seconds are those of the processor."""
    return _timed(reduce_failure, failure)


def reduce_in_forks(failure: Failure) -> tuple[ReducedFailure | None, float]:
    """Reduce a failure at whose candidates processes end, in a worker that does nothing else."""
    return _timed(reduce_isolated, failure)


def _timed(
    reduce: Callable[[Failure], ReducedFailure | None], failure: Failure
) -> tuple[ReducedFailure | None, float]:
    start = processor_seconds()
    with whose_end_is_told(), cleaned_worker():
        reduced = reduce(failure)
    return reduced, processor_seconds() - start
