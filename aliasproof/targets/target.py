"""`Target`: a system under test, with its contract and the recipe that reproducers use.

A `Variant` compiles or calls a target differently. A target lists the variants that it takes, and
`Target.with_` returns the target in some of them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch

from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage
from aliasproof.plugins import CompilerPlugin
from aliasproof.targets.tracing import PLAIN, Tracing

Function: TypeAlias = Callable[..., object]

MakeInputs: TypeAlias = Callable[[], Sequence[torch.Tensor]]
# From a function, its inputs, and a second call's inputs if there are any.
Conditions: TypeAlias = Callable[
    [Function, MakeInputs, MakeInputs | None], tuple[Function, MakeInputs]
]


class UserRun(NamedTuple):
    """A run of a user's function: `used` are the tensors that replaced the passed ones.

    `left` are the tensors and values after the run, and `outputs` the same in comparable form.
    """

    used: Sequence[torch.Tensor]
    left: Sequence[object]
    outputs: list[object]


@runtime_checkable
class CallsUser(Protocol):
    """A function of tensors that wraps a user's function, which takes other arguments.

    A compiler of Python code gets the user's own function and arguments through `run_compiled`.
    """

    def run_compiled(
        self, passed: Sequence[torch.Tensor], compiler: Callable[[Function], Function]
    ) -> UserRun:
        """Compile the user's function with `compiler`, and run the result."""

    def __call__(self, *passed: torch.Tensor) -> object:
        """Run the user's function."""


# In recipes: a function as the module that `torch.export` takes.
MODULE = """
class Module(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, *args):
        return self.program(*args)

"""


@dataclass(frozen=True, slots=True)
class Build:
    """The compiled function, and the graphs that the target passed through.

    `stages` is complete once the function has run, since some targets compile in the first call.
    `opaque` is the reason why no oracle on graphs can judge this build; None if they can.
    `first_call` has the inputs of an earlier call, which is not compared. If the function does not
    run under a dispatch mode, `replay` returns, after the run, an equivalent function that does; or
    the reason why there is none.
    """

    function: Function
    stages: list[Stage]
    opaque: str | None = None
    first_call: Sequence[torch.Tensor] = ()
    replay: Callable[[], Function | str] | None = None

    def under_modes(self) -> Function | str:
        """The function to run under a dispatch mode; or why no oracle on graphs can judge it."""
        if self.opaque is not None:
            return self.opaque
        return self.function if self.replay is None else self.replay()


