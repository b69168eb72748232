"""Whether the account of a plan will answer what the plan is for, and what it says so far while the plan still runs.

Two things can be in the way. The cells of a query may be too many for an answer to be put together: these are declared,
and `AnswersWorkload` refuses such a workload. And a model in which the attributes of a query are far apart may take
hours to answer it: that depends on what a plan selects, and plans that select hold their choices to `answering_sizes`.

*Forests.* In a forest of pairs over d attributes the marginal by S is found along the paths between its attributes.
Let the sums be taken towards an attribute where three such paths meet: every table on the way is by one pair and those
of S that lie behind it, at most all but two, and the last one by S and the attribute itself. With l₁ ≥ l₂ ≥ l₃ the
largest attributes and s₁ ≤ s₂ the smallest of S, all of them together have at most

    |S| l₁ + d l₁ l₂ max(|S| / s₁s₂, l₃)    cells.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Factor, Identity, JointMatrix, Matrix, Prefix, Range, Value
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, MeasurementError
from consilience.estimators.base import Estimate, Estimator
from consilience.estimators.choose import check_answers
from consilience.estimators.graphical import Graphical
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.estimators.marginals import MarginalsEstimate
from consilience.estimators.published.uniform import Uniform
from consilience.kernels.linear_maps import JointMap, LinearMap
from consilience.marginals.table_stacks import Scope
from consilience.measurements import Measurement, MeasurementSet, PrivacyStatement
from consilience.models import elimination_plans
from consilience.models.elimination_plans import plan_elimination
from consilience.models.junction_trees import JunctionTree, junction_tree
from consilience.plans.base import DescribedPlan

# ----------------------------------------------------------------------------------------------------------------------
# How large a graphical model would become with one more marginal, known before anything of it is allocated.
#
# The size of a model is the number of cells of the cliques of its junction tree: the work of one pass of messages. A
# marginal that lies in a clique leaves the tree as it is. For any other a tree is sought by one greedy elimination, so
# that the number is an upper bound of what the careful search of a fit finds.
#
# What a model will be asked decides, too: a marginal over several cliques is found from the tables of those between its
# attributes, in parts where they are large, and takes as long as they have cells. Marginals that would make some
# question of the workload take hours are not chosen.


Names = tuple[str, ...]


class ModelSizes:
    """The predicted sizes of models over the marginals added so far and what the domain declares.

    >>> sizes = ModelSizes(Domain.from_sizes({"a": 10, "b": 10, "c": 10}))
    >>> sizes.add([("a", "b"), ("b", "c")])
    >>> sizes.cells, sizes.cells_with(("b",)), sizes.cells_with(("a", "c"))
    (200, 200, 1000)
    """

    def __init__(self, domain: Domain, asked: Iterable[Sequence[str]] = ()) -> None:
        self._places = {name: place for place, name in enumerate(domain.counted_names)}
        self._shape = domain.shape
        self._scopes: list[frozenset[int]] = []
        self._asked = {self._scope(names): math.prod(domain.sizes(names)) for names in asked}
        self._tree = junction_tree(self._shape, (), restarts=0)
        declared = [rule.attributes for rule in domain.impossible]
        self.add([*declared, *(margin.attributes for margin in domain.public.margins)])

    def add(self, marginals: Iterable[Sequence[str]]) -> None:
        """Take in marginals that the model has."""
        for names in marginals:
            self._scopes = _with_scope(self._scopes, self._scope(names))
        self._tree = junction_tree(self._shape, [_in_order(scope) for scope in self._scopes])

    @property
    def cells(self) -> int:
        """The cells of the model so far."""
        return self._tree.cells

    def cells_with(self, names: Sequence[str]) -> int:
        """The cells of the model with one more marginal, at most."""
        return self._tree_with(names).cells

    def allows(self, names: Sequence[str], most_cells: float = math.inf) -> bool:
        """Whether the model with one more marginal has at most so many cells and answers everything asked for."""
        tree = self._tree_with(names)
        if tree.cells > most_cells:
            return False
        # No marginal takes more than its own cells times those of the model: few need a closer look, as a rule none.
        most = elimination_plans.ELIMINATION.most_work
        large = [asked for asked, cells in self._asked.items() if cells * tree.cells > most]
        return all(answering_work(tree, asked) <= most for asked in large)

    def _tree_with(self, names: Sequence[str]) -> JunctionTree:
        scope = self._scope(names)
        if any(scope <= set(clique) for clique in self._tree.cliques):
            return self._tree
        scopes = [_in_order(each) for each in _with_scope(self._scopes, scope)]
        return junction_tree(self._shape, scopes, restarts=0)

    def _scope(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset(self._places[name] for name in names)


def answering_work(tree: JunctionTree, asked: frozenset[int]) -> int:
    """The cells of the tables from which the marginal by some attributes is found.

    >>> chain = junction_tree([10, 10, 10], [(0, 1), (1, 2)])
    >>> answering_work(chain, frozenset({0, 1})), answering_work(chain, frozenset({0, 2}))
    (100, 1200)
    """
    if any(asked <= set(clique) for clique in tree.cliques):
        return math.prod(tree.sizes[attribute] for attribute in asked)
    between = [False] * len(tree.cliques)
    for place in reversed(range(len(tree.cliques))):
        parent = tree.parents[place]
        above = tree.cliques[parent] if parent >= 0 else ()
        between[place] |= bool(asked.intersection(tree.cliques[place]).difference(above))
        if between[place] and parent >= 0:
            between[parent] = True
    scopes = [clique for clique, needed in zip(tree.cliques, between, strict=True) if needed]
    return plan_elimination(scopes, dict(enumerate(tree.sizes)), asked, {}).work


def _with_scope(scopes: list[frozenset[int]], new: frozenset[int]) -> list[frozenset[int]]:
    """The scopes with a new one, without those that lie in another."""
    if any(new <= each for each in scopes):
        return scopes
    return [*(each for each in scopes if not each <= new), new]


def _in_order(scope: frozenset[int]) -> Scope:
    return tuple(sorted(scope))


# ----------------------------------------------------------------------------------------------------------------------
# Whether the account of a plan will answer what the plan is for, known before anything is spent.


CAREFUL = 10
"""How many times the bound may be exceeded by orders of summation that are found greedily."""


@dataclass(frozen=True)
class AnswersWorkload(DescribedPlan):
    """A plan for a workload, which `measure` refuses where the account could not answer some of it."""

    def check_answers(self, example: MeasurementSet) -> None:
        """Refuse the workload where an account of such measurements could not answer it."""
        check_answers(example, "auto", asked_queries(self, example.domain))


def asked_queries(plan: Any, domain: Domain) -> tuple[Query, ...]:
    """What a plan is for, as far as it says so; of all marginals over some attributes the largest stands for all."""
    workload, ways = getattr(plan, "workload", None), getattr(plan, "ways", None)
    if isinstance(workload, Workload):
        return tuple(workload.queries)
    if workload is None and isinstance(ways, int):
        return (Query.marginal(*sorted(domain.counted_names, key=lambda name: -domain[name].size)[:ways]),)
    return ()


def answering_sizes(workload: Workload | None, domain: Domain) -> ModelSizes | None:
    """The sizes to which the pairs of a forest are held; None where every forest answers the workload soon enough."""
    asked = {query.attributes for query in workload.queries} if workload is not None else set()
    if not (domain.impossible or domain.public.margins):
        most = elimination_plans.ELIMINATION.most_work
        asked = {names for names in asked if CAREFUL * _most_work(names, domain) > most}
    asked = {names for names in asked if len(names) > 1}
    return ModelSizes(domain, asked) if asked else None


def _most_work(names: tuple[str, ...], domain: Domain) -> float:
    """The bound above.

    >>> _most_work(("a", "b"), Domain.from_sizes({"a": 2, "b": 3, "c": 5}))
    120
    """
    own, sizes = sorted(domain.sizes(names)), sorted(domain.shape, reverse=True)
    first, second, third = (*sizes, 1, 1)[:3]
    return math.prod(own) * first + len(sizes) * first * second * max(math.prod(own[2:]), third)


# ----------------------------------------------------------------------------------------------------------------------
# What a plan knows so far: its measurements, fitted when they are asked about and not before.
#
# A plan that chooses what to measure next compares candidates with an estimate made of its own noisy answers. The fit
# is post-processing: it sees public numbers alone, spends nothing, and is the same whenever the answers are the same.
#
# *Warm starts.* A model that was fitted to fewer answers is where the next fit begins, so that a round costs a few
# steps. A fit that stops early (`stop="least-risk"`) then ends elsewhere than one from the beginning would: what a plan
# asks between rounds is close to, and not the same as, what its `estimator()` finds in the end.
#
# *Dry runs* answer with zeros. Zeros alone say nothing of the data, and an even table is at hand without a fit.


Array = NDArray[np.float64]


class RunningEstimate:
    """The estimate of a domain from the measurements added so far; fitted once after each addition, when asked for.

    `warm=False` begins every fit anew. The estimate is a means to choose by and never leaves a plan: its measurement
    set names no ledger, and is marked as not private so that nothing made from it is taken for a release.

    >>> from consilience.measurements import Gaussian
    >>> running = RunningEstimate(Domain.from_sizes({"a": 2, "b": 2}), Graphical(total=12.0))
    >>> running.add([Measurement(Query.marginal("a"), np.array([9.0, 3.0]), Gaussian(0.01))])
    >>> running.marginal("a", "b").round(1).tolist()
    [[4.5, 4.5], [1.5, 1.5]]
    """

    def __init__(self, domain: Domain, estimator: Estimator, *, warm: bool = True) -> None:
        self.domain = domain
        self.estimator = estimator
        self._warm = warm
        self._measurements: list[Measurement] = []
        self._fitted: Estimate | None = None
        self._current = False

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Take in more measurements; the next question is answered from all of them."""
        found = list(measurements)
        self._measurements += found
        self._current = self._current and not found

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Everything that was added, in order."""
        return tuple(self._measurements)

    def measured(self) -> MeasurementSet:
        """The measurements as estimators take them."""
        return MeasurementSet(self.domain, self.measurements, PrivacyStatement(), {}, private=False)

    @property
    def estimate(self) -> Estimate:
        """The estimate of all measurements so far."""
        if self._fitted is None or not self._current:
            self._fitted = self._fit()
            self._current = True
        return self._fitted

    def _fit(self) -> Estimate:
        measured = self.measured()
        if not self._measurements:
            raise MeasurementError("nothing was measured yet; add measurements, then ask")
        if not any(each.values.any() for each in self._measurements) and Uniform().suitability(measured).possible:
            return Uniform().fit(measured)
        if self._warm and isinstance(self.estimator, Graphical) and isinstance(self._fitted, GraphicalEstimate):
            return self.estimator.fit(measured, start=self._fitted)
        return self.estimator.fit(measured)

    def marginal(self, *attributes: str) -> Array:
        """The estimated counts by these attributes, one axis for each, in this order."""
        return self.estimate.marginal(*attributes)

    def marginals(self, sets: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Array]:
        """The estimated marginals of several sets of attributes, found together."""
        estimate = self.estimate
        found: dict[tuple[str, ...], Array] = {}
        if isinstance(estimate, MarginalsEstimate):
            found = _products(estimate, sets)
        rest = [names for names in sets if names not in found]
        tables = estimate.answers([Query.marginal(*names) for names in rest])
        found |= {names: np.asarray(table, dtype=np.float64) for names, table in zip(rest, tables, strict=True)}
        return {names: found[names] for names in sets}


def _products(estimate: MarginalsEstimate, sets: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Array]:
    """The pairs of which only the two attributes by themselves are known, as products: their greatest entropy.

    A domain of a hundred attributes has thousands of pairs, nearly all of this kind, and one search for each is slow.
    """
    domain, total = estimate.domain, estimate.total
    if not (estimate.nonnegative and total > 0):
        return {}
    held = [{domain.counted_names[place] for place in scope} for scope in estimate.scopes]
    related = [*held, *(set(rule.attributes) for rule in domain.impossible)]
    together = {pair for names in related for pair in itertools.permutations(sorted(names), 2)}
    apart = [names for names in sets if len(names) == 2 and names not in together]
    single = {name: estimate.marginal(name) for name in dict.fromkeys(name for names in apart for name in names)}
    return {names: np.outer(single[names[0]], single[names[1]]) / total for names in apart}


# ----------------------------------------------------------------------------------------------------------------------
# One answer of a query, asked by itself.


def single_row(bound: BoundQuery, index: int) -> Query:
    """The query that asks for one answer of another, in the plainest words that say exactly that."""
    places = np.unravel_index(index, bound.shape) if bound.shape else ()
    pairs = zip(bound.query.factors, bound.groups, bound.maps, places, strict=True)
    factors = [
        (name, _single_row_factor(factor, each, [bound.domain[one] for one in names], int(place)))
        for (name, factor), names, each, place in pairs
    ]
    return Query(tuple(factors))


def _single_row_factor(factor: Factor, bound: LinearMap, attributes: Sequence[Attribute], place: int) -> Factor:
    """One row of a factor: a value or a range where that is the same row, else the row itself."""
    if bound.rows == 1:
        return factor
    unit = np.zeros(bound.rows)
    unit[place] = 1.0
    row, attribute = bound.adjoint(unit, 0), attributes[0]
    if isinstance(bound, JointMap):
        names = [each.name for each in attributes]
        return JointMatrix.of(names, bound.sizes, row, names=factor.labels_over(attributes)[place : place + 1])
    for worded in _in_words(factor, attribute, np.flatnonzero(row)):
        if _is_row(worded, attribute, row):
            return worded
    name = "" if isinstance(factor, AllRanges) else factor.row_labels(attribute)[place]
    return Matrix.of(row, names=(name,) if name else ())


def _is_row(worded: Factor, attribute: Attribute, row: NDArray[np.float64]) -> bool:
    try:
        return np.array_equal(worded.bind(attribute).dense()[0], row)
    except DeclarationError:  # some labels, such as the one for missing values, are no ends of a range
        return False


def _in_words(factor: Factor, attribute: Attribute, codes: NDArray[np.intp]) -> list[Factor]:
    """Factors that may be the row which adds up these codes, the most readable first."""
    if not isinstance(factor, Identity | Prefix | AllRanges) or not codes.size:
        return []
    first, last = attribute.labels[codes[0]], attribute.labels[codes[-1]]
    words: list[Factor] = [Value(first)] if codes.size == 1 else [Range(first, last)]
    if isinstance(attribute, Numeric):
        words.insert(0, Range(first.partition("..")[0], last.partition("..")[2] or last))
    return words
