"""A user's function in a form that can be compared: all tensors in, and all leaves out.

A run leaves more than the return value: replaced entries of containers, assigned buffers and
globals, gradients. All of these are returned as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.eager.definedness_rules import Fill
from aliasproof.ir.errors import UserError
from aliasproof.ir.object_graph import NUMPY, NUMPY_NAME, PLAIN, leaves
from aliasproof.ir.values import clone_inputs, has_bytes
from aliasproof.judge.python_case import NAMED
from aliasproof.targets.target import Function, UserRun
from aliasproof.user_code.captured_tensors import (
    UNNAMED,
    Found,
    Replacing,
    as_parameters,
    as_the_user_has,
    comparable_tensors,
    lend_memory,
    search,
    with_gradients,
)
from aliasproof.user_code.surroundings import Surroundings
from aliasproof.user_code.user_file import CallArguments

_GONE = "<removed>"
NO_BACKWARD = (
    "the backward pass is not compared; the variant 'grad' of a target compares it (aot:grad)"
)


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A user's tensor with its name. A gradient has the index of its tensor in `gradient_of`.

    A `hidden` tensor is in no object that can be copied: only calls of torch's API show it.
    """

    name: str
    tensor: torch.Tensor
    gradient_of: int | None = None
    hidden: bool = False


