"""Algebra before schedules: programs that compute the same with fewer operations, whatever the phrasing.

What a schedule can reach is bounded by what the program says: a prefix sum written as a sum over k <= j for each j has n^2 / 2 terms. The
passes here change how much is computed, on simplified programs and before schedules, so that derivatives profit, too. They recognize no
formulas: `sharing` asks the integer sets which terms many results have in common, `tables` makes running tables of them, `monoids` says
what is carried, `counts` whether it pays, `recurrences` is the pass. Nothing is ever subtracted from what was added. `boxes` goes through
boxes of neighbours an axis at a time, `sums` carries sums of narrow numbers in the types that a machine adds them in, `keyed` sends points
to their keys, makes what is read at keys alone there, and has conditions in the place of masks and of what windows repeat at borders,
`layouts` makes tensors of the parts of one that products read apart and one operand of several, turns those on the way and those that
steps of scans read across, reads an output in place of a scan, keeps small integers in few bits, turns scatters, and lays rings that sums
go around out in rows, `products` of products that are added up, takes products of products in the order of fewest operations, and
multiplies factors first that share their points, `carries` takes combiners apart whose components are sums and maxima, `logarithms` makes
quotients of exponentials of their sums, `supports` sums masked weights inside of their masks, `before` makes states of what was before
steps, and reads those that are computed again.
"""

from __future__ import annotations

from tensorexpr.algebra.before import with_states_before
from tensorexpr.algebra.boxes import with_boxes_apart
from tensorexpr.algebra.carries import without_carries
from tensorexpr.algebra.keyed.borders import without_clamps
from tensorexpr.algebra.keyed.chosen import with_chosen_points
from tensorexpr.algebra.keyed.few import with_few_keys
from tensorexpr.algebra.keyed.keys import with_sums_by_key
from tensorexpr.algebra.keyed.masks import without_masks
from tensorexpr.algebra.keyed.places import with_sums_by_place
from tensorexpr.algebra.keyed.sent import sent_apart, with_sent_values
from tensorexpr.algebra.layouts.copies import with_copies_read
from tensorexpr.algebra.layouts.joined import with_products_joined
from tensorexpr.algebra.layouts.rings import with_rows
from tensorexpr.algebra.layouts.scattered import with_scatters_turned
from tensorexpr.algebra.layouts.slices import with_slices
from tensorexpr.algebra.layouts.steps import turned_operands, with_operands_turned
from tensorexpr.algebra.layouts.turned import with_axes_turned
from tensorexpr.algebra.layouts.winners import with_narrow_winners
from tensorexpr.algebra.logarithms import without_logarithms
from tensorexpr.algebra.products import with_factors_grouped, with_products_apart, with_products_in_order
from tensorexpr.algebra.recurrences import share_terms, with_recurrences
from tensorexpr.algebra.sums import with_narrow_factors, with_narrow_sums
from tensorexpr.algebra.supports import narrowed_to, supports_of, with_supports

__all__ = [
    "narrowed_to",
    "sent_apart",
    "share_terms",
    "supports_of",
    "turned_operands",
    "with_chosen_points",
    "with_copies_read",
    "with_factors_grouped",
    "with_few_keys",
    "with_axes_turned",
    "with_boxes_apart",
    "with_narrow_factors",
    "with_narrow_sums",
    "with_narrow_winners",
    "with_operands_turned",
    "with_products_apart",
    "with_products_in_order",
    "with_products_joined",
    "with_recurrences",
    "with_rows",
    "with_scatters_turned",
    "with_sent_values",
    "with_slices",
    "with_states_before",
    "with_sums_by_key",
    "with_sums_by_place",
    "with_supports",
    "without_carries",
    "without_clamps",
    "without_logarithms",
    "without_masks",
]
