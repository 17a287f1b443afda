"""What makes a `Program` well formed, as a table of rules.

A well-formed program can be printed, written, read and handed to the dispatcher. The rules do not
decide whether eager accepts its sizes, or whether it is defined in eager. They accept every call
that an ATen overload accepts, except implicit conversions that would hide a tensor: a tensor for a
number, and a tensor for the list of its rows.
"""

from __future__ import annotations

from aliasproof.programs import input_rules, instruction_rules
from aliasproof.programs.defect import Defect, WellFormednessRule
from aliasproof.programs.errors import UserError
from aliasproof.programs.program import Program


def validate(program: Program) -> None:
    """Raise a `UserError` with the location and the defect, unless the program is well formed."""
    defect = first_defect(program)
    if defect is not None:
        raise UserError(str(defect))


def first_defect(program: Program) -> Defect | None:
    """The first defect in the order of `RULES`.

    Later defects have no meaning, because each rule relies on those before it.
    """
    return next((defect for rule in RULES for defect in rule(program)), None)


RULES: tuple[WellFormednessRule, ...] = (
    # The checks below look at all parts one by one.
    input_rules.few_parts,
    # The seed enters arithmetic on int64 tensors.
    input_rules.seed_in_64_bits,
    # The fill is one that `aliasproof.programs.values` knows.
    input_rules.fill_known,
    # How autograd sees a storage.
    input_rules.gradients_known,
    # Whether the device is there is another question.
    input_rules.device_known,
    # Printed source contains the names as they are.
    input_rules.names_printable,
    # A name is defined once, so the meaning of a use does not depend on its position.
    input_rules.names_unique,
    # An input needs a dtype that can be filled with values.
    input_rules.dtypes_fillable,
    # Lengths are 0 or more, and memory has room for all storages many times over.
    input_rules.storages_small,
    # A storage's own values are numbers that its dtype has.
    input_rules.values_readable,
    # An input views one of the storages.
    input_rules.storage_exists,
    # Sizes and strides belong together, dimension by dimension.
    input_rules.one_stride_per_size,
    # Sizes, strides and offset are not negative, and not larger than the largest storage.
    input_rules.layout_in_range,
    # A stride of 0 must not turn a small storage into a view of terabytes.
    input_rules.views_small,
    # In bytes, since storage and view may differ in dtype.
    input_rules.views_inside_storage,
    # The dispatcher has the operator.
    instruction_rules.ops_known,
    # Keyword arguments exist in the schema, and nothing is given twice.
    instruction_rules.arguments_named_once,
    # No more positional arguments than the schema takes; those after its `*` need their name.
    instruction_rules.no_surplus_arguments,
    # An argument without a default is given.
    instruction_rules.no_missing_arguments,
    # Each argument converts to the type in the schema.
    instruction_rules.arguments_fit,
    # A program is on one device.
    instruction_rules.devices_agree,
    # All the tensors that a call returns are named, or none.
    instruction_rules.results_counted,
    # Values are used after their definition, and the outputs exist.
    instruction_rules.uses_defined,
)
