"""All known bugs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from corpus.known import (
    any_of_uint8,
    as_strided_of_new_base,
    as_strided_of_view,
    as_strided_scatter_meta,
    bool_argmin,
    cat_input_written,
    copy_of_odd_storage,
    dtype_view_of_nothing,
    dtype_view_read_late,
    expand_inverse,
    floor_of_quotient,
    fused_copy_back,
    index_read_while_written,
    ldexp_dtype,
    lost_strides,
    merged_dtypes,
    missing_overlap_guard,
    multi_output_view_of_written,
    narrow_minimum,
    overlapping_as_strided,
    planned_over_output,
    reinplaced_operands,
    reinplaced_scatter,
    reinplaced_sizes,
    remainder_of_infinity,
    renumbered_input,
    returned_write_beside_another,
    square_in_place,
    symbolic_storage_of_base,
    synthetic_base_views,
    tangents_of_merged_inputs,
    unfold_ban,
    unfold_inverse,
    write_to_float64_number,
    written_overlapping_input,
)
from corpus.known_bug import KnownBug

# In this order they are tried. A program can show several: the first that explains it counts.
KNOWN_BUGS: dict[str, KnownBug] = {
    bug.identifier: bug
    for bug in (
        expand_inverse.BUG,
        unfold_inverse.BUG,
        unfold_ban.BUG,
        synthetic_base_views.BUG,
        renumbered_input.BUG,
        as_strided_scatter_meta.BUG,
        copy_of_odd_storage.BUG,
        dtype_view_of_nothing.BUG,
        square_in_place.BUG,
        reinplaced_scatter.BUG,
        reinplaced_operands.BUG,
        lost_strides.BUG,
        written_overlapping_input.BUG,
        overlapping_as_strided.BUG,
        as_strided_of_new_base.BUG,
        merged_dtypes.BUG,
        returned_write_beside_another.BUG,
        tangents_of_merged_inputs.BUG,
        multi_output_view_of_written.BUG,
        write_to_float64_number.BUG,
        symbolic_storage_of_base.BUG,
        reinplaced_sizes.BUG,
        missing_overlap_guard.BUG,
        cat_input_written.BUG,
        as_strided_of_view.BUG,
        index_read_while_written.BUG,
        dtype_view_read_late.BUG,
        fused_copy_back.BUG,
        planned_over_output.BUG,
        narrow_minimum.BUG,
        bool_argmin.BUG,
        remainder_of_infinity.BUG,
        floor_of_quotient.BUG,
        any_of_uint8.BUG,
        ldexp_dtype.BUG,
    )
}


# Of this process. A kernel of torch can be replaced once, so a bug is mended once.
_MENDED: set[str] = set()


@contextlib.contextmanager
def mended(bugs: Iterable[KnownBug]) -> Iterator[None]:
    """Mend all of these that can be mended and are not mended already."""
    with contextlib.ExitStack() as stack:
        for bug in bugs:
            if bug.mended is not None and bug.identifier not in _MENDED:
                stack.enter_context(bug.mended())
                _MENDED.add(bug.identifier)
                stack.callback(_MENDED.remove, bug.identifier)
        yield
