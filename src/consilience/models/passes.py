"""The two passes over a junction tree: on numbers, on logarithms, and on the tangents of both.

First what is done to rows of cells: exponentials, maxima, sums and products. Each is a function of its own for a
reason: a loop over one row inside other loops is not always compiled to run several cells at a time, and these are.
"""

import math

import numpy as np

from consilience.kernels.kernel_cache import njit
from consilience.models.program import advance

REORDERED = {"contract", "reassoc", "nsz", "arcp", "nnan"}
"""Sums may be taken in any order, and no number is NaN."""

_LEAST_EXPONENT = -708.0
_ROUND = 6755399441055744.0  # 1.5 · 2^52: adding and subtracting it rounds to a whole number


# exp x = 2^n · exp r with n = round(x / log 2), |r| ≤ log(2)/2. The Taylor polynomial of degree 13 is exact to 5e-18
# there, so the result is within two units in the last place. The sum that rounds leaves n in its lowest bits, from
# where it moves into the exponent. Flags that reorder sums would break both: only fused multiply-adds are allowed.
@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def exponential(values, shift, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """out = exp(values − shift), zero below 1e-307 and for NaN; the number of values that are not finite."""
    unbounded = 0
    for i in range(values.size):
        unbounded += (np.float64(values[i]).view(np.int64) >> np.int64(52)) & np.int64(2047) == np.int64(2047)
        x = values[i] - shift
        kept = x if x > _LEAST_EXPONENT else _LEAST_EXPONENT
        rounded = kept * 1.4426950408889634 + _ROUND
        n = rounded - _ROUND
        r = kept - n * 6.93147180369123816490e-01
        r -= n * 1.90821492927058770002e-10
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        power = (np.float64(rounded).view(np.int64) + np.int64(1023)) << np.int64(52)
        out[i] = p * np.int64(power).view(np.float64) if x > _LEAST_EXPONENT else 0.0
    return unbounded


# Floating-point numbers are ordered as their bits are when read as integers, once those below zero are mirrored; and a
# maximum of integers runs several at a time, which one of floating-point numbers, with their NaN, does not.
@njit(nogil=True, cache=True, error_model="numpy")
def largest_entry(values):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The largest of some numbers."""
    top = np.int64(-(2**63))
    for i in range(values.size):
        bits = np.float64(values[i]).view(np.int64)
        bits ^= (bits >> np.int64(63)) & np.int64(2**63 - 1)
        top = max(top, bits)
    top ^= (top >> np.int64(63)) & np.int64(2**63 - 1)
    return np.int64(top).view(np.float64)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
def total_of(row):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The sum of a row."""
    total = 0.0
    for i in range(row.size):
        total += row[i]
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def fill(row, value):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Every entry becomes the value."""
    for i in range(row.size):
        row[i] = value


@njit(nogil=True, cache=True, error_model="numpy")
def scale(row, factor):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Every entry times a factor."""
    for i in range(row.size):
        row[i] *= factor


@njit(nogil=True, cache=True, error_model="numpy")
def add(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row + other, in row."""
    for i in range(row.size):
        row[i] += other[i]


@njit(nogil=True, cache=True, error_model="numpy")
def subtract(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row − other, in row."""
    for i in range(row.size):
        row[i] -= other[i]


@njit(nogil=True, cache=True, error_model="numpy")
def multiply(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row · other, in row."""
    for i in range(row.size):
        row[i] *= other[i]


@njit(nogil=True, cache=True, error_model="numpy")
def raise_to(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The larger of both, in row."""
    for i in range(row.size):
        row[i] = other[i] if other[i] > row[i] else row[i]


# ----------------------------------------------------------------------------------------------------------------------
# The two passes on the numbers themselves, with every table and message scaled so that its largest entry is one.
#
# *Scales.* A table is exp(θ − max θ). A message m is divided by its largest entry M; the logarithms of these scales and
# of the sums of the roots add up to the logarithm of the partition sum. A separator with message m/M whose marginal
# turned out to be p passes p/m on to the child, so that the products there sum to p (Jensen, Lauritzen, Olesen 1990).
#
# *When this is exact enough.* All entries are at most one, so a product that underflows loses less than 1e-300. While
# every M and every root's sum is at least LEAST_MAXIMUM, an entry m/M above FLOOR is therefore as good as if nothing
# had been lost. Entries below FLOOR are raised to it where they are possible at all. Let p' be the distribution that
# results and A the cells with a raised entry: p' agrees with the true p up to a factor outside A, and has more than p
# inside, so the two differ by p'(A) at most, half the sum of absolute differences. The second pass meets A as the mass
# of raised entries and adds it up. Where a scale is too small or that mass is not negligible, the logarithms take over.


FLOOR = 1e-150
LEAST_MAXIMUM = 1e-100

RAISED, FAILED = 0, 1
"""Places in the verdict: the mass on raised entries, and whether a scale was too small."""

OPEN, RUN, CLOSE = 1, 2, 4
"""What to do of a step: pass on what the parent knows; add up products; scale what came out."""


@njit(nogil=True, cache=True, error_model="numpy")
def exponentiate(offsets, potentials, tables, shifts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """exp(θ − max θ) for each table, with the maxima as shifts; counts the potentials that are not finite."""
    unbounded = 0
    for k in range(offsets.size - 1):
        own = potentials[offsets[k] : offsets[k + 1]]
        shifts[k] = largest_entry(own)
        unbounded += exponential(own, shifts[k], tables[offsets[k] : offsets[k + 1]])
    return unbounded


def _fused_rows(moving_in: int, moving_out: int):  # type: ignore[no-untyped-def]
    """A kernel for rows of products of two or three operands that move, added to none to three that do.

    The numbers are constants of the kernel, so that each has only the loads and stores it needs. Operand j of row a
    begins at i[j] + a·di[j], or at o[j] + a·do[j] where it comes out.
    """

    @njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
    def rows(going_in, coming_out, count, length, weights, sums, i, di, o, do):  # type: ignore[no-untyped-def]  # pragma: no cover
        i0, i1, i2, di0, di1, di2 = i[0], i[1], i[2], di[0], di[1], di[2]
        o0, o1, o2, do0, do1, do2 = o[0], o[1], o[2], do[0], do[1], do[2]
        for a in range(count):
            x0 = going_in[i0 + a * di0 : i0 + a * di0 + length]
            x1 = going_in[i1 + a * di1 : i1 + a * di1 + length]
            x2 = going_in[i2 + a * di2 : i2 + a * di2 + length]
            y0 = coming_out[o0 + a * do0 : o0 + a * do0 + length]
            y1 = coming_out[o1 + a * do1 : o1 + a * do1 + length]
            y2 = coming_out[o2 + a * do2 : o2 + a * do2 + length]
            weight, total = weights[a], 0.0
            for c in range(length):
                t = weight * x0[c] * x1[c]
                if moving_in > 2:
                    t *= x2[c]
                if moving_out > 0:
                    y0[c] += t
                if moving_out > 1:
                    y1[c] += t
                if moving_out > 2:
                    y2[c] += t
                total += t
            sums[a] = total

    return rows


_rows_2_0, _rows_2_1, _rows_2_2 = _fused_rows(2, 0), _fused_rows(2, 1), _fused_rows(2, 2)
_rows_3_0, _rows_3_2, _rows_3_3 = _fused_rows(3, 0), _fused_rows(3, 2), _fused_rows(3, 3)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
def _any_rows(going_in, coming_out, count, weights, sums, row, i, di, o, do, moving_in, moving_out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The same for any number of operands that move, through a row of products."""
    for a in range(count):
        fill(row, weights[a])
        for j in range(moving_in):
            multiply(row, going_in[i[j] + a * di[j] : i[j] + a * di[j] + row.size])
        sums[a] = total_of(row)
        for j in range(moving_out):
            add(coming_out[o[j] + a * do[j] : o[j] + a * do[j] + row.size], row)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
def _pass_on(known, sent, scale, passed):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """passed = known / (scale · sent), and the sum of what is known of raised entries."""
    raised, inverse = 0.0, 1.0 / scale
    for i in range(known.size):
        raised += known[i] if sent[i] == FLOOR else 0.0
        # Impossible entries are zero in both, and stay zero.
        passed[i] = known[i] * inverse / (sent[i] if sent[i] > 0.0 else 1.0)
    return raised


@njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
def _send(message, floors, sent):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """sent = message / max, at least the floors; the maximum."""
    top = largest_entry(message)
    inverse = 1.0 / top
    for i in range(message.size):
        scaled = message[i] * inverse
        sent[i] = scaled if scaled > floors[i] else floors[i]
    return top


# Two axes at a time: for each place of the axes before them, the operands that do not move along the last axis are
# multiplied into a weight for each row, the rows are run, and the sums of rows go to what does not move along the last
# axis.
@njit(nogil=True, cache=True, error_model="numpy")
def _add_products(dims, in_base, in_strides, moving_in, out_base, out_strides, moving_out, going_in, coming_out, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add the products of what goes in to what comes out, for all cells of a step."""
    i, o, di, do = room.at_in, room.at_out, room.in_steps, room.out_steps
    weights, sums, counters = room.weights, room.sums, room.counters
    inner = dims.size - 2
    count, length = dims[inner], dims[inner + 1]
    row = room.row[:length]
    for axis in range(dims.size):
        counters[axis] = 0
    for j in range(in_base.size):
        i[j], di[j] = in_base[j], in_strides[j, inner]
    for j in range(out_base.size):
        o[j], do[j] = out_base[j], out_strides[j, inner]
    shape = 10 * moving_in + moving_out
    more = True
    while more:
        for a in range(count):
            weights[a] = 1.0
        for j in range(moving_in, in_base.size):
            for a in range(count):
                weights[a] *= going_in[i[j] + a * di[j]]
        if shape == 20:
            _rows_2_0(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        elif shape == 21:
            _rows_2_1(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        elif shape == 22:
            _rows_2_2(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        elif shape == 30:
            _rows_3_0(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        elif shape == 32:
            _rows_3_2(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        elif shape == 33:
            _rows_3_3(going_in, coming_out, count, length, weights, sums, i, di, o, do)
        else:
            _any_rows(going_in, coming_out, count, weights, sums, row, i, di, o, do, moving_in, moving_out)
        for j in range(moving_out, out_base.size):
            for a in range(count):
                coming_out[o[j] + a * do[j]] += sums[a]
        more = advance(dims, inner - 1, counters, in_strides, i, out_strides, o)


@njit(nogil=True, cache=True, error_model="numpy")
def run_steps(program, first, last, doing, going_in, coming_out, floors, scales, total, verdict, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Do what is asked of steps first … last − 1, or of fewer where one fails."""
    for s in range(first, last):
        begin, node = program.message[s], program.nodes[s]
        end = begin + program.message_cells[s]
        up, down = program.tables, program.tables + program.messages
        first_in, last_in = program.inputs[s], program.inputs[s + 1]
        first_out, last_out = program.outputs[s], program.outputs[s + 1]
        sent = going_in[up + begin : up + end]
        if doing & OPEN:
            for j in range(first_out, last_out):
                fill(coming_out[program.out_base[j] : program.out_base[j] + program.out_cells[j]], 0.0)
            if s >= program.collects and not program.is_root[s]:
                known, passed = coming_out[down + begin : down + end], going_in[down + begin : down + end]
                verdict[RAISED] += _pass_on(known, sent, scales[node], passed)
        if doing & RUN:
            _add_products(
                program.dims[program.axes[s] : program.axes[s + 1]],
                program.in_base[first_in:last_in], program.in_strides[first_in:last_in], program.in_moving[s],
                program.out_base[first_out:last_out], program.out_strides[first_out:last_out], program.out_moving[s],
                going_in, coming_out, room,
            )  # fmt: skip
        if doing & CLOSE:
            if s < program.collects:
                scales[node] = _send(coming_out[up + begin : up + end], floors[begin:end], sent)
            elif program.is_root[s]:
                scales[node] = coming_out[up + begin]
                for j in range(first_out, last_out):
                    own = coming_out[program.out_base[j] : program.out_base[j] + program.out_cells[j]]
                    scale(own, total / scales[node])
            if not scales[node] >= LEAST_MAXIMUM:
                verdict[FAILED] = 1.0
                return


# ----------------------------------------------------------------------------------------------------------------------
# One sweep over the cells of a step, in every form but the fastest: largest sums, sums of exponentials, derivatives.
#
# It is used where numbers are too far apart for the fast kernel above, for largest exponents, and for derivatives, and
# goes row by row through rows of its own.


LARGEST, EXPONENTIALS, PRODUCTS = 0, 1, 2
"""The largest sum of what goes in; the sum of its exponentials; the sum of its products."""


@njit(nogil=True, cache=True, error_model="numpy")
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
@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def shift_tables(offsets, potentials, tables, shifts):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """θ − max θ for each table, with the maxima as shifts."""
    for k in range(offsets.size - 1):
        shifts[k] = largest_entry(potentials[offsets[k] : offsets[k + 1]])
        for i in range(offsets[k], offsets[k + 1]):
            tables[i] = potentials[i] - shifts[k]


@njit(nogil=True, cache=True, error_model="numpy")
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
                for i in range(sent.size):  # around zero in place of −∞ the sum of exponentials is zero all the same
                    sent[i] = sent[i] if sent[i] > -np.inf else 0.0
                sweep(exponentials, program, s, first_out, last_out, going_in, 0.0, going_in, none, coming_out, room)
                for i in range(sent.size):
                    sent[i] = sent[i] + math.log(sums[i]) if sums[i] > 0.0 else -np.inf
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


@njit(nogil=True, cache=True, error_model="numpy")
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
