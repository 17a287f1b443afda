"""What the eager run and the target's run left behind, as texts side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from aliasproof.eager.rounding import readable
from aliasproof.ir.regions import overlap
from aliasproof.ir.values import bytes_of
from aliasproof.oracles.check_result import Row
from aliasproof.oracles.errors import message_of
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import PlaceNames, rename_places
from aliasproof.reports.console import shortened

SHARED_STORAGE = "in one storage"
OUTPUTS = "outputs"  # the row with all of them, where their numbers differ
SHARED = "share bytes"  # the row with the pairs of tensors that share bytes
MOST_ELEMENTS = 80  # shown per tensor
LONGEST_MESSAGE = 160  # characters of an error's first line; the evidence has all of it
MOST_BYTES = 64  # shown per storage


def value_text(value: object, *, layout: bool = False) -> str:
    """A tensor's data, with its layout if requested or not plain. Other values by repr."""
    if isinstance(value, list):  # all outputs of a run
        return "\n".join(map(value_text, value))
    if not isinstance(value, torch.Tensor):
        return repr(value)
    # Large tensors are abbreviated. The evidence of a violation names the first wrong index.
    with torch._tensor_str.printoptions(threshold=MOST_ELEMENTS, edgeitems=3, linewidth=60):
        data = repr(readable(value.detach()))
    if readable(value).dtype != value.dtype:
        data = f"{data} ({value.dtype})"
    return f"{data}\n{layout_text(value)}" if layout or not _is_plain(value) else data


def beside(ours: Mapping[str, object], theirs: Mapping[str, object]) -> Iterator[Row]:
    """Values of both runs, by location, as text: with both layouts, unless both are plain."""
    for place in dict.fromkeys((*ours, *theirs)):
        pair = [values[place] for values in (ours, theirs) if place in values]
        layout = not all(map(_is_plain, pair))
        one, other = (
            value_text(values[place], layout=layout) if place in values else "not there"
            for values in (ours, theirs)
        )
        yield place, one, other


def _is_plain(value: object) -> bool:
    """Whether it is contiguous at offset 0, or not a tensor."""
    if not isinstance(value, torch.Tensor):
        return True
    return value.is_contiguous() and value.storage_offset() == 0


def layout_text(tensor: torch.Tensor) -> str:
    """Size, strides and offset of a tensor, in elements."""
    sizes, strides = list(tensor.shape), list(tensor.stride())
    return f"size {sizes}, strides {strides}, offset {tensor.storage_offset()}"


def rows(eager: Observation, target: Observation) -> Iterator[Row]:
    """What both runs left behind, as text: the location, eager's value, the target's value."""
    if eager.error is not None or target.error is not None:
        yield "raises", _error_text(eager.error), _error_text(target.error)
    ours, theirs = (
        (seen.leaves() or _outputs(seen, len(eager.outputs), len(target.outputs)))
        | {f"input {index} afterwards": given for index, given in enumerate(seen.inputs)}
        for seen in (eager, target)
    )
    yield from beside(ours, theirs)
    yield from _storages(eager, target)
    # Without outputs, after an error or with other paths, aliases would look lost.
    if eager.error is None and target.error is None and eager.paths == target.paths:
        in_eager, in_target = _aliases(eager), _aliases(target)
        if in_eager or in_target:
            yield SHARED, "\n".join(in_eager) or "none", "\n".join(in_target) or "none"


def _outputs(seen: Observation, *counts: int) -> dict[str, object]:
    """The outputs by location. If one run has more, which of them correspond is not known."""
    if min(counts) not in (0, max(counts)):
        return {OUTPUTS: seen.outputs}
    return {f"output {index}": output for index, output in enumerate(seen.outputs)}


def first_call_rows(inputs: Sequence[torch.Tensor]) -> Iterator[Row]:
    """The inputs of an earlier call that both runs made, and which of them share a storage."""
    together: dict[int, list[str]] = {}
    for index, given in enumerate(inputs):
        text = value_text(given)
        yield f"input {index} in the first call", text, text
        together.setdefault(given.untyped_storage()._cdata, []).append(f"input {index}")
    shared = [", ".join(names) for names in together.values() if len(names) > 1]
    if len(inputs) > 1:
        text = "\n".join(shared) or "none"
        yield f"{SHARED_STORAGE} in the first call", text, text


def named_rows(
    eager: Observation,
    target: Observation,
    names: PlaceNames,
    first_call: Sequence[torch.Tensor] = (),
) -> Iterator[Row]:
    """All rows, including those of an earlier call, with names instead of indices."""
    for place, ours, theirs in (*first_call_rows(first_call), *rows(eager, target)):
        if place.startswith((SHARED, SHARED_STORAGE)):
            ours, theirs = rename_places(ours, names), rename_places(theirs, names)
        yield rename_places(place, names), ours, theirs


def _error_text(error: Exception | None) -> str:
    if error is None:
        return "nothing"
    lines = message_of(error).strip().splitlines()
    shown = shortened(lines[0], LONGEST_MESSAGE) if lines else ""
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _storages(eager: Observation, target: Observation) -> Iterator[Row]:
    """The bytes of input storages that differ although the inputs look equal.

    A target can write outside the input's view, or change bits that print the same (-0.0, NaN).
    """
    for index, (ours, theirs) in enumerate(zip(eager.before, target.before, strict=True)):
        same_text = value_text(eager.inputs[index]) == value_text(target.inputs[index])
        one, other = bytes_of(ours.untyped_storage()), bytes_of(theirs.untyped_storage())
        if same_text and not torch.equal(one, other):
            yield f"bytes of input {index}'s storage", _bytes_text(one), _bytes_text(other)


def _bytes_text(values: torch.Tensor) -> str:
    rest = f" and {len(values) - MOST_BYTES} more" if len(values) > MOST_BYTES else ""
    return " ".join(map(str, values[:MOST_BYTES].tolist())) + rest


def _aliases(observation: Observation) -> list[str]:
    """Outputs that are an input, or alias an input or an earlier output."""
    lines: list[str] = []
    regions = observation.regions()
    earlier = {name: region for name, region in regions.items() if name.startswith("input")}
    for index, output in enumerate(observation.outputs):
        name = f"output {index}"
        if name not in regions:  # not a tensor
            continue
        # Object identity is more specific than shared bytes.
        same = observation.is_input(output)
        lines += [f"{name} is input {same}"] if same is not None else []
        aliased = [other for other, it in earlier.items() if overlap(regions[name], it)]
        lines += [f"{name}, {other}" for other in aliased]
        earlier[name] = regions[name]
    return lines
