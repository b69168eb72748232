"""Belief propagation on a junction tree, compiled to a flat list of steps over two vectors.

*What a step does.* A clique C holds *operands*: tables over some of its attributes that are multiplied together. A step
runs over the cells x of C once, takes the product t(x) of what goes in, and adds it to the cells of what comes out:

    y_k(x_k) ← y_k(x_k) + t(x),    t(x) = Π_j x_j(x_j).

The table t itself is never stored. The steps *collect* (children before parents; in: the tables of C and the messages
of its children; out: the message to its parent) and then *distribute* (parents before children; in: the same and what
the parent knows; out: the marginals of the tables of C and of the separators of its children).

*Where operands lie.* What goes in is one vector,

    tables of the scopes | messages up | messages down | constants,

and what comes out is another, with the same first three parts. Messages take as many cells as the separators.

*Loops.* All tables have the same order of axes, so a step is a nest of loops in which each operand moves by a fixed
stride. Neighbouring axes that all operands agree on become one; axes that no operand has are a factor, `log_volume`.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit
from consilience.marginals.table_stacks import Scope, stored_order
from consilience.models.junction_trees import JunctionTree, Node, refined
from consilience.models.tables import TableLayout, cells_of, checked_scopes
from consilience.solvers.fit import Infeasible

FEWEST_AXES = 2
"""Steps with fewer axes get some of size 1 in front, so that a kernel can count on two."""

LONGEST_ROW = 2**16
"""Neighbouring axes are taken for one as long as it has no more cells: rows of this length lose nothing in speed."""

FEWEST_MOVING = 2
"""Steps with fewer operands that go in and move along the last axis get rows of ones, for the same reason."""


class Operand(NamedTuple):
    """A table that goes into or comes out of a step: where it begins, and its axes."""

    base: int
    axes: Scope


class Program(NamedTuple):
    """The steps as arrays for the kernels. Step s collects for s < collects, and distributes after that.

    Operands of step s: those going in are inputs[s] … inputs[s + 1], those coming out outputs[s] … outputs[s + 1], each
    with the ones that move along the last axis first, and there are in_moving[s] and out_moving[s] of these.
    """

    collects: int
    axes: NDArray[np.int64]
    """dims[axes[s]:axes[s + 1]] are the lengths of the axes of step s."""
    dims: NDArray[np.int64]
    inputs: NDArray[np.int64]
    in_moving: NDArray[np.int64]
    in_base: NDArray[np.int64]
    in_strides: NDArray[np.int64]
    outputs: NDArray[np.int64]
    out_moving: NDArray[np.int64]
    out_base: NDArray[np.int64]
    out_strides: NDArray[np.int64]
    out_cells: NDArray[np.int64]
    nodes: NDArray[np.int64]
    """The node of each step: a clique, or a part of one."""
    is_root: NDArray[np.bool_]
    message: NDArray[np.int64]
    """Where the messages of each step's node begin, counted from the first message."""
    message_cells: NDArray[np.int64]
    tables: int
    """The length of the tables of all scopes."""
    messages: int
    """The length of all messages in one direction."""


class Constant(NamedTuple):
    """A table that is part of the model and has no marginal to report: zeros and ones over a scope, in stored order."""

    axes: Scope
    values: NDArray[np.float64]


class CompiledTree(NamedTuple):
    """A program, and what it needs besides the potentials."""

    program: Program
    constants: NDArray[np.float64]
    """The last part of the vector that goes in: constants, and as many ones as the longest axis."""
    log_volume: float
    """The logarithm of the cells over attributes of cliques that no table has."""
    cells: NDArray[np.int64]
    """The cells that each step visits."""
    nodes: int


