"""The table of variants: what each changes, which targets have it, what it adds to the contract."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.targets import aot_eager, captured, control_flow, freezing, reference, second_calls
from aliasproof.targets.torch_functionalize import DATA_DEPENDENT_SHAPE
from aliasproof.targets.user_builds import OWN_BACKEND, OWN_PASS

NOTHING = Contract()


@dataclass(frozen=True, slots=True)
class Variant:
    """What a variant changes, which targets have it, and what it adds to the contract.

    The targets in `unchanged` promise the same as without the variant.
    """

    name: str
    summary: str
    targets: tuple[str, ...]
    clauses: Contract = NOTHING
    unchanged: tuple[str, ...] = ()

    def changed(self, contract: Contract, base: str) -> Contract:
        """The contract of a target in the variant: a waiver replaces those of the same promise."""
        if base in self.unchanged:
            return contract
        waived = {waiver.promise for waiver in self.clauses.waivers}
        kept = tuple(waiver for waiver in contract.waivers if waiver.promise not in waived)
        new = tuple(
            refusal for refusal in self.clauses.refusals if refusal not in contract.refusals
        )
        return replace(
            contract,
            waivers=kept + self.clauses.waivers,
            preconditions=contract.preconditions + self.clauses.preconditions,
            refusals=contract.refusals + new,
        )


_ON_MAKE_FX = ("functionalize", "fx-reinplace")
_ON_AOT = ("aot", "aot-epilogue")
_ON_DYNAMO = ("dynamo", "aot-eager")
_PASSES = ("inductor-reinplace", "inductor-fx")
INDUCTOR = ("inductor-fx", "inductor")
_REFERENCE = ("reference", "reference-copy")
# Guards of Dynamo choose what runs for the inputs at hand.
_GUARDED = (*_ON_DYNAMO, *INDUCTOR, *_REFERENCE, OWN_BACKEND)

# `aot_function` makes no `ShapeEnv`, which the trace of a loop needs.
_CONTROLLED = {
    False: (*_ON_AOT, *_ON_DYNAMO, *INDUCTOR, OWN_BACKEND),
    True: (*_ON_DYNAMO, *INDUCTOR, OWN_BACKEND),
}

# In the order in which a name lists them.
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            "decompose",
            "the trace decomposes operators as core ATen and Inductor do",
            (*_ON_MAKE_FX, *_ON_AOT, "aot-eager", "inductor-reinplace", OWN_PASS),
            Contract(
                waivers=(
                    Waiver(
                        Promise.EQUIVALENCE,
                        "a decomposition computes the same by other operators"
                        " (torch/_inductor/decomposition.py)",
                    ),
                )
            ),
        ),
        Variant(
            "symbolic",
            "traced with sizes as symbols; the run satisfies the guards of the trace",
            (
                *_ON_MAKE_FX,
                *_ON_AOT,
                *_ON_DYNAMO,
                *_PASSES,
                "inductor",
                *_REFERENCE,
                OWN_PASS,
                OWN_BACKEND,
            ),
            Contract(refusals=(DATA_DEPENDENT_SHAPE, reference.NEEDS_NUMBERS)),
        ),
        Variant(
            "grad",
            "inputs require gradients, gradients are compared too, the backward pass is compiled",
            ("identity", *_ON_AOT, *_PASSES, "inductor", *_REFERENCE, OWN_PASS),
            # Inputs that are leaves share a storage, and are no views in autograd.
            Contract(refusals=(aot_eager.MIXED_BASES,)),
        ),
        Variant(
            "captured",
            "the function closes over a half of its inputs, or over what it captures itself",
            ("identity", "functionalize", *_GUARDED),
            Contract(preconditions=(captured.NOT_WRITTEN,), refusals=(captured.NOT_WRAPPED,)),
            # Dynamo makes inputs of what a function captures.
            unchanged=_GUARDED,
        ),
        Variant(
            "buffers",
            "half of the inputs are buffers of a module, whose `forward` is the function",
            ("identity", *_ON_AOT, "export", *_GUARDED),
        ),
        *(
            Variant(name, change.summary, ("identity", *_GUARDED))
            for name, change in second_calls.CHANGES.items()
        ),
        Variant(
            "feed-back",
            second_calls.PAIRS["feed-back"].summary,
            ("identity", *_GUARDED),
        ),
        Variant(
            "kept-outputs",
            second_calls.PAIRS["kept-outputs"].summary,
            (
                "identity",
                *_ON_MAKE_FX,
                *_ON_AOT,
                "inductor-reinplace",
                *_GUARDED,
                OWN_PASS,
            ),
        ),
        *(
            Variant(name, form.summary, ("identity", *_CONTROLLED[form.twice]))
            for name, form in control_flow.FORMS.items()
        ),
        Variant(
            "freezing",
            "half of the inputs are buffers of a module, and Inductor inlines them as constants",
            ("inductor-fx", "inductor"),
            Contract(preconditions=(freezing.ONE_VIEW,)),
        ),
    )
}

OWN_CALLS = (
    "captured",
    "buffers",
    *control_flow.FORMS,
    "freezing",
    "grad",
    *second_calls.SECOND_CALLS,
)
# Pairs that no target has together, and why.
APART: Mapping[frozenset[str], str] = {
    frozenset(("captured", "symbolic")): "a symbolic trace takes no real tensor that is no input",
    frozenset(("while-loop", "symbolic")): "what the loop carries has the sizes of the sample",
    frozenset(("scan", "symbolic")): "what it carries has the sizes of the sample",
    **{
        frozenset(pair): "each of them says what is called, and on which inputs"
        for pair in itertools.combinations(OWN_CALLS, 2)
    },
    frozenset(("freezing", "grad")): "Inductor freezes only without gradients",
}
