"""Eager's run and a target's run beside each other, for people."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aliasproof.console import print_table
from oracles.observation import Observation
from programs.regions import Region, overlap
from programs.storage_bytes import bytes_of

MOST_ELEMENTS = 80  # shown of a tensor
LONGEST_MESSAGE = 160  # characters of an error's first line; the evidence has all of it
MOST_BYTES = 64  # shown of a storage


def text(value: object) -> str:
    """A tensor as its numbers, with size and strides where the numbers do not show them; anything else as itself."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    with torch._tensor_str.printoptions(threshold=MOST_ELEMENTS, edgeitems=3, linewidth=60):
        numbers = repr(value.detach())
    plain = value.is_contiguous() and value.storage_offset() == 0
    return numbers if plain else f"{numbers}\n{layout(value)}"


def layout(tensor: torch.Tensor) -> str:
    """Size, strides and offset, counted in elements."""
    return f"size {list(tensor.shape)}, strides {list(tensor.stride())}, offset {tensor.storage_offset()}"


def print_side_by_side(
    console: Console, eager: Observation, target: Observation, name: str
) -> None:
    """A table of all that is left behind, with a mark where the two differ."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
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
    for index in range(max(len(eager.outputs), len(target.outputs))):
        yield f"output {index}", _at(eager, index), _at(target, index)
    for index, (ours, theirs) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
        yield f"input {index} afterwards", text(ours), text(theirs)
    yield from _storages(eager, target)
    if eager.error is None and target.error is None:
        shared, theirs_shared = _aliases(eager), _aliases(target)
        if shared or theirs_shared:
            yield "share bytes", "\n".join(shared) or "none", "\n".join(theirs_shared) or "none"


def _raised(error: Exception | None) -> str:
    if error is None:
        return "nothing"
    lines = str(error).strip().splitlines()
    message = lines[0] if lines else ""
    shown = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _at(observation: Observation, index: int) -> str:
    return text(observation.outputs[index]) if index < len(observation.outputs) else "none"


def _storages(eager: Observation, target: Observation) -> Iterator[tuple[str, str, str]]:
    """The bytes of an input's storage, where they differ and the input does not show it."""
    for index, (ours, theirs) in enumerate(zip(eager.before, target.before, strict=True)):
        if _bytes(ours.untyped_storage()) != _bytes(theirs.untyped_storage()) and text(
            eager.inputs[index]
        ) == text(target.inputs[index]):
            yield (
                f"bytes of input {index}'s storage",
                _bytes_text(ours.untyped_storage()),
                _bytes_text(theirs.untyped_storage()),
            )


def _bytes(storage: torch.UntypedStorage) -> list[int]:
    return bytes_of(storage).tolist()


def _bytes_text(storage: torch.UntypedStorage) -> str:
    numbers = _bytes(storage)
    rest = f" and {len(numbers) - MOST_BYTES} more" if len(numbers) > MOST_BYTES else ""
    return " ".join(map(str, numbers[:MOST_BYTES])) + rest


def _aliases(observation: Observation) -> list[str]:
    """Outputs that are an input or share bytes with an input or an earlier output."""
    lines: list[str] = []
    regions = observation.regions()
    earlier: dict[str, Region] = {
        name: each for name, each in regions.items() if name.startswith("input")
    }
    for index, output in enumerate(observation.outputs):
        name = f"output {index}"
        if name not in regions:
            continue
        same = observation.is_input(output)
        lines += [f"{name} is input {same}"] if same is not None else []
        lines += [
            f"{name}, {other}" for other, each in earlier.items() if overlap(regions[name], each)
        ]
        earlier[name] = regions[name]
    return lines
