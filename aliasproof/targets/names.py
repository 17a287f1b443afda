"""The names of targets: all registered ones, and those that a command means where none is named.

Help texts and usage errors name them without torch, which takes seconds to import.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.targets.user_names import EXPECTED, code_name, installed, require_file

# In the order of `registry.TARGETS`.
REGISTERED = (
    "identity",
    "eager-cuda",
    "functionalize",
    "fx-reinplace",
    "aot",
    "aot-epilogue",
    "dynamo",
    "aot-eager",
    "export",
    "inductor-reinplace",
    "inductor-fx",
    "inductor",
    "aot-inductor",
    "reference",
    "reference-copy",
    "reference-planned",
    "executorch",
    "onnx-translated",
    "onnx-folded",
    "onnx-bound",
    "onnx",
    "openvino-model",
    "openvino-shared",
    "openvino-aot",
    "openvino",
    "relax",
    "relax-calls",
    "relax-shared",
    "relax-sorted",
    "relax-vm",
    "relax-vm-calls",
    "relax-import",
    "relax-import-plain",
)
OLD = ("aot-train",)  # of stored findings, see `variants.modern`

# What a user of `torch.compile` runs. `inductor` generates code, so it needs a compiler.
CHECKED = ("aot-eager", "inductor-fx", "inductor")
# `functionalize` is tested through `fx-reinplace`, which builds on it. A violation that
# `functionalize` shows alone is attributed to it.
FUZZED = ("inductor-fx", "aot", "inductor", "fx-reinplace")
PROVED = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "reference")


# Compilers that take programs of PyTorch, each an extra of the same name.
OUTSIDE: tuple[str, ...] = ("executorch", "onnx", "openvino", "relax")
ALL_COMPILERS = "all-compilers"


def is_outside(name: str) -> bool:
    """Whether a target is a compiler beyond torch, in whichever form or variant."""
    return re.split("[:-]", name)[0] in OUTSIDE


def expanded(names: Sequence[str]) -> list[str]:
    """The targets that names stand for: one, or a group of them."""
    groups = {ALL_COMPILERS: ("inductor", *OUTSIDE)}
    return [target for name in names for target in groups.get(name, (name,))]


def refuse_unknown(name: str) -> None:
    """Raises `UserError` for a name that is no target, or code of a user without its file."""
    base, code = name.partition(":")[0], code_name(name)
    if base in (*REGISTERED, *OLD, *installed()):
        return
    if code is None:
        raise unknown(base)
    require_file(code)


def unknown(base: str) -> UserError:
    """What to say of the name of no target."""
    known = [*REGISTERED, *installed()]
    listed = f"targets: {', '.join(known)}, or {EXPECTED}"
    return UserError(f"unknown target '{base}'{did_you_mean(base, known, otherwise=listed)}")
