"""`plan`: what would be measured with each budget, and how far these answers would be off. Needs no data.

For each budget the plan that would be chosen is run on two made-up tables (`stand_ins`). Where it measures the same on
both, and what it measures determines every answer, the errors are those of least squares, whatever the data; else they
are those of simulated releases, and marked as such.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Matrix
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators import estimate
from consilience.estimators.base import Estimator, Progress
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.planning.expected_errors import (
    AskedQuery,
    ExpectedError,
    bases,
    exact_answers,
    least_squares_errors,
    simulated_errors,
    sum_errors,
)
from consilience.planning.outcomes import Basis, Outcome, WhatIf
from consilience.planning.stand_ins import STAND_INS, most_records, open_stand_in, stand_in_domain
from consilience.plans.sums import summed_amount
from consilience.privacy.budgets import Budget, budget
from consilience.privacy.measure import Plan
from consilience.request import File, Request
from consilience.source import Source

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
MOST_QUERIES = 300
"""Tables that errors are told of where no workload names them; of more, that many spread evenly among them."""
LARGEST_ANSWER = 2_000_000
"""Cells of a query of which errors are told."""
POOLED = 1_000
"""Answers of which simulated errors are told, at least; of a smaller workload several releases are simulated."""
MOST_RELEASES = 8


def plan(
    domain: Domain | File,
    workload: Workload | File | None = None,
    *,
    records: int | None = None,
    epsilon: float | Sequence[float] | None = None,
    delta: float | None = None,
    rho: float | Sequence[float] | None = None,
    plan: Plan | str | None = None,  # what `release` and the command line call it, too
    unnamed_share: float | None = None,
    sums_share: float | None = None,
    neighbours: str = "add-remove",
    max_rows_per_unit: int | None = None,
    method: Estimator | str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> WhatIf:
    """What each budget would buy of a table like this: the plan, and how far these answers would be off.

    Needs no data, and spends nothing. `records` is a guess of how many there are, or a public number. Errors are in
    closed form where noise is all there is to them, and simulated on two made-up tables where the plan or the model
    depends on the data. The other names mean what they mean to `release`.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 10, "sex": 2})
    >>> found = cs.plan(domain, cs.Workload.of(["by age, sex"]), records=50_000, epsilon=[0.1, 1])
    >>> [outcome.in_words for outcome in found.outcomes]
    ['counts below 30 will drown', 'counts below 3.0 will drown']
    """
    declared = domain if isinstance(domain, Domain) else Domain.load(domain)
    wanted = workload if workload is None or isinstance(workload, Workload) else Workload.load(workload)
    budgets = _budgets(epsilon, delta, rho)
    asked = Request(
        data=None,
        domain=declared,
        plan=plan,
        workload=wanted,
        unnamed_share=unnamed_share,
        sums_share=sums_share,
        neighbours=neighbours,
        max_rows_per_unit=max_rows_per_unit,
        epsilon=1,
    )
    return what_if(asked, records, budgets, method=method, seed=seed, progress=progress)


def _budgets(
    epsilon: float | Sequence[float] | None, delta: float | None, rho: float | Sequence[float] | None
) -> list[dict[str, Any]]:
    """What to ask for, in turn, from the least on."""
    if epsilon is not None and rho is not None:
        raise DeclarationError("epsilon and rho were given; give one of them")
    given = rho if rho is not None else EPSILONS if epsilon is None else epsilon
    amounts = sorted(set(given)) if isinstance(given, Sequence) else [given]
    if not amounts:
        raise DeclarationError("no budget was given; name at least one, such as epsilon=1")
    unit = "epsilon" if rho is None else "rho"
    for amount in amounts:
        budget(**{unit: amount, "delta": delta} if delta is not None else {unit: amount})
    return [{unit: amount} | ({} if delta is None else {"delta": delta}) for amount in amounts]


def what_if(
    request: Request,
    records: int | None,
    budgets: Sequence[dict[str, Any]],
    *,
    method: Estimator | str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> WhatIf:
    """What each of these budgets would buy of a request, told without its data."""
    guess = check_records(request.domain, records)
    none = dict.fromkeys(("epsilon", "delta", "rho"))
    requests = [replace(request, **none | amounts).expected for amounts in budgets]
    requests[0].domain.refuse_draft()
    first = _Trial.opened(requests[0], guess, seed)
    trials = [
        replace(first, request=asked, spent=budget(**given)) for asked, given in zip(requests, budgets, strict=True)
    ]
    steps = itertools.count()

    def step() -> None:
        if progress is not None:
            progress("trying budgets", min(next(steps), 2 * len(trials)), 2 * len(trials))

    alone: list[Outcome | None] = []
    for trial in trials:
        step()
        alone.append(trial.by_noise_alone())
    # Where some budget needs a simulation all get one, so that they can be compared.
    simulate = any(each is None for each in alone)
    outcomes: list[Outcome] = []
    for trial, told in zip(trials, alone, strict=True):
        step()
        outcomes += [told] if told is not None else []
        outcomes += trial.simulated(method) if simulate else []
    step()
    return WhatIf(request.domain.name, guess, first.title, tuple(outcomes), (*first.said, *_legend(outcomes)))


def _legend(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What the ways are by which errors were told."""
    found = []
    if any(each.how == "least squares" for each in outcomes):
        found.append(
            "Least squares: the noise alone, whatever the data; what is released is not negative either, and is as a "
            "rule closer, most of all where many counts are zero."
        )
    if any(each.how == "simulated" for each in outcomes):
        found.append(
            "Simulated: what is measured, or how well a model fills in, depends on the data. Two made-up tables stand "
            "in, one uniform and one skewed with related columns; yours may be easier or harder than both."
        )
    return tuple(found)


