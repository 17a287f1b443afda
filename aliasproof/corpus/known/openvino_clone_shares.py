"""The clone of an input that OpenVINO returns is the memory of the input."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

COPIES = (
    "clone",
    "alias_copy",
    "_to_copy",
    "copy",
    "lift_fresh_copy",
    "alias",
    "view",
    "reshape",
    "detach",
)

# A clone is no operation of OpenVINO, so the input is an output of the model, and
# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py shares the memory of both.
BUG = KnownBug(
    "openvino-clone-shares",
    'torch.compile(backend="openvino"): a clone of an input shares its memory, and sees writes',
    "",
    program_of(
        """
        v0 = aten.clone.default(x0)
        aten.add_.Tensor(x0, x0)
        return (v0,)
        """,
        view(2),
    ),
    ("openvino-aot",),
    ("2.13",),
    mark=Mark(
        ("aliasing", "values"),
        "new alias between (input and output|output and input|output and output)|wrong value",
        lambda program: calls(program, *COPIES),
    ),
    plausible=lambda program: calls(program, *COPIES),
    rank=1250,
)
