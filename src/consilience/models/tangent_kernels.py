"""How marginals move when potentials do: the derivative of both passes along a direction.

Let every operand x_j come with the tangent a_j of its logarithm, so that the product t = Π x_j has tangent Σ a_j. Then

    message          m(s) = Σ t(x)      has tangent    Σ t(x) a(x) / m(s),
    marginal         y(s) = Σ t(x)      changes by     Σ t(x) a(x),
    passed on        p(s) / m(s)        has tangent    that of p less that of m,

and at a root the mean of a under the model is taken away, since the total stays. The result for all tables is the
covariance of their cells with the direction (forward-mode differentiation; nothing is approximated).
"""

import numba
import numpy as np

from consilience.models.linear_kernels import FLOOR
from consilience.models.sweeps import EXPONENTIALS, PRODUCTS, sweep


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
