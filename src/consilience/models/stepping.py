"""Walking over the cells of a step: the room to work in, where each operand stands, and moving on."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.models.program import Program

FUSED = 3
"""The most operands that a kernel for rows takes at once; there is room for so many even where a step has fewer."""


class Workspace(NamedTuple):
    """Room for one thread: rows as long as the longest axis, and where the operands of a step stand."""

    row: NDArray[np.float64]
    second_row: NDArray[np.float64]
    weights: NDArray[np.float64]
    sums: NDArray[np.float64]
    at_in: NDArray[np.int64]
    in_steps: NDArray[np.int64]
    at_out: NDArray[np.int64]
    out_steps: NDArray[np.int64]
    counters: NDArray[np.int64]
    nothing: NDArray[np.float64]
    """An empty vector, in place of one that a kernel can do without."""

    @staticmethod
    def of(program: Program) -> "Workspace":
        """Room for every step of a program."""
        longest = int(program.dims.max())
        most_in = max(FUSED, int(np.diff(program.inputs).max()))
        most_out = max(FUSED, int(np.diff(program.outputs).max()))
        return Workspace(
            row=np.zeros(longest),
            second_row=np.zeros(longest),
            weights=np.zeros(longest),
            sums=np.zeros(longest),
            at_in=np.zeros(most_in, dtype=np.int64),
            in_steps=np.zeros(most_in, dtype=np.int64),
            at_out=np.zeros(most_out, dtype=np.int64),
            out_steps=np.zeros(most_out, dtype=np.int64),
            counters=np.zeros(program.in_strides.shape[1], dtype=np.int64),
            nothing=np.zeros(0),
        )


@numba.njit(nogil=True, cache=True, error_model="numpy")
def advance(dims, axis, counters, in_strides, at_in, out_strides, at_out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Move on along an axis, and along those before it where it is at its end; False after the last cell."""
    while axis >= 0:
        counters[axis] += 1
        moves = 1
        if counters[axis] == dims[axis]:
            counters[axis] = 0
            moves = 1 - dims[axis]
        for j in range(in_strides.shape[0]):
            at_in[j] += moves * in_strides[j, axis]
        for j in range(out_strides.shape[0]):
            at_out[j] += moves * out_strides[j, axis]
        if moves == 1:
            return True
        axis -= 1
    return False
