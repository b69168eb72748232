"""The marginals of a model, from its potentials: belief propagation on a junction tree.

A model over attributes x = (x₀ … x_{d−1}) has a table of potentials θ_s for each of its scopes s:

    p(x) = total · exp(Σ_s θ_s(x_s)) / Z    where x is possible, and 0 elsewhere;    log Z is its log-partition.

The marginals of p on all scopes come from two passes over the cliques of a junction tree that covers them. The passes
run on numbers, several times faster, and once more on logarithms where numbers cannot hold the products.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.compilation import MOST_THREADS, available_cores
from consilience.models import passes
from consilience.models.junction_trees import JunctionTree
from consilience.models.passes import CLOSE, FAILED, FLOOR, OPEN, RAISED, RUN
from consilience.models.program import (
    Allowed,
    Program,
    Workspace,
    compile_tree,
    fold_into_scopes,
    known_program,
    nothing_possible,
    possible_messages,
)
from consilience.models.tables import TableLayout

# ----------------------------------------------------------------------------------------------------------------------
# Large steps in parts, one for each core: which axis to divide, and running the parts at the same time.
#
# Dividing an axis of a step makes parts that are steps themselves, with shorter loops that begin further on. Operands
# that come out and have the axis are divided with it. The others get a copy for each part but the first, to be added up
# after; the axis is chosen so that these are small.


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


# ----------------------------------------------------------------------------------------------------------------------
# The marginals of a model, from its potentials.


Vector = NDArray[np.float64]

MOST_RAISED = 1e-13
"""The share of the total that may lie on raised entries of messages before logarithms take over."""


@dataclass(frozen=True)
class Marginals:
    """The marginals of a model on its scopes, and the logarithm of its partition sum."""

    values: Vector
    """All tables in one vector as the layout of the oracle says; each sums to the total. It belongs to the caller."""
    log_partition: float
    """log Σ_x exp(Σ_s θ_s(x_s)) over the possible cells x of the attributes in the junction tree."""


class MarginalOracle:
    """Gives the marginals of a model on its scopes for any potentials.

    `allowed` holds scopes and, for each, a table that is false where a cell cannot occur; the junction tree must cover
    these scopes too. An oracle keeps its working memory between calls: it serves one thread at a time.

    >>> from consilience.models.junction_trees import junction_tree
    >>> scopes = [(0, 1), (1, 2)]
    >>> oracle = MarginalOracle(junction_tree([2, 2, 2], scopes), scopes, total=8.0)
    >>> found = oracle.marginals(oracle.layout.pack([[[0, 0], [0, 0]], [[0, 0], [0, math.log(5)]]]))
    >>> oracle.layout.unpack(found.values)
    [array([[1., 3.],
           [1., 3.]]), array([[1., 1.],
           [1., 5.]])]
    """

    def __init__(
        self,
        tree: JunctionTree,
        scopes: Sequence[Sequence[int]],
        *,
        total: float = 1.0,
        allowed: Allowed = (),
        threads: int | None = None,
    ) -> None:
        if not (math.isfinite(total) and total > 0):
            raise DeclarationError(f"the total of the model is {total}; it must be a positive number")
        self.tree = tree
        self.layout = TableLayout(tree.sizes, scopes)
        self.total = float(total)
        self.allowed = tuple(allowed)
        self._impossible, constants = fold_into_scopes(self.layout, allowed)
        known = None if constants else known_program(tree, self.layout.scopes)
        self._compiled = compile_tree(tree, self.layout, constants) if known is None else known
        program = self._program = self._compiled.program
        used = program.tables + 2 * program.messages
        self._going_in = np.zeros(used + len(self._compiled.constants))
        threads = min(available_cores(), MOST_THREADS) if threads is None else threads
        self._division = divide(program, self._compiled.cells, threads, used)
        self._coming_out = np.zeros(used + (self._division.copied if self._division else 0))
        self._constants = slice(used, None)
        self._scales = np.zeros(self._compiled.nodes)
        self._shifts = np.zeros(len(self.layout.scopes))
        self._room = Workspace.of(program)
        self._going_in[self._constants] = self._compiled.constants
        self._floors = np.full(program.messages, FLOOR)
        self._excluded: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._any_excluded = False
        self._logarithmic = False
        self._held: Vector | None = None
        if constants or self._impossible.size:
            self._exclude(self._with_impossible(np.zeros(self.layout.size)))

    def marginals(self, potentials: Vector) -> Marginals:
        """The marginals on all scopes and the logarithm of the partition sum. Potentials may be −∞: impossible."""
        self._held = None
        self._run(self._checked(potentials))
        log_partition = self._compiled.log_volume + self._log_scales()
        return Marginals(self._coming_out[: self.layout.size].copy(), log_partition)

    def largest(self, potentials: Vector) -> float:
        """The largest Σ_s θ_s(x_s) over all possible cells x, exactly (max-sum)."""
        self._held = None
        potentials = self._with_impossible(self._checked(potentials))
        _refuse_undefined(potentials)
        self._run_logarithms(potentials, only_largest=True)
        if np.isneginf(self._shifts).any() or np.isneginf(self._scales).any():
            raise nothing_possible()
        return self._log_scales()

    def derivative(self, potentials: Vector, direction: Vector) -> Vector:
        """How fast the marginals change as the potentials move along a direction, exactly.

        This is d/dt marginals(θ + t·direction) at t = 0. Several directions at the same potentials share the work that
        does not depend on the direction.
        """
        potentials, direction = self._checked(potentials), self._checked(direction)
        if not np.isfinite(direction).all():
            raise DeclarationError("the direction has entries that are not finite: give a finite direction")
        if self._held is None or not np.array_equal(self._held, potentials):
            self._run(potentials)
            self._held = potentials.copy()
        program = self._program
        tangents = np.zeros_like(self._going_in)
        tangents[: self.layout.size] = direction
        changes = np.zeros_like(self._coming_out)
        passes.run_tangent_steps(
            program, self._logarithmic, self._going_in, self._coming_out, self._scales, self.total,
            tangents, changes, self._room,
        )  # fmt: skip
        return changes[: self.layout.size].copy()

    def _checked(self, values: Vector) -> Vector:
        values = np.ascontiguousarray(values, dtype=np.float64)
        if values.shape != (self.layout.size,):
            raise DeclarationError(
                f"a vector of shape {values.shape} for tables of {self.layout.size} cells in all: pack one table for "
                f"each of the {len(self.layout.scopes)} scopes with layout.pack"
            )
        return values

    def _with_impossible(self, potentials: Vector) -> Vector:
        """The potentials with −∞ in the cells that are never possible."""
        if not self._impossible.size:
            return potentials
        potentials = potentials.copy()
        potentials[self._impossible] = -np.inf
        return potentials

    def _run(self, potentials: Vector) -> None:
        """Leave the marginals in what comes out, by numbers or else by logarithms."""
        potentials = self._with_impossible(potentials)
        self._going_in[self._constants] = self._compiled.constants
        unbounded = passes.exponentiate(self.layout.offsets, potentials, self._going_in, self._shifts)
        if (unbounded or self._any_excluded) and self._exclude(potentials):
            passes.exponentiate(self.layout.offsets, potentials, self._going_in, self._shifts)
        verdict = self._run_numbers()
        self._logarithmic = bool(verdict[FAILED] or verdict[RAISED] > MOST_RAISED * self.total)
        if self._logarithmic:
            self._run_logarithms(potentials, only_largest=False)

    def _run_numbers(self) -> Vector:
        """Run all steps on numbers, the large ones in parts at the same time; the verdict of `passes`."""
        verdict = np.zeros(2)
        done, division = 0, self._division
        if division is not None:
            for divided in division.steps:
                self._run_steps(done, divided.step, OPEN | RUN | CLOSE, verdict)
                if verdict[FAILED]:
                    return verdict
                self._run_steps(divided.step, divided.step + 1, OPEN, verdict)
                run_together([partial(self._run_part, division, part) for part in divided.parts])
                for whole, copy in divided.copies:
                    self._coming_out[whole] += self._coming_out[copy]
                    self._coming_out[copy] = 0.0
                self._run_steps(divided.step, divided.step + 1, CLOSE, verdict)
                done = divided.step + 1
        if not verdict[FAILED]:
            self._run_steps(done, len(self._program.message), OPEN | RUN | CLOSE, verdict)
        return verdict

    def _run_part(self, division: Division, part: int) -> None:
        passes.run_steps(
            division.program, part, part + 1, RUN, self._going_in, self._coming_out,
            self._floors, self._scales, self.total, np.zeros(2), division.rooms[part],
        )  # fmt: skip

    def _run_steps(self, first: int, last: int, doing: int, verdict: Vector) -> None:
        passes.run_steps(
            self._program, first, last, doing, self._going_in, self._coming_out,
            self._floors, self._scales, self.total, verdict, self._room,
        )  # fmt: skip

    def _run_logarithms(self, potentials: Vector, *, only_largest: bool) -> None:
        self._logarithmic = True
        passes.shift_tables(self.layout.offsets, potentials, self._going_in, self._shifts)
        with np.errstate(divide="ignore"):
            self._going_in[self._constants] = np.log(self._compiled.constants)
        passes.run_log_steps(
            self._program, self._going_in, self._coming_out, self._scales, self.total, only_largest, self._room
        )

    def _log_scales(self) -> float:
        """The logarithm of what tables, messages and roots were divided by."""
        scales = self._scales if self._logarithmic else np.log(self._scales)
        return float(self._shifts.sum() + scales.sum())

    def _exclude(self, potentials: Vector) -> bool:
        """Find the entries of messages that −∞ among the potentials makes impossible: these are never raised.

        False where the same potentials were −∞ the last time. Otherwise the tables that go in are written over.
        """
        _refuse_undefined(potentials)
        excluded = np.isneginf(potentials)
        if np.array_equal(excluded, self._excluded):
            return False
        self._going_in[: self.layout.size] = ~excluded
        verdict = np.zeros(2)
        self._excluded = np.zeros(0, dtype=np.bool_)
        possible = possible_messages(
            self._program, self._going_in, self._coming_out, lambda s: self._run_steps(s, s + 1, OPEN | RUN, verdict)
        )
        self._floors = np.where(possible, FLOOR, 0.0)
        self._excluded, self._any_excluded = excluded, bool(excluded.any())
        return True


def _refuse_undefined(potentials: Vector) -> None:
    undefined = np.flatnonzero(np.isnan(potentials) | np.isposinf(potentials))
    if undefined.size:
        raise DeclarationError(
            f"{undefined.size} potentials are NaN or +∞, the first at place {undefined[0]}: potentials are numbers, "
            "or −∞ for what cannot occur"
        )


# ----------------------------------------------------------------------------------------------------------------------
# What optimisers ask of an oracle of marginals, and how often they asked.


Array = NDArray[np.float64]


class Oracle(Protocol):
    """The marginals of a model, and the largest potential of a cell, as `MarginalOracle` gives them."""

    @property
    def layout(self) -> TableLayout: ...

    @property
    def total(self) -> float: ...

    def marginals(self, potentials: Array) -> Marginals: ...

    def largest(self, potentials: Array) -> float: ...

    def derivative(self, potentials: Array, direction: Array) -> Array: ...


@dataclass
class CountedOracle:
    """An oracle that counts its calls."""

    oracle: Oracle
    calls: int = 0

    @property
    def layout(self) -> TableLayout:
        return self.oracle.layout

    @property
    def total(self) -> float:
        return self.oracle.total

    def marginals(self, potentials: Array) -> Marginals:
        self.calls += 1
        return self.oracle.marginals(potentials)

    def largest(self, potentials: Array) -> float:
        self.calls += 1
        return self.oracle.largest(potentials)

    def derivative(self, potentials: Array, direction: Array) -> Array:
        self.calls += 1
        return self.oracle.derivative(potentials, direction)


# ----------------------------------------------------------------------------------------------------------------------
# The marginals of weighted records, from potentials: what `MarginalOracle` is for cells.


class RecordOracle:
    """Gives the marginals on some scopes of the records, weighted by u·exp(Σ_s θ_s) and scaled to the total."""

    def __init__(self, layout: TableLayout, codes: NDArray[np.int64], shares: Vector, total: float) -> None:
        self.layout, self.total = layout, total
        self._logs = np.log(shares / shares.sum())
        places = np.empty((len(codes), len(layout.scopes)), dtype=np.int32 if layout.size < 2**31 else np.int64)
        for k, axes in enumerate(layout.axes):
            shape = tuple(layout.sizes[axis] for axis in axes)
            places[:, k] = layout.offsets[k] + np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), shape)
        starts = len(layout.scopes) * np.arange(len(codes) + 1)
        # A row for each record with a one at each of its cells: potentials add up, and weights are added to marginals.
        self._cells = sp.csr_array((np.ones(places.size), places.ravel(), starts), shape=(len(codes), layout.size))
        self._records = self._cells.T

    def marginals(self, potentials: Vector) -> Marginals:
        """The marginals, and the logarithm of the sum of all weights."""
        weights, log_sum = self._weighted(potentials)
        return Marginals(self._records @ weights, log_sum)

    def largest(self, potentials: Vector) -> float:
        """The largest Σ_s θ_s of a record."""
        return float((self._cells @ potentials).max())

    def derivative(self, potentials: Vector, direction: Vector) -> Vector:
        """How fast the marginals change as the potentials move along a direction."""
        weights, _ = self._weighted(potentials)
        along = self._cells @ direction
        return self._records @ (weights * (along - float(weights @ along) / self.total))

    def weights(self, potentials: Vector) -> Vector:
        """The weight of each record."""
        return self._weighted(potentials)[0]

    def _weighted(self, potentials: Vector) -> tuple[Vector, float]:
        logs = self._cells @ potentials
        logs += self._logs
        peak = float(logs.max())
        weights = np.exp(logs - peak)
        whole = float(weights.sum())
        weights *= self.total / whole
        return weights, peak + math.log(whole)
