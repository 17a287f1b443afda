"""All known bugs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from corpus.known import (
    any_of_uint8,
    as_strided_of_new_base,
    as_strided_of_view,
    as_strided_scatter_meta,
    as_strided_scatter_of_clone,
    bool_argmin,
    cat_input_written,
    cat_of_empties,
    cat_of_split,
    collapsed_copies,
    complex_numbers,
    copy_of_odd_storage,
    copy_of_written_input,
    cumsum_of_constant,
    cumsum_of_number,
    dropout_of_nothing,
    dtype_view_of_nothing,
    dtype_view_read_late,
    erased_input,
    expand_inverse,
    floor_of_quotient,
    folded_numbers,
    foreach_results,
    fused_copy_back,
    fused_scatters,
    identity_arithmetic,
    index_read_while_written,
    inductor_operands,
    ldexp_dtype,
    lost_strides,
    merged_dtypes,
    missing_offset_guard,
    missing_overlap_guard,
    multi_output_view_of_written,
    narrow_minimum,
    negative_zero,
    overlapping_as_strided,
    pattern_keywords,
    planned_over_output,
    polygamma_in_place,
    promoting_cat,
    recomputed_from_written,
    reinplaced_operands,
    reinplaced_overlap,
    reinplaced_result_outlives,
    reinplaced_scatter,
    reinplaced_sizes,
    remainder_of_infinity,
    renumbered_input,
    renumbered_outputs,
    returned_write_beside_another,
    rounded_by_reciprocal,
    saved_input_written,
    scatter_in_float32,
    scatter_into_number,
    short_fake_storage,
    softmax_of_integers,
    split_of_cat,
    square_in_place,
    symbolic_storage_of_base,
    synthetic_base_views,
    tangents_of_merged_inputs,
    unfold_ban,
    unfold_inverse,
    view_of_replaced_buffer,
    write_to_float64_number,
    written_overlapping_input,
    zero_times_input,
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
        polygamma_in_place.BUG,
        dropout_of_nothing.BUG,
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
        missing_offset_guard.BUG,
        as_strided_scatter_of_clone.BUG,
        cat_of_empties.BUG,
        complex_numbers.BUG,
        copy_of_written_input.BUG,
        cumsum_of_constant.BUG,
        cumsum_of_number.BUG,
        folded_numbers.BUG,
        foreach_results.BUG,
        identity_arithmetic.BUG,
        negative_zero.BUG,
        pattern_keywords.BUG,
        reinplaced_overlap.BUG,
        reinplaced_result_outlives.BUG,
        rounded_by_reciprocal.BUG,
        scatter_in_float32.BUG,
        scatter_into_number.BUG,
        softmax_of_integers.BUG,
        zero_times_input.BUG,
        cat_of_split.BUG,
        erased_input.BUG,
        fused_scatters.BUG,
        inductor_operands.BUG,
        promoting_cat.BUG,
        split_of_cat.BUG,
        renumbered_outputs.BUG,
        recomputed_from_written.BUG,
        collapsed_copies.BUG,
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
        view_of_replaced_buffer.BUG,
        short_fake_storage.BUG,
        saved_input_written.BUG,
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