class _StepList:
    """Steps as they are compiled, one after another."""

    def __init__(self, sizes: Sequence[int], ones: int) -> None:
        self.sizes = sizes
        self.ones = ones
        self.dims: list[list[int]] = []
        self.inputs: list[list[tuple[int, list[int]]]] = []
        self.outputs: list[list[tuple[int, list[int]]]] = []
        self.nodes: list[int] = []

    def add(self, node: int, attributes: Scope, inputs: list[Operand], outputs: list[Operand]) -> None:
        """A step over the cells of these attributes, which are in stored order."""
        groups = merged_axes(self.sizes, attributes, [operand.axes for operand in (*inputs, *outputs)])
        dims = [cells_of(self.sizes, group) for group in groups]
        padding = max(0, FEWEST_AXES - len(dims))
        groups, dims = [()] * padding + groups, [1] * padding + dims
        going_in = [(operand.base, strides_of(operand.axes, groups, dims)) for operand in inputs]
        coming_out = [(operand.base, strides_of(operand.axes, groups, dims)) for operand in outputs]
        moving = sum(strides[-1] != 0 for _, strides in going_in)
        going_in.extend([(self.ones, [0] * (len(dims) - 1) + [1])] * (FEWEST_MOVING - moving))
        self.dims.append(dims)
        self.inputs.append(sorted(going_in, key=lambda operand: -operand[1][-1]))
        self.outputs.append(sorted(coming_out, key=lambda operand: -operand[1][-1]))
        self.nodes.append(node)

    @property
    def longest_row(self) -> int:
        return max(dims[-1] for dims in self.dims)


def merged_axes(sizes: Sequence[int], attributes: Scope, operands: Sequence[Scope]) -> list[Scope]:
    """The attributes that some operand has, in groups of neighbours that every operand has all or none of.

    No group has more than LONGEST_ROW cells, unless a single attribute has: kernels have room for five rows.

    >>> merged_axes((2, 2, 2, 2), (0, 1, 2, 3), [(0, 1, 2), (2,)])
    [(0, 1), (2,)]
    """
    groups: list[list[int]] = []
    last: list[bool] = []
    for attribute in attributes:
        membership = [attribute in axes for axes in operands]
        if not any(membership):
            continue
        if groups and membership == last and cells_of(sizes, (*groups[-1], attribute)) <= LONGEST_ROW:
            groups[-1].append(attribute)
        else:
            groups.append([attribute])
        last = membership
    return [tuple(group) for group in groups]


def strides_of(axes: Scope, groups: Sequence[Scope], dims: Sequence[int]) -> list[int]:
    """How far a table moves along each group of axes.

    >>> strides_of((0, 2), [(0,), (1,), (2,)], [3, 4, 5])
    [5, 0, 1]
    """
    strides = [0] * len(groups)
    step = 1
    for place in reversed(range(len(groups))):
        if groups[place] and groups[place][0] in axes:
            strides[place] = step
            step *= dims[place]
    return strides


@lru_cache(maxsize=8)
def known_program(tree: JunctionTree, scopes: tuple[Scope, ...]) -> CompiledTree:
    """The steps for a model without constants, compiled once for all the models with these scopes."""
    return compile_tree(tree, TableLayout(tree.sizes, scopes), ())


def compile_tree(tree: JunctionTree, layout: TableLayout, constants: Sequence[Constant]) -> CompiledTree:
    """The steps that collect and distribute on a tree, with each table in the smallest clique that holds it."""
    nodes = refined(tree, layout.scopes, [constant.axes for constant in constants])
    operands = _Operands(tree.sizes, nodes, layout, constants)
    steps = _StepList(tree.sizes, operands.ones)
    for k in reversed(range(len(nodes))):
        if nodes[k].parent >= 0:
            steps.add(k, nodes[k].axes, operands.below(k), [operands.up[k]])
    collects = len(steps.nodes)
    for k, node in enumerate(nodes):
        coming_out = operands.tables_of(node) + [operands.down[child] for child in operands.children[k]]
        if node.parent >= 0:
            steps.add(k, node.axes, [*operands.below(k), operands.down[k]], coming_out)
        else:
            steps.add(k, node.axes, operands.below(k), [*coming_out, operands.up[k]])
    return CompiledTree(
        _program(steps, nodes, collects, operands),
        np.concatenate([*(constant.values.ravel() for constant in constants), np.ones(steps.longest_row)]),
        _log_volume(tree, layout, constants),
        np.array([math.prod(dims) for dims in steps.dims], dtype=np.int64),
        len(nodes),
    )