NOTHING = Contract()
PlainBuild: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Build]


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to compile or call a target. It promises the same, except for its `clauses`.

    `tracing` changes how the target traces. `build(plain, function, inputs)` decides what is called
    and with which inputs, where `plain` is the target's build without the variant. `recipe` maps
    the target's recipe to the variant's. See `Target` for `conditions`. `apart` maps the name of a
    variant that cannot be combined with this one to the reason, in which `{}` is the pair. `like`
    is another variant that finds the same bugs: the compiler may choose it by itself, or it is
    stricter. With `alone`, each program is compiled by itself.

    Two variants with a `build` exclude each other, unless one `joins` the other. Then a later one
    in the name wraps the earlier ones; an `inner` one is innermost.

    `left_out` names features that it does not use, such as dtypes without gradients, see `Target`.

    For a target that takes a variant with changes, `promises` maps the target's contract to the
    variant's, and `after` and `layer` are as in `Target`.
    """

    name: str
    summary: str
    clauses: Contract = NOTHING
    tracing: Tracing = PLAIN
    build: Callable[[PlainBuild, Function, Sequence[torch.Tensor]], Build] | None = None
    recipe: Callable[[str], str] | None = None
    conditions: Conditions | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    like: str | None = None
    alone: bool = False
    left_out: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    inner: bool = False
    promises: Callable[[Contract], Contract] | None = None
    after: Target | None = None
    layer: Target | None = None

    def changed(self, contract: Contract) -> Contract:
        """The contract of a target in the variant, whose waivers replace those of the target."""
        if self.promises is not None:
            return self.promises(contract)
        clauses = self.clauses
        waived = {waiver.promise for waiver in clauses.waivers}
        kept = tuple(waiver for waiver in contract.waivers if waiver.promise not in waived)
        new = tuple(refusal for refusal in clauses.refusals if refusal not in contract.refusals)
        return replace(
            contract,
            waivers=kept + clauses.waivers,
            preconditions=contract.preconditions + clauses.preconditions,
            refusals=contract.refusals + new,
        )

    def excludes(self, other: Variant) -> str | None:
        """Why no target can have both variants; None if one can."""
        pair = f"'{self.name}' and '{other.name}'"
        reason = self.apart.get(other.name) or other.apart.get(self.name)
        joined = self.name in other.joins or other.name in self.joins
        if reason is None and not joined and self.build is not None and other.build is not None:
            reason = "{} exclude each other: each of them says what is called, and on which inputs"
        return None if reason is None else reason.format(pair)


# Cached: a campaign looks up its target often, and reading a file takes a millisecond.
source_of = functools.cache(inspect.getsource)


def wrap_recipe(recipe: str, chosen: Sequence[Variant]) -> str:
    """The recipe of a target in these variants."""
    for variant in _inner_first(chosen):
        assert variant.recipe is not None
        recipe = variant.recipe(recipe)
    return recipe


def renamed(recipe: str, compiled: str) -> str:
    """A recipe with renamed functions, so that those of a variant can wrap them."""
    recipe = recipe.strip().replace("def compiled(", f"def {compiled}(")
    return recipe.replace("def conditions(", "def conditions_before(")


def conditions_after(recipe: str, returned: str) -> str:
    """The source of `conditions`, which first applies the conditions of the recipe, if any."""
    line = "    program, inputs = conditions_before(program, inputs)\n"
    before = line if "def conditions(" in recipe else ""
    return f"def conditions(program, inputs):\n{before}    return {returned}"


def _inner_first(chosen: Sequence[Variant]) -> list[Variant]:
    """The variants with a `build`, from the innermost to the outermost."""
    called = (variant for variant in chosen if variant.build is not None)
    return sorted(called, key=lambda variant: not variant.inner)


@functools.cache
def _combine_conditions(first: Conditions, then: Conditions) -> Conditions:
    """Both conditions. Cached, since runs are compared by the identity of their conditions."""

    def both(
        function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
    ) -> tuple[Function, MakeInputs]:
        second = None if second_inputs is None else first(function, second_inputs, None)[1]
        return then(*first(function, inputs, None), second)

    return both


@dataclass(frozen=True, slots=True)
class Target:
    """A system under test.

    `build(function, inputs)` compiles the function for these inputs. It may mutate them, since they
    are not used again. `recipe` is Python source that needs only torch; it defines
    `compiled(program, inputs)`, which does the same as `build`; `recipe_for` specializes it to one
    program. `after` is the target that this one builds on: a promise that `after` breaks already is
    not this target's fault. `layer` is a target that this one contains, but calls in another way:
    the layer is at fault if it breaks the same promise on the same program.

    `variants` are those that the target takes, in the order in which a name lists them. If some of
    them change how it traces, `build` takes a `Tracing` as well, and `traced_recipe` maps that to a
    recipe; then `recipe` need not be given. `has_settings` says whether the target takes settings
    of `torch._inductor.config`, too.

    A target in a variant is a target, too. `varies` are the targets with one variant less.
    `conditions` change the function and its inputs before anything runs, eager included. If they
    change a program, the recipe defines `conditions(program, inputs)` as well. `needs` is the
    compiler beyond torch that it runs; None if it needs only torch. `lacking` returns in one line
    what else this machine lacks for it, and what to install; None if nothing.
    `excused` says whether a known bug excuses a violation: it does not for our own pass.
    `yours` is how messages call the user's code that it runs; empty if it runs none.
    `backend` is the backend of `torch.compile` that does the same; None if there is none.
    `group` is how many programs a campaign compiles as one: above 1 where a compile is slow.
    `cost` is the time per program, relative to most targets.
    `generates_code` says whether it compiles loops: then campaigns draw programs for those.
    `left_out` names groups of ops, layouts and dtypes that it refuses or does not use: campaigns
    never draw them for it.
    `favored` has names of ops that campaigns draw more often for it, and maybe other names.
    """

    name: str
    summary: str
    contract: Contract
    build: Callable[..., Build]
    recipe: str = ""
    after: Target | None = None
    layer: Target | None = None
    varies: tuple[Target, ...] = ()
    conditions: Conditions | None = None
    excused: bool = True
    needs: CompilerPlugin | None = None
    lacking: Callable[[], str | None] = lambda: None
    group: int = 1
    cost: float = 1.0
    variants: Sequence[Variant] = ()
    traced_recipe: Callable[[Tracing], str] | None = None
    recipe_for: Callable[[str, Program], str] | None = None
    has_settings: bool = False
    yours: str = ""
    backend: Any = None
    generates_code: bool = False
    left_out: frozenset[str] = frozenset()
    favored: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.traced_recipe is not None and not self.recipe:
            object.__setattr__(self, "recipe", self.traced_recipe(PLAIN))

    def unavailable(self) -> str | None:
        """Why the target cannot run on this machine, and what to install; None if it can."""
        return self.lacking() if self.needs is None else self.needs.missing()

    def broken(self) -> str | None:
        """Why an installed compiler fails to import in a process of its own; None if it works."""
        return None if self.needs is None else self.needs.broken()

    @property
    def earlier(self) -> tuple[Target, ...]:
        """The targets to which a violation is attributed if they show it, layers in their order."""
        return (*self.varies, *self.layers[:-1])

    @property
    def layers(self) -> tuple[Target, ...]:
        """The targets that this one builds on, in their order, and itself."""
        return (self,) if self.after is None else (*self.after.layers, self)

    def own(self, variant: Variant) -> Variant | None:
        """The variant as this target takes it; None if the target does not take it."""
        if variant.tracing.config:
            return variant if self.has_settings else None
        return next((own for own in self.variants if own.name == variant.name), None)

    def excluded(self, chosen: Sequence[Variant]) -> str | None:
        """Why the target cannot combine these variants; None if it can."""
        own = [variant for variant in map(self.own, chosen) if variant is not None]
        reasons = (one.excludes(other) for one, other in itertools.combinations(own, 2))
        return next((reason for reason in reasons if reason is not None), None)

    def with_(self, *chosen: Variant) -> Target:
        """The target in these variants, in any order. It must take all of them together."""
        if not chosen:
            return self
        own = self._in_name_order(chosen)
        build, recipe = self._compiling(own)
        conditions = [it.conditions for it in _inner_first(own) if it.conditions is not None]
        contract, summary = self.contract, self.summary
        for variant in own:
            contract, summary = variant.changed(contract), f"{summary}; {variant.summary}"
        after = next((variant.after for variant in own if variant.after is not None), self.after)
        layer = next((variant.layer for variant in own if variant.layer is not None), None)
        return replace(
            self,
            name=":".join((self.name, *(variant.name for variant in own))),
            summary=summary,
            contract=contract,
            build=build,
            recipe=recipe,
            after=after and after._if_taken(own),
            layer=layer and layer._if_taken(own),
            varies=tuple(self.with_(*fewer) for fewer in self._fewer(own)),
            conditions=functools.reduce(_combine_conditions, conditions) if conditions else None,
            group=1 if any(variant.alone for variant in own) else self.group,
            left_out=self.left_out.union(*(variant.left_out for variant in own)),
            variants=(),
            backend=None,
        )

    def _in_name_order(self, chosen: Sequence[Variant]) -> list[Variant]:
        names = {variant.name for variant in chosen}
        settings = {variant.name: variant for variant in chosen if variant.tracing.config}
        own = [variant for variant in self.variants if variant.name in names]
        return [*own, *(settings[name] for name in sorted(settings))]

    def _if_taken(self, chosen: Sequence[Variant]) -> Target | None:
        """The target in these variants; None if it does not take them."""
        if any(self.own(variant) is None for variant in chosen) or self.excluded(chosen):
            return None
        return self.with_(*chosen)

    def _fewer(self, chosen: Sequence[Variant]) -> list[list[Variant]]:
        """The variants without one of them, or with one replaced by the variant that it is like."""
        fewer = [[other for other in chosen if other is not variant] for variant in chosen]
        for rest, variant in zip(tuple(fewer), chosen, strict=True):
            like = [own for own in self.variants if own.name == variant.like]
            replaced = self._in_name_order(rest + like)
            if like and replaced not in fewer and self.excluded(replaced) is None:
                fewer.append(replaced)
        return fewer

    def _compiling(self, chosen: Sequence[Variant]) -> tuple[PlainBuild, str]:
        """The build and the recipe in these variants."""
        build, recipe = self.build, self.recipe
        called = _inner_first(chosen)
        if self.traced_recipe is not None:
            tracing = functools.reduce(Tracing.__or__, (choice.tracing for choice in chosen))
            # No compiler expects both a variant with gradients and one with two calls.
            guarded = tracing.guarded or len(called) > 1
            tracing = replace(tracing, called=bool(called), guarded=guarded)
            build, recipe = functools.partial(build, tracing=tracing), self.traced_recipe(tracing)
            if tracing.symbolic:
                build = functools.partial(_guarded_build, build)
        for variant in called:
            assert variant.build is not None
            build = functools.partial(variant.build, build)
        return build, wrap_recipe(recipe, called)


def _guarded_build(build: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """A build whose function raises `Rejected` for inputs that break the guards of its trace.

    A compiler would recompile for such inputs, so they say nothing about this graph.
    """
    made = build(function, inputs)
    env = getattr(made.stages[0].graph, "shape_env", None) if made.stages else None
    if env is None:
        return made
    placeholders = made.stages[0].graph.graph.find_nodes(op="placeholder")
    metas = [node.meta.get("val") for node in placeholders]

    def checked(*inputs: torch.Tensor) -> object:
        if not env.evaluate_guards_for_args(metas, inputs):
            raise Rejected("the sizes of the run do not satisfy the guards of the trace")
        return made.function(*inputs)

    return replace(made, function=checked)