@dataclass(slots=True)
class Comparable:
    """A function of tensors that runs a user's function and returns all leaves that it leaves.

    `tensors` are the user's tensors, in the order of the arguments that replace them. With
    `gradients`, autograd runs inside. With `recorded`, it runs inside the compiled code, as it does
    where the user calls the function. The last `captured` tensors are no arguments of the function.
    `output_names` are the names of the outputs of the last run. `opaque` collects the types of
    leaves that cannot be compared; such a leaf is replaced by the name of its type. With `fill`,
    eager casts values that an integer dtype does not have: the function is known not to use them.
    `notes` say how the function was adapted to be comparable.
    """

    surroundings: Surroundings
    tensors: tuple[NamedTensor, ...]
    gradients: bool = False
    recorded: bool = False
    captured: int = 0
    output_names: tuple[str, ...] = ()
    opaque: set[str] = field(default_factory=set)
    fill: Fill | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Function, given: object) -> Comparable:
        """Find the tensors that a function uses. `given` is in a form of `CallArguments`."""
        surroundings = Surroundings.of(function, CallArguments.of(given))
        usage, gradients, recorded = _usage(surroundings)
        arguments = {id(tensor) for tensor in surroundings.arguments.tensors().values()}
        explicit, captured = [], []
        for key, (name, tensor) in comparable_tensors(surroundings).items():
            if key in arguments:
                explicit.append(NamedTensor(name, tensor))
            elif key in usage.used:
                captured.append(NamedTensor(name, tensor))
        captured += [NamedTensor(UNNAMED, tensor, hidden=True) for tensor in usage.hidden.values()]
        if gradients:  # gradients that the tensors have before the run: `backward` adds to them
            captured += [
                NamedTensor(f"{named.name}.grad", named.tensor.grad, index)
                for index, named in enumerate([*explicit, *captured])
                if named.tensor.is_leaf and named.tensor.grad is not None
            ]
        tensors = (*explicit, *captured)
        made = cls(surroundings, tensors, gradients, recorded, len(captured))
        # Without autograd, eager must run the same operators.
        if recorded and not gradients and _calls(made) != _calls(replace(made, gradients=True)):
            made.recorded = False
        made.notes = tuple(_notes(surroundings, tensors, gradients, made.recorded))
        return made

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors in the arguments of the function, then the captured ones."""
        return tuple(named.tensor for named in self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(named.name for named in self.tensors)

    @property
    def captured_names(self) -> tuple[str, ...]:
        """The names of the captured tensors, which are the last inputs."""
        return self.names[len(self.tensors) - self.captured :]

    def place_names(self) -> dict[str, str]:
        """The names of inputs, and of outputs where the name says more than an index."""
        named = {
            f"input {index}": f"input '{name}'"
            for index, name in enumerate(self.names)
            if name != UNNAMED
        }
        # A tuple has its order; the output of a function that returns one value has no path.
        return named | {
            f"output {index}": name
            for index, name in enumerate(self.output_names)
            if name not in ("", f"output '[{index}]'")
        }

    def other_inputs(self, given: object) -> tuple[torch.Tensor, ...]:
        """The inputs of a call with other arguments, which may differ only in their tensors.

        The graph contains the constants of the first call. Raises `UserError` if they differ.
        """
        arguments = CallArguments.of(given).named_for(self.surroundings.function)
        ours, theirs = self.surroundings.arguments, arguments
        if list(map(_text, ours.constants())) != list(map(_text, theirs.constants())):
            raise UserError("all arguments but tensors must be those of the first call")
        names, passed = list(ours.tensors_by_path()), theirs.tensors_by_path()
        if list(passed) != names:
            raise UserError(
                f"the tensors of the first call are {', '.join(names)}; here they are"
                f" {', '.join(passed)}"
            )
        # A function that was adapted to one object at two paths cannot get two objects.
        explicit = self.names[: len(self.names) - self.captured]
        if len(explicit) < len(names) and len(set(map(id, passed.values()))) > len(explicit):
            raise UserError("the first call passes one tensor twice, the second does not")
        return (*(passed[name] for name in explicit), *self.inputs[len(explicit) :])

    @property
    def constants(self) -> frozenset[int]:
        """The captured tensors that do not require gradients, such as buffers, by index."""
        first = len(self.tensors) - self.captured
        rest = enumerate(self.tensors[first:], first)
        return frozenset(i for i, named in rest if not named.tensor.requires_grad)

    def __call__(self, *passed: torch.Tensor) -> list[object]:
        parameters = with_gradients(self.inputs, passed) if self.gradients else {}
        used = [parameters.get(index, tensor) for index, tensor in enumerate(passed)]
        pairs = zip(self.inputs, used, strict=True)
        with as_parameters([own for one, own in pairs if type(one) is torch.nn.Parameter]):
            return self._run(passed, parameters).outputs

    def run_compiled(
        self, passed: Sequence[torch.Tensor], compiler: Callable[[Function], Function]
    ) -> UserRun:
        """Run the compiled version of the user's own function, with the user's own arguments.

        The compiler does not see the code before and after the call.
        """
        recorded = self.recorded and not _any_requires_grad(passed)
        parameters = as_the_user_has(self.inputs, passed, gradients=recorded)
        return self._run(passed, parameters, compiler)

    def _run(
        self,
        passed: Sequence[torch.Tensor],
        parameters: Mapping[int, torch.Tensor],
        compiler: Callable[[Function], Function] | None = None,
    ) -> UserRun:
        # If inputs require gradients, conditions such as those of *grad* decide what is recorded.
        given = _any_requires_grad(passed)
        recording = nullcontext() if given else torch.enable_grad()
        used = [parameters.get(index, tensor) for index, tensor in enumerate(passed)]
        for index, named in enumerate(self.tensors):
            if named.gradient_of is not None:
                used[named.gradient_of].grad = passed[index]
        replaced = {id(one): other for one, other in zip(self.inputs, used, strict=True)}
        with self.surroundings.copy_with(replaced) as copied:
            function = copied.function if compiler is None else compiler(copied.function)
            before = dict(copied.compared().leaves())  # afterwards, since a compiler marks a module
            with recording, self._replacing(replaced, compiled=compiler is not None):
                returned = replace(copied, function=function).call()
            after = dict(copied.compared().leaves())
        for index, leaf in parameters.items():
            if _is_elsewhere(leaf, passed[index]):  # by `.data = ...`, or by e.g. `t_`
                passed[index].data = leaf.data
        # A captured tensor can be returned without being passed to any call.
        left = [
            (path and f"output '{path}'", replaced.get(id(leaf), leaf))
            for path, leaf in leaves(returned)
        ]
        left += _changed(before, after)
        gradients = {it.gradient_of: own for it, own in zip(self.tensors, passed, strict=True)}
        for index, leaf in parameters.items():
            if leaf.grad is not gradients.get(index):  # the run made it
                left.append((f"gradient of '{self.tensors[index].name}'", leaf.grad))
        self.output_names = tuple(name for name, _ in left)
        # The caller passed these tensors, not the leaves of autograd.
        back = {id(leaf): passed[index] for index, leaf in parameters.items()}
        # If autograd ran inside, it is not part of the comparison. A tensor that is left at two
        # places is detached once, since it must stay one object.
        own = {id(leaf): back.get(id(leaf), leaf) for _, leaf in left}
        compared = {key: self._comparable(leaf, not given) for key, leaf in own.items()}
        outputs = [compared[id(leaf)] for _, leaf in left]
        return UserRun(used, [leaf for _, leaf in left], outputs)

    def _replacing(
        self, replaced: Mapping[int, torch.Tensor], *, compiled: bool
    ) -> AbstractContextManager[object]:
        """Replace the hidden tensors, at each call of torch's API."""
        # Only if there are any: under such a mode, some parts of torch do not work.
        hidden = [named.tensor for named in self.tensors if named.hidden]
        if not hidden:
            return nullcontext()
        if compiled:  # a compiler would see the mode
            return lend_memory([(tensor, replaced[id(tensor)]) for tensor in hidden])
        return Replacing(lambda tensor: replaced.get(id(tensor), tensor))

    def _comparable(self, leaf: object, detached: bool) -> object:
        if isinstance(leaf, torch.Tensor):
            if not has_bytes(leaf):
                return self._mark(f"tensor of layout {leaf.layout} on {leaf.device.type}")
            return leaf.detach() if detached and leaf.requires_grad else leaf
        if isinstance(leaf, NUMPY):
            return self._mark(NUMPY_NAME)
        if isinstance(leaf, PLAIN):
            return leaf
        if isinstance(leaf, NAMED):
            return str(leaf)
        # Compilers replace iterators by another class, and this difference does not matter.
        return self._mark("iterator" if isinstance(leaf, Iterator) else type(leaf).__name__)

    def _mark(self, kind: str) -> str:
        # Equal text in both runs: the leaf is not compared, and a note says so.
        self.opaque.add(kind)
        return f"<{kind}>"


