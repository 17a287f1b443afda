"""Other threads during a compilation: they draw numbers, and call functions."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import functionalize


def in_another_thread(task: Callable[[], object]) -> None:
    thread = threading.Thread(target=task)
    thread.start()
    thread.join()


@pytest.fixture(params=["alone", "not alone"])
def alone(request) -> Iterator[bool]:
    """Whether there is no other thread, which might draw numbers."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    if request.param == "not alone":
        thread.start()
    yield request.param == "alone" and threading.active_count() == 1
    if thread.is_alive():
        end.set()
        thread.join()


@torch.library.custom_op("reference_pass_threads::negated", mutates_args=())
def negated(x: Tensor) -> Tensor:
    return -x


DURING_THE_TRACE: list[Callable[[], object]] = []


@negated.register_fake
def _(x: Tensor) -> Tensor:
    for task in DURING_THE_TRACE:
        in_another_thread(task)
    return torch.empty_like(x)


@pytest.fixture
def during_the_trace() -> Iterator[list[Callable[[], object]]]:
    yield DURING_THE_TRACE
    DURING_THE_TRACE.clear()


def test_another_thread_calls_a_compiled_function_while_one_is_compiled_for_a_layout(
    during_the_trace,
):
    """All threads share FX's flag that it traces, and compiled functions refuse to be traced.

    Dynamo handles this while it compiles, but for another layout it does not compile again.
    """
    warm = torch.compile(lambda x: x * 2, backend=aliasproof)
    slow = torch.compile(lambda x, y: (negated(x.add_(1)), y + 1), backend=aliasproof)
    assert torch.equal(warm(torch.ones(4)), torch.full((4,), 2.0))
    slow(torch.ones(4), torch.ones(4))
    seen: list[Tensor] = []
    during_the_trace.append(lambda: seen.append(warm(torch.ones(4))))
    buffer = torch.zeros(6)
    result, other = slow(buffer[:4], buffer[2:])
    assert result.tolist() == [-1.0] * 4
    assert other.tolist() == [2.0, 2.0, 1.0, 1.0]
    assert seen
    assert all(torch.equal(each, torch.full((4,), 2.0)) for each in seen)
    assert not torch.compiler.is_compiling()


def test_another_thread_draws_numbers_during_a_trace(alone, during_the_trace):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    during_the_trace.append(lambda: torch.rand(3))
    x = torch.ones(2)
    if alone:  # the thread has ended by then
        with pytest.raises(Refused, match="seeds the default generator"):
            functionalize(negated, x)
    else:
        assert torch.equal(functionalize(negated, x)(x), -x)
        assert not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_is_refused_beside_other_threads(alone, seed):
    torch.manual_seed(1)
    torch.rand(3)
    before = torch.get_rng_state()

    def seeds(x):
        torch.manual_seed(seed)
        return x + 1

    with pytest.raises(Refused, match="seeds the default generator"):
        functionalize(seeds, torch.ones(2))
    assert torch.equal(before, torch.get_rng_state())
