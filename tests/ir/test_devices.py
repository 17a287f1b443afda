"""Devices: names that `--device` takes, programs on another device, and their source."""

from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.devices import on_device, require_device, unavailable, with_device
from aliasproof.ir.errors import (
    DeviceLost,
    InternalError,
    OutOfMemory,
    UserError,
    require_sound_process,
)
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.ordinary_syntax import ordinary_inputs, ordinary_source
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, loads


def writes_and_makes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.copy_(torch.zeros(4) + x)
    return y + torch.arange(4.0)


def lifted() -> Program:
    base = torch.arange(8.0)
    return lift_program(writes_and_makes, [base[:4], base[4:]]).program


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mps", "device 'mps' is not supported; give cpu, cuda or cuda:NUMBER"),
        ("gpu", "not supported"),
        ("cuda:", "does not exist"),
        ("cuda:-1", "does not exist"),
        ("cuda:first", "does not exist"),
    ],
)
def test_other_names_are_refused(name: str, part: str) -> None:
    with pytest.raises(UserError) as raised:
        require_device(name)
    assert part in str(raised.value)


def test_a_build_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert "is built without CUDA; install a build with CUDA" in str(unavailable("cuda"))
    assert unavailable("cpu") is None


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have one")

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", no_driver)
    reason = unavailable("cuda")
    assert reason is not None
    assert reason.endswith("but Found no NVIDIA driver on your system")


def test_a_device_that_is_not_there_is_told_apart_from_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert require_device("cuda:1") == "cuda:1"
    assert unavailable("cuda:2") == "does not exist; this machine has cuda:0, cuda:1"


def test_a_program_moves_with_what_it_makes_and_comes_back() -> None:
    program = lifted()
    moved = on_device(program, "cuda:1")
    made = [call.op for call in moved.instructions if ("device", "cuda:1") in call.kwargs]
    assert made == ["aten.zeros.default", "aten.arange.default"]
    assert on_device(moved, "cpu") == program
    assert on_device(moved, "cuda") == on_device(program, "cuda")


def test_the_device_survives_json_source_and_new_names() -> None:
    program = on_device(lifted(), "cuda")
    assert loads(dumps(program)) == program
    rest = program.storages, program.inputs, program.seed, program.fill, program.device
    assert parse_source(source(program), *rest) == program
    assert program.renamed().device == "cuda"


def test_json_of_the_cpu_names_no_device() -> None:
    """Older versions can read it."""
    program = next(sample(swarm(0), 0, 1))
    assert '"device"' not in dumps(program)
    assert loads(dumps(program)) == program


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = torch.arange(4.0)\n", 'x = torch.arange(4.0, device="D")\n'),
        ("x = torch.empty()\n", 'x = torch.empty(device="D")\n'),
        (
            "s = (torch.arange(8) * 3) % 8 + torch.complex(torch.ones(2), torch.eye(2))\n",
            (
                's = (torch.arange(8, device="D") * 3) % 8'
                ' + torch.complex(torch.ones(2, device="D"), torch.eye(2, device="D"))\n'
            ),
        ),
        (
            'x = aten.zeros.default([4]).detach("ä", aten.full.default([2], 1))\n',
            (
                'x = aten.zeros.default([4], device="D")'
                '.detach("ä", aten.full.default([2], 1, device="D"))\n'
            ),
        ),
        ("x = y.new_zeros(2)\nz = torch.clone(x)\n", "x = y.new_zeros(2)\nz = torch.clone(x)\n"),
    ],
)
def test_each_factory_in_source_gets_the_device(text: str, expected: str) -> None:
    assert with_device(text, "D") == expected
    assert with_device(text, "cpu") == text


def test_source_on_a_device_is_that_of_the_cpu_with_the_device() -> None:
    """So a script can be written on a machine without the device."""
    for program in sample(swarm(3), 3, 20):
        moved = on_device(program, "cuda:0")
        assert ordinary_source(moved) == with_device(ordinary_source(program), "cuda:0")
        assert ordinary_inputs(moved).replace(', device="cuda:0"', "") == ordinary_inputs(program)
        assert inputs_source(moved).replace(', device="cuda:0"', "") == inputs_source(program)
        assert inputs_source(moved).count('device="cuda:0"') >= min(1, len(program.inputs))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure",
    ],
)
def test_an_error_after_which_no_call_works_is_no_ordinary_one(message: str) -> None:
    for kind in (RuntimeError, InternalError):
        with pytest.raises(DeviceLost):
            require_sound_process(kind(f"it failed: {message}\nCUDA kernel errors might be late"))


def test_other_errors_leave_the_device() -> None:
    require_sound_process(ValueError("device-side assert"))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        InternalError("MemoryError: "),
    ],
)
def test_memory_that_is_at_an_end_is_no_error_of_what_ran_last(error: Exception) -> None:
    with pytest.raises(OutOfMemory):
        require_sound_process(error)


def test_tensors_of_two_devices_are_no_program() -> None:
    inputs = [torch.arange(4.0), torch.arange(4.0, device="meta")]
    with pytest.raises(UserError, match="cpu"):
        lift_program(lambda x, y: x + 1, inputs)


def test_a_program_with_another_device_than_its_own_is_refused() -> None:
    program = on_device(lifted(), "cuda")
    with pytest.raises(UserError, match="the program is on 'cuda:1'"):
        loads(dumps(replace(program, device="cuda:1")))
