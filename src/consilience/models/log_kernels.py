"""The two passes on logarithms, for potentials whose exponentials no floating-point number holds together.

Tables, messages and what a parent knows are logarithms here, each less its largest entry; −∞ is an impossible cell. A
message is the logarithm of a sum of exponentials, taken around its largest term: one sweep over the cells finds that
term for every entry of the message, another adds up. Marginals are numbers: what underflows in them is below 1e-300 of
the total. The same pass without the sums gives the largest exponent of all cells (max-sum, Dawid 1992).
"""

import math

import numba
import numpy as np

from consilience.models.row_kernels import largest_entry, scale
from consilience.models.sweeps import EXPONENTIALS, LARGEST, sweep


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
