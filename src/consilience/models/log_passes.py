"""One sweep over the cells of a step, in every form but the fastest: largest sums, sums of exponentials, derivatives.

The fast kernel for sums of products is in `passes`. What is here is used when numbers are too far apart for
that one, for largest exponents, and for derivatives; it goes row by row through rows of its own.
"""

import math

import numba
import numpy as np

from consilience.models.passes import (
    FLOOR,
    add,
    exponential,
    fill,
    largest_entry,
    multiply,
    raise_to,
    scale,
    subtract,
    total_of,
)
from consilience.models.program import advance

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


# ----------------------------------------------------------------------------------------------------------------------
# The two passes on logarithms, for potentials whose exponentials no floating-point number holds together.
#
# Tables, messages and what a parent knows are logarithms here, each less its largest entry; −∞ is an impossible cell. A
# message is the logarithm of a sum of exponentials, taken around its largest term: one sweep over the cells finds that
# term for every entry of the message, another adds up. Marginals are numbers: what underflows in them is below 1e-300
# of the total. The same pass without the sums gives the largest exponent of all cells (max-sum, Dawid 1992).


@numba.njit(nogil=True, cache=True, error_model="numpy")
def shift_tables(offsets, potentials, tables, shifts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """θ − max θ for each table, with the maxima as shifts."""
    for k in range(offsets.size - 1):
        shifts[k] = largest_entry(potentials[offsets[k] : offsets[k + 1]])
        for i in range(offsets[k], offsets[k + 1]):
            tables[i] = potentials[i] - shifts[k]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def run_log_steps(program, going_in, coming_out, scales, total, only_largest, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Both passes, or the first one with maxima in place of sums; all on logarithms.

    The scales are those of the messages and the logarithms of the sums (or the largest terms) of the roots. They are −∞
    where no cell is possible.
    """
    largest, exponentials, none = np.int64(LARGEST), np.int64(EXPONENTIALS), room.nothing
    for s in range(program.message.size):
        first_out, last_out = program.outputs[s], program.outputs[s + 1]
        begin = program.tables + program.message[s]
        end = begin + program.message_cells[s]
        sent, sums = going_in[begin:end], coming_out[begin:end]
        size = scales[program.nodes[s] : program.nodes[s] + 1]
        if s < program.collects:
            sweep(largest, program, s, first_out, last_out, going_in, 0.0, none, none, going_in, room)
            if not only_largest:
                _replace_impossible(sent)
                sweep(exponentials, program, s, first_out, last_out, going_in, 0.0, going_in, none, coming_out, room)
                _add_logarithms(sent, sums)
            size[0] = largest_entry(sent)
            if size[0] == -np.inf:
                return
            for i in range(sent.size):
                sent[i] -= size[0]
        elif program.is_root[s]:
            slot = last_out - 1
            sweep(largest, program, s, slot, last_out, going_in, 0.0, none, none, coming_out, room)
            size[0] = sums[0]
            if size[0] == -np.inf:
                return
            if not only_largest:
                sweep(exponentials, program, s, first_out, last_out, going_in, size[0], none, none, coming_out, room)
                size[0] += math.log(sums[0])
                factor = total / sums[0]
                for j in range(first_out, last_out):
                    scale(coming_out[program.out_base[j] : program.out_base[j] + program.out_cells[j]], factor)
        elif not only_largest:
            known = coming_out[begin + program.messages : end + program.messages]
            passed = going_in[begin + program.messages : end + program.messages]
            for i in range(sent.size):
                passed[i] = math.log(known[i]) - (sent[i] + size[0]) if known[i] > 0.0 else -np.inf
            sweep(exponentials, program, s, first_out, last_out, going_in, 0.0, none, none, coming_out, room)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _replace_impossible(largest):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Zero in place of −∞: the sum of exponentials around it is zero all the same."""
    for i in range(largest.size):
        if largest[i] == -np.inf:
            largest[i] = 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_logarithms(largest, sums):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    for i in range(sums.size):
        largest[i] = largest[i] + math.log(sums[i]) if sums[i] > 0.0 else -np.inf


# ----------------------------------------------------------------------------------------------------------------------
# How marginals move when potentials do: the derivative of both passes along a direction.
#
# Let every operand x_j come with the tangent a_j of its logarithm, so that the product t = Π x_j has tangent Σ a_j.
# Then
#
#     message          m(s) = Σ t(x)      has tangent    Σ t(x) a(x) / m(s),
#     marginal         y(s) = Σ t(x)      changes by     Σ t(x) a(x),
#     passed on        p(s) / m(s)        has tangent    that of p less that of m,
#
# and at a root the mean of a under the model is taken away, since the total stays. The result for all tables is the
# covariance of their cells with the direction (forward-mode differentiation; nothing is approximated).


@numba.njit(nogil=True, cache=True, error_model="numpy")
def run_tangent_steps(program, logarithmic, going_in, coming_out, scales, total, tangents, changes, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Both passes on tangents, after both passes on numbers or on logarithms have left their vectors."""
    kind = np.int64(EXPONENTIALS if logarithmic else PRODUCTS)
    for s in range(program.message.size):
        first_out, last_out = program.outputs[s], program.outputs[s + 1]
        begin = program.tables + program.message[s]
        end = begin + program.message_cells[s]
        down = program.messages
        scale = scales[program.nodes[s]]
        if s < program.collects:
            # With the whole message as shift, the exponentials are conditional probabilities.
            shifts = going_in if logarithmic else room.nothing
            sweep(kind, program, s, first_out, last_out, going_in, scale, shifts, tangents, changes, room)
            for i in range(begin, end):
                if logarithmic:
                    tangents[i] = changes[i] if going_in[i] > -np.inf else 0.0
                else:
                    tangents[i] = changes[i] / coming_out[i] if coming_out[i] > FLOOR * scale else 0.0
        elif program.is_root[s]:
            sweep(kind, program, s, first_out, last_out, going_in, scale, room.nothing, tangents, changes, room)
            factor = total if logarithmic else total / scale
            mean = changes[begin] * factor / total
            for j in range(first_out, last_out):
                for i in range(program.out_base[j], program.out_base[j] + program.out_cells[j]):
                    changes[i] = changes[i] * factor - mean * coming_out[i]
        else:
            for i in range(begin, end):
                known = coming_out[i + down]
                tangents[i + down] = changes[i + down] / known - tangents[i] if known > 0.0 else 0.0
            sweep(kind, program, s, first_out, last_out, going_in, 0.0, room.nothing, tangents, changes, room)