def check_records(domain: Domain, records: int | None) -> int:
    """How many records there are, by public knowledge or by a guess."""
    total = domain.public.total
    if total is not None:
        if records is not None and records != round(total):
            raise DeclarationError(
                f"{records:,} records were guessed, and domain {domain.name!r} declares that there are {total:,.0f}; "
                "leave the guess out"
            )
        return round(total)
    if records is None:
        raise DeclarationError(
            f"domain {domain.name!r} declares no number of records, and none is read off data here; give a guess, such "
            "as records=50000"
        )
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise DeclarationError(f"records is {records!r}; give a whole number from 1 up")
    return records


@dataclass(frozen=True, eq=False)
class _Trial:
    """A request to be tried on stand-ins of its domain."""

    request: Request
    domain: Domain
    sources: tuple[Source, ...]
    asked: tuple[AskedQuery, ...]
    title: str
    seed: int
    said: tuple[str, ...]
    spent: Budget

    @staticmethod
    def opened(request: Request, records: int, seed: int) -> "_Trial":
        domain = stand_in_domain(request.domain)
        per_unit = request.max_rows_per_unit or 1
        size = most_records(domain, records)
        sources = tuple(open_stand_in(how, domain, size, rows_per_unit=per_unit, seed=seed) for how in STAND_INS)
        asked, title, said = _asked(request, domain)
        if size < records:
            said += (f"The made-up tables have {size:,} records.",)
        if request.domain.public.margins:
            said += ("The made-up tables leave published margins out; with these errors are smaller.",)
        return _Trial(request, domain, sources, asked, title, seed, said, request.asked)

    @cached_property
    def runs(self) -> list[MeasurementSet]:
        """What is measured of each stand-in."""
        return [self._measured(source, self.seed) for source in self.sources]

    @cached_property
    def of(self) -> tuple[AskedQuery, ...]:
        """What errors are told of: what is asked, or else what is measured."""
        return self.asked or _of_measured(self.runs[0])

    def by_noise_alone(self) -> Outcome | None:
        """What the budget buys whatever the data; None where that depends on them."""
        one = self.runs[0]
        if len({_identity(each) for each in self.runs}) > 1:
            return None
        if not all(basis in ("measured", "public") for basis in bases(one, self.of)):
            return None
        found = least_squares_errors(one, self.of, generator(self.seed, 2)) if self.of else []
        return None if found is None else self._outcome(one, "least squares", None, found)

    def simulated(self, method: Estimator | str) -> list[Outcome]:
        """What the budget bought of each stand-in."""
        answers = sum(each.bound.size for each in self.of)
        several = min(MOST_RELEASES, max(POOLED // max(answers, 1), 1))
        outcomes = []
        for how, source, run in zip(STAND_INS, self.sources, self.runs, strict=True):
            more = [self._measured(source, self.seed + draw) for draw in range(1, several)]
            fitted = [estimate(each, method=method, allow_misfit=True) for each in (run, *more)]
            found = simulated_errors(fitted, exact_answers(source, self.of), self.of)
            outcomes.append(self._outcome(run, "simulated", how.name, found))
        return outcomes

    def _outcome(
        self, run: MeasurementSet, how: Basis, stand_in: str | None, found: Sequence[ExpectedError]
    ) -> Outcome:
        plan = str(self.request.chosen.to_json()["plan"])
        return Outcome(self.spent, plan, measured_in_words(run), how, stand_in, (*found, *sum_errors(run)))

    def _measured(self, source: Source, seed: int) -> MeasurementSet:
        asked = self.request
        amounts = {"epsilon": asked.epsilon, "delta": asked.delta, "rho": asked.rho}
        return measure(source, asked.chosen, **amounts, neighbours=asked.neighbours, simulate=seed)  # type: ignore[arg-type]


def _identity(measured: MeasurementSet) -> str:
    """What was measured with how much noise, without the answers."""
    return repr([(each.kind, each.query, each.noise) for each in (*measured.measurements, *measured.sums)])


def _asked(request: Request, domain: Domain) -> tuple[tuple[AskedQuery, ...], str, tuple[str, ...]]:
    """The queries that errors are told of, in words as well; none where the plan alone says what is asked."""
    workload, said = request.workload, ()
    if workload is None:
        workload = getattr(request.chosen, "workload", None) if request.plan is not None else None
        ways = getattr(request.chosen, "ways", None) if request.plan is not None else 2
        if workload is None and not isinstance(ways, int):
            return (), "what is measured", ()
        if workload is None:
            queries, title = _some_marginals(domain, min(int(ways or 0), len(domain.counted_names)))
            return _bound(queries, domain), title, ()
    counts = [(query, weight) for query, weight in workload if summed_amount(query, request.domain) is None]
    sizes = {query: query.bind(domain).size for query, _ in counts}
    large = [query.describe() for query, size in sizes.items() if size > LARGEST_ANSWER]
    if large:
        said = (f"Of more than {LARGEST_ANSWER:,} answers, no errors are told: {', '.join(large)}.",)
    kept = [(query, weight) for query, weight in counts if sizes[query] <= LARGEST_ANSWER]
    title = f"the {len(workload):,} queries of the workload" if len(workload) > 1 else workload.queries[0].describe()
    return tuple(AskedQuery(query.bind(domain), weight) for query, weight in kept), title, said


def _some_marginals(domain: Domain, ways: int) -> tuple[list[Query], str]:
    """All tables of so many attributes, or some of them, spread evenly."""
    number = math.comb(len(domain.counted_names), ways)
    every = itertools.combinations(domain.counted_names, ways)
    step = -(-number // MOST_QUERIES)
    names = list(itertools.islice(every, 0, 200_000 * step, step))[:MOST_QUERIES]
    what = f"tables of {_number(ways)} attribute{'s' * (ways != 1)}"
    title = f"all {number:,} {what}" if step == 1 else f"{len(names):,} of {number:,} {what}"
    return [Query.marginal(*each) for each in names if math.prod(domain.sizes(each)) <= LARGEST_ANSWER], title


def _of_measured(measured: MeasurementSet) -> tuple[AskedQuery, ...]:
    """The queries that were measured themselves."""
    queries = dict.fromkeys(each.query for each in measured if each.kind == "linear")
    return _bound(list(queries), measured.domain)


def _bound(queries: Sequence[Query], domain: Domain) -> tuple[AskedQuery, ...]:
    return tuple(AskedQuery(query.bind(domain), 1.0) for query in queries)


def measured_in_words(measured: MeasurementSet) -> str:
    """What was measured, by how many attributes it is about.

    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"age": 3, "sex": 2})
    >>> measured_in_words(MeasurementSet.from_marginals(domain, {"sex": [10.0, 12.0]}, noise=Laplace(2.0)))
    '1 table of one attribute'
    """
    tables: Counter[int] = Counter()
    others = 0
    for query in dict.fromkeys(each.query for each in measured if each.kind == "linear"):
        if all(_is_plain(factor) for _, factor in query.factors):
            tables[len(query.factors)] += 1
        else:
            others += 1
    parts = ["the total"] * (tables.pop(0, 0) > 0)
    for place, (ways, number) in enumerate(sorted(tables.items())):
        attributes = f"{_number(ways)} attribute{'s' * (ways != 1)}" if place == 0 else _number(ways)
        parts.append(f"{number:,} table{'s' * (number != 1)} of {attributes}")
    parts += [f"{others:,} other quer{'y' if others == 1 else 'ies'}"] if others else []
    parts += [f"{len(measured.sums):,} set{'s' * (len(measured.sums) != 1)} of sums"] if measured.sums else []
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1] if parts else "nothing"


def _is_plain(factor: Factor) -> bool:
    """Whether it tells every value; of two values the difference does, beside their sum."""
    return isinstance(factor, Identity) or (isinstance(factor, Matrix) and factor.rows == 1)


def _number(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[count] if count < len(words) else str(count)
