"""Large steps in parts, one for each core: which axis to divide, and running the parts at the same time.

Dividing an axis of a step makes parts that are steps themselves, with shorter loops that begin further on. Operands
that come out and have the axis are divided with it. The others get a copy for each part but the first, to be added up
after; the axis is chosen so that these are small.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compilation import MOST_THREADS
from consilience.models.program import Program, Workspace

CELLS_WORTH_DIVIDING = 3_000_000
"""A step with fewer cells takes about a millisecond, of which waking another thread would cost a good part."""


@dataclass(frozen=True)
class DividedStep:
    """A step of a program and its parts, which are steps of a program of parts."""

    step: int
    parts: range
    copies: tuple[tuple[slice, slice], ...]
    """What comes out of the step, and the copy of a part to be added to it."""


@dataclass(frozen=True)
class Division:
    """The large steps of a program in parts."""

    program: Program
    """The parts as steps; they add up products only, and send no messages."""
    steps: tuple[DividedStep, ...]
    copied: int
    """The length of all copies, which lie behind what comes out and are zero between runs."""
    rooms: tuple[Workspace, ...]
    """Room for each part."""


def divide(program: Program, cells: NDArray[np.int64], threads: int, begin: int) -> Division | None:
    """The steps worth dividing in as many parts as there are threads, with copies from place `begin` on."""
    large = np.flatnonzero(cells >= CELLS_WORTH_DIVIDING).tolist() if threads > 1 else []
    parts = _Parts(program, begin)
    steps = tuple(parts.add(step, threads) for step in large)
    if not steps:
        return None
    made = parts.as_program()
    return Division(made, steps, parts.end - begin, tuple(Workspace.of(made) for _ in parts.steps))


class _Parts:
    """Parts of steps as they are made, one after another."""

    def __init__(self, program: Program, begin: int) -> None:
        self.whole = program
        self.end = begin
        self.dims: list[NDArray[np.int64]] = []
        self.in_base: list[NDArray[np.int64]] = []
        self.out_base: list[NDArray[np.int64]] = []
        self.steps: list[int] = []

    def add(self, step: int, threads: int) -> DividedStep:
        whole = self.whole
        dims = whole.dims[whole.axes[step] : whole.axes[step + 1]]
        inputs = slice(whole.inputs[step], whole.inputs[step + 1])
        outputs = slice(whole.outputs[step], whole.outputs[step + 1])
        axis = _axis_to_divide(dims, whole.out_strides[outputs], whole.out_cells[outputs], threads)
        ends = np.linspace(0, dims[axis], min(threads, int(dims[axis])) + 1).astype(np.int64)
        first, copies = len(self.steps), []
        for begin, end in pairwise(ends):
            own_dims = dims.copy()
            own_dims[axis] = end - begin
            out_base = whole.out_base[outputs] + begin * whole.out_strides[outputs, axis]
            for j in np.flatnonzero(whole.out_strides[outputs, axis] == 0) if begin else []:
                size = int(whole.out_cells[outputs][j])
                copies.append((slice(int(out_base[j]), int(out_base[j]) + size), slice(self.end, self.end + size)))
                out_base[j] = self.end
                self.end += size
            self.dims.append(own_dims)
            self.in_base.append(whole.in_base[inputs] + begin * whole.in_strides[inputs, axis])
            self.out_base.append(out_base)
            self.steps.append(step)
        return DividedStep(step, range(first, len(self.steps)), tuple(copies))

    def as_program(self) -> Program:
        whole, steps = self.whole, np.array(self.steps)
        in_rows = np.concatenate([np.arange(whole.inputs[step], whole.inputs[step + 1]) for step in self.steps])
        out_rows = np.concatenate([np.arange(whole.outputs[step], whole.outputs[step + 1]) for step in self.steps])
        return whole._replace(
            axes=np.cumsum([0, *map(len, self.dims)], dtype=np.int64),
            dims=np.concatenate(self.dims),
            inputs=np.cumsum([0, *map(len, self.in_base)], dtype=np.int64),
            in_moving=whole.in_moving[steps],
            in_base=np.concatenate(self.in_base),
            in_strides=whole.in_strides[in_rows],
            outputs=np.cumsum([0, *map(len, self.out_base)], dtype=np.int64),
            out_moving=whole.out_moving[steps],
            out_base=np.concatenate(self.out_base),
            out_strides=whole.out_strides[out_rows],
            out_cells=whole.out_cells[out_rows],
            nodes=whole.nodes[steps],
            is_root=whole.is_root[steps],
            message=whole.message[steps],
            message_cells=whole.message_cells[steps],
        )


def _axis_to_divide(
    dims: NDArray[np.int64], out_strides: NDArray[np.int64], out_cells: NDArray[np.int64], threads: int
) -> int:
    """The axis, but for the last, whose parts are equal and whose copies are small."""
    cells = float(np.prod(dims.astype(np.float64)))

    def cost(axis: int) -> float:
        longest = -(-int(dims[axis]) // threads) / int(dims[axis])
        copied = float(out_cells[out_strides[:, axis] == 0].sum())
        return cells * longest + 2.0 * copied * (threads - 1)

    return min(range(len(dims) - 1), key=cost)


def run_together(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks that release the interpreter, each in a thread, and the first one in this."""
    waiting = [_pool(os.getpid()).submit(task) for task in tasks[1:]]
    tasks[0]()
    for task in waiting:
        task.result()


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads of this process. A forked process has its own: threads do not survive a fork."""
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="consilience-marginals")
