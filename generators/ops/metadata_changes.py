"""In-place ops that change sizes, strides, offset or storage of their argument."""

from __future__ import annotations

from aliasproof.generators import arguments as metadata
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import view_arguments as views
from aliasproof.generators.operator import Operator, any_dtype, line

METADATA_CHANGES: tuple[Operator, ...] = (
    line("metadata", "t_.default"),
    line("metadata", "transpose_.default"),
    line("metadata", "swapaxes_.default", axis0=numbers.dimension, axis1=numbers.dimension),
    line("metadata", "swapdims_.default"),
    line("metadata", "squeeze_.default"),
    line("metadata", "squeeze_.dim"),
    line("metadata", "squeeze_.dims", dim=views.some_dimensions),
    line("metadata", "unsqueeze_.default", dim=numbers.dimension_to_insert),
    line("metadata", "as_strided_.default", any_dtype, **numbers.AS_STRIDED),
    line("metadata", "detach_.default"),
    # Another storage.
    line("metadata", "set_.source_Tensor", source=metadata.tensor_of_own_dtype),
    line(
        "metadata",
        "set_.source_Tensor_storage_offset",
        source=metadata.source_with_room,
        storage_offset=metadata.small_offset,
        size=metadata.few_sizes,
        stride=metadata.dense_or_reversed_strides,
    ),
    line("metadata", "set_.default"),
    # Another size of the storage.
    line("metadata", "resize_.default", size=metadata.new_sizes),
    line("metadata", "resize_as_.default", the_template=metadata.any_tensor),
)
