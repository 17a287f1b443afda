"""`where_raised`: the pass, or the part of a compiler, in which a compilation raised."""

from __future__ import annotations

from pathlib import Path
from types import FrameType

import torch
from torch._ops import OpOverload

from aliasproof.trials.graph_versions import drivers, part_and_pass

_TORCH = Path(torch.__file__).parent

# By file in torch, the innermost frame that fits decides. Each is a part with no list of passes.
_PARTS = (
    ("_functorch/_aot_autograd/collect_metadata_analysis.py", "AOTAutograd: metadata analysis"),
    ("_functorch/_aot_autograd/runtime_wrappers.py", "AOTAutograd: wrappers"),
    ("_functorch/_aot_autograd/input_output_analysis.py", "AOTAutograd: wrappers"),
    ("_functorch/_aot_autograd/graph_capture", "AOTAutograd: functionalization"),
    ("_inductor/memory.py", "scheduler: order for peak memory"),
    ("_inductor/scheduler.py", "scheduler"),
    ("_inductor/codegen/", "code generation"),
    ("_inductor/codecache.py", "C++ compiler"),
    ("_inductor/graph.py", "lowering"),
    ("_dynamo/symbolic_convert.py", "Dynamo"),
)


def where_raised(error: BaseException) -> str | None:
    """The pass or part that raised an error; None if no frame of a compiler tells."""
    frames = _innermost_first(error)
    for index, frame in enumerate(frames):
        if frame.f_code in drivers() and index > 0:
            return ": ".join(part_and_pass(frames[index - 1 :]))
        operator = _lowered_operator(frame)
        if operator is not None:
            return f"lowering of {operator}"
        part = _part(frame)
        if part is not None:
            return part
    return None


def _innermost_first(error: BaseException) -> list[FrameType]:
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames[::-1]


def _lowered_operator(frame: FrameType) -> OpOverload | None:
    """The operator that a frame of `GraphLowering.call_function` lowers."""
    if frame.f_code.co_name != "call_function" or _inside(frame) != "_inductor/graph.py":
        return None
    target = frame.f_locals.get("target")
    return target if isinstance(target, OpOverload) else None


def _part(frame: FrameType) -> str | None:
    inside = _inside(frame)
    return next((part for start, part in _PARTS if inside.startswith(start)), None)


def _inside(frame: FrameType) -> str:
    """The file of a frame, relative to torch; empty for other code."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(_TORCH).as_posix() if path.is_relative_to(_TORCH) else ""
