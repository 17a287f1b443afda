"""Helpers for the tests of functionalization: programs, inputs, and the values that callers see."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import pytest
import torch
from torch import Tensor

from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.verdict import Violation
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Target

Given = TypeVar("Given")
Program: TypeAlias = Callable[..., object]
Example: TypeAlias = tuple[Program, tuple[Tensor, ...]]  # a program and the inputs to run it on


def programs_of(
    text: str, names: dict[str, object], read: Callable[..., Given]
) -> list[tuple[Program, Given]]:
    """The programs of a text: heads `name(x, y): given`, and bodies, which may use the names.

    `read` gets the given values as its arguments.
    """
    programs = []
    for block in re.split(r"\n(?=\w)", text.strip()):
        if not block.startswith("#"):
            head, body = block.split("\n", 1)
            signature, given = head.split(": ", 1)
            scope = names | {"read": read}
            exec(f"def {signature}:\n{body}", scope)
            program: Any = scope[signature.partition("(")[0]]
            programs.append((program, eval(f"read({given})", scope)))  # noqa: S307 - our own text
    return programs


def names(examples: list[tuple[Program, Given]]) -> list[str]:
    """The names of the programs, as ids of tests."""
    return [program.__name__ for program, _ in examples]


def violations(
    program: Program, inputs: Sequence[Tensor], compiled: Callable[..., Program]
) -> list[Violation]:
    """The differences from eager in `compiled(program, *inputs)`, by the strongest contract."""

    def build(function: Program, sample: Sequence[Any]) -> Build:
        return Build(compiled(function, *sample), [])

    target = Target("compiled", "reference_pass", Contract(), build, recipe="")
    return run_trial(Case.of_function(program, inputs), target).judgement.violations


def assert_right(program: Program, inputs: Sequence[Tensor], target: str) -> None:
    """Eager runs the program, and a target of the registry agrees with it, without a waiver."""
    trial = run_trial(Case.of_function(program, inputs), TARGETS[target])
    assert trial.eager.error is None
    assert trial.judgement.documented == []
    assert trial.judgement.violations == []


@contextlib.contextmanager
def refused_before(release: str, match: str) -> Iterator[None]:
    """A torch before this release cannot trace the program; later ones are right."""
    older = torch.__version__ < release
    with pytest.raises(Refused, match=match) if older else contextlib.nullcontext():
        yield


def counted(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes)


def complex_counted(*sizes: int) -> Tensor:
    return torch.complex(counted(*sizes) + 1, counted(*sizes) * 10 + 10)


# A trial clones its inputs without their lazy conjugate and negative bits. For inputs that have
# such bits, the functions below run a program and compare the values that its caller sees.


def afresh(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Copies of inputs with the same sharing of storages and the same lazy bits."""
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().clone() for tensor in inputs
    }
    copies = []
    for tensor in inputs:
        storage = storages[tensor.untyped_storage()._cdata]
        layout = tensor.storage_offset(), tensor.shape, tensor.stride()
        copy = torch.empty(0, dtype=tensor.dtype).set_(storage, *layout)
        copy = copy.conj() if tensor.is_conj() else copy
        copies.append(torch._neg_view(copy) if tensor.is_neg() else copy)
    return copies


def seen_at_end(program: Program, inputs: list[Tensor]) -> list[object]:
    """What the caller sees of each output and input.

    This is its values, dtype, strides and lazy bits, and the first tensor that shares its storage.
    """
    result = program(*inputs)
    tensors = [*(result if isinstance(result, (list, tuple)) else [result]), *inputs]
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [
        (
            tensor.tolist(),
            tensor.dtype,
            _strides(tensor),
            tensor.is_conj(),
            tensor.is_neg(),
            storages.index(storage),
        )
        for tensor, storage in zip(tensors, storages, strict=True)
    ]


def seen_afresh(program: Program, inputs: tuple[Tensor, ...]) -> list[object]:
    """`seen_at_end` for a run on copies of the inputs, with a seed."""
    torch.manual_seed(0)
    return seen_at_end(program, afresh(inputs))


def assert_alike(compiled: Program, program: Program, *inputs: Tensor) -> None:
    """On copies of the inputs, both return the same, and leave the same in the inputs."""
    assert seen_afresh(compiled, inputs) == seen_afresh(program, inputs)


def _strides(tensor: Tensor) -> list[int]:
    """The strides of a tensor, except for dimensions of size one or less."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
