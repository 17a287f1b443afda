"""The names of targets: the registered ones, and the defaults of commands.

Help texts and usage errors list them without importing torch, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.plugins import BROKEN, plugins
from aliasproof.targets.user_names import EXPECTED, code_name, installed, require_file

# The location of each target in `aliasproof.targets`.
OF_TORCH = {
    "identity": "identity.TARGET",
    "eager-cuda": "eager_cuda.TARGET",
    "functionalize": "torch_functionalize.TARGET",
    "fx-reinplace": "fx_reinplace.TARGET",
    "aot": "aot.AOT",
    "aot-epilogue": "aot.AOT_EPILOGUE",
    "dynamo": "dynamo.TARGET",
    "aot-eager": "aot_eager.TARGET",
    "export": "export.TARGET",
    "inductor-reinplace": "inductor_reinplace.TARGET",
    "inductor-fx": "inductor_fx.TARGET",
    "inductor": "inductor.TARGET",
    "aot-inductor": "aot_inductor.TARGET",
    "reference": "reference.REFERENCE",
    "reference-copy": "reference.REFERENCE_COPY",
    "reference-planned": "reference.REFERENCE_PLANNED",
}
REGISTERED = (*OF_TORCH, *(name for each in plugins().values() for name in each.targets))

# Users of `torch.compile` run these. `inductor` generates code, so it needs a C++ compiler.
CHECKED = ("aot-eager", "inductor-fx", "inductor")
# `fx-reinplace` builds on `functionalize` and so tests it. A violation that `functionalize` shows
# without the pass is attributed to it.
FUZZED = ("inductor-fx", "aot", "inductor", "fx-reinplace")
# For Python programs: most of their bugs are in the layers that all backends share, and a program
# takes a fifth of the time that it takes with generated code.
HUNTED = "aot-eager"
PROVED = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "reference")

# The languages in which a campaign writes programs: ATen calls, Python, or some of each.
LANGUAGES = ATEN, PYTHON, BOTH = ("aten", "python", "both")
DEFAULTS = {ATEN: FUZZED, PYTHON: (HUNTED,), BOTH: (*FUZZED, HUNTED)}

ALL_COMPILERS = "all-compilers"


def expanded(names: Sequence[str]) -> list[str]:
    """The targets that names denote: each name is a target or a group of targets."""
    groups = {ALL_COMPILERS: ("inductor", *plugins())}
    return [target for name in names for target in groups.get(name, (name,))]


def refuse_unknown(name: str) -> None:
    """Raises `UserError` for a name that is no target, or whose file does not exist."""
    base, code = name.partition(":")[0], code_name(name)
    if base in (*REGISTERED, *installed()):
        return
    if code is None:
        raise unknown(base)
    require_file(code)


def unknown(base: str) -> UserError:
    """The error for a name that is no target."""
    if base in BROKEN:
        return UserError(f"target '{base}' cannot be loaded: {BROKEN[base]}")
    known = [*REGISTERED, *installed()]
    yours = f" (FILE.py:{base} for a function of yours)" if base.isidentifier() else ""
    listed = f"targets: {', '.join(known)}, or {EXPECTED}{yours}"
    return UserError(f"unknown target '{base}'{did_you_mean(base, known, otherwise=listed)}")