class _Operands:
    """Where tables, messages and constants lie in the vectors, for the nodes of a tree."""

    def __init__(
        self, sizes: Sequence[int], nodes: Sequence[Node], layout: TableLayout, constants: Sequence[Constant]
    ) -> None:
        self.tables_size = layout.size
        self.message_cells = [cells_of(sizes, node.separator) for node in nodes]
        self.message_begins = np.cumsum([0, *self.message_cells]).tolist()
        self.messages = self.message_begins[-1]
        used = layout.size + 2 * self.messages
        begins = np.cumsum([used, *(constant.values.size for constant in constants)]).tolist()
        self.ones = begins[-1]
        self.tables = [Operand(int(layout.offsets[k]), axes) for k, axes in enumerate(layout.axes)]
        self.constants = [Operand(begins[k], constant.axes) for k, constant in enumerate(constants)]
        self.up = [Operand(layout.size + self.message_begins[k], node.separator) for k, node in enumerate(nodes)]
        self.down = [Operand(operand.base + self.messages, operand.axes) for operand in self.up]
        self.nodes = nodes
        self.children: list[list[int]] = [[] for _ in nodes]
        for k, node in enumerate(nodes):
            if node.parent >= 0:
                self.children[node.parent].append(k)

    def tables_of(self, node: Node) -> list[Operand]:
        return [self.tables[k] for k in node.tables]

    def below(self, k: int) -> list[Operand]:
        """What a node multiplies without asking its parent."""
        node = self.nodes[k]
        constants = [self.constants[place] for place in node.constants]
        return self.tables_of(node) + constants + [self.up[child] for child in self.children[k]]


def _log_volume(tree: JunctionTree, layout: TableLayout, constants: Sequence[Constant]) -> float:
    """The logarithm of the cells over attributes that lie in a clique and in no table."""
    in_tables = {attribute for axes in layout.axes for attribute in axes}
    in_tables.update(attribute for constant in constants for attribute in constant.axes)
    unused = {attribute for clique in tree.cliques for attribute in clique} - in_tables
    return sum(math.log(tree.sizes[attribute]) for attribute in sorted(unused))


def _program(steps: _StepList, nodes: Sequence[Node], collects: int, operands: _Operands) -> Program:
    most_axes = max(len(dims) for dims in steps.dims)
    in_base, in_strides = _stacked(steps.inputs, most_axes)
    out_base, out_strides = _stacked(steps.outputs, most_axes)
    out_cells = [
        math.prod(length for length, stride in zip(dims, strides, strict=True) if stride)
        for dims, outputs in zip(steps.dims, steps.outputs, strict=True)
        for _, strides in outputs
    ]
    return Program(
        collects,
        _ends(len(dims) for dims in steps.dims),
        _whole(length for dims in steps.dims for length in dims),
        _ends(len(operands) for operands in steps.inputs),
        _whole(sum(strides[-1] != 0 for _, strides in operands) for operands in steps.inputs),
        in_base,
        in_strides,
        _ends(len(operands) for operands in steps.outputs),
        _whole(sum(strides[-1] != 0 for _, strides in operands) for operands in steps.outputs),
        out_base,
        out_strides,
        _whole(out_cells),
        _whole(steps.nodes),
        np.array([nodes[k].parent < 0 for k in steps.nodes], dtype=np.bool_),
        _whole(operands.message_begins[k] for k in steps.nodes),
        _whole(operands.message_cells[k] for k in steps.nodes),
        operands.tables_size,
        operands.messages,
    )


def _whole(values) -> NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


def _ends(counts) -> NDArray[np.int64]:
    return np.cumsum([0, *counts], dtype=np.int64)


