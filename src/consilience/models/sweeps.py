"""One sweep over the cells of a step, in every form but the fastest: largest sums, sums of exponentials, derivatives.

The fast kernel for sums of products is in `linear_kernels`. What is here is used when numbers are too far apart for
that one, for largest exponents, and for derivatives; it goes row by row through rows of its own.
"""

import numba
import numpy as np

from consilience.models.row_kernels import add, exponential, fill, largest_entry, multiply, raise_to, subtract, total_of
from consilience.models.stepping import advance

LARGEST, EXPONENTIALS, PRODUCTS = 0, 1, 2
"""The largest sum of what goes in; the sum of its exponentials; the sum of its products."""


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _combine(values, at, strides, axis, product, row):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row = the sum, or the product, of the operands along one row; those that do not move make one number."""
    still = 1.0 if product else 0.0
    for j in range(strides.shape[0]):
        if strides[j, axis] == 0:
            still = still * values[at[j]] if product else still + values[at[j]]
    fill(row, still)
    for j in range(strides.shape[0]):
        if strides[j, axis] != 0:
            own = values[at[j] : at[j] + row.size]
            if product:
                multiply(row, own)
            else:
                add(row, own)


# With w(x) the product or the exponential of the sum of what goes in, and a(x) the sum of the tangents:
#     largest        y(x_k) ← max(y(x_k), Σ_j x_j)
#     otherwise      y(x_k) ← y(x_k) + w(x) a(x),    a = 1 without tangents,
# where an exponential is taken of the sum less `shift` and less the shift of the first cell x_1 that comes out, if any.
@numba.njit(nogil=True, cache=True, error_model="numpy")
def sweep(kind, program, s, first_out, last_out, going_in, shift, shifts, tangents, into, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Run over all cells of a step once, for some operands that come out, and put those `into` a vector like theirs.

    Shifts lie as what comes out does, tangents as what goes in; either may be empty.
    """
    dims = program.dims[program.axes[s] : program.axes[s + 1]]
    in_strides = program.in_strides[program.inputs[s] : program.inputs[s + 1]]
    out_strides = program.out_strides[first_out:last_out]
    last, length = dims.size - 1, dims[-1]
    i, o, counters = room.at_in, room.at_out, room.counters
    exponents, tangent, row = room.sums[:length], room.second_row[:length], room.row[:length]
    for axis in range(dims.size):
        counters[axis] = 0
    for j in range(in_strides.shape[0]):
        i[j] = program.in_base[program.inputs[s] + j]
    for j in range(out_strides.shape[0]):
        o[j] = program.out_base[first_out + j]
        fill(into[o[j] : o[j] + program.out_cells[first_out + j]], -np.inf if kind == LARGEST else 0.0)
    more = True
    while more:
        if kind == EXPONENTIALS:
            _combine(going_in, i, in_strides, last, False, exponents)
            if shifts.size and out_strides[0, last] == 0:
                exponential(exponents, shift + shifts[o[0]], row)
            else:
                if shifts.size:
                    subtract(exponents, shifts[o[0] : o[0] + length])
                exponential(exponents, shift, row)
        else:
            _combine(going_in, i, in_strides, last, kind == PRODUCTS, row)
        if tangents.size:
            _combine(tangents, i, in_strides, last, False, tangent)
            multiply(row, tangent)
        for j in range(out_strides.shape[0]):
            still = out_strides[j, last] == 0
            own = into[o[j] : o[j] + 1] if still else into[o[j] : o[j] + length]
            if kind == LARGEST and still:
                own[0] = max(own[0], largest_entry(row))
            elif kind == LARGEST:
                raise_to(own, row)
            elif still:
                own[0] += total_of(row)
            else:
                add(own, row)
        more = advance(dims, last - 1, counters, in_strides, i, out_strides, o)
