"""Steps on the data in storages: plain values where they do, else few values that are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aliasproof.ir.program import Program, Storage
from aliasproof.ir.storages import texts_of
from aliasproof.ir.values import storage_data
from aliasproof.reduction.edits import put, without

# As values of their own these are the simplest that are not plain, and a plain one beside them.
_SIMPLE = ("1", "inf", "nan", "-0.0", "1e20")
# Values of a storage that are tried one by one; of more, each half is tried first.
_MOST_SINGLE = 32


def plain_values(program: Program) -> Iterator[Program]:
    """Fill all storages with plain values at once."""
    storages = tuple(replace(storage, values=()) for storage in program.storages)
    yield replace(program, storages=storages, fill="plain")


def simplify_fill(program: Program) -> Iterator[Program]:
    """Fill the storages with plain values; if that does not fail, name the values of storages."""
    if program.fill == "plain":
        return
    yield replace(program, fill="plain")
    # One storage alone first: often only one operand must be special.
    for index in range(len(program.storages)):
        yield _with_named_values(program, [index])
    yield _with_named_values(program, range(len(program.storages)))


def _with_named_values(program: Program, indices: range | list[int]) -> Program:
    """The program with the plain fill, except in some storages: there with the values of now."""
    storages = list(program.storages)
    for index in indices:
        storages[index] = replace(storages[index], values=texts_of(storage_data(program, index)))
    return replace(program, fill="plain", storages=tuple(storages))


def simplify_values(program: Program) -> Iterator[Program]:
    """Leave out the values that a storage names, or some of them, or make one simpler."""
    for index, storage in enumerate(program.storages):
        for simpler in _simpler_storages(storage):
            yield replace(program, storages=put(program.storages, index, simpler))


def _simpler_storages(storage: Storage) -> Iterator[Storage]:
    values = storage.values
    if not values:
        return
    yield replace(storage, values=())
    yield replace(storage, values=values[: storage.length])
    # They are repeated, so some of them may fill the storage.
    if len(values) > _MOST_SINGLE:
        middle = len(values) // 2
        yield replace(storage, values=values[:middle])
        yield replace(storage, values=values[middle:])
    single = values[:_MOST_SINGLE]
    yield from (replace(storage, values=(value,)) for value in dict.fromkeys(single))
    for position, value in enumerate(single):
        yield replace(storage, values=without(values, position))
        for simple in _SIMPLE:
            if simple != value:
                yield replace(storage, values=put(values, position, simple))
