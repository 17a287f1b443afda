"""What a user's function can read or change: its arguments, itself, and the variables around it.

A run gets a copy of all that, with its own tensors in place of the user's. So no run changes what
the user has, and a later run does not see what an earlier one left.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aliasproof.ir.object_graph import PLAIN, leaves, objects
from aliasproof.targets.target import Function
from aliasproof.user_code.call_arguments import CallArguments, not_comparable
from aliasproof.user_code.surrounding_variables import COPIED, MOST_LEAVES, Variable, variables_of

_CACHE = functools._lru_cache_wrapper


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A function, its arguments, and the variables that it and the functions in its file use."""

    function: Function
    arguments: CallArguments
    variables: tuple[Variable, ...]

    @classmethod
    def of(cls, function: Function, arguments: CallArguments) -> Surroundings:
        """Find the variables of a function."""
        small = filter(_is_small, variables_of(function, arguments))
        # A parameter is called as its module calls it, not as its optimizer does.
        variables = tuple(
            sorted(small, key=lambda variable: isinstance(variable.value, torch.optim.Optimizer))
        )
        return cls(function, arguments.named_for(function), variables)

    def call(self) -> object:
        """Call the function with its arguments."""
        return self.function(*self.arguments.args, **self.arguments.kwargs)

    def for_second_call(
        self, replacements: Mapping[int, torch.Tensor], memo: Mapping[int, Any]
    ) -> Surroundings:
        """The same call once more: with new inputs, and the state that a first call left.

        New are the tensors in the arguments and the containers of these, with `replacements` by
        identity. What variables, the function or objects among the arguments reach, and tensors
        that share memory with that, are state: those of the first call, which `memo` has.
        """
        state = self._state()
        storages = {it.untyped_storage()._cdata for it in state.values() if _has_storage(it)}

        def anew(value: object) -> object:
            if isinstance(value, PLAIN):
                return value
            kept = memo.get(id(value), value)
            shares = _has_storage(value) and value.untyped_storage()._cdata in storages
            return kept if id(value) in state or shares else replacements.get(id(value), kept)

        args, kwargs = pytree.tree_map(
            anew,
            (self.arguments.args, dict(self.arguments.kwargs)),
            is_leaf=lambda value: id(value) in state,
        )
        return replace(self, arguments=replace(self.arguments, args=args, kwargs=kwargs))

    def _state(self) -> dict[int, object]:
        """What a call leaves to the next one, by identity: all but plain inputs."""
        inputs = pytree.tree_leaves((self.arguments.args, dict(self.arguments.kwargs)))
        kept = [it for it in inputs if not isinstance(it, (torch.Tensor, *PLAIN))]
        reached = [self.function, *(variable.value for variable in self.variables), *kept]
        return {id(it): it for value in reached for it in objects(value, MOST_LEAVES)}

    def compared_leaves(self) -> dict[str, object]:
        """The leaves, by path, that a run must leave as eager does."""
        return dict(self._compared().leaves())

    def compared_roots(self) -> list[tuple[str, object]]:
        """The values, by name, that these are leaves of."""
        return list(self._compared()._roots())

    def _compared(self) -> Surroundings:
        own = [variable for variable in self.variables if not variable.installed]
        return replace(self, variables=tuple(own))

    def _roots(self) -> Iterator[tuple[str, object]]:
        yield from self.arguments.by_name()
        # A module or a bound method has tensors itself: their names are those that it gives.
        yield "", self.function
        yield from ((variable.name, variable.value) for variable in self.variables)

    def leaves(self) -> Iterator[tuple[str, object]]:
        """All leaves with their paths: first those of the arguments. No two paths are equal."""
        taken: Counter[str] = Counter()
        for name, value in self._roots():
            for path, leaf in leaves(value, name):
                # A global can be called as an argument is.
                taken[path] += 1
                yield (f"{path} ({taken[path]})" if taken[path] > 1 else path), leaf

    def tensors(self) -> dict[int, tuple[str, torch.Tensor]]:
        """Each tensor object with its first path, by identity."""
        tensors: dict[int, tuple[str, torch.Tensor]] = {}
        for path, leaf in self.leaves():
            if isinstance(leaf, torch.Tensor):
                tensors.setdefault(id(leaf), (path, leaf))
        return tensors

    @contextlib.contextmanager
    def copy_with(
        self, replacements: Mapping[int, torch.Tensor], memo: dict[int, Any] | None = None
    ) -> Iterator[Surroundings]:
        """A copy, with other tensors by the identity of those that they replace.

        The variables have their copies within this context alone. `memo` gets each copy by the
        identity of what it is of.
        """
        memo = {} if memo is None else memo
        # Other leaves stay what they are: a lock or an operator has no meaningful copy.
        memo |= {id(leaf): leaf for _, leaf in self.leaves() if not isinstance(leaf, COPIED)}
        memo |= replacements
        arguments = CallArguments(
            tuple(_copy(value, memo) for value in self.arguments.args),
            {name: _copy(value, memo) for name, value in self.arguments.kwargs.items()},
            self.arguments.names,
        )
        before = [variable.value for variable in self.variables]
        caches = [it for it in (self.function, *before) if isinstance(it, _CACHE)]
        try:
            _clear(caches)
            for variable, value in zip(self.variables, before, strict=True):
                if not isinstance(value, PLAIN):
                    variable.set(_copy(value, memo))
            yield Surroundings(_copy(self.function, memo), arguments, self.variables)
        finally:
            _clear(caches)
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(value)


def _clear(caches: Sequence[functools._lru_cache_wrapper[Any]]) -> None:
    """Forget results, which can be tensors that a run wrote."""
    for cache in caches:
        cache.cache_clear()


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        made = copy.deepcopy(value, memo)
        if isinstance(value, torch.nn.Module):
            _share_code(value, made)
        if isinstance(value, torch.optim.Optimizer):
            # `__getstate__` leaves some attributes out, such as the parameters of LBFGS.
            for name, item in vars(value).items():
                if name not in vars(made) and not callable(item):
                    setattr(made, name, copy.deepcopy(item, memo))
    # An object of a user's class may refuse to be copied in any way. Then all runs share it; if
    # they change it, two eager runs differ, and nothing is judged.
    except Exception:  # noqa: BLE001 - see above
        return value
    # So may a container whose class copies something else, such as a dict that changes its keys.
    exact = not isinstance(value, dict) or _paths(made) == _paths(value)
    return made if exact else value


def _share_code(module: torch.nn.Module, copied: torch.nn.Module) -> None:
    """Let the copy of a graph run the code of the original, as other copies of modules do.

    Torch gives each copy a class of its own. Dynamo would then compile again in each run.
    """
    for original, made in zip(module.modules(), copied.modules(), strict=True):
        if isinstance(original, fx.GraphModule):
            made.__class__ = type(original)


def _has_storage(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not_comparable(value) is None


def _paths(value: object) -> list[str]:
    return [path for path, _ in leaves(value)]


def _is_small(variable: Variable) -> bool:
    return all(index < MOST_LEAVES for index, _ in enumerate(leaves(variable.value)))
