"""What a program from a file allocates, before it runs: its calls on fake tensors have no data.

A few bytes of JSON can ask for terabytes: `expand` to 4e9 elements costs nothing, and a `clone` of
that ends the machine. So the calls are made on fake tensors first (sizes, strides and dtypes, from
the same kernels that PyTorch's compilers use), and each tensor that one of them gives is counted.
Views count as often as they repeat elements, since a write to one takes as long as its elements.

A fake kernel can raise where eager does not, and some operators have none. Some results are as
large as the data says (`nonzero`). Then the result is replaced by a *stand-in*, which is as large
as the arguments of the call allow, and the calls after it are made on that.

What a kernel allocates within itself is not seen. The processes that run a program have a limit of
memory for that (`aliasproof.processes.isolation`).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from aliasproof.programs.defect import Defect
from aliasproof.programs.eager_call import tensors_in
from aliasproof.programs.errors import UserError
from aliasproof.programs.execution import execute
from aliasproof.programs.program import Argument, Input, Instruction, Program, names_in

LARGEST = 256 * 2**20  # bytes of one tensor; an input has 64 MiB at most
MOST_TOGETHER = 2**30  # bytes of all storages
MOST_TOUCHED = 32 * 2**30  # bytes that calls read and write together: about a minute
MOST_DIMENSIONS = 64  # as many as kernels take
MOST_CALLS = 100_000  # ATen calls. A call of a composite op makes several.
MOST_RESULTS = 10_000  # tensors that one call gives
# For stand-ins: a larger number may be a size. What is far above is the open end of a slice.
LARGE_NUMBER, OPEN_END = 2**20, 2**62


class TooLarge(Exception):
    """A call gives more than is allowed. The message says what."""


def require_bounded(program: Program) -> None:
    """Raises `UserError` with the instruction, if a call of the program is too large to run."""
    # Modes of the caller, such as one that watches calls, must not see these.
    with _quiet(), _disable_current_modes(), torch.no_grad(), _without_data(), _Sizes():
        storages = [torch.empty(storage.nbytes, dtype=torch.uint8) for storage in program.storages]
        values = {view.name: _input(storages, view) for view in program.inputs}
        for index, instruction in enumerate(program.instructions):
            try:
                _execute(instruction, values)
            except TooLarge as reason:
                location, message = f"instructions[{index}]", f"{instruction.op} {reason}"
                raise UserError(str(Defect(location, message))) from reason


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of fake tensors, which has a stack for each call that fails."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _without_data() -> FakeTensorMode:
    # By default, it runs the kernel itself, on zeros, of an op that has none for fake tensors.
    return FakeTensorMode(allow_fallback_kernels=False)


def _input(storages: Sequence[torch.Tensor], view: Input) -> torch.Tensor:
    storage = storages[view.storage].untyped_storage()
    tensor = torch.empty(0, dtype=view.dtype)
    return tensor.set_(storage, view.offset, view.sizes, view.strides)


def _execute(instruction: Instruction, values: dict[str, torch.Tensor]) -> None:
    """Run an instruction on fake tensors, and give its results stand-ins if that fails."""
    try:
        execute(instruction, values)
    except TooLarge:
        raise
    except Exception:  # noqa: BLE001 - whatever the kernel raises, eager may not
        nbytes = _stand_in_bytes(instruction, values)
        if nbytes > LARGEST:
            raise TooLarge(
                "gives a tensor whose size is not known before it runs, and which can have more"
                f" than {LARGEST:,} bytes"
            ) from None
        for name in instruction.results:
            values[name] = torch.empty(nbytes, dtype=torch.uint8)


def _stand_in_bytes(instruction: Instruction, values: Mapping[str, torch.Tensor]) -> int:
    """How large the results of a call can be: operands are broadcast, and repeated."""
    arguments = (instruction.args, tuple(value for _, value in instruction.kwargs))
    sizes = sorted(_nbytes(values[name]) for name in {*names_in(arguments)})
    return math.prod(sizes[-2:]) * math.prod(_factors(arguments))


def _factors(argument: Argument, *, in_list: bool = False) -> Iterator[int]:
    """The numbers that can be a size: those in lists, and large ones."""
    if isinstance(argument, tuple):
        for element in argument:
            yield from _factors(element, in_list=True)
    elif (
        isinstance(argument, int)
        and argument > 1
        and (in_list or LARGE_NUMBER < argument < OPEN_END)
    ):
        yield argument


def _nbytes(tensor: torch.Tensor) -> int:
    return max(tensor.numel(), 1) * tensor.dtype.itemsize


@dataclass(eq=False)
class _Sizes(TorchDispatchMode):
    """Counts what calls give. Raises `TooLarge`."""

    calls: int = 0
    together: int = 0
    touched: int = 0
    _storages: dict[int, tuple[torch.UntypedStorage, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooLarge(f"leads to more than {MOST_CALLS:,} calls of ATen operators")
        _require_short_lists(func, args)
        returned = func(*args, **(kwargs or {}))
        for tensor in tensors_in(returned):
            self._count(tensor)
        if not (isinstance(func, OpOverload) and func.is_view):
            self.touched += sum(map(_nbytes, tensors_in((args, kwargs, returned))))
        if self.touched > MOST_TOUCHED:
            raise TooLarge(f"is the call at which more than {MOST_TOUCHED:,} bytes are touched")
        return returned

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.dim() > MOST_DIMENSIONS:
            raise TooLarge(f"gives a tensor of {tensor.dim()} dimensions, above {MOST_DIMENSIONS}")
        storage = tensor.untyped_storage()
        _, before = self._storages.get(storage._cdata, (storage, 0))
        self.together += max(storage.nbytes() - before, 0)
        # Kept alive, so that no address is used twice.
        self._storages[storage._cdata] = storage, max(storage.nbytes(), before)
        largest = max(_nbytes(tensor), storage.nbytes())
        if largest > LARGEST:
            raise TooLarge(f"gives a tensor of {largest:,} bytes; at most {LARGEST:,} are allowed")
        if self.together > MOST_TOGETHER:
            raise TooLarge(
                f"is the call at which all storages have more than {MOST_TOGETHER:,} bytes"
            )


def _require_short_lists(func: Callable[..., Any], args: Sequence[Any]) -> None:
    """Before the call, since long lists of sizes or results take long, also on fake tensors."""
    if not isinstance(func, OpOverload) or not args:
        return
    gives_list = any(str(returned.type) == "List[Tensor]" for returned in func._schema.returns)
    lists = [argument for argument in args if isinstance(argument, list | tuple) and not gives_list]
    dimensions = max(
        (len(sizes) for sizes in lists if sizes and isinstance(sizes[0], int)), default=0
    )
    if dimensions > MOST_DIMENSIONS:
        raise TooLarge(f"is given {dimensions:,} sizes; a tensor has at most {MOST_DIMENSIONS}")
    if gives_list and isinstance(args[0], torch.Tensor):
        longest = max(args[0].shape, default=0)
        if longest > MOST_RESULTS:
            raise TooLarge(f"can give {longest:,} tensors; at most {MOST_RESULTS:,} are allowed")
