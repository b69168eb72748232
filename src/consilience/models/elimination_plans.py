"""In which order axes are best summed out of a product of tables, and what that will take, before anything is built.

Summing out axis v multiplies the tables that have v, over the union of their axes (the *bucket*), and leaves a table
over the rest. The order decides how large buckets grow; the best one is hard to find, and greedy choices are good.
Two kinds of axes are summed out: plain ones, and those that a linear map turns into an *image* axis (the z of Σ_x
Q(z, x) f(x, …)), which stays. Axes of one value are left out everywhere.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from consilience.errors import TooLarge, readable_bytes, readable_count
from consilience.kernels.linear_maps import LinearMap
from consilience.models.tables import Axes, ScaledTable, apply_map, contract


@dataclass(frozen=True)
class EliminationSettings:
    """What the elimination of axes takes, and what is too much."""

    bytes_per_cell: int = 24
    """Bytes for each cell of the largest table: a bucket, the operand that is turned to meet it, and the result."""
    most_work: int = 50_000_000_000
    """Cells that all parts of a product touch at most: some minutes."""
    most_divisions: int = 12
    """How many of the longest axes are tried when a product is divided into parts; by trial, no figure kept."""
    small_work: int = 20_000
    """Orders that touch fewer cells than this are not worth a second opinion; by trial, no figure kept."""


ELIMINATION = EliminationSettings()


@dataclass(frozen=True)
class Image:
    """What becomes of an axis: a linear map carried out along it, and the name of the axis that this makes."""

    axis: int
    linear_map: LinearMap


@dataclass(frozen=True)
class EliminationPlan:
    """Axes in the order in which they are summed out, the cells of the largest table, and of all of them together."""

    order: tuple[int, ...]
    largest: int
    work: int

    @property
    def bytes(self) -> int:
        """The memory that its largest table takes."""
        return self.largest * ELIMINATION.bytes_per_cell

    def check(self, memory_limit: int, purpose: str) -> "EliminationPlan":
        """This plan, refused when its largest table would need more memory than the limit."""
        need = self.bytes
        if need > memory_limit:
            raise TooLarge(
                f"{purpose} needs a table of {readable_count(self.largest)} cells, about {readable_bytes(need)}; "
                "the limit "
                f"is {readable_bytes(memory_limit)}. Ask for fewer attributes at once, sum or bucket some of them, "
                "or raise "
                "memory_limit"
            )
        return self


def plan_elimination(
    scopes: Sequence[Axes], sizes: Mapping[int, int], kept: Collection[int], images: Mapping[int, Image]
) -> EliminationPlan:
    """The cheapest plan found that sums out every axis that is not kept.

    Greedy by the size of the bucket, and by the pairs of axes it would join; each with the maps among the other axes,
    and after them all, which is to build the marginal first and apply the maps to it.
    """
    costs: tuple[_Cost, ...] = (_bucket, _growth)
    best: EliminationPlan | None = None
    for maps_last in (False, True) if images else (False,):
        for cost in costs:
            graph = _Graph(scopes, sizes, kept, images)
            plan = graph.eliminate(cost, maps_last=maps_last)
            if best is None or (plan.work, plan.largest) < (best.work, best.largest):
                best = plan
            if best.work <= ELIMINATION.small_work:
                return best
    if best is None:
        return EliminationPlan((), 0, 0)
    return best


_Cost = Callable[["_Graph", int], float]


class _Graph:
    """Axes joined when a table has both. What is left after summing out an axis joins all its neighbours."""

    def __init__(
        self, scopes: Sequence[Axes], sizes: Mapping[int, int], kept: Collection[int], images: Mapping[int, Image]
    ) -> None:
        self.neighbours: dict[int, set[int]] = {}
        for scope in scopes:
            for axis in scope:
                self.neighbours.setdefault(axis, set()).update(scope)
        for axis, around in self.neighbours.items():
            around.discard(axis)
        self.weights = {axis: math.log(sizes[axis]) for axis in self.neighbours}
        self.sizes = dict(sizes)
        self.images = images
        for image in images.values():
            self.sizes[image.axis] = image.linear_map.rows
            self.weights[image.axis] = math.log(max(image.linear_map.rows, 1))
        self.ends = {*kept, *(image.axis for image in images.values())}

    def eliminate(self, cost: _Cost, *, maps_last: bool) -> EliminationPlan:
        """Sum out the cheapest axis until only the kept ones and the images are left."""
        waiting = {axis for axis in self.neighbours if axis not in self.ends}
        rounds: Iterable[set[int]] = (waiting,)
        if maps_last:
            rounds = (waiting - self.images.keys(), waiting & self.images.keys())
        order: list[int] = []
        largest = work = 0
        for some in rounds:
            for axis in self._cheapest_first(some, cost):
                bucket, result = self._sum_out(axis)
                largest, work = max(largest, bucket, result), work + bucket + result
                order.append(axis)
        output = math.prod(self.sizes[axis] for axis in self.neighbours)
        return EliminationPlan(tuple(order), max(largest, output), work + output)

    def _cheapest_first(self, waiting: set[int], cost: _Cost) -> Iterable[int]:
        """Each axis when it is the cheapest; ties by name, so that like queries share their first steps."""
        current = {axis: cost(self, axis) for axis in waiting}
        heap = [(least, axis) for axis, least in current.items()]
        heapq.heapify(heap)
        while heap:
            least, axis = heapq.heappop(heap)
            if current.get(axis) != least:
                continue
            del current[axis]
            around = [each for each in self.neighbours[axis] if each in current]
            yield axis
            for each in around:
                current[each] = cost(self, each)
                heapq.heappush(heap, (current[each], each))

    def _sum_out(self, axis: int) -> tuple[int, int]:
        """Take an axis out of the graph; the cells of its bucket and of the table that is left."""
        around = self.neighbours.pop(axis)
        left = math.prod(self.sizes[each] for each in around)
        bucket = left * self.sizes[axis]
        image = self.images.get(axis)
        if image is not None:
            self.neighbours[image.axis] = set()
            around.add(image.axis)
            left *= self.sizes[image.axis]
        for each in around:
            joined = self.neighbours[each]
            joined.update(around)
            joined.discard(each)
            joined.discard(axis)
        return bucket, left


def _bucket(graph: _Graph, axis: int) -> float:
    """The logarithm of the larger of the bucket and what is left of it."""
    own = graph.weights[axis]
    if axis in graph.images:
        own = max(own, graph.weights[graph.images[axis].axis])
    return own + sum(graph.weights[each] for each in graph.neighbours[axis])


def _growth(graph: _Graph, axis: int) -> float:
    """The bucket against the pairs of its axes that no table has together yet: fill, weighted by size."""
    around = sorted(graph.neighbours[axis])
    missing = 0.0
    for place, one in enumerate(around):
        known = graph.neighbours[one]
        missing += sum(graph.weights[one] * graph.weights[two] for two in around[place + 1 :] if two not in known)
    return missing + 1e-3 * _bucket(graph, axis)


@dataclass(eq=False)
class SharedWork:
    """Tables that earlier queries made of the same operands, kept for later ones up to a limit."""

    memory_limit: int
    used: int = 0
    made: dict[tuple[frozenset[ScaledTable], int, Image | None], ScaledTable] = field(default_factory=dict)


def carry_out(
    plan: EliminationPlan,
    tables: Sequence[ScaledTable],
    kept: Axes,
    images: Mapping[int, Image],
    shared: SharedWork | None = None,
) -> ScaledTable:
    """The product of the tables with every axis summed out, or replaced by its image, as planned."""
    pool: dict[int, list[ScaledTable]] = {}
    alive: dict[ScaledTable, None] = dict.fromkeys(tables)
    for table in tables:
        for axis in table.axes:
            pool.setdefault(axis, []).append(table)
    for axis in plan.order:
        operands = [table for table in pool.pop(axis) if table in alive]
        result = _sum_out(axis, operands, images.get(axis), shared)
        for table in operands:
            del alive[table]
        alive[result] = None
        for each in result.axes:
            pool.setdefault(each, []).append(result)
    return contract(list(alive), kept)


def carry_out_within(
    memory_limit: int,
    purpose: str,
    plan: EliminationPlan,
    tables: Sequence[ScaledTable],
    sizes: Mapping[int, int],
    kept: Axes,
    images: Mapping[int, Image],
    shared: SharedWork | None = None,
) -> ScaledTable:
    """The same product; where its largest table would not fit, in parts that do, over some values of some axes at once.

    All parts together touch about as many cells as the whole would. Refused where that would take longer than
    some minutes, or where the answers themselves do not fit.
    """
    if plan.bytes <= memory_limit:
        return carry_out(plan, tables, kept, images, shared)
    lengths = {**sizes, **{image.axis: image.linear_map.rows for image in images.values()}}
    shape = [lengths[axis] for axis in kept]
    divided = _divided(plan, [table.axes for table in tables], sizes, kept, images, memory_limit // 2)
    if divided is None or 16 * math.prod(shape) > memory_limit // 2:
        plan.check(memory_limit, purpose)
    blocks, part = divided or ({}, plan)
    counts = [-(-sizes[axis] // length) for axis, length in blocks.items()]
    if part.work * math.prod(counts) > ELIMINATION.most_work:
        plan.check(memory_limit, purpose)
    whole, scale = np.zeros(shape), -math.inf
    for numbers in itertools.product(*(range(count) for count in counts)):
        places = {
            axis: slice(number * length, (number + 1) * length)
            for number, (axis, length) in zip(numbers, blocks.items(), strict=True)
        }
        found = carry_out(part, [table.at(places) for table in tables], kept, images)
        if found.zero:
            continue
        if found.log_scale > scale:
            whole *= math.exp(scale - found.log_scale)
            scale = found.log_scale
        whole[tuple(places.get(axis, slice(None)) for axis in kept)] += found.linear(scale)
    return ScaledTable.of_values(kept, whole, scale) if scale > -math.inf else ScaledTable.of_values(kept, whole)


def _divided(
    plan: EliminationPlan,
    scopes: Sequence[Axes],
    sizes: Mapping[int, int],
    kept: Axes,
    images: Mapping[int, Image],
    memory_limit: int,
) -> tuple[dict[int, int], EliminationPlan] | None:
    """How many values of which axes to take at once, and the plan for such a part; None where no part fits.

    Axes are divided one after another, each time the one without which the largest table is smallest.
    """
    blocks: dict[int, int] = {}
    while plan.bytes > memory_limit:
        left = {axis for scope in scopes for axis in scope} - images.keys() - {a for a, n in blocks.items() if n == 1}
        longest = sorted(left, key=lambda axis: (-sizes[axis], axis))[: ELIMINATION.most_divisions]
        trials = {axis: plan_elimination(scopes, {**sizes, **blocks, axis: 1}, kept, images) for axis in longest}
        axis = min(trials, key=lambda axis: (trials[axis].largest, axis), default=None)
        if axis is None or trials[axis].largest >= plan.largest:
            return None
        length = blocks.get(axis, sizes[axis]) * memory_limit // plan.bytes
        blocks[axis] = max(1, length)
        plan = plan_elimination(scopes, {**sizes, **blocks}, kept, images)
        if plan.bytes > memory_limit:
            blocks[axis], plan = 1, trials[axis]
    return blocks, plan


def _sum_out(axis: int, operands: Sequence[ScaledTable], image: Image | None, shared: SharedWork | None) -> ScaledTable:
    key = (frozenset(operands), axis, image)
    if shared is not None and key in shared.made:
        return shared.made[key]
    union = tuple(dict.fromkeys(each for table in operands for each in table.axes))
    if image is None:
        result = contract(operands, tuple(each for each in union if each != axis))
    else:
        result = apply_map(contract(operands, union), axis, image.linear_map, image.axis)
    if shared is not None and shared.used + result.nbytes <= shared.memory_limit:
        shared.made[key] = result
        shared.used += result.nbytes
    return result
