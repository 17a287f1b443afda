"""ExecuTorch puts two constants in the wrong order if a program has no inputs but buffers.

pytorch/executorch#8031 made it work for one constant.
"""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "executorch-constants-alone",
    "lift_constant_tensor_pass fails for a module without inputs that uses two numbers",
    "",
    program_of(
        """
        v0 = aten.add.Tensor(x0, 1)
        v1 = aten.mul.Tensor(v0, 2)
        return (v1,)
        """,
        view(2),
    ),
    ("executorch:buffers",),
    ("2.13",),
    mark=Mark(("errors",), "Input spec name .* does not match node name"),
    rank=2190,
)
