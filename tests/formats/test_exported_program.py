"""Files of `torch.export.save`: the read program computes what the model does; no code runs."""

import contextlib
import functools
import json
import operator
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aliasproof.formats.exported_program import read_exported
from aliasproof.ir.errors import UserError
from tests.security import hostile_files


class Counting(nn.Module):
    """Writes a buffer and an input, returns a view, several results, and special numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.tied = nn.Parameter(self.linear.weight.detach()[1])
        self.register_buffer("seen", torch.zeros(3))
        self.constant = torch.tensor([1, 2, 3])

    def forward(self, x: torch.Tensor, number: int) -> Any:
        y = self.linear(x)
        self.seen.add_(y[0])  # type: ignore[operator]
        x.mul_(number)
        first, _, last = x.split([1, 1, 1], -1)
        index = x[:, self.constant - 1]
        infinite = torch.full_like(y, float("inf"))
        return y + self.tied, first.expand(2, 3), last.to(torch.float64), infinite, index


def exported(module: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    return torch.export.export(module, inputs, **options)


def saved(program: Any, tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    return path


def plain(program: Any) -> Any:
    return program


def functional(program: Any) -> Any:
    return program.run_decompositions()


@pytest.mark.parametrize("form", [plain, functional])
def test_a_file_computes_what_its_model_computes(form: Callable[..., Any], tmp_path: Path) -> None:
    made = form(exported(Counting(), (torch.randn(2, 3), 5)))
    read = read_exported(saved(made, tmp_path))
    assert len(read.inputs) == 7  # three parameters, a buffer, a constant, x and a number
    x, model = read.inputs[-2], made.module()
    assert isinstance(x, torch.Tensor)
    copy = x.clone()
    expected, actual = model(copy, 5), read.module(*read.inputs)
    for ours, theirs in zip(expected, actual, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(copy, x)  # both wrote it
    seen = read.inputs[3]
    assert isinstance(seen, torch.Tensor)
    assert torch.equal(model.seen, seen)


def test_symbolic_sizes_are_those_of_the_example(tmp_path: Path) -> None:
    class Reshapes(nn.Module):
        def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
            return x.view(x.shape[0] * 2, -1) + x.shape[0] * number

    dynamic = ({0: torch.export.Dim("batch", min=2, max=16)}, torch.export.Dim.DYNAMIC)
    program = exported(Reshapes(), (torch.randn(6, 4), 7), dynamic_shapes=dynamic)
    read = read_exported(saved(program, tmp_path))
    x, number = read.inputs
    assert isinstance(x, torch.Tensor)
    assert (x.shape, number) == ((6, 4), 7)
    assert torch.equal(read.module(x, number)[0], Reshapes()(x, 7))
    assert any(re.search(r": s\d+ = 7, s\d+ = 6,", note) for note in read.notes), read.notes


def test_what_a_graph_cannot_say_is_refused_by_name(tmp_path: Path) -> None:
    class Chooses(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(UserError, match=r"'as_graph' \(a graph, such as a branch of torch.cond\)"):
        read_exported(saved(exported(Chooses(), (torch.randn(3),)), tmp_path))


# --- hostile --------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


def rewritten(path: Path, changes: dict[str, bytes]) -> Path:
    """The archive with other contents for the members whose names have these suffixes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for ending, data in changes.items():
        names = [name for name in members if name.endswith(ending)]
        assert names
        members.update(dict.fromkeys(names, data))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return saved(exported(Counting(), (torch.randn(2, 3), 5)), tmp_path)


def test_no_pickle_is_opened(file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    read_exported(rewritten(file, {"model.pt": pickle.dumps(Bomb())}))
    assert not Path("executed").exists()


def test_whatever_a_file_has_is_read_or_a_user_error(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        names = [it for it in archive.namelist() if it.endswith(("model.json", "config.json"))]
        data = {name: json.loads(archive.read(name)) for name in names}
    assert len(data) == 3
    for seed in range(60):
        chance = random.Random(seed)
        name = chance.choice(names)
        copy = Path(shutil.copy(file, tmp_path / f"{seed}.pt2"))
        with contextlib.suppress(UserError):
            hostile = json.dumps(hostile_files.mutated(data[name], chance)).encode()
            read_exported(rewritten(copy, {name: hostile}))


BROKEN = [
    (("nodes", 0, "target"), "os.system", "may not call 'os.system'"),
    (("nodes", 0, "inputs", 0, "arg", "as_tensor", "name"), "nowhere", "unknown 'node': 'nowhere'"),
    (("tensor_values", "x", "strides", 0, "as_int"), -3, "not of the form"),
    (("tensor_values", "x", "sizes", 0, "as_int"), 2**40, "too large"),
]


@pytest.mark.parametrize(("place", "value", "why"), BROKEN)
def test_a_broken_graph_is_a_user_error(file: Path, place: Any, value: object, why: str) -> None:
    with zipfile.ZipFile(file) as archive:
        name = next(it for it in archive.namelist() if it.endswith("models/model.json"))
        data = json.loads(archive.read(name))
    *parents, last = place
    functools.reduce(operator.getitem, parents, data["graph_module"]["graph"])[last] = value
    with pytest.raises(UserError, match=why):
        read_exported(rewritten(file, {"models/model.json": json.dumps(data).encode()}))


def test_a_weight_must_be_inside_of_its_bytes(file: Path) -> None:
    with pytest.raises(UserError, match="ends outside of its bytes"):
        read_exported(rewritten(file, {"weights/weight_0": b"1234"}))


def test_another_archive_is_a_user_error(tmp_path: Path) -> None:
    other = tmp_path / "other.pt2"
    other.write_bytes(b"no archive")
    with pytest.raises(UserError, match="no archive"):
        read_exported(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a/serialized_exported_program.json", "{}")
    with pytest.raises(UserError, match="an older torch"):
        read_exported(other)
