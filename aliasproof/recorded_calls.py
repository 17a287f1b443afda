"""`recorded_lines`: the ATen calls of a Python program in eager, as lines of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.explaining import letter
from aliasproof.ir.eager_call import EagerCall, tensors_in
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.python_run import run_python
from aliasproof.reports.node_lines import NodeLine, ShownLayout

MOST_CALLS = 200


class _CallRecorder(TorchDispatchMode):
    """Notes each call with the layouts of what it returns, and the storages that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[NodeLine] = []
        self._names: dict[int, str] = {}
        self._used: Counter[str] = Counter()
        self._letters: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []  # so that no address is used again

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operands = list(tensors_in([list(args), kwargs]))
        try:
            written = EagerCall.of(func, args, kwargs).written
        except Rejected:  # a sparse tensor
            written = []
        names = [self._name_of(tensor) for tensor in operands]
        writes = tuple(dict.fromkeys(map(self._letter, written)))
        result = func(*args, **kwargs)
        if len(self.lines) < MOST_CALLS:
            made = [it for it in tensors_in(result) if it.layout is torch.strided]
            call = f"{str(func).removeprefix('aten.')}({', '.join(names)})"
            name = self._new_name(func._schema.name.rpartition("::")[2])
            for tensor in made:
                self._keep(tensor, name)
            self.lines.append(NodeLine(name, call, tuple(map(self._layout, made)), writes))
        return result

    def _name_of(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._names:
            self._keep(tensor, self._new_name("tensor"))
            if tensor.layout is torch.strided:
                name = self._names[id(tensor)]
                self.lines.append(NodeLine(name, "made before", (self._layout(tensor),)))
        return self._names[id(tensor)]

    def _keep(self, tensor: torch.Tensor, name: str) -> None:
        self._kept.append(tensor)
        self._names.setdefault(id(tensor), name)

    def _new_name(self, stem: str) -> str:
        self._used[stem] += 1
        return stem if self._used[stem] == 1 else f"{stem}_{self._used[stem] - 1}"

    def _letter(self, tensor: torch.Tensor) -> str:
        storage = tensor.untyped_storage()._cdata
        return self._letters.setdefault(storage, letter(len(self._letters)))

    def _layout(self, tensor: torch.Tensor) -> ShownLayout:
        return ShownLayout(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.is_contiguous(),
            self._letter(tensor),
        )


def recorded_lines(program: PythonProgram) -> list[NodeLine]:
    """The calls of a run in eager, at most `MOST_CALLS`. Raises `Rejected` as a run does."""
    recorder = _CallRecorder()
    with torch.compiler.set_stance("force_eager"):
        run_python(program, within=recorder)
    return recorder.lines