def _stacked(
    operands: Sequence[Sequence[tuple[int, list[int]]]], most_axes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bases and the strides of the operands of all steps, one row each, padded at the end."""
    flat = [operand for group in operands for operand in group]
    strides = np.zeros((len(flat), most_axes), dtype=np.int64)
    for row, (_, moves) in enumerate(flat):
        strides[row, : len(moves)] = moves
    return _whole(base for base, _ in flat), strides


# ----------------------------------------------------------------------------------------------------------------------
# Walking over the cells of a step: the room to work in, where each operand stands, and moving on.


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


@njit(nogil=True, cache=True, error_model="numpy")
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


# ----------------------------------------------------------------------------------------------------------------------
# Cells that cannot occur: which tables say so, and what follows for the messages of a junction tree.


Allowed = Sequence[tuple[Sequence[int], ArrayLike]]
"""Scopes and, for each, a table of truth values with axes in the scope's order: false where a cell cannot occur."""


def fold_into_scopes(layout: TableLayout, allowed: Allowed) -> tuple[NDArray[np.int64], list[Constant]]:
    """The cells of the layout that are impossible, and the tables of zeros and ones that no scope can take in.

    A table over attributes of one scope only takes cells away from that scope's table, which costs nothing.
    """
    impossible = np.zeros(layout.size, dtype=np.bool_)
    constants = []
    scopes = checked_scopes(layout.sizes, [scope for scope, _ in allowed])
    for place, (scope, (_, table)) in enumerate(zip(scopes, allowed, strict=True)):
        possible = np.asarray(table)
        shape = tuple(layout.sizes[attribute] for attribute in scope)
        if possible.shape != shape or possible.dtype != np.bool_:
            raise DeclarationError(
                f"table {place} of allowed cells has shape {possible.shape} and type {possible.dtype}; its scope "
                f"{scope} asks for truth values of shape {shape}: give true where a cell can occur"
            )
        axes = stored_order(layout.sizes, scope)
        stored = possible.transpose([scope.index(attribute) for attribute in axes])
        holder = _smallest_holder(layout, scope)
        if holder is None:
            constants.append(Constant(axes, np.ascontiguousarray(stored, dtype=np.float64)))
            continue
        spread = [layout.sizes[attribute] if attribute in scope else 1 for attribute in layout.axes[holder]]
        own = impossible[layout.slices[holder]].reshape([layout.sizes[attribute] for attribute in layout.axes[holder]])
        own |= ~stored.reshape(spread)
    return np.flatnonzero(impossible), constants


def _smallest_holder(layout: TableLayout, scope: Sequence[int]) -> int | None:
    """The scope of the layout with the fewest cells among those that have all these attributes."""
    holding = [k for k, other in enumerate(layout.scopes) if set(scope).issubset(other)]
    return min(holding, key=lambda k: layout.offsets[k + 1] - layout.offsets[k], default=None)


def possible_messages(
    program: Program, going_in: NDArray[np.float64], coming_out: NDArray[np.float64], run_step: Callable[[int], None]
) -> NDArray[np.bool_]:
    """Which entries of the messages up a junction tree are possible; an error where no cell is.

    The tables that go in are ones where a cell is possible and zeros elsewhere; `run_step` adds up their products.
    """
    up = program.tables
    possible = np.ones(program.messages, dtype=np.bool_)
    for s in range(len(program.message)):
        if s >= program.collects and not program.is_root[s]:
            continue
        run_step(s)
        own = slice(program.message[s], program.message[s] + program.message_cells[s])
        possible[own] = coming_out[up:][own] > 0.0
        going_in[up:][own] = possible[own]
        if not possible[own].any():
            raise nothing_possible()
    return possible


def nothing_possible() -> Infeasible:
    """The error for a model without a single possible cell."""
    return Infeasible(
        "no cell of the model is possible: its impossible cells and potentials of −∞ leave nothing over; allow some",
        violation=1.0,
        constraints=("impossible cells",),
    )
