"""The eager run and the target's run beside each other, with a mark at each difference."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rich.console import Console
from rich.text import Text

from oracles.observation import Observation
from programs.narrow_dtypes import readable
from programs.regions import Region, overlap
from programs.storage_bytes import bytes_of
from reports.console import new_table, print_table

MOST_ELEMENTS = 80  # shown of a tensor
LONGEST_MESSAGE = 160  # characters of an error's first line; the evidence has all of it
MOST_BYTES = 64  # shown of a storage


def value_text(value: object) -> str:
    """A tensor's data, and its layout unless it is contiguous at offset 0. Other values by repr."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    # Large tensors are shown in part. The evidence of a violation names the first wrong index.
    with torch._tensor_str.printoptions(threshold=MOST_ELEMENTS, edgeitems=3, linewidth=60):
        data = repr(readable(value.detach()))
    if readable(value).dtype != value.dtype:
        data = f"{data} ({value.dtype})"
    plain = value.is_contiguous() and value.storage_offset() == 0
    return data if plain else f"{data}\n{layout_text(value)}"


def layout_text(tensor: torch.Tensor) -> str:
    """Size, strides and offset of a tensor, in elements."""
    sizes, strides = list(tensor.shape), list(tensor.stride())
    return f"size {sizes}, strides {strides}, offset {tensor.storage_offset()}"


def print_side_by_side(
    console: Console, eager: Observation, target: Observation, name: str
) -> None:
    """Print what both runs left behind: outputs, inputs afterwards, storages, aliases."""
    table = new_table()
    table.add_column("")
    table.add_column("eager", overflow="fold")
    table.add_column("", style="red")
    table.add_column(name, overflow="fold")
    for place, ours, theirs in _rows(eager, target):
        style = "" if ours == theirs else "red"
        table.add_row(Text(place, "dim"), ours, "" if ours == theirs else "≠", Text(theirs, style))
    print_table(console, table)


def _rows(eager: Observation, target: Observation) -> Iterator[tuple[str, str, str]]:
    if eager.error is not None or target.error is not None:
        yield "raises", _raised(eager.error), _raised(target.error)
    # A target can return more or fewer outputs than eager.
    for index in range(max(len(eager.outputs), len(target.outputs))):
        yield f"output {index}", _output(eager, index), _output(target, index)
    for index, (ours, theirs) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
        yield f"input {index} afterwards", value_text(ours), value_text(theirs)
    yield from _storages(eager, target)
    # A run that raised has no outputs, so its aliases would look lost.
    if eager.error is None and target.error is None:
        in_eager, in_target = _aliases(eager), _aliases(target)
        if in_eager or in_target:
            yield "share bytes", "\n".join(in_eager) or "none", "\n".join(in_target) or "none"


def _raised(error: Exception | None) -> str:
    if error is None:
        return "nothing"
    lines = str(error).strip().splitlines()
    message = lines[0] if lines else ""
    shown = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _output(observation: Observation, index: int) -> str:
    return value_text(observation.outputs[index]) if index < len(observation.outputs) else "none"


def _storages(eager: Observation, target: Observation) -> Iterator[tuple[str, str, str]]:
    """The bytes of input storages that differ although the inputs look equal.

    A target can write outside the input's view, or change bits that print alike (-0.0, NaN).
    """
    for index, (ours, theirs) in enumerate(zip(eager.before, target.before, strict=True)):
        same_text = value_text(eager.inputs[index]) == value_text(target.inputs[index])
        if same_text and _bytes(ours.untyped_storage()) != _bytes(theirs.untyped_storage()):
            yield (
                f"bytes of input {index}'s storage",
                _bytes_text(ours.untyped_storage()),
                _bytes_text(theirs.untyped_storage()),
            )


def _bytes(storage: torch.UntypedStorage) -> list[int]:
    return bytes_of(storage).tolist()


def _bytes_text(storage: torch.UntypedStorage) -> str:
    values = _bytes(storage)
    rest = f" and {len(values) - MOST_BYTES} more" if len(values) > MOST_BYTES else ""
    return " ".join(map(str, values[:MOST_BYTES])) + rest


def _aliases(observation: Observation) -> list[str]:
    """Outputs that are an input, or alias an input or an earlier output."""
    lines: list[str] = []
    regions = observation.regions()
    earlier: dict[str, Region] = {
        name: region for name, region in regions.items() if name.startswith("input")
    }
    for index, output in enumerate(observation.outputs):
        name = f"output {index}"
        if name not in regions:  # not a tensor
            continue
        # Object identity says more than shared bytes.
        same = observation.is_input(output)
        lines += [f"{name} is input {same}"] if same is not None else []
        lines += [
            f"{name}, {other}"
            for other, region in earlier.items()
            if overlap(regions[name], region)
        ]
        earlier[name] = regions[name]
    return lines
