"""Patches of Relax: a program is written in a way that avoids the bug."""

from __future__ import annotations

import functools

from aliasproof.compilers.relax.relax_spelling import spelled
from aliasproof.corpus.patching import Patch

relax_constant_written = Patch(functools.partial(spelled, "constants_given"))
relax_view_not_known = Patch(functools.partial(spelled, "known_views"))
relax_result_written = Patch(functools.partial(spelled, "results_given"))
relax_field_taken_again = Patch(functools.partial(spelled, "fields_once"))
relax_tuple_field_written = Patch(functools.partial(spelled, "tuples_late"))
relax_number_on_the_left = Patch(functools.partial(spelled, "numbers_last"))