def _any_requires_grad(tensors: Iterable[torch.Tensor]) -> bool:
    return any(tensor.requires_grad for tensor in tensors)


def _changed(
    before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """The leaves that the function replaced, added or removed, as they are after the run."""
    for path in dict.fromkeys((*before, *after)):
        one, other = before.get(path, _GONE), after.get(path, _GONE)
        if not _same(one, other):
            yield f"'{path}' afterwards", other


def _is_elsewhere(leaf: torch.Tensor, passed: torch.Tensor) -> bool:
    """Whether a leaf no longer has the memory and the layout of its tensor."""
    if type(passed) is not torch.Tensor or torch._is_functional_tensor(passed):
        return False  # a tracer
    return leaf.data_ptr() != passed.data_ptr() or (leaf.shape, leaf.stride()) != (
        passed.shape,
        passed.stride(),
    )


def _same(one: object, other: object) -> bool:
    """Whether a leaf was not replaced. In-place writes are compared through the inputs."""
    if one is other:
        return True
    plain = isinstance(one, PLAIN) and isinstance(other, PLAIN)
    # NaN is the only number that differs from itself.
    return plain and type(one) is type(other) and (one == other or one != one)


def _text(constant: tuple[str, object]) -> tuple[str, str]:
    path, leaf = constant
    return path, repr(leaf) if isinstance(leaf, PLAIN) else type(leaf).__name__


def _usage(surroundings: Surroundings) -> tuple[Found, bool, bool]:
    """What the function uses, whether it runs autograd inside, and whether autograd records it."""
    plain = search(surroundings, gradients=False)
    requires = _any_requires_grad(tensor for _, tensor in surroundings.tensors().values())
    if plain.error is None and not requires:
        return plain, False, False
    # A function that calls `backward` raises without gradients, or leaves none.
    recorded = search(surroundings, gradients=True)
    if recorded.error is None and (plain.error is not None or recorded.left_gradients):
        return recorded, True, True
    return plain, False, recorded.error is None


class _Calls(TorchDispatchMode):
    """Records the operators that run, except for those that only autograd calls."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.called: list[object] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.ops.aten.detach.default:
            self.called.append(func)
        return func(*args, **kwargs or {})


def _calls(function: Comparable) -> list[object]:
    """The operators that a run of the function calls, on copies of the user's tensors."""
    copies = clone_inputs(function.inputs)
    calls, eager = _Calls(), torch.compiler.set_stance("force_eager")
    try:
        with eager, torch.random.fork_rng(devices=()), torch.no_grad(), calls:
            function(*copies)
    # Some functions raise only under a dispatch mode; the observed run reports it.
    except Exception as error:  # noqa: BLE001 - see above
        calls.called.append(type(error))
    return calls.called


def _notes(
    surroundings: Surroundings, tensors: Sequence[NamedTensor], gradients: bool, recorded: bool
) -> Iterator[str]:
    arguments = {id(tensor) for tensor in surroundings.arguments.tensors().values()}
    requiring = [named for named in tensors if named.tensor.requires_grad]
    # A report on a module need not list its parameters.
    if recorded:
        requiring = [named for named in requiring if id(named.tensor) in arguments]
    if gradients:
        yield "the function runs autograd, so gradients are compared as outputs"
    elif requiring:
        done = "" if recorded else "inputs that require gradients are detached, and "
        yield f"{done}{NO_BACKWARD}"
    if any(not named.tensor.is_leaf for named in requiring):
        yield "inputs that are results of autograd are taken as leaves"
    if unknown := surroundings.arguments.unknown_types():
        yield f"arguments of these types are passed on as they are: {', '.join(unknown)}"
