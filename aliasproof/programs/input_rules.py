"""Rules on a program as a whole, on its names, its storages and its inputs.

`aliasproof.programs.validation.RULES` lists them in order and says what each is for.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator

import torch

from aliasproof.programs.defect import Defect, definitions, fits_int64
from aliasproof.programs.devices import ADVICE, is_device_name
from aliasproof.programs.errors import shown
from aliasproof.programs.program import GRADIENTS, Input, Program
from aliasproof.programs.storage_values import element_value
from aliasproof.programs.values import FILLS

# The limit for all storages together, and for one view, whose repeated elements count each time.
MOST_BYTES = 64 * 2**20
MOST_PARTS = 10_000  # storages, inputs, instructions, outputs, each
MOST_DIMENSIONS = 16

# The dtypes that `fill` supports. Quantised, packed and sub-byte dtypes are left out. So is
# complex32, because every use of it warns.
ELEMENT_DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)

RESERVED = frozenset({"torch", "aten", "float", "complex", "getattr"})  # used by printed source


# --- the program as a whole -----------------------------------------------------------------------


def few_parts(program: Program) -> Iterator[Defect]:
    for part in ("storages", "inputs", "instructions", "outputs"):
        count = len(getattr(program, part))
        if count > MOST_PARTS:
            yield Defect(part, f"{count:,} are too many; at most {MOST_PARTS:,} are allowed")


def seed_in_64_bits(program: Program) -> Iterator[Defect]:
    if not fits_int64(program.seed):
        yield Defect("seed", f"expected an integer of 64 bits with sign, got {shown(program.seed)}")


def gradients_known(program: Program) -> Iterator[Defect]:
    for index, storage in enumerate(program.storages):
        if storage.gradient not in GRADIENTS:
            known = ", ".join(GRADIENTS)
            message = f"expected one of {known}, got {shown(storage.gradient)}"
            yield Defect(f"storages[{index}].gradient", message)


def fill_known(program: Program) -> Iterator[Defect]:
    if program.fill not in FILLS:
        message = f"there is no fill {shown(program.fill)}; write one of {', '.join(FILLS)}"
        yield Defect("fill", message)


def device_known(program: Program) -> Iterator[Defect]:
    if not is_device_name(program.device):
        yield Defect("device", f"{shown(program.device)} is not supported; {ADVICE}")


def names_printable(program: Program) -> Iterator[Defect]:
    for location, name in definitions(program):
        # Python folds other letters when it reads source ("ﬁ" becomes "fi"), so such a name would
        # come back changed.
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            message = f"{shown(name)} is not a name; write an ASCII Python identifier, such as x0"
            yield Defect(location, message)
        if name.startswith("_") or name in RESERVED:
            yield Defect(location, f"the name {name!r} is reserved; write one such as x0")


def names_unique(program: Program) -> Iterator[Defect]:
    first: dict[str, str] = {}
    for location, name in definitions(program):
        if name in first:
            yield Defect(location, f"the name {name!r} is already defined at {first[name]}")
        first[name] = location


# --- storages and inputs --------------------------------------------------------------------------


def dtypes_fillable(program: Program) -> Iterator[Defect]:
    dtypes = {
        f"storages[{index}].dtype": storage.dtype for index, storage in enumerate(program.storages)
    } | {f"inputs[{index}].dtype": view.dtype for index, view in enumerate(program.inputs)}
    for location, dtype in dtypes.items():
        if dtype not in ELEMENT_DTYPES:
            message = f"tensors of {dtype} cannot be filled with values; use another dtype"
            yield Defect(location, message)


def storages_small(program: Program) -> Iterator[Defect]:
    total = 0
    for index, storage in enumerate(program.storages):
        location = f"storages[{index}].length"
        total += storage.nbytes
        if storage.length < 0:
            message = f"{shown(storage.length)} is negative; write 0 or more elements"
            yield Defect(location, message)
        if total > MOST_BYTES:
            message = f"the storages up to here have more than {MOST_BYTES:,} bytes; shorten them"
            yield Defect(location, message)


def values_readable(program: Program) -> Iterator[Defect]:
    for index, storage in enumerate(program.storages):
        for position, text in enumerate(storage.values):
            location = f"storages[{index}].values[{position}]"
            try:
                element_value(text, storage.dtype)
            except ValueError:
                yield Defect(location, f"{shown(text)} is not a value of {storage.dtype}")


def storage_exists(program: Program) -> Iterator[Defect]:
    count = len(program.storages)
    for index, view in enumerate(program.inputs):
        if not 0 <= view.storage < count:
            message = f"there is no storage {shown(view.storage)}; the program has {count} of them"
            yield Defect(f"inputs[{index}].storage", message)


def one_stride_per_size(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        sizes, strides = len(view.sizes), len(view.strides)
        if sizes != strides:
            message = f"{strides} strides for {sizes} sizes; write one stride per dimension"
            yield Defect(f"inputs[{index}].strides", message)
        if sizes > MOST_DIMENSIONS:
            message = f"{sizes} dimensions are too many; at most {MOST_DIMENSIONS} are allowed"
            yield Defect(f"inputs[{index}].sizes", message)


def layout_in_range(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        layout = {"sizes": view.sizes, "strides": view.strides, "offset": (view.offset,)}
        for field, values in layout.items():
            for value in values:
                if not 0 <= value <= MOST_BYTES:
                    message = f"{shown(value)} is not in the range 0..{MOST_BYTES}"
                    yield Defect(f"inputs[{index}].{field}", message)


def views_small(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        # A size of 0 does not excuse the others: PyTorch multiplies them all and refuses a product
        # of over 64 bits.
        numel = math.prod(max(size, 1) for size in view.sizes)
        if numel * view.dtype.itemsize > MOST_BYTES:
            yield Defect(
                f"inputs[{index}].sizes",
                f"{shown(view.sizes)} is more than {MOST_BYTES:,} bytes of {view.dtype};"
                " use smaller sizes",
            )


def views_inside_storage(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        available = program.storages[view.storage].nbytes
        if _end(view) > available:
            yield Defect(
                f"inputs[{index}]",
                f"the view ends at byte {_end(view)}, outside storage {view.storage},"
                f" which has {available} bytes",
            )


def _end(view: Input) -> int:
    """The byte after the last one that the view covers.

    An empty view covers no byte, even with an offset, so its end is 0.
    """
    if 0 in view.sizes:
        return 0
    steps = zip(view.sizes, view.strides, strict=True)
    last = view.offset + sum((size - 1) * stride for size, stride in steps)
    return (last + 1) * view.dtype.itemsize
